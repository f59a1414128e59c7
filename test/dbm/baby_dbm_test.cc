// BabyDBM: the suites of every DBM, with pages of the default size and with tiny ones, and its own
// tests.
#include "hako/dbm/baby_dbm.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/ordered_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "hako/dbm/tiny_dbm.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_types.h"

namespace hako {
namespace {

using All = TestTypes<testing::Types<BabySurroundings<MemoryMapParallelFile, 128>>, BabySurroundings<MemoryMapParallelFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, DBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, ConcurrentDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, MultiDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Baby, OrderedDBMConformance, All);

TEST(BabyDBM, AcceptsKeysOfAnotherPrefixInAnEmptiedPage) {
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

// Sparse pages are merged regardless of the end at which the removals begin.
TEST(BabyDBM, MergesSparsePagesOnEitherSide) {
  for (const bool ascending : {true, false}) {
    ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
    for (std::uint64_t i = 0; i < 4000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(1000, 'v')), IsOk());
    const std::uint64_t before = db->GetStats().num_buckets;
    for (std::uint64_t n = 0; n < 4000; ++n) {
      const std::uint64_t i = ascending ? n : 3999 - n;
      if (i % 10 == 0) continue;
      ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
    }
    EXPECT_LT(db->GetStats().num_buckets, before / 3) << ascending;
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

// An order without prefixes and heads: pages store whole keys.
struct BackwardComparator {
  static constexpr std::string_view kName = "backward";
  static int Compare(std::string_view a, std::string_view b) { return b.compare(a); }
};

// Even where a page has room for only a few keys, inner pages are fewer than leaves, so the tree
// does not grow in height while records are inserted and removed.
TEST(BabyDBM, StaysShallowWithLongKeys) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  ASSERT_OK_AND_ASSIGN(auto db, (BabyDBM<MemoryMapParallelFile, BackwardComparator>::Open({.page_size = 128})));
  for (int i = 0; i < 400'000 / kSlowdown; ++i) {
    const std::uint64_t number = random.Below(2000);
    const std::string key = std::string(number % 8 < 6 ? 0 : 1000, static_cast<char>('a' + number % 3)) + NumberedKey(number);
    const bool sets = random.Below(10) < (i / 10'000 % 2 == 0 ? 8u : 2u);
    const Status status = sets ? db->Set(key, "value") : db->Remove(key);
    ASSERT_TRUE(status.ok() || (!sets && absl::IsNotFound(status))) << status;
    if (i % 10'000 != 9'999) continue;
    const Stats stats = db->GetStats();
    ASSERT_LT(stats.index_bytes, stats.num_buckets * 4000) << "an inner page takes 3 to 7 KB here; after " << i;
    ASSERT_THAT(db->Verify(), IsOk());
  }
}

// As adaptors of std::views move a range that they take.
TEST(BabyDBM, RangesContinueAfterAMove) {
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

TEST(BabyDBM, RefusesInvalidOptions) {
  for (const std::uint64_t max_bytes : {std::uint64_t{0}, std::uint64_t{1} << 16, (std::uint64_t{1} << 20) - 1, std::uint64_t{1} << 40})
    EXPECT_THAT(BabyDBM<>::Open({.max_bytes = max_bytes}), StatusIs(absl::StatusCode::kInvalidArgument)) << max_bytes;
  for (const unsigned page_size : {0u, 127u, 8193u})
    EXPECT_THAT(BabyDBM<>::Open({.page_size = page_size}), StatusIs(absl::StatusCode::kInvalidArgument)) << page_size;
}

template <class D>
Records LoadRecords(D& db, std::uint64_t count) {
  Records records;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key = NumberedKey(i * 7919 % count);
    records[key] = CheckedValue(key, i % 300, 1);
    EXPECT_THAT(db.Set(key, records[key]), IsOk());
  }
  return records;
}

TEST(BabyDBM, RoundTripsThroughASnapshot) {
  ASSERT_OK_AND_ASSIGN(auto saved, BabyDBM<MemoryFile>::Open());
  Records records = LoadRecords(*saved, 5000);
  for (const std::size_t size : {0u, 1000u, 3u << 20}) {
    const std::string key = "of " + std::to_string(size);
    records[key] = CheckedValue(key, size);
    ASSERT_THAT(saved->Set(key, records[key]), IsOk());
  }
  MemoryFile file;
  ASSERT_THAT(saved->Save(file), IsOk());
  ASSERT_THAT(saved->Set("later", "than the snapshot"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto loaded, BabyDBM<MemoryFile>::Open({.page_size = 256}));
  ASSERT_THAT(loaded->Set("earlier", "than the load"), IsOk());
  ASSERT_THAT(loaded->Load(file), IsOk());
  EXPECT_EQ(loaded->Count(), records.size());
  EXPECT_TRUE(ListByIterator(*loaded).records == records);
  EXPECT_THAT(loaded->Verify(), IsOk());

  std::byte damaged{};
  ASSERT_THAT(file.ReadAt(file.Size() / 2, {&damaged, 1}), IsOk());
  damaged ^= std::byte{1};
  ASSERT_THAT(file.WriteAt(file.Size() / 2, {&damaged, 1}), IsOk());
  EXPECT_FALSE(loaded->Load(file).ok());
  EXPECT_TRUE(ListByIterator(*loaded).records == records) << "it keeps what it had";
}

// A hash table accepts longer keys than a tree, so its snapshot may have keys too long for a tree.
TEST(BabyDBM, KeepsItsRecordsIfASnapshotHasTooLongKeys) {
  ASSERT_OK_AND_ASSIGN(auto saved, TinyDBM<MemoryFile>::Open());
  MemoryFile file;
  ASSERT_OK_AND_ASSIGN(auto loaded, BabyDBM<MemoryFile>::Open());
  const std::string longest(BabyDBM<>::kKeySizeMax, 'k');
  ASSERT_THAT(saved->Set("key", "value"), IsOk());
  ASSERT_THAT(saved->Set(longest, "value"), IsOk());
  ASSERT_THAT(saved->Save(file), IsOk());
  ASSERT_THAT(loaded->Load(file), IsOk());
  const Records records = ListByIterator(*loaded).records;
  EXPECT_EQ(records.size(), 2u);

  ASSERT_THAT(saved->Set("later", "value"), IsOk());
  ASSERT_THAT(saved->Set(longest + "k", "value"), IsOk());
  ASSERT_THAT(saved->Save(file), IsOk());
  EXPECT_THAT(loaded->Load(file), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_TRUE(ListByIterator(*loaded).records == records);
  EXPECT_THAT(loaded->Verify(), IsOk());
}

// Only updates fail when memory runs out, and removals free memory again.
TEST(BabyDBM, StaysConsistentWhenOutOfMemory) {
  for (const unsigned page_size : {128u, 8192u}) {
    SCOPED_TRACE(page_size);
    ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = page_size, .max_bytes = 1 << 20}));
    Random random(TestSeed());
    Records records;
    for (int round = 0; round < (kSlowdown > 1 ? 1 : 3); ++round) {
      std::size_t refused = 0;
      while (refused < 2000) {
        const std::string key = random.Bytes(random.Between(1, 20));
        const std::string value = CheckedValue(key, random.Below(30));
        const Status status = db->Set(key, value);
        if (status.ok()) {
          records[key] = value;
        } else {
          ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
          ++refused;
        }
      }
      EXPECT_GT(records.size(), 5000u);
      ASSERT_THAT(db->Verify(), IsOk());
      EXPECT_EQ(db->Count(), records.size());
      ASSERT_TRUE(ListByIterator(*db).records == records);
      while (records.size() > 100) {
        auto victim = records.lower_bound(random.Bytes(2));
        if (victim == records.end()) victim = records.begin();
        ASSERT_THAT(db->Remove(victim->first), IsOk());
        records.erase(victim);
      }
      ASSERT_THAT(db->Verify(), IsOk());
      ASSERT_TRUE(ListByIterator(*db).records == records);
    }
  }
}

TEST(BabyDBM, TakesFewBytesForA16ByteRecord) {
  if (kSlowdown > 1) GTEST_SKIP() << "a million records take too long under a sanitizer";
  constexpr std::uint64_t kRecords = 1'000'000;
  for (const bool in_order : {true, false}) {
    ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open());
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      const std::string key = NumberedKey(in_order ? i : i * 7'368'787 % kRecords);
      ASSERT_THAT(db->Set(key, key), IsOk());
    }
    EXPECT_EQ(db->Count(), kRecords);
    const std::uint64_t bytes = db->GetStats().total_bytes;
    EXPECT_LE(bytes, (in_order ? 18 : 22) * kRecords);
    RecordProperty(in_order ? "bytes_per_record_in_order" : "bytes_per_record", std::to_string(static_cast<double>(bytes) / kRecords));
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      if (i % 10 == 0) {
        ++kept;
      } else {
        ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
      }
    }
    EXPECT_EQ(db->Count(), kept);
    const Stats stats = db->GetStats();
    EXPECT_LE(stats.total_bytes - stats.free_bytes, 40 * kept + (1 << 20)) << "pages that lose their records are joined";
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

}  // namespace
}  // namespace hako
