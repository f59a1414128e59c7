// Definitions of tree/page_tree.h: records are evicted where the space has a limit (tree/page_limit.h).
#pragma once

#include <algorithm>
#include <bit>

#include "hako/tree/page_limit.h"
#include "hako/tree/page_tree.h"

namespace hako::tree {

// A Get has found its record in this slot of the leaf, or not found it.
template <class Space, Comparator Compare>
HAKO_INLINE void PageTree<Space, Compare>::NoteFetched([[maybe_unused]] const Line* leaf, [[maybe_unused]] typename View::Slot slot) const {
  if constexpr (LimitedPageSpace<Space>) {
    PageLimit* const limit = space_.limit();
    if (limit == nullptr) return;
    limit->counts().Add(slot.found);
    if (slot.found) limit->UseOf(*leaf).used.Set(slot.index);
  }
}

// An operation with a lock has found the record in this slot.
template <class Space, Comparator Compare>
HAKO_INLINE void PageTree<Space, Compare>::NoteUse([[maybe_unused]] const Line* leaf, [[maybe_unused]] typename View::Slot slot) const {
  if constexpr (LimitedPageSpace<Space>) {
    if (space_.limit() != nullptr && slot.found) space_.limit()->UseOf(*leaf).used.Set(slot.index);
  }
}

// A page divides: slots from `at` on are those of `right`.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::DivideUses([[maybe_unused]] const Line& left, [[maybe_unused]] unsigned at, [[maybe_unused]] unsigned count,
                                          [[maybe_unused]] const Line& right) {
  if constexpr (LimitedPageSpace<Space>) {
    if (space_.limit() == nullptr) return;
    PageUse& from = space_.limit()->UseOf(left);
    space_.limit()->UseOf(right).Take(from, at, count, 0);
    PageUse kept;
    kept.Clear();
    kept.Take(from, 0, at, 0);
    from.used.Write(kept.used.Read());
    from.kept.Write(kept.kept.Read());
  }
}

// `count` slots of `from` come after the first `before` of `to`.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::AppendUses([[maybe_unused]] const Line& to, [[maybe_unused]] unsigned before,
                                          [[maybe_unused]] const Line& from, [[maybe_unused]] unsigned count) {
  if constexpr (LimitedPageSpace<Space>) {
    if (space_.limit() != nullptr) space_.limit()->UseOf(to).Take(space_.limit()->UseOf(from), 0, count, before);
  }
}

// OutOfRange for a value that the limit does not allow.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::CheckValue([[maybe_unused]] std::uint64_t size) const {
  if constexpr (LimitedPageSpace<Space>) {
    if (has_byte_limit_) return space_.limit()->capacity().CheckValue(size);
  }
  return absl::OkStatus();
}

// Stores a value that is not long, where the space has a limit.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::SetEvicting(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                             typename View::Slot slot) {
  if (!slot.found) EvictForInsertion(writer, 1);
  SplitResult leaf{guard.line, nullptr};
  const Status status =
      StoreEvicting(writer, guard.line, key, slot, [&](typename View::Slot at) { return StoreByCall(&leaf, key, value, at, &writer); });
  if (status.ok() && !slot.found) count_.Add(writer, 1);
  return status;
}

// Returns store(slot) of a locked leaf, which may be split by it. If it gets no memory within the limit,
// evicts records and calls it again, with the slot where the key is then.
template <class Space, Comparator Compare>
template <class F>
Status PageTree<Space, Compare>::StoreEvicting(WriterState& writer, Line*& leaf, std::string_view key, typename View::Slot slot,
                                               F&& store) {
  if constexpr (LimitedPageSpace<Space>) {
    const auto is_mine = [&](const Line& line) { return &line == leaf; };
    const auto is_key = [&](std::string_view other) { return Compare::Compare(other, key) == 0; };
    OwnLeaves own{is_mine, is_key};
    sync::Backoff backoff;
    while (has_byte_limit_) {
      if constexpr (requires { writer.error; }) writer.error = absl::OkStatus();
      Status status = store(slot);
      const bool needs_memory = absl::IsResourceExhausted(status) && update::ErrorOf(writer).ok();
      if (!needs_memory) return status;
      if (!EvictForMemory(writer, &own)) {
        if (backoff.count() == kWaitsMost) return status;
        backoff.Pause();  // other threads may be about to fill long values, which then can go
      }
      slot = View(memory_, *leaf).FindByCall(key);
    }
  }
  return store(slot);
}

