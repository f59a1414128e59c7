// ScanCursors: the open scans of clients (SCAN). A cursor is the number of an iterator of the
// database, which shows each record that exists during the whole scan exactly once, however the
// database grows. Each page of a scan has a new number, and the last page ends the scan.
//
// If there are too many, the oldest are dropped. A number that is unknown or was already used is
// refused.
//
// Thread-safe. An iterator is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "hako/dbm/any_dbm.h"
#include "hako/sync/mutex.h"

namespace hako::server {

class ScanCursors {
 public:
  static constexpr std::size_t kMax = 1024;

  // Removes and returns the iterator; nullopt if there is none.
  std::optional<AnyDBM::Iterator> Take(std::uint64_t number) {
    sync::MutexLock lock(mutex_);
    const auto found = cursors_.find(number);
    if (found == cursors_.end()) return std::nullopt;
    std::optional<AnyDBM::Iterator> taken(std::move(found->second));
    cursors_.erase(found);
    return taken;
  }
  // Stores the iterator and returns its number.
  std::uint64_t Keep(AnyDBM::Iterator iterator) {
    sync::MutexLock lock(mutex_);
    if (cursors_.size() >= kMax) cursors_.erase(cursors_.begin());
    cursors_.emplace(++last_, std::move(iterator));
    return last_;
  }
  void Clear() {
    sync::MutexLock lock(mutex_);
    cursors_.clear();
  }

 private:
  sync::Mutex mutex_;
  std::map<std::uint64_t, AnyDBM::Iterator> cursors_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hako::server
