// A cache of a file's blocks: replaces the kernel's page cache for files opened for direct I/O.
//
// Requests for any bytes become as few transfers of whole aligned blocks as possible. The missing
// blocks of a request are read together, across short gaps of cached blocks. A block that is
// overwritten whole, or that was never written, is not read. When a dirty block must be written,
// its dirty neighbours are written with it and stay cached, clean (the batching of Tkrzw 0.9.20).
// Long requests for whole blocks bypass the frames, to and from the caller's memory. Blocks are
// evicted by CLOCK, those requested only once first. So a series of small appends costs one long
// write and no read.
//
// Blocks are divided into shards, each with a lock. The 32 blocks of a group are in one shard, so
// that neighbours are found together. A request locks the shards of its blocks in ascending order,
// and holds no lock during a transfer.
//
// With BlockCacheLimits::writes_behind, a background thread writes dirty blocks that were not
// requested again. It is started, and woken, each time half as many blocks as there are frames have
// become dirty. So a thread that needs a frame seldom has to write a block first. Appends are still
// written in long runs, with one more transfer for each wake-up.
//
// Invariants
//   1. A block is in at most one frame, in the shard given by its number.
//   2. A busy frame is being read or written by the one thread that made it busy; no other thread
//      accesses its bytes. A thread with busy frames never waits for another thread's busy frames.
//   3. A dirty frame differs from the device, and is evicted only after it was written.
//   4. A request takes all frames that it needs in one step, or none.
//   5. A fresh block is zero on the device and in no frame.
//   6. Once a thread has failed to write a dirty block, all writes and Flush return that first
//      error, because earlier writes are missing on the device. Reads continue: they find the
//      written bytes in the frames, and leave the frames unchanged.
//   7. The writer thread follows the rules of requests: it makes idle dirty frames busy, waits for
//      no frame, and holds no lock while it writes. Invariant 6 applies to its failures. Stop()
//      ends the thread.
//
// Thread-safe.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/file/block_ranges.h"
#include "hako/file/file.h"
#include "hako/file/positional_device.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"

namespace hako {

// The device of a BlockCache.
// REQUIRES: offsets and sizes are multiples of the block size, addresses multiples of the memory
// alignment (checked in Count)
template <class D>
concept BlockDevice = requires(D& device, const Transfer& transfer, std::span<const Transfer> transfers) {
  { device.Read(transfer) } -> std::same_as<Status>;
  { device.Write(transfer) } -> std::same_as<Status>;
  { device.ReadMulti(transfers) } -> std::same_as<Status>;
  { device.WriteMulti(transfers) } -> std::same_as<Status>;
};

struct BlockCacheLimits {
  std::size_t block_size;            // a power of two, at least 512
  std::size_t bytes;                 // of frames, at least kBytesMin; 0 = kBytesOfNone bytes, in which no block stays cached
  std::size_t memory_alignment = 1;  // alignment of the memory that the device accepts
  bool batches = true;               // false: one block per transfer
  bool writes_behind = false;        // a thread writes dirty blocks ahead of need; ignored without batches or if no block stays
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
        memory_(MakeAlignedBuffer(num_frames_ * block_size_, HugePages::kLater)),
        frames_(std::allocator<Frame>().allocate(num_frames_), {num_frames_}),
        shards_(std::make_unique<Shard[]>(num_shards_)) {
    // A shard's frames are contiguous and are first taken in that order, so adjacent blocks are
    // often adjacent in memory.
    for (std::size_t i = 0; i < num_shards_; ++i) {
      Shard& shard = shards_[i];
      sync::MutexLock lock(shard.mutex);
      shard.first = static_cast<std::uint32_t>(num_frames_ * i / num_shards_);
      shard.end = static_cast<std::uint32_t>(num_frames_ * (i + 1) / num_shards_);
      shard.unused = shard.first;
      shard.heads.assign(std::bit_ceil(shard.end - shard.first), kNone);
      shard.hand = shard.first;
      shard.dirty.assign((shard.end - shard.first + 63) / 64, 0);
    }
  }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  std::size_t block_size() const { return block_size_; }
  // Whether blocks stay cached, so that prefetching pays.
  bool keeps() const { return keeps_; }
  // Returns the bytes of all frames.
  std::uint64_t bytes() const { return num_frames_ * block_size_; }

