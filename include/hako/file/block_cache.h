// Blocks of a file in memory: what takes the place of the system's page cache where a file is opened for direct I/O.
//
// Bytes anywhere in the file become transfers of whole aligned blocks, as few as there can be: what a request misses is read at once,
// together with a few blocks between that are here already; a block that is overwritten whole is not read, nor one that was never written;
// a dirty block takes its dirty neighbours along when it has to be written, and they stay, clean (the batching of Tkrzw 0.9.20). Long
// requests for whole blocks go past the frames, from and to the caller's memory. Which block goes is decided by CLOCK, and blocks that were
// asked for only once go first. So a row of small appends costs one long write in the end, and no read.
//
// Blocks lie in shards, each with a lock; the 32 blocks of a group are in one shard, so that neighbours meet. A request locks the shards of
// its blocks in ascending order, and holds no lock while the device works.
//
// With BlockCacheLimits::writes_behind, each time that half as many blocks as there are frames have become dirty, a thread of the cache's
// own, which begins at the first such time, writes what is dirty and was not asked for again, so that who needs a frame seldom finds that
// it has to be written first; who does, writes as before. An append goes in long runs still, and in one transfer more for each such time.
//
// Invariants
//   1. A block is in at most one frame, of the shard that its number says.
//   2. A busy frame is being read or written by the one thread that made it so, and nobody else looks at its bytes. Who has busy frames
//      never waits for another's.
//   3. A dirty frame differs from the device, and goes only after it was written.
//   4. A request takes all the frames that it needs at one moment, or none.
//   5. A fresh block is zero on the device and in no frame.
//   6. Once a dirty block could not be written, whoever found out, no write is taken and no Flush succeeds, with that first error: what was
//      to be written before is not. Reads go on: they find what was written in the frames, and leave these as they are.
//   7. The thread has no privilege: it makes idle dirty frames busy as any request does, waits for none, and holds no lock while it writes.
//      What it fails at is told as 6 says. After Stop() there is none any more.
//
// Threads: any.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/no_memory.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/file/block_ranges.h"
#include "hako/file/file.h"
#include "hako/file/positional_device.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/sticky_status.h"

namespace hako {

// REQUIRES: offsets and sizes are multiples of the block size, addresses of the memory's alignment
template <class D>
concept BlockDevice = requires(D& device, const Transfer& transfer, std::span<const Transfer> transfers) {
  { device.Read(transfer) } -> std::same_as<Status>;
  { device.Write(transfer) } -> std::same_as<Status>;
  { device.ReadMulti(transfers) } -> std::same_as<Status>;
  { device.WriteMulti(transfers) } -> std::same_as<Status>;
};

struct BlockCacheLimits {
  std::size_t block_size;            // a power of two, at least 512
  std::size_t bytes;                 // of frames, at least kBytesMin; 0: these, and no block stays in them
  std::size_t memory_alignment = 1;  // of what the device takes
  bool batches = true;               // false: a block at a time
  bool writes_behind = false;        // a thread writes dirty blocks ahead of need; not one by one, nor where no block stays
};

template <BlockDevice Device>
class BlockCache {
 public:
  static constexpr std::size_t kBytesMin = 64 << 10, kBytesOfNone = 1 << 20;
  static constexpr std::size_t kFramesMax = std::size_t{1} << 31;

  BlockCache(Device& device, const BlockCacheLimits& limits)
      : device_(device),
        block_size_(limits.block_size),
        keeps_(limits.bytes != 0),
        num_frames_(std::max<std::size_t>(kBlocksMin, (keeps_ ? std::max(limits.bytes, kBytesMin) : kBytesOfNone) / block_size_)),
        num_shards_(std::clamp<std::size_t>(num_frames_ / (4 * kGroup), 1, kShardsMax)),
        request_max_(limits.batches ? std::min(kGroup, num_frames_ / num_shards_ / 4) : 1),
        run_max_(limits.batches ? std::max<std::size_t>(kGroup, std::min(kRunBytes / block_size_, num_frames_ / 4)) : 1),
        behind_(limits.writes_behind && keeps_ && request_max_ > 1 ? num_frames_ / 2 : kNever),
        memory_alignment_(limits.memory_alignment),
        memory_(MakeAlignedBuffer(num_frames_ * block_size_)),
        frames_(num_frames_),
        shards_(std::make_unique<Shard[]>(num_shards_)) {
    // A shard's frames lie together, and are taken in that order: adjacent blocks are then often adjacent in memory.
    for (std::size_t i = 0; i < num_shards_; ++i) {
      Shard& shard = shards_[i];
      shard.first = static_cast<std::uint32_t>(num_frames_ * i / num_shards_);
      shard.end = static_cast<std::uint32_t>(num_frames_ * (i + 1) / num_shards_);
      for (std::uint32_t frame = shard.end; frame > shard.first; --frame) shard.free.push_back(frame - 1);
      shard.heads.assign(std::bit_ceil(shard.free.size()), kNone);
      shard.hand = shard.first;
      shard.dirty.assign((shard.end - shard.first + 63) / 64, 0);
    }
  }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  std::size_t block_size() const { return block_size_; }
  // Whether blocks stay here, so that it pays to bring near what is going to be read.
  bool keeps() const { return keeps_; }

