// The block cache: it reads and writes as a plain array would, with as few transfers as its rules
// allow.
#include "hako/file/block_cache.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {
namespace {

constexpr std::size_t kBlock = 512, kMemory = 16;  // what sizes and offsets, and what addresses are multiples of

// A device in memory that requires whole blocks and counts transfers.
class Device {
 public:
  explicit Device(std::size_t num_blocks) : bytes_(num_blocks * kBlock) {}

  Status Read(const Transfer& transfer) {
    return Run(transfer, &reads, [](std::byte* memory, std::byte* device, std::size_t size) { std::memcpy(memory, device, size); });
  }
  Status Write(const Transfer& transfer) {
    return Run(transfer, &writes, [](std::byte* memory, std::byte* device, std::size_t size) { std::memcpy(device, memory, size); });
  }
  Status ReadMulti(std::span<const Transfer> transfers) {
    ++batches;
    Status status;
    for (const Transfer& transfer : transfers) status.Update(Read(transfer));
    return status;
  }
  Status WriteMulti(std::span<const Transfer> transfers) {
    ++batches;
    Status status;
    for (const Transfer& transfer : transfers) status.Update(Write(transfer));
    return status;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

  std::atomic<int> reads = 0, writes = 0, blocks = 0, batches = 0;
  std::atomic<int> fails_after = 1 << 30;  // transfers

 private:
  template <class Copy>
  Status Run(const Transfer& transfer, std::atomic<int>* count, Copy copy) {
    if (fails_after-- <= 0) return absl::UnavailableError("the device is gone");
    ++*count;
    EXPECT_EQ(transfer.offset % kBlock, 0u);
    std::lock_guard lock(mutex_);
    for (std::uint64_t offset = transfer.offset; const iovec& part : transfer.parts) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.iov_base) % kMemory, 0u);
      EXPECT_EQ(part.iov_len % kBlock, 0u);
      copy(static_cast<std::byte*>(part.iov_base), bytes_.data() + offset, part.iov_len);
      offset += part.iov_len;
      blocks += static_cast<int>(part.iov_len / kBlock);
    }
    return absl::OkStatus();
  }
  std::vector<std::byte> bytes_;
  std::mutex mutex_;
};

