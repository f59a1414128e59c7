// The parts of a heap that deal with whole extents: they are allocated and returned, emptied by an
// evacuation, and harvested after a process kill.
#include "hako/hash/file/heap_extents.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "hako/format/stamp.h"
#include "hako/hash/file/heap_harvest.h"
#include "hako/hash/file/victims.h"
#include "hako/hash/free/pinned_state.h"
#include "support/status_matchers.h"

namespace hako::hash {
namespace {

constexpr int kShift = 3;
constexpr std::uint64_t kBlock = 100'000;
constexpr std::uint64_t kHeader = sizeof(format::HeapExtentHeader);

struct Heap : HeapFile<MemoryFile> {
  explicit Heap(std::unique_ptr<ExtentFile<MemoryFile>> extents) : HeapFile(std::move(extents)) {}
};
struct Writer {
  FreeBlockPool::Cache free;
  ChunkRest chunk;
  Run ahead;
};

class HeapExtentsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto file, ExtentFile<MemoryFile>::Open(MemoryFile(), kShift, 1));
    heap = std::make_unique<Heap>(std::move(file));
    ASSERT_OK_AND_ASSIGN(pool, FreeBlockPool::Create(kShift));
    extents = std::make_unique<HeapExtents<MemoryFile>>(*heap, *pool, false);
    victims = std::make_unique<Victims>(*pool, kShift);
  }
  // Grows by one extent, which is wholly free while no other is, and returns it.
  Extent Grow() {
    EXPECT_THAT(extents->Grow(kBlock, kBlock), IsOk());
    Extent whole{};
    pool->ForEachRun([&](hash::Run run) {
      const StatusOr<std::uint64_t> bytes = heap->extents().HeapExtentBytes(run.begin - kHeader);
      if (bytes.ok() && *bytes == run.bytes() + kHeader) whole = {run.begin - kHeader, *bytes};
    });
    EXPECT_NE(whole.bytes, 0u);
    return whole;
  }
  // The same, and takes its space, so that it is not returned.
  Extent GrowAndUse() {
    const Extent extent = Grow();
    EXPECT_TRUE(pool->TakeIfThere({extent.offset + kHeader, extent.offset + extent.bytes}));
    return extent;
  }
  auto ForWriter() {
    return [this](auto&& visit) { visit(writer); };
  }

  std::unique_ptr<Heap> heap;
  std::unique_ptr<FreeBlockPool> pool;
  std::unique_ptr<HeapExtents<MemoryFile>> extents;
  std::unique_ptr<Victims> victims;
  Writer writer;
};

TEST_F(HeapExtentsTest, SpaceOfANewExtentIsFree) {
  const Extent extent = Grow();
  EXPECT_GE(extent.bytes, kBlock + kHeader);
  EXPECT_EQ(pool->free_bytes(), extent.bytes - kHeader);
}

TEST_F(HeapExtentsTest, ReturnsWhollyFreeExtents) {
  const Extent extent = Grow();
  const hash::Run block = pool->TakeBlock(kBlock);
  extents->ReturnAllFree();
  EXPECT_EQ(heap->extents().free_extent_bytes(), 0u);
  extents->ReturnIfFree(pool->FreeRun(block));
  EXPECT_EQ(heap->extents().free_extent_bytes(), extent.bytes);
  EXPECT_EQ(pool->free_bytes(), 0u);
}

TEST_F(HeapExtentsTest, ReturnsNoExtentWhileThereIsAPin) {
  const Extent extent = Grow();
  {
    const HeapExtents<MemoryFile>::Pin pin(*extents);
    EXPECT_TRUE(extents->HasPins());
    extents->ReturnAllFree();
    extents->ReturnIfFree({extent.offset + kHeader, extent.offset + extent.bytes});
    EXPECT_EQ(heap->extents().free_extent_bytes(), 0u);
  }
  EXPECT_FALSE(extents->HasPins());
  extents->ReturnAllFree();
  EXPECT_EQ(heap->extents().free_extent_bytes(), extent.bytes);
}

