// Definitions of tree/buffer_pool.h: pages that one update needs in memory at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "hako/tree/buffer_pool.h"

namespace hako::tree {

// Pages that are not evicted while the object lives: those of an update of more keys than the pool
// has room for.
//
// Their size is added to the memory limit meanwhile and, if they were changed, until the next
// checkpoint has written them. So no other thread has to wait for that checkpoint because of them.
// One update at a time holds pages. It begins when those of the previous update are written, or
// when checkpoints have failed. No function may be called while a page is locked, except Release
// and Add.
template <File FileT, PageCodec Codec>
class ABSL_SCOPED_LOCKABLE BufferPool<FileT, Codec>::HeldPages {
 public:
  explicit HeldPages(BufferPool& pool) ABSL_EXCLUSIVE_LOCK_FUNCTION(pool.hold_mutex_) : pool_(pool) {
    static constexpr unsigned kFailedMax = 2;
    pool_.hold_mutex_.Lock();
    const CheckpointProgress& progress = pool_.progress_;
    for (unsigned asked = 0; asked < kFailedMax; asked += progress.is_running() ? 0u : 1u) {
      const std::uint64_t seen = progress.num_saves();
      if (pool_.unsaved_held_bytes() == 0) break;
      pool_.progress_.WaitForSave(seen);
    }
  }
  HeldPages(const HeldPages&) = delete;
  ~HeldPages() ABSL_UNLOCK_FUNCTION() {
    Release(false);
    pool_.hold_mutex_.Unlock();
  }

  // Makes room for pages that will be loaded and added; replaces the room of the last call.
  void MakeRoomFor(std::size_t num_pages) {
    const std::uint64_t before = std::exchange(room_, num_pages * kRoom);
    pool_.held_bytes_.fetch_add(room_ - before, std::memory_order_relaxed);
  }
  // False if the page is not in memory.
  bool Add(std::uint32_t id) {
    PageStates& states = pool_.states_;
    sync::MutexLock lock(states.mutex);
    const bool is_cooling = states.Of(id) == PageStates::kCooling;
    if (!is_cooling && !states.IsInMemory(id)) return false;
    if (states.Has(id, PageStates::kHeld)) return true;
    ids_.push_back(id);
    if (is_cooling) {
      states.Set(id, PageStates::kCached);
      sync::VersionLock(pool_.lines_[id].version).Unlock(false);
    }
    states.SetFlag(id, PageStates::kHeld, true);
    pool_.held_bytes_.fetch_add(kRoom, std::memory_order_relaxed);
    return true;
  }

  // Stops holding the pages. `changed`: the update has changed them.
  void Release(bool changed) {
    static constexpr std::size_t kTogether = 256;  // per lock, as other threads wait for it
    MakeRoomFor(0);
    const std::uint64_t bytes = ids_.size() * kRoom;
    for (std::size_t i = 0; i < ids_.size(); i += kTogether) {
      sync::MutexLock lock(pool_.states_.mutex);
      for (std::size_t j = i; j < std::min(ids_.size(), i + kTogether); ++j) pool_.states_.SetFlag(ids_[j], PageStates::kHeld, false);
    }
    ids_.clear();
    if (changed)
      pool_.unsaved_held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    else if (bytes != 0)
      pool_.EvictToLimit(bytes);
  }

 private:
  // Bytes of a page and its growth; a part of memory stays free.
  static constexpr std::uint64_t kRoom = kUsualPage + kUsualPage / 2;

  BufferPool& pool_;
  std::vector<std::uint32_t> ids_;
  std::uint64_t room_ = 0;
};

}  // namespace hako::tree