std::vector<std::byte> Bytes(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  Random random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

BlockCacheLimits Limits(std::size_t num_blocks, bool writes_behind = false) {
  return {.block_size = kBlock, .bytes = num_blocks * kBlock, .memory_alignment = kMemory, .writes_behind = writes_behind};
}

class BlockCacheTest : public testing::Test {
 protected:
  static constexpr std::size_t kBlocks = 4096;
  std::vector<std::byte> Read(std::uint64_t offset, std::size_t size) {
    std::vector<std::byte> out(size);
    EXPECT_THAT(cache_.Read(offset, out), IsOk());
    return out;
  }
  std::vector<std::byte> OnDevice(std::uint64_t offset, std::size_t size) {
    const auto at = device_.bytes().begin() + static_cast<std::ptrdiff_t>(offset);
    return {at, at + static_cast<std::ptrdiff_t>(size)};
  }
  void ExpectTransfers(int reads, int writes, int blocks) {
    EXPECT_EQ(device_.reads.exchange(0), reads);
    EXPECT_EQ(device_.writes.exchange(0), writes);
    EXPECT_EQ(device_.blocks.exchange(0), blocks);
  }

  Device device_{kBlocks};
  BlockCache<Device> cache_{device_, Limits(128)};
};

TEST_F(BlockCacheTest, ReadsAnyRangeByOneTransfer) {
  device_.bytes() = Bytes(kBlocks * kBlock, 1);
  EXPECT_EQ(Read(700, 4000), OnDevice(700, 4000));
  ExpectTransfers(1, 0, 9);
  EXPECT_EQ(Read(512, 4096), OnDevice(512, 4096));
  ExpectTransfers(0, 0, 0);
}

TEST_F(BlockCacheTest, TrimsCachedEndsAndReadsAcrossCachedBlocks) {
  device_.bytes() = Bytes(kBlocks * kBlock, 2);
  for (const std::uint64_t block : {0, 1, 7, 4}) Read(block * kBlock, 1);
  ExpectTransfers(4, 0, 4);
  EXPECT_EQ(Read(0, 8 * kBlock), OnDevice(0, 8 * kBlock));
  ExpectTransfers(1, 0, 5);  // blocks 2 to 6, of which one was here
}

TEST_F(BlockCacheTest, DirtyBlockOverridesTheDevice) {
  const auto mine = Bytes(kBlock, 3);
  EXPECT_THAT(cache_.Write(4 * kBlock, mine), IsOk());
  ExpectTransfers(0, 0, 0);  // it was not read
  auto expected = OnDevice(0, 8 * kBlock);
  std::ranges::copy(mine, expected.begin() + 4 * kBlock);
  EXPECT_EQ(Read(0, 8 * kBlock), expected);
  ExpectTransfers(1, 0, 8);
}

TEST_F(BlockCacheTest, ReadsOnlyThePartsOfBlocksThatStay) {
  device_.bytes() = Bytes(kBlocks * kBlock, 4);
  auto expected = OnDevice(0, 16 * kBlock);
  const auto mine = Bytes(15 * kBlock, 5);
  std::ranges::copy(mine, expected.begin() + 100);
  EXPECT_THAT(cache_.Write(100, mine), IsOk());
  ExpectTransfers(2, 0, 2);  // the first and the last block
  EXPECT_EQ(Read(0, 16 * kBlock), expected);
  EXPECT_THAT(cache_.Flush(), IsOk());
  ExpectTransfers(0, 1, 16);
  EXPECT_EQ(OnDevice(0, 16 * kBlock), expected);
  EXPECT_THAT(cache_.Flush(), IsOk());
  ExpectTransfers(0, 0, 0);
}

TEST_F(BlockCacheTest, WritesDirtyNeighboursTogetherAndKeepsThem) {
  const auto mine = Bytes(8 * kBlock, 6);
  for (std::size_t block = 0; block < 8; ++block)
    EXPECT_THAT(cache_.Write((32 + block) * kBlock, std::span(mine).subspan(block * kBlock, kBlock)), IsOk());
  for (std::uint64_t block = 1000; device_.writes == 0; ++block) Read(block * kBlock, 1);
  EXPECT_EQ(device_.writes, 1);
  EXPECT_EQ(OnDevice(32 * kBlock, 8 * kBlock), mine);
  device_.reads = 0;
  EXPECT_EQ(Read(33 * kBlock, 7 * kBlock), OnDevice(33 * kBlock, 7 * kBlock));
  EXPECT_LE(device_.reads, 1);
}

TEST_F(BlockCacheTest, KeepsReusedBlocksDuringAScan) {
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t block = 0; block < 16; ++block) Read(block * kBlock, 1);
  }
  for (std::uint64_t block = 500; block < 500 + 100; ++block) {
    Read(block * kBlock, 1);
    for (std::uint64_t wanted = 0; block % 8 == 0 && wanted < 16; ++wanted) Read(wanted * kBlock, 1);
  }
  EXPECT_EQ(device_.reads, 16 + 100);
}

TEST_F(BlockCacheTest, DiscardsDroppedBlocks) {
  EXPECT_THAT(cache_.Write(0, Bytes(4 * kBlock, 7)), IsOk());
  cache_.Drop(2 * kBlock);
  EXPECT_THAT(cache_.Flush(), IsOk());
  ExpectTransfers(0, 1, 2);
  EXPECT_EQ(Read(2 * kBlock, kBlock), OnDevice(2 * kBlock, kBlock));
  ExpectTransfers(1, 0, 1);
}

