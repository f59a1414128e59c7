// HashDBM and TreeDBM on files with direct I/O, in the suites of every DBM and of those in a file: with small blocks in a small cache, so
// that records, pages and superblocks come and go and share blocks.
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/durable_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "support/direct_file.h"

namespace hako {
namespace {

// What has more records than the cache has room for goes to the device for each of them, which takes its time: hence some megabytes. With
// the smallest cache there is model_test.cc.
using Cached = DirectFile<512, 8 << 20>;
using HardlyCached = DirectFile<512>;

static_assert(DBM<HashDBM<Cached>> && DBM<TreeDBM<Cached>>);

using Hash = testing::Types<HashSurroundings<Cached>>;
INSTANTIATE_TYPED_TEST_SUITE_P(DirectHash, DBMConformance, Hash);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectHash, DurableDBMConformance, Hash);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectHash, ConcurrentDBMConformance, Hash);

using Tree = testing::Types<TreeSurroundings<HardlyCached>>;  // it has a cache of its own
INSTANTIATE_TYPED_TEST_SUITE_P(DirectTree, DurableDBMConformance, Tree);

}  // namespace
}  // namespace hako
