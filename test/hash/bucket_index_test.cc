// The bucket index over the toy space: growth, damage, and what its checks find.
#include "hako/hash/bucket_index.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/hash/bucket_scan.h"
#include "hako/hash/bucket_verify.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/toy_record_space.h"
#include "support/toy_table.h"

namespace hako {

// The index compiles with a space that has no more than the concept asks for.
template class hash::BucketIndex<ToyRecordSpace<false>>;

namespace {

using testing::HasSubstr;
using Space = ToyRecordSpace<false>;
using Table = ToyTable<Space>;

std::string Key(std::uint64_t i) { return "key" + std::to_string(i); }

TEST(BucketIndexTest, SplitsOneBucketForEightRecords) {
  Table table;
  Table::Model model;
  for (std::uint64_t i = 0; i < 11'000; ++i) {
    ASSERT_THAT(table.Set(Key(i), "v"), IsOk());
    model.emplace(Key(i), "v");
    ASSERT_LE(table.index.num_lines(), std::max<std::uint64_t>(1024, i / 8 + 2));
  }
  EXPECT_GE(table.index.num_lines(), 11'000u / 8 - 4);
  table.ExpectEqual(model);
}

// At 65,536 buckets the tags of a split bucket are other bits of the hash.
TEST(BucketIndexTest, ChoosesOtherTagsAtEachEighthDepth) {
  Table table(80 << 10, (65'536 - 100) * 8);
  table.space.hash_mask = 0xff0000ff;  // 256 buckets and the buckets split from these have all records
  Table::Model model;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_THAT(table.Set(Key(i), Key(i)), IsOk());
    model.emplace(Key(i), Key(i));
  }
  table.ExpectEqual(model);
  table.PretendMore(8 * 66'100);
  for (std::uint64_t i = 0; table.index.num_lines() < 65'536 + 400; ++i) {
    const std::string key = Key(i % 1500);
    ASSERT_THAT(table.Set(key, Key(i)), IsOk());
    model.insert_or_assign(key, Key(i));
    table.PretendMore(8);  // the next change of the count splits again
    if (i % 2 == 0) continue;
    ASSERT_THAT(table.Remove(key), IsOk());
    model.erase(key);
  }
  table.ExpectEqual(model);
}

TEST(BucketIndexTest, KeepsLongerChainsWhereThereIsNoMemoryToSplit) {
  Table table(1024 + 1024);  // one extent of buckets, one of overflow buckets
  Table::Model model;
  std::uint64_t i = 0;
  for (; i < 20'000; ++i) {
    const Status status = table.Set(Key(i), "v");
    if (!status.ok()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "the toy is full"));
      break;
    }
    model.emplace(Key(i), "v");
  }
  EXPECT_GT(i, 15'000u);
  EXPECT_LT(i, 20'000u);
  EXPECT_EQ(table.index.num_lines(), 1024u);
  table.ExpectEqual(model);
  EXPECT_THAT(table.Set(Key(0), "another value"), IsOk());
}

TEST(BucketIndexTest, ShowsEachRecordOnceToAScanWhileBucketsSplit) {
  Table table;
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(table.Set(Key(i), "old"), IsOk());
  hash::BucketScan<Space> scan(table.index);
  scan.Start();
  Table::Model seen;
  std::uint64_t added = 0;
  for (;;) {
    ASSERT_OK_AND_ASSIGN(const bool more, scan.Step());
    if (!more) break;
    for (std::size_t i = 0; i < scan.size(); ++i) {
      ASSERT_TRUE(seen.emplace(scan.key(i), scan.value(i)).second) << scan.key(i);
    }
    table.PretendMore(16);
    for (int i = 0; i < 8; ++i) ASSERT_THAT(table.Set("new" + std::to_string(added++), "new"), IsOk());
  }
  EXPECT_GT(table.index.num_lines(), 3000u);
  for (std::uint64_t i = 0; i < 3000; ++i) EXPECT_TRUE(seen.contains(Key(i))) << i;
}

TEST(BucketIndexTest, MovesNamedRecords) {
  Table table;
  ASSERT_THAT(table.Set("a", "1"), IsOk());
  auto& writer = *table.writers.Mine();
  const std::uint64_t hash = table.space.KeyHash("a");
  const std::uint32_t from = *table.NamedHandles().begin();
  Status error;
  const std::uint32_t to = table.space.Write(writer, hash, "a", "2", &error);
  table.space.Commit(to);
  EXPECT_FALSE(table.index.Names(hash, to));
  table.index.RunIfNamed(writer, hash, to, [](auto&&) { FAIL(); });
  table.index.RunIfNamed(writer, hash, from, [&](auto&& replace) { replace(to); });
  EXPECT_EQ(table.index.NamingOf(hash, to), Table::Index::Naming::kRight);
  EXPECT_FALSE(table.index.Names(hash, from));
  EXPECT_THAT(table.Get("a"), IsOkAndHolds("2"));
  struct Named {
    std::uint64_t key_hash;
    std::uint32_t handle;
  };
  const Named records[] = {{hash, from}, {hash, to}, {hash + 1, to}};
  table.index.RunLocked(writer, std::span<const Named>(records), [](std::uint64_t mask) { EXPECT_EQ(mask, 2u); });
}

TEST(BucketIndexTest, AdoptsRecordsThatTheSpaceHoldsAndRemovesAll) {
  Table table;
  auto& writer = *table.writers.Mine();
  Table::Model model;
  table.space.hash_mask = 0xff0003;  // chains
  for (std::uint64_t i = 0; i < 100; ++i) {
    Status error;
    const std::uint32_t handle = table.space.Write(writer, table.space.KeyHash(Key(i)), Key(i), "v", &error);
    table.space.Commit(handle);
    ASSERT_THAT(table.index.Adopt(writer, table.space.KeyHash(Key(i)), handle), IsOk());
    model.emplace(Key(i), "v");
  }
  table.ExpectEqual(model);
  EXPECT_THAT(table.RunExclusive([&] { return table.index.RemoveAll([](std::uint32_t) {}); }), IsOk());
  EXPECT_EQ(table.index.lines().num_overflow(), 0u);
  table.space.DropAllBut(table.NamedHandles());
  writer.pending_count.store(0);
  table.ExpectEqual({});
}

class DamagedBucketIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    table_.space.hash_mask = 0xf000f;  // chains
    for (std::uint64_t i = 0; i < 400; ++i) ASSERT_THAT(table_.Set(Key(i), "v"), IsOk());
  }
  Status Verify() {
    Status status = table_.RunExclusive([&] { return hash::VerifyLines(table_.index.lines(), 400, [](std::uint32_t, std::uint32_t) {}); });
    status.Update(hash::VerifyRecords(table_.index, *table_.writers.Mine()));
    return status;
  }
  format::BucketLine& Home(std::uint64_t i) { return table_.index.lines().Home(i); }
  Table table_;
};

TEST_F(DamagedBucketIndexTest, NamesTheDamagedRecordAndReadsTheOthers) {
  const std::uint32_t damaged = Home(3).slots[2];
  const std::string key = table_.space.At(damaged).key;
  table_.space.At(damaged).is_damaged = true;
  const auto is_damage = StatusIs(absl::StatusCode::kDataLoss, "a damaged record at offset " + std::to_string(damaged));
  EXPECT_THAT(table_.Get(key), is_damage);
  EXPECT_THAT(table_.Process(key, [](std::optional<std::string_view>) { return Action::Set("other"); }), is_damage);
  EXPECT_THAT(Verify(), is_damage);
  hash::BucketScan<Space> scan(table_.index);
  scan.Start();
  std::size_t seen = 0, skipped = 0;
  for (;;) {
    const StatusOr<bool> more = scan.Step();
    if (!more.ok()) {
      EXPECT_THAT(more, is_damage);
      ASSERT_TRUE(scan.SkipDamage());
      ++skipped;
      continue;
    }
    if (!*more) break;
    seen += scan.size();
  }
  EXPECT_EQ(skipped, 1u);
  EXPECT_EQ(seen, 399u);
  EXPECT_THAT(table_.Set(key, "written without a look at the old value"), IsOk());
  EXPECT_THAT(Verify(), IsOk());
}

TEST_F(DamagedBucketIndexTest, VerifyFindsAWrongTag) {
  ASSERT_THAT(Verify(), IsOk());
  Home(3).tags[0] ^= 1;
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, "wrong tag in bucket 3"));
}

TEST_F(DamagedBucketIndexTest, VerifyFindsALostEntry) {
  Home(3).slots[0] = 0;
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, "the buckets hold 399 records instead of 400"));
}

