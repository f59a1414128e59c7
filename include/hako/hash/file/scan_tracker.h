// Tracks the records that writers move, remove and add while a scan in file order runs beside them.
//
// The scan passes the handles in ascending order. If a record ahead of the scan is replaced, the
// new one may lie behind the scan; the record is then owed, and shown at the end. If a record
// behind the scan is replaced, the new one may lie ahead of the scan, and must not be shown again.
// So a writer reports (Note) for each entry the handle that it named and the one that it will name.
// The tracker keeps the owed handles, and the reported handles ahead of the scan, which the scan
// skips.
//
// Invariants
//   1. A writer notes a move with its bucket locked, after it has written the new record, and
//      before it changes the entry, the old record's stamp, or anything else that reveals the move.
//      So a handle that was never noted is named by the same entry during the whole scan, or by
//      none, and its record is as it was at Start.
//   2. Each record that existed at the start and still exists was shown, or is ahead of the scan
//      and not noted, or is owed.
//   3. A note replaces everything that earlier notes said about its handles, because a reused block
//      holds another record.
//   4. No thread waits for a bucket's lock while it holds the mutex, because writers that have a
//      bucket locked wait for the mutex.
//
// Note is thread-safe. Only one scan at a time calls the other functions. Without a scan, Note
// costs one load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

class ScanTracker {
 public:
  struct Owed {
    std::uint32_t handle;
    std::uint64_t note;
  };

  // Returns false if a scan is running.
  bool Claim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  // From now on writers call Note. `records` = the number of records. REQUIRES: claimed, writers
  // kept out
  void Start(std::uint64_t records) {
    HAKO_DCHECK(claimed_.load(std::memory_order_relaxed) && !is_on_.load(std::memory_order_relaxed));
    sync::MutexLock lock(mutex_);
    Clear();
    next_ = 0;
    left_ = static_cast<std::int64_t>(records);
    is_on_.store(true, std::memory_order_relaxed);
  }
  void Stop() {
    is_on_.store(false, std::memory_order_relaxed);
    {
      sync::MutexLock lock(mutex_);
      Clear();
    }
    claimed_.store(false, std::memory_order_release);
  }

  // The entry that names `old` will name `fresh`. `old` is 0 for a new entry, `fresh` is 0 for one
  // that is removed.
  HAKO_INLINE void Note(std::uint32_t old, std::uint32_t fresh) {
    if (is_on_.load(std::memory_order_relaxed)) [[unlikely]]
      NoteSlowly(old, fresh);
  }
  // Forgets everything: all entries are removed. REQUIRES: writers kept out (checked in RemoveAll)
  void ForgetAll() {
    sync::MutexLock lock(mutex_);
    Clear();
  }

  // Moves the scan to `end`. `handles` are before `end`, in any order; each was named by an entry
  // when the scan looked it up after the start. Calls show(i) for those whose record is to be shown
  // now.
  template <class F>
  void Advance(std::span<const std::uint32_t> handles, std::uint64_t end, F&& show) {
    sync::MutexLock lock(mutex_);
    if (next_ >= end) return;  // everything was forgotten
    for (std::size_t i = 0; i < handles.size(); ++i) {
      if (!IsAhead(handles[i])) continue;
      show(i);
      --left_;
    }
    next_ = end;
    noted_.erase(noted_.begin(), noted_.lower_bound(end));
  }
  // Ends the pass: no handle is ahead of the scan from now on.
  void FinishPass() {
    std::set<std::uint64_t> noted;  // may be large: freed after the mutex is released
    sync::MutexLock lock(mutex_);
    next_ = kNowhere;
    noted.swap(noted_);
  }

  // Returns up to `max` of the owed records.
  std::vector<Owed> SomeOwed(std::size_t max) const {
    sync::MutexLock lock(mutex_);
    std::vector<Owed> some;
    for (auto it = owed_.begin(); it != owed_.end() && some.size() < max; ++it) some.push_back({it->first, it->second});
    return some;
  }
  // Returns whether the record is still owed, and if so makes it no longer owed.
  bool Pay(Owed owed) {
    sync::MutexLock lock(mutex_);
    const auto it = owed_.find(owed.handle);
    if (it == owed_.end() || it->second != owed.note) return false;
    owed_.erase(it);
    --left_;
    return true;
  }
  // Calls read(handle) for one owed record while it cannot be replaced, and makes it no longer
  // owed. Returns false if no record is owed.
  template <class F>
  bool PayFirst(F&& read) {
    sync::MutexLock lock(mutex_);
    if (owed_.empty()) return false;
    read(owed_.begin()->first);
    owed_.erase(owed_.begin());
    --left_;
    return true;
  }

  // Returns how many of the records at the start were neither shown nor removed before they could
  // be shown.
  std::int64_t left() const {
    sync::MutexLock lock(mutex_);
    return left_;
  }

 private:
  static constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();

  bool IsAhead(std::uint32_t handle) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return handle >= next_ && (noted_.empty() || !noted_.contains(handle));
  }
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    next_ = kNowhere;
    noted_.clear();
    owed_.clear();
    left_ = 0;
  }
  [[gnu::noinline]] void NoteSlowly(std::uint32_t old, std::uint32_t fresh) {
    sync::MutexLock lock(mutex_);
    const bool to_be_shown = old != 0 && (owed_.contains(old) || IsAhead(old));
    for (const std::uint32_t handle : {old, fresh}) {
      owed_.erase(handle);
      if (handle >= next_) noted_.insert(handle);
    }
    if (to_be_shown && fresh != 0) owed_[fresh] = ++num_notes_;
    if (to_be_shown && fresh == 0) --left_;
  }

  std::atomic<bool> claimed_{false}, is_on_{false};
  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kInnermostLocks);
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = kNowhere;                // handles from here on are ahead
  std::set<std::uint64_t> noted_ ABSL_GUARDED_BY(mutex_);                // of those ahead
  std::map<std::uint32_t, std::uint64_t> owed_ ABSL_GUARDED_BY(mutex_);  // the number of the note that made it owed
  std::uint64_t num_notes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t left_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hako::hash
