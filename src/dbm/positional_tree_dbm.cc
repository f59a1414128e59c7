#include "hako/dbm/positional_tree_dbm.h"

namespace hako {

template class TreeDBM<PositionalParallelFile>;
template class Operations<TreeDBM<PositionalParallelFile>>;
template class MultiOperations<TreeDBM<PositionalParallelFile>>;
template class TreeCursor<TreeDBM<PositionalParallelFile>, tree::PageTree<tree::BufferPool<PositionalParallelFile>, BytewiseComparator>,
                          BytewiseComparator>;
template class FileOperations<TreeDBM<PositionalParallelFile>, PositionalParallelFile, TreeOptions>;
template class LogOperations<TreeDBM<PositionalParallelFile>, PositionalParallelFile, TreeOptions>;
template class OrderedOperations<TreeDBM<PositionalParallelFile>, BytewiseComparator>;
template class TreeOperations<TreeDBM<PositionalParallelFile>, tree::BufferPool<PositionalParallelFile>, BytewiseComparator>;
template class EngineOperations<TreeDBM<PositionalParallelFile>, tree::BufferPool<PositionalParallelFile>,
                                tree::PageTree<tree::BufferPool<PositionalParallelFile>, BytewiseComparator>>;
template class tree::PageTree<tree::BufferPool<PositionalParallelFile>, BytewiseComparator>;
template class tree::BufferPool<PositionalParallelFile>;
template class tree::Checkpointer<PositionalParallelFile>;

}  // namespace hako
