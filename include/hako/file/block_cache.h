// Blocks of a file in memory: what takes the place of the system's page cache where a file is opened for direct I/O.
//
// Bytes anywhere in the file become transfers of whole aligned blocks, as few as there can be: what a request misses is read at once,
// together with a few blocks between that are here already; a block that is overwritten whole is not read; a dirty block takes its dirty
// neighbours along when it has to be written, and they stay, clean (the batching of Tkrzw 0.9.20). Which block goes is decided by CLOCK,
// and blocks that were asked for only once go first.
//
// Blocks lie in shards, each with a lock; the 32 blocks of a group are in one shard, so that neighbours meet. A request locks the shards of
// its blocks in ascending order, and holds no lock while the device works.
//
// Invariants
//   1. A block is in at most one frame, of the shard that its number says.
//   2. A busy frame is being read or written by the one thread that made it so; nobody else looks at its bytes, or waits for locks with it.
//   3. A dirty frame differs from the device, and goes only after it was written.
//   4. A request takes all the frames that it needs at one moment, or none: who waits has none, so there is no deadlock.
//
// Threads: any.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/status.h"

namespace hako {

// Transfers of whole blocks. REQUIRES: offsets, sizes and addresses are multiples of the block size
template <class D>
concept BlockDevice = requires(D& device, std::uint64_t offset, std::span<const iovec> parts) {
  { device.ReadBlocks(offset, parts) } -> std::same_as<Status>;
  { device.WriteBlocks(offset, parts) } -> std::same_as<Status>;
};

template <BlockDevice Device>
class BlockCache {
 public:
  // REQUIRES: block_size is a power of two, and at least 512; a cache of at least kBlocksMin blocks
  static constexpr std::size_t kBlocksMin = 64;

  BlockCache(Device& device, std::size_t block_size, std::size_t cache_bytes)
      : device_(device),
        block_size_(block_size),
        num_frames_(std::max(kBlocksMin, cache_bytes / block_size)),
        num_shards_(std::clamp<std::size_t>(num_frames_ / (4 * kGroup), 1, kShardsMax)),
        request_max_(std::min(kGroup, num_frames_ / 4)),
        memory_(static_cast<std::byte*>(::operator new((num_frames_ + 1) * block_size, std::align_val_t(block_size)))),
        frames_(num_frames_),
        shards_(std::make_unique<Shard[]>(num_shards_)) {
    for (std::uint32_t frame = 0; frame < num_frames_; ++frame) {
      Shard& shard = shards_[frame % num_shards_];
      shard.frames.push_back(frame);
      shard.free.push_back(frame);
    }
    for (std::size_t i = 0; i < num_shards_; ++i) shards_[i].heads.assign(std::bit_ceil(shards_[i].frames.size()), kNone);
  }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() { ::operator delete(memory_, std::align_val_t(block_size_)); }

  std::size_t block_size() const { return block_size_; }

  Status Read(std::uint64_t offset, std::span<std::byte> out) {
    return ForEachPart(offset, out.size(), [&](std::uint64_t from, std::size_t begin, std::size_t size) {
      return Access<false>(from, out.data() + begin, size);
    });
  }
  Status Write(std::uint64_t offset, std::span<const std::byte> in) {
    return ForEachPart(offset, in.size(), [&](std::uint64_t from, std::size_t begin, std::size_t size) {
      return Access<true>(from, const_cast<std::byte*>(in.data()) + begin, size);
    });
  }

  // Writes what was dirty when it was called, in the order of the file and in runs as long as they come.
  Status Flush();
  // Forgets the blocks from `offset` on, which is a multiple of the block size; nobody else may access them meanwhile.
  void Drop(std::uint64_t offset);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint64_t kNoBlock = ~std::uint64_t{0};
  static constexpr std::size_t kGroup = 32;  // neighbours that share a shard
  static constexpr std::size_t kShardsMax = 64;
  static constexpr std::size_t kRunMax = 256;  // blocks that Flush writes at once
  static constexpr std::size_t kGap = 8;       // blocks that are read in vain rather than to read twice

  struct Frame {
    std::uint64_t block = kNoBlock;
    std::uint32_t next = kNone;  // of the same hash
    bool dirty = false, busy = false;
    bool seen = false, recent = false;  // asked for at all; and again, since the hand came by
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    std::condition_variable changed;  // a frame is no longer busy
    std::vector<std::uint32_t> heads, frames, free;
    std::size_t hand = 0;
  };

