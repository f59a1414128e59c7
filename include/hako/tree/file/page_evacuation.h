// Moves the pages at the end of page memory to free memory before them, so that the end can be
// returned to the system.
//
// One thread at a time, beside readers and writers.
#pragma once

#include <atomic>
#include <cstdint>

#include "hako/format/page_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/file/page_clock.h"
#include "hako/tree/file/page_states.h"
#include "hako/tree/memory/page_arena.h"

namespace hako::tree {

class PageEvacuation {
 public:
  PageEvacuation(PageArena& arena, PageClock& clock) : arena_(arena), clock_(clock) {}

  // Shrinks page memory to this many bytes, as far as the pages can be moved. If there is no memory
  // for a list of the pages, returns only the free memory at the end.
  void ShrinkTo(std::uint64_t limit) {
    if (arena_.page_bytes() <= limit) return;
    const std::uint64_t end = limit - limit / 64;
    arena_.Retreat(end);
    for (const std::uint32_t id : clock_.Listed()) {
      if (IsBehind(arena_.lines()[id], end)) Move(id, end);
    }
    arena_.CutEnd();
  }

 private:
  // Whether a page ends beyond this size of page memory.
  static bool IsBehind(format::PageLine& line, std::uint64_t end) {
    const format::PageShape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
    const std::uint32_t unit = std::atomic_ref(line.unit).load(std::memory_order_relaxed);
    return std::uint64_t{unit} * format::kPageUnit + shape.size() > end;
  }
  char* At(std::uint32_t unit) const { return arena_.memory() + std::uint64_t{unit} * format::kPageUnit; }
  void Move(std::uint32_t id, std::uint64_t end) {
    format::PageLine& line = arena_.lines()[id];
    PageStates& states = clock_.states;
    sync::MutexLock lock(states.mutex);
    const bool is_cooling = states.Of(id) == PageStates::kCooling;
    if (!is_cooling && (!states.IsInMemory(id) || !sync::VersionLock(line.version).TryLock())) return;
    const std::uint32_t before = line.unit;
    const std::uint32_t unit = IsBehind(line, end) ? arena_.Allocate(line.shape.units, 0) : 0;
    if (unit != 0) {
      sync::StoreShared(At(unit), At(before), line.shape.size());
      std::atomic_ref(line.unit).store(unit, std::memory_order_relaxed);
      sync::VersionLock(line.version).Advance();  // LoadPage unlocks a cooling page as unchanged
      arena_.Free(before, line.shape.units);
    }
    if (!is_cooling) sync::VersionLock(line.version).Unlock(false);
  }

  PageArena& arena_;
  PageClock& clock_;
};

}  // namespace hako::tree
