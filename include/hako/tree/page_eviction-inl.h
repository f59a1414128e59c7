// Definitions of tree/buffer_pool.h: memory for pages, and the eviction of others.
#pragma once

#include "hako/tree/buffer_pool.h"

namespace hako::tree {

// Returns the bytes that pages may take: all memory minus the tables, their growth during an epoch
// and the unsaved long values, but at least a quarter of all memory; and more while a large update
// holds pages. Long values beyond UnsavedMax do not reduce it, because other threads would have to
// wait for that.
template <File FileT, PageCodec Codec>
std::uint64_t BufferPool<FileT, Codec>::PageLimit() const {
  const std::uint64_t all = limits_.memory_bytes;
  const std::uint64_t tables = TableBytes() + std::min(long_values_.unsaved_bytes(), UnsavedMax()) + all / 64;
  return std::max(all / 4, all - std::min(all, tables)) + held_bytes_.load(std::memory_order_relaxed);
}

// How long a thread that has changed a page pauses.
template <File FileT, PageCodec Codec>
std::chrono::microseconds BufferPool<FileT, Codec>::Pause() const {
  static constexpr std::int64_t kAtLimit = 4096, kHalvingsMax = 5, kDoublingsMax = 8, kDoublingMin = 4 << 20;
  const std::int64_t stays = dirty_.staying_bytes();
  // The limit is at least 3/16 of all memory.
  if (stays < static_cast<std::int64_t>(limits_.memory_bytes / 8)) return {};
  const auto limit = static_cast<std::int64_t>(PageLimit() / 4 * 3);
  if (stays > limit)
    return std::chrono::microseconds(kAtLimit << std::min((stays - limit) / std::max(limit / 8, kDoublingMin), kDoublingsMax));
  const std::int64_t halvings = (limit - stays) / (limit / 32);
  return std::chrono::microseconds(halvings > kHalvingsMax ? 0 : kAtLimit >> halvings);
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::EvictIfNeeded() {
  states_.mutex.AssertNotHeld();
  needs_eviction_.store(false, std::memory_order_relaxed);
  log_.PauseIfLong();
  // After a failed checkpoint there may be no disk space for a long time.
  if (const std::chrono::microseconds pause = Pause(); pause.count() != 0 && !progress_.has_failed())
    progress_.WaitFor(pause, [this] { return Pause().count() == 0; });
  sync::MutexLock lock(states_.mutex);
  for (unsigned evicted = 0; IsOverLimit() && EvictOne();) {
    if (++evicted < kEvictedAtOnce) continue;
    needs_eviction_.store(true, std::memory_order_relaxed);
    break;
  }
}

// Memory for a page that is changed. Evicts other pages for it, but waits for nothing.
template <File FileT, PageCodec Codec>
std::uint32_t BufferPool<FileT, Codec>::AllocateSlowly(unsigned units) {
  sync::MutexLock lock(states_.mutex);
  for (unsigned gone = 0; gone < kCooledAtOnce && EvictOne(); ++gone) {
    if (const std::uint32_t unit = arena_->Allocate(units, PageLimit()); unit != 0) return unit;
  }
  return arena_->Allocate(units);  // beyond the limit, until the next checkpoint
}

// Memory for a page to load; evicts other pages for it. 0 if there is none or, without `must`, none
// within the limit.
template <File FileT, PageCodec Codec>
std::uint32_t BufferPool<FileT, Codec>::FindMemory(unsigned units, bool must) {
  std::uint32_t unit = 0;
  for (bool has_evicted = false;; has_evicted = true) {
    const std::uint64_t limit = PageLimit();
    if (used_bytes() + units * format::kPageUnit <= limit / 8 * 7) unit = arena_->Allocate(units, limit);
    if (unit != 0) break;
    // If few pages can be evicted, one eviction must do: otherwise each load would cost many of
    // them.
    if (has_evicted && dirty_.staying_bytes() > static_cast<std::int64_t>(limit / 2)) break;
    if (!EvictOne()) break;
  }
  // Beyond the limit, until the next checkpoint has ended.
  if (unit == 0 && must) unit = arena_->Allocate(units);
  if (unit != 0) used_units_.fetch_add(units, std::memory_order_relaxed);
  return unit;
}

// Evicts a page. False if a few moves of the hand found none to evict: when most pages are dirty, a
// longer search would cost more than the load. The next call continues where this one ended.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::EvictOne() {
  for (unsigned moves = 0; moves < kMovesMax; ++moves) {
    CoolSome();
    while (!cooling_.empty()) {
      const std::uint32_t id = cooling_.front();
      cooling_.pop_front();
      if (states_.Of(id) != PageStates::kCooling) continue;
      Evict(id);
      return true;
    }
  }
  return false;
}

// Moves the hand on by up to kCooledAtOnce pages, while at most an eighth of all are cooling.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::CoolSome() {
  for (unsigned steps = 0; steps < kCooledAtOnce && cooling_.size() <= resident_.size() / 8 && !resident_.empty(); ++steps) {
    if (hand_ >= resident_.size()) hand_ = 0;
    const std::uint32_t id = resident_[hand_];
    const PageStates::State state = states_.Of(id);
    if (state == PageStates::kFree || state == PageStates::kLong || state == PageStates::kEvicted) {
      states_.SetFlag(id, PageStates::kListed, false);
      resident_[hand_] = resident_.back();
      resident_.pop_back();
      continue;
    }
    ++hand_;
    if (!states_.IsInMemory(id) || !LockForEviction(id)) continue;
    states_.Set(id, PageStates::kCooling);
    HAKO_TRY { state == PageStates::kProbationary ? cooling_.push_front(id) : cooling_.push_back(id); }
    HAKO_CATCH_NO_MEMORY(states_.Set(id, state); sync::VersionLock(lines_[id].version).Unlock(false); return;)
  }
}

