// A set of blocks of a file, stored as ranges. If memory runs out, some ranges are forgotten.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "hako/base/no_memory.h"
#include "hako/sync/mutex.h"

namespace hako {

class BlockRanges {
 public:
  void Add(std::uint64_t first, std::uint64_t end) {
    if (first >= end) return;
    sync::MutexLock lock(mutex_);
    for (auto at = ranges_.lower_bound(first); at != ranges_.end() && at->second <= end;
         at = ranges_.erase(at)) {  // overlapping or adjacent
      first = std::min(first, at->second);
      end = std::max(end, at->first);
    }
    Insert(first, end);
    is_empty_.store(ranges_.empty(), std::memory_order_release);
  }

  void Remove(std::uint64_t first, std::uint64_t end) {
    if (is_empty_.load(std::memory_order_acquire)) return;
    sync::MutexLock lock(mutex_);
    for (auto at = ranges_.upper_bound(first); at != ranges_.end() && at->second < end;) {
      const auto [range_end, range_first] = *at;
      at = ranges_.erase(at);
      if (range_first < first) Insert(range_first, first);
      if (range_end > end) Insert(end, range_end);
    }
    is_empty_.store(ranges_.empty(), std::memory_order_release);
  }

  bool Contains(std::uint64_t block) const {
    if (is_empty_.load(std::memory_order_acquire)) return false;
    sync::MutexLock lock(mutex_);
    const auto at = ranges_.upper_bound(block);
    return at != ranges_.end() && at->second <= block;
  }

 private:
  void Insert(std::uint64_t first, std::uint64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    HAKO_TRY { ranges_.emplace(end, first); }
    HAKO_CATCH_NO_MEMORY()
  }

  mutable sync::Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_ ABSL_GUARDED_BY(mutex_);  // end -> first block; no two are adjacent
  std::atomic<bool> is_empty_{true};
};

}  // namespace hako
