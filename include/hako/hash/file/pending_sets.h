// Sets of keys that may exist already, on a file with direct I/O: their records are written, but
// not yet inserted into the index.
//
// To insert such a record, the record that it replaces, or one of another key with the same tag,
// must be read. That read is the largest cost of a Set. So pending Sets are collected, and their
// reads are made together, like a group commit. An operation on one of their keys, or on the whole
// database, flushes them first, so that it sees them.
//
// Invariants
//   1. A pending record was written in the current epoch. No epoch ends and no extent is emptied
//      while a record is pending.
//   2. The keys differ: a second Set of a key replaces the first.
//   3. A Set whose key another thread holds (sync/write_gate.h) does not become pending. The Set
//      checks this again once its key is in the list, and a thread that holds several keys checks
//      the list once it holds them, so one of the two sees the other. If the Set came first, it
//      stays pending until the key is released, and a thread that needs it flushed waits without
//      the mutex.
//   4. A Set stays pending if the record that it may replace cannot be read; an operation that
//      depends on the Set gets the error.
//   5. A ProcessMulti calls its visitor only after it has found, with the buckets of all its keys
//      locked, that no key is pending. Otherwise it could see one Set and miss an earlier one. If a
//      key becomes pending before the keys are held, their buckets stay locked instead, so that no
//      thread sees the Set and later a value that the ProcessMulti replaces.
//   6. The mutex is locked before the gate is passed and before any bucket's lock, so its holder
//      may flush, and stop the writers.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/file/pending_list.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"

namespace hako::hash {

// ActionT is the visitor's decision (dbm/dbm.h).
template <class Space, class ActionT>
class PendingSets {
  using WriterState = typename Space::WriterState;
  using Writers = sync::WriterStates<WriterState>;

 public:
  static constexpr std::size_t kMax = PendingList::kMax;

  PendingSets(Space& space, BucketIndex<Space>& index, Writers& writers) : space_(space), index_(index), writers_(writers) {}

  // Whether a Set of this key should become pending: it may have to read a record.
  bool ShouldWait(std::uint64_t hash, std::string_view key) const {
    return key.size() <= PendingList::kKeyMax && !space_.gate().IsHeld(hash) && (list_.MayHold(hash) || index_.MayHold(hash));
  }

  // Makes a Set pending. A thread that finds the list full flushes it first, so that an error of
  // the flush never concerns its own Set. Starts over if another thread holds the key when the key
  // is in the list.
  // REQUIRES: ShouldWait was true
  Status Set(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value);

  // Flush all pending Sets; the second form only if one of them may have this hash. On error some
  // stay pending.
  HAKO_INLINE Status Flush() { return list_.IsEmpty() ? absl::OkStatus() : FlushSlowly({}); }
  HAKO_INLINE Status Flush(std::uint64_t hash) { return list_.MayHold(hash) ? FlushSlowly(hash) : absl::OkStatus(); }

  // Runs index.ProcessMulti at a moment when no Set of its keys is pending. Checks the list under
  // the locks, because before them a Set may become pending and a later Set of its key may be
  // inserted at once.
  Status ProcessMulti(WriterState& writer, const Batch<ActionT>& batch) {
    const auto is_pending = [this](std::uint64_t hash) { return list_.MayHold(hash); };
    for (;;) {
      HAKO_ASSIGN_OR_RETURN(const bool done, index_.TryProcessMulti(writer, batch, is_pending));
      if (done) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(Flush());
    }
  }

  // Calls body() while no Set is pending or can become pending.
  template <class Body>
  Status RunFlushed(Body&& body) {
    sync::MutexLock lock(mutex_);
    HAKO_RETURN_IF_ERROR(FlushUntilNone({}));
    return body();
  }

 private:
  // In a forked child the mutex may be locked by a thread that the child does not have.
  [[gnu::noinline]] Status FlushSlowly(std::optional<std::uint64_t> hash) HAKO_TRY {
    if (writers_.IsInherited()) [[unlikely]]
      return writers_.CheckOpen();
    sync::MutexLock lock(mutex_);
    return FlushUntilNone(hash);
  }
  HAKO_OR_NO_MEMORY
  Status FlushUntilNone(std::optional<std::uint64_t> hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status FlushLocked(WriterState* writer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Space& space_;
  BucketIndex<Space>& index_;
  Writers& writers_;
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kMaintenanceLocks) ABSL_ACQUIRED_BEFORE(kBucketLocks);
  PendingList list_;  // changed with mutex_ held; IsEmpty and MayHold read it without the mutex
};

template <class Space, class ActionT>
Status PendingSets<Space, ActionT>::Set(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value) {
  HAKO_DCHECK(key.size() <= PendingList::kKeyMax);
  writer.AssertIdle();
  for (;; space_.gate().WaitUntilReleased(hash)) {
    sync::MutexLock lock(mutex_);
    if (!space_.AcceptsWrites()) return space_.Refusal();
    static_assert(kMax > sync::WriteGate::kHoldsMax);  // so that at least one pending Set does not wait for a held key
    while (list_.IsFull()) {
      if (Status flushed = FlushLocked(&writer); !flushed.ok() && list_.IsFull()) return flushed;
    }
    Status status;
    space_.gate().Pass(writer);
    const sync::LeaveAtEnd leave(writer);
    const std::uint32_t handle = space_.Write(writer, hash, key, value, &status);
    if (handle == 0) return status;
    PendingList::Record old = list_.Put(hash, key, {handle, value.size()});
    const bool held = old.handle == 0 && space_.gate().IsHeld(hash);
    if (held) {
      list_.TakeBack();
      old = {handle, value.size()};
    }
    if (old.handle != 0) space_.GiveBack(writer, old.handle, key.size(), old.value_size);
    space_.ReleaseFreed(writer);
    if (!held) return status;
  }
}

// Flushes until no Set is pending, or none with that hash. The mutex is released while another
// thread holds a key that matters.
template <class Space, class ActionT>
Status PendingSets<Space, ActionT>::FlushUntilNone(std::optional<std::uint64_t> hash) {
  for (;;) {
    Status status = FlushLocked(writers_.Mine());
    if (hash ? !list_.MayHold(*hash) : list_.IsEmpty()) return absl::OkStatus();
    if (!status.ok()) return status;
    const std::uint64_t held = hash ? *hash : list_.first_hash();
    sync::MutexUnlock unlocked(mutex_);
    space_.gate().WaitUntilReleased(held);
  }
}

// Flushes pending Sets together, or, if that fails, one by one. Those whose key another thread
// holds stay pending without an error.
template <class Space, class ActionT>
Status PendingSets<Space, ActionT>::FlushLocked(WriterState* writer) {
  if (list_.IsEmpty()) return absl::OkStatus();
  if (writer == nullptr) return writers_.Refusal();
  const auto flush = [&](std::size_t from, std::size_t count) {
    return index_.template PublishMulti<ActionT>(*writer, list_.keys().subspan(from, count), list_.handles().subspan(from, count));
  };
  const StatusOr<bool> together = flush(0, list_.keys().size());
  const bool all = together.ok() && *together;
  Status status;
  list_.Retain([&](std::size_t i) {
    if (all) return false;
    const StatusOr<bool> alone = flush(i, 1);
    if (!alone.ok()) status = alone.status();
    return !alone.ok() || !*alone;
  });
  return status;
}

}  // namespace hako::hash
