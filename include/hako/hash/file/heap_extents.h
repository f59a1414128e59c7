// The heap extents of a hash file. An extent is allocated when no free block is large enough, and
// returned to the file, for any use, once it is wholly free.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/free/chunk.h"
#include "hako/hash/free/free_block_pool.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

template <File FileT>
class HeapExtents {
 public:
  static constexpr std::uint64_t kLarge = 1 << 20;  // bytes; the extent of a block of at least this size is returned once it is free

  HeapExtents(HeapFile<FileT>& heap, FreeBlockPool& pool, bool is_direct) : heap_(heap), pool_(pool), is_direct_(is_direct) {}
  HeapExtents(const HeapExtents&) = delete;

  // Allocates an extent with room for a block of `bytes`, and adds its space to the pool. `most` is
  // the number of bytes that suffices at any alignment.
  Status Grow(std::uint64_t bytes, std::uint64_t most) {
    if (bytes > FreeBlockPool::kSmallMax) ReturnAllFree();  // adjacent extents may together be large enough
    if (!pool_.HasRoomForRun()) return NoMemoryError();
    const std::uint64_t size = SizeFor(bytes, most);
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, heap_.extents().Allocate(size));
    const sync::SharedLock lock(growth_mutex_);
    HAKO_RETURN_IF_ERROR(heap_.extents().BeginHeapExtent({offset, size}));
    pool_.FreeRun({offset + sizeof(format::HeapExtentHeader), offset + size});
    return absl::OkStatus();
  }
  // Runs body() at a moment when the space of every extent that has a header is in the pool.
  template <class F>
  void RunWithoutGrowth(F&& body) {
    const sync::MutexLock lock(growth_mutex_);
    body();
  }

  // Returns the extents that are wholly free. Does nothing while there is a Pin.
  void ReturnAllFree() {
    sync::MutexLock lock(mutex_);
    if (pins_ != 0) return;
    for (const Run run : pool_.TakeRuns([this](Run each) { return IsWhole(each); })) Return(run);
  }
  // Returns the extent of this free run, if the run covers the whole extent.
  void ReturnIfFree(Run run) {
    if (!IsWhole(run)) return;
    sync::MutexLock lock(mutex_);
    if (pins_ == 0 && pool_.TakeIfThere(run)) Return(run);
  }
  // While a pin exists no extent is returned, so a list of extents stays valid.
  class Pin {
   public:
    explicit Pin(HeapExtents& extents) : extents_(extents) { Add(1); }
    Pin(const Pin&) = delete;
    ~Pin() { Add(-1); }

   private:
    void Add(int n) {
      sync::MutexLock lock(extents_.mutex_);
      extents_.pins_ += n;
    }
    HeapExtents& extents_;
  };
  bool HasPins() const {
    sync::MutexLock lock(mutex_);
    return pins_ != 0;
  }

 private:
  static constexpr std::uint64_t kDirectLeast = 1 << 20;  // for direct I/O, once the file has this many bytes

  // Returns the size of a new extent. An extent for blocks that are not small has room for several,
  // so that little is left over, but only for a few as long as the file is small. A large block
  // gets a separate extent, which becomes free with the block.
  std::uint64_t SizeFor(std::uint64_t bytes, std::uint64_t most) const {
    const std::uint64_t used = heap_.extents().tail();
    const std::uint64_t blocks = bytes < kLarge ? std::clamp<std::uint64_t>(used / 16 / bytes, 1, 8) : 1;
    const std::uint64_t needed = most + (blocks - 1) * bytes + sizeof(format::HeapExtentHeader);
    // Small extents fill the region in which the first extents are (see FreeBlockPool).
    const std::uint64_t within = used % format::kExtentAlignment;
    const bool is_small = within != 0 && needed <= format::kExtentAlignment - within;
    const std::uint64_t unit = is_small ? format::kExtentUnit : format::kExtentAlignment;
    const std::uint64_t least = is_direct_ && within == 0 ? std::min(kDirectLeast, std::bit_floor(used)) : 0;
    return std::max(ChunkSize(bytes < kLarge ? used : 0, needed, unit), least);
  }
  // Whether the run is the whole record space of an extent.
  bool IsWhole(Run run) const {
    static constexpr std::uint64_t kHeader = sizeof(format::HeapExtentHeader);
    if (run.begin % format::kExtentUnit != kHeader || run.end % format::kExtentUnit != 0) return false;
    const StatusOr<std::uint64_t> bytes = heap_.extents().HeapExtentBytes(run.begin - kHeader);
    return bytes.ok() && *bytes == run.bytes() + kHeader;
  }
  void Return(Run run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint64_t offset = run.begin - sizeof(format::HeapExtentHeader);
    if (!heap_.AcceptsWrites()) return;
    if (Status status = heap_.extents().ForgetHeapExtent(offset); !status.ok()) return heap_.Poison(status);
    heap_.extents().Free({offset, run.end - offset});
  }

  HeapFile<FileT>& heap_;
  FreeBlockPool& pool_;
  const bool is_direct_;
  // Held while extents are returned.
  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kExtentLocks) ABSL_ACQUIRED_BEFORE(kIndexLocks);
  int pins_ ABSL_GUARDED_BY(mutex_) = 0;
  // Held shared from the write of a new extent's header until its space is in the pool; in between
  // the extent looks empty. A thread that writes ahead is not a writer, so excluding writers is not
  // enough to choose victims.
  sync::SharedMutex growth_mutex_ ABSL_ACQUIRED_AFTER(kExtentLocks) ABSL_ACQUIRED_BEFORE(kIndexLocks);
};

}  // namespace hako::hash