// Evicts a few records, or makes larger free runs of those that there are; false if it can do neither.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::EvictForMemory([[maybe_unused]] WriterState& writer, [[maybe_unused]] OwnLeaves* own) {
  if constexpr (LimitedPageSpace<Space>) {
    if (MovePagesTogether(writer, false)) return true;
    const std::uint64_t ids = space_.page_end() - Space::kFirstId;
    const std::uint64_t steps = (ids + kEvictionLeaves - 1) / kEvictionLeaves * kEvictionParts;
    // The first round may only clear the bits of used records; in the last one every record may be evicted.
    for (std::uint64_t tries = 0; tries < 3 * steps; ++tries) {
      if (EvictStep(writer, space_.limit()->NextStep(), ids, own, tries >= 2 * steps) != 0) return true;
    }
    return MovePagesTogether(writer, true);
  }
  return false;
}

// Moves the pages of the next part of the memory to its front, as far as no other thread has locked them;
// long values stay where they are. `must`: of all parts, until some have moved. False if none has moved.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::MovePagesTogether([[maybe_unused]] WriterState& writer, [[maybe_unused]] bool must) {
  bool has_moved = false;
  if constexpr (LimitedPageSpace<Space>) {
    struct Page {
      std::uint32_t unit, id;
    };
    HAKO_TRY {
      std::vector<Page> pages;
      for (unsigned parts = must ? kPartsMost : 1; parts > 0 && !has_moved; --parts) {
        const auto part = space_.NextPart(must);
        if (part.units == 0) break;
        pages.clear();
        for (std::uint32_t id = Space::kFirstId, end = space_.page_end(); id < end; ++id) {
          const std::uint32_t unit = std::atomic_ref(LineOf(id).unit).load(std::memory_order_relaxed);
          const format::PageShape shape = std::atomic_ref(LineOf(id).shape).load(std::memory_order_relaxed);
          if (shape.units != 0 && unit - part.first < part.units) pages.push_back({unit, id});
        }
        std::ranges::sort(pages, {}, &Page::unit);
        for (const Page& page : pages) has_moved |= MoveForward(writer, LineOf(page.id), page.unit);
      }
    }
    HAKO_CATCH_NO_MEMORY()
  }
  return has_moved;
}

// Moves the page at this unit into the free run before it, if it is there and no thread has locked it. A leaf
// without records is joined with a neighbour instead.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::MoveForward([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& line,
                                           [[maybe_unused]] std::uint32_t unit) {
  if constexpr (LimitedPageSpace<Space>) {
    if (!Lock(line.version).TryLock()) return false;
    const format::PageShape shape = line.shape;
    const unsigned units = shape.units;
    if (line.unit == unit && units != 0 && shape.level() == 0 && shape.count == 0) {
      const std::optional<std::string> key = KeyOfLeaf(View(memory_, line));
      if (key && JoinSmall(writer, line, *key)) return std::atomic_ref(line.unit).load(std::memory_order_relaxed) != unit;
    }
    sync::LockHolder holder(Lock(line.version));
    if (line.unit != unit || units == 0) return false;
    const std::uint32_t to = space_.TakeRunBefore(unit);
    if (to == unit) return false;
    sync::MoveShared(memory_ + std::uint64_t{to} * format::kPageUnit, memory_ + std::uint64_t{unit} * format::kPageUnit,
                     std::size_t{units} * format::kPageUnit);
    std::atomic_ref(line.unit).store(to, std::memory_order_relaxed);
    holder.changed = true;
    space_.Free(to + units, unit - to);
    return true;
  }
  return false;
}

