// Every DBM under one thread: the operations of operations.h with their edge cases, the forms of a
// visitor, iteration, growth, and values that change their size. For threads see
// concurrent_dbm_conformance.h.
//
// A suite is instantiated with a Surroundings: a default-constructible class that owns what one
// database lives in (a directory, the bytes of a memory file) and provides
//   using Database = ...;
//   StatusOr<std::unique_ptr<Database>> Open(std::uint64_t num_records = 0)   an empty database; num_records is its option of that name
// Every test ends with Verify() and Close().
#pragma once

#include "dbm/dbm_conformance_fixture.h"
#include "dbm/dbm_iteration_conformance.h"
#include "dbm/dbm_operation_conformance.h"

namespace hako {

TYPED_TEST_P(DBMConformance, KeepsEmptyAndBinaryKeysAndValues) {
  using namespace std::string_view_literals;
  auto& db = *this->db_;
  const Records records = {{"", "of the empty key"},
                           {"empty value", ""},
                           {std::string("\0"sv), "one NUL"},
                           {std::string("\0\0"sv), std::string("\0"sv)},
                           {std::string("a\0b"sv), "1"},
                           {std::string("a\0c"sv), "2"},
                           {"a", "3"},
                           {"\xFF\xFF", std::string("\xFF\0\xFF"sv)},
                           {"a\n", "\r\n"}};
  for (const auto& [key, value] : records) ASSERT_THAT(db.Set(key, value), IsOk());
  this->ExpectHolds(records);
  ASSERT_THAT(db.Set("", ""), IsOk());
  EXPECT_THAT(db.Get(""), IsOkAndHolds(""));
  EXPECT_THAT(db.Contains(""), IsOkAndHolds(true));
  for (const auto& [key, value] : records) EXPECT_THAT(db.Remove(key), IsOk());
  this->ExpectHolds({});
}

TYPED_TEST_P(DBMConformance, KeepsEveryCombinationOfSmallSizes) {
  auto& db = *this->db_;
  Records records;
  const auto set = [&](std::size_t key_size, std::size_t value_size) {
    std::string key = CheckedValue("key", key_size, value_size);
    std::string value = CheckedValue(key, value_size);
    ASSERT_THAT(db.Set(key, value), IsOk());
    records[key] = value;
  };
  for (std::size_t key_size = 0; key_size <= 40; ++key_size)
    for (std::size_t value_size = 0; value_size <= 40; ++value_size) set(key_size, value_size);
  for (std::size_t size = 100; size <= 300; ++size) set(8, size), set(size, 8);  // around the steps of size classes and varints
  for (std::size_t around : {1024u, 2048u, 3072u, 4096u, 8192u, 16384u, 32768u, 65536u})
    for (std::size_t size = around - 20; size <= around + 4; ++size) set(16, size);
  this->ExpectHolds(records);
}

TYPED_TEST_P(DBMConformance, KeepsLargeKeysAndValues) {
  auto& db = *this->db_;
  Records records;
  for (const std::size_t key_size : {std::size_t{1}, std::size_t{4096}, std::size_t{64} << 10, std::size_t{1} << 20}) {
    if (key_size > LongestKeyOf<typename TypeParam::Database>()) continue;
    for (const std::size_t value_size : {std::size_t{0}, std::size_t{100} << 10, std::size_t{1} << 20, std::size_t{5} << 20}) {
      const std::string key = CheckedValue("large", key_size, value_size);
      records[key] = CheckedValue(key, value_size, 1);
      ASSERT_THAT(db.Set(key, records[key]), IsOk());
    }
  }
  this->ExpectHolds(records);
  Random random(1);
  for (auto& [key, value] : records) {  // each gets another size, some of them tiny
    value = CheckedValue(key, random.SkewedSize(21), 2);
    ASSERT_THAT(db.Set(key, value), IsOk());
  }
  this->ExpectHolds(records);
  for (const auto& [key, value] : records) ASSERT_THAT(db.Remove(key), IsOk());
  this->ExpectHolds({});
}

TYPED_TEST_P(DBMConformance, RefusesKeysAndValuesBeyondTheLimits) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", "value"), IsOk());
  const std::size_t size = std::size_t{kValueSizeMax} + 1;  // pages of the kernel's one page of zeros: no memory is used
  void* const zeros = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const std::string_view long_value(static_cast<const char*>(zeros), size);
  const std::string_view long_key = long_value.substr(0, LongestKeyOf<typename TypeParam::Database>() + 1);
  ASSERT_THAT(db.Set("key", long_value), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_THAT(db.Set("new", long_value), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_THAT(db.Set("key", long_value, {.overwrite = true}), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(db.Set(long_key, "value"), StatusIs(absl::StatusCode::kOutOfRange));
  std::string value;
  EXPECT_FALSE(db.Get(long_key, &value).ok());
  EXPECT_FALSE(db.Remove(long_key).ok());
  EXPECT_EQ(munmap(zeros, size), 0);
  this->ExpectHolds({{"key", "value"}});
}

TYPED_TEST_P(DBMConformance, GrowsFromDefaultOptions) {
  auto& db = *this->db_;
  constexpr std::uint64_t kRecords = 200'000;
  std::string value(8, '\0');
  const auto expect = [&](std::uint64_t number, std::optional<std::uint64_t> salt) {
    const std::string key = NumberedKey(number);
    const Status status = db.Get(key, &value);
    if (!salt) return status.code() == absl::StatusCode::kNotFound;
    return status.ok() && value == CheckedValue(key, 8, *salt);
  };
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 8, 1)), IsOk());
    if (i % 1000 == 0) {
      ASSERT_TRUE(expect(i / 2, 1)) << i;
    }
  }
  EXPECT_EQ(db.Count(), kRecords);
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_TRUE(expect(i, 1)) << i;
  for (std::uint64_t i = kRecords; i < 2 * kRecords; ++i) ASSERT_TRUE(expect(i, std::nullopt)) << i;
  ASSERT_THAT(db.Verify(), IsOk());
  for (std::uint64_t i = 0; i < kRecords; i += 2) ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
  EXPECT_EQ(db.Count(), kRecords / 2);
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_TRUE(expect(i, i % 2 == 0 ? std::nullopt : std::optional(1))) << i;
  for (std::uint64_t i = 0; i < kRecords; i += 3) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 8, 2)), IsOk());
  std::uint64_t shown = 0;
  EXPECT_THAT(db.ProcessEach([&](std::string_view, std::string_view) { ++shown; }), IsOk());
  EXPECT_EQ(shown, db.Count());
  for (std::uint64_t i = 0; i < kRecords; ++i)
    ASSERT_TRUE(expect(i, i % 3 == 0 ? std::optional(2) : i % 2 == 0 ? std::nullopt : std::optional(1))) << i;
}

