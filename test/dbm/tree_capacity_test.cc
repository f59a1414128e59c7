// BabyDBM with a limit; and of both databases in memory: what is shown of evicted records that may expire.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "dbm/capacity_checks.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/checked_value.h"
#include "support/child_process.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;

TEST(TreeCapacityTest, HasAtMostItsNumberOfRecordsAndNotManyLess) {
  for (const unsigned page_size : {512u, 8192u}) {
    for (const bool ascends : {false, true}) {
      constexpr std::uint64_t kCapacity = 3000;
      ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = page_size, .capacity_records = kCapacity}));
      for (std::uint64_t i = 0; i < 5 * kCapacity; ++i) {
        const std::string key = NumberedKey(ascends ? i : MixBits(i));
        ASSERT_THAT(db->Set(key, i % 2 == 0 ? "short" : std::string(200, 'v')), IsOk());
        ASSERT_LE(db->Count(), kCapacity);
        ASSERT_GE(db->Count(), std::min(i + 1, kCapacity - kCapacity / 100));
        ASSERT_THAT(db->GetSize(key).status(), IsOk());  // the newest is there
      }
      const Stats stats = db->GetStats();
      EXPECT_EQ(stats.evictions, 5 * kCapacity - stats.num_records);
      EXPECT_EQ(stats.capacity_records, kCapacity);
      // Leaves that evictions leave sparse are joined and shrunk.
      EXPECT_LT(stats.total_bytes, kCapacity * 450) << page_size << " " << ascends;
      EXPECT_THAT(db->Verify(), IsOk());
    }
  }
}

TEST(TreeCapacityTest, TakesNoMoreMemoryThanItsLimitWhateverTheSizes) {
  CheckMemory<BabyDBM<>, BabyOptions>({(kSlowdown > 1 ? 1 : 3) * kMiB}, false);
  CheckMemory<BabyDBM<>, BabyOptions>({1 * kMiB}, true);
}

TEST(TreeCapacityTest, ReusesItsMemoryForRecordsOfOtherSizes) { CheckReuse<BabyDBM<>, BabyOptions>((kSlowdown > 1 ? 1 : 3) * kMiB, 0.6); }

TEST(TreeCapacityTest, EvictsNothingBelowItsLimit) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.capacity_records = 5000}));
  for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(100, 'v')), IsOk());
  for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(3000, 'w')), IsOk());
  EXPECT_EQ(db->Count(), 5000u);
  EXPECT_EQ(db->GetStats().evictions, 0u);
  ASSERT_THAT(db->Set("one more", ""), IsOk());
  EXPECT_GT(db->GetStats().evictions, 0u);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(TreeCapacityTest, EvictsExactlyTheRecordsThatItShows) {
  for (const unsigned page_size : {300u, 8192u}) {
    CheckEvictedRecords<BabyDBM<>>(BabyOptions{.page_size = page_size, .capacity_bytes = kMiB}, 8000);
    CheckEvictedRecords<BabyDBM<>>(BabyOptions{.page_size = page_size, .capacity_records = 1000}, 4000);
  }
}

TEST(TreeCapacityTest, RefusesARecordThatIsTooLargeAndEvictsNothing) { CheckLargeRecords<BabyDBM<>, BabyOptions>(); }

TEST(TreeCapacityTest, RefusesABatchThatIsTooLargeAndEvictsNothing) { CheckLargeBatches<BabyDBM<>, BabyOptions>(2000, false); }

TEST(TreeCapacityTest, LargeBatchEvictsNoMoreSmallRecordsThanItNeeds) {
  for (const std::uint64_t num_values : {8u, 28u, 100u}) CheckBatchesAmongSmallRecords<BabyDBM<>, BabyOptions>(num_values);
}

TEST(TreeCapacityTest, LargestValueEvictsNoMoreThanItNeeds) {
  for (std::uint64_t seed = 1; seed <= (kSlowdown > 1 ? 1 : 3); ++seed) CheckLargestValue<BabyDBM<>, BabyOptions>(seed, 1);
}

