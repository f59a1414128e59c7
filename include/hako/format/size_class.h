// The size of the block that holds a record: a pure function of the record's size, so no capacity
// is stored and a scan can step from record to record.
//
// Sizes are counted in units of the alignment. Up to 32 units each size is a class, so uniform
// small records waste nothing. Above, there are 8 classes per doubling, so a block is at most 1/8
// larger than its record.
#pragma once

#include <bit>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/inline.h"

namespace hako::format {

inline constexpr unsigned kSizeClasses = 32 + 8 * 28;

// Returns the smallest class whose blocks hold `units` units. REQUIRES: 1 <= units <= 2^32
HAKO_INLINE constexpr unsigned SizeClassOf(std::uint64_t units) {
  HAKO_DCHECK(units >= 1 && units <= std::uint64_t{1} << 32);
  if (units <= 32) return static_cast<unsigned>(units) - 1;
  const unsigned shift = static_cast<unsigned>(std::bit_width(units - 1)) - 4;       // keep 4 leading bits: 8 .. 15
  const std::uint64_t rounded = (units + (std::uint64_t{1} << shift) - 1) >> shift;  // 9 .. 16
  return 32 + (shift - 2) * 8 + static_cast<unsigned>(rounded) - 9;
}

// Returns the number of units in a block of class `size_class`. REQUIRES: size_class < kSizeClasses
HAKO_INLINE constexpr std::uint64_t UnitsOf(unsigned size_class) {
  HAKO_DCHECK(size_class < kSizeClasses);
  if (size_class < 32) return size_class + 1;
  const unsigned shift = (size_class - 32) / 8 + 2;
  return static_cast<std::uint64_t>((size_class - 32) % 8 + 9) << shift;
}

static_assert(UnitsOf(SizeClassOf(1)) == 1 && UnitsOf(SizeClassOf(32)) == 32 && UnitsOf(SizeClassOf(33)) == 36);
static_assert(UnitsOf(SizeClassOf(64)) == 64 && UnitsOf(SizeClassOf(65)) == 72 && SizeClassOf(0xffffffff) < kSizeClasses);

}  // namespace hako::format
