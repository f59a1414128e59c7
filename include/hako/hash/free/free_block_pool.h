// The free space of a record store. Small blocks are listed by size class, and in the steady state
// they need no locks or allocations. All other space is in runs of bytes, which are joined and
// split as needed.
//
// Small blocks follow the magazine layer of Bonwick and Adams ("Magazines and Vmem", USENIX 2001):
// each thread has up to two magazines of free blocks a size class and works on them alone;
// magazines travel through a shared pool. Magazines are bounded by bytes. A block is a handle and
// nothing is stored in the block itself, so the pool serves memory, mapped files and other files
// alike.
//
// Larger blocks, and chunks from which threads carve small blocks, come from runs of free bytes
// (hash/free/free_regions.h). Where all bytes of a region are free, its small blocks become a run again.
//
// The blocks of a magazine are listed in their regions only when a run is needed and none is free.
// Most magazines return to a thread before that, so freeing a small block usually does not access
// its region.
//
// Invariants
//   1. Every byte of the space is in a block or chunk in use, or in a thread's magazines, or free
//      in the pool: in a magazine or in a run.
//   2. Each block of a magazine in magazines_ is listed in its region, unless it crosses the end of
//      a region. Blocks of magazines in uncounted_ are not listed.
//   3. A block is stamped as free before it is joined into a run. So if a scan finds its old head
//      inside another block, it takes the head for free space.
//
// Thread-safe, if each thread has its own Cache. Flush, Forget and ForEach require that the threads
// whose caches they access are kept out.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/format/size_class.h"
#include "hako/hash/free/chunk.h"
#include "hako/hash/free/free_regions.h"
#include "hako/hash/free/magazines.h"
#include "hako/hash/free/pinned_state.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

class FreeBlockPool {
 public:
  // Three lists a size class, numbered kFree, kUnstamped and kWaiting + class: free blocks; free
  // blocks that a scan of the file would take for blocks in use; and blocks that will be free.
  static constexpr unsigned kFree = 0, kUnstamped = format::kSizeClasses, kWaiting = 2 * format::kSizeClasses;
  static constexpr unsigned kLists = 3 * format::kSizeClasses;
  static constexpr std::uint32_t kRest = 16;  // for small blocks; see Pop
  static constexpr std::uint32_t kMagazineSize = Magazine::kSize;
  static constexpr std::uint64_t kSmallMax = 4096;  // bytes; a larger free block is a run
  static constexpr std::uint64_t kRegion = FreeRegions::kRegion;

  // The magazines of a thread: for each list one to pop from and one to push to (0 = none).
  struct Cache {
    std::array<std::uint32_t, kLists> full{};
    std::array<std::uint32_t, kLists> given{};
  };
  using Extents = FreeRegions::Extents;

  // For a space whose handles are offsets in units of 1 << shift bytes.
  static StatusOr<std::unique_ptr<FreeBlockPool>> Create(unsigned shift) { return Create(shift, Extents{}); }
  static StatusOr<std::unique_ptr<FreeBlockPool>> Create(unsigned shift, const Extents& extents) {
    HAKO_ASSIGN_OR_RETURN(Magazines magazines, Magazines::Create());
    HAKO_ASSIGN_OR_RETURN(FreeRegions regions, FreeRegions::Create(std::uint64_t{1} << (32 + shift), extents));
    return std::unique_ptr<FreeBlockPool>(new FreeBlockPool(std::move(magazines), std::move(regions), shift));
  }

  // For a space with a limit: sets the most bytes of free blocks in a magazine, and joins magazines
  // that are not full, because such a space flushes them often. REQUIRES: nothing was freed yet
  void SetMagazineBytes(std::uint64_t bytes) {
    HAKO_DCHECK(free_bytes() == 0);
    magazine_bytes_ = bytes;
    joins_ = true;
  }
  // Returns the free bytes of the regions of a range, except those not counted yet.
  std::uint64_t CountedIn(Run range) const {
    sync::MutexLock lock(mutex_);
    return regions_.FreeIn(range);
  }
  // Visits each region of a range: visit(its begin, all its free bytes, except blocks across its end).
  template <class F>
  void ForEachRegion(Run range, F&& visit) {
    sync::MutexLock lock(mutex_);
    CountAll();
    for (std::uint64_t at = range.begin; at < range.end; at = FreeRegions::EndOf(at)) visit(at, regions_.FreeIn({at, at + 1}));
  }
  // Drops the handles of blocks that have become parts of runs, if magazines are joined.
  void DropOutdated();
  // Memory for magazines.
  std::uint64_t magazine_memory() const {
    sync::MutexLock lock(mutex_);
    return store_.bytes();
  }

  HAKO_INLINE bool IsSmall(unsigned size_class) const { return size_class <= last_small_; }

