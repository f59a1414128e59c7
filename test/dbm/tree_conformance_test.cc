// TreeDBM in the suites of every DBM and of those in a file.
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "support/archetypes.h"
#include "support/test_types.h"

namespace hako {
namespace {

static_assert(DBM<TreeDBM<>> && DBM<TreeDBM<PositionalParallelFile>> && DBM<TreeDBM<MemoryFile>> && DBM<TreeDBM<AnyFile>> &&
              DBM<TreeDBM<ArchetypeFile>>);

using Mapped = testing::Types<TreeSurroundings<MemoryMapParallelFile>>;
using Some =
    TestTypes<testing::Types<TreeSurroundings<PositionalParallelFile>>, TreeSurroundings<MemoryMapParallelFile>>;  // the others: repeats
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, DBMConformance, Some);
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, DurableDBMConformance, Some);
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, ConcurrentDBMConformance, Mapped);
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, MultiDBMConformance, Mapped);

}  // namespace
}  // namespace hako
