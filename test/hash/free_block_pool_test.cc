// Free space by size class and as runs: coalesced, split, bounded.
#include "hako/hash/free/free_block_pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace hako::hash {
namespace {

constexpr unsigned kShift = 3;
constexpr std::uint64_t kRegion = FreeBlockPool::kRegion;

unsigned ClassOf(std::uint64_t bytes) { return format::SizeClassOf((bytes + 7) >> kShift); }
std::uint64_t BytesOf(unsigned size_class) { return format::UnitsOf(size_class) << kShift; }

class FreeBlockPoolTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(pool, FreeBlockPool::Create(kShift)); }

  // Divides the pool's chunks into blocks until there are `count`, or no space is left.
  std::vector<std::uint32_t> Carve(std::uint64_t bytes, std::size_t count) {
    std::vector<std::uint32_t> handles;
    while (handles.size() < count) {
      if (chunk.bytes() < bytes) {
        pool->FreeRun(Rest(chunk));
        chunk = pool->TakeChunk(bytes);
        if (chunk.bytes() == 0) break;
      }
      handles.push_back(static_cast<std::uint32_t>(chunk.next >> kShift));
      chunk.next += bytes;
    }
    return handles;
  }
  // The sizes of all runs, including those of blocks not yet coalesced.
  std::vector<std::uint64_t> RunSizes() {
    EXPECT_EQ(pool->TakeBlock(std::uint64_t{1} << 40).bytes(), 0u);
    return CountedRunSizes();
  }
  std::vector<std::uint64_t> CountedRunSizes() const {
    std::vector<std::uint64_t> sizes;
    pool->ForEachRun([&](hash::Run run) { sizes.push_back(run.bytes()); });
    return sizes;
  }

  std::unique_ptr<FreeBlockPool> pool;
  FreeBlockPool::Cache cache;
  ChunkRest chunk;
};

TEST_F(FreeBlockPoolTest, CoalescesAdjacentRuns) {
  pool->FreeRun({0 * kRegion, 1 * kRegion});
  pool->FreeRun({2 * kRegion, 3 * kRegion});
  EXPECT_THAT(RunSizes(), testing::ElementsAre(kRegion, kRegion));
  pool->FreeRun({1 * kRegion, 2 * kRegion});
  EXPECT_THAT(RunSizes(), testing::ElementsAre(3 * kRegion));
  EXPECT_EQ(pool->free_bytes(), 3 * kRegion);
}

// As two records of a damaged file whose bytes overlap.
TEST_F(FreeBlockPoolTest, CountsBytesThatAreFreedTwiceOnce) {
  pool->FreeRun({kRegion / 2, 2 * kRegion});
  pool->FreeRun({3 * kRegion, 4 * kRegion});
  const hash::Run joined = pool->FreeRun({0, 3 * kRegion + 64});
  EXPECT_EQ(joined.begin, 0u);
  EXPECT_EQ(joined.end, 4 * kRegion);
  EXPECT_EQ(pool->FreeRun({kRegion, kRegion + 64}).bytes(), 4 * kRegion);
  EXPECT_THAT(CountedRunSizes(), testing::ElementsAre(4 * kRegion));
  EXPECT_EQ(pool->free_bytes(), 4 * kRegion);
  EXPECT_EQ(pool->TakeBlock(4 * kRegion).bytes(), 4 * kRegion);
  EXPECT_EQ(pool->TakeBlock(64).bytes(), 0u);
  EXPECT_EQ(pool->free_bytes(), 0u);
}

TEST_F(FreeBlockPoolTest, ServesLargeBlocksFromFreedSmallOnes) {
  pool->FreeRun({0, 4 * kRegion});
  const std::vector<std::uint32_t> handles = Carve(128, ~std::size_t{0});
  EXPECT_EQ(handles.size(), 4 * kRegion / 128);
  EXPECT_EQ(pool->TakeBlock(8192).bytes(), 0u);

  for (const std::uint32_t handle : handles) pool->FreeBlock(cache, ClassOf(128), handle);
  pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);

  EXPECT_EQ(pool->TakeBlock(4 * kRegion).bytes(), 4 * kRegion);
  EXPECT_EQ(pool->Pop(cache, ClassOf(128)), 0u) << "a block was joined and is still in a list";
}

