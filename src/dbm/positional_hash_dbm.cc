#include "hako/dbm/positional_hash_dbm.h"

namespace hako {

HAKO_HASH_DBM_TEMPLATES(, PositionalParallelFile, hash::PositionalRecords);
HAKO_HASH_DBM_PATH_TEMPLATES(, PositionalParallelFile);
template class hash::PendingSets<hash::RecordHeap<PositionalParallelFile>, Action>;

}  // namespace hako
