// A page of a tree: up to 208 keys in order, each with a value (in a leaf) or a child page (in an
// inner page).
//
// The fields that a search needs before it reads the page are in a separate line of 64 bytes:
//   offset  0  version   u32: lock and version (sync/version_lock.h)
//           4  unit      u32: where the page's bytes begin, in the space's units of 128 bytes
//           8  shape     PageShape
//          16  hints     i32[12]: the head of every 16th key
// The page itself is
//   heads     i32 for each slot: four bytes of the key, in a form that compares as a signed number;
//             INT32_MAX after the last slot in use
//   children  u32 for each slot, in inner pages: the id of the child
//   offsets   u16 for each slot: where its cell begins, counted backwards from the page's end
//   (room)
//   cells     [u8 suffix size][u8 value size][rest of the key][value], growing downwards
//   fences    the bounds of the keys that belong here: high, then low
//   prefix    the common prefix of all keys here
//   PageTail
// Slots come in groups of 16, so that the heads of a group are one cache line. An inner page has
// room for all 208 slots.
//
// Invariants
//   1. Heads ascend. The key of a slot is prefix + suffix; the head holds the first four bytes of
//      the suffix, zero-padded, and the cell the rest. With a comparator that is not bytewise the
//      prefix is empty, the head is the comparator's, and the cell holds the whole key.
//   2. hints[i] is heads[16 (i + 1)], or INT32_MAX if there is no such slot: a search counts
//      smaller hints, then smaller heads in one group, and compares keys only where heads are
//      equal.
//   3. Every key k of a page has low <= k < high; a page at an edge of the tree lacks one of these
//      fences. Child i of an inner page has the keys in [key i, key i + 1). Slot 0 of an inner page
//      stands for the low fence: its head is INT32_MIN, and its cell has no key.
//   4. A page is guarded if its fences do not imply its prefix: it lies at the left or right edge
//      of the tree, and a search may reach it with a key that has another prefix.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "hako/base/inline.h"

namespace hako {

inline constexpr unsigned kTreeKeySizeMax = 4096;  // bytes of a key in a tree

}  // namespace hako

namespace hako::format {

inline constexpr unsigned kSlotGroup = 16;
inline constexpr unsigned kPageHints = 12;
inline constexpr unsigned kPageSlotsMax = kSlotGroup * (kPageHints + 1);
inline constexpr unsigned kPageUnit = 128;
inline constexpr unsigned kPageUnitsMax = 255;
inline constexpr std::int32_t kNoHead = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int32_t kLowestHead = std::numeric_limits<std::int32_t>::min();

// The layout of a page, as its line stores it. Writers store it as one word; readers load the
// fields that they need.
struct alignas(8) PageShape {
  static constexpr std::uint8_t kLevel = 0x1f, kMark = 0x60, kGuarded = 0x80;

  std::uint8_t count = 0;  // slots in use
  // The level (0 = leaf), kGuarded, and kMark: 0 = unchanged, 32 or 64 = changed in an odd or even
  // epoch (tree/file/dirty_pages.h).
  std::uint8_t kind = 0;
  std::uint8_t groups = 0;   // room for slots, in groups of 16
  std::uint8_t units = 0;    // size of the page
  std::uint16_t prefix = 0;  // bytes
  std::uint16_t heap = 0;    // bytes from the lowest cell to the end of the page

  HAKO_INLINE unsigned level() const { return kind & kLevel; }
  HAKO_INLINE bool guarded() const { return (kind & kGuarded) != 0; }
  HAKO_INLINE unsigned slots() const { return groups * kSlotGroup; }
  HAKO_INLINE unsigned size() const { return units * kPageUnit; }
  HAKO_INLINE unsigned slot_size() const { return level() == 0 ? 6 : 10; }
  HAKO_INLINE unsigned room() const { return size() - slots() * slot_size() - heap; }
};
static_assert(sizeof(PageShape) == 8);

inline constexpr std::uint8_t GroupsFor(unsigned slots) {
  return static_cast<std::uint8_t>(std::clamp((slots + kSlotGroup - 1) / kSlotGroup, 1u, kPageHints + 1));
}

struct alignas(64) PageLine {
  std::uint32_t version;
  std::uint32_t unit;
  PageShape shape;
  std::int32_t hints[kPageHints];
};
static_assert(sizeof(PageLine) == 64);
static_assert(std::endian::native == std::endian::little, "pages are used in place");

struct PageTail {
  static constexpr unsigned kNoLow = 1, kNoHigh = 2;
  std::uint16_t low = 0;  // sizes of the fences
  std::uint16_t high = 0;
  std::uint16_t garbage = 0;  // bytes of cells that no slot names
  std::uint16_t edges = kNoLow | kNoHigh;