TEST_F(HeapExtentsTest, EvacuationHoldsBackTheSpaceOfItsVictims) {
  const Extent victim = Grow();
  const hash::Run block = pool->TakeBlock(kBlock);
  writer.chunk = {block.end - 64, block.end};
  std::vector<Extent> list = {victim};
  victims->Begin(list, heap->extents().tail(), ForWriter());
  EXPECT_TRUE(victims->IsOn());
  EXPECT_EQ(writer.chunk.bytes(), 0u);
  EXPECT_EQ(pool->TakeBlock(kBlock).bytes(), 0u);
  const Extent other = Grow();
  EXPECT_FALSE(victims->HoldBlock(heap->HandleOf(other.offset + kHeader), 0));
  EXPECT_TRUE(victims->HoldBlock(heap->HandleOf(block.begin), 0));
  std::uint64_t held = 0;
  for (const hash::Run run : victims->End()) held += run.bytes();
  EXPECT_EQ(held, victim.bytes - kHeader - block.bytes() + 64 + heap->BytesOf(0));
  EXPECT_FALSE(victims->IsOn());
}

TEST_F(HeapExtentsTest, ExtentToWhichALongRecordIsWrittenIsNoVictim) {
  const Extent first = GrowAndUse(), second = GrowAndUse();
  writer.ahead = {first.offset + kHeader, first.offset + kHeader + kBlock};
  std::vector<Extent> list = {first, second};
  victims->Begin(list, heap->extents().tail(), ForWriter());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].offset, second.offset);
  victims->End();
}

struct Found {
  std::vector<Run>& free;
  void Free(std::uint64_t offset, std::uint64_t bytes) const { free.push_back({offset, offset + bytes}); }
  void Wait(const Heap::ScannedRecord&) const { ADD_FAILURE() << "there is no record"; }
};

TEST_F(HeapExtentsTest, HarvestFreezesAnExtentUntilItHasFoundItsSpace) {
  const Extent first = GrowAndUse(), second = GrowAndUse();
  heap->extents().StoreSealed(&format::LiveState::oldest_retired_epoch, 1);
  HeapHarvest<MemoryFile> harvest(*heap, *victims, 1);
  EXPECT_TRUE(harvest.IsOver());
  std::vector<hash::Run> free;
  harvest.Begin(0, Found{free});
  while (!harvest.IsOver()) {
    if (free.size() == 1) {
      const HeapHarvest<MemoryFile>::Lock lock(harvest);
      EXPECT_FALSE(harvest.IsFrozen(first.offset + kHeader));
      EXPECT_TRUE(harvest.IsFrozen(second.offset + kHeader));
    }
    harvest.RunOnce(Found{free});
  }
  ASSERT_EQ(free.size(), 2u);
  EXPECT_EQ(free[1].begin, second.offset + kHeader);
  EXPECT_EQ(free[1].end, second.offset + second.bytes);
  EXPECT_FALSE(harvest.IsFrozen(second.offset + kHeader));
  EXPECT_TRUE(harvest.IsComplete());
}

TEST_F(HeapExtentsTest, HarvestPausesDuringAnEvacuation) {
  std::vector<Extent> list = {Grow()};
  HeapHarvest<MemoryFile> harvest(*heap, *victims, 1);
  heap->extents().StoreSealed(&format::LiveState::oldest_retired_epoch, 1);
  std::vector<hash::Run> free;
  harvest.Begin(0, Found{free});
  victims->Begin(list, heap->extents().tail(), ForWriter());
  EXPECT_FALSE(harvest.RunSome(Found{free}));
  EXPECT_FALSE(harvest.IsBefore(harvest.ShareEnd()));
  victims->End();
  EXPECT_TRUE(harvest.RunSome(Found{free}));
}

TEST(PinnedStateTest, HasWhatWasThereInItsEpoch) {
  using format::BlockState, format::Stamp;
  ASSERT_OK_AND_ASSIGN(const auto state, PinnedState::Create(10, 1 << 20, 1000));
  const Stamp live = Stamp::Of(BlockState::kLive, 8), free = Stamp::Of(BlockState::kFree, 8);
  EXPECT_TRUE(state->Has(1, live, 12));
  EXPECT_FALSE(state->Has(1, free, 12));
  EXPECT_TRUE(state->Has(1, Stamp::Of(BlockState::kRetired, 11), 12));   // since
  EXPECT_FALSE(state->Has(1, Stamp::Of(BlockState::kRetired, 10), 12));  // before
  state->released.Add(1);
  EXPECT_TRUE(state->Has(1, free, 12));
  state->handed_out.Add(1);  // it has a later record
  EXPECT_FALSE(state->Has(1, live, 12));
}

}  // namespace
}  // namespace hako::hash
