// Which pages the clock evicts, and the memory that a pool may use.
#include "hako/tree/file/page_clock.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/storage/arena.h"
#include "hako/tree/file/dirty_pages.h"
#include "hako/tree/file/expected_bounds.h"
#include "hako/tree/file/long_values.h"
#include "hako/tree/file/page_evacuation.h"
#include "hako/tree/file/pool_memory.h"
#include "hako/tree/file/unsaved_value.h"
#include "hako/tree/memory/page_arena.h"
#include "support/status_matchers.h"

namespace hako::tree {
namespace {

using Shape = format::PageShape;

class PageClockTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMost = 1 << 20;  // the limit is then a quarter, as the map takes the rest
  static constexpr unsigned kUnits = 64;           // of a page
  static constexpr std::uint64_t kPageBytes = kUnits * format::kPageUnit;

  static storage::ReservedMemory Table(const PageArena& arena) { return *storage::ReservedMemory::Reserve(arena.id_mask() + 1); }

  // A page in memory, which is listed; its line is unlocked.
  std::uint32_t NewPage(std::uint8_t kind = 0) {
    const std::uint32_t id = arena_->NewPage();
    format::PageLine& line = arena_->lines()[id];
    line.unit = memory_.TakeBeyondLimit(kUnits);
    line.shape = {.kind = kind, .units = kUnits};
    {
      sync::MutexLock lock(clock_.states.mutex);
      clock_.states.Set(id, PageStates::kCached);
      EXPECT_TRUE(clock_.List(id));
    }
    sync::VersionLock(line.version).Unlock(false);
    return id;
  }
  std::vector<std::uint32_t> NewPages(int count) {
    std::vector<std::uint32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(NewPage());
    return ids;
  }
  void SetFlag(std::uint32_t id, PageStates::Flag flag) {
    sync::MutexLock lock(clock_.states.mutex);
    clock_.states.SetFlag(id, flag, true);
  }
  bool IsInMemory(std::uint32_t id) const { return clock_.states.IsInMemory(id); }
  sync::VersionLock LineOf(std::uint32_t id) { return sync::VersionLock(arena_->lines()[id].version); }

