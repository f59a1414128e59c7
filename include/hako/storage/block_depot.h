// Free blocks, by size class, without a lock and without an allocation in the steady state.
//
// The magazine layer of Bonwick and Adams ("Magazines and Vmem", USENIX 2001): each thread has up to two magazines of free blocks a class
// and works on them alone; full magazines travel through a shared depot. A block is a handle, nothing is stored in the block itself, so
// the depot serves memory, mapped files and files that are read and written alike. Magazines live in reserved memory and are recycled.
//
// Threads: Push and Pop with a Cache of one's own from any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/format/size_class.h"
#include "hako/storage/arena.h"

namespace hako::storage {

class BlockDepot {
 public:
  // Three lists a size class, of the numbers kFree, kUnstamped and kWaiting + class: what is free; what is free as well, but looks like a
  // block in use to who finds it in the file; and what will be free.
  static constexpr unsigned kFree = 0, kUnstamped = format::kSizeClasses, kWaiting = 2 * format::kSizeClasses;
  static constexpr unsigned kLists = 3 * format::kSizeClasses;
  static constexpr std::uint32_t kRest = 16;  // for small blocks; see Pop

  // A thread's magazines, one to pop from and one to push to; indices, 0 = none.
  struct Cache {
    std::array<std::uint32_t, kLists> full{};
    std::array<std::uint32_t, kLists> given{};
  };

  static StatusOr<std::unique_ptr<BlockDepot>> Create() {
    HAKO_ASSIGN_OR_RETURN(ReservedMemory memory, ReservedMemory::Reserve(kReserveBytes));
    return std::unique_ptr<BlockDepot>(new BlockDepot(std::move(memory)));
  }

  // A block of the list, or 0. What the thread itself gave back is taken only once there are `rest` of it: were that 1, an update
  // would write to the very block that the update before it gave back, and wait until it is known which that is.
  template <std::uint32_t rest = 1>
  HAKO_INLINE std::uint32_t Pop(Cache& cache, unsigned list) {
    const std::uint32_t full = cache.full[list];
    if ((full == 0 || At(full).count == 0) && !FindMore(cache, list, rest)) return 0;
    Magazine& magazine = At(cache.full[list]);
    return magazine.handles[--magazine.count];
  }

  // Gives a block back. If no memory is left for the list itself the block is forgotten: lost space, not lost data.
  HAKO_INLINE void Push(Cache& cache, unsigned list, std::uint32_t handle) {
    std::uint32_t& given = cache.given[list];
    if (given == 0 || At(given).count == kMagazineSize) {
      if (!MakeRoom(cache, list)) return;
    }
    Magazine& magazine = At(given);
    magazine.handles[magazine.count++] = handle;
  }

  // Moves a thread's magazines of the lists from `first` to before `end` to the depot. REQUIRES: the thread is kept out, as for the
  // functions below.
  void Flush(Cache& cache, unsigned first, unsigned end) {
    std::lock_guard lock(mutex_);
    for (unsigned list = first; list < end; ++list) {
      for (std::uint32_t* m : {&cache.full[list], &cache.given[list]}) {
        if (*m == 0) continue;
        At(*m).next = depot_[list].load(std::memory_order_relaxed);
        depot_[list].store(std::exchange(*m, 0), std::memory_order_relaxed);
      }
    }
  }

  // Takes a whole list of the depot: the first of a chain of magazines, to be given to Drain.
  std::uint32_t Take(unsigned list) {
    std::lock_guard lock(mutex_);
    return depot_[list].exchange(0, std::memory_order_relaxed);
  }
  using Chains = std::array<std::uint32_t, format::kSizeClasses>;
  Chains TakeWaiting() {
    Chains chains;
    for (unsigned c = 0; c < chains.size(); ++c) chains[c] = Take(kWaiting + c);
    return chains;
  }
  // Visits the blocks of a chain and recycles its magazines. Other threads may use the depot meanwhile.
  template <class F>
  void Drain(std::uint32_t chain, F&& visit) {
    while (chain != 0) {
      for (std::uint32_t i = 0; i < At(chain).count; ++i) visit(At(chain).handles[i]);
      const std::uint32_t next = At(chain).next;
      std::lock_guard lock(mutex_);
      Recycle(chain);
      chain = next;
    }
  }

