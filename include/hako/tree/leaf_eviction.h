// Evicts records of the leaves of a tree whose space has a limit (tree/page_limit.h). For a space
// without a limit the first class does nothing.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/record_count.h"
#include "hako/tree/key_buffer.h"
#include "hako/tree/leaf_captures.h"
#include "hako/tree/tree_pages.h"
#include "hako/tree/tree_shape.h"
#include "hako/update/logging.h"

namespace hako::tree {

// Leaves that the thread has locked itself. It may evict from them, except the records that it is
// about to change.
struct OwnLeaves {
  FunctionRef<bool(const format::PageLine&)> has;
  FunctionRef<bool(std::string_view key)> keeps;
  bool changed = false;
};

template <class Space, Comparator Compare>
class LeafEviction {
  using Pages = TreePages<Space, Compare>;
  using WriterState = typename Space::WriterState;

 public:
  struct Reservation {
    explicit Reservation(Space& /*space*/) {}
    static bool Take(std::uint64_t /*bytes*/, bool /*exceeds*/) { return true; }
  };
  LeafEviction(const Pages& /*pages*/, TreeShape<Space, Compare>& /*shape*/, const LeafCaptures<Space, Compare>& /*captures*/,
               sync::RecordCount& /*count*/) {}
  static Status CheckValue(std::uint64_t /*size*/) { return absl::OkStatus(); }
  static void EvictForInsertion(WriterState& /*writer*/, std::uint64_t /*inserted*/) {}
  static bool EvictForMemory(WriterState& /*writer*/, OwnLeaves* /*own*/) { return false; }
  template <class F>
  static Status Store(WriterState& /*writer*/, format::PageLine*& /*leaf*/, std::string_view /*key*/, typename Pages::View::Slot slot,
                      F&& store) {
    return store(slot);
  }
};

template <LimitedPageSpace Space, Comparator Compare>
class LeafEviction<Space, Compare> {
  using Pages = TreePages<Space, Compare>;
  using WriterState = typename Space::WriterState;
  using Deferred = typename Space::Deferred;
  using Line = typename Pages::Line;
  using View = typename Pages::View;
  using Editor = typename Pages::Editor;
  using Builder = typename Pages::Builder;
  using Lock = typename Pages::Lock;

 public:
  using Reservation = typename Space::Reservation;

  LeafEviction(const Pages& pages, TreeShape<Space, Compare>& shape, const LeafCaptures<Space, Compare>& captures, sync::RecordCount& count)
      : pages_(pages), space_(pages.space()), shape_(shape), captures_(captures), count_(count) {}

  // Returns OutOfRange for a value that the limit does not allow.
  Status CheckValue(std::uint64_t size) const {
    return pages_.has_byte_limit() ? space_.limit()->capacity().CheckValue(size) : absl::OkStatus();
  }

  // Calls store(slot) for a locked leaf, which store may split, and returns its result. If store
  // gets no memory within the limit, evicts records and calls it again, with the slot that the key
  // then has.
  template <class F>
  Status Store(WriterState& writer, Line*& leaf, std::string_view key, typename View::Slot slot, F&& store) {
    const auto is_mine = [&](const Line& line) { return &line == leaf; };
    const auto is_key = [&](std::string_view other) { return Compare::Compare(other, key) == 0; };
    OwnLeaves own{is_mine, is_key};
    sync::Backoff backoff;
    while (pages_.has_byte_limit()) {
      if constexpr (requires { writer.error; }) writer.error = absl::OkStatus();
      Status status = store(slot);
      const bool needs_memory = absl::IsResourceExhausted(status) && update::ErrorOf(writer).ok();
      if (!needs_memory) return status;
      if (!EvictForMemory(writer, &own)) {
        if (backoff.count() == kWaitsMost) return status;
        backoff.Pause();  // other threads may be about to fill long values, which can be evicted then
      }
      slot = pages_.ViewOf(*leaf).FindByCall(key);
    }
    return store(slot);
  }

