// Ids of pages are reused, so that neither they nor their tables grow without bound.
#include <algorithm>
#include <cstdint>
#include <string>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/tree/memory/id_pool.h"
#include "support/cached_tree.h"

namespace hako {
namespace {

TEST(IdPool, ReturnsTheSmallestFreeId) {
  tree::IdPool ids(10);
  EXPECT_EQ(ids.Take(), 0u);
  for (std::uint32_t id = 10; id < 300; ++id) EXPECT_EQ(ids.Grow(), id);
  ids.Give(200, 201);
  ids.Give(63, 66);
  ids.Give(64, 65);
  EXPECT_EQ(ids.num_used(), 290u - 4);
  for (const std::uint32_t id : {63u, 64u, 65u, 200u, 0u}) EXPECT_EQ(ids.Take(), id);
  EXPECT_EQ(ids.num_used(), 290u);
}

TEST(IdPool, EndsAfterTheLastIdInUse) {
  tree::IdPool ids(10);
  ids.GrowTo(1'000'000);
  ids.Give(500, 999'999);
  EXPECT_EQ(ids.EndWithout({}), 1'000'000u);
  const std::uint32_t listed[] = {17, 499, 999'999};
  EXPECT_EQ(ids.EndWithout(listed), 499u);
  ids.Cut();
  EXPECT_EQ(ids.end(), 1'000'000u);
  ids.Give(999'999, 1'000'000);
  ids.Cut();
  EXPECT_EQ(ids.end(), 500u);
  EXPECT_EQ(ids.num_used(), 490u);
  EXPECT_EQ(ids.Take(), 0u);
  EXPECT_EQ(ids.Grow(), 500u);
  ids.Give(10, 501);
  ids.Cut();
  EXPECT_EQ(ids.end(), 10u);
}

// The ids that a superblock states.
std::uint32_t IdEndOf(const MemoryFile& device) {
  auto store = tree::PageStore<MemoryFile>::Open(device.Share(), BytewiseComparator::kName, NoCodec::kName, 0);
  return store.ok() ? std::uint32_t{(*store)->super().id_end} : 0;
}

constexpr std::uint64_t kRecords = 5000;
template <class Db>
void Fill(Db& db, std::uint64_t first = 0) {
  for (std::uint64_t i = first; i < first + kRecords; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "0123456789abcdef"), IsOk());
}

TEST(PageIds, ReusedInEachSession) {
  enum class How { kClear, kClearLater, kRemoveRange, kRemoveEach, kQueue };
  for (const How how : {How::kClear, How::kClearLater, How::kRemoveRange, How::kRemoveEach, How::kQueue}) {
    SCOPED_TRACE(static_cast<int>(how));
    MemoryFile device;
    std::uint32_t most = 0;
    for (std::uint64_t session = 0; session < 12; ++session) {
      ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<MemoryFile>::Open(device.Share(), {.page_size = 128}));
      ASSERT_NO_FATAL_FAILURE(Fill(*db, how == How::kQueue ? session * kRecords : 0));
      if (how == How::kClearLater) {
        ASSERT_THAT(db->Close(), IsOk());
        ASSERT_OK_AND_ASSIGN(db, TreeDBM<MemoryFile>::Open(device.Share()));
      }
      if (how == How::kRemoveRange) {
        ASSERT_THAT(db->RemoveRange("").status(), IsOk());
      } else if (how == How::kRemoveEach) {
        for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
      } else if (how == How::kQueue) {
        if (session > 0) {
          ASSERT_THAT(db->RemoveRange(NumberedKey(0), NumberedKey(session * kRecords)).status(), IsOk());
        }
      } else {
        ASSERT_THAT(db->Clear(), IsOk());
      }
      ASSERT_THAT(db->Close(), IsOk());
      if (session < 3) most = std::max(most, IdEndOf(device));
    }
    // Ids that are free but not known to be are used if there are more of them than others.
    EXPECT_LE(IdEndOf(device), std::max(most, 2 * most - tree::PageArena::kFirstId) + 1024 + 200);
    EXPECT_LE(device.Size(), std::uint64_t{1} << 20);
  }
}

TEST(PageIds, ReusedWithoutACheckpoint) {
  ASSERT_OK_AND_ASSIGN(auto db,
                       TreeDBM<MemoryFile>::Open(MemoryFile(), {.page_size = 128, .cache_bytes = 1 << 20, .checkpoint_bytes = 1 << 30}));
  const auto memory_bytes = [&db] {
    for (const auto& [name, value] : db->Inspect()) {
      if (name == "memory_bytes") return std::stoull(value);
    }
    return 0ull;
  };
  ASSERT_NO_FATAL_FAILURE(Fill(*db));
  ASSERT_THAT(db->Clear(), IsOk());
  const std::uint64_t before = memory_bytes();
  for (int i = 0; i < 30; ++i) {
    ASSERT_NO_FATAL_FAILURE(Fill(*db));
    ASSERT_THAT(db->Set("long", std::string(5000, 'l')), IsOk());
    ASSERT_THAT(db->Clear(), IsOk());
  }
  EXPECT_LE(memory_bytes(), before + before / 4);
}

TEST(PageIds, ReturnMemoryOnceFree) {
  MemoryFile device;
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<MemoryFile>::Open(device.Share(), {.page_size = 128}));
  const auto end = [&device] { return IdEndOf(device); };
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(Fill(*db));
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_GT(end(), tree::PageArena::kFirstId + 500);
    ASSERT_THAT(db->Clear(), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_LT(end(), tree::PageArena::kFirstId + 10);
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

}  // namespace
}  // namespace hako
