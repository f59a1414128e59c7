#include "hako/dbm/hash_dbm.h"

namespace hako {

template class HashDBM<>;
template class storage::RecordHeap<MemoryMapParallelFile>;
template class index::BucketIndex<storage::RecordHeap<MemoryMapParallelFile>>;

}  // namespace hako
