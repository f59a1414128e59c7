// A set of blocks of a file, as ranges.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace hako {

class BlockRanges {
 public:
  void Add(std::uint64_t first, std::uint64_t end) {
    if (first >= end) return;
    std::lock_guard lock(mutex_);
    auto at = std::ranges::lower_bound(ranges_, first, {}, &Range::end);  // the first that it touches
    auto after = at;
    for (; after != ranges_.end() && after->first <= end; ++after) {
      first = std::min(first, after->first);
      end = std::max(end, after->end);
    }
    ranges_.insert(ranges_.erase(at, after), {first, end});
    is_empty_.store(false, std::memory_order_release);
  }

  void Remove(std::uint64_t first, std::uint64_t end) {
    if (is_empty_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(mutex_);
    for (auto at = FirstAbove(first); at != ranges_.end() && at->first < end;) {
      const Range range = *at;
      at = ranges_.erase(at);
      if (range.end > end) at = ranges_.insert(at, {end, range.end});
      if (range.first < first) at = ranges_.insert(at, {range.first, first}) + 1;
    }
    is_empty_.store(ranges_.empty(), std::memory_order_release);
  }

  bool Contains(std::uint64_t block) const {
    if (is_empty_.load(std::memory_order_acquire)) return false;
    std::lock_guard lock(mutex_);
    const auto at = FirstAbove(block);
    return at != ranges_.end() && at->first <= block;
  }

 private:
  struct Range {
    std::uint64_t first, end;
  };
  std::vector<Range>::const_iterator FirstAbove(std::uint64_t block) const {
    return std::ranges::upper_bound(ranges_, block, {}, &Range::end);
  }
  std::vector<Range>::iterator FirstAbove(std::uint64_t block) { return std::ranges::upper_bound(ranges_, block, {}, &Range::end); }

  mutable std::mutex mutex_;
  std::vector<Range> ranges_;  // ascending, none touching another
  std::atomic<bool> is_empty_{true};
};

}  // namespace hako
