// The block cache: what is read and written is what a plain array would hold, by as few transfers as the rules say.
#include "hako/file/block_cache.h"

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {
namespace {

constexpr std::size_t kBlock = 512;

// Memory that insists on whole blocks and counts what is asked of it.
class Device {
 public:
  explicit Device(std::size_t num_blocks) : bytes_(num_blocks * kBlock) {}

  Status ReadBlocks(std::uint64_t offset, std::span<const iovec> parts) {
    return Transfer(offset, parts, &reads, [](std::byte* memory, std::byte* device) { std::memcpy(memory, device, kBlock); });
  }
  Status WriteBlocks(std::uint64_t offset, std::span<const iovec> parts) {
    return Transfer(offset, parts, &writes, [](std::byte* memory, std::byte* device) { std::memcpy(device, memory, kBlock); });
  }
  std::vector<std::byte>& bytes() { return bytes_; }

  std::atomic<int> reads = 0, writes = 0, blocks = 0;
  std::atomic<int> fails_after = 1 << 30;  // transfers

 private:
  template <class Copy>
  Status Transfer(std::uint64_t offset, std::span<const iovec> parts, std::atomic<int>* count, Copy copy) {
    if (fails_after-- <= 0) return absl::UnavailableError("the device is gone");
    ++*count;
    EXPECT_EQ(offset % kBlock, 0u);
    std::lock_guard lock(mutex_);
    for (const iovec& part : parts) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.iov_base) % kBlock, 0u);
      EXPECT_EQ(part.iov_len, kBlock);
      copy(static_cast<std::byte*>(part.iov_base), bytes_.data() + offset);
      offset += kBlock;
      ++blocks;
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
  BlockCache<Device> cache_{device_, kBlock, 64 * kBlock};
};

TEST_F(BlockCacheTest, ReadsAnyBytesOnceByOneTransfer) {
  device_.bytes() = Bytes(kBlocks * kBlock, 1);
  EXPECT_EQ(Read(700, 4000), OnDevice(700, 4000));
  ExpectTransfers(1, 0, 9);
  EXPECT_EQ(Read(512, 4096), OnDevice(512, 4096));
  ExpectTransfers(0, 0, 0);
}

TEST_F(BlockCacheTest, TrimsWhatIsHereAndReadsThroughWhatLiesBetween) {
  device_.bytes() = Bytes(kBlocks * kBlock, 2);
  for (const std::uint64_t block : {0, 1, 7, 4}) Read(block * kBlock, 1);
  ExpectTransfers(4, 0, 4);
  EXPECT_EQ(Read(0, 8 * kBlock), OnDevice(0, 8 * kBlock));
  ExpectTransfers(1, 0, 5);  // blocks 2 to 6, of which one was here
}

TEST_F(BlockCacheTest, ADirtyBlockWinsOverTheDevice) {
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

TEST_F(BlockCacheTest, KeepsWhatIsWantedAgainBesideAScan) {
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t block = 0; block < 16; ++block) Read(block * kBlock, 1);
  }
  for (std::uint64_t block = 500; block < 500 + 100; ++block) {
    Read(block * kBlock, 1);
    for (std::uint64_t wanted = 0; block % 8 == 0 && wanted < 16; ++wanted) Read(wanted * kBlock, 1);
  }
  EXPECT_EQ(device_.reads, 16 + 100);
}

TEST_F(BlockCacheTest, ForgetsWhatIsDropped) {
  EXPECT_THAT(cache_.Write(0, Bytes(4 * kBlock, 7)), IsOk());
  cache_.Drop(2 * kBlock);
  EXPECT_THAT(cache_.Flush(), IsOk());
  ExpectTransfers(0, 1, 2);
  EXPECT_EQ(Read(2 * kBlock, kBlock), OnDevice(2 * kBlock, kBlock));
  ExpectTransfers(1, 0, 1);
}

TEST_F(BlockCacheTest, TellsOfADeviceThatFailsAndLosesNothing) {
  const auto mine = Bytes(48 * kBlock, 8);
  EXPECT_THAT(cache_.Write(0, mine), IsOk());
  device_.fails_after = 0;
  std::vector<std::byte> out(kBlock);
  EXPECT_THAT(cache_.Read(100 * kBlock, out), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(cache_.Flush(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Read(0, 48 * kBlock), mine) << "it is here";
  device_.fails_after = 1 << 30;
  EXPECT_EQ(Read(100 * kBlock, kBlock), OnDevice(100 * kBlock, kBlock));
  EXPECT_THAT(cache_.Flush(), IsOk());
  EXPECT_EQ(OnDevice(0, 48 * kBlock), mine);
}

TEST(BlockCache, HoldsWhatAModelHolds) {
  for (const std::size_t cached : {64u, 300u, 2000u}) {
    SCOPED_TRACE(cached);
    constexpr std::size_t kSize = 1000 * kBlock;
    Device device(1000);
    BlockCache<Device> cache(device, kBlock, cached * kBlock);
    std::vector<std::byte> model(kSize), out;
    Random random(TestSeed());
    for (int i = 0; i < 40'000 / kSlowdown; ++i) {
      const std::size_t size = random.OneIn(50) ? random.Between(1, 100 * kBlock) : random.Between(1, 3 * kBlock);
      const std::uint64_t offset = random.OneIn(3) ? random.Below(kSize - size + 1) / kBlock * kBlock : random.Below(kSize - size + 1);
      const auto at = model.begin() + static_cast<std::ptrdiff_t>(offset);
      if (random.OneIn(2)) {
        const auto bytes = Bytes(size, random.Next());
        std::ranges::copy(bytes, at);
        ASSERT_THAT(cache.Write(offset, bytes), IsOk());
      } else {
        out.resize(size);
        ASSERT_THAT(cache.Read(offset, out), IsOk());
        ASSERT_TRUE(std::equal(out.begin(), out.end(), at));
      }
      if (!random.OneIn(2000)) continue;
      ASSERT_THAT(cache.Flush(), IsOk());
      ASSERT_TRUE(device.bytes() == model);
    }
  }
}

// Each thread has bytes of its own in every block.
TEST(BlockCache, ConcurrentWritersOfOneBlockLoseNothing) {
  constexpr std::size_t kBlocks = 600, kThreads = 4, kMine = 100;
  Device device(kBlocks);
  BlockCache<Device> cache(device, kBlock, 128 * kBlock);
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
      } else {
        EXPECT_THAT(cache.Read(offset, bytes), IsOk());
        EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(versions[block]); }));
      }
      if (random.OneIn(1000)) {
        EXPECT_THAT(cache.Flush(), IsOk());
      }
    }
  });
  EXPECT_THAT(cache.Flush(), IsOk());
}

}  // namespace
}  // namespace hako
