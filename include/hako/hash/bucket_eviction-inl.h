// Definitions of hash/bucket_index.h: records are evicted where the space has a limit. See
// hash/record_limit.h for the policy.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>

#include "hako/hash/bucket_index.h"
#include "hako/hash/record_limit.h"

namespace hako::hash {

// A bucket that is locked to evict records, unless another thread has locked it.
template <class Space>
class BucketIndex<Space>::EvictionLock {
 public:
  EvictionLock(BucketIndex& index, WriterState& writer, std::uint64_t number) : lock_(index.lines_.Home(number).header) {
    is_locked_ = lock_.TryLock();
    if (is_locked_) index.CaptureIfAsked(writer, number);
    if constexpr (LimitedRecordSpace<Space>) {
      if (!is_locked_ && writer.own_buckets != nullptr && writer.own_buckets->Has(number)) own_ = writer.own_buckets;
    }
  }
  EvictionLock(const EvictionLock&) = delete;
  ~EvictionLock() {
    if (is_locked_) lock_.Unlock(changed);
    if (own_ != nullptr && changed) own_->MarkChanged();
  }
  bool IsLocked() const { return is_locked_ || own_ != nullptr; }
  // Whether the thread had locked it already. Then entries must stay where they are.
  bool IsOwn() const { return own_ != nullptr; }
  bool Spares(std::uint32_t handle) const { return own_ != nullptr && own_->Names(handle); }
  bool changed = false;

