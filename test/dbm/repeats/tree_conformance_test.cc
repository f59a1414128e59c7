// TreeDBM in memory, and on a file whose type is chosen at run time, in the suites of every DBM and
// of those in a file; and with tiny pages in the smallest cache, in memory too, as a device would
// have to sync all the time.
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"

namespace hako {
namespace {

using Tiny = testing::Types<TreeSurroundings<MemoryFile, 256, kSmallestCache>>;
using Others = testing::Types<TreeSurroundings<MemoryFile>, TreeSurroundings<AnyFile>, TreeSurroundings<MemoryFile, 256, kSmallestCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOn, DBMConformance, Others);
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOn, DurableDBMConformance, Others);
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOn, ConcurrentDBMConformance, Tiny);

}  // namespace
}  // namespace hako
