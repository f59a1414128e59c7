// Close, destruction and fork of a TreeDBM.
#include "dbm/lifetime_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "support/direct_file.h"
#include "support/test_types.h"

namespace hako {
namespace {

using All = TestTypes<testing::Types<TreeSurroundings<PositionalParallelFile, 512, kSmallestCache>>,
                      TreeSurroundings<MemoryMapParallelFile>, TreeSurroundings<MemoryFile>, TreeSurroundings<DirectFile<4096>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, LifetimeDBMConformance, All);

}  // namespace
}  // namespace hako