template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::MayGo(std::uint32_t id) const {
  const Shape shape = std::atomic_ref(lines_[id].shape).load(std::memory_order_relaxed);
  return shape.level() == 0 && (shape.kind & Shape::kMark) == 0 && !states_.Has(id, PageStates::kPinned | PageStates::kHeld) && id != root_;
}

// Locks a cached page if it may be evicted.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::LockForEviction(std::uint32_t id) {
  sync::VersionLock line(lines_[id].version);
  if (!MayGo(id) || !line.TryLock()) return false;
  if (MayGo(id)) return true;
  line.Unlock(false);
  return false;
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::Evict(std::uint32_t id) {
  Line& line = lines_[id];
  sync::VersionLock(line.version).AssertLocked();
  HAKO_DCHECK(MayGo(id));  // invariant 1
  GiveBack(line.unit, line.shape.units);
  bounds_.StoreChecked(id);
  states_.Set(id, PageStates::kEvicted);  // its line stays locked
}

template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::Demote(std::uint32_t id) {
  if (states_.Of(id) != PageStates::kProbationary || store_->file_bytes() <= limits_.memory_bytes / 8 * 7) return;
  sync::MutexLock lock(states_.mutex);
  behind_.push_back(id);
  for (; behind_.size() > ahead_max(); behind_.pop_front()) {
    if (states_.Of(behind_.front()) == PageStates::kProbationary && LockForEviction(behind_.front())) Evict(behind_.front());
  }
}

// Lowers the limit by bytes that HeldPages has added to it, and evicts pages until the rest is
// within it, a few at a time, as other threads wait for the lock.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::EvictToLimit(std::uint64_t bytes) {
  std::size_t vain = 0;  // pages visited since the last eviction; ends when it reaches all
  for (bool goes_on = true; goes_on;) {
    const std::uint64_t step = std::min<std::uint64_t>(bytes, 16 * kUsualPage);
    bytes -= step;
    sync::MutexLock lock(states_.mutex);
    held_bytes_.fetch_sub(step, std::memory_order_relaxed);
    unsigned evicted = 0;
    while (evicted < kCooledAtOnce && IsOverLimit() && EvictOne()) ++evicted;
    vain = evicted != 0 ? 0 : vain + kMovesMax * kCooledAtOnce;
    goes_on = bytes != 0 || (IsOverLimit() && vain < resident_.size());
  }
}

// Whether a page ends beyond this size of page memory.
template <File FileT, PageCodec Codec>
bool BufferPool<FileT, Codec>::IsBehind(const Line& line, std::uint64_t end) const {
  const Shape shape = std::atomic_ref(const_cast<Line&>(line).shape).load(std::memory_order_relaxed);
  return static_cast<std::uint64_t>(At(line) - memory_) + shape.size() > end;
}

// The tables have grown, so pages must take less memory: pages beyond the limit move to free memory
// below it.
template <File FileT, PageCodec Codec>
void BufferPool<FileT, Codec>::ShrinkMemory() {
  const std::uint64_t limit = PageLimit();
  if (arena_->page_bytes() <= limit) return;
  const std::uint64_t end = limit - limit / 64;
  arena_->Retreat(end);
  std::vector<std::uint32_t> ids;
  {
    sync::MutexLock lock(states_.mutex);
    HAKO_TRY { ids = resident_; }
    HAKO_CATCH_NO_MEMORY()  // then only memory that is free at the end is returned
  }
  for (const std::uint32_t id : ids) {
    Line& line = lines_[id];
    if (!IsBehind(line, end)) continue;
    sync::MutexLock lock(states_.mutex);
    const bool is_cooling = states_.Of(id) == PageStates::kCooling;
    if (!is_cooling && (!states_.IsInMemory(id) || !sync::VersionLock(line.version).TryLock())) continue;
    const std::uint32_t before = line.unit;
    const std::uint32_t unit = IsBehind(line, end) ? arena_->Allocate(line.shape.units, 0) : 0;
    if (unit != 0) {
      sync::StoreShared(At(unit), At(before), line.shape.size());
      std::atomic_ref(line.unit).store(unit, std::memory_order_relaxed);
      sync::VersionLock(line.version).Advance();  // LoadPage unlocks a cooling page as unchanged
      arena_->Free(before, line.shape.units);
    }
    if (!is_cooling) sync::VersionLock(line.version).Unlock(false);
  }
  arena_->CutEnd();
}

}  // namespace hako::tree