  Status Read(std::uint64_t offset, std::span<std::byte> out);
  Status Write(std::uint64_t offset, std::span<const std::byte> in);
  // As File says of these; what they miss is read, or written, together.
  Status ReadMulti(std::span<const ReadRequest> reads);
  Status WriteMulti(std::span<const WriteRequest> writes);

  // Writes what was dirty when it was called, in the order of the file and in runs as long as they come.
  Status Flush();
  // Nothing is written behind any more, and the device not used but by who calls. REQUIRES: nobody writes meanwhile
  void Stop() {
    writer_.reset();
    writer_is_up_.store(true);
  }
  // Forgets the blocks from `offset` on, which is a multiple of the block size. REQUIRES: nobody accesses them meanwhile
  void Drop(std::uint64_t offset);
  // The bytes from `begin` to `end`, multiples of the block size, are new on the device, and zero.
  void AddFresh(std::uint64_t begin, std::uint64_t end) { fresh_.Add(begin / block_size_, end / block_size_); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint64_t kNoBlock = ~std::uint64_t{0};
  static constexpr std::size_t kGroup = 32;  // neighbours that share a shard
  static constexpr std::size_t kBlocksMin = 64;
  static constexpr std::size_t kShardsMax = 64;
  static constexpr std::size_t kRunBytes = 1 << 20;  // that are written at once
  static constexpr std::size_t kGap = 8;             // blocks that are read in vain rather than to read twice
  static constexpr std::size_t kAtOnce = 64;         // transfers
  static constexpr std::size_t kNever = ~std::size_t{0};

  struct Frame {
    std::uint64_t block = kNoBlock;
    std::uint32_t next = kNone;  // of the same hash
    bool dirty = false, busy = false;
    bool seen = false, recent = false;  // asked for at all; and again, since the hand came by
  };
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::condition_variable changed;  // a frame is no longer busy
    std::vector<std::uint32_t> heads, free;
    std::vector<std::uint64_t> dirty;            // a bit for each frame: Frame::dirty
    std::uint32_t first = 0, end = 0, hand = 0;  // frames
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
      for (std::uint64_t rest = mask_; rest != 0; rest &= rest - 1) visit(cache_.shards_[static_cast<unsigned>(std::countr_zero(rest))]);
    }
    const BlockCache& cache_;
    std::uint64_t mask_ = 0;
  };

  // Busy frames of this thread on their way from or to the device, as transfers of adjacent blocks.
  class Batch {
   public:
    explicit Batch(const BlockCache& cache) : block_size_(cache.block_size_), run_max_(cache.run_max_) {}
    Batch(const Batch&) = delete;
    // One more block, in a transfer of its own unless it follows the last one.
    bool HasRoomFor(std::uint64_t block) const { return count_ < kBlocks && (num_transfers_ < kAtOnce || Follows(block)); }
    bool IsFull() const { return count_ == kBlocks || num_transfers_ == kAtOnce; }
    bool IsEmpty() const { return count_ == 0; }
    std::size_t num_blocks() const { return count_; }
    void Add(std::uint64_t block, std::byte* bytes) {
      const bool follows = Follows(block);
      run_ = follows ? run_ + 1 : 1;
      if (follows && EndsAt(parts_[num_parts_ - 1], bytes)) {
        parts_[num_parts_ - 1].iov_len += block_size_;
      } else {
        parts_[num_parts_++] = {bytes, block_size_};
        if (!follows) transfers_[num_transfers_++] = {block * block_size_, std::span(&parts_[num_parts_ - 1], 0)};
        Transfer& transfer = transfers_[num_transfers_ - 1];
        transfer.parts = std::span(transfer.parts.data(), transfer.parts.size() + 1);
      }
      blocks_[count_++] = block;
    }
    std::span<const Transfer> transfers() const { return std::span(transfers_).first(num_transfers_); }
    std::span<const std::uint64_t> blocks() const { return std::span(blocks_).first(count_); }
    void Clear() { count_ = num_parts_ = num_transfers_ = run_ = 0; }