  // ---- blocks in lists: small blocks; in kUnstamped and kWaiting, blocks of any size ----

  // Takes a block from the list; 0 if there is none. Blocks that this thread has returned are
  // reused only once there are `rest` of them. If `rest` were 1, each update would write to the
  // block that the previous update has just freed, and wait for its handle.
  template <std::uint32_t rest = 1>
  HAKO_INLINE std::uint32_t Pop(Cache& cache, unsigned list) {
    const std::uint32_t full = cache.full[list];
    if ((full == 0 || At(full).count == 0) && !FindMore(cache, list, rest)) return 0;
    Magazine& magazine = At(cache.full[list]);
    return magazine.handles[--magazine.count];
  }

  // Returns a block to the list. If there is no memory for the list, the space of the block is
  // lost, but no data.
  HAKO_INLINE void Push(Cache& cache, unsigned list, std::uint32_t handle) {
    std::uint32_t& given = cache.given[list];
    if (given == 0 || At(given).count == At(given).limit) {
      if (!MakeRoom(cache, list)) return;
    }
    Magazine& magazine = At(given);
    magazine.handles[magazine.count++] = handle;
  }

  // ---- runs ----

  // Frees bytes, in whole units. Returns the run that they are then part of.
  Run FreeRun(Run run) {
    sync::MutexLock lock(mutex_);
    return regions_.Add(run);
  }
  // Whether FreeRun has memory for a run. A space checks this before it grows, because a run that
  // FreeRun cannot store is lost.
  bool HasRoomForRun() {
    sync::MutexLock lock(mutex_);
    return regions_.HasRoomForRun();
  }
  // Frees bytes between blocks in use: as a run or, if they are few, as small blocks, after
  // visit(handle, bytes) for each of these.
  struct Ignore {
    void operator()(std::uint32_t, std::uint64_t) const {}
  };
  template <class F = Ignore>
  void FreeGap(Cache& cache, Run run, F&& visit = {});
  // Frees a block of any size. If it was not small, returns the run that it is then part of.
  HAKO_INLINE Run FreeBlock(Cache& cache, unsigned size_class, std::uint32_t handle) {
    if (IsSmall(size_class)) [[likely]] {
      Push(cache, size_class, handle);
      return {};
    }
    return FreeRun(BlockAt(size_class, handle));
  }

  // Takes a block of `bytes`, aligned to `alignment`, from the lowest run with room for it; an
  // empty run if there is none.
  Run TakeBlock(std::uint64_t bytes, std::uint64_t alignment = 1);

  // Takes a part of one region, of at least `bytes`, from which to carve small blocks. It has at
  // most `most` bytes, or twice `bytes` if that is more. Empty if there is none. REQUIRES: bytes <=
  // kRegion / 4
  ChunkRest TakeChunk(std::uint64_t bytes, std::uint64_t most = kRegion);

  // For a space that cannot grow: takes the smallest block in the pool whose size class is at least
  // this one, from the lists kFree or kUnstamped (`first`). Returns an empty run if there is none.
  Run TakeSmallBlock(unsigned first, unsigned size_class);

  // Takes exactly this run; false if it is not in the pool.
  bool TakeIfThere(Run run) {
    sync::MutexLock lock(mutex_);
    const Run found = regions_.At(run.begin);
    if (found.begin != run.begin || found.end != run.end) return false;
    regions_.Take(run);
    return true;
  }
  // Returns the run that contains the byte, or an empty run.
  Run RunAround(std::uint64_t place) const {
    sync::MutexLock lock(mutex_);
    return regions_.Around(place);
  }
  // Takes the range if all of it is free, in one run.
  bool TakePart(Run range);
  // Takes the runs for which wanted(Run) is true.
  template <class F>
  std::vector<Run> TakeRuns(F&& wanted) {
    sync::MutexLock lock(mutex_);
    CountAll();
    std::vector<Run> taken;
    regions_.ForEach([&](Run run) {
      if (wanted(run)) taken.push_back(run);
    });
    for (const Run run : taken) regions_.Take(run);
    return taken;
  }

  // Takes all free bytes of the ranges out of the pool, and calls visit(Run) for them.
  // is_inside(handle) tells whether a block lies in one of the ranges. Forget removes such blocks
  // from caches.
  template <class IsInside, class F>
  void TakeAll(const std::vector<Run>& ranges, IsInside&& is_inside, F&& visit);

  // From now on adds each block that leaves the pool to `handed_out`; nullptr ends that.
  void NoteHandedOut(HandleSet* handed_out) {
    sync::MutexLock lock(mutex_);
    handed_out_ = handed_out;
  }

