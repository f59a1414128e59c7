// TinyDBM with a limit: the memory and the records that it has, and which records it evicts.
#include <algorithm>
#include <cstdint>
#include <string>

#include "dbm/capacity_checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tiny_dbm.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {
namespace {

using testing::HasSubstr;
constexpr std::uint64_t kThreadBytes = 10 << 10;  // that a thread may hold where there is little memory

TEST(CapacityTest, TakesNoMoreMemoryThanItsLimitWhateverTheSizes) {
  CheckMemory<TinyDBM<>, TinyOptions>({1 * kMiB, 5 * kMiB}, true);
  if (kSlowdown == 1) CheckMemory<TinyDBM<>, TinyOptions>({16 * kMiB}, true);
}

// The index grows while the memory is full, so it takes extents of records.
TEST(CapacityTest, EvictsFewRecordsForTheIndex) {
  for (int round = 0; round < std::max(8 / kSlowdown, 2); ++round) {
    ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.capacity_bytes = kMiB}));
    std::uint64_t most = 0;
    for (std::uint64_t i = 0; i < 60'000; ++i) {
      ASSERT_THAT(db->Set(NumberedKey(i), "12345678"), IsOk());
      if (i % 64 != 0) continue;
      most = std::max(most, db->Count());
      ASSERT_GE(db->Count(), most - most / 6);
      ASSERT_LE(db->GetStats().total_bytes, kMiB);
    }
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

// However many threads there are for the memory, none fails, and they have most of it.
TEST(CapacityTest, ManyThreadsOnLittleMemory) {
  for (const std::uint64_t capacity : {4 * kMiB, 8 * kMiB}) {
    SCOPED_TRACE(capacity);
    ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.capacity_bytes = capacity}));
    RunThreads(64, [&](int thread) {
      Random random(TestSeed() + static_cast<std::uint64_t>(thread));
      for (std::uint64_t i = 0; i < 3000 / kSlowdown; ++i) {
        const std::string value(random.OneIn(50) ? random.Below(3000) : 8, 'x');
        ASSERT_THAT(db->Set(NumberedKey(random.Below(700'000)), value), IsOk());
      }
    });
    EXPECT_LE(db->GetStats().total_bytes, capacity + std::max(capacity / 100, 64 * kThreadBytes));
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

// Free blocks of evicted large records are divided, rather than left while small records evict each other.
TEST(CapacityTest, GivesTheMemoryOfLargeRecordsToSmallOnes) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.capacity_bytes = 2 * kMiB}));
  std::uint64_t i = 0;
  for (; i < 2000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(3000, 'v')), IsOk());
  for (; i < 200'000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "0123456789"), IsOk());
  EXPECT_GT(db->Count(), 30'000u);
  ASSERT_THAT(db->Verify(), IsOk());
}

TEST(CapacityTest, ReusesItsMemoryForRecordsOfOtherSizes) { CheckReuse<TinyDBM<>, TinyOptions>((kSlowdown > 1 ? 1 : 2) * kMiB, 0.75); }

TEST(CapacityTest, EvictsNothingBelowItsLimit) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.capacity_bytes = 4 * kMiB, .capacity_records = 20'000}));
  for (std::uint64_t i = 0; i < 20'000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(100, 'v')), IsOk());
  for (std::uint64_t i = 0; i < 20'000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(90, 'w')), IsOk());
  EXPECT_EQ(db->Count(), 20'000u);
  EXPECT_EQ(db->GetStats().evictions, 0u);
  ASSERT_THAT(db->Set("one more", ""), IsOk());
  EXPECT_GT(db->GetStats().evictions, 0u);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(CapacityTest, HasAtMostItsNumberOfRecordsAndNotManyLess) {
  for (const std::uint64_t capacity : {1000u, 5000u}) {
    ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.capacity_records = capacity}));
    for (std::uint64_t i = 0; i < 5 * capacity; ++i) {
      ASSERT_THAT(db->Set(NumberedKey(i), i % 2 == 0 ? "short" : std::string(200, 'v')), IsOk());
      ASSERT_LE(db->Count(), capacity);
      ASSERT_GE(db->Count(), std::min(i + 1, capacity - capacity / 100));
      ASSERT_THAT(db->GetSize(NumberedKey(i)).status(), IsOk());  // the newest is there
    }
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

TEST(CapacityTest, EvictsExactlyTheRecordsThatItShows) {
  CheckEvictedRecords<TinyDBM<>>(TinyOptions{.capacity_bytes = kMiB}, 8000);
  CheckEvictedRecords<TinyDBM<>>(TinyOptions{.capacity_records = 1000}, 8000);
}

TEST(CapacityTest, RefusesARecordThatIsTooLargeAndEvictsNothing) { CheckLargeRecords<TinyDBM<>, TinyOptions>(); }

TEST(CapacityTest, RefusesABatchThatIsTooLargeAndEvictsNothing) { CheckLargeBatches<TinyDBM<>, TinyOptions>(1500, true); }

TEST(CapacityTest, LargeBatchEvictsNoMoreSmallRecordsThanItNeeds) {
  for (const std::uint64_t num_values : {8u, 28u, 100u}) CheckBatchesAmongSmallRecords<TinyDBM<>, TinyOptions>(num_values);
}

TEST(CapacityTest, LargestValueEvictsNoMoreThanItNeeds) {
  for (std::uint64_t seed = 1; seed <= (kSlowdown > 1 ? 1 : 3); ++seed) CheckLargestValue<TinyDBM<>, TinyOptions>(seed, 1);
}

// Which have free blocks in their magazines.
TEST(CapacityTest, LargestValueEvictsNoMoreThanItNeedsBesideIdleThreads) {
  for (const int num_threads : {4, 16}) CheckLargestValue<TinyDBM<>, TinyOptions>(1, num_threads);
}

TEST(CapacityTest, LargeValuesFindRoomBesideBusyThreads) { CheckLargeValuesBesideBusyThreads<TinyDBM<>, TinyOptions>(); }

TEST(CapacityTest, UsedRecordsStayBesideALargeSet) { CheckUsedRecordsBesideALargeSet<TinyDBM<>, TinyOptions>(); }

TEST(CapacityTest, RefusesALimitBelowTheMinimum) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, kMiB - 1}) {
    EXPECT_THAT(
        TinyDBM<>::Open({.capacity_bytes = bytes}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("TinyOptions::capacity_bytes must be 0, for no limit, or at least")));
  }
  EXPECT_THAT(TinyDBM<>::Open({.capacity_records = 999}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("capacity_records")));
}

