// Evicts records from a hash table whose space has a limit. See hash/record_limit.h for the policy. A
// space without a limit has the same interface, which does nothing.
//
// Thread-safe. The evicting thread may have locked other buckets, so it never waits for the lock of
// a bucket.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>

#include "hako/base/inline.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/hash/capture_list.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/record_count.h"
#include "hako/hash/record_limit.h"
#include "hako/hash/record_space.h"
#include "hako/hash/record_view.h"
#include "hako/hash/table_shape.h"
#include "hako/sync/version_lock.h"
#include "hako/update/logging.h"

namespace hako::hash {

template <class Space>
class BucketEviction {
  using Line = format::BucketLine;
  using WriterState = typename Space::WriterState;

 public:
  BucketEviction(Space&, LineTable<Space>&, RecordCount&, const CaptureList<Space>&) {}
  static constexpr bool IsOn() { return false; }
  static void NoteFetched(const Line*, unsigned) {}
  static void CountFetched(bool) {}
  static void NoteUse(const Line&, unsigned) {}
  static void NoteNew(const Line&, unsigned) {}
  static void EvictForInsertion(WriterState&, std::uint64_t) {}
  static bool EvictOfChain(WriterState&, Line&) { return false; }
};

template <LimitedRecordSpace Space>
class BucketEviction<Space> {
  using Line = format::BucketLine;
  using WriterState = typename Space::WriterState;

 public:
  // Registers this object's functions with the space, which calls them to evict and move records.
  BucketEviction(Space& space, LineTable<Space>& lines, RecordCount& count, const CaptureList<Space>& captures)
      : space_(space), limit_(space.limit()), lines_(lines), count_(count), captures_(captures) {
    if (!IsOn()) return;
    limit_->SetEvictor({this,
                        [](void* eviction, sync::WriterState& writer, unsigned wanted) {
                          return static_cast<BucketEviction*>(eviction)->Evict(static_cast<WriterState&>(writer), wanted);
                        },
                        [](void* eviction, sync::WriterState& writer, Part part, RecordLimit::Mover move) {
                          return static_cast<BucketEviction*>(eviction)->EvictPart(static_cast<WriterState&>(writer), part, move);
                        },
                        [](void* eviction, sync::WriterState& writer, Part part, RecordLimit::Surveyor visit) {
                          static_cast<BucketEviction*>(eviction)->Survey(static_cast<WriterState&>(writer), part, visit);
                        }});
  }
  BucketEviction(const BucketEviction&) = delete;

  // Whether the space has a limit. All functions below require this, except NoteFetched and
  // CountFetched.
  HAKO_INLINE bool IsOn() const { return limit_ != nullptr; }

  // Call this when a Get has found its record in this entry, or with nullptr if it has found none.
  HAKO_INLINE void NoteFetched(const Line* line, unsigned i) const {
    if (!IsOn()) return;
    limit_->counts().Add(line != nullptr);
    if (line != nullptr) limit_->uses().MarkUsed(*line, i);
  }
  void CountFetched(bool found) const {
    if (IsOn()) limit_->counts().Add(found);
  }
  [[gnu::noinline]] void NoteUse(const Line& line, unsigned i) const { limit_->uses().MarkUsed(line, i); }
  // Call this when the entry names a new record.
  [[gnu::noinline]] void NoteNew(const Line& line, unsigned i) const { limit_->uses().Forget(line, i); }

  // Call this before `inserted` new records are inserted, with their buckets locked, so that the
  // new records are not evicted.
  [[gnu::noinline]] void EvictForInsertion(WriterState& writer, std::uint64_t inserted) {
    if (!writer.is_counted) {
      writer.is_counted = true;
      limit_->AddWriter();
    }
    if (limit_->capacity().records != 0) {
      const std::int64_t most = limit_->RecordsMost(RecordCount::kBatch);
      const auto count = [&] { return count_.Near(writer) + static_cast<std::int64_t>(inserted); };
      while (count() > most && Evict(writer, static_cast<unsigned>(std::min<std::int64_t>(count() - most, kEvictedAtOnce))) > 0) {
      }
    }
    if (limit_->IsExtentAsked()) [[unlikely]]
      space_.ReserveExtents(writer);
  }

  // Evicts a record of a bucket that the caller has locked, preferably one that is seldom used.
  [[gnu::noinline]] bool EvictOfChain(WriterState& writer, Line& home) {
    HAKO_DCHECK(sync::VersionLock(home.header).IsLocked());
    bool is_evicted = false;
    const LineUses& uses = limit_->uses();
    for (const bool spares_popular : {true, false}) {
      ForEachLine(home, [&](Line& line, std::uint32_t entries) {
        if (spares_popular) entries &= ~(uses.Used(line) | uses.Kept(line));
        for (; entries != 0 && !is_evicted; entries &= entries - 1)
          is_evicted = EvictEntry(writer, line, static_cast<unsigned>(std::countr_zero(entries)));
      });
    }
    return is_evicted;
  }

