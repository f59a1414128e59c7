#include "hako/dbm/positional_hash_dbm.h"

namespace hako {

HAKO_HASH_DBM_TEMPLATES(, PositionalParallelFile, hash::PositionalRecords);
template class hash::PendingSets<hash::RecordHeap<PositionalParallelFile>, Action>;

}  // namespace hako