  template <class F>
  void ForEachRun(F&& visit) const {
    sync::MutexLock lock(mutex_);
    regions_.ForEach(visit);
  }
  // Free bytes in the pool: in runs, and in the lists of kFree.
  std::uint64_t free_bytes() const {
    sync::MutexLock lock(mutex_);
    return regions_.free_bytes() + uncounted_bytes_;
  }

  // ---- whole lists ----

  // Moves a thread's magazines of the lists [first, end) to the pool. REQUIRES: the thread is kept
  // out (checked in CloseEpoch)
  void Flush(Cache& cache, unsigned first, unsigned end) {
    sync::MutexLock lock(mutex_);
    for (unsigned list = first; list < end; ++list) {
      for (std::uint32_t* m : {&cache.full[list], &cache.given[list]}) {
        if (*m != 0) Enter(list, std::exchange(*m, 0));
      }
    }
  }

  // Takes a whole list of kUnstamped or kWaiting, as a chain of magazines for Drain.
  std::uint32_t Take(unsigned list) {
    sync::MutexLock lock(mutex_);
    const std::uint32_t chain = std::exchange(magazines_[list], 0);
    UpdateHas(list);
    return chain;
  }
  using Chains = std::array<std::uint32_t, format::kSizeClasses>;
  Chains TakeWaiting() {
    Chains chains;
    for (unsigned c = 0; c < chains.size(); ++c) chains[c] = Take(kWaiting + c);
    return chains;
  }
  // Visits the blocks of the first `most` magazines of a chain and recycles the magazines. Returns
  // the rest of the chain. Other threads may use the pool meanwhile.
  template <class F>
  std::uint32_t Drain(std::uint32_t chain, F&& visit, unsigned most = ~0u) {
    for (; chain != 0 && most != 0; --most) {
      for (std::uint32_t i = 0; i < At(chain).count; ++i) visit(At(chain).handles[i]);
      const std::uint32_t next = At(chain).next;
      sync::MutexLock lock(mutex_);
      store_.Recycle(chain);
      chain = next;
    }
    return chain;
  }

  // Drops the blocks for which drop(handle, size class) is true, from the lists kFree and
  // kUnstamped of a thread's cache, or from kUnstamped of the pool. REQUIRES: the thread is kept
  // out (checked in BeginEvacuation)
  template <class F>
  void Forget(Cache& cache, F&& drop) {
    for (unsigned list = 0; list < kWaiting; ++list) {
      for (const std::uint32_t m : {cache.full[list], cache.given[list]}) {
        if (m != 0) ForgetIn(m, list, drop);
      }
    }
  }
  template <class F>
  void Forget(F&& drop) {
    sync::MutexLock lock(mutex_);
    for (unsigned list = kUnstamped; list < kWaiting; ++list) {
      for (std::uint32_t m = magazines_[list]; m != 0; m = At(m).next) ForgetIn(m, list, drop);
    }
  }

  // Visits the blocks of one list, in the pool or in a thread's cache, without taking them.
  // REQUIRES: the thread is kept out (checked in FreeBytes)
  template <class F>
  void ForEach(unsigned list, F&& visit) const {
    sync::MutexLock lock(mutex_);
    VisitList(list, visit);
  }
  template <class F>
  void ForEach(const Cache& cache, unsigned list, F&& visit) const {
    for (const std::uint32_t m : {cache.full[list], cache.given[list]}) {
      for (std::uint32_t i = 0; m != 0 && i < At(m).count; ++i) visit(At(m).handles[i]);
    }
  }

 private:
  static constexpr std::uint64_t kRunMin = 512;         // shorter runs are not used for chunks
  static constexpr std::uint32_t kUncountedMax = 8192;  // one thread may have to count them all
  static constexpr std::uint32_t kCountedAtOnce = 64;   // then other threads get the mutex
  FreeBlockPool(Magazines magazines, FreeRegions regions, unsigned shift)
      : shift_(shift),
        last_small_(format::SizeClassOf(kSmallMax >> shift)),
        all_(magazines.all()),
        store_(std::move(magazines)),
        regions_(std::move(regions)) {}

  Magazine& At(std::uint32_t number) const { return all_[number]; }
  std::uint64_t BytesOf(unsigned size_class) const { return format::UnitsOf(size_class) << shift_; }
  Run BlockAt(unsigned list, std::uint32_t handle) const {
    const std::uint64_t begin = std::uint64_t{handle} << shift_;
    return {begin, begin + BytesOf(list % format::kSizeClasses)};
  }
  bool IsCurrent(const Magazine& magazine, Run block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return regions_.IsCurrent(block, magazine.renewals);
  }

  // Returns the first run of at least `bytes`, after counting magazines if necessary; an empty run
  // if there is none.
  Run FindRun(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (;;) {
      const Run found = regions_.Find(bytes);
      if (found.bytes() != 0 || !CountSome()) return found;
    }
  }

