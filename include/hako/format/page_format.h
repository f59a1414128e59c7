// A page of a tree: up to 208 keys in order, each with a value (a leaf) or with the page below it (an inner page).
//
// What a search needs before it touches the page lies apart, in a line of 64 bytes:
//   offset  0  version   u32: lock and version (sync/version_lock.h)
//           4  unit      u32: where the page's bytes begin, in the space's units of 128 bytes
//           8  shape     PageShape
//          16  hints     i32[12]: the head of every 16th key
// and the page itself is
//   heads     i32 for each slot: four bytes of the key, in a form that compares as a signed number; behind the last INT32_MAX
//   children  u32 for each slot, in inner pages: the page below
//   offsets   u16 for each slot: where its cell begins, counted back from the page's end
//   (room)
//   cells     [u8 key rest][u8 value size][key rest][value], grown downwards
//   fences    the bounds of the keys that belong here: high, then low
//   prefix    what all keys here begin with
//   PageTail
// Slots come in groups of 16, so that the heads of a group are one cache line; an inner page has room for all 208.
//
// Invariants
//   1. Heads rise; a slot's key is prefix + suffix, of which the head holds the first four bytes, zero-padded, and the cell the rest. Under
//      a comparator that is not bytewise the prefix is empty, the head is the comparator's, and the cell holds the whole key.
//   2. hints[i] is heads[16 (i + 1)], INT32_MAX where there is no such slot: a search counts smaller hints, then smaller heads in one
//      group, and compares keys only where heads are equal.
//   3. Every key k of a page has low <= k < high, as far as there are these fences. Child i of an inner page has the keys from key i up to
//      key i + 1. Slot 0 of an inner page stands for the low fence: its head is INT32_MIN, its cell has no key.
//   4. A page is guarded if its fences do not imply its prefix: it lies at the left or right edge of the tree, and a key that is sought
//      there may have another prefix.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

// What a page's line says of its layout. Written as one word; readers load what they need of it.
struct alignas(8) PageShape {
  static constexpr std::uint8_t kLevel = 0x1f, kMark = 0x60, kGuarded = 0x80;

  std::uint8_t count = 0;    // slots in use
  std::uint8_t kind = 0;     // the level, 0 = leaf; kGuarded; kMark: 0, or 32 or 64 = changed in an odd or an even epoch (buffer_pool.h)
  std::uint8_t groups = 0;   // slots there is room for, in groups of 16
  std::uint8_t units = 0;    // the page's size
  std::uint16_t prefix = 0;  // bytes
  std::uint16_t heap = 0;    // bytes from the lowest cell to the page's end

  unsigned level() const { return kind & kLevel; }
  bool guarded() const { return (kind & kGuarded) != 0; }
  unsigned slots() const { return groups * kSlotGroup; }
  unsigned size() const { return units * kPageUnit; }
  unsigned slot_size() const { return level() == 0 ? 6 : 10; }
  unsigned room() const { return size() - slots() * slot_size() - heap; }
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

// A value too long for a cell lies elsewhere; the cell names it.
struct OverflowValue {
  std::uint64_t place;
  std::uint64_t size;
};

// What a page's bytes depend on of the order of its keys.
struct PageOrder {
  unsigned inlined;  // bytes of a suffix that the head holds: 4 where the order is that of memcmp, else 0
  int (*compare)(std::string_view a, std::string_view b);
  std::int32_t (*head)(std::string_view key);  // of a key that no prefix was taken from
};

// The sizes of a cell. Each of the two is one byte, or an escape and then 16 bits.
struct Cell {
  static constexpr unsigned kLongKey = 255, kWideValue = 254, kLongValue = 255;
  static constexpr unsigned kHeaderMax = 6;

  unsigned header = 0;
  unsigned suffix = 0;   // bytes of the key after the prefix
  unsigned value = 0;    // bytes of the value in the cell
  bool is_long = false;  // the value is a OverflowValue

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
  static Cell For(std::size_t suffix, std::size_t value, bool is_long) {
    Cell cell{2, static_cast<unsigned>(suffix), static_cast<unsigned>(value), is_long};
    if (suffix >= kLongKey) cell.header += 2;
    if (!is_long && value >= kWideValue) cell.header += 2;
    return cell;
  }
  // Writes the header's bytes; returns it as a word for shortness.
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

  // `inlined` = bytes of the suffix that are in the head.
  HAKO_INLINE unsigned Rest(unsigned inlined) const { return suffix > inlined ? suffix - inlined : 0; }
  HAKO_INLINE unsigned Size(unsigned inlined) const { return header + Rest(inlined) + value; }
};

}  // namespace hako::format
