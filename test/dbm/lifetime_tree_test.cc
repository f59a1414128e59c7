// Close, destruction and fork of a TreeDBM.
#include "dbm/lifetime_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "support/direct_file.h"

namespace hako {
namespace {

using All = testing::Types<TreeSurroundings<MemoryMapParallelFile>, TreeSurroundings<PositionalParallelFile, 512, kSmallestCache>,
                           TreeSurroundings<MemoryFile>, TreeSurroundings<DirectFile<4096>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, LifetimeDBMConformance, All);

}  // namespace
}  // namespace hako