  // The shards of blocks from `first` to `last`, locked in ascending order.
  class Locks {
   public:
    Locks(const BlockCache& cache, std::uint64_t first, std::uint64_t last) : cache_(cache) {
      for (std::uint64_t group = first / kGroup; group <= last / kGroup; ++group) mask_ |= std::uint64_t{1} << group % cache.num_shards_;
      Lock();
    }
    ~Locks() { Unlock(); }
    void Lock() {
      ForEach([](Shard& shard) { shard.mutex.lock(); });
    }
    void Unlock() {
      ForEach([](Shard& shard) { shard.mutex.unlock(); });
    }
    // Until a frame of that shard is no longer busy; all is unlocked meanwhile.
    void Wait(Shard& wanted) {
      ForEach([&](Shard& shard) {
        if (&shard != &wanted) shard.mutex.unlock();
      });
      {
        std::unique_lock lock(wanted.mutex, std::adopt_lock);
        wanted.changed.wait(lock);
      }
      Lock();
    }

   private:
    template <class F>
    void ForEach(F&& visit) {
      for (std::uint64_t rest = mask_; rest != 0; rest &= rest - 1) visit(cache_.shards_[std::countr_zero(rest)]);
    }
    const BlockCache& cache_;
    std::uint64_t mask_ = 0;
  };

  Shard& ShardOf(std::uint64_t block) const { return shards_[block / kGroup % num_shards_]; }
  std::byte* Bytes(std::uint32_t frame) const { return memory_ + frame * block_size_; }
  std::byte* scratch() const { return memory_ + num_frames_ * block_size_; }
  std::uint32_t& Head(Shard& shard, std::uint64_t block) const {
    const std::uint64_t number = block / kGroup / num_shards_ * kGroup + block % kGroup;  // of the shard's blocks
    return shard.heads[number * 0x9e3779b97f4a7c15u >> 32 & (shard.heads.size() - 1)];
  }
  std::uint32_t Find(Shard& shard, std::uint64_t block) const {
    std::uint32_t frame = Head(shard, block);
    while (frame != kNone && frames_[frame].block != block) frame = frames_[frame].next;
    return frame;
  }
  void Link(Shard& shard, std::uint32_t frame, std::uint64_t block) {
    std::uint32_t& head = Head(shard, block);
    frames_[frame] = {.block = block, .next = head};
    head = frame;
  }
  void Unlink(Shard& shard, std::uint32_t frame) {
    std::uint32_t* at = &Head(shard, frames_[frame].block);
    while (*at != frame) at = &frames_[*at].next;
    *at = frames_[frame].next;
    frames_[frame] = {};
  }
  void GiveBack(Shard& shard, std::uint32_t frame) {
    Unlink(shard, frame);
    shard.free.push_back(frame);
  }

  template <class F>
  Status ForEachPart(std::uint64_t offset, std::size_t size, F&& access) {
    for (std::size_t begin = 0; begin < size;) {
      const std::uint64_t from = offset + begin, end = (from / block_size_ + request_max_) * block_size_;
      const std::size_t part = std::min<std::uint64_t>(size - begin, end - from);
      HAKO_RETURN_IF_ERROR(access(from, begin, part));
      begin += part;
    }
    return absl::OkStatus();
  }
  template <bool kWrites>
  Status Access(std::uint64_t offset, std::byte* bytes, std::size_t size);
  bool TakeFrames(std::span<std::uint32_t> frames, std::uint64_t first, std::uint64_t which, std::uint32_t* dirty, Shard** full);
  std::uint32_t TakeFrame(Shard& shard, std::uint32_t* dirty);
  Status ReadRuns(std::uint64_t first, std::span<const std::uint32_t> frames, std::uint64_t wanted);
  Status WriteAround(std::uint32_t frame, Locks& locks);
  Status WriteRun(std::uint64_t first, std::size_t count, Locks& locks);

  Device& device_;
  const std::size_t block_size_, num_frames_, num_shards_, request_max_;
  std::byte* const memory_;
  std::vector<Frame> frames_;
  std::unique_ptr<Shard[]> shards_;
};

}  // namespace hako

#include "hako/file/block_cache-inl.h"
