// Definitions of hash/bucket_index.h: changes of several keys that are one step for other threads.
#pragma once

#include <algorithm>
#include <numeric>
#include <tuple>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/hash/bucket_index.h"

namespace hako::hash {

// The buckets of several hashes, locked in ascending order and unlocked at the end of the scope.
template <class Space>
class BucketIndex<Space>::LockedHomes {
 public:
  // Reserves room for `count` hashes, so that Lock does not allocate.
  LockedHomes(BucketIndex& index, std::size_t count) : index_(index) { homes_.reserve(count); }
  LockedHomes(const LockedHomes&) = delete;
  ~LockedHomes() { Unlock(); }

  // Locks the buckets of hash_of(i) for each i < count. Starts again only if one of the hashes has
  // another bucket by the time its bucket is locked; a locked bucket is not split. REQUIRES: none
  // is locked
  template <class HashOf>
  void Lock(std::size_t count, HashOf&& hash_of) {
    for (;;) {
      shape_ = index_.shape();
      for (std::size_t i = 0; i < count; ++i) homes_.push_back({shape_.IndexOf(hash_of(i))});
      std::ranges::sort(homes_, {}, &Home::index);
      const auto same = [](const Home& a, const Home& b) { return a.index == b.index; };
      homes_.erase(std::unique(homes_.begin(), homes_.end(), same), homes_.end());
      for (const Home& home : homes_) sync::VersionLock(index_.lines_.Home(home.index).header).Lock();
      const TableShape before = std::exchange(shape_, index_.shape());
      std::size_t i = shape_.word() == before.word() ? count : 0;
      while (i < count && shape_.IndexOf(hash_of(i)) == before.IndexOf(hash_of(i))) ++i;
      if (i == count) return;
      Unlock();
    }
  }
  void Unlock() {
    for (const Home& home : homes_) sync::VersionLock(index_.lines_.Home(home.index).header).Unlock(home.changed);
    // clear() would free the memory that the next Lock relies on.
    homes_.erase(homes_.begin(), homes_.end());
  }
  bool IsEmpty() const { return homes_.empty(); }
  // REQUIRES: the hash's bucket is locked
  Place PlaceOf(std::uint64_t hash) const { return Locate(hash, shape_); }
  void MarkChanged(std::uint64_t hash) { std::ranges::lower_bound(homes_, shape_.IndexOf(hash), {}, &Home::index)->changed = true; }

 private:
  struct Home {
    std::uint64_t index;
    bool changed = false;
  };
  BucketIndex& index_;
  // As of the last Lock. In the latest shape the locked buckets are the same.
  TableShape shape_{0};
  absl::InlinedVector<Home, kUsualKeys> homes_;  // locked, ascending
};

// A writer's access to several buckets. All of them stay locked from the beginning to the end, so
// other threads see all of the change or none of it. While long values are written, the keys are
// held instead (sync/write_gate.h), and other threads see nothing yet.
//
//   1. Decide on every key; nothing changes.
//   2. Do everything that can fail, so that it can be undone: write the new records, and make
//      entries for the new keys.
//   3. Store into the existing entries.
// A process that is killed during steps 2 and 3 leaves some keys changed and others not.
template <class Space>
template <class ActionT>
class BucketIndex<Space>::MultiGuard {
 public:
  // Calls is_blocked(hash) for the keys once all their buckets are locked. Unlocks the buckets
  // again if it returns true for any key.
  MultiGuard(BucketIndex& index, WriterState& writer, std::span<const std::string_view> keys, IsBlocked is_blocked)
      : index_(index), writer_(writer), keys_(keys), is_blocked_(is_blocked), homes_(index, keys.size()) {
    for (const std::string_view key : keys) records_.push_back({.hash = index.space_.KeyHash(key)});
    index.PrefetchRecords(std::min(keys.size(), kPrefetchGroup), [this](std::size_t i) { return records_[i].hash; });
    writer.Enter();
    busy_.emplace(writer);
    Lock();
    if (!IsLocked()) return;
    index.ReadRecords(*ahead_, std::min(keys.size(), kPrefetchGroup), [this](std::size_t i) { return records_[i].hash; });
    JoinEqualKeys();
  }
  MultiGuard(const MultiGuard&) = delete;
  ~MultiGuard() = default;
  bool IsLocked() const { return !homes_.IsEmpty(); }