  std::unique_ptr<PageArena> arena_ = *PageArena::Create(64 << 20);
  LongValues long_values_{0};
  std::atomic<std::uint64_t> map_bytes_{kMost};
  PoolMemory memory_{*arena_, long_values_, map_bytes_, kMost};
  DirtyPages dirty_{Table(*arena_), *arena_, 4};
  ExpectedBounds bounds_{arena_->lines()};
  PageClock clock_{Table(*arena_), arena_->id_mask(), arena_->lines(), memory_, dirty_, bounds_, 0};
};

TEST_F(PageClockTest, EvictsCleanLeavesUntilTheLimitHolds) {
  const std::uint32_t root = NewPage(), dirty = NewPage(dirty_.mark()), inner = NewPage(1), held = NewPage(), pinned = NewPage();
  const std::uint32_t locked = NewPage();
  clock_.SetRoot(root);
  SetFlag(held, PageStates::kHeld);
  SetFlag(pinned, PageStates::kPinned);
  LineOf(locked).Lock();
  const std::vector<std::uint32_t> clean = NewPages(80);
  ASSERT_TRUE(memory_.IsOverLimit());
  while (clock_.EvictSome()) {
  }
  EXPECT_FALSE(memory_.IsOverLimit());
  EXPECT_GT(memory_.used_bytes() + 2 * kPageBytes, kMost / 4) << "more was evicted than had to be";
  for (const std::uint32_t id : {root, dirty, inner, held, pinned, locked}) EXPECT_TRUE(IsInMemory(id)) << id;
  std::uint64_t stay = 6;
  for (const std::uint32_t id : clean) {
    stay += clock_.states.Of(id) != PageStates::kEvicted ? 1u : 0u;  // some are cooling
    EXPECT_TRUE(IsInMemory(id) || LineOf(id).IsLocked()) << "the line of an evicted page is locked";
  }
  EXPECT_EQ(stay * kPageBytes, memory_.used_bytes());
}

TEST_F(PageClockTest, FindsMemoryForALoadByEviction) {
  const std::vector<std::uint32_t> clean = NewPages(40);
  const std::uint64_t before = memory_.used_bytes();
  sync::MutexLock lock(clock_.states.mutex);
  EXPECT_NE(clock_.TakeForLoad(kUnits, false), 0u);
  EXPECT_LT(memory_.used_bytes(), before);
}

TEST_F(PageClockTest, TakesMemoryBeyondTheLimitOnlyWhereItMust) {
  for (int i = 0; i < 40; ++i) NewPage(dirty_.mark());
  sync::MutexLock lock(clock_.states.mutex);
  EXPECT_EQ(clock_.TakeForLoad(kUnits, false), 0u);
  EXPECT_NE(clock_.TakeForLoad(kUnits, true), 0u);
}

TEST_F(PageClockTest, EvictsWhatHeldPagesHaveAddedToTheLimit) {
  memory_.AddHeld(kMost);
  const std::vector<std::uint32_t> clean = NewPages(80);
  EXPECT_FALSE(memory_.IsOverLimit());
  clock_.EvictToLimit(kMost);
  EXPECT_FALSE(memory_.IsOverLimit());
  EXPECT_LE(memory_.used_bytes(), kMost / 4);
}

TEST_F(PageClockTest, KeepsTheLastPagesThatAScanHasPassed) {
  const std::vector<std::uint32_t> passed = NewPages(10);
  for (const std::uint32_t id : passed) {
    {
      sync::MutexLock lock(clock_.states.mutex);
      clock_.states.Set(id, PageStates::kProbationary);
    }
    clock_.EvictBehindScan(id, 4);
  }
  for (std::size_t i = 0; i < passed.size(); ++i) EXPECT_EQ(IsInMemory(passed[i]), i >= 6) << i;
}

TEST_F(PageClockTest, EvacuatesTheEndOfPageMemory) {
  const std::vector<std::uint32_t> ids = NewPages(600);
  sync::VersionLock last = LineOf(ids.back());
  const std::uint32_t version = last.ReadVersion(), unit = arena_->lines()[ids.back()].unit;
  for (std::size_t i = 0; i < 500; ++i) {
    sync::MutexLock lock(clock_.states.mutex);
    clock_.states.Set(ids[i], PageStates::kFree);
    memory_.GiveBack(arena_->lines()[ids[i]].unit, kUnits);
  }
  const std::uint64_t limit = arena_->page_bytes() / 2;
  PageEvacuation(*arena_, clock_).ShrinkTo(limit);
  EXPECT_LE(arena_->page_bytes(), limit);
  EXPECT_LT(arena_->lines()[ids.back()].unit, unit);
  EXPECT_NE(last.ReadVersion(), version) << "late readers would not notice";
}

TEST_F(PageClockTest, UnsavedValuesLowerTheLimitAndThePauseGrows) {
  PoolMemory large(*arena_, long_values_, map_bytes_, 256 << 20);
  const std::uint64_t before = large.Limit();
  std::shared_ptr<UnsavedValue> value = UnsavedValue::Make(1 << 20);
  ASSERT_NE(value, nullptr);
  ASSERT_TRUE(long_values_.Add(1, value));
  EXPECT_EQ(large.Limit(), before - (1 << 20));
  map_bytes_ += 2 << 20;
  EXPECT_EQ(large.Limit(), before - (3 << 20));
  const auto most = static_cast<std::int64_t>(large.Limit() / 4 * 3);
  EXPECT_EQ(large.PauseAt(0).count(), 0);
  EXPECT_LT(large.PauseAt(most * 31 / 32), large.PauseAt(most));
  EXPECT_LT(large.PauseAt(most), large.PauseAt(most * 3 / 2));
  EXPECT_LE(large.PauseAt(100 * most), std::chrono::milliseconds(1100));
}

}  // namespace
}  // namespace hako::tree
