#include "hako/dbm/tree_dbm.h"

namespace hako {

template class TreeDBM<>;
template class OrderedOperations<TreeDBM<>, BytewiseComparator>;
template class TreeOperations<TreeDBM<>, storage::PageCache<MemoryMapParallelFile>, BytewiseComparator>;
template class storage::PageCache<MemoryMapParallelFile>;

}  // namespace hako
