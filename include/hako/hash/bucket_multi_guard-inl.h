// Definitions of hash/bucket_index.h: a writer's access to several buckets.
#pragma once

#include <algorithm>
#include <bit>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/hash/bucket_index.h"
#include "hako/update/decisions.h"
#include "hako/update/logging.h"

namespace hako::hash {

// A writer's access to several buckets. All of them stay locked from the beginning to the end, so
// other threads see the whole change or nothing. While long values are written, the keys are held
// instead (sync/write_gate.h), and other threads see no change yet.
//
//   1. Decide on every key; nothing changes.
//   2. Make all steps that can fail, which change no entry: write the new records and an intent
//      that lists all changes, and reserve overflow buckets for the entries of new keys.
//   3. Publish the intent, by one store. If the process is killed before this store, nothing has
//      changed. If it is killed later, the next process makes the remaining changes (Redo).
//   4. Store into the entries, and stamp the records: first stamp the new ones as live, then, once
//      no entry names them, the old ones as retired.
//   5. End the intent. Only after that may the old blocks be reused, because the intent names them.
// A single change needs no intent, because one store publishes it. A space whose stores do not
// survive the process has no intents: after a crash it has the state at the end of an epoch, and no
// epoch ends while the thread is a writer.
template <class Space>
template <class ActionT>
class BucketIndex<Space>::MultiGuard {
  static constexpr bool kHasIntents = IntentSpace<Space>;
  static constexpr std::size_t kAhead = 8;  // records that are prefetched
  static constexpr std::size_t kLargeValue = 4096;

 public:
  // Calls is_blocked(hash) for the keys once all their buckets are locked. If it returns true for
  // any key, unlocks the buckets.
  MultiGuard(BucketIndex& index, WriterState& writer, std::span<const std::string_view> keys, IsBlocked is_blocked,
             std::optional<std::uint64_t> applied_index = {})
      : index_(index),
        writer_(writer),
        keys_(keys),
        is_blocked_(is_blocked),
        applied_index_(applied_index),
        homes_(index.lines_, keys.size()) {
    records_.reserve(keys.size());
    for (const std::string_view key : keys) records_.emplace_back().hash = index.space_.KeyHash(key);
    index.PrefetchRecords(std::min(keys.size(), kPrefetchGroup), [this](std::size_t i) { return records_[i].hash; });
    writer.Enter();
    busy_.emplace(writer);
    Lock();
    if (!IsLocked()) return;
    index.ReadRecords(*ahead_, std::min(keys.size(), kPrefetchGroup), [this](std::size_t i) { return records_[i].hash; });
    update::JoinHashed(
        std::span(records_), [this](std::size_t i) { return records_[i].hash; },
        [keys](std::size_t a, std::size_t b) { return keys[a] == keys[b]; });
  }
  MultiGuard(const MultiGuard&) = delete;
  ~MultiGuard() = default;
  bool IsLocked() const { return !homes_.IsEmpty(); }

  // The visitor needs the values of the first `num_shown` keys.
  Status Decide(MultiVisitorRef<ActionT> visit, std::size_t num_shown) {
    std::size_t fetched = kPrefetchGroup;
    const auto show = [&](std::size_t i, const Record& record, std::optional<std::string_view>* value, Status* status) {
      if (i >= fetched) fetched = FetchAhead(i);
      if (&record == &records_[i]) {
        if (Status found = Find(i); !found.ok()) [[unlikely]]
          return *status = std::move(found), false;
      }
      if (record.entry.handle == 0 || i >= num_shown) return true;
      StatusOr<RecordView> view = index_.space_.View(writer_, record.entry.handle);
      if (!view.ok()) [[unlikely]]
        return *status = std::move(view).status(), false;
      *value = view->value;
      return true;
    };
    return update::Decide(std::span(records_), visit, show);
  }

  // Evicts records to make room. Returns an error, and evicts nothing, if the new records need more
  // than half of the limit.
  Status MakeRoom();

