// The arithmetic of linear hashing: which of n buckets a hash belongs to, and its tag there.
//
// With n buckets, and 2^b the smallest power of two that is at least n, a key's bucket is the low b
// bits of its hash, or the low b - 1 bits if that bucket does not exist yet. Everything that
// follows from n is packed into one word, so a lookup needs one load and little arithmetic.
#pragma once

#include <bit>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/format/bucket_format.h"

namespace hako::hash {

class TableShape {
 public:
  static constexpr std::uint64_t kMaxLines = std::uint64_t{1} << 28;

  // REQUIRES: 2 <= n <= kMaxLines, or 0 for no table
  static constexpr TableShape Of(std::uint64_t n) {
    HAKO_DCHECK(n == 0 || (n >= 2 && n <= kMaxLines));
    if (n == 0) return TableShape(0);
    const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
    const bool mixed = bits % 8 == 0;  // only split buckets have the next tag base
    const std::uint64_t base = mixed ? kMixed | bits : format::TagBase(bits);
    return TableShape((n - 1) | ((std::uint64_t{1} << bits) - 1) << kFieldBits | base << (2 * kFieldBits));
  }
  explicit constexpr TableShape(std::uint64_t word) : word_(word) {}
  constexpr std::uint64_t word() const { return word_; }

  constexpr std::uint64_t num_lines() const { return word_ == 0 ? 0 : last() + 1; }
  HAKO_INLINE constexpr std::uint64_t IndexOf(std::uint64_t hash) const {
    const std::uint64_t index = hash & mask();
    return index > last() ? index & (mask() >> 1) : index;
  }
  // The tag, in bucket `index`, of a hash that belongs there.
  HAKO_INLINE constexpr std::uint16_t TagOf(std::uint64_t hash, std::uint64_t index) const {
    const auto base = static_cast<unsigned>(word_ >> (2 * kFieldBits));
    if ((base & kMixed) != 0) [[unlikely]]
      return format::TagOf(hash, DepthOf(index));
    return static_cast<std::uint16_t>(hash >> base);
  }
  // The number of low hash bits that the records of a bucket have in common.
  constexpr unsigned DepthOf(std::uint64_t index) const {
    const std::uint64_t half = (mask() >> 1) + 1;
    const auto bits = static_cast<unsigned>(std::bit_width(mask()));
    return (index & (half - 1)) <= last() - half ? bits : bits - 1;
  }

 private:
  static constexpr unsigned kFieldBits = 28;  // n - 1, then a mask, then the tag base
  static constexpr std::uint64_t kField = (std::uint64_t{1} << kFieldBits) - 1;
  static constexpr unsigned kMixed = 64;

  HAKO_INLINE constexpr std::uint64_t last() const { return word_ & kField; }
  HAKO_INLINE constexpr std::uint64_t mask() const { return word_ >> kFieldBits & kField; }

  std::uint64_t word_;
};

// A hash's bucket in a table of a given shape.
struct Place {
  TableShape shape;
  std::uint64_t index;
  HAKO_INLINE std::uint16_t TagOf(std::uint64_t hash) const { return shape.TagOf(hash, index); }
};
HAKO_INLINE Place Locate(std::uint64_t hash, TableShape shape) { return {shape, shape.IndexOf(hash)}; }

}  // namespace hako::hash
