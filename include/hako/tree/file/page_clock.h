// Chooses cached pages when memory is needed, and evicts them.
//
// The hand of the CLOCK takes a cached page, locks its line and appends it to the queue of cooling pages.
// Pages at the front of the queue are evicted. tree/file/page_states.h has the states of a page;
// its mutex also guards the lists here. tree/file/buffer_pool.h has the reasons for the design.
//
// Invariant: a page is not evicted if it differs from its image, or is an inner page, the root, kPinned or
// kHeld.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/format/page_format.h"
#include "hako/storage/arena.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/file/dirty_pages.h"
#include "hako/tree/file/expected_bounds.h"
#include "hako/tree/file/page_states.h"
#include "hako/tree/file/pool_memory.h"

namespace hako::tree {

class PageClock {
 public:
  // `table` is for PageStates; the lines are those of the ids up to `id_mask`.
  PageClock(storage::ReservedMemory table, std::uint32_t id_mask, format::PageLine* lines, PoolMemory& memory, const DirtyPages& dirty,
            const ExpectedBounds& bounds, std::uint32_t root)
      : states(std::move(table), id_mask), lines_(lines), memory_(memory), dirty_(dirty), bounds_(bounds), root_(root) {}
  PageClock(const PageClock&) = delete;
  PageClock& operator=(const PageClock&) = delete;

  PageStates states;

  void SetRoot(std::uint32_t id) { root_ = id; }

  // Lists the page for the hand. False if out of memory.
  bool List(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    if (!states.Has(id, PageStates::kListed)) states.SetFlag(id, PageStates::kListed, TryPushBack(resident_, id));
    return states.Has(id, PageStates::kListed);
  }
  // Reserves memory to list this many more pages.
  void Reserve(std::size_t num_pages) {
    sync::MutexLock lock(states.mutex);
    if (resident_.capacity() - resident_.size() < num_pages)
      resident_.reserve(std::max(2 * resident_.capacity(), resident_.size() + num_pages));
  }
  // The listed pages; none if out of memory.
  std::vector<std::uint32_t> Listed() const {
    sync::MutexLock lock(states.mutex);
    HAKO_TRY { return resident_; }
    HAKO_CATCH_NO_MEMORY()
    return {};
  }

  // Allocates memory for a page that is changed. Evicts other pages if needed, but never waits.
  std::uint32_t TakeForChange(unsigned units) {
    sync::MutexLock lock(states.mutex);
    for (unsigned gone = 0; gone < kCooledAtOnce && EvictOne(); ++gone) {
      if (const std::uint32_t unit = memory_.Take(units, memory_.Limit()); unit != 0) return unit;
    }
    return memory_.TakeBeyondLimit(units);  // until the next checkpoint
  }
  // Allocates memory for a page to load. Evicts other pages if needed. Returns 0 if there is no
  // memory or, unless `must`, none within the limit.
  std::uint32_t TakeForLoad(unsigned units, bool must) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    std::uint32_t unit = 0;
    for (bool has_evicted = false;; has_evicted = true) {
      const std::uint64_t limit = memory_.Limit();
      if (memory_.used_bytes() + units * format::kPageUnit <= limit / 8 * 7) unit = memory_.Take(units, limit);
      if (unit != 0) return unit;
      // If few pages can be evicted, stop after one eviction, because otherwise each load would
      // evict many pages.
      if (has_evicted && dirty_.staying_bytes() > static_cast<std::int64_t>(limit / 2)) break;
      if (!EvictOne()) break;
    }
    return must ? memory_.TakeBeyondLimit(units) : 0;  // until the next checkpoint has ended
  }

  // Evicts pages beyond the limit, but only a few, because other threads wait for the lock. Returns
  // true if more should be evicted.
  bool EvictSome() {
    sync::MutexLock lock(states.mutex);
    for (unsigned evicted = 0; memory_.IsOverLimit() && EvictOne();) {
      if (++evicted == kEvictedAtOnce) return true;
    }
    return false;
  }
  // Lowers the limit by bytes that HeldPages has added to it, and evicts pages until the others are
  // within the limit. Evicts a few at a time, because other threads wait for the lock.
  void EvictToLimit(std::uint64_t bytes) {
    static constexpr std::uint64_t kStep = 128 << 10;
    std::size_t vain = 0;  // pages visited since the last eviction; the loop ends when all were visited
    for (bool goes_on = true; goes_on;) {
      const std::uint64_t step = std::min(bytes, kStep);
      bytes -= step;
      sync::MutexLock lock(states.mutex);
      memory_.DropHeld(step);
      unsigned evicted = 0;
      while (evicted < kCooledAtOnce && memory_.IsOverLimit() && EvictOne()) ++evicted;
      vain = evicted != 0 ? 0 : vain + kMovesMax * kCooledAtOnce;
      goes_on = bytes != 0 || (memory_.IsOverLimit() && vain < resident_.size());
    }
  }
  // Call when a scan has passed a page that a scan has loaded. Evicts such pages, except the last
  // `most`.
  void EvictBehindScan(std::uint32_t id, std::size_t most) {
    sync::MutexLock lock(states.mutex);
    behind_.push_back(id);
    for (; behind_.size() > most; behind_.pop_front()) {
      if (states.Of(behind_.front()) == PageStates::kProbationary && LockForEviction(behind_.front())) Evict(behind_.front());
    }
  }