  // Writes long values while the keys are held and the buckets are not locked. The thread stays a
  // writer, so the epoch does not end.
  Status WriteLong() {
    const auto is_long = [](const Record& record) { return record.Sets() && record.action.value().size() > kLongValue; };
    if (std::ranges::none_of(records_, is_long) || !HoldAll()) return absl::OkStatus();
    ahead_.reset();  // may be outdated once the buckets are unlocked
    homes_.Unlock();
    Status status = CatchNoMemory([this] { return Write(); });
    Lock();
    // Another thread may have moved the records.
    for (std::size_t i = 0; i < keys_.size() && status.ok(); ++i) {
      if (records_[i].first == i) status = CatchNoMemory([&] { return Find(i); });
    }
    if (!status.ok()) Undo();
    return status;
  }

  // Takes the place of Decide for records that are already written.
  Status Take(std::span<const std::uint32_t> fresh) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      HAKO_RETURN_IF_ERROR(Find(i));
      records_[i].fresh = fresh[i];
    }
    return absl::OkStatus();
  }

  // On error nothing has changed.
  Status Apply() {
    Status status;
    HAKO_TRY {
      status = Write();
      if (status.ok()) status = ReserveOverflow();
      if (status.ok()) status = WriteIntent();
      if (status.ok()) status = Log();
    }
    HAKO_CATCH_NO_MEMORY(status = NoMemoryError();)
    if (!status.ok()) {
      Undo();
      return status;
    }
    unsigned word = 0;
    if constexpr (kHasIntents) {
      if (intent_ != 0) word = index_.space_.PublishIntent(writer_, intent_, applied_index_.has_value());
    }
    std::int64_t delta = 0;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (i + kAhead < records_.size() && records_.size() > kPrefetchGroup) {  // the processor's caches may have lost them
        hako::Prefetch(records_[i + kAhead].entry.line);
        if (const std::uint32_t handle = records_[i + kAhead].entry.handle; handle != 0) index_.space_.Prefetch(handle);
      }
      Record& record = records_[i];
      if (!record.IsChanged()) continue;
      homes_.MarkChanged();
      delta += (record.fresh != 0) - (record.entry.handle != 0);
      if (record.entry.handle == 0) {
        Enter(record);
      } else {
        Replace(record);
      }
      if (record.fresh != 0) index_.space_.Commit(record.fresh);
    }
    if constexpr (kHasIntents) {
      if (intent_ != 0) {
        ForEachRetired([this](Record& record) { index_.space_.StampRetired(record.entry.handle); });
        index_.Store(applied_index_);
        index_.space_.EndIntent(word);
        ForEachRetired([this](Record& record) { index_.space_.FreeRetired(writer_, record.entry.handle, record.entry.lengths); });
        index_.space_.GiveBack(writer_, intent_, 0, entries_.size() * sizeof(entries_[0]));
      }
    }
    if (intent_ == 0) index_.Store(applied_index_);
    index_.space_.ReleaseFreed(writer_);
    homes_.Unlock();
    // Add in steps, so that splits keep their usual pace.
    for (; delta > RecordCount::kBatch; delta -= RecordCount::kBatch) index_.AddToCount(writer_, RecordCount::kBatch);
    if (delta != 0) index_.AddToCount(writer_, delta);
    return status;
  }

 private:
  class Evictable;
  // The state of a key. If keys are equal, only the first uses more than `hash` and `first`.
  struct Record : update::Decision<ActionT> {
    std::uint64_t hash = 0;
    Entry entry = {};         // of the current record; insertions may move it
    std::uint32_t fresh = 0;  // the handle of the new record; 0 = none
    bool IsChanged() const { return fresh != 0 || (entry.handle != 0 && this->Removes()); }
  };
  // A guard of a bucket whose lock LockedHomes owns.
  struct LentGuard : BucketGuard {
    using BucketGuard::BucketGuard;
    ~LentGuard() { this->HandOver(); }
  };

  void Lock() {
    const auto& gate = index_.space_.gate();
    for (;;) {
      homes_.Lock(keys_.size(), [this](std::size_t i) { return records_[i].hash; });
      if (!hold_.IsEmpty()) return;  // other threads wait for a thread that holds keys
      const bool blocked = IsAnyBlocked();
      const bool closed = gate.IsClosed();
      const auto held = std::ranges::find_if(records_, [&gate](const Record& record) { return gate.IsHeld(record.hash); });
      const bool is_held = held != records_.end();
      if (!blocked && !closed && !is_held) return Capture();
      homes_.Unlock();
      if (blocked) return;
      writer_.Leave();
      if (is_held) gate.WaitUntilReleased(held->hash);
      gate.WaitUntilOpen();
      writer_.Enter();
    }
  }
  void Capture() {
    if (!index_.space_.gate().IsCapturing()) [[likely]]
      return;
    homes_.ForEach([this](std::uint64_t home) { index_.captures_.CaptureIfAsked(writer_, home); });
  }
  bool IsAnyBlocked() const {
    return std::ranges::any_of(records_, [this](const Record& record) { return is_blocked_(record.hash); });
  }
  // Prefetches the records of the next keys, or reads them. Returns the end of these keys.
  std::size_t FetchAhead(std::size_t from) {
    const std::size_t n = std::min(keys_.size() - from, kPrefetchGroup);
    const auto hash_of = [this, from](std::size_t i) { return records_[from + i].hash; };
    if constexpr (Space::kReadsAhead)
      index_.ReadRecords(ahead_.emplace(), n, hash_of);
    else
      index_.PrefetchRecords(n, hash_of);
    return from + n;
  }

  LentGuard Lend(const Record& record) { return LentGuard(index_, writer_, homes_.PlaceOf(record.hash)); }

  Status Find(std::size_t i) {
    Record& record = records_[i];
    const LentGuard guard = Lend(record);
    Entry entry;
    HAKO_RETURN_IF_ERROR(index_.Find(writer_, guard, record.hash, keys_[i], &entry));
    record.entry = entry;
    return absl::OkStatus();
  }

  // Holds the keys. Returns false, and holds none, if there are too many keys, or if a key was
  // blocked before it was held.
  bool HoldAll() {
    bool held = true;
    for (const Record& record : records_) held = held && (&records_[record.first] != &record || hold_.Add(record.hash));
    if (held && !IsAnyBlocked()) return true;
    hold_.Release();
    return false;
  }

  Status Write() {
    if constexpr (LimitedRecordSpace<Space>) {
      if (index_.IsLimited()) return WriteWithinLimit();
    }
    return WriteAll();
  }
  Status WriteWithinLimit();
  Status WriteAll() {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Record& record = records_[i];
      if (!record.Sets() || record.fresh != 0) continue;
      HAKO_RETURN_IF_ERROR(WriteOne(record.hash, keys_[i], record.action.value(), &record.fresh));
    }
    return absl::OkStatus();
  }
  Status WriteOne(std::uint64_t hash, std::string_view key, std::string_view value, std::uint32_t* handle) {
    Status status;
    *handle = index_.space_.WriteShort(writer_, hash, key, value);
    if (*handle == 0) *handle = index_.space_.Write(writer_, hash, key, value, &status);
    return status;
  }

  // Takes as many overflow buckets as the entries of new keys will need. Each overflow bucket takes
  // nine of these entries, plus the entry that the link replaces.
  Status ReserveOverflow() {
    for (const Record& record : records_) {
      if (record.fresh != 0 && record.entry.handle == 0) homes_.CountInsertion(record.hash);
    }
    return homes_.ForEachInsertion([this](std::uint64_t home, std::uint32_t insertions) -> Status {
      unsigned hops = 0;
      std::uint32_t room = 0;
      for (Line* line = &index_.lines_.Home(home); line != nullptr;) {
        const std::uint32_t header = LoadHeader(*line);
        room += CountFree(*line, header, insertions - room);
        if (room >= insertions) return absl::OkStatus();
        HAKO_ASSIGN_OR_RETURN(line, index_.lines_.NextLine(*line, header, &hops));
      }
      const std::uint32_t lines = (insertions - room + format::kLinkEntry - 1) / format::kLinkEntry;
      if (lines > kMaxHops - hops) return absl::ResourceExhaustedError("too many of the keys belong to one bucket");
      for (std::uint32_t i = 0; i < lines; ++i) {
        reserved_.reserve(reserved_.size() + 1);
        HAKO_ASSIGN_OR_RETURN(const std::uint32_t id, index_.lines_.NewOverflow());
        reserved_.push_back(id);
      }
      return absl::OkStatus();
    });
  }
  // Counts free entries, up to `most`.
  static std::uint32_t CountFree(Line& line, std::uint32_t header, std::uint32_t most) {
    std::uint32_t count = 0;
    for (std::uint32_t mask = MatchTags(line, 0) & EntryMask(header); mask != 0 && count < most; mask &= mask - 1)
      count += LoadSlot(line, static_cast<unsigned>(std::countr_zero(mask))) == 0;
    return count;
  }

  Status WriteIntent() {
    if constexpr (kHasIntents) {
      for (const Record& record : records_) {
        if (record.IsChanged()) entries_.push_back({record.hash, record.entry.handle, record.fresh});
      }
      if (entries_.empty() || entries_.size() + applied_index_.has_value() < 2) return absl::OkStatus();
      if (applied_index_) entries_.push_back({*applied_index_, 0, 0});
      const std::string_view bytes(reinterpret_cast<const char*>(entries_.data()), entries_.size() * sizeof(entries_[0]));
      return WriteOne(index_.space_.KeyHash({}), {}, bytes, &intent_);
    }
    return absl::OkStatus();
  }

  Status Log() {
    return update::LogBatch(index_.space_, writer_, keys_.size(), applied_index_, [this](update::LogRun& run) {
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        const Record& record = records_[i];
        if (record.Sets()) run.Set(keys_[i], record.action.value());
        if (record.Removes() && record.entry.handle != 0) run.Remove(keys_[i]);
      }
    });
  }

  void Undo() {
    for (const std::uint32_t id : reserved_) index_.lines_.FreeOverflow(id);
    if (intent_ != 0) index_.space_.GiveBack(writer_, intent_, 0, entries_.size() * sizeof(entries_[0]));
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Record& record = records_[i];
      if (record.fresh == 0 || !record.Sets()) continue;  // the records of Take existed before
      index_.space_.GiveBack(writer_, record.fresh, keys_[i].size(), record.action.value().size());
    }
    index_.space_.ReleaseFreed(writer_);
  }

  // Makes the entry of a new key. Cannot fail, because ReserveOverflow has followed the chain under
  // this lock.
  void Enter(Record& record) {
    LentGuard guard = Lend(record);
    const Status status = index_.template Insert<false>(
        guard, record.hash, [&record](Status*) { return record.fresh; },
        [this]() -> StatusOr<std::uint32_t> {
          const std::uint32_t id = reserved_.back();
          reserved_.pop_back();
          return id;
        });
    HAKO_ASSERT(status.ok());
  }

  // Makes the record's entry name `fresh` instead of `handle`. If there is an intent, the old
  // record is retired later.
  void Replace(Record& record) {
    index_.space_.NoteMove(record.entry.handle, record.fresh);
    if (intent_ == 0) index_.space_.Retire(writer_, record.entry.handle, record.entry.lengths);
    ChangeEntry(record, record.fresh);
  }
  template <class F>
  void ForEachRetired(F&& visit) {
    for (Record& record : records_) {
      if (record.entry.handle != 0 && record.IsChanged()) visit(record);
    }
  }

  // Makes the entry of the record name `other` (0 = empties the entry). Finds the entry even if
  // insertions have moved it.
  void ChangeEntry(const Record& record, std::uint32_t other) {
    Line* line = record.entry.line;
    unsigned at = record.entry.i;
    if (at >= EntriesIn(LoadHeader(*line)) || LoadSlot(*line, at) != record.entry.handle) [[unlikely]] {
      Line& home = index_.lines_.Home(homes_.PlaceOf(record.hash).index);
      const Status status = index_.lines_.ForEachEntry(home, [&](Line& each, unsigned i, std::uint32_t handle) {
        if (handle == record.entry.handle) line = &each, at = i;
      });
      HAKO_ASSERT(status.ok());  // Find followed the chain under this lock
    }
    StoreSlot(*line, at, other);
    if (other == 0) StoreTag(*line, at, 0);
  }

  BucketIndex& index_;
  WriterState& writer_;
  std::span<const std::string_view> keys_;
  const IsBlocked is_blocked_;
  const std::optional<std::uint64_t> applied_index_;
  absl::InlinedVector<std::uint32_t, 4> reserved_;                // overflow buckets
  absl::InlinedVector<format::IntentEntry, kUsualKeys> entries_;  // of the intent
  std::uint32_t intent_ = 0;                                      // its handle; 0 = none
  absl::InlinedVector<Record, kUsualKeys> records_;               // one per key
  sync::KeyHold hold_{index_.space_.gate()};
  std::optional<sync::LeaveAtEnd> busy_;
  LockedHomes homes_;
  std::optional<typename Space::Ahead> ahead_{std::in_place};  // records that locked buckets name
};

}  // namespace hako::hash
