#include "hako/dbm/hash_dbm.h"

namespace hako {

HAKO_HASH_DBM_TEMPLATES(, MemoryMapParallelFile, hash::MappedRecords);

}  // namespace hako
