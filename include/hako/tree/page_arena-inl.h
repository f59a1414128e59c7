// Definitions of tree/page_arena.h: memory within a limit in bytes (tree/page_limit.h).
#pragma once

#include <algorithm>

#include "hako/sync/thread_slot.h"
#include "hako/tree/page_arena.h"

namespace hako::tree {

inline Status PageArena::SetLimit(const Capacity& capacity) {
  HAKO_ASSIGN_OR_RETURN(uses_, storage::ReservedMemory::Reserve((std::uint64_t{id_mask_} + 1) * sizeof(PageUse)));
  limit_ = std::make_unique<PageLimit>(capacity, lines_, uses_.base());
  has_byte_limit_ = capacity.bytes != 0;
  if (!has_byte_limit_) return absl::OkStatus();
  page_arena_->KeepSmallPages();
  line_arena_->KeepSmallPages();
  uses_.KeepSmallPages();
  sync::MutexLock lock(mutex_);
  runs_.ReserveMost(page_arena_->max_bytes() / format::kPageUnit);
  return absl::OkStatus();
}

// Bytes that may be counted in addition.
inline std::uint64_t PageArena::Room(bool is_reserved) const {
  const std::uint64_t budget = limit_->Budget() - (is_reserved ? 0 : limit_->Spare());
  return budget - std::min(budget, Counted());
}

// A run that fits, which is then free; 0 if the thread must evict first.
[[gnu::noinline]] inline std::uint32_t PageArena::FindRunWithin(std::uint32_t units) {
  const std::uint64_t bytes = std::uint64_t{units} * format::kPageUnit;
  Reservation* const mine = MyReservation();
  if (mine == nullptr && free_units_ * format::kPageUnit + Room(false) < bytes + reserved_) return 0;
  std::uint32_t run = runs_.Find(units, kNoRetreat, kRunsSeen);
  if (run == 0 && TakePages((bytes + kSystemPage - 1) / kSystemPage, mine)) run = runs_.Find(units, kNoRetreat);
  if (run != 0 && mine != nullptr) {
    const std::uint64_t used = std::min(mine->bytes_, bytes);
    mine->bytes_ -= used;
    reserved_ -= used;
  }
  return run;
}

// Makes holes until this many pages may be counted in addition. False if there are not enough.
inline bool PageArena::MakeRoom(std::uint64_t pages, bool is_reserved) {
  const std::uint64_t budget = limit_->Budget() - (is_reserved ? 0 : limit_->Spare());
  const std::uint64_t wanted = Counted() + pages * kSystemPage;
  if (wanted <= budget) return true;
  const std::uint64_t missing = (wanted - budget + kSystemPage - 1) / kSystemPage;
  return MakeHoles(missing) >= missing;
}

// Makes a free run of pages that were holes.
inline bool PageArena::TakePages(std::uint64_t pages, Reservation* mine) {
  const bool is_reserved = mine != nullptr;
  if (!MakeRoom(pages, is_reserved)) {
    if (!is_reserved || !mine->exceeds_) return false;
    mine->has_exceeded_ = true;
  }
  const std::uint64_t most = std::max(pages, std::min(Room(is_reserved) / kSystemPage, kPagesAtOnce));
  PageHoles::Range taken = holes_.Take(pages, most);
  if (taken.pages == 0) {
    if (!AddAddresses(most)) (void)MakeHoles(~std::uint64_t{0});
    taken = holes_.Take(pages, most);
    if (taken.pages == 0) return false;
  }
  const auto first = static_cast<std::uint32_t>(taken.first * kUnitsOfPage), units = static_cast<std::uint32_t>(taken.pages * kUnitsOfPage);
  free_units_ += units;
  runs_.Join(first, units);
  return true;
}

// Makes the arena longer, by a hole of at least this many pages.
inline bool PageArena::AddAddresses(std::uint64_t pages) {
  const std::uint64_t bytes = pages * kSystemPage;
  runs_.Reserve((page_arena_->end() + bytes + storage::Arena::kExtentAlignment) / format::kPageUnit);
  const auto offset = page_arena_->Allocate(bytes);
  if (!offset.ok()) return false;
  if (holes_.Add({*offset / kSystemPage, (page_arena_->end() - *offset) / kSystemPage})) return true;
  page_arena_->Shrink(*offset);
  return false;
}

// Makes holes of up to this many pages of free runs, and returns their number.
inline std::uint64_t PageArena::MakeHoles(std::uint64_t pages) {
  std::uint64_t made = 0;
  while (made < pages) {
    UnitRuns::Span run = runs_.Largest();
    if (run.units < 2 * kUnitsOfPage - 1) {  // it need not have a whole page
      if (!may_have_pages_) break;
      run = runs_.FindAligned(kUnitsOfPage);
      may_have_pages_ = run.units != 0;
      if (!may_have_pages_) break;
    }
    const std::uint64_t first = (run.first + kUnitsOfPage - 1) / kUnitsOfPage, end = (std::uint64_t{run.first} + run.units) / kUnitsOfPage;
    const std::uint64_t count = std::min(pages - made, end - first);
    if (!holes_.Add({first, count})) break;
    runs_.Unlink(run.first);
    const auto begin = static_cast<std::uint32_t>(first * kUnitsOfPage), rest = static_cast<std::uint32_t>((first + count) * kUnitsOfPage);
    if (begin > run.first) runs_.Link(run.first, begin - run.first);
    if (rest < run.first + run.units) runs_.Link(rest, run.first + run.units - rest);
    page_arena_->Discard(first * kSystemPage, count * kSystemPage);
    free_units_ -= count * kUnitsOfPage;
    made += count;
  }
  return made;
}

// Whether there is memory for the line of a new id, and for its use bits.
inline bool PageArena::MayAddLine() {
  if ((ids_.end() - kFirstId) * sizeof(Line) % kSystemPage != 0) return true;
  const Reservation* const mine = MyReservation();
  return MakeRoom(2, mine != nullptr) || (mine != nullptr && mine->exceeds_);
}

inline PageArena::Reservation* PageArena::MyReservation() {
  if (reservations_ == nullptr) [[likely]]
    return nullptr;
  const unsigned thread = sync::ThreadIndex();
  Reservation* mine = reservations_;
  while (mine != nullptr && mine->thread_ != thread) mine = mine->next_;
  return mine;
}

inline UnitRuns::Span PageArena::NextPart(bool must) {
  static constexpr std::uint32_t kLeast = (128 << 10) / format::kPageUnit, kMost = (8 << 20) / format::kPageUnit;
  sync::MutexLock lock(mutex_);
  const auto end = static_cast<std::uint32_t>(page_arena_->end() / format::kPageUnit);
  const std::uint32_t size = std::clamp(end / 64, kLeast, kMost);
  if (!must && evicted_bytes_.load(std::memory_order_relaxed) < size / kMovedFor * format::kPageUnit) return {0, 0};
  evicted_bytes_.store(0, std::memory_order_relaxed);
  if (next_part_ >= end) next_part_ = 0;
  const std::uint32_t first = next_part_;
  next_part_ += size;
  return {first, size};
}

// The thread needs this memory for the pages that replace those it frees.
inline void PageArena::AddToReservation(std::uint32_t units) {
  Reservation* const mine = MyReservation();
  if (mine == nullptr) return;
  mine->bytes_ += std::uint64_t{units} * format::kPageUnit;
  reserved_ += std::uint64_t{units} * format::kPageUnit;
}

inline bool PageArena::Reservation::Take(std::uint64_t bytes, bool exceeds) {
  if (!arena_.HasByteLimit() || is_taken_) return true;
  sync::MutexLock lock(arena_.mutex_);
  if (bytes != 0 && arena_.free_units_ * format::kPageUnit + arena_.Room(false) < bytes + arena_.reserved_) return false;
  is_taken_ = true;
  exceeds_ = exceeds;
  has_exceeded_ = false;
  thread_ = sync::ThreadIndex();
  bytes_ = bytes;
  arena_.reserved_ += bytes;
  next_ = std::exchange(arena_.reservations_, this);
  return true;
}

inline bool PageArena::Reservation::End() {
  if (!is_taken_) return true;
  sync::MutexLock lock(arena_.mutex_);
  Reservation** link = &arena_.reservations_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  is_taken_ = false;
  arena_.reserved_ -= bytes_;
  return arena_.MakeRoom(0, false);
}

}  // namespace hako::tree
