// TreeDBM in the suites of every DBM and of those in a file, on every kind of file, and with tiny pages in the smallest cache.
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "support/archetypes.h"

namespace hako {
namespace {

static_assert(DBM<TreeDBM<>> && DBM<TreeDBM<PositionalParallelFile>> && DBM<TreeDBM<MemoryFile>> && DBM<TreeDBM<AnyFile>> &&
              DBM<TreeDBM<ArchetypeFile>>);

using Mapped = TreeSurroundings<MemoryMapParallelFile>;
using Positional = TreeSurroundings<PositionalParallelFile>;
using InMemory = TreeSurroundings<MemoryFile>;
using Erased = TreeSurroundings<AnyFile>;
using Tiny = TreeSurroundings<MemoryFile, 256, kSmallestCache>;  // a device would have to sync all the time

using All = testing::Types<Mapped, Positional, InMemory, Erased, Tiny>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, DBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, DurableDBMConformance, All);
using Some = testing::Types<Mapped, Tiny>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, ConcurrentDBMConformance, Some);

}  // namespace
}  // namespace hako
