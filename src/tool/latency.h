// The latencies of single operations: a histogram of nanoseconds, in which a bucket is at most 1/32
// of its value wide. Each thread fills its own histogram; Merge adds another one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hako::tool {

class LatencyHistogram {
 public:
  void Add(std::uint64_t nanoseconds) {
    ++counts_[BucketOf(nanoseconds)];
    ++total_;
    max_ = std::max(max_, nanoseconds);
  }
  void Merge(const LatencyHistogram& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    max_ = std::max(max_, other.max_);
  }

  std::uint64_t total() const { return total_; }
  std::uint64_t max() const { return max_; }

  // Returns the percentile `share` (0 to 1): the upper end of its bucket, or the maximum if that is
  // smaller. Returns 0 if the histogram is empty.
  std::uint64_t Percentile(double share) const {
    const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(total_));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > wanted) return std::min(EndOf(i), max_);
    }
    return max_;
  }

 private:
  static constexpr int kSubBits = 5;
  static constexpr std::size_t kSub = std::size_t{1} << kSubBits;

  // Numbers below 2 kSub have one bucket each; above, each power of two has kSub buckets.
  static std::size_t BucketOf(std::uint64_t n) {
    if (n < 2 * kSub) return n;
    const int shift = static_cast<int>(std::bit_width(n)) - 1 - kSubBits;
    return static_cast<std::size_t>(shift) * kSub + (n >> shift);
  }
  static std::uint64_t EndOf(std::size_t bucket) {
    if (bucket < 2 * kSub) return bucket;
    const std::size_t shift = bucket / kSub - 1;
    return ((static_cast<std::uint64_t>(bucket - shift * kSub) + 1) << shift) - 1;
  }

  std::array<std::uint64_t, (65 - kSubBits) * kSub> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace hako::tool
