// Close, destruction and fork of the databases in memory.
#include "dbm/lifetime_dbm_conformance.h"
#include "dbm/surroundings.h"

namespace hako {
namespace {

using All = testing::Types<TinySurroundings<MemoryFile>, BabySurroundings<MemoryFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(InMemory, LifetimeDBMConformance, All);

}  // namespace
}  // namespace hako
