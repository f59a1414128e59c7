// A bucket: 64 bytes (one cache line) with ten entries. It is in memory or in a file, in the
// machine's byte order (little-endian).
//
//   offset  0  tags[10]   u16 each: 16 bits of the key hash; see TagBase
//          20  slots[10]  u32 each: the record's handle; 0 = empty entry
//          60  header     u32: lock, link flag and version (sync/version_lock.h)
//
// Invariants
//   1. An entry exists if and only if its slot is not 0. Storing the slot publishes or removes the
//      entry. An insertion writes the tag before the slot.
//   2. If the link flag is set, slots[9] is not an entry but the id of an overflow bucket. slots[9]
//      and header are one aligned 64-bit word, stored at once, so that an entry becomes a link, or
//      a link an entry, in a single step even if the process is killed.
//   3. A bucket's header guards its whole chain; an overflow bucket's header has only its link
//      flag.
//   4. The tag in a bucket at depth d (the number of low hash bits that select the bucket) is bits
//      [TagBase(d), TagBase(d) + 16) of the key's hash. A split takes its deciding bit from the tag
//      and reads no record, except at every eighth depth, where tags are recomputed.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hako/base/language.h"

namespace hako::format {

inline constexpr unsigned kLineEntries = 10;
inline constexpr unsigned kLinkEntry = kLineEntries - 1;

struct alignas(64) BucketLine {
  std::array<std::uint16_t, kLineEntries> tags;
  std::array<std::uint32_t, kLineEntries> slots;
  std::uint32_t header;
};
static_assert(sizeof(BucketLine) == 64 && offsetof(BucketLine, slots) == 20 && offsetof(BucketLine, header) == 60);
static_assert(std::endian::native == std::endian::little, "bucket lines are used in place");

inline constexpr unsigned TagBase(unsigned depth) { return depth & ~7u; }
inline constexpr std::uint16_t TagOf(std::uint64_t hash, unsigned depth) { return static_cast<std::uint16_t>(hash >> TagBase(depth)); }

}  // namespace hako::format