 private:
  static constexpr std::size_t kCooledAtOnce = 16;
  // The most moves of the hand, over kCooledAtOnce pages each, to find one page to evict.
  static constexpr unsigned kMovesMax = 8;
  // Pages that a thread evicts before it releases the lock, for which other threads wait.
  static constexpr unsigned kEvictedAtOnce = 64;

  // Evicts a page. Returns false if a few moves of the hand have found none to evict: if most pages
  // are dirty, a longer search would cost more than the load. The next call continues where this
  // one ended.
  bool EvictOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    for (unsigned moves = 0; moves < kMovesMax; ++moves) {
      CoolSome();
      while (!cooling_.empty()) {
        const std::uint32_t id = cooling_.front();
        cooling_.pop_front();
        if (states.Of(id) != PageStates::kCooling) continue;
        Evict(id);
        return true;
      }
    }
    return false;
  }

  // Moves the hand on by up to kCooledAtOnce pages, while at most an eighth of all are cooling.
  void CoolSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    for (unsigned steps = 0; steps < kCooledAtOnce && cooling_.size() <= resident_.size() / 8 && !resident_.empty(); ++steps) {
      if (hand_ >= resident_.size()) hand_ = 0;
      const std::uint32_t id = resident_[hand_];
      const PageStates::State state = states.Of(id);
      if (state == PageStates::kFree || state == PageStates::kLong || state == PageStates::kEvicted) {
        states.SetFlag(id, PageStates::kListed, false);
        resident_[hand_] = resident_.back();
        resident_.pop_back();
        continue;
      }
      ++hand_;
      if (!states.IsInMemory(id) || !LockForEviction(id)) continue;
      states.Set(id, PageStates::kCooling);
      HAKO_TRY { state == PageStates::kProbationary ? cooling_.push_front(id) : cooling_.push_back(id); }
      HAKO_CATCH_NO_MEMORY(states.Set(id, state); sync::VersionLock(lines_[id].version).Unlock(false); return;)
    }
  }

  bool MayGo(std::uint32_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    const format::PageShape shape = std::atomic_ref(lines_[id].shape).load(std::memory_order_relaxed);
    return shape.level() == 0 && (shape.kind & format::PageShape::kMark) == 0 && !states.Has(id, PageStates::kPinned | PageStates::kHeld) &&
           id != root_;
  }
  // Locks a cached page if it may be evicted.
  bool LockForEviction(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    sync::VersionLock line(lines_[id].version);
    if (!MayGo(id) || !line.TryLock()) return false;
    if (MayGo(id)) return true;
    line.Unlock(false);
    return false;
  }
  // REQUIRES: its line is locked, and stays so
  void Evict(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states.mutex) {
    format::PageLine& line = lines_[id];
    sync::VersionLock(line.version).AssertLocked();
    HAKO_DCHECK(MayGo(id));
    memory_.GiveBack(line.unit, line.shape.units);
    bounds_.StoreChecked(id);
    states.Set(id, PageStates::kEvicted);
  }

  format::PageLine* const lines_;
  PoolMemory& memory_;
  const DirtyPages& dirty_;
  const ExpectedBounds& bounds_;
  std::uint32_t root_;  // never evicted
  // Ids of cached pages, and of some that no longer are.
  std::vector<std::uint32_t> resident_ ABSL_GUARDED_BY(states.mutex);
  std::size_t hand_ ABSL_GUARDED_BY(states.mutex) = 0;
  // Ids of pages in the order in which they began to cool; some are no longer cooling.
  std::deque<std::uint32_t> cooling_ ABSL_GUARDED_BY(states.mutex);
  // Ids of the pages that scans passed last; some are no longer cached.
  std::deque<std::uint32_t> behind_ ABSL_GUARDED_BY(states.mutex);
};

}  // namespace hako::tree