// Before this many new records are inserted; their leaves are locked, so that they are not evicted
// themselves.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::EvictForInsertion([[maybe_unused]] WriterState& writer, [[maybe_unused]] std::uint64_t inserted) {
  if constexpr (LimitedPageSpace<Space>) {
    PageLimit& limit = *space_.limit();
    if (!writer.is_counted) {
      writer.is_counted = true;
      limit.AddWriter();
      while (has_byte_limit_ && !space_.FitsBudget() && EvictForMemory(writer, nullptr)) {
      }
    }
    if (limit.capacity().records == 0) return;
    const std::int64_t most = limit.RecordsMost(sync::RecordCount::kBatch);
    const auto excess = [&] {
      return count_.total() + writer.pending_count.load(std::memory_order_relaxed) + static_cast<std::int64_t>(inserted) - most;
    };
    if (excess() <= 0) return;
    const std::uint64_t ids = space_.page_end() - Space::kFirstId;
    const std::uint64_t steps = (ids + kEvictionLeaves - 1) / kEvictionLeaves * kEvictionParts;
    // As long as it helps; the first round may only clear the bits of used records.
    for (std::uint64_t tries = 0; excess() > 0 && tries < 3 * steps; ++tries) {
      if (EvictStep(writer, limit.NextStep(), ids, nullptr, tries >= 2 * steps) != 0) tries = 0;
    }
  }
}

// The part of a leaf, of kEvictionSlots slots, that a step of the hand considers.
template <class Space, Comparator Compare>
struct PageTree<Space, Compare>::EvictionPart {
  // For the leaf as it is now; nothing need be locked. Empty if the line is that of no leaf.
  EvictionPart(const PageLimit& limit, Line& line, unsigned part) {
    const format::PageShape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
    const unsigned first = part * kEvictionSlots;
    if (shape.units == 0 || shape.level() != 0 || shape.count <= first) return;
    count = std::min<unsigned>(shape.count - first, kEvictionSlots);
    const PageUse& use = limit.UseOf(line);
    const std::uint32_t mask = (1u << count) - 1;
    const std::uint32_t was_used = static_cast<std::uint32_t>(use.used.Read()[first / 64] >> first % 64) & mask;
    const std::uint32_t was_kept = static_cast<std::uint32_t>(use.kept.Read()[first / 64] >> first % 64) & mask;
    used = was_used & was_kept;  // a new record that was used is kept from now on
    kept = was_used | was_kept;
  }
  unsigned fresh() const { return count - static_cast<unsigned>(std::popcount(kept)); }

  unsigned count = 0;
  std::uint32_t used = 0, kept = 0;
};