  Status Decide(MultiVisitorRef<ActionT> visit) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Record& record = records_[records_[i].first];
      if (&record == &records_[i]) HAKO_RETURN_IF_ERROR(Find(i));
      std::optional<std::string_view> value;  // as the earlier actions leave it
      if (record.action.kind() == ActionT::Kind::kSet) {
        value = record.action.value();
      } else if (record.action.kind() == ActionT::Kind::kKeep && record.handle != 0) {
        HAKO_ASSIGN_OR_RETURN(const RecordView view, index_.space_.View(writer_, record.handle));
        value = view.value;
      }
      const std::optional<ActionT> action = visit(i, value);
      if (!action) return MismatchError();
      if (action->kind() != ActionT::Kind::kKeep) record.action = *action;
    }
    return absl::OkStatus();
  }

  // Writes long values while the keys are held instead of their buckets locked. The thread stays a
  // writer, so the epoch does not end.
  Status WriteLong() {
    const auto is_long = [](const Record& record) {
      return record.action.kind() == ActionT::Kind::kSet && record.action.value().size() > kLongValue;
    };
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

  // Replaces Decide for records that are already written.
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
      if (status.ok()) status = MakeEntries();
    }
    HAKO_CATCH_NO_MEMORY(status = NoMemoryError();)
    if (!status.ok()) {
      Undo();
      return status;
    }
    std::int64_t delta = 0;
    // Stores before removals: a process killed while it moves a value to another key may leave it
    // under both keys, but never under none.
    for (Record& record : records_) {
      if (record.fresh == 0) continue;
      homes_.MarkChanged(record.hash);
      if (record.handle == 0) {
        ++delta;
      } else {
        Replace(record);
      }
      index_.space_.Commit(record.fresh);
    }
    for (Record& record : records_) {
      if (record.action.kind() != ActionT::Kind::kRemove || record.handle == 0) continue;
      homes_.MarkChanged(record.hash);
      Replace(record);
      --delta;
    }
    index_.space_.ReleaseFreed(writer_);
    homes_.Unlock();
    // In steps, so that splits keep their usual pace.
    for (; delta > kCountBatch; delta -= kCountBatch) index_.AddToCount(writer_, kCountBatch);
    if (delta != 0) index_.AddToCount(writer_, delta);
    return status;
  }

 private:
  // The state of a key. Of equal keys only the first uses more than `hash` and `first`.
  struct Record {
    std::uint64_t hash;
    std::size_t first = 0;
    std::uint32_t handle = 0;  // of the current record; 0 = none
    std::uint32_t fresh = 0;   // of the new record; 0 = none
    bool entered = false;      // a new entry names `fresh`
    format::Lengths lengths = {};
    ActionT action = ActionT::Keep();
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
      if (!blocked && !closed && !is_held) return;
      homes_.Unlock();
      if (blocked) return;
      writer_.Leave();
      if (is_held) gate.WaitUntilReleased(held->hash);
      gate.WaitUntilOpen();
      writer_.Enter();
    }
  }
  bool IsAnyBlocked() const {
    return std::ranges::any_of(records_, [this](const Record& record) { return is_blocked_(record.hash); });
  }
  void JoinEqualKeys() {
    absl::InlinedVector<std::size_t, kUsualKeys> order(keys_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [this](std::size_t i) { return std::tuple(records_[i].hash, keys_[i], i); });
    for (std::size_t at = 0; at < order.size(); ++at) {
      const std::size_t i = order[at];
      const bool again = at != 0 && records_[order[at - 1]].hash == records_[i].hash && keys_[order[at - 1]] == keys_[i];
      records_[i].first = again ? records_[order[at - 1]].first : i;
    }
  }

  LentGuard Lend(const Record& record) { return LentGuard(index_, writer_, homes_.PlaceOf(record.hash)); }

  Status Find(std::size_t i) {
    Record& record = records_[i];
    const LentGuard guard = Lend(record);
    Entry entry;
    HAKO_RETURN_IF_ERROR(index_.Find(writer_, guard, record.hash, keys_[i], &entry));
    record.handle = entry.handle;
    record.lengths = entry.lengths;
    return absl::OkStatus();
  }

  // False, and no key is held, if there are too many, or if one was blocked before it was held.
  bool HoldAll() {
    bool held = true;
    for (const Record& record : records_) held = held && (&records_[record.first] != &record || hold_.Add(record.hash));
    if (held && !IsAnyBlocked()) return true;
    hold_.Release();
    return false;
  }

  Status Write() {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Record& record = records_[i];
      if (record.action.kind() != ActionT::Kind::kSet || record.fresh != 0) continue;
      Status status;
      record.fresh = index_.space_.Write(writer_, record.hash, keys_[i], record.action.value(), &status);
      if (record.fresh == 0) return status;
    }
    return absl::OkStatus();
  }

  Status MakeEntries() {
    for (Record& record : records_) {
      if (record.fresh == 0 || record.handle != 0) continue;
      LentGuard guard = Lend(record);
      HAKO_RETURN_IF_ERROR(index_.template Insert<false>(guard, record.hash, [&record](Status*) { return record.fresh; }));
      record.entered = true;
    }
    return absl::OkStatus();
  }

  void Undo() {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Record& record = records_[i];
      if (record.entered) {
        index_.space_.NoteMove(record.fresh, 0);
        ChangeEntry(record, record.fresh, 0);
      }
      if (record.fresh == 0) continue;
      homes_.MarkChanged(record.hash);
      if (record.action.kind() != ActionT::Kind::kSet) continue;  // Take's records existed before
      index_.space_.GiveBack(writer_, record.fresh, keys_[i].size(), record.action.value().size());
    }
    index_.space_.ReleaseFreed(writer_);
  }

  // Makes the record's entry name `fresh` instead of `handle`.
  void Replace(Record& record) {
    index_.space_.NoteMove(record.handle, record.fresh);
    index_.space_.Retire(writer_, record.handle, record.lengths);
    ChangeEntry(record, record.handle, record.fresh);
  }

  // Makes the entry that names `handle`, wherever insertions have moved it, name `other`; 0 =
  // empties it.
  void ChangeEntry(const Record& record, std::uint32_t handle, std::uint32_t other) {
    Line& home = index_.lines_.Home(homes_.PlaceOf(record.hash).index);
    const Status status = index_.ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t found) {
      if (found != handle) return;
      StoreSlot(line, i, other);
      if (other == 0) StoreTag(line, i, 0);
    });
    HAKO_ASSERT(status.ok());  // Find followed the chain under this lock
  }

  BucketIndex& index_;
  WriterState& writer_;
  std::span<const std::string_view> keys_;
  const IsBlocked is_blocked_;
  absl::InlinedVector<Record, kUsualKeys> records_;  // one per key
  sync::KeyHold hold_{index_.space_.gate()};
  std::optional<sync::LeaveAtEnd> busy_;
  LockedHomes homes_;
  std::optional<typename Space::Ahead> ahead_{std::in_place};  // records that locked buckets name
};

