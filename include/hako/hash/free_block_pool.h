// The free space of a record store: small blocks by size class, without locks or allocations in the
// steady state, and everything else as runs of bytes that are joined and split as needed.
//
// Small blocks follow the magazine layer of Bonwick and Adams ("Magazines and Vmem", USENIX 2001):
// each thread has up to two magazines of free blocks a size class and works on them alone;
// magazines travel through a shared pool. Magazines are bounded by bytes. A block is a handle and
// nothing is stored in the block itself, so the pool serves memory, mapped files and other files
// alike.
//
// Runs (hash/free_runs.h) hold larger blocks, and chunks from which threads carve small blocks. The
// space is divided into regions of 64 KiB. A region counts its free bytes in the pool. When all of
// them are free, the region is renewed: its small blocks become a run again. Their handles are not
// removed from the magazines; they are outdated by the region's renewal number, and dropped when a
// thread takes the magazine.
//
// The blocks of a magazine are counted only once a run is wanted and there is none. Most magazines
// are handed to a thread again before that, so freeing a small block usually does not access its
// region.
//
// Invariants
//   1. Every byte of the space is in a block or chunk in use, or in a thread's magazines, or free
//      in the pool: in a magazine or in a run. Bytes free in the pool are counted once by their
//      region, unless their magazine is uncounted or their block crosses the end of a region.
//   2. A block of kFree in the pool is valid only if its region was not renewed since its magazine
//      arrived.
//   3. A small block does not cross the end of a region. A block that an older version of hako
//      placed so is never joined.
//   4. A block is stamped as free before it is joined, so a scan that finds its old head inside
//      another block takes it for free space.
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

#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/format/size_class.h"
#include "hako/hash/chunk.h"
#include "hako/hash/free_runs.h"
#include "hako/hash/pinned_state.h"
#include "hako/storage/arena.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

class FreeBlockPool {
 public:
  // Three lists a size class, numbered kFree, kUnstamped and kWaiting + class: free blocks; free
  // blocks that a scan of the file would take for blocks in use; and blocks that will be free.
  static constexpr unsigned kFree = 0, kUnstamped = format::kSizeClasses, kWaiting = 2 * format::kSizeClasses;
  static constexpr unsigned kLists = 3 * format::kSizeClasses;
  static constexpr std::uint32_t kRest = 16;          // for small blocks; see Pop
  static constexpr std::uint32_t kMagazineSize = 60;  // blocks
  static constexpr std::uint64_t kSmallMax = 4096;    // bytes; a larger free block is a run
  static constexpr std::uint64_t kRegion = 64 << 10;  // bytes
  static constexpr std::uint64_t kHeader = 64;        // bytes at an extent's start, never free

  // A thread's magazines, one to pop from and one to push to, by list; 0 = none.
  struct Cache {
    std::array<std::uint32_t, kLists> full{};
    std::array<std::uint32_t, kLists> given{};
  };
  // Whether an extent with a header begins at an offset.
  struct Extents {
    bool (*begins_at)(const void* context, std::uint64_t offset) = nullptr;
    const void* context = nullptr;
  };

  // For a space whose handles are offsets in units of 1 << shift bytes.
  static StatusOr<std::unique_ptr<FreeBlockPool>> Create(unsigned shift) { return Create(shift, Extents{}); }
  static StatusOr<std::unique_ptr<FreeBlockPool>> Create(unsigned shift, const Extents& extents) {
    HAKO_ASSIGN_OR_RETURN(storage::ReservedMemory memory, storage::ReservedMemory::ReserveUpTo(kReserveBytes, 64 << 20));
    HAKO_ASSIGN_OR_RETURN(storage::ReservedMemory regions,
                          storage::ReservedMemory::Reserve(((std::uint64_t{1} << (32 + shift)) / kRegion + 1) * sizeof(Region)));
    return std::unique_ptr<FreeBlockPool>(new FreeBlockPool(std::move(memory), std::move(regions), shift, extents));
  }

  HAKO_INLINE bool IsSmall(unsigned size_class) const { return size_class <= last_small_; }

  // ---- blocks in lists: small blocks; in kUnstamped and kWaiting, blocks of any size ----