  // Adds a thread's magazine to the pool.
  void Enter(unsigned list, std::uint32_t m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the first magazine of a chain of the list.
  std::uint32_t TakeFrom(unsigned list, std::uint32_t& chain) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint32_t m = chain;
    chain = At(m).next;
    UpdateHas(list);
    return m;
  }
  std::uint32_t TakeUncounted(unsigned list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint32_t m = TakeFrom(list, uncounted_[list]);
    --num_uncounted_;
    uncounted_bytes_ -= At(m).count * BytesOf(list);
    return m;
  }
  void UpdateHas(unsigned list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    has_[list].store(magazines_[list] != 0 || (list < kUnstamped && uncounted_[list] != 0), std::memory_order_relaxed);
  }
  // Copies the handles of current blocks to `to`, and returns their number.
  std::uint16_t KeepCurrent(unsigned list, const Magazine& magazine, std::uint32_t* to) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto is_current = [&](std::uint32_t handle) ABSL_NO_THREAD_SAFETY_ANALYSIS { return IsCurrent(magazine, BlockAt(list, handle)); };
    return static_cast<std::uint16_t>(std::copy_if(magazine.handles, magazine.handles + magazine.count, to, is_current) - to);
  }
  // Adds a magazine of kFree to a chain. If magazines are joined and its blocks fit, adds them to
  // the first magazine of the chain.
  void Link(unsigned list, std::uint32_t m, std::uint32_t* chain) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountIn(unsigned list, const Magazine& magazine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets other threads get the mutex, then counts the blocks of some magazines; false if all are
  // counted.
  bool CountSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (CountSome()) {
    }
  }
  // Prepares a magazine of the pool for a thread: drops outdated handles.
  void Leave(unsigned list, Magazine& magazine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <class F>
  void VisitList(unsigned list, F&& visit) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const std::uint32_t chain : {magazines_[list], list < kUnstamped ? uncounted_[list] : 0}) {
      for (std::uint32_t m = chain; m != 0; m = At(m).next) {
        for (std::uint32_t i = 0; i < At(m).count; ++i) {
          if (list >= kUnstamped || IsCurrent(At(m), BlockAt(list, At(m).handles[i]))) visit(At(m).handles[i]);
        }
      }
    }
  }
  template <class F>
  void ForgetIn(std::uint32_t m, unsigned list, F& drop) {
    Magazine& magazine = At(m);
    const auto gone = [&](std::uint32_t handle) { return drop(handle, list % format::kSizeClasses); };
    magazine.count =
        static_cast<std::uint16_t>(std::remove_if(magazine.handles, magazine.handles + magazine.count, gone) - magazine.handles);
  }
  // REQUIRES: there is nothing to pop
  HAKO_INLINE bool FindMore(Cache& cache, unsigned list, std::uint32_t rest) {
    HAKO_DCHECK(cache.full[list] == 0 || At(cache.full[list]).count == 0);
    const std::uint32_t given = cache.given[list];
    if (given != 0 && At(given).count >= rest) {
      std::swap(cache.full[list], cache.given[list]);
      return true;
    }
    return has_[list].load(std::memory_order_relaxed) && Refill(cache, list);
  }
  bool Refill(Cache& cache, unsigned list);

  // REQUIRES: there is no room to push to
  bool MakeRoom(Cache& cache, unsigned list);
  std::uint16_t LimitOf(unsigned list) const {
    if (list >= kWaiting) return kMagazineSize;
    return static_cast<std::uint16_t>(std::clamp<std::uint64_t>(magazine_bytes_ / BytesOf(list % format::kSizeClasses), 1, kMagazineSize));
  }

  const unsigned shift_, last_small_;
  std::uint64_t magazine_bytes_ = 32 << 10;  // of free blocks in a magazine
  bool joins_ = false;
  Magazine* const all_;
  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks) ABSL_ACQUIRED_BEFORE(kFileLocks);
  // Whether the pool has magazines of the list; changed under mutex_.
  std::array<std::atomic<bool>, kLists> has_{};
  std::array<std::uint32_t, kLists> magazines_ ABSL_GUARDED_BY(mutex_){};  // magazines; those of kFree are counted
  std::array<std::uint32_t, kUnstamped> uncounted_ ABSL_GUARDED_BY(mutex_){};
  std::uint32_t num_uncounted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t uncounted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Magazines store_ ABSL_GUARDED_BY(mutex_);
  FreeRegions regions_ ABSL_GUARDED_BY(mutex_);
  HandleSet* handed_out_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while a state is pinned
};

}  // namespace hako::hash

#include "hako/hash/free/free_block_pool-inl.h"
