// Memory that runs out in a HashDBM.
#include "dbm/allocation_failure_conformance.h"
#include "dbm/surroundings.h"
#include "support/test_types.h"

namespace hako {
namespace {

using All = TestTypes<testing::Types<HashSurroundings<MemoryMapParallelFile>>, HashSurroundings<PositionalParallelFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, AllocationFailure, All);

}  // namespace
}  // namespace hako