 private:
  sync::VersionLock lock_;
  bool is_locked_;
  OwnBuckets* own_ = nullptr;
};

// The functions below that the space calls.
template <class Space>
void BucketIndex<Space>::OfferEviction() {
  if constexpr (LimitedRecordSpace<Space>) {
    if (!IsLimited()) return;
    space_.limit()->SetEvictor({this,
                                [](void* index, sync::WriterState& writer, unsigned wanted) {
                                  return static_cast<BucketIndex*>(index)->Evict(static_cast<WriterState&>(writer), wanted);
                                },
                                [](void* index, sync::WriterState& writer, Part part, RecordLimit::Mover move) {
                                  return static_cast<BucketIndex*>(index)->EvictPart(static_cast<WriterState&>(writer), part, move);
                                },
                                [](void* index, sync::WriterState& writer, Part part, RecordLimit::Surveyor visit) {
                                  static_cast<BucketIndex*>(index)->Survey(static_cast<WriterState&>(writer), part, visit);
                                }});
  }
}

// A Get has found its record in this entry; nullptr: it has found none.
template <class Space>
HAKO_INLINE void BucketIndex<Space>::NoteFetched([[maybe_unused]] const Line* line, [[maybe_unused]] unsigned i) const {
  if constexpr (LimitedRecordSpace<Space>) {
    RecordLimit* const limit = space_.limit();
    if (limit == nullptr) return;
    limit->counts().Add(line != nullptr);
    if (line != nullptr) limit->uses().MarkUsed(*line, i);
  }
}

template <class Space>
void BucketIndex<Space>::CountFetched([[maybe_unused]] bool found) const {
  if constexpr (LimitedRecordSpace<Space>) {
    if (IsLimited()) space_.limit()->counts().Add(found);
  }
}

template <class Space>
void BucketIndex<Space>::NoteEntry([[maybe_unused]] const Line& line, [[maybe_unused]] unsigned i, [[maybe_unused]] bool is_new) {
  if constexpr (LimitedRecordSpace<Space>) {
    is_new ? space_.limit()->uses().Forget(line, i) : space_.limit()->uses().MarkUsed(line, i);
  }
}

template <class Space>
void BucketIndex<Space>::MoveEntry([[maybe_unused]] const Line& from, [[maybe_unused]] unsigned i, [[maybe_unused]] const Line& to,
                                   [[maybe_unused]] unsigned j) const {
  if constexpr (LimitedRecordSpace<Space>) {
    if (IsLimited()) space_.limit()->uses().Move(from, i, to, j);
  }
}

// Before this many new records are inserted; their buckets are locked, so that they are not evicted
// themselves.
template <class Space>
void BucketIndex<Space>::EvictForInsertion([[maybe_unused]] WriterState& writer, [[maybe_unused]] std::uint64_t inserted) {
  if constexpr (LimitedRecordSpace<Space>) {
    RecordLimit& limit = *space_.limit();
    if (!writer.is_counted) {
      writer.is_counted = true;
      limit.AddWriter();
    }
    if (limit.capacity().records != 0) {
      const std::int64_t most = limit.RecordsMost(kCountBatch);
      const auto count = [&] {
        return count_.load(std::memory_order_relaxed) + writer.pending_count.load(std::memory_order_relaxed) +
               static_cast<std::int64_t>(inserted);
      };
      while (count() > most && Evict(writer, static_cast<unsigned>(std::min<std::int64_t>(count() - most, kEvictedAtOnce))) > 0) {
      }
    }
    if (limit.IsExtentAsked()) [[unlikely]]
      space_.ReserveExtents(writer);
  }
}

template <class Space>
unsigned BucketIndex<Space>::Evict(WriterState& writer, unsigned wanted) {
  unsigned evicted = 0;
  if constexpr (LimitedRecordSpace<Space>) {
    const std::uint64_t steps = (num_lines() + kEvictionGroup - 1) / kEvictionGroup;
    // The first round may only clear the bits of used records.
    for (std::uint64_t tries = 0; tries < 3 * steps && evicted < wanted; ++tries) evicted += EvictStep(writer, space_.limit()->NextStep());
  }
  return evicted;
}

template <class Space>
unsigned BucketIndex<Space>::EvictStep([[maybe_unused]] WriterState& writer, [[maybe_unused]] std::uint64_t step) {
  unsigned evicted = 0;
  if constexpr (LimitedRecordSpace<Space>) {
    const LineUses& uses = space_.limit()->uses();
    const std::uint64_t lines = num_lines(), steps = (lines + kEvictionGroup - 1) / kEvictionGroup;
    const std::uint64_t first = step % steps * kEvictionGroup;
    const auto n = static_cast<unsigned>(std::min<std::uint64_t>(kEvictionGroup, lines - first));
    unsigned total = 0, fresh = 0;
    for (unsigned h = 0; h < n; ++h) {
      ForEachLine(lines_.Home(first + h), [&](Line& line, std::uint32_t entries) {
        if (const std::uint32_t proven = entries & uses.Used(line) & ~uses.Kept(line); proven != 0) uses.Keep(line, proven);
        total += static_cast<unsigned>(std::popcount(entries));
        fresh += static_cast<unsigned>(std::popcount(entries & ~uses.Kept(line)));
      });
    }
    Quota quota;
    const unsigned quota_of_all = std::clamp((total + kEvictedOf / 2) / kEvictedOf, 1u, kEvictedAtOnce);
    quota.fresh = fresh > total / 4 ? std::min(quota_of_all, fresh - total / 4) : 0;
    quota.kept = quota_of_all - quota.fresh;
    const auto start = static_cast<unsigned>(step / steps * 5 % n);  // not always at the first bucket
    for (unsigned h = 0; h < n && (quota.fresh | quota.kept) != 0; ++h) evicted += EvictIn(writer, first + (start + h) % n, &quota);
  }
  return evicted;
}

template <class Space>
unsigned BucketIndex<Space>::EvictIn([[maybe_unused]] WriterState& writer, [[maybe_unused]] std::uint64_t index,
                                     [[maybe_unused]] Quota* quota) {
  unsigned evicted = 0;
  if constexpr (LimitedRecordSpace<Space>) {
    const LineUses& uses = space_.limit()->uses();
    Line& home = lines_.Home(index);
    EvictionLock lock(*this, writer, index);
    if (!lock.IsLocked()) return 0;
    std::size_t chain = 0, left_entries = 0;
    ForEachLine(home, [&](Line& line, std::uint32_t entries) {
      ++chain;
      left_entries += static_cast<std::size_t>(std::popcount(entries));
      for (std::uint32_t mask = entries; mask != 0; mask &= mask - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(mask));
        const std::uint32_t bit = 1u << i;
        const bool is_kept = (uses.Kept(line) & bit) != 0;
        unsigned& left = is_kept ? quota->kept : quota->fresh;
        if (left == 0) continue;
        if ((uses.Used(line) & bit) != 0) {
          if (is_kept) uses.ForgetUses(line, bit);
          continue;
        }
        if (lock.Spares(LoadSlot(line, i)) || !EvictEntry(writer, line, i)) continue;
        lock.changed = true;
        --left;
        --left_entries;
        ++evicted;
      }
    });
    // Not as soon as an overflow bucket could go, or insertions would soon want it back.
    if (evicted != 0 && chain > 1 && left_entries + kEvictionSlack <= format::kLinkEntry * (chain - 1) && !lock.IsOwn())
      Compact(home, chain, left_entries);
  }
  return evicted;
}

