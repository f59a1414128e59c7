#include "hako/dbm/tree_dbm.h"

namespace hako {

template class TreeDBM<>;
template class Operations<TreeDBM<>>;
template class MultiOperations<TreeDBM<>>;
template class TreeCursor<TreeDBM<>, tree::PageTree<tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>, BytewiseComparator>;
template class FileOperations<TreeDBM<>, MemoryMapParallelFile, TreeOptions>;
template class LogOperations<TreeDBM<>, MemoryMapParallelFile, TreeOptions>;
template class OrderedOperations<TreeDBM<>, BytewiseComparator>;
template class TreeOperations<TreeDBM<>, tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>;
template class EngineOperations<TreeDBM<>, tree::BufferPool<MemoryMapParallelFile>,
                                tree::PageTree<tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>>;
template class tree::PageTree<tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>;
template class tree::BufferPool<MemoryMapParallelFile>;
template class tree::Checkpointer<MemoryMapParallelFile>;

}  // namespace hako
