#include "hako/dbm/tree_dbm.h"

namespace hako {

template class TreeDBM<>;
template class FileOperations<TreeDBM<>, MemoryMapParallelFile, TreeOptions>;
template class OrderedOperations<TreeDBM<>, BytewiseComparator>;
template class TreeOperations<TreeDBM<>, tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>;
template class tree::BufferPool<MemoryMapParallelFile>;
template class tree::Checkpointer<MemoryMapParallelFile>;

}  // namespace hako