TYPED_TEST_P(DBMConformance, HoldsMoreOrFewerRecordsThanExpected) {
  for (const std::uint64_t expected : {1u, 100u, 20'000u}) {
    SCOPED_TRACE(expected);
    TypeParam another;
    auto opened = another.Open(expected);
    ASSERT_THAT(opened.status(), IsOk());
    auto& db = **opened;
    for (int i = 0; i < 5000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), NumberedKey(i + 1)), IsOk());
    for (int i = 0; i < 5000; ++i) ASSERT_THAT(db.Get(NumberedKey(i)), IsOkAndHolds(NumberedKey(i + 1)));
    EXPECT_EQ(db.Count(), 5000u);
    EXPECT_THAT(db.Verify(), IsOk());
    EXPECT_THAT(db.Close(), IsOk());
  }
}

TYPED_TEST_P(DBMConformance, StoresValuesThatGrowAndShrink) {
  auto& db = *this->db_;
  Random random(TestSeed());
  Records records;
  for (int i = 0; i < 30'000; ++i) {
    const std::string key = NumberedKey(random.Below(60));
    records[key] = CheckedValue(key, random.SkewedSize(13), static_cast<std::uint64_t>(i));
    ASSERT_THAT(db.Set(key, records[key]), IsOk());
    if (random.OneIn(4)) {
      const std::string other = NumberedKey(random.Below(60));
      ASSERT_EQ(db.Remove(other).ok(), records.erase(other) == 1);
    }
  }
  this->ExpectHolds(records);
}

