// Lets a scan show the records of an ordered database as they are at one moment, while writers
// continue.
//
// At the moment the writers are stopped. From then on each writer that has locked a leaf calls
// Capture before it changes anything there. Capture copies the records of the leaf, unless the scan
// has passed it or they were captured before. So a record that the scan finds has the value of the
// moment, unless its key lies in a captured range; the copy then has that value. Captured ranges
// are ranges of keys, so leaves may be split and joined meanwhile.
//
// The scan goes upwards and calls Pass for each record that it finds. Pass drops the copies that
// are no longer needed, so only captured records ahead of the scan take memory.
//
// Capture and Fail are thread-safe. One thread scans.
#pragma once

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako::sync {

// Key is the type of a stored key and KeyView that of a view of one; Less compares both.
template <class Key, class KeyView, class Less>
class RangeCapture {
 public:
  using Bound = std::optional<KeyView>;  // low or high of [low, high); nullopt: no bound
  // A record that was captured.
  struct Record {
    Key key;
    std::string value;
  };

  // Copies the records of a leaf: for_each(visit) calls visit(key, value) for each record that it
  // can read, and returns the first error.
  // REQUIRES: the calling writer has locked the leaf, and not yet changed it (checked in CaptureIfAsked)
  template <class ForEach>
  void Capture(const Bound& low, const Bound& high, ForEach&& for_each) noexcept {
    MutexLock lock(mutex_);
    if (!error_.ok() || has_passed_all_ || (high && passed_ && !Less()(*passed_, *high)) || IsCaptured(low, high)) return;
    error_.Update(CatchNoMemory([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> Status {
      const Status unread = for_each([&](KeyView key, std::string_view value) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        if ((!passed_ || Less()(*passed_, key)) && !IsCaptured(key)) records_.emplace(Key(key), value);
      });
      AddRange(low, high);
      return unread;
    }));
  }
  // Makes the scan fail: it can no longer show the moment.
  void Fail(const Status& why) {
    MutexLock lock(mutex_);
    error_.Update(why);
  }
  // Lets the scan continue without the records that a writer could not read. Returns false if Pass
  // has failed for another reason.
  bool SkipDamage() {
    MutexLock lock(mutex_);
    if (!absl::IsDataLoss(error_)) return false;
    error_ = absl::OkStatus();
    return true;
  }

  // The scan calls this when it has found the record of this key, or with nullopt at the end. Moves
  // the captured records up to the key to `due`; the scan shows them first. Returns whether the
  // record that the scan has found belongs to the moment; if not, the scan drops it.
  StatusOr<bool> Pass(const Bound& key, std::vector<Record>* due) {
    MutexLock lock(mutex_);
    HAKO_RETURN_IF_ERROR(error_);
    while (!records_.empty() && (!key || !Less()(*key, records_.begin()->first))) {
      auto node = records_.extract(records_.begin());
      due->push_back({std::move(node.key()), std::move(node.mapped())});
    }
    if (!key) {
      has_passed_all_ = true;
      return false;
    }
    const bool is_captured = IsCaptured(*key);
    passed_.emplace(*key);
    while (!ranges_.empty() && ranges_.begin()->second && !Less()(*key, *ranges_.begin()->second)) ranges_.erase(ranges_.begin());
    return !is_captured;
  }

 private:
  using Low = std::optional<Key>;
  struct LessLow {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return b.has_value() && (!a.has_value() || Less()(*a, *b));
    }
  };
  using Ranges = std::map<Low, std::optional<Key>, LessLow>;  // disjoint, not adjacent: from low to high

  // Returns the last range that does not begin above `low`; end() = none.
  template <class L>
  typename Ranges::const_iterator RangeAt(const L& low) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto next = ranges_.upper_bound(low);
    return next == ranges_.begin() ? ranges_.end() : std::prev(next);
  }
  bool IsCaptured(KeyView key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto range = RangeAt(Bound(key));
    return range != ranges_.end() && (!range->second || Less()(key, *range->second));
  }
  bool IsCaptured(const Bound& low, const Bound& high) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto range = RangeAt(low);
    return range != ranges_.end() && (!range->second || (high && !Less()(*range->second, *high)));
  }
  void AddRange(const Bound& low, const Bound& high) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Low from = low ? Low(Key(*low)) : Low();
    std::optional<Key> to = high ? std::optional(Key(*high)) : std::nullopt;
    auto next = ranges_.upper_bound(from);
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (!before->second || !from || !Less()(*before->second, *from)) {  // they touch
        from = before->first;
        next = before;
      }
    }
    while (next != ranges_.end() && (!to || !next->first || !Less()(*to, *next->first))) {
      if (to && (!next->second || Less()(*to, *next->second))) to = next->second;
      next = ranges_.erase(next);
    }
    ranges_.emplace(std::move(from), std::move(to));
  }

  Mutex mutex_;
  std::map<Key, std::string, Less> records_ ABSL_GUARDED_BY(mutex_);  // captured, and not yet moved to `due`
  Ranges ranges_ ABSL_GUARDED_BY(mutex_);
  std::optional<Key> passed_ ABSL_GUARDED_BY(mutex_);  // the scan has passed all keys up to this one
  bool has_passed_all_ ABSL_GUARDED_BY(mutex_) = false;
  Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hako::sync
