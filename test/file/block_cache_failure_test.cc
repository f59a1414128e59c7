// A block cache whose device fails, or checks its reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "hako/file/block_cache.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr std::size_t kBlock = 512, kBlocks = 4096;

// Writes can be made to fail; a read fails if two of its parts are one piece of memory, as on a
// file system that checks after reading.
class Device {
 public:
  Status Read(const Transfer& transfer) {
    TakeMemory();
    std::set<void*> parts;
    std::uint64_t offset = transfer.offset;
    for (const iovec& part : transfer.parts) {
      if (!parts.insert(part.iov_base).second) return absl::DataLossError("two blocks in one place");
      std::memcpy(part.iov_base, &bytes[offset], part.iov_len);
      offset += part.iov_len;
    }
    ++reads;
    return absl::OkStatus();
  }
  Status Write(const Transfer& transfer) {
    TakeMemory();
    if (writes++ >= fails_from) return absl::UnavailableError("the device is gone");
    std::uint64_t offset = transfer.offset;
    for (const iovec& part : transfer.parts) {
      std::memcpy(&bytes[offset], part.iov_base, part.iov_len);
      offset += part.iov_len;
    }
    return absl::OkStatus();
  }
  Status ReadMulti(std::span<const Transfer> transfers) {
    Status status;
    for (const Transfer& transfer : transfers) status.Update(Read(transfer));
    return status;
  }
  Status WriteMulti(std::span<const Transfer> transfers) {
    Status status;
    for (const Transfer& transfer : transfers) status.Update(Write(transfer));
    return status;
  }

  // A call runs out of memory once in this many, at random; 0 = never.
  std::atomic<int> throws_once_in = 0;
  std::vector<std::byte> bytes = std::vector<std::byte>(kBlocks * kBlock);
  int reads = 0, writes = 0, fails_from = 1 << 30;

 private:
  void TakeMemory() {
    const int n = throws_once_in;
    if (n == 0) return;
    const std::lock_guard lock(mutex_);
    if (random_.OneIn(static_cast<std::uint64_t>(n))) throw std::bad_alloc();
  }
  std::mutex mutex_;
  Random random_{9};
};

void Fill(std::span<std::byte> bytes, Random& random) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
}

TEST(BlockCacheFailure, ReadsBlocksInBetweenIntoSeparateMemory) {
  Device device;
  Random random(1);
  Fill(device.bytes, random);
  BlockCache<Device> cache(device, {.block_size = kBlock, .bytes = 1 << 20});
  std::vector<std::byte> out(16 * kBlock);
  for (const int here : {1, 3, 4, 5, 9, 14}) EXPECT_THAT(cache.Read(here * kBlock, std::span(out).first(kBlock)), IsOk());
  device.reads = 0;
  EXPECT_THAT(cache.Read(0, out), IsOk());
  EXPECT_EQ(device.reads, 1);
  EXPECT_EQ(std::memcmp(out.data(), device.bytes.data(), out.size()), 0);
}

TEST(BlockCacheFailure, ReadsContinueAfterAnyFailedWrite) {
  for (const bool writes_behind : {false, true}) {
    for (int nth = 0; nth < 40; nth += writes_behind ? 39 : 1) {
      Device device;
      Random random(static_cast<std::uint64_t>(nth) + 5);
      Fill(device.bytes, random);
      std::vector<std::byte> expected = device.bytes, block(40 * kBlock), out(100 * kBlock);
      device.fails_from = nth;
      BlockCache<Device> cache(device, {.block_size = kBlock, .bytes = 128 * kBlock, .writes_behind = writes_behind});
      // Updates until one fails. That one may be partly done, as engines expect.
      Status status;
      std::uint64_t offset = 0;
      std::size_t size = 0;
      for (int i = 0; i < 4000 && status.ok(); ++i) {
        size = 1 + random.Below(i % 16 == 0 ? block.size() : 2 * kBlock);
        offset = random.Below(expected.size() - size);
        Fill(std::span(block).first(size), random);
        status = cache.Write(offset, std::span(block).first(size));
        if (status.ok()) std::memcpy(&expected[offset], block.data(), size);
      }
      ASSERT_FALSE(status.ok());
      cache.Stop();
      const std::uint64_t torn = offset, torn_end = offset + size;
      const int writes = device.writes;
      for (int i = 0; i < 300; ++i) {
        size = 1 + random.Below(i % 8 == 0 ? out.size() : 3 * kBlock);
        offset = random.Below(expected.size() - size);
        ASSERT_THAT(cache.Read(offset, std::span(out).first(size)), IsOk());
        for (std::size_t at = 0; at < size; ++at) {
          const std::uint64_t byte = offset + at;
          if (byte >= torn && byte < torn_end) continue;
          ASSERT_EQ(out[at], expected[byte]) << "byte " << byte << " after write " << nth << " failed";
        }
      }
      EXPECT_EQ(device.writes, writes) << "reads write nothing";
      EXPECT_FALSE(cache.Flush().ok());
    }
  }
}

// No frame stays busy, and no written byte is lost.
TEST(BlockCacheFailure, GoesOnAfterTheDeviceRanOutOfMemory) {
  for (const bool writes_behind : {false, true}) {
    Device device;
    Random random(8);
    Fill(device.bytes, random);
    std::vector<std::byte> expected = device.bytes, block(40 * kBlock), out(100 * kBlock);
    BlockCache<Device> cache(device, {.block_size = kBlock, .bytes = 128 * kBlock, .writes_behind = writes_behind});
    const std::uint64_t fresh = 2000 * kBlock;
    std::memset(&expected[fresh], 0, 100 * kBlock);
    std::memset(&device.bytes[fresh], 0, 100 * kBlock);
    cache.AddFresh(fresh, fresh + 100 * kBlock);
    device.throws_once_in = 8;
    int failures = 0;
    const auto repeat = [&failures](auto&& body) {
      while (!CatchNoMemory(body).ok()) ++failures;
    };
    for (int i = 0; i < 4000; ++i) {
      const std::size_t size = 1 + random.Below(i % 16 == 0 ? block.size() : 2 * kBlock);
      const std::uint64_t offset = random.Below(expected.size() - size);
      Fill(std::span(block).first(size), random);
      repeat([&] { return cache.Write(offset, std::span(block).first(size)); });
      std::memcpy(&expected[offset], block.data(), size);
      const std::size_t read_size = 1 + random.Below(i % 8 == 0 ? out.size() : 3 * kBlock);
      const std::uint64_t from = random.Below(expected.size() - read_size);
      repeat([&] { return cache.Read(from, std::span(out).first(read_size)); });
      ASSERT_EQ(std::memcmp(out.data(), &expected[from], read_size), 0);
      const ReadRequest reads[] = {{from, std::span(out).first(read_size)}, {fresh, std::span(block).first(kBlock)}};
      repeat([&] { return cache.ReadMulti(reads); });
      if (i % 200 == 0) repeat([&] { return cache.Flush(); });
    }
    EXPECT_GT(failures, 100);
    cache.Stop();
    device.throws_once_in = 0;
    EXPECT_THAT(cache.Flush(), IsOk());
    EXPECT_TRUE(device.bytes == expected);
  }
}

}  // namespace
}  // namespace hako