  Status Read(std::uint64_t offset, std::span<std::byte> out);
  Status Write(std::uint64_t offset, std::span<const std::byte> in);
  // Reads from the device, after writing the dirty blocks of these bytes to it. The frames keep
  // their content.
  Status ReadDevice(std::uint64_t offset, std::span<std::byte> out);
  // See BatchFile. The missing blocks of all requests are read, or written, together.
  Status ReadMulti(std::span<const ReadRequest> reads);
  Status WriteMulti(std::span<const WriteRequest> writes);

  // Writes the blocks that are dirty at the call, in file order and in long runs.
  Status Flush();
  // Stops the writer thread. From then on only callers use the device.
  // REQUIRES: no other thread writes meanwhile (unchecked: the cache does not count its users)
  void Stop() {
    writer_.reset();
    writer_is_up_.store(true);
  }
  // Drops the blocks from `offset` on, a multiple of the block size.
  // REQUIRES: a multiple, and no other thread accesses them meanwhile
  void Drop(std::uint64_t offset);
  // Declares that the bytes from `begin` to `end`, multiples of the block size, are new on the
  // device and zero.
  void AddFresh(std::uint64_t begin, std::uint64_t end) {
    HAKO_DCHECK(begin % block_size_ == 0 && end % block_size_ == 0);
    fresh_.Add(begin / block_size_, end / block_size_);
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint64_t kNoBlock = ~std::uint64_t{0};
  static constexpr std::size_t kGroup = 32;  // neighbours that share a shard
  static constexpr std::size_t kBlocksMin = 64;
  static constexpr std::size_t kShardsMax = 64;
  static constexpr std::size_t kRunBytes = 1 << 20;  // written at once
  static constexpr std::size_t kGap = 8;             // cached blocks reread rather than splitting a read
  static constexpr std::size_t kAtOnce = 64;         // transfers per batch
  static constexpr std::size_t kNever = ~std::size_t{0};
  static constexpr std::size_t kFewFrames = 64;  // once more frames than this are used, the rest get huge pages

  struct Frame {
    std::uint64_t block = kNoBlock;
    std::uint32_t next = kNone;  // next frame of the same hash, or next free one
    bool dirty = false, busy = false;
    bool seen = false, recent = false;  // requested once; requested again since the CLOCK hand passed
  };
  struct alignas(64) Shard {
    mutable sync::Mutex mutex;         // also guards the frames of the shard
    sync::ConditionVariable changed;   // notified when a frame stops being busy
    std::uint32_t first = 0, end = 0;  // frames
    std::vector<std::uint32_t> heads ABSL_GUARDED_BY(mutex);
    std::vector<std::uint64_t> dirty ABSL_GUARDED_BY(mutex);  // a bit for each frame: Frame::dirty
    std::uint32_t hand ABSL_GUARDED_BY(mutex) = 0;
    std::uint32_t unused ABSL_GUARDED_BY(mutex) = 0;    // the first frame that was never used; it and the later ones take no memory
    std::uint32_t free ABSL_GUARDED_BY(mutex) = kNone;  // head of the list of free frames that were used before
  };
  struct FreeFrames {
    std::size_t count;
    void operator()(Frame* frames) const { std::allocator<Frame>().deallocate(frames, count); }
  };

  // Locks the shards of blocks `first` to `last` in ascending order.
  class Locks {
   public:
    Locks(const BlockCache& cache, std::uint64_t first, std::uint64_t last) : cache_(cache) {
      for (std::uint64_t group = first / kGroup; group <= last / kGroup; ++group) mask_ |= std::uint64_t{1} << group % cache.num_shards_;
      Lock();
    }
    ~Locks() { Unlock(); }
    // Clang cannot check these: which mutexes are locked depends on the blocks.
    void Lock() {
      ForEach([](Shard& shard) ABSL_NO_THREAD_SAFETY_ANALYSIS { shard.mutex.Lock(); });
    }
    void Unlock() {
      ForEach([](Shard& shard) ABSL_NO_THREAD_SAFETY_ANALYSIS { shard.mutex.Unlock(); });
    }
    // Waits until a frame of that shard is no longer busy. All shards are unlocked meanwhile.
    void Wait(Shard& wanted) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      ForEach([&](Shard& shard) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        if (&shard != &wanted) shard.mutex.Unlock();
      });
      wanted.mutex.AssertHeld();
      wanted.changed.Wait(wanted.mutex);
      wanted.mutex.Unlock();
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

  // Busy frames of this thread during transfers, grouped into transfers of adjacent blocks.
  class Batch {
   public:
    explicit Batch(const BlockCache& cache) : block_size_(cache.block_size_), run_max_(cache.run_max_) {}
    Batch(const Batch&) = delete;
    // Whether there is space for one more block. A block that does not follow the last one takes a
    // new transfer.
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
  std::uint32_t& Head(Shard& shard, std::uint64_t block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex) {
    const std::uint64_t number = block / kGroup / num_shards_ * kGroup + block % kGroup;  // index within the shard's blocks
    return shard.heads[number * 0x9e3779b97f4a7c15u >> 32 & (shard.heads.size() - 1)];
  }
  std::uint32_t Find(Shard& shard, std::uint64_t block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex) {
    std::uint32_t frame = Head(shard, block);
    while (frame != kNone && frames_[frame].block != block) frame = frames_[frame].next;
    return frame;
  }
  void Link(Shard& shard, std::uint32_t frame, std::uint64_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex) {
    HAKO_DCHECK(&shard == &ShardOf(block) && frame >= shard.first && frame < shard.end && Find(shard, block) == kNone);  // invariant 1
    std::uint32_t& head = Head(shard, block);
    frames_[frame] = {.block = block, .next = head};
    head = frame;
  }
  void SetDirty(Shard& shard, std::uint32_t frame, bool dirty) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex) {
    const std::uint32_t number = frame - shard.first;
    const std::uint64_t bit = std::uint64_t{1} << number % 64;
    frames_[frame].dirty = dirty;
    shard.dirty[number / 64] = (shard.dirty[number / 64] & ~bit) | (dirty ? bit : 0);
  }
  void Unlink(Shard& shard, std::uint32_t frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex) {
    if (frames_[frame].dirty) SetDirty(shard, frame, false);
    std::uint32_t* at = &Head(shard, frames_[frame].block);
    while (*at != frame) at = &frames_[*at].next;
    *at = frames_[frame].next;
    frames_[frame] = {};
  }
  void GiveBack(Shard& shard, std::uint32_t frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex) {
    Unlink(shard, frame);
    frames_[frame].next = std::exchange(shard.free, frame);
  }

  template <class F>
  Status ForEachPart(std::uint64_t offset, const std::byte* bytes, std::size_t size, F&& access);
  template <bool kWrites>
  Status Access(std::uint64_t offset, std::byte* bytes, std::size_t size);
  template <bool kWrites>
  Status AccessLong(std::uint64_t offset, std::byte* bytes, std::size_t size);
  bool TakeFrames(std::span<std::uint32_t> frames, std::uint64_t first, std::uint64_t which, std::uint32_t* dirty, Shard** full);
  std::uint32_t TakeFrame(Shard& shard, std::uint32_t* dirty) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  Status ReadRuns(std::uint64_t first, std::span<const std::uint32_t> frames, std::uint64_t wanted);
  Status ReadTogether(std::span<const ReadRequest> reads);
  void Claim(const ReadRequest& read, Batch* batch);
  std::uint32_t FindIdle(Shard& shard, std::uint64_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  template <class F>
  std::vector<std::uint64_t> DirtyBlocks(F&& is_wanted) const;
  template <class F>
  void MakeIdle(std::span<const std::uint64_t> blocks, F&& visit);
  Status WriteBack(Shard& shard, std::uint32_t victim);
  void ClaimDirty(std::uint64_t first, Batch* batch);
  Status WriteBatch(Batch* batch);
  void WakeWriter();
  void WriteBehind();
  Status WriteIdleBlocks();
  Status ReadBeside(std::uint64_t offset, std::byte* bytes, std::size_t size);
  Status FlushBlocks(std::span<const std::uint64_t> blocks);
  void ReleaseClean(std::uint64_t offset, std::size_t size);
  void Forget(std::uint64_t first, std::uint64_t end);

  Device& device_;
  const std::size_t block_size_;
  const bool keeps_;
  const std::size_t num_frames_, num_shards_, request_max_, run_max_, behind_, memory_alignment_;
  const AlignedBuffer memory_;
  const std::unique_ptr<Frame[], FreeFrames> frames_;
  std::atomic<std::size_t> num_used_{0};  // frames that were ever used
  std::unique_ptr<Shard[]> shards_;
  BlockRanges fresh_;
  sync::StickyStatus failure_;              // set when a dirty block could not be written
  std::atomic<std::size_t> dirtied_{0};     // frames dirtied since the writer last checked
  std::atomic<bool> writer_is_up_{false};   // woken, at work, or stopped; the thread that sets it may use writer_
  sync::BackgroundThread::Pointer writer_;  // stops before the other members are destroyed
};

}  // namespace hako

#include "hako/file/block_cache-inl.h"
