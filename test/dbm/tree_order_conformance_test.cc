// TreeDBM in the suites about the order of keys and about several keys at once, which ask little of the file.
#include "dbm/multi_dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"

namespace hako {
namespace {

using Usual = testing::Types<TreeSurroundings<MemoryMapParallelFile>>;
using Tiny = testing::Types<TreeSurroundings<MemoryFile, 512, kSmallestCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, MultiDBMConformance, Usual);
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOfTinyPages, MultiDBMConformance, Tiny);
INSTANTIATE_TYPED_TEST_SUITE_P(TreeOfTinyPages, OrderedDBMConformance, Tiny);

}  // namespace
}  // namespace hako
