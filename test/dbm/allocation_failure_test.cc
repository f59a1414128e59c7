// Memory that runs out in the databases in memory.
#include "dbm/allocation_failure_conformance.h"
#include "dbm/surroundings.h"

namespace hako {
namespace {

using All = testing::Types<TinySurroundings<MemoryFile>, BabySurroundings<MemoryFile, 256>>;
INSTANTIATE_TYPED_TEST_SUITE_P(InMemory, AllocationFailure, All);

}  // namespace
}  // namespace hako