// See RecordLimit::Survey.
template <class Space>
void BucketIndex<Space>::Survey([[maybe_unused]] WriterState& writer, [[maybe_unused]] Part part,
                                [[maybe_unused]] RecordLimit::Surveyor visit) {
  if constexpr (LimitedRecordSpace<Space>) {
    ForEachRecordIn(writer, part, [&](EvictionLock&, Line& line, unsigned i, std::uint32_t handle) {
      const StatusOr<RecordView> record = space_.View(writer, handle);
      if (record.ok() && IsEvictable(*record)) visit(handle, IsUsed(line, i));
    });
  }
}

// See RecordLimit::EvictPart.
template <class Space>
unsigned BucketIndex<Space>::EvictPart([[maybe_unused]] WriterState& writer, [[maybe_unused]] Part part,
                                       [[maybe_unused]] RecordLimit::Mover move) {
  unsigned evicted = 0;
  if constexpr (LimitedRecordSpace<Space>) {
    ForEachRecordIn(writer, part, [&](EvictionLock& lock, Line& line, unsigned i, std::uint32_t) {
      if (IsUsed(line, i) && MoveRecord(writer, line, i, move)) {
        lock.changed = true;
      } else if (EvictEntry(writer, line, i)) {
        lock.changed = true;
        ++evicted;
      }
    });
  }
  return evicted;
}

// Calls visit(lock, line, i, handle) for each record that begins in the part, unless its bucket cannot be
// locked.
template <class Space>
template <class F>
void BucketIndex<Space>::ForEachRecordIn([[maybe_unused]] WriterState& writer, [[maybe_unused]] Part part, [[maybe_unused]] F&& visit) {
  if constexpr (LimitedRecordSpace<Space>) {
    const auto visit_named = [&](std::uint32_t handle, std::uint64_t hash) {
      const std::uint64_t index = shape().IndexOf(hash);
      EvictionLock lock(*this, writer, index);
      const Place place = Locate(hash, shape());
      if (!lock.IsLocked() || place.index != index) return false;
      const auto [line, i] = EntryOf(lines_.Home(index), place.TagOf(hash), handle);
      if (line != nullptr && !lock.Spares(handle)) visit(lock, *line, i, handle);
      return line != nullptr;
    };
    space_.ForEachBlockIn(
        part, [this](std::uint64_t hash) { PrefetchHome(hash); }, visit_named);
  }
}

// The entry of a locked chain that has this tag and handle: its line, or nullptr, and its number in it.
template <class Space>
std::pair<format::BucketLine*, unsigned> BucketIndex<Space>::EntryOf(Line& home, std::uint16_t tag, std::uint32_t handle) const {
  Line* line = &home;
  for (unsigned hops = 0; line != nullptr && hops <= kMaxHops; ++hops) {
    const std::uint32_t header = Header(*line);
    for (std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0; mask &= mask - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(mask));
      if (LoadSlot(*line, i) == handle) return {line, i};
    }
    line = HasLink(header) ? lines_.Overflow(LoadSlot(*line, format::kLinkEntry)) : nullptr;
  }
  return {nullptr, 0};
}