 private:
  static constexpr std::uint64_t kGroup = 16;     // buckets that the hand visits in a step
  static constexpr unsigned kEvictedAtOnce = 10;  // records that it evicts at most in a step
  static constexpr std::size_t kSlack = 2;        // a chain loses an overflow bucket if it then still has this many free entries
  using Quota = RecordLimit::Quota;

  // A bucket that is locked to evict records, unless another thread has locked it.
  class BucketLock {
   public:
    BucketLock(const BucketEviction& eviction, WriterState& writer, std::uint64_t number)
        : lock_(eviction.lines_.Home(number).header), is_locked_(lock_.TryLock()) {
      if (is_locked_) eviction.captures_.CaptureIfAsked(writer, number);
      if (!is_locked_ && writer.own_buckets != nullptr && writer.own_buckets->Has(number)) own_ = writer.own_buckets;
    }
    BucketLock(const BucketLock&) = delete;
    ~BucketLock() {
      if (is_locked_) lock_.Unlock(changed);
      if (own_ != nullptr && changed) own_->MarkChanged();
    }
    bool IsLocked() const { return is_locked_ || own_ != nullptr; }
    // Whether the thread had locked the bucket before. Then entries must not move.
    bool IsOwn() const { return own_ != nullptr; }
    bool Spares(std::uint32_t handle) const { return own_ != nullptr && own_->Names(handle); }
    bool changed = false;

   private:
    sync::VersionLock lock_;
    bool is_locked_;
    OwnBuckets* own_ = nullptr;
  };

  unsigned Evict(WriterState& writer, unsigned wanted) {
    unsigned evicted = 0;
    const std::uint64_t steps = (lines_.num_lines() + kGroup - 1) / kGroup;
    // The first round may only clear the bits of used records.
    for (std::uint64_t tries = 0; tries < 3 * steps && evicted < wanted; ++tries) evicted += EvictStep(writer, limit_->NextStep());
    return evicted;
  }

  unsigned EvictStep(WriterState& writer, std::uint64_t step) {
    unsigned evicted = 0;
    const LineUses& uses = limit_->uses();
    const std::uint64_t lines = lines_.num_lines(), steps = (lines + kGroup - 1) / kGroup;
    const std::uint64_t first = step % steps * kGroup;
    const auto n = static_cast<unsigned>(std::min<std::uint64_t>(kGroup, lines - first));
    unsigned total = 0, fresh = 0;
    for (unsigned h = 0; h < n; ++h) {
      ForEachLine(lines_.Home(first + h), [&](Line& line, std::uint32_t entries) {
        if (const std::uint32_t proven = entries & uses.Used(line) & ~uses.Kept(line); proven != 0) uses.Keep(line, proven);
        total += static_cast<unsigned>(std::popcount(entries));
        fresh += static_cast<unsigned>(std::popcount(entries & ~uses.Kept(line)));
      });
    }
    Quota quota;
    const unsigned quota_of_all = std::min(RecordLimit::QuotaOf(total), kEvictedAtOnce);
    quota.fresh = fresh > total / 4 ? std::min(quota_of_all, fresh - total / 4) : 0;
    quota.kept = quota_of_all - quota.fresh;
    const auto start = static_cast<unsigned>(step / steps * 5 % n);  // so that the first bucket is not always the first to be visited
    for (unsigned h = 0; h < n && (quota.fresh | quota.kept) != 0; ++h) evicted += EvictIn(writer, first + (start + h) % n, &quota);
    return evicted;
  }

  unsigned EvictIn(WriterState& writer, std::uint64_t index, Quota* quota) {
    unsigned evicted = 0;
    const LineUses& uses = limit_->uses();
    Line& home = lines_.Home(index);
    BucketLock lock(*this, writer, index);
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
    // Keep an overflow bucket a little longer than needed, because insertions would soon need it
    // again.
    if (evicted != 0 && chain > 1 && left_entries + kSlack <= format::kLinkEntry * (chain - 1) && !lock.IsOwn())
      lines_.Compact(home, chain, left_entries);
    return evicted;
  }

  // See RecordLimit::Survey.
  void Survey(WriterState& writer, Part part, RecordLimit::Surveyor visit) {
    ForEachRecordIn(writer, part, [&](BucketLock&, Line& line, unsigned i, std::uint32_t handle) {
      const StatusOr<RecordView> record = space_.View(writer, handle);
      if (record.ok() && IsEvictable(*record)) visit(handle, IsUsed(line, i));
    });
  }

  // See RecordLimit::EvictPart.
  unsigned EvictPart(WriterState& writer, Part part, RecordLimit::Mover move) {
    unsigned evicted = 0;
    ForEachRecordIn(writer, part, [&](BucketLock& lock, Line& line, unsigned i, std::uint32_t) {
      if (IsUsed(line, i) && MoveRecord(writer, line, i, move)) {
        lock.changed = true;
      } else if (EvictEntry(writer, line, i)) {
        lock.changed = true;
        ++evicted;
      }
    });
    return evicted;
  }

