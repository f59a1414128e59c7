// HashDBM and TreeDBM on files with direct I/O, in the suites of every DBM and of those in a file:
// with small blocks in a small cache, so that blocks are constantly evicted, and records, pages and
// superblocks share blocks.
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "support/direct_file.h"

namespace hako {
namespace {

// Some megabytes, because a test with more records than the cache holds accesses the device for
// each of them, which is slow. model_test.cc uses the smallest cache.
using Cached = DirectFile<512, 8 << 20>;
using HardlyCached = DirectFile<512>;

static_assert(DBM<HashDBM<Cached>> && DBM<TreeDBM<Cached>>);

using Hash = testing::Types<HashSurroundings<Cached>>;
INSTANTIATE_TYPED_TEST_SUITE_P(DirectHash, DBMConformance, Hash);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectHash, DurableDBMConformance, Hash);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectHash, ConcurrentDBMConformance, Hash);

using Tree = testing::Types<TreeSurroundings<HardlyCached>>;  // it has a separate cache
INSTANTIATE_TYPED_TEST_SUITE_P(DirectTree, DurableDBMConformance, Tree);

}  // namespace
}  // namespace hako