TEST(CapacityTest, KeepsPopularRecordsDuringAScan) { CheckUses<TinyDBM<>, TinyOptions>(true); }

// Some keys have the tag of another record in their bucket: such a Get ends with the bucket locked.
TEST(CapacityTest, CountsEveryGet) {
  constexpr std::uint64_t kGets = 300'000 / kSlowdown;
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.capacity_records = 8000}));
  for (std::uint64_t i = 0; i < 8000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
  for (std::uint64_t i = 0; i < kGets; ++i) (void)db->GetSize(NumberedKey(i + 8000));
  EXPECT_EQ(db->GetStats().misses, kGets);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(CapacityTest, StoresValuesOf64MiB) { CheckHugeValues<TinyDBM<>, TinyOptions>(); }

TEST(CapacityTest, ConcurrentThreadsKeepTheLimit) {
  constexpr std::uint64_t kCapacity = 2 * kMiB;
  CheckConcurrentThreads<TinyDBM<>>(TinyOptions{.capacity_bytes = kCapacity, .capacity_records = 5000},
                                    [](TinyDBM<>& db) { return db.GetStats().total_bytes <= kCapacity + kCapacity / 10; });
}

TEST(CapacityTest, EvictedRecordsStayAbsentAfterTheDeathOfTheProcess) {
  CheckDeathOfTheProcess<TinyDBM<>>(TinyOptions{.capacity_bytes = kMiB}, 20'000, [](TinyDBM<>& db, std::uint64_t i) {
    return db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), i % 300, 1));
  });
}

TEST(CapacityTest, OpeningWithASmallerLimitEvictsPermanently) {
  CheckSmallerLimit<TinyDBM<>>(TinyOptions{.capacity_records = 2000}, 5, 1980, 2000);
  CheckSmallerLimit<TinyDBM<>>(TinyOptions{.capacity_bytes = kMiB}, 1000, 700, 1000);
}

}  // namespace
}  // namespace hako