  // Call this before `inserted` new records are inserted, with their leaves locked, so that the new
  // records are not evicted. REQUIRES: the space has a limit
  void EvictForInsertion(WriterState& writer, std::uint64_t inserted) {
    HAKO_DCHECK(pages_.is_limited());
    PageLimit& limit = *space_.limit();
    if (!writer.is_counted) {
      writer.is_counted = true;
      limit.AddWriter();
      while (pages_.has_byte_limit() && !space_.FitsBudget() && EvictForMemory(writer, nullptr)) {
      }
    }
    if (limit.capacity().records == 0) return;
    const std::int64_t most = limit.RecordsMost(sync::RecordCount::kBatch);
    const auto excess = [&] {
      return count_.total() + writer.pending_count.load(std::memory_order_relaxed) + static_cast<std::int64_t>(inserted) - most;
    };
    if (excess() <= 0) return;
    const std::uint64_t ids = space_.page_end() - Space::kFirstId;
    const std::uint64_t steps = (ids + kLeaves - 1) / kLeaves * kParts;
    // Continue as long as it helps. The first round may only clear the bits of used records.
    for (std::uint64_t tries = 0; excess() > 0 && tries < 3 * steps; ++tries) {
      if (Step(writer, limit.NextStep(), ids, nullptr, tries >= 2 * steps) != 0) tries = 0;
    }
  }

  // Evicts a few records, or moves pages so that free runs become larger. Returns false if it can
  // do neither.
  // REQUIRES: the limit is in bytes
  bool EvictForMemory(WriterState& writer, OwnLeaves* own) {
    HAKO_DCHECK(pages_.has_byte_limit());
    if (MovePagesTogether(writer, false)) return true;
    const std::uint64_t ids = space_.page_end() - Space::kFirstId;
    const std::uint64_t steps = (ids + kLeaves - 1) / kLeaves * kParts;
    // The first round may only clear the bits of used records; in the last one every record may be evicted.
    for (std::uint64_t tries = 0; tries < 3 * steps; ++tries) {
      if (Step(writer, space_.limit()->NextStep(), ids, own, tries >= 2 * steps) != 0) return true;
    }
    return MovePagesTogether(writer, true);
  }

 private:
  static constexpr unsigned kLeaves = 8;  // a step of the hand visits a part of this many leaves
  static constexpr unsigned kSlots = format::kSlotGroup, kParts = format::kPageSlotsMax / kSlots;  // of a part; of a leaf
  static constexpr unsigned kWaitsMost = 256;  // for other threads, when nothing can be evicted
  static constexpr unsigned kPartsMost = 256;  // more than there are parts in PageArena::NextPart
  static constexpr unsigned kReturnedOf = 8;   // a leaf returns the memory of its garbage if that is one unit of this many

