// Close, destruction and fork of a HashDBM.
#include "dbm/lifetime_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "support/direct_file.h"
#include "support/test_types.h"

namespace hako {
namespace {

using All = TestTypes<testing::Types<HashSurroundings<MemoryMapParallelFile>>, HashSurroundings<PositionalParallelFile>,
                      HashSurroundings<MemoryFile>, HashSurroundings<DirectFile<4096>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Hash, LifetimeDBMConformance, All);

}  // namespace
}  // namespace hako