TEST(TreeCapacityTest, RefusesALimitBelowTheMinimum) {
  EXPECT_THAT(BabyDBM<>::Open({.capacity_bytes = kMiB - 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("BabyOptions::capacity_bytes")));
  EXPECT_THAT(BabyDBM<>::Open({.capacity_records = 999}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("BabyOptions::capacity_records")));
}

TEST(TreeCapacityTest, KeepsPopularRecordsDuringAScan) {
  for (const bool ascends : {true, false}) {
    if (ascends || kSlowdown == 1) CheckUses<BabyDBM<>, BabyOptions>(ascends);
  }
}

TEST(TreeCapacityTest, StoresValuesOf64MiB) { CheckHugeValues<BabyDBM<>, BabyOptions>(); }

TEST(TreeCapacityTest, ManyThreadsKeepTheLimit) { CheckManyThreads<BabyDBM<>, BabyOptions>(); }

TEST(TreeCapacityTest, ConcurrentThreadsKeepTheLimit) {
  constexpr std::uint64_t kCapacity = 2 * kMiB;
  CheckConcurrentThreads<BabyDBM<>>(BabyOptions{.page_size = 1024, .capacity_bytes = kCapacity, .capacity_records = 5000},
                                    [](BabyDBM<>& db) { return db.GetStats().total_bytes <= kCapacity; });
}

TEST(TreeCapacityTest, EvictedRecordsStayAbsentAfterTheDeathOfTheProcess) {
  for (const bool by_bytes : {true, false}) {
    const BabyOptions options{.capacity_bytes = by_bytes ? kMiB : 0, .capacity_records = by_bytes ? 0u : 2000u};
    CheckDeathOfTheProcess<BabyDBM<>>(options, 10'000, [](BabyDBM<>& db, std::uint64_t i) {
      const std::string key = NumberedKey(MixBits(i) % 9000);
      return db.Set(key, CheckedValue(key, i % 3000, 1));
    });
  }
}

TEST(TreeCapacityTest, OpeningWithASmallerLimitEvictsPermanently) {
  CheckSmallerLimit<BabyDBM<>>(BabyOptions{.capacity_records = 2000}, 5, 1980, 2000);
  CheckSmallerLimit<BabyDBM<>>(BabyOptions{.capacity_bytes = kMiB}, 1000, 400, 1000);
}

template <class D>
class ExpiringCapacityTest : public testing::Test {};
using InMemory = testing::Types<TinyDBM<>, BabyDBM<>>;
TYPED_TEST_SUITE(ExpiringCapacityTest, InMemory);

// The callback gets the value that was set, and no record that has expired; nothing while a file is opened.
TYPED_TEST(ExpiringCapacityTest, ShowsValuesWithoutTheirTimesAndNoExpiredRecord) {
  static std::atomic<std::uint64_t> now;
  now = 1'000'000;
  const auto clock = []() -> std::uint64_t { return now; };
  TempDir directory(TempDir::MemoryParent());
  const std::string path = directory.File("capped.hks");
  std::uint64_t shown = 0, wrong = 0, expired = 0;
  const auto evicted = [&](std::string_view key, std::string_view value) {
    ++shown;
    wrong += SaltOf(key, value) ? 0u : 1u;
    expired += key.starts_with("soon") && now > 2'000'000 ? 1u : 0u;
  };
  const auto set = [&](TypeParam& db, std::string_view prefix, std::optional<std::chrono::milliseconds> ttl, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::string key = std::string(prefix) + NumberedKey(i);
      ASSERT_THAT(db.Set(key, CheckedValue(key, 20, i), SetOptions{.ttl = ttl}), IsOk());
    }
  };
  {
    ASSERT_OK_AND_ASSIGN(
        auto db, TypeParam::Open(path, {.expiry = true, .clock = clock, .capacity_records = 1000, .on_eviction = EachRef(evicted)}));
    set(*db, "late", std::chrono::hours(1), 1500);
    EXPECT_EQ(shown, db->GetStats().evictions);
    EXPECT_GE(shown, 490u);
    set(*db, "soon", std::chrono::seconds(1), 1500);
    EXPECT_EQ(db->GetStats().evictions, 3000 - db->Count());
    now = 3'000'000;
    const std::uint64_t before = shown;
    set(*db, "more", std::nullopt, 1500);
    EXPECT_LE(db->GetStats().evictions, 4500 - db->Count());  // others were removed as expired ones
    EXPECT_LE(db->Count(), 1000u);
    EXPECT_LT(shown, before + 1500);
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(expired, 0u);
  shown = 0;
  {
    ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(path, {.clock = clock}));
    set(*db, "last", std::nullopt, 1500);
  }
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(path, {.clock = clock, .capacity_records = 1000, .on_eviction = EachRef(evicted)}));
  EXPECT_GT(db->GetStats().evictions, 0u);
  EXPECT_EQ(shown, 0u);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Short values take a shorter path, which has to log them, too.
TYPED_TEST(ExpiringCapacityTest, LogsEachSetOfARecordThatMayExpire) {
  TempDir directory(TempDir::MemoryParent());
  const std::string path = directory.File("expiring.hks");
  ChildProcess child([&](ChildProcess&) -> int {
    auto db = TypeParam::Open(path, {.expiry = true});
    if (!db.ok()) return 1;
    for (std::uint64_t i = 0; i < 100; ++i) {
      if (!(*db)->Set(NumberedKey(i), "value").ok()) return 2;
    }
    std::_Exit(0);
  });
  ASSERT_EQ(child.Result(), 0);
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(path));
  EXPECT_EQ(db->Count(), 100u);
}

}  // namespace
}  // namespace hako