// Whether a record was used since the hand was there, or proved itself before.
template <class Space>
bool BucketIndex<Space>::IsUsed([[maybe_unused]] const Line& line, [[maybe_unused]] unsigned i) const {
  bool is_used = false;
  if constexpr (LimitedRecordSpace<Space>) {
    const LineUses& uses = space_.limit()->uses();
    is_used = ((uses.Used(line) | uses.Kept(line)) >> i & 1) != 0;
  }
  return is_used;
}

// Moves the record of an entry whose bucket is locked. False if another writer holds its key, or if it is not
// to be moved.
template <class Space>
bool BucketIndex<Space>::MoveRecord([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& line, [[maybe_unused]] unsigned i,
                                    [[maybe_unused]] RecordLimit::Mover move) {
  if constexpr (LimitedRecordSpace<Space>) {
    const std::uint32_t handle = LoadSlot(line, i);
    const StatusOr<RecordView> record = space_.View(writer, handle);
    if (!record.ok() || !IsEvictable(*record)) return false;
    const std::uint32_t fresh = move(handle);
    if (fresh == 0) return false;
    space_.NoteMove(handle, fresh);
    StoreSlot(line, i, fresh);
    space_.Retire(writer, handle);
  }
  return true;
}

// Evicts a record of a bucket that the caller has locked, one that is not popular if there is one.
template <class Space>
bool BucketIndex<Space>::EvictOfChain([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& home) {
  bool is_evicted = false;
  if constexpr (LimitedRecordSpace<Space>) {
    const LineUses& uses = space_.limit()->uses();
    for (const bool spares_popular : {true, false}) {
      ForEachLine(home, [&](Line& line, std::uint32_t entries) {
        if (spares_popular) entries &= ~(uses.Used(line) | uses.Kept(line));
        for (; entries != 0 && !is_evicted; entries &= entries - 1)
          is_evicted = EvictEntry(writer, line, static_cast<unsigned>(std::countr_zero(entries)));
      });
    }
  }
  return is_evicted;
}

template <class Space>
bool BucketIndex<Space>::IsEvictable(const RecordView& record) {
  return !(space_.gate().IsBusy() && space_.gate().IsHeld(space_.KeyHash(record.key)));
}

// Removes the record of an entry whose bucket is locked. False if another writer holds its key, or if
// the removal cannot be logged.
template <class Space>
bool BucketIndex<Space>::EvictEntry([[maybe_unused]] WriterState& writer, [[maybe_unused]] Line& line, [[maybe_unused]] unsigned i) {
  if constexpr (LimitedRecordSpace<Space>) {
    const std::uint32_t handle = LoadSlot(line, i);
    const StatusOr<RecordView> record = space_.View(writer, handle);
    if (!record.ok() || !IsEvictable(*record)) return false;
    if (!update::LogEviction(space_, writer, record->key)) return false;
    space_.limit()->NoteEvicted(record->key, record->value);
    writer.evictions.store(writer.evictions.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    space_.NoteMove(handle, 0);
    space_.Retire(writer, handle);
    StoreSlot(line, i, 0);
    StoreTag(line, i, 0);
    space_.limit()->uses().Forget(line, i);
    // Not FlushCount, which could split a bucket.
    const std::int64_t pending = writer.pending_count.load(std::memory_order_relaxed) - 1;
    const bool is_batch = pending <= -kCountBatch;
    if (is_batch) count_.fetch_add(pending, std::memory_order_acq_rel);
    writer.pending_count.store(is_batch ? 0 : pending, std::memory_order_relaxed);
  }
  return true;
}

// Calls visit(line, mask of its entries) for each line of a chain, whose bucket need not be locked.
template <class Space>
template <class F>
void BucketIndex<Space>::ForEachLine(Line& home, F&& visit) const {
  Line* line = &home;
  for (unsigned hops = 0; line != nullptr && hops <= kMaxHops; ++hops) {
    const std::uint32_t header = Header(*line);
    std::uint32_t entries = 0;
    for (unsigned i = 0; i < EntriesIn(header); ++i) entries |= static_cast<std::uint32_t>(LoadSlot(*line, i) != 0) << i;
    visit(*line, entries);
    line = HasLink(header) ? lines_.Overflow(LoadSlot(*line, format::kLinkEntry)) : nullptr;
  }
}

}  // namespace hako::hash
