// HashDBM in memory, and on a file whose type is chosen at run time, in the suites of every DBM and
// of those in a file.
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"

namespace hako {
namespace {

using Others = testing::Types<HashSurroundings<MemoryFile>, HashSurroundings<AnyFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(HashOn, DBMConformance, Others);
INSTANTIATE_TYPED_TEST_SUITE_P(HashOn, DurableDBMConformance, Others);
INSTANTIATE_TYPED_TEST_SUITE_P(HashOn, ConcurrentDBMConformance, Others);
INSTANTIATE_TYPED_TEST_SUITE_P(HashOn, MultiDBMConformance, Others);

}  // namespace
}  // namespace hako