   private:
    static constexpr std::size_t kBlocks = PositionalDevice::kPartsMax;
    bool Follows(std::uint64_t block) const { return count_ != 0 && blocks_[count_ - 1] + 1 == block && run_ < run_max_; }
    const std::size_t block_size_, run_max_;
    std::size_t count_ = 0, num_parts_ = 0, num_transfers_ = 0, run_ = 0;
    std::array<std::uint64_t, kBlocks> blocks_;
    std::array<iovec, kBlocks> parts_;
    std::array<Transfer, kAtOnce> transfers_;
  };

  Shard& ShardOf(std::uint64_t block) const { return shards_[block / kGroup % num_shards_]; }
  std::byte* Bytes(std::uint64_t frame) const { return memory_.get() + frame * block_size_; }
  static bool EndsAt(const iovec& part, const std::byte* bytes) { return static_cast<std::byte*>(part.iov_base) + part.iov_len == bytes; }
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
  void SetDirty(Shard& shard, std::uint32_t frame, bool dirty) {
    const std::uint32_t number = frame - shard.first;
    const std::uint64_t bit = std::uint64_t{1} << number % 64;
    frames_[frame].dirty = dirty;
    shard.dirty[number / 64] = (shard.dirty[number / 64] & ~bit) | (dirty ? bit : 0);
  }
  void Unlink(Shard& shard, std::uint32_t frame) {
    if (frames_[frame].dirty) SetDirty(shard, frame, false);
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
  Status ForEachPart(std::uint64_t offset, const std::byte* bytes, std::size_t size, F&& access);
  template <bool kWrites>
  Status Access(std::uint64_t offset, std::byte* bytes, std::size_t size);
  template <bool kWrites>
  Status AccessLong(std::uint64_t offset, std::byte* bytes, std::size_t size);
  bool TakeFrames(std::span<std::uint32_t> frames, std::uint64_t first, std::uint64_t which, std::uint32_t* dirty, Shard** full);
  std::uint32_t TakeFrame(Shard& shard, std::uint32_t* dirty);
  Status ReadRuns(std::uint64_t first, std::span<const std::uint32_t> frames, std::uint64_t wanted);
  Status ReadTogether(std::span<const ReadRequest> reads);
  void Claim(const ReadRequest& read, Batch* batch);
  std::uint32_t FindIdle(Shard& shard, std::uint64_t block, std::unique_lock<std::mutex>& lock);
  template <class F>
  std::vector<std::uint64_t> DirtyBlocks(F&& is_wanted) const;
  template <class F>
  void MakeIdle(std::span<const std::uint64_t> blocks, F&& visit);
  Status WriteBack(Shard& shard, std::uint32_t victim);
  void ClaimDirty(std::uint64_t first, Batch* batch);
  Status WriteBatch(Batch* batch);
  void WakeWriter();
  void WriteBehind();
  Status ReadBeside(std::uint64_t offset, std::byte* bytes, std::size_t size);
  Status FlushBlocks(std::span<const std::uint64_t> blocks);
  void ReleaseClean(std::uint64_t offset, std::size_t size);
  void Forget(std::uint64_t first, std::uint64_t end);

  Device& device_;
  const std::size_t block_size_;
  const bool keeps_;
  const std::size_t num_frames_, num_shards_, request_max_, run_max_, behind_, memory_alignment_;
  const AlignedBuffer memory_;
  std::vector<Frame> frames_;
  std::unique_ptr<Shard[]> shards_;
  BlockRanges fresh_;
  sync::StickyStatus failure_;              // why a dirty block could not be written
  std::atomic<std::size_t> dirtied_{0};     // frames, since the writer looked
  std::atomic<bool> writer_is_up_{false};   // woken or at work, or there is to be none; who sets it may touch writer_
  sync::BackgroundThread::Pointer writer_;  // ends before the rest goes
};

}  // namespace hako

#include "hako/file/block_cache-inl.h"
