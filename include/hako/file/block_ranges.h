// A set of blocks of a file, stored as ranges. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace hako {

class BlockRanges {
 public:
  void Add(std::uint64_t first, std::uint64_t end) {
    if (first >= end) return;
    std::lock_guard lock(mutex_);
    for (auto at = ranges_.lower_bound(first); at != ranges_.end() && at->second <= end;
         at = ranges_.erase(at)) {  // overlapping or adjacent
      first = std::min(first, at->second);
      end = std::max(end, at->first);
    }
    ranges_.emplace(end, first);
    is_empty_.store(false, std::memory_order_release);
  }

  void Remove(std::uint64_t first, std::uint64_t end) {
    if (is_empty_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(mutex_);
    for (auto at = ranges_.upper_bound(first); at != ranges_.end() && at->second < end;) {
      const auto [range_end, range_first] = *at;
      at = ranges_.erase(at);
      if (range_end > end) at = ranges_.emplace_hint(at, range_end, end);
      if (range_first < first) ranges_.emplace_hint(at, first, range_first);
    }
    is_empty_.store(ranges_.empty(), std::memory_order_release);
  }

  bool Contains(std::uint64_t block) const {
    if (is_empty_.load(std::memory_order_acquire)) return false;
    std::lock_guard lock(mutex_);
    const auto at = ranges_.upper_bound(block);
    return at != ranges_.end() && at->second <= block;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // end -> first block; no two are adjacent
  std::atomic<bool> is_empty_{true};
};

}  // namespace hako