template <class Space>
template <class ActionT>
Status BucketIndex<Space>::ProcessMulti(WriterState& writer, std::span<const std::string_view> keys, MultiVisitorRef<ActionT> visit) {
  return TryProcessMulti<ActionT>(writer, keys, visit, [](std::uint64_t) { return false; }).status();
}

template <class Space>
template <class ActionT>
StatusOr<bool> BucketIndex<Space>::TryProcessMulti(WriterState& writer, std::span<const std::string_view> keys,
                                                   MultiVisitorRef<ActionT> visit, IsBlocked is_blocked) {
  if (keys.empty()) return true;
  MultiGuard<ActionT> guard(*this, writer, keys, is_blocked);
  if (!guard.IsLocked()) return false;
  HAKO_RETURN_IF_ERROR(guard.Decide(visit));
  HAKO_RETURN_IF_ERROR(guard.WriteLong());
  HAKO_RETURN_IF_ERROR(guard.Apply());
  return true;
}

template <class Space>
template <class ActionT>
StatusOr<bool> BucketIndex<Space>::PublishMulti(WriterState& writer, std::span<const std::string_view> keys,
                                                std::span<const std::uint32_t> handles) {
  const auto is_held = [this](std::uint64_t hash) { return space_.gate().IsHeld(hash); };
  MultiGuard<ActionT> guard(*this, writer, keys, is_held);
  if (!guard.IsLocked()) return false;
  HAKO_RETURN_IF_ERROR(guard.Take(handles));
  HAKO_RETURN_IF_ERROR(guard.Apply());
  return true;
}

template <class Space>
template <class Record, class F>
void BucketIndex<Space>::RunLocked(WriterState& writer, std::span<const Record> records, F&& body) {
  LockedHomes homes(*this, records.size());
  writer.Enter();
  const sync::LeaveAtEnd leave(writer);
  for (;;) {
    homes.Lock(records.size(), [records](std::size_t i) { return records[i].key_hash; });
    if (!space_.gate().IsClosed()) break;
    homes.Unlock();
    writer.Leave();
    space_.gate().WaitUntilOpen();
    writer.Enter();
  }
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    Line& home = lines_.Home(homes.PlaceOf(records[i].key_hash).index);
    const Status chain = ForEachEntry(home, [&](Line&, unsigned, std::uint32_t handle) {
      if (handle == records[i].handle) mask |= std::uint64_t{1} << i;
    });
    (void)chain;  // a broken chain is reported by the next call that needs the rest of it
  }
  body(mask);
}

}  // namespace hako::hash
