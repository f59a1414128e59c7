// BabyDBM: the suites of every DBM with pages of the usual size and with tiny ones, and what is its own.
#include "hako/dbm/baby_dbm.h"

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"

namespace hako {
namespace {

using All = testing::Types<BabySurroundings<MemoryMapParallelFile>, BabySurroundings<MemoryMapParallelFile, 128>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, DBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, ConcurrentDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, OrderedDBMConformance, All);

}  // namespace
}  // namespace hako
