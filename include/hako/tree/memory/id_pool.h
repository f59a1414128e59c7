// Which ids of pages are in use: a bit for each. Take returns the smallest free id, so that ids
// stay dense and end() can decrease.
//
// Not thread-safe: the caller holds a lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/language.h"

namespace hako::tree {

class IdPool {
 public:
  explicit IdPool(std::uint32_t first) : first_(first), end_(first) {}

  std::uint32_t end() const { return end_; }  // no id at or above it is in use
  std::uint64_t num_used() const { return end_ - first_ - num_free_; }

  // Takes a free id below end(). Returns 0 if there is none; Grow then returns a new one.
  std::uint32_t Take() {
    if (num_free_ == 0) return 0;
    while (free_[lowest_] == 0) ++lowest_;
    const auto bit = static_cast<std::uint32_t>(std::countr_zero(free_[lowest_]));
    free_[lowest_] &= free_[lowest_] - 1;
    --num_free_;
    return static_cast<std::uint32_t>(lowest_) * 64 + bit;
  }
  std::uint32_t Grow() { return end_++; }
  // Raises end() to `end`, and marks the new ids as used.
  void GrowTo(std::uint32_t end) { end_ = std::max(end_, end); }

  // Frees the ids in [first, end) that are not free yet. REQUIRES: end <= end()
  void Give(std::uint32_t first, std::uint32_t end) {
    HAKO_DCHECK(end <= end_);
    if (first >= end) return;
    if ((end - 1) / 64 >= free_.size()) free_.resize(std::max<std::size_t>((end - 1) / 64 + 1, free_.size() * 2));
    lowest_ = std::min<std::size_t>(lowest_, first / 64);
    for (std::uint64_t id = first; id < end;) {
      const unsigned shift = id % 64, count = static_cast<unsigned>(std::min<std::uint64_t>(64 - shift, end - id));
      const std::uint64_t bits = (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << shift;
      num_free_ += static_cast<unsigned>(std::popcount(bits & ~free_[id / 64]));
      free_[id / 64] |= bits;
      id += count;
    }
  }
  bool IsFree(std::uint32_t id) const { return id / 64 < free_.size() && (free_[id / 64] >> id % 64 & 1) != 0; }

  // Returns what end() would be if these ids, which ascend, were free, too.
  std::uint32_t EndWithout(std::span<const std::uint32_t> ids) const {
    std::uint32_t end = end_;
    for (; end > first_; --end) {
      while (end % 64 == 0 && end > first_ && end / 64 <= free_.size() && free_[end / 64 - 1] == ~std::uint64_t{0}) end -= 64;
      if (end == first_) break;
      while (!ids.empty() && ids.back() >= end) ids = ids.first(ids.size() - 1);
      const bool is_listed = !ids.empty() && ids.back() == end - 1;
      if (is_listed) ids = ids.first(ids.size() - 1);
      if (!is_listed && !IsFree(end - 1)) break;
    }
    return end;
  }
  // Lowers end() to one past the last id in use.
  void Cut() {
    const std::uint32_t end = EndWithout({});
    if (end == end_) return;
    num_free_ -= end_ - end;  // all of them
    end_ = end;
    free_.resize(std::min<std::size_t>(free_.size(), end / 64 + 1));
    if (end / 64 < free_.size()) free_[end / 64] &= (std::uint64_t{1} << end % 64) - 1;
    lowest_ = std::min<std::size_t>(lowest_, free_.size());
  }

 private:
  std::vector<std::uint64_t> free_;  // a bit for each id below end_
  std::size_t lowest_ = 0;           // no word before this one has a set bit
  std::uint64_t num_free_ = 0;
  const std::uint32_t first_;
  std::uint32_t end_;
};

}  // namespace hako::tree