  // Takes a block from the list; 0 if there is none. The thread's own returned blocks are reused
  // only once there are `rest` of them: with 1, each update would write to the block that the
  // previous one had just freed, and wait for its handle.
  template <std::uint32_t rest = 1>
  HAKO_INLINE std::uint32_t Pop(Cache& cache, unsigned list) {
    const std::uint32_t full = cache.full[list];
    if ((full == 0 || At(full).count == 0) && !FindMore(cache, list, rest)) return 0;
    Magazine& magazine = At(cache.full[list]);
    return magazine.handles[--magazine.count];
  }

  // Returns a block to the list. If there is no memory for the list, the block is forgotten: lost
  // space, not lost data.
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
    return AddRun(run);
  }
  // Frees bytes between blocks in use: as a run or, if they are few, as small blocks.
  void FreeGap(Cache& cache, Run run) {
    if (run.bytes() >= kRunMin) {
      FreeRun(run);
      return;
    }
    // The largest blocks that fit, none across the end of a region.
    while (run.bytes() >> shift_ != 0) {
      const std::uint64_t most = std::min(run.end, RegionEnd(run.begin)) - run.begin;
      unsigned size_class = std::min(format::SizeClassOf(most >> shift_), last_small_);
      while (BytesOf(size_class) > most) --size_class;
      Push(cache, size_class, static_cast<std::uint32_t>(run.begin >> shift_));
      run.begin += BytesOf(size_class);
    }
  }
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
  Run TakeBlock(std::uint64_t bytes, std::uint64_t alignment = 1) {
    const std::uint64_t unit = std::uint64_t{1} << shift_;
    alignment = std::max(alignment, unit);
    sync::MutexLock lock(mutex_);
    const Run found = FindRun(bytes + alignment - unit);
    if (found.bytes() == 0) return {};
    const std::uint64_t begin = (found.begin + alignment - 1) & ~(alignment - 1);
    if (handed_out_ != nullptr) handed_out_->Add(begin >> shift_);
    return TakeRun({begin, begin + bytes});
  }

  // Takes a part of one region, of at least `bytes`, from which to carve small blocks. Empty if
  // there is none. REQUIRES: bytes <= kRegion / 4
  ChunkRest TakeChunk(std::uint64_t bytes) {
    sync::MutexLock lock(mutex_);
    Run run = FindRun(std::max(2 * bytes, kRunMin));
    if (run.bytes() == 0) return {};
    if (RegionEnd(run.begin) - run.begin < bytes) run.begin = RegionEnd(run.begin);
    run.end = std::min(run.end, RegionEnd(run.begin));
    if (handed_out_ != nullptr) handed_out_->Add(run.begin >> shift_, run.end >> shift_);
    TakeRun(run);
    return {run.begin, run.end};
  }

  // For a space that cannot grow: takes the smallest block in the pool of at least a size class,
  // from the lists kFree or kUnstamped (`first`); an empty run if there is none.
  Run TakeSmallBlock(unsigned first, unsigned size_class) {
    sync::MutexLock lock(mutex_);
    CountAll();
    for (unsigned list = first + size_class; list <= first + last_small_; ++list) {
      for (std::uint32_t m; (m = magazines_[list]) != 0;) {
        Magazine& magazine = At(m);
        while (magazine.count != 0) {
          const Run block = BlockAt(list, magazine.handles[--magazine.count]);
          if (list < kUnstamped && !IsCurrent(magazine, block)) continue;
          if (list < kUnstamped && CanBeCounted(block)) Unlist(block);
          if (handed_out_ != nullptr) handed_out_->Add(block.begin >> shift_, block.end >> shift_);
          return block;
        }
        Recycle(TakeFrom(list, magazines_[list]));
      }
    }
    return {};
  }

  // Takes exactly this run; false if it is not in the pool.
  bool TakeIfThere(Run run) {
    sync::MutexLock lock(mutex_);
    const Run found = runs_.At(run.begin);
    if (found.begin != run.begin || found.end != run.end) return false;
    TakeRun(run);
    return true;
  }
  // Takes the runs for which wanted(Run) is true.
  template <class F>
  std::vector<Run> TakeRuns(F&& wanted) {
    sync::MutexLock lock(mutex_);
    CountAll();
    std::vector<Run> taken;
    runs_.ForEach([&](Run run) {
      if (wanted(run)) taken.push_back(run);
    });
    for (const Run run : taken) TakeRun(run);
    return taken;
  }

  // Takes all free bytes of the ranges out of the pool: visit(Run). is_inside(handle) tells
  // whether a block lies in one of them. Forget removes those in caches.
  template <class IsInside, class F>
  void TakeAll(const std::vector<Run>& ranges, IsInside&& is_inside, F&& visit) {
    sync::MutexLock lock(mutex_);
    CountAll();
    for (unsigned list = kFree; list < kUnstamped; ++list) {
      VisitList(list, [&](std::uint32_t handle) {
        if (!is_inside(handle)) return;
        const Run block = BlockAt(list, handle);
        mutex_.AssertHeld();
        if (CanBeCounted(block)) Count(block, -1);
        visit(block);
      });
    }
    for (const Run range : ranges) {
      runs_.Cut(range, [&](Run run) {
        mutex_.AssertHeld();
        Count(run, -1);
        visit(run);
      });
      for (std::uint64_t at = range.begin; at < range.end; at = RegionEnd(at)) RegionAt(at) = {++renewals_, 0, 0};
    }
  }

  // From now on adds the blocks that leave the pool to `handed_out`; nullptr ends that.
  void NoteHandedOut(HandleSet* handed_out) {
    sync::MutexLock lock(mutex_);
    handed_out_ = handed_out;
  }

  template <class F>
  void ForEachRun(F&& visit) const {
    sync::MutexLock lock(mutex_);
    runs_.ForEach(visit);
  }
  // Free bytes in the pool: in runs, and in the lists of kFree.
  std::uint64_t free_bytes() const {
    sync::MutexLock lock(mutex_);
    return free_bytes_ + uncounted_bytes_;
  }

  // ---- whole lists ----

  // Moves a thread's magazines of the lists [first, end) to the pool. REQUIRES: the thread is kept
  // out
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
  // Visits the blocks of the first `most` magazines of a chain and recycles these; returns the rest
  // of the chain. Other threads may use the pool meanwhile.
  template <class F>
  std::uint32_t Drain(std::uint32_t chain, F&& visit, unsigned most = ~0u) {
    for (; chain != 0 && most != 0; --most) {
      for (std::uint32_t i = 0; i < At(chain).count; ++i) visit(At(chain).handles[i]);
      const std::uint32_t next = At(chain).next;
      sync::MutexLock lock(mutex_);
      Recycle(chain);
      chain = next;
    }
    return chain;
  }

  // Drops the blocks for which drop(handle, size class) is true: those of kFree and kUnstamped in a
  // thread's cache, or those of kUnstamped in the pool. REQUIRES: the thread is kept out
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
  // REQUIRES: the thread is kept out
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
  static constexpr std::uint64_t kMagazineBytes = 32 << 10;  // of free blocks in a magazine
  static constexpr std::uint64_t kRunMin = 512;              // no chunk is taken from a shorter run
  static constexpr std::uint32_t kUncountedMax = 8192;       // a thread may have to count them all
  static constexpr std::uint32_t kCountedAtOnce = 64;        // then other threads get the mutex
  // Address space for 2 billion free blocks.
  static constexpr std::uint64_t kReserveBytes = std::uint64_t{8} << 30;

  struct Magazine {
    std::uint16_t count;
    std::uint16_t limit;
    std::uint32_t next;
    std::uint64_t renewals;  // of all regions, when it came to the pool
    std::uint32_t handles[kMagazineSize];
  };
  static_assert(sizeof(Magazine) == 256);
  struct Region {
    std::uint64_t renewal;  // its last renewal number
    std::uint32_t free;     // bytes free in the pool
    std::uint32_t listed;   // of these, bytes in magazines
  };

  FreeBlockPool(storage::ReservedMemory memory, storage::ReservedMemory regions, unsigned shift, const Extents& extents)
      : memory_(std::move(memory)),
        region_memory_(std::move(regions)),
        shift_(shift),
        last_small_(format::SizeClassOf(kSmallMax >> shift)),
        extents_(extents) {}

  Magazine& At(std::uint32_t index) const { return reinterpret_cast<Magazine*>(memory_.base())[index]; }
  Region& RegionAt(std::uint64_t offset) const { return reinterpret_cast<Region*>(region_memory_.base())[offset / kRegion]; }
  static std::uint64_t RegionEnd(std::uint64_t offset) { return offset / kRegion * kRegion + kRegion; }
  std::uint64_t BytesOf(unsigned size_class) const { return format::UnitsOf(size_class) << shift_; }
  Run BlockAt(unsigned list, std::uint32_t handle) const {
    const std::uint64_t begin = std::uint64_t{handle} << shift_;
    return {begin, begin + BytesOf(list % format::kSizeClasses)};
  }
  static bool CanBeCounted(Run block) { return block.end <= RegionEnd(block.begin); }
  bool IsCurrent(const Magazine& magazine, Run block) const { return RegionAt(block.begin).renewal <= magazine.renewals; }

  void Count(Run run, int sign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    free_bytes_ += sign > 0 ? run.bytes() : 0 - run.bytes();
    for (std::uint64_t at = run.begin; at < run.end; at = RegionEnd(at)) {
      const auto bytes = static_cast<std::uint32_t>(std::min(run.end, RegionEnd(at)) - at);
      RegionAt(at).free += sign > 0 ? bytes : 0 - bytes;
    }
  }
  Run AddRun(Run run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Run joined = runs_.Add(run);
    Count(run, 1);
    for (std::uint64_t at = run.begin; at < run.end; at = RegionEnd(at)) {
      if (const Run renewed = RenewIfFree(at); renewed.bytes() != 0) joined = renewed;
    }
    return joined;
  }
  Run TakeRun(Run run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    runs_.Take(run);
    Count(run, -1);
    return run;
  }
  // Turns a region whose bytes are all free into a run.
  Run RenewIfFree(std::uint64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Region& region = RegionAt(offset);
    if (region.listed == 0 || region.free < kRegion - kHeader) return {};
    Run whole{RegionEnd(offset) - kRegion, RegionEnd(offset)};
    if (region.free != kRegion) {
      if (region.free != kRegion - kHeader || extents_.begins_at == nullptr || !extents_.begins_at(extents_.context, whole.begin))
        return {};
      whole.begin += kHeader;
    }
    region.renewal = ++renewals_;
    region.listed = 0;
    runs_.Take(whole);
    return runs_.Add(whole);
  }
  // The first run of at least `bytes`, after counting magazines if need be; an empty one if there
  // is none.
  Run FindRun(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (;;) {
      const Run found = runs_.Find(bytes);
      if (found.bytes() != 0 || !CountSome()) return found;
    }
  }

  // Adds a thread's magazine to the pool.
  void Enter(unsigned list, std::uint32_t m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Magazine& magazine = At(m);
    magazine.renewals = renewals_;
    const bool counts_later = list < kUnstamped && num_uncounted_ < kUncountedMax;
    if (counts_later) {
      ++num_uncounted_;
      uncounted_bytes_ += magazine.count * BytesOf(list);
    } else if (list < kUnstamped) {
      CountIn(list, magazine);
    }
    std::uint32_t& chain = counts_later ? uncounted_[list] : magazines_[list];
    magazine.next = chain;
    chain = m;
    UpdateHas(list);
  }
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
  void CountIn(unsigned list, const Magazine& magazine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto bytes = static_cast<std::uint32_t>(BytesOf(list));
    for (std::uint32_t i = 0; i < magazine.count; ++i) {
      const std::uint64_t begin = std::uint64_t{magazine.handles[i]} << shift_;
      if (begin % kRegion + bytes > kRegion) continue;
      Region& region = RegionAt(begin);
      region.free += bytes;
      region.listed += bytes;
      free_bytes_ += bytes;
      if (region.free >= kRegion - kHeader) [[unlikely]]
        RenewIfFree(begin);
    }
  }
  // Lets other threads get the mutex, then counts the blocks of some magazines; false if all are
  // counted.
  bool CountSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (num_uncounted_ == 0) return false;
    { sync::MutexUnlock unlocked(mutex_); }
    std::uint32_t left = kCountedAtOnce;
    for (unsigned list = kFree; list < kUnstamped && left != 0; ++list) {
      for (; uncounted_[list] != 0 && left != 0; --left) {
        const std::uint32_t m = TakeUncounted(list);
        CountIn(list, At(m));
        At(m).next = std::exchange(magazines_[list], m);
        UpdateHas(list);
      }
    }
    return true;
  }
  void CountAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (CountSome()) {
    }
  }
  // Prepares a magazine of the pool for a thread: drops outdated handles.
  void Leave(unsigned list, Magazine& magazine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::uint16_t kept = 0;
    for (std::uint32_t i = 0; i < magazine.count; ++i) {
      const Run block = BlockAt(list, magazine.handles[i]);
      if (!IsCurrent(magazine, block)) continue;
      magazine.handles[kept++] = magazine.handles[i];
      if (CanBeCounted(block)) Unlist(block);
    }
    magazine.count = kept;
  }
  // A block in a magazine of the pool is no longer free.
  void Unlist(Run block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Count(block, -1);
    RegionAt(block.begin).listed -= static_cast<std::uint32_t>(block.bytes());
  }

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
  void Recycle(std::uint32_t m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    At(m).count = 0;
    At(m).next = unused_;
    unused_ = m;
  }

  // REQUIRES: there is nothing to pop
  HAKO_INLINE bool FindMore(Cache& cache, unsigned list, std::uint32_t rest) {
    const std::uint32_t given = cache.given[list];
    if (given != 0 && At(given).count >= rest) {
      std::swap(cache.full[list], cache.given[list]);
      return true;
    }
    return has_[list].load(std::memory_order_relaxed) && Refill(cache, list);
  }
  [[gnu::noinline]] bool Refill(Cache& cache, unsigned list) {
    sync::MutexLock lock(mutex_);
    for (;;) {
      const bool is_uncounted = list < kUnstamped && uncounted_[list] != 0;
      if (!is_uncounted && magazines_[list] == 0) return false;
      const std::uint32_t next = is_uncounted ? TakeUncounted(list) : TakeFrom(list, magazines_[list]);
      if (list < kUnstamped && !is_uncounted) Leave(list, At(next));
      for (std::uint32_t i = 0; handed_out_ != nullptr && i < At(next).count; ++i) handed_out_->Add(At(next).handles[i]);
      if (At(next).count == 0) {
        Recycle(next);
        continue;
      }
      std::uint32_t& full = cache.full[list];
      if (full != 0) Recycle(full);
      full = next;
      return true;
    }
  }

  // REQUIRES: there is no room to push to
  [[gnu::noinline]] bool MakeRoom(Cache& cache, unsigned list) {
    std::uint32_t& full = cache.full[list];
    std::uint32_t& given = cache.given[list];
    if (full == 0 || At(full).count == 0) std::swap(full, given);
    if (given != 0 && At(given).count == 0) return true;
    sync::MutexLock lock(mutex_);
    if (unused_ == 0 && (next_ + 1) * sizeof(Magazine) > memory_.size()) return false;
    if (given != 0) Enter(list, given);
    if (unused_ != 0) {
      given = unused_;
      unused_ = At(given).next;
    } else {
      given = static_cast<std::uint32_t>(next_++);
    }
    At(given).count = 0;
    At(given).limit = LimitOf(list);
    return true;
  }
  std::uint16_t LimitOf(unsigned list) const {
    if (list >= kWaiting) return kMagazineSize;
    return static_cast<std::uint16_t>(std::clamp<std::uint64_t>(kMagazineBytes / BytesOf(list % format::kSizeClasses), 1, kMagazineSize));
  }

  storage::ReservedMemory memory_;
  storage::ReservedMemory region_memory_;
  const unsigned shift_, last_small_;
  const Extents extents_;
  mutable sync::Mutex mutex_;
  // Whether the pool has magazines of the list; changed under mutex_.
  std::array<std::atomic<bool>, kLists> has_{};
  std::array<std::uint32_t, kLists> magazines_ ABSL_GUARDED_BY(mutex_){};  // magazines; those of kFree are counted
  std::array<std::uint32_t, kUnstamped> uncounted_ ABSL_GUARDED_BY(mutex_){};
  std::uint32_t num_uncounted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t uncounted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint32_t unused_ ABSL_GUARDED_BY(mutex_) = 0;  // empty magazines
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;    // the first magazine never used yet
  FreeRuns runs_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t renewals_ ABSL_GUARDED_BY(mutex_) = 0;  // of all regions
  std::uint64_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  HandleSet* handed_out_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while a state is pinned
};

}  // namespace hako::hash
