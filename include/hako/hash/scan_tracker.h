// What a walk in the order of the file has to know of the writers beside it: which records they move, remove and add.
//
// The walk passes over the handles in ascending order. A record that lies ahead and is replaced may come to lie behind: then it is owed,
// and is shown at the end. One that lies behind and is replaced may come to lie ahead: then it must not be shown again. So a writer says
// of each entry which handle it named and which it is going to name; the log has the set of handles ahead that were so noted, which the
// pass leaves out, and the owed ones.
//
// Invariants
//   1. A writer notes a move under its bucket's lock, after the new record was written and before the old one's stamp, the entry, or
//      anything else changes by which it could be known. So a handle that was never noted is named by the same entry throughout, or by
//      none, and its record is as it was when the log was switched on.
//   2. A record that was there at the start and still is, was shown, or lies ahead and was not noted, or is owed: one of the three.
//   3. A note outdates what was known of its handles: a block that is used again is another record.
//   4. Inside the log's mutex nobody waits for a bucket's lock, as writers that hold one wait for the mutex.
//
// Threads: writers note; one walk at a time does the rest. While there is none a note costs a load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/inline.h"

namespace hako::hash {

class ScanTracker {
 public:
  struct Owed {
    std::uint32_t handle;
    std::uint64_t note;
  };

  // False if there is a walk already.
  bool Claim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  // From now on writers note. `records` are there. REQUIRES: claimed, writers kept out
  void Start(std::uint64_t records) {
    std::lock_guard lock(mutex_);
    Clear();
    next_ = 0;
    left_ = static_cast<std::int64_t>(records);
    is_on_.store(true, std::memory_order_relaxed);
  }
  void Stop() {
    is_on_.store(false, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      Clear();
    }
    claimed_.store(false, std::memory_order_release);
  }

  // The entry that names `old` is going to name `fresh`; 0 = there is no entry before, or after.
  HAKO_INLINE void Note(std::uint32_t old, std::uint32_t fresh) {
    if (is_on_.load(std::memory_order_relaxed)) [[unlikely]]
      NoteSlowly(old, fresh);
  }
  // No entry is left. REQUIRES: writers kept out
  void ForgetAll() {
    std::lock_guard lock(mutex_);
    Clear();
  }

  // The pass comes to `end`. These handles before it, in any order, are all that entries named when the walk looked, which was after the
  // start: show(i) for those whose record is to be shown now.
  template <class F>
  void Advance(std::span<const std::uint32_t> handles, std::uint64_t end, F&& show) {
    std::lock_guard lock(mutex_);
    if (next_ >= end) return;  // all is forgotten
    for (std::size_t i = 0; i < handles.size(); ++i) {
      if (!IsAhead(handles[i])) continue;
      show(i);
      --left_;
    }
    next_ = end;
    noted_.erase(noted_.begin(), noted_.lower_bound(end));
  }
  // The pass is over: nothing is ahead any more.
  void FinishPass() {
    std::set<std::uint64_t> noted;  // may be many: forgotten when the mutex is free
    std::lock_guard lock(mutex_);
    next_ = kNowhere;
    noted.swap(noted_);
  }

  // Some of what is owed.
  std::vector<Owed> SomeOwed(std::size_t max) const {
    std::lock_guard lock(mutex_);
    std::vector<Owed> some;
    for (auto it = owed_.begin(); it != owed_.end() && some.size() < max; ++it) some.push_back({it->first, it->second});
    return some;
  }
  // Whether that still holds; then it is owed no more.
  bool Pay(Owed owed) {
    std::lock_guard lock(mutex_);
    const auto it = owed_.find(owed.handle);
    if (it == owed_.end() || it->second != owed.note) return false;
    owed_.erase(it);
    --left_;
    return true;
  }
  // Calls read(handle) for one of them while it cannot be replaced, and it is owed no more; false if there is none.
  template <class F>
  bool PayFirst(F&& read) {
    std::lock_guard lock(mutex_);
    if (owed_.empty()) return false;
    read(owed_.begin()->first);
    owed_.erase(owed_.begin());
    --left_;
    return true;
  }

  // Of the records at the start, those that were neither shown nor removed before they could be.
  std::int64_t left() const {
    std::lock_guard lock(mutex_);
    return left_;
  }

 private:
  static constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();

  bool IsAhead(std::uint32_t handle) const { return handle >= next_ && (noted_.empty() || !noted_.contains(handle)); }
  void Clear() {
    next_ = kNowhere;
    noted_.clear();
    owed_.clear();
    left_ = 0;
  }
  [[gnu::noinline]] void NoteSlowly(std::uint32_t old, std::uint32_t fresh) {
    std::lock_guard lock(mutex_);
    const bool to_be_shown = old != 0 && (owed_.contains(old) || IsAhead(old));
    for (const std::uint32_t handle : {old, fresh}) {
      owed_.erase(handle);
      if (handle >= next_) noted_.insert(handle);
    }
    if (to_be_shown && fresh != 0) owed_[fresh] = ++num_notes_;
    if (to_be_shown && fresh == 0) --left_;
  }

  std::atomic<bool> claimed_{false}, is_on_{false};
  mutable std::mutex mutex_;
  std::uint64_t next_ = kNowhere;                // handles from here on are ahead
  std::set<std::uint64_t> noted_;                // of those ahead
  std::map<std::uint32_t, std::uint64_t> owed_;  // the number of the note that says so
  std::uint64_t num_notes_ = 0;
  std::int64_t left_ = 0;
};

}  // namespace hako::hash