TEST_F(BlockCacheTest, ReportsDeviceFailuresAndLosesNothing) {
  const auto mine = Bytes(48 * kBlock, 8);
  for (std::size_t half : {0, 1})
    EXPECT_THAT(cache_.Write(half * 24 * kBlock, std::span(mine).subspan(half * 24 * kBlock, 24 * kBlock)), IsOk());
  device_.fails_after = 0;
  std::vector<std::byte> out(kBlock);
  EXPECT_THAT(cache_.Read(100 * kBlock, out), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(cache_.Flush(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Read(0, 24 * kBlock), std::vector(mine.begin(), mine.begin() + 24 * kBlock)) << "it is here";
  device_.fails_after = 1 << 30;
  EXPECT_EQ(Read(100 * kBlock, kBlock), OnDevice(100 * kBlock, kBlock));
  EXPECT_EQ(Read(0, 48 * kBlock), mine);
}

TEST_F(BlockCacheTest, RefusesWritesAfterABlockCouldNotBeWritten) {
  const auto mine = Bytes(24 * kBlock, 12);
  for (std::size_t half : {0, 1}) EXPECT_THAT(cache_.Write(half * 24 * kBlock, mine), IsOk());
  cache_.AddFresh(100 * kBlock, 200 * kBlock);
  device_.fails_after = 0;
  std::vector<std::byte> out(kBlock);
  for (std::uint64_t block = 100; block < 200; ++block)  // requests that need a frame find the error
    EXPECT_EQ(Read(block * kBlock, kBlock), std::vector<std::byte>(kBlock));
  device_.fails_after = 1 << 30;  // for a moment only
  EXPECT_THAT(cache_.Write(200 * kBlock, out), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(cache_.Write(0, mine), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(cache_.Flush(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Read(24 * kBlock, 24 * kBlock), mine);
}

TEST_F(BlockCacheTest, LongRequestsBypassTheFrames) {
  const auto mine = Bytes(100 * kBlock, 9), later = Bytes(kBlock, 10);
  Read(50 * kBlock, 1);
  ExpectTransfers(1, 0, 1);
  EXPECT_THAT(cache_.Write(10 * kBlock, mine), IsOk());
  ExpectTransfers(0, 1, 100);
  EXPECT_EQ(Read(50 * kBlock, kBlock), OnDevice(50 * kBlock, kBlock)) << "not what was here before";
  EXPECT_THAT(cache_.Write(60 * kBlock, later), IsOk());
  ExpectTransfers(1, 0, 1);
  const auto both = Read(10 * kBlock, 100 * kBlock);
  ExpectTransfers(1, 1, 101);  // the dirty blocks, then all
  EXPECT_TRUE(std::equal(later.begin(), later.end(), both.begin() + 50 * kBlock));
}

TEST_F(BlockCacheTest, NewBlockIsNotRead) {
  cache_.AddFresh(100 * kBlock, 200 * kBlock);
  const auto mine = Bytes(100, 11);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_THAT(cache_.Write(100 * kBlock + i * 100, mine), IsOk());
  EXPECT_EQ(Read(150 * kBlock, 3 * kBlock), std::vector<std::byte>(3 * kBlock));
  ExpectTransfers(0, 0, 0);
  EXPECT_THAT(cache_.Flush(), IsOk());
  ExpectTransfers(0, 1, 4);
  for (std::uint64_t block = 500; block < 1000; ++block) Read(block * kBlock, 1);
  ExpectTransfers(500, 0, 500);
  EXPECT_EQ(Read(100 * kBlock, 100), mine) << "written once, it is fresh no more";
  ExpectTransfers(1, 0, 1);
}

TEST_F(BlockCacheTest, ReadsManyRangesInOneBatch) {
  device_.bytes() = Bytes(kBlocks * kBlock, 12);
  std::vector<std::vector<std::byte>> out(20, std::vector<std::byte>(2 * kBlock));
  std::vector<ReadRequest> reads;
  for (std::size_t i = 0; i < out.size(); ++i) reads.push_back({.offset = (i / 2 * 37 + i % 2 * 2) * kBlock, .out = out[i]});
  EXPECT_THAT(cache_.ReadMulti(reads), IsOk());
  for (const ReadRequest& read : reads) EXPECT_TRUE(std::ranges::equal(read.out, OnDevice(read.offset, 2 * kBlock)));
  EXPECT_EQ(device_.batches.exchange(0), 1);
  ExpectTransfers(10, 0, 40);  // two of them always touch
}

TEST(BlockCache, WithoutRoomEachRequestIsATransfer) {
  Device device(1000);
  BlockCache<Device> cache(device, Limits(0));
  const auto mine = Bytes(4 * kBlock, 13);
  EXPECT_THAT(cache.Write(8 * kBlock, mine), IsOk());
  EXPECT_EQ(device.writes, 1);
  std::vector<std::byte> out(4 * kBlock);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(cache.Read(8 * kBlock, out), IsOk());
  EXPECT_EQ(out, mine);
  EXPECT_EQ(device.reads, 3);
}

TEST(BlockCache, WithoutBatchingEachBlockIsATransfer) {
  Device device(1000);
  BlockCache<Device> cache(device, {.block_size = kBlock, .bytes = 128 * kBlock, .memory_alignment = kMemory, .batches = false});
  EXPECT_THAT(cache.Write(0, Bytes(9 * kBlock, 14)), IsOk());
  EXPECT_THAT(cache.Flush(), IsOk());
  EXPECT_EQ(device.writes, 9);
  std::vector<std::byte> out(9 * kBlock);
  EXPECT_THAT(cache.Read(100 * kBlock, out), IsOk());
  EXPECT_EQ(device.reads, 9);
}

class WriteBehind : public testing::Test {
 protected:
  void WriteBlocks(std::size_t begin, std::size_t end, std::size_t step) {
    for (std::size_t i = begin; i < end; ++i) ASSERT_THAT(cache_.Write(i * step * kBlock, mine_), IsOk());
  }
  void WaitForBlocks(int count) {
    for (; device_.blocks < count; std::this_thread::yield()) ASSERT_THAT(cache_.WriteMulti({}), IsOk());  // it may be about to sleep
  }
  const std::vector<std::byte> mine_ = Bytes(kBlock, 15);
  Device device_{1000};
  BlockCache<Device> cache_{device_, Limits(128, true)};
};

TEST_F(WriteBehind, StartsWhenHalfIsDirtyAndWritesRuns) {
  WriteBlocks(0, 63, 1);
  EXPECT_EQ(device_.writes, 0);
  WriteBlocks(63, 64, 1);
  WaitForBlocks(64);
  EXPECT_EQ(device_.writes, 2);
  EXPECT_THAT(cache_.Flush(), IsOk());
  EXPECT_EQ(device_.writes, 2);
  WriteBlocks(200, 264, 1);  // and again
  WaitForBlocks(128);
  EXPECT_EQ(device_.writes, 4);
}

TEST_F(WriteBehind, SkipsBlocksWrittenAgain) {
  WriteBlocks(0, 63, 2);
  WriteBlocks(0, 32, 2);
  WriteBlocks(63, 64, 2);
  WaitForBlocks(32);
  cache_.Stop();
  EXPECT_EQ(device_.writes, 32);
  EXPECT_EQ(device_.batches, 1) << "together";
  EXPECT_THAT(cache_.Flush(), IsOk());
  EXPECT_EQ(device_.writes, 64);
}

TEST_F(WriteBehind, DoesNotRunAfterStop) {
  cache_.Stop();
  WriteBlocks(0, 100, 2);
  EXPECT_EQ(device_.writes, 0);
  EXPECT_THAT(cache_.Flush(), IsOk());
  EXPECT_EQ(device_.writes, 100);
}

TEST_F(WriteBehind, FailureIsReportedToTheNextCaller) {
  device_.fails_after = 0;
  WriteBlocks(0, 64, 2);
  Status status;
  while (status.ok()) status = cache_.Write(0, mine_);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  device_.fails_after = 1 << 30;
  EXPECT_THAT(cache_.Flush(), StatusIs(absl::StatusCode::kUnavailable));
  std::vector<std::byte> out(kBlock);
  EXPECT_THAT(cache_.Read(20 * kBlock, out), IsOk());
  EXPECT_EQ(out, mine_);
}

TEST(BlockCache, AgreesWithAModel) {
  for (const std::size_t number : {0u, 128u, 300u, 2000u, 129u, 301u}) {
    const bool writes_behind = number % 2 != 0;
    const std::size_t cached = number - writes_behind;
    SCOPED_TRACE(number);
    constexpr std::size_t kSize = 1000 * kBlock;
    Device device(1000);
    BlockCache<Device> cache(device, Limits(cached, writes_behind));
    cache.AddFresh(0, kSize);
    std::vector<std::byte> model(kSize);
    std::array<std::vector<std::byte>, 8> out;
    std::array<ReadRequest, 8> reads;
    Random random(TestSeed());
    const auto draw = [&](std::size_t* size) {
      *size = random.OneIn(50) ? random.Between(1, 100 * kBlock) : random.Between(1, 3 * kBlock);
      return random.OneIn(3) ? random.Below(kSize - *size + 1) / kBlock * kBlock : random.Below(kSize - *size + 1);
    };
    const auto expect = [&](const ReadRequest& read) {
      ASSERT_TRUE(std::ranges::equal(read.out, std::span(model).subspan(read.offset, read.out.size())));
    };
    for (int i = 0; i < 40'000 / kSlowdown; ++i) {
      const std::size_t count = random.OneIn(8) ? out.size() : 1;
      for (std::size_t k = 0; k < count; ++k) {
        std::size_t size;
        reads[k].offset = draw(&size);
        out[k].resize(size);
        reads[k].out = out[k];
      }
      if (count > 1) {
        ASSERT_THAT(cache.ReadMulti(reads), IsOk());
        for (const ReadRequest& read : reads) expect(read);
      } else if (random.OneIn(2)) {
        const auto bytes = Bytes(out[0].size(), random.Next());
        std::ranges::copy(bytes, model.begin() + static_cast<std::ptrdiff_t>(reads[0].offset));
        ASSERT_THAT(cache.Write(reads[0].offset, bytes), IsOk());
      } else {
        ASSERT_THAT(cache.Read(reads[0].offset, out[0]), IsOk());
        expect(reads[0]);
      }
      if (!random.OneIn(2000)) continue;
      ASSERT_THAT(cache.Flush(), IsOk());
      ASSERT_TRUE(device.bytes() == model);
    }
  }
}

// Each thread has separate bytes in every block.
void WriteConcurrently(bool writes_behind) {
  constexpr std::size_t kBlocks = 600, kThreads = 4, kMine = 100;
  std::vector<std::uint8_t> last(kBlocks * kThreads);
  Device device(kBlocks);
  BlockCache<Device> cache(device, Limits(128, writes_behind));
  RunThreads(kThreads, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    std::vector<std::uint8_t> versions(kBlocks);
    std::vector<std::byte> bytes(kMine), many(40 * kBlock);
    for (int i = 0; i < 20'000 / kSlowdown; ++i) {
      const std::size_t block = random.Below(kBlocks);
      const std::uint64_t offset = block * kBlock + static_cast<std::size_t>(thread) * kMine;
      if (random.OneIn(2)) {
        std::ranges::fill(bytes, static_cast<std::byte>(++versions[block]));
        EXPECT_THAT(cache.Write(offset, bytes), IsOk());
      } else if (random.OneIn(10) && block + 40 <= kBlocks) {
        EXPECT_THAT(cache.Read(block * kBlock, many), IsOk());
      } else if (random.OneIn(10) && block + 40 <= kBlocks) {
        const std::span<std::byte> all(many);
        EXPECT_THAT(
            cache.ReadMulti(std::array<ReadRequest, 2>{{{block * kBlock, all.first(5000)}, {(block + 20) * kBlock, all.last(5000)}}}),
            IsOk());
      } else {
        EXPECT_THAT(cache.Read(offset, bytes), IsOk());
        EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(versions[block]); }));
      }
      if (random.OneIn(1000)) {
        EXPECT_THAT(cache.Flush(), IsOk());
      }
    }
    for (std::size_t block = 0; block < kBlocks; ++block) last[block * kThreads + static_cast<std::size_t>(thread)] = versions[block];
  });
  EXPECT_THAT(cache.Flush(), IsOk());
  for (std::size_t i = 0; i < last.size(); ++i)
    ASSERT_EQ(device.bytes()[i / kThreads * kBlock + i % kThreads * kMine], static_cast<std::byte>(last[i])) << i;
}

TEST(BlockCache, ConcurrentWritersOfOneBlockLoseNothing) { WriteConcurrently(false); }
TEST_F(WriteBehind, ConcurrentWritersOfOneBlockLoseNothing) { WriteConcurrently(true); }

}  // namespace
}  // namespace hako