  // Forgets the free blocks, unstamped ones too, for which drop(handle) is true: a thread's, and the depot's.
  template <class F>
  void Forget(Cache& cache, F&& drop) {
    for (unsigned list = 0; list < kWaiting; ++list) {
      for (const std::uint32_t m : {cache.full[list], cache.given[list]}) {
        if (m != 0) ForgetIn(m, drop);
      }
    }
  }
  template <class F>
  void Forget(F&& drop) {
    std::lock_guard lock(mutex_);
    for (unsigned list = 0; list < kWaiting; ++list) {
      for (std::uint32_t m = depot_[list].load(std::memory_order_relaxed); m != 0; m = At(m).next) ForgetIn(m, drop);
    }
  }

  // Visits the blocks of one list, the depot's and a thread's, without taking them.
  template <class F>
  void ForEach(unsigned list, F&& visit) const {
    std::lock_guard lock(mutex_);
    for (std::uint32_t m = depot_[list].load(std::memory_order_relaxed); m != 0; m = At(m).next) VisitOne(m, visit);
  }
  template <class F>
  void ForEach(const Cache& cache, unsigned list, F&& visit) const {
    for (const std::uint32_t m : {cache.full[list], cache.given[list]}) {
      if (m != 0) VisitOne(m, visit);
    }
  }

 private:
  static constexpr std::uint32_t kMagazineSize = 62;
  static constexpr std::uint64_t kReserveBytes = std::uint64_t{8} << 30;  // address space: two thousand million free blocks

  struct Magazine {
    std::uint32_t count;
    std::uint32_t next;
    std::uint32_t handles[kMagazineSize];
  };
  static_assert(sizeof(Magazine) == 256);

  explicit BlockDepot(ReservedMemory memory) : memory_(std::move(memory)) {}

  Magazine& At(std::uint32_t index) const { return reinterpret_cast<Magazine*>(memory_.base())[index]; }

  template <class F>
  void VisitOne(std::uint32_t m, F& visit) const {
    for (std::uint32_t i = 0; i < At(m).count; ++i) visit(At(m).handles[i]);
  }
  template <class F>
  void ForgetIn(std::uint32_t m, F& drop) {
    Magazine& magazine = At(m);
    magazine.count =
        static_cast<std::uint32_t>(std::remove_if(magazine.handles, magazine.handles + magazine.count, drop) - magazine.handles);
  }
  void Recycle(std::uint32_t m) {  // REQUIRES: mutex_ held
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
    return depot_[list].load(std::memory_order_relaxed) != 0 && Refill(cache, list);
  }
  [[gnu::noinline]] bool Refill(Cache& cache, unsigned list) {
    std::lock_guard lock(mutex_);
    for (;;) {
      const std::uint32_t next = depot_[list].load(std::memory_order_relaxed);
      if (next == 0) return false;
      depot_[list].store(At(next).next, std::memory_order_relaxed);
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
    std::lock_guard lock(mutex_);
    if (unused_ == 0 && (next_ + 1) * sizeof(Magazine) > memory_.size()) return false;
    if (given != 0) {
      At(given).next = depot_[list].load(std::memory_order_relaxed);
      depot_[list].store(given, std::memory_order_relaxed);
    }
    if (unused_ != 0) {
      given = unused_;
      unused_ = At(given).next;
    } else {
      given = static_cast<std::uint32_t>(next_++);
    }
    At(given).count = 0;
    return true;
  }

  ReservedMemory memory_;
  mutable std::mutex mutex_;
  std::array<std::atomic<std::uint32_t>, kLists> depot_{};  // full magazines, changed under mutex_
  std::uint32_t unused_ = 0;                                // empty magazines
  std::uint64_t next_ = 1;                                  // magazines never used yet
};

}  // namespace hako::storage