// Considers a part of some leaves that are far apart, as the records of neighbours may be alike. `any`:
// evicts new and kept records, as none of those to be evicted first are left.
template <class Space, Comparator Compare>
unsigned PageTree<Space, Compare>::EvictStep([[maybe_unused]] WriterState& writer, [[maybe_unused]] std::uint64_t step,
                                             [[maybe_unused]] std::uint64_t ids, [[maybe_unused]] OwnLeaves* own,
                                             [[maybe_unused]] bool any) {
  unsigned evicted = 0;
  if constexpr (LimitedPageSpace<Space>) {
    const std::uint64_t apart = (ids + kEvictionLeaves - 1) / kEvictionLeaves;
    const auto part = static_cast<unsigned>(step / apart % kEvictionParts);
    const auto line = [&](unsigned n) {
      return step % apart + n * apart < ids ? &lines_[Space::kFirstId + step % apart + n * apart] : nullptr;
    };
    unsigned total = 0, fresh = 0;
    for (unsigned n = 0; n < kEvictionLeaves && line(n) != nullptr; ++n) {
      const EvictionPart seen(*space_.limit(), *line(n), part);
      total += seen.count;
      fresh += seen.fresh();
    }
    if (total == 0) return 0;
    const unsigned all = std::max((total + kEvictedOf / 2) / kEvictedOf, 1u);
    EvictionQuota quota{all, 0};
    if (!space_.limit()->HasManyNew(total, fresh)) std::swap(quota.fresh, quota.kept);
    if (any) quota = {all, all};
    const auto start = static_cast<unsigned>(step / apart / kEvictionParts);  // not always the first leaf
    for (unsigned n = 0; n < kEvictionLeaves && (quota.fresh | quota.kept) != 0; ++n) {
      Line* const next = line((start + n) % kEvictionLeaves);
      if (next != nullptr) evicted += EvictIn(writer, *next, part, &quota, own);
    }
  }
  return evicted;
}

// Evicts records of this part of a leaf, as far as the quota allows, unless another thread has locked it.
template <class Space, Comparator Compare>
unsigned PageTree<Space, Compare>::EvictIn([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& line,
                                           [[maybe_unused]] unsigned part, [[maybe_unused]] EvictionQuota* quota,
                                           [[maybe_unused]] OwnLeaves* own) {
  unsigned evicted = 0;
  if constexpr (LimitedPageSpace<Space>) {
    PageLimit& limit = *space_.limit();
    if (EvictionPart(limit, line, part).count == 0) return 0;
    struct Holder {  // unless the thread had locked the leaf before
      ~Holder() {
        if (line != nullptr) Lock(line->version).Unlock(changed);
      }
      Line* line;
      bool changed = false;
    } holder{Lock(line.version).TryLock() ? &line : nullptr};
    const bool is_own = holder.line == nullptr;
    if (is_own && (own == nullptr || !own->has(line))) return 0;
    CaptureIfAsked(line);
    bool& changed = is_own ? own->changed : holder.changed;
    const View page(memory_, line);
    KeyBuffer slot_key;
    const auto is_kept_back = [&](unsigned i) {
      if (!is_own) return false;
      Builder::CopyKeyOf(page, i, &slot_key);
      return own->keeps(slot_key);
    };
    EvictionPart now(limit, line, part);
    const unsigned first = part * kEvictionSlots;
    std::uint32_t chosen = 0;
    for (unsigned i = 0; i < now.count; ++i) {
      const std::uint32_t bit = 1u << i;
      const bool is_kept = (now.kept & bit) != 0;
      unsigned& left = is_kept ? quota->kept : quota->fresh;
      if (left == 0 || is_kept_back(first + i)) continue;
      if ((now.used & bit) != 0) {
        now.used &= ~bit;
        continue;
      }
      chosen |= bit;
      --left;
    }
    PageUse& use = limit.UseOf(line);
    for (unsigned i = 0; i < now.count; ++i) {
      (now.used >> i & 1) != 0 ? use.used.Set(first + i) : use.used.Clear(first + i);
      if ((now.kept >> i & 1) != 0) use.kept.Set(first + i);
    }
    if (chosen == 0) return 0;
    std::optional<std::string> key = KeyOfLeaf(page);
    Deferred deferred(space_);
    std::uint64_t bytes = 0;
    for (unsigned i = now.count; i > 0; --i) {  // downwards, so that no chosen slot moves
      if ((chosen >> (i - 1) & 1) == 0 || !EvictSlot(writer, line, first + i - 1, deferred, &bytes)) continue;
      changed = true;
      ++evicted;
    }
    space_.NoteEvicted(bytes);
    if (has_byte_limit_) {
      deferred.Finish();
      if (is_own) return evicted;  // the thread will soon need the room there
      Editor editor(space_, line);
      const unsigned units = editor.CompactUnits(editor.shape().count, 0);
      if (units < editor.shape().units - editor.shape().units / kReturnedOf) editor.Compact(editor.shape().count, units);
      if (key && IsSmall(line) && JoinSmall(writer, line, *key)) holder.line = nullptr;
    } else if (key && IsSparse(line) && writer.sparse.size() < EvictingWriter::kSparseMax) {
      (void)TryPushBack(writer.sparse, std::move(*key));
    }
  }
  return evicted;
}

// Removes the record of a slot whose leaf is locked. False if its value is not stored yet, or if the
// removal cannot be logged.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::EvictSlot([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& line, [[maybe_unused]] unsigned i,
                                         [[maybe_unused]] Deferred& deferred, [[maybe_unused]] std::uint64_t* bytes) {
  if constexpr (LimitedPageSpace<Space>) {
    const View page(memory_, line);
    KeyBuffer key;
    Builder::CopyKeyOf(page, i, &key);
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    std::string_view value(cell + sizes.header + sizes.Rest(View::kInlined), sizes.value);
    LongRead read(space_);
    if (sizes.is_long) {
      if (!read.Has(LongValueIn(value))) return false;
      value = read.bytes();
    }
    if (!update::LogEviction(space_, writer, key)) return false;
    space_.limit()->NoteEvicted(key, value);
    *bytes += key.size() + value.size();
    writer.evictions.store(writer.evictions.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    RemoveSlot(line, i, deferred);
    count_.Add(writer, -1);
  }
  return true;
}

// A key that belongs into the leaf: its low fence, or its first key; none if it has neither.
template <class Space, Comparator Compare>
std::optional<std::string> PageTree<Space, Compare>::KeyOfLeaf(const View& page) {
  std::optional<std::string> key;
  HAKO_TRY {
    const format::PageTail tail = page.tail();
    if ((tail.edges & format::PageTail::kNoLow) == 0) {
      key.emplace(page.low(tail));
    } else if (page.count() != 0) {
      Builder::CopyKeyOf(page, 0, &key.emplace());
    }
  }
  HAKO_CATCH_NO_MEMORY(key.reset();)
  return key;
}

// Whether a leaf that returns its garbage has so little left that it should be joined with a neighbour.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::IsSmall(const Line& line) const {
  const Editor page(space_, const_cast<Line&>(line));
  return page.shape().count == 0 || (page.LiveBytes() <= page_size_ / 4 && page.shape().count <= format::kPageSlotsMax / 4);
}

