// Chunks of buckets and overflow buckets, over the toy space.
#include "hako/hash/line_table.h"

#include <cstdint>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "support/toy_record_space.h"

namespace hako::hash {
namespace {

using Space = ToyRecordSpace<false>;
using Table = LineTable<Space>;
constexpr std::uint64_t kLines = Table::kSmallChunkBytes / sizeof(Table::Line);  // of a small chunk

TEST(LineTableTest, GivesEachBucketItsOwnLine) {
  Space space(16 * kLines);
  Table table(space);
  EXPECT_EQ(table.HomeCapacity(), 0u);
  std::set<const Table::Line*> seen;
  for (std::uint64_t count : {std::uint64_t{1}, kLines, kLines + 1, 5 * kLines}) {
    ASSERT_THAT(table.EnsureHome(count), IsOk());
    EXPECT_EQ(table.HomeCapacity(), (count + kLines - 1) / kLines * kLines);
    ASSERT_OK_AND_ASSIGN(const std::uint32_t overflow, table.NewOverflow());
    EXPECT_TRUE(seen.insert(table.Overflow(overflow)).second);
  }
  for (std::uint64_t i = 0; i < 5 * kLines; ++i) ASSERT_TRUE(seen.insert(&table.Home(i)).second) << i;
}

TEST(LineTableTest, ChangesNothingWhereMemoryIsRefused) {
  Space space(3 * kLines);
  Table table(space);
  ASSERT_THAT(table.EnsureHome(kLines), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::uint32_t first, table.NewOverflow());
  space.refused = space.allocations + 1;  // of three chunks the second
  EXPECT_THAT(table.EnsureHome(4 * kLines), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(table.HomeCapacity(), 2 * kLines) << "a chunk that was allocated stays";
  for (std::uint64_t i = 1; i < kLines; ++i) ASSERT_THAT(table.NewOverflow(), IsOk());
  EXPECT_EQ(table.num_overflow(), kLines);
  EXPECT_THAT(table.NewOverflow(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(table.num_overflow(), kLines);
  table.FreeOverflow(first);
  EXPECT_THAT(table.NewOverflow(), IsOkAndHolds(first)) << "a free line is used again";
  EXPECT_THAT(table.EnsureHome(Table::kHomeMax + 1), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(LineTableTest, FindsNoLineForAnIdOfADamagedFile) {
  Space space(4 * kLines);
  Table table(space);
  ASSERT_THAT(table.EnsureHome(1), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::uint32_t id, table.NewOverflow());
  EXPECT_NE(table.Overflow(id), nullptr);
  EXPECT_EQ(table.Overflow(0), nullptr);
  const auto end = static_cast<std::uint32_t>(space.index_end() / sizeof(Table::Line));
  EXPECT_NE(table.Overflow(end - 1), nullptr);
  EXPECT_EQ(table.Overflow(end), nullptr);
  EXPECT_EQ(table.Overflow(~std::uint32_t{0}), nullptr);
}

TEST(OverflowIdsTest, HasTheIdsThatWereInserted) {
  OverflowIds ids;
  std::set<std::uint32_t> model;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const std::uint32_t id = i % 2 == 0 ? i * 37 : ~std::uint32_t{0} - i * i % 3000;
    ASSERT_EQ(ids.Insert(id), model.insert(id).second) << id;
  }
  EXPECT_EQ(ids.size(), model.size());
  for (std::uint32_t id = 0; id < 200'000; ++id) ASSERT_EQ(ids.Contains(id), model.contains(id)) << id;
  for (std::uint32_t id = ~std::uint32_t{0}; id > ~std::uint32_t{0} - 5000; --id) ASSERT_EQ(ids.Contains(id), model.contains(id)) << id;
}

TEST(LineTableTest, AdoptsTheExtentsOfAnotherTable) {
  Space space(8 * kLines);
  OverflowIds used;
  {
    Table before(space);
    ASSERT_THAT(before.EnsureHome(2 * kLines), IsOk());
    for (int i = 0; i < 10; ++i) {
      ASSERT_OK_AND_ASSIGN(const std::uint32_t id, before.NewOverflow());
      used.Insert(id);
    }
  }
  Table table(space);
  for (const Space::Extent& extent : space.content().extents) {
    if (extent.kind == IndexExtent::kOverflowLines) {
      table.AdoptOverflow(extent.offset, extent.bytes, used);
    } else {
      EXPECT_FALSE(table.AdoptHome(extent.offset, Table::kLargeChunkBytes)) << "the first chunks are small";
      EXPECT_TRUE(table.AdoptHome(extent.offset, extent.bytes));
    }
  }
  EXPECT_EQ(table.HomeCapacity(), 2 * kLines);
  EXPECT_EQ(table.num_overflow(), 10u);
  for (std::uint64_t i = 10; i < kLines; ++i) {
    ASSERT_OK_AND_ASSIGN(const std::uint32_t id, table.NewOverflow());
    ASSERT_TRUE(used.Insert(id)) << "a line in use was given out";
  }
  EXPECT_EQ(space.content().extents.size(), 3u) << "no new extent was needed";
}

}  // namespace
}  // namespace hako::hash
