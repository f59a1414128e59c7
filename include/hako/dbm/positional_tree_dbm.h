// TreeDBM on a file that is read and written by position, compiled in the library. A program that
// includes this header beside dbm/tree_dbm.h does not compile it again.
#pragma once

#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

extern template class TreeDBM<PositionalParallelFile>;
extern template class Operations<TreeDBM<PositionalParallelFile>>;
extern template class MultiOperations<TreeDBM<PositionalParallelFile>>;
extern template class TreeCursor<TreeDBM<PositionalParallelFile>,
                                 tree::PageTree<tree::BufferPool<PositionalParallelFile>, BytewiseComparator>, BytewiseComparator>;
extern template class FileOperations<TreeDBM<PositionalParallelFile>, PositionalParallelFile, TreeOptions>;
extern template class LogOperations<TreeDBM<PositionalParallelFile>, PositionalParallelFile, TreeOptions>;
extern template class OrderedOperations<TreeDBM<PositionalParallelFile>, BytewiseComparator>;
extern template class TreeOperations<TreeDBM<PositionalParallelFile>, tree::BufferPool<PositionalParallelFile>, BytewiseComparator>;
extern template class EngineOperations<TreeDBM<PositionalParallelFile>, tree::BufferPool<PositionalParallelFile>,
                                       tree::PageTree<tree::BufferPool<PositionalParallelFile>, BytewiseComparator>>;
extern template class tree::PageTree<tree::BufferPool<PositionalParallelFile>, BytewiseComparator>;
extern template class tree::BufferPool<PositionalParallelFile>;
extern template class tree::Checkpointer<PositionalParallelFile>;

}  // namespace hako