TEST_F(DamagedBucketIndexTest, VerifyFindsARecordInAnotherBucket) {
  std::swap(Home(3).slots[0], Home(4).slots[0]);
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, "a record of bucket 4 is in bucket 3"));
}

TEST_F(DamagedBucketIndexTest, VerifyFindsADuplicateKey) {
  Home(3).slots[1] = Home(3).slots[0];
  Home(3).tags[1] = Home(3).tags[0];
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, "duplicate key in bucket 3"));
}

TEST_F(DamagedBucketIndexTest, VerifyAndRecoverFindABrokenChain) {
  Home(3).slots[format::kLinkEntry] = Home(4).slots[format::kLinkEntry];
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad link in a bucket line")));
  hash::OverflowIds used;
  EXPECT_THAT(table_.index.Recover(*table_.writers.Mine(), 1024, &used), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad link")));
  EXPECT_THAT(table_.index.Recover(*table_.writers.Mine(), 1025, &used), StatusIs(absl::StatusCode::kDataLoss));
  Home(3).slots[format::kLinkEntry] = ~std::uint32_t{0};
  EXPECT_THAT(table_.Get("no such key"), testing::AnyOf(StatusIs(absl::StatusCode::kNotFound), StatusIs(absl::StatusCode::kDataLoss)));
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad link in a bucket line")));
}

}  // namespace
}  // namespace hako