TYPED_TEST_P(DBMConformance, ReusesTheSpaceOfReplacedRecords) {
  auto& db = *this->db_;
  std::string value(100, 'x');
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), value), IsOk());
  const std::uint64_t before = db.GetStats().total_bytes;
  constexpr int kRounds = std::max(200 / kSlowdown, 80);  // of 100 kB, twice what may be wasted
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 1000; ++i) {
      if (round % 4 == 0) {
        ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
      }
      ASSERT_THAT(db.Set(NumberedKey(i), value), IsOk());
    }
  }
  EXPECT_LE(db.GetStats().total_bytes, before + (std::uint64_t{4} << 20)) << kRounds / 10 << " MB were written over 100 kB";
}

TYPED_TEST_P(DBMConformance, ClearDropsEverything) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Clear(), IsOk());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue("clear", static_cast<std::size_t>(i % 200))), IsOk());
    EXPECT_EQ(db.Count(), 3000u);
    ASSERT_THAT(db.Clear(), IsOk());
    this->ExpectHolds({});
    EXPECT_THAT(db.Contains(NumberedKey(1)), IsOkAndHolds(false));
    EXPECT_THAT(db.Verify(), IsOk());
  }
  ASSERT_THAT(db.Clear(), IsOk());
  this->SetAll({{"after", "clear"}});
  this->ExpectHolds({{"after", "clear"}});
}

TYPED_TEST_P(DBMConformance, StatsFollowTheRecords) {
  auto& db = *this->db_;
  for (int i = 0; i < 10'000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue("stats", 100)), IsOk());
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());  // some count only records in the file
  const Stats full = db.GetStats();
  EXPECT_EQ(full.num_records, 10'000u);
  EXPECT_GE(full.record_bytes, 10'000u * 108);
  EXPECT_GE(full.total_bytes, full.record_bytes + full.index_bytes);
  EXPECT_GT(full.index_bytes, 0u);
  EXPECT_GT(full.num_buckets, 0u);
  for (int i = 0; i < 5000; ++i) ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  const Stats half = db.GetStats();
  EXPECT_EQ(half.num_records, 5000u);
  EXPECT_GE(half.record_bytes, 5000u * 108);
  EXPECT_LT(half.record_bytes, full.record_bytes);
}

TYPED_TEST_P(DBMConformance, InspectNamesEachPropertyOnce) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", "value"), IsOk());
  const Inspection inspection = db.Inspect();
  EXPECT_FALSE(inspection.empty());
  std::set<std::string> names;
  for (const auto& [name, text] : inspection) {
    EXPECT_FALSE(name.empty());
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TYPED_TEST_P(DBMConformance, SynchronizeChangesNothing) {
  auto& db = *this->db_;
  Records records;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(i * round % 97));
      records[key] = CheckedValue(key, static_cast<std::size_t>(round * 7), 1);
      ASSERT_THAT(db.Set(key, records[key]), IsOk());
    }
    const std::string victim = NumberedKey(static_cast<std::uint64_t>(round));
    ASSERT_EQ(db.Remove(victim).ok(), records.erase(victim) == 1);
    ASSERT_THAT(db.Synchronize(round % 3 == 0 ? SyncMode::kSoft : SyncMode::kHard), IsOk());
  }
  this->ExpectHolds(records);
}

REGISTER_TYPED_TEST_SUITE_P(DBMConformance, IsEmptyAtFirst, GetReturnsTheValueInEveryForm, GetOfAbsentKeyInEveryFormReturnsNotFound,
                            SetOverwritesByDefault, RemoveReturnsTheOldValue, AppendInsertsTheDelimiter,
                            CompareExchangeActsOnlyIfTheRecordIsAsExpected, IncrementCountsInEightBigEndianBytes,
                            ProcessCarriesOutTheVisitorsAction, KeepsEmptyAndBinaryKeysAndValues, KeepsEveryCombinationOfSmallSizes,
                            KeepsLargeKeysAndValues, RefusesKeysAndValuesBeyondTheLimits, GrowsFromDefaultOptions,
                            HoldsMoreOrFewerRecordsThanExpected, StoresValuesThatGrowAndShrink, ReusesTheSpaceOfReplacedRecords,
                            ClearDropsEverything, IteratorKeepsItsOrderAndJumps, SupportsManyIteratorsAtOnce,
                            IteratorContinuesWhileRecordsChange, IteratorSkipsRemovedRecords, IteratorEndsAfterClear, StatsFollowTheRecords,
                            InspectNamesEachPropertyOnce, SynchronizeChangesNothing);

}  // namespace hako
