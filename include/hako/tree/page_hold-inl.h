// Definitions of tree/buffer_pool.h: pages that one update needs in memory at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
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
class BufferPool<FileT, Codec>::HeldPages {
 public:
  explicit HeldPages(BufferPool& cache) : cache_(cache), only_(cache.hold_mutex_) {
    static constexpr unsigned kFailedMax = 2;
    std::unique_lock lock(cache_.mutex_);
    for (unsigned asked = 0; cache_.unsaved_held_bytes_ != 0 && asked < kFailedMax; asked += cache_.is_saving_ ? 0 : 1)
      cache_.WaitForCheckpoint(lock);
  }
  HeldPages(const HeldPages&) = delete;
  ~HeldPages() { Release(false); }

  // Makes room for pages that will be loaded and added; replaces the room of the last call.
  void MakeRoomFor(std::size_t num_pages) {
    const std::uint64_t before = std::exchange(room_, num_pages * kRoom);
    cache_.held_bytes_.fetch_add(room_ - before, std::memory_order_relaxed);
  }
  // False if the page is not in memory.
  bool Add(std::uint32_t id) {
    std::lock_guard lock(cache_.mutex_);
    const std::uint8_t state = cache_.State(id);
    if (state != kCached && state != kProbationary && state != kCooling) return false;
    if (cache_.HasFlag(id, kHeld)) return true;
    ids_.push_back(id);
    if (state == kCooling) {
      cache_.SetState(id, kCached);
      sync::VersionLock(cache_.lines_[id].version).Unlock(false);
    }
    cache_.SetFlag(id, kHeld, true);
    cache_.held_bytes_.fetch_add(kRoom, std::memory_order_relaxed);
    return true;
  }

  // Stops holding the pages. `changed`: the update has changed them.
  void Release(bool changed) {
    static constexpr std::size_t kTogether = 256;  // per lock, as other threads wait for it
    MakeRoomFor(0);
    const std::uint64_t bytes = ids_.size() * kRoom;
    for (std::size_t i = 0; i < ids_.size(); i += kTogether) {
      std::lock_guard lock(cache_.mutex_);
      for (std::size_t j = i; j < std::min(ids_.size(), i + kTogether); ++j) cache_.SetFlag(ids_[j], kHeld, false);
    }
    ids_.clear();
    if (changed) {
      std::lock_guard lock(cache_.mutex_);
      cache_.unsaved_held_bytes_ += bytes;
    } else if (bytes != 0) {
      cache_.EvictToLimit(bytes);
    }
  }

 private:
  // Bytes of a page and its growth; a part of memory stays free.
  static constexpr std::uint64_t kRoom = kUsualPage + kUsualPage / 2;

  BufferPool& cache_;
  std::lock_guard<std::mutex> only_;
  std::vector<std::uint32_t> ids_;
  std::uint64_t room_ = 0;
};

// Lowers the limit by bytes that HeldPages has added to it, and evicts pages until the rest is
// within it, a few at a time, as other threads wait for the lock.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::EvictToLimit(std::uint64_t bytes) {
  std::size_t vain = 0;  // pages visited since the last eviction; ends when it reaches all
  for (bool goes_on = true; goes_on;) {
    const std::uint64_t step = std::min<std::uint64_t>(bytes, 16 * kUsualPage);
    bytes -= step;
    std::lock_guard lock(mutex_);
    held_bytes_.fetch_sub(step, std::memory_order_relaxed);
    unsigned evicted = 0;
    while (evicted < kCooledAtOnce && IsOverLimit() && EvictOne()) ++evicted;
    vain = evicted != 0 ? 0 : vain + kMovesMax * kCooledAtOnce;
    goes_on = bytes != 0 || (IsOverLimit() && vain < resident_.size());
  }
}

}  // namespace hako::tree
