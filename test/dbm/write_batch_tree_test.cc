// TreeDBM in the suite of WriteBatch: on mapped and positional files, and with tiny pages in the
// smallest cache.
#include "dbm/surroundings.h"
#include "dbm/write_batch_conformance.h"
#include "gtest/gtest.h"
#include "support/test_types.h"

namespace hako {
namespace {

using TreeTypes = TestTypes<testing::Types<TreeSurroundings<PositionalParallelFile>>, TreeSurroundings<MemoryMapParallelFile>,
                            TreeSurroundings<MemoryFile, 512, kSmallestCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, WriteBatchConformance, TreeTypes);

}  // namespace
}  // namespace hako
