// BabyDBM: the suites of every DBM with pages of the usual size and with tiny ones, and what is its own.
#include "hako/dbm/baby_dbm.h"

#include <memory>
#include <string>
#include <utility>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using All = testing::Types<BabySurroundings<MemoryMapParallelFile>, BabySurroundings<MemoryMapParallelFile, 128>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, DBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, ConcurrentDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, MultiDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, OrderedDBMConformance, All);

TEST(BabyDBM, TakesKeysOfAnotherPrefixIntoAnEmptiedPage) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
  for (const char prefix : {'b', 'a', 'c'}) {
    const std::string key(100, prefix);
    ASSERT_THAT(db->Set(key + "1", "value"), IsOk());
    ASSERT_THAT(db->Set(key + "2", "value"), IsOk());
    ASSERT_THAT(db->Remove(key + "1"), IsOk());
    ASSERT_THAT(db->Remove(key + "2"), IsOk());
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

// As adaptors of std::views move a range that they take.
TEST(BabyDBM, RangesGoOnWhereTheyAreMovedTo) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = 256}));
  for (int i = 100; i < 900; ++i) ASSERT_THAT(db->Set(std::to_string(i), "value"), IsOk());
  auto range = std::make_unique<decltype(db->Range())>(db->Range());
  auto moved = std::move(*range);
  range.reset();
  int next = 100;
  for (const auto [key, value] : moved) EXPECT_EQ(key, std::to_string(next++));
  EXPECT_EQ(next, 900);
  auto iterator = std::make_unique<BabyDBM<>::Iterator>(db->MakeIterator());
  iterator->Last();
  auto last = std::move(*iterator);
  iterator.reset();
  for (; last.Valid(); last.Previous()) EXPECT_EQ(last.key(), std::to_string(--next));
  EXPECT_EQ(next, 100);
}

}  // namespace
}  // namespace hako
