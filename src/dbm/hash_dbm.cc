#include "hako/dbm/hash_dbm.h"

namespace hako {

HAKO_HASH_DBM_TEMPLATES(, MemoryMapParallelFile, hash::MappedRecords);
HAKO_HASH_DBM_PATH_TEMPLATES(, MemoryMapParallelFile);

}  // namespace hako