  unsigned fences() const { return low + high; }
};
static_assert(sizeof(PageTail) == 8);

// A value too long for a cell is stored elsewhere; the cell names it.
struct OverflowValue {
  std::uint64_t place;
  std::uint64_t size;
};

// The properties of the key order on which the bytes of a page depend.
struct PageOrder {
  // The number of bytes of a suffix that the head holds: 4 if the order is that of memcmp, else 0.
  unsigned inlined;
  int (*compare)(std::string_view a, std::string_view b);
  std::int32_t (*head)(std::string_view key);  // takes the whole key, without its prefix removed
};

// The two sizes of a cell. Each takes one byte, or an escape byte and 16 bits.
struct Cell {
  static constexpr unsigned kLongKey = 255, kWideValue = 254, kLongValue = 255;

  unsigned header = 0;
  unsigned suffix = 0;   // bytes of the key after the prefix
  unsigned value = 0;    // bytes of the value in the cell
  bool is_long = false;  // the cell holds an OverflowValue

  // `word` = the cell's first 8 bytes.
  HAKO_INLINE static Cell Decode(std::uint64_t word) {
    const unsigned key = word & 0xff, value = word >> 8 & 0xff;
    if (key < kLongKey && value < kWideValue) [[likely]]
      return {2, key, value, false};
    return DecodeLong(word);
  }
  [[gnu::noinline]] static Cell DecodeLong(std::uint64_t word) {
    Cell cell{2, static_cast<unsigned>(word & 0xff), static_cast<unsigned>(word >> 8 & 0xff), false};
    word >>= 16;
    if (cell.suffix == kLongKey) {
      cell.suffix = word & 0xffff;
      word >>= 16;
      cell.header += 2;
    }
    if (cell.value == kWideValue) {
      cell.value = word & 0xffff;
      cell.header += 2;
    } else if (cell.value == kLongValue) {
      cell.value = sizeof(OverflowValue);
      cell.is_long = true;
    }
    return cell;
  }
  HAKO_INLINE static Cell For(std::size_t suffix, std::size_t value, bool is_long) {
    Cell cell{2, static_cast<unsigned>(suffix), static_cast<unsigned>(value), is_long};
    if (suffix >= kLongKey) cell.header += 2;
    if (!is_long && value >= kWideValue) cell.header += 2;
    return cell;
  }
  // Returns a word whose first `header` bytes are the cell's header.
  HAKO_INLINE std::uint64_t Encode() const {
    if (header == 2) [[likely]]
      return suffix | (is_long ? kLongValue : value) << 8;
    return EncodeLong();
  }
  [[gnu::noinline]] std::uint64_t EncodeLong() const {
    const bool long_key = suffix >= kLongKey, wide = !is_long && value >= kWideValue;
    std::uint64_t word = (long_key ? kLongKey : suffix) | (is_long ? kLongValue : wide ? kWideValue : value) << 8;
    unsigned at = 16;
    if (long_key) {
      word |= std::uint64_t{suffix} << at;
      at += 16;
    }
    if (wide) word |= std::uint64_t{value} << at;
    return word;
  }

  // Returns the bytes of the suffix that the cell holds, if the head holds `inlined` of them.
  HAKO_INLINE unsigned Rest(unsigned inlined) const { return suffix > inlined ? suffix - inlined : 0; }
  HAKO_INLINE unsigned Size(unsigned inlined) const { return header + Rest(inlined) + value; }
};

}  // namespace hako::format