TEST_F(FreeBlockPoolTest, ListsBlocksAgainAfterTheirRegionIsReused) {
  pool->FreeRun({kRegion, 2 * kRegion});
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t bytes = 64u << round;
    std::vector<std::uint32_t> handles = Carve(bytes, ~std::size_t{0});
    ASSERT_EQ(handles.size(), kRegion / bytes);
    const std::uint32_t last = handles.back();
    handles.pop_back();
    for (const std::uint32_t handle : handles) pool->FreeBlock(cache, ClassOf(bytes), handle);
    pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
    std::size_t popped = 0;
    for (; pool->Pop(cache, ClassOf(bytes)) != 0; ++popped) {
    }
    EXPECT_EQ(popped, handles.size());
    for (const std::uint32_t handle : handles) pool->FreeBlock(cache, ClassOf(bytes), handle);
    pool->FreeBlock(cache, ClassOf(bytes), last);
    pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
    EXPECT_THAT(RunSizes(), testing::ElementsAre(kRegion));
  }
}

TEST_F(FreeBlockPoolTest, CoalescesOnlyWhenARunIsNeeded) {
  pool->FreeRun({kRegion, 2 * kRegion});
  const std::vector<std::uint32_t> handles = Carve(64, ~std::size_t{0});
  const auto free_all = [&] {
    for (const std::uint32_t handle : handles) pool->FreeBlock(cache, ClassOf(64), handle);
    pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  };
  free_all();
  EXPECT_EQ(pool->free_bytes(), kRegion);
  std::size_t popped = 0;
  for (; pool->Pop(cache, ClassOf(64)) != 0; ++popped) {
  }
  EXPECT_EQ(popped, handles.size()) << "the region was coalesced although no run was needed";
  EXPECT_EQ(pool->free_bytes(), 0u);
  free_all();
  EXPECT_EQ(pool->TakeBlock(kRegion).bytes(), kRegion);
  EXPECT_EQ(pool->Pop(cache, ClassOf(64)), 0u);
  EXPECT_EQ(pool->free_bytes(), 0u);
}

// Bounds the number of blocks that a request for a run has to coalesce.
TEST_F(FreeBlockPoolTest, CoalescesByItselfWhenManyBlocksAreFree) {
  pool->FreeRun({kRegion, 101 * kRegion});
  const std::vector<std::uint32_t> handles = Carve(8, ~std::size_t{0});
  ASSERT_EQ(handles.size(), 100 * kRegion / 8);
  for (const std::uint32_t handle : handles) pool->FreeBlock(cache, ClassOf(8), handle);
  pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  EXPECT_THAT(CountedRunSizes(), testing::ElementsAre(testing::Ge(30 * kRegion)));
  EXPECT_EQ(pool->free_bytes(), 100 * kRegion);
  EXPECT_THAT(RunSizes(), testing::ElementsAre(100 * kRegion));
}

TEST_F(FreeBlockPoolTest, CachesFewLargeBlocksPerWriter) {
  pool->FreeRun({0, 256 * kRegion});
  const std::vector<std::uint32_t> handles = Carve(4096, 2048);
  for (const std::uint32_t handle : handles) pool->FreeBlock(cache, ClassOf(4096), handle);
  EXPECT_GE(pool->free_bytes(), 256 * kRegion - (128 << 10));
}

TEST_F(FreeBlockPoolTest, AlignsBlocks) {
  pool->FreeRun({64, kRegion});
  EXPECT_EQ(pool->TakeBlock(8192, 4096).begin, 4096u);
  EXPECT_EQ(pool->TakeBlock(4000).begin, 64u);
}

