#include "hako/dbm/hash_dbm.h"

namespace hako {

template class HashDBM<>;
template class hash::RecordHeap<MemoryMapParallelFile>;
template class hash::BucketIndex<hash::RecordHeap<MemoryMapParallelFile>>;

}  // namespace hako