  using Quota = PageLimit::Quota;
  // The part of a leaf, of kSlots slots, that a step of the hand considers.
  struct Part {
    // Reads the leaf as it is now, without a lock. The part is empty if the line belongs to no
    // leaf.
    Part(const PageLimit& limit, Line& line, unsigned part) {
      const format::PageShape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
      const unsigned first = part * kSlots;
      if (shape.units == 0 || shape.level() != 0 || shape.count <= first) return;
      count = std::min<unsigned>(shape.count - first, kSlots);
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

  // Considers a part of some leaves that are far apart, because the records of adjacent leaves may
  // be alike. `any`: evicts both new and kept records, because there are no more records of the
  // kind to be evicted first.
  unsigned Step(WriterState& writer, std::uint64_t step, std::uint64_t ids, OwnLeaves* own, bool any) {
    const std::uint64_t apart = (ids + kLeaves - 1) / kLeaves;
    const auto part = static_cast<unsigned>(step / apart % kParts);
    const auto line = [&](unsigned n) {
      const std::uint64_t at = step % apart + n * apart;
      return at < ids ? &pages_.LineOf(static_cast<std::uint32_t>(Space::kFirstId + at)) : nullptr;
    };
    unsigned total = 0, fresh = 0;
    for (unsigned n = 0; n < kLeaves && line(n) != nullptr; ++n) {
      const Part seen(*space_.limit(), *line(n), part);
      total += seen.count;
      fresh += seen.fresh();
    }
    if (total == 0) return 0;
    const unsigned all = PageLimit::QuotaOf(total);
    Quota quota{all, 0};
    if (!space_.limit()->HasManyNew(total, fresh)) std::swap(quota.fresh, quota.kept);
    if (any) quota = {all, all};
    const auto start = static_cast<unsigned>(step / apart / kParts);  // so that the first leaf is not always considered first
    unsigned evicted = 0;
    for (unsigned n = 0; n < kLeaves && (quota.fresh | quota.kept) != 0; ++n) {
      Line* const next = line((start + n) % kLeaves);
      if (next != nullptr) evicted += EvictIn(writer, *next, part, &quota, own);
    }
    return evicted;
  }

  // Evicts records of this part of a leaf, as many as the quota allows, unless another thread has
  // locked the leaf.
  unsigned EvictIn(WriterState& writer, Line& line, unsigned part, Quota* quota, OwnLeaves* own) {
    PageLimit& limit = *space_.limit();
    if (Part(limit, line, part).count == 0) return 0;
    struct Holder {  // unless the thread had locked the leaf before
      ~Holder() {
        if (line != nullptr) Pages::Unlock(line, changed);
      }
      Line* line;
      bool changed = false;
    } holder{Lock(line.version).TryLock() ? &line : nullptr};
    const bool is_own = holder.line == nullptr;
    if (is_own && (own == nullptr || !own->has(line))) return 0;
    captures_.CaptureIfAsked(line);
    const std::uint32_t chosen = Choose(line, part, quota, is_own ? own : nullptr);
    if (chosen == 0) return 0;
    const std::optional<std::string> key = KeyOfLeaf(pages_.ViewOf(line));
    Deferred deferred(space_);
    std::uint64_t bytes = 0;
    unsigned evicted = 0;
    for (unsigned i = kSlots; i > 0; --i) {  // downwards, so that no chosen slot moves
      if ((chosen >> (i - 1) & 1) == 0 || !EvictSlot(writer, line, part * kSlots + i - 1, deferred, &bytes)) continue;
      (is_own ? own->changed : holder.changed) = true;
      ++evicted;
    }
    space_.NoteEvicted(bytes);
    if (pages_.has_byte_limit()) {
      deferred.Finish();
      if (is_own) return evicted;  // the thread will soon need the room there
      Editor editor(space_, line);
      const unsigned units = editor.CompactUnits(editor.shape().count, 0);
      if (units < editor.shape().units - editor.shape().units / kReturnedOf) editor.Compact(editor.shape().count, units);
      if (key && shape_.IsSmall(line) && JoinSmall(writer, line, *key)) holder.line = nullptr;
    } else if (key && shape_.IsSparse(line) && writer.sparse.size() < EvictingWriter::kSparseMax) {
      (void)TryPushBack(writer.sparse, *key);
    }
    return evicted;
  }

  // Returns the records of this part of a locked leaf that are to be evicted, as bits, and updates
  // the bits of the others as the hand passes them. `own`: the thread had locked the leaf before.
  std::uint32_t Choose(Line& line, unsigned part, Quota* quota, const OwnLeaves* own) {
    const View page = pages_.ViewOf(line);
    Part now(*space_.limit(), line, part);
    const unsigned first = part * kSlots;
    KeyBuffer key;
    const auto is_kept_back = [&](unsigned i) {
      if (own == nullptr) return false;
      Builder::CopyKeyOf(page, i, &key);
      return own->keeps(key);
    };
    std::uint32_t chosen = 0;
    for (unsigned i = 0; i < now.count; ++i) {
      const std::uint32_t bit = 1u << i;
      unsigned& left = (now.kept & bit) != 0 ? quota->kept : quota->fresh;
      if (left == 0 || is_kept_back(first + i)) continue;
      if ((now.used & bit) != 0) {
        now.used &= ~bit;
        continue;
      }
      chosen |= bit;
      --left;
    }
    PageUse& use = space_.limit()->UseOf(line);
    for (unsigned i = 0; i < now.count; ++i) {
      (now.used >> i & 1) != 0 ? use.used.Set(first + i) : use.used.Clear(first + i);
      if ((now.kept >> i & 1) != 0) use.kept.Set(first + i);
    }
    return chosen;
  }

  // Removes the record of a slot whose leaf is locked. Returns false if its value is not stored
  // yet, or if the removal cannot be logged.
  bool EvictSlot(WriterState& writer, Line& line, unsigned i, Deferred& deferred, std::uint64_t* bytes) {
    const View page = pages_.ViewOf(line);
    KeyBuffer key;
    Builder::CopyKeyOf(page, i, &key);
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    std::string_view value = Pages::ContentOf(cell, sizes);
    typename Space::LongRead read(space_);
    if (sizes.is_long) {
      if (!read.Has(Pages::LongValueIn(value))) return false;
      value = read.bytes();
    }
    if (!update::LogEviction(space_, writer, key)) return false;
    space_.limit()->NoteEvicted(key, value);
    *bytes += key.size() + value.size();
    writer.evictions.store(writer.evictions.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    pages_.RemoveSlot(line, i, deferred);
    count_.Add(writer, -1);
    return true;
  }

  // Moves the pages of the next part of the memory to the front of that part, except pages that
  // another thread has locked. Long values do not move. `must`: tries all parts until some page has
  // moved. Returns false if none has moved.
  bool MovePagesTogether(WriterState& writer, bool must) {
    struct Page {
      std::uint32_t unit, id;
    };
    bool has_moved = false;
    HAKO_TRY {
      std::vector<Page> pages;
      for (unsigned parts = must ? kPartsMost : 1; parts > 0 && !has_moved; --parts) {
        const auto part = space_.NextPart(must);
        if (part.units == 0) break;
        pages.clear();
        for (std::uint32_t id = Space::kFirstId, end = space_.page_end(); id < end; ++id) {
          const std::uint32_t unit = std::atomic_ref(pages_.LineOf(id).unit).load(std::memory_order_relaxed);
          const format::PageShape shape = std::atomic_ref(pages_.LineOf(id).shape).load(std::memory_order_relaxed);
          if (shape.units != 0 && unit - part.first < part.units) pages.push_back({unit, id});
        }
        std::ranges::sort(pages, {}, &Page::unit);
        for (const Page& page : pages) has_moved |= MoveForward(writer, pages_.LineOf(page.id), page.unit);
      }
    }
    HAKO_CATCH_NO_MEMORY()
    return has_moved;
  }

  // Moves the page of `line` into the free run before it, if the page is at `unit` and no thread
  // has locked it. Joins a leaf without records with a neighbour instead.
  bool MoveForward(WriterState& writer, Line& line, std::uint32_t unit) {
    if (!Lock(line.version).TryLock()) return false;
    const format::PageShape shape = line.shape;
    const unsigned units = shape.units;
    if (line.unit == unit && units != 0 && shape.level() == 0 && shape.count == 0) {
      const std::optional<std::string> key = KeyOfLeaf(pages_.ViewOf(line));
      if (key && JoinSmall(writer, line, *key)) return std::atomic_ref(line.unit).load(std::memory_order_relaxed) != unit;
    }
    sync::LockHolder holder(Lock(line.version));
    if (line.unit != unit || units == 0) return false;
    const std::uint32_t to = space_.TakeRunBefore(unit);
    if (to == unit) return false;
    sync::MoveShared(space_.memory() + std::uint64_t{to} * format::kPageUnit, space_.memory() + std::uint64_t{unit} * format::kPageUnit,
                     std::size_t{units} * format::kPageUnit);
    std::atomic_ref(line.unit).store(to, std::memory_order_relaxed);
    holder.changed = true;
    space_.Free(to + units, unit - to);
    return true;
  }

  // Joins a small leaf, which the caller has locked, with a neighbour, if that can be done at once,
  // and unlocks it. Returns false, with the leaf still locked, if another thread is joining leaves.
  bool JoinSmall(WriterState& writer, Line& line, std::string_view key) {
    std::atomic_flag& joins = space_.limit()->joins();
    if (joins.test_and_set(std::memory_order_acquire)) return false;
    Reservation reservation(space_);
    (void)reservation.Take(0, false);
    shape_.Merge(writer, &line, key);
    (void)reservation.End();
    joins.clear(std::memory_order_release);
    return true;
  }

  // Returns a key of the leaf's range: its low fence or its first key, or none if it has neither.
  static std::optional<std::string> KeyOfLeaf(const View& page) {
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

  const Pages& pages_;
  Space& space_;
  TreeShape<Space, Compare>& shape_;
  const LeafCaptures<Space, Compare>& captures_;
  sync::RecordCount& count_;
};

}  // namespace hako::tree