TEST_F(FreeBlockPoolTest, DoesNotCoalesceAcrossExtentHeaders) {
  const auto at_zero = [](const void*, std::uint64_t offset) { return offset == 0; };
  ASSERT_OK_AND_ASSIGN(pool, FreeBlockPool::Create(kShift, {at_zero, nullptr}));
  pool->FreeRun({FreeRegions::kHeader, kRegion});
  for (const std::uint32_t handle : Carve(64, ~std::size_t{0})) pool->FreeBlock(cache, ClassOf(64), handle);
  pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  EXPECT_THAT(RunSizes(), testing::ElementsAre(kRegion - FreeRegions::kHeader));
}

TEST_F(FreeBlockPoolTest, TakesEverythingOutOfARange) {
  pool->FreeRun({4 * kRegion, 8 * kRegion});
  const std::vector<std::uint32_t> handles = Carve(1024, ~std::size_t{0});
  for (std::size_t i = 0; i < handles.size(); i += 2) pool->FreeBlock(cache, ClassOf(1024), handles[i]);
  pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  std::uint64_t bytes = 0;
  const auto is_inside = [](std::uint32_t handle) { return handle >= 5 * kRegion >> kShift && handle < 7 * kRegion >> kShift; };
  pool->TakeAll({{5 * kRegion, 6 * kRegion}, {6 * kRegion, 7 * kRegion}}, is_inside, [&](hash::Run run) { bytes += run.bytes(); });
  EXPECT_EQ(bytes, kRegion);
  EXPECT_EQ(pool->free_bytes(), kRegion);
  std::vector<std::uint32_t> left;
  while (const std::uint32_t handle = pool->Pop(cache, ClassOf(1024))) left.push_back(handle);
  EXPECT_EQ(left.size(), kRegion / 1024);
  for (const std::uint32_t handle : left) EXPECT_TRUE(handle < 5 * kRegion >> kShift || handle >= 7 * kRegion >> kShift);
}

// No byte is allocated twice or lost under random allocations.
TEST_F(FreeBlockPoolTest, AccountsForEveryByte) {
  constexpr std::uint64_t kSpace = 64 * kRegion;
  pool->FreeRun({0, kSpace});
  std::mt19937_64 random(1);
  std::map<std::uint64_t, std::uint64_t> used;  // by begin: class
  const auto take = [&](std::uint64_t bytes) -> hash::Run {
    const unsigned size_class = ClassOf(bytes);
    if (!pool->IsSmall(size_class)) return pool->TakeBlock(BytesOf(size_class));
    std::uint32_t handle = pool->Pop(cache, size_class);
    if (handle == 0) {
      const std::vector<std::uint32_t> carved = Carve(BytesOf(size_class), 1);
      if (carved.empty()) return {};
      handle = carved[0];
    }
    const std::uint64_t begin = std::uint64_t{handle} << kShift;
    return {begin, begin + BytesOf(size_class)};
  };
  pool->TakeBlock(8);  // offset 0 is not a handle
  for (int i = 0; i < 30'000; ++i) {
    if (random() % 2 == 0 || used.empty()) {
      const unsigned log = 3 + random() % 15;
      const hash::Run run = take((std::uint64_t{1} << log) + random() % (std::uint64_t{1} << log));
      if (run.bytes() == 0) continue;
      const auto next = used.lower_bound(run.begin);
      ASSERT_TRUE(next == used.end() || next->first >= run.end);
      ASSERT_TRUE(next == used.begin() || std::prev(next)->first + BytesOf(static_cast<unsigned>(std::prev(next)->second)) <= run.begin);
      used[run.begin] = ClassOf(run.bytes());
    } else {
      auto it = used.lower_bound(random() % kSpace);
      if (it == used.end()) it = used.begin();
      pool->FreeBlock(cache, static_cast<unsigned>(it->second), static_cast<std::uint32_t>(it->first >> kShift));
      used.erase(it);
    }
  }
  for (const auto& [begin, size_class] : used) {
    pool->FreeBlock(cache, static_cast<unsigned>(size_class), static_cast<std::uint32_t>(begin >> kShift));
  }
  pool->FreeRun(Rest(chunk));
  pool->Flush(cache, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  EXPECT_EQ(pool->free_bytes(), kSpace - 8);
  EXPECT_GE(RunSizes().back(), kSpace - kRegion);  // the first region is not free all over
}

}  // namespace
}  // namespace hako::hash
