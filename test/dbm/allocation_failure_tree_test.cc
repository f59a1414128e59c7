// Memory that runs out in a TreeDBM.
#include "dbm/allocation_failure_conformance.h"
#include "dbm/surroundings.h"

namespace hako {
namespace {

using All = testing::Types<TreeSurroundings<MemoryMapParallelFile, 256>, TreeSurroundings<PositionalParallelFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, AllocationFailure, All);

}  // namespace
}  // namespace hako