  // Calls visit(lock, line, i, handle) for each record that begins in the part, unless its bucket cannot be
  // locked.
  template <class F>
  void ForEachRecordIn(WriterState& writer, Part part, F&& visit) {
    const auto visit_named = [&](std::uint32_t handle, std::uint64_t hash) {
      const std::uint64_t index = lines_.shape().IndexOf(hash);
      BucketLock lock(*this, writer, index);
      const Place place = Locate(hash, lines_.shape());
      if (!lock.IsLocked() || place.index != index) return false;
      const auto [line, i] = EntryOf(lines_.Home(index), place.TagOf(hash), handle);
      if (line != nullptr && !lock.Spares(handle)) visit(lock, *line, i, handle);
      return line != nullptr;
    };
    space_.ForEachBlockIn(
        part, [this](std::uint64_t hash) { Prefetch(&lines_.Home(lines_.shape().IndexOf(hash))); }, visit_named);
  }

  // Finds the entry with this tag and handle in a locked chain. Returns its line (nullptr = there
  // is none) and its index in the line.
  std::pair<Line*, unsigned> EntryOf(Line& home, std::uint16_t tag, std::uint32_t handle) const {
    Line* line = &home;
    for (unsigned hops = 0; line != nullptr && hops <= lines_.kMaxHops; ++hops) {
      const std::uint32_t header = LoadHeader(*line);
      for (std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0; mask &= mask - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(mask));
        if (LoadSlot(*line, i) == handle) return {line, i};
      }
      line = HasLink(header) ? lines_.Overflow(LoadSlot(*line, format::kLinkEntry)) : nullptr;
    }
    return {nullptr, 0};
  }

  // Whether the record was used since the hand last passed it, or is kept.
  bool IsUsed(const Line& line, unsigned i) const {
    const LineUses& uses = limit_->uses();
    return ((uses.Used(line) | uses.Kept(line)) >> i & 1) != 0;
  }

  // Moves the record of an entry whose bucket is locked. Returns false if another writer holds the
  // key, or `move` declines.
  bool MoveRecord(WriterState& writer, Line& line, unsigned i, RecordLimit::Mover move) {
    const std::uint32_t handle = LoadSlot(line, i);
    const StatusOr<RecordView> record = space_.View(writer, handle);
    if (!record.ok() || !IsEvictable(*record)) return false;
    const std::uint32_t fresh = move(handle);
    if (fresh == 0) return false;
    space_.NoteMove(handle, fresh);
    StoreSlot(line, i, fresh);
    space_.Retire(writer, handle);
    return true;
  }

  bool IsEvictable(const RecordView& record) const { return !(space_.gate().IsBusy() && space_.gate().IsHeld(space_.KeyHash(record.key))); }

  // Removes the record of an entry whose bucket is locked. Returns false if another writer holds
  // its key, or if the removal cannot be logged.
  bool EvictEntry(WriterState& writer, Line& line, unsigned i) {
    const std::uint32_t handle = LoadSlot(line, i);
    const StatusOr<RecordView> record = space_.View(writer, handle);
    if (!record.ok() || !IsEvictable(*record)) return false;
    if (!update::LogEviction(space_, writer, record->key)) return false;
    limit_->NoteEvicted(record->key, record->value);
    writer.evictions.store(writer.evictions.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    space_.NoteMove(handle, 0);
    space_.Retire(writer, handle);
    StoreSlot(line, i, 0);
    StoreTag(line, i, 0);
    limit_->uses().Forget(line, i);
    // The table does not grow here, because buckets are locked.
    const std::int64_t pending = RecordCount::AddTo(writer, -1);
    if (pending <= -RecordCount::kBatch) {
      count_.Add(pending);
      writer.pending_count.store(0, std::memory_order_relaxed);
    }
    return true;
  }

  // Calls visit(line, mask of its entries) for each line of a chain, whose bucket need not be locked.
  template <class F>
  void ForEachLine(Line& home, F&& visit) const {
    Line* line = &home;
    for (unsigned hops = 0; line != nullptr && hops <= lines_.kMaxHops; ++hops) {
      const std::uint32_t header = LoadHeader(*line);
      std::uint32_t entries = 0;
      for (unsigned i = 0; i < EntriesIn(header); ++i) entries |= static_cast<std::uint32_t>(LoadSlot(*line, i) != 0) << i;
      visit(*line, entries);
      line = HasLink(header) ? lines_.Overflow(LoadSlot(*line, format::kLinkEntry)) : nullptr;
    }
  }

  Space& space_;
  RecordLimit* const limit_;
  LineTable<Space>& lines_;
  RecordCount& count_;
  const CaptureList<Space>& captures_;
};

}  // namespace hako::hash
