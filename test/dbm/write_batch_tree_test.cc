// TreeDBM in the suite of WriteBatch: on mapped and positional files, and with tiny pages in the
// smallest cache.
#include "dbm/surroundings.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"

namespace hako {
namespace {

using TreeTypes = testing::Types<TreeSurroundings<MemoryMapParallelFile>, TreeSurroundings<PositionalParallelFile>,
                                 TreeSurroundings<MemoryFile, 512, kSmallestCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, WriteBatchConformance, TreeTypes);

}  // namespace
}  // namespace hako
