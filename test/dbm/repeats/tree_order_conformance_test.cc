// TreeDBM with tiny pages in the smallest cache, in the suites about the order of keys and about
// several keys at once.
#include "dbm/multi_dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"

namespace hako {
namespace {

using Tiny = testing::Types<TreeSurroundings<MemoryFile, 512, kSmallestCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOfTinyPages, MultiDBMConformance, Tiny);
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOfTinyPages, OrderedDBMConformance, Tiny);

}  // namespace
}  // namespace hako