// Joins a small leaf, which the caller has locked, with a neighbour, if it can be done at once, and unlocks it.
// False if another thread joins leaves: then it is still locked.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::JoinSmall([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& line,
                                         [[maybe_unused]] std::string_view key) {
  if constexpr (LimitedPageSpace<Space>) {
    std::atomic_flag& joins = space_.limit()->joins();
    if (joins.test_and_set(std::memory_order_acquire)) return false;
    Reservation reservation(space_);
    (void)reservation.Take(0, false);
    Merge(writer, &line, key);
    (void)reservation.End();
    joins.clear(std::memory_order_release);
  }
  return true;
}

// Joins the leaves that this thread's evictions have left sparse with their neighbours. Nothing is locked.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::JoinSparse([[maybe_unused]] WriterState& writer) {
  if constexpr (LimitedPageSpace<Space>) {
    for (; !writer.sparse.empty(); writer.sparse.pop_back()) {
      const std::string& key = writer.sparse.back();
      HAKO_TRY {
        LeafGuard guard(*this, writer, LockLeafByCall(writer, key));
        if (guard.line != nullptr && IsSparse(*guard.line)) {
          guard.changed = true;
          Merge(writer, std::exchange(guard.line, nullptr), key);
        }
      }
      HAKO_CATCH_NO_MEMORY()  // the leaf stays sparse
    }
  }
}

}  // namespace hako::tree
