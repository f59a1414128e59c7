// Pages that one update needs in memory at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hako/format/page_format.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/file/checkpoint_progress.h"
#include "hako/tree/file/page_clock.h"
#include "hako/tree/file/page_states.h"
#include "hako/tree/file/pool_memory.h"
#include "hako/tree/lock_order.h"

namespace hako::tree {

// The state that the updates that hold pages share. One update at a time holds pages.
struct PageHolds {
  PageClock& clock;
  PoolMemory& memory;
  CheckpointProgress& progress;
  format::PageLine* const lines;
  sync::Mutex mutex ABSL_ACQUIRED_BEFORE(kMaintenanceLocks){};
  // The bytes that finished updates still hold, until a checkpoint that begins after them has
  // ended.
  std::atomic<std::uint64_t> unsaved_bytes{0};
};

// Pages that are not evicted while the object lives: those of an update of more keys than the pool
// has room for.
//
// Their size is added to the memory limit as long as they are held and, if they were changed, until
// the next checkpoint has written them. So no other thread has to wait for that checkpoint because
// of them. One update at a time holds pages. It begins when the pages of the previous update are
// written, or when checkpoints have failed. While a page is locked, only Release and Add may be
// called.
class ABSL_SCOPED_LOCKABLE HeldPages {
 public:
  // Bytes of a typical page.
  static constexpr std::uint64_t kUsualPage = 8192;

  explicit HeldPages(PageHolds& holds) ABSL_EXCLUSIVE_LOCK_FUNCTION(holds.mutex) : holds_(holds) {
    static constexpr unsigned kFailedMax = 2;
    holds_.mutex.Lock();
    CheckpointProgress& progress = holds_.progress;
    for (unsigned asked = 0; asked < kFailedMax; asked += progress.is_running() ? 0u : 1u) {
      const std::uint64_t seen = progress.num_saves();
      if (holds_.unsaved_bytes.load(std::memory_order_relaxed) == 0) break;
      progress.WaitForSave(seen);
    }
  }
  HeldPages(const HeldPages&) = delete;
  ~HeldPages() ABSL_UNLOCK_FUNCTION() {
    Release(false);
    holds_.mutex.Unlock();
  }

  // Makes room for pages that will be loaded and added. Replaces the room of the last call.
  void MakeRoomFor(std::size_t num_pages) {
    const std::uint64_t before = std::exchange(room_, num_pages * kRoom);
    holds_.memory.AddHeld(room_ - before);
  }
  // Holds a page. Returns false if it is not in memory.
  bool Add(std::uint32_t id) {
    PageStates& states = holds_.clock.states;
    sync::MutexLock lock(states.mutex);
    const bool is_cooling = states.Of(id) == PageStates::kCooling;
    if (!is_cooling && !states.IsInMemory(id)) return false;
    if (states.Has(id, PageStates::kHeld)) return true;
    ids_.push_back(id);
    if (is_cooling) {
      states.Set(id, PageStates::kCached);
      sync::VersionLock(holds_.lines[id].version).Unlock(false);
    }
    states.SetFlag(id, PageStates::kHeld, true);
    holds_.memory.AddHeld(kRoom);
    return true;
  }

  // Stops holding the pages. `changed`: the update has changed them.
  void Release(bool changed) {
    static constexpr std::size_t kTogether = 256;  // pages per hold of the lock, for which other threads wait
    MakeRoomFor(0);
    const std::uint64_t bytes = ids_.size() * kRoom;
    PageStates& states = holds_.clock.states;
    for (std::size_t i = 0; i < ids_.size(); i += kTogether) {
      sync::MutexLock lock(states.mutex);
      for (std::size_t j = i; j < std::min(ids_.size(), i + kTogether); ++j) states.SetFlag(ids_[j], PageStates::kHeld, false);
    }
    ids_.clear();
    if (changed)
      holds_.unsaved_bytes.fetch_add(bytes, std::memory_order_relaxed);
    else if (bytes != 0)
      holds_.clock.EvictToLimit(bytes);
  }

 private:
  // Bytes reserved for a page, for its growth, and for the part of the memory that stays free.
  static constexpr std::uint64_t kRoom = kUsualPage + kUsualPage / 2;

  PageHolds& holds_;
  std::vector<std::uint32_t> ids_;
  std::uint64_t room_ = 0;
};

}  // namespace hako::tree
