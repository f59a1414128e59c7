// The file of an ArrayDBM (.hka). It is a file of pages like that of a tree
// (format/tree_file_format.h), with the same superblock slots, page map and checkpoints, and
// another magic. Three fields of the superblock differ:
//   page_size   the width of a record in bytes, 1 to 4096
//   comparator  "record number"
//   root        id of the directory page of level 4, number 0
//
// Records are numbered by ids below 2^40. A leaf has k records, where k follows from the width
// (ArrayShape): leaf n has the ids [n k, (n + 1) k). Directory pages of 1024 entries find a leaf by
// its number: page m of level l names the pages [1024 m, 1024 (m + 1)) of level l - 1. Leaves are
// level 0. A page without records need not exist.
//
// The image of a page
//   ArrayImageHeader
//   leaf: presence bits, (k + 7) / 8 bytes; then the records that are present, `width` bytes each
//   directory: `count` times DirectoryEntry, in ascending order of index
//
// A page in memory
//   leaf       k records in order. The presence bits are in the hints of its line
//              (format/page_format.h) if they fit there (k <= 384), else at the beginning of the
//              page.
//   directory  u32[1024]: the ids of the children; 0 = none
// The shape in the line of a page stores the level of the page. It stores the page's number in the
// fields that describe the slots in a page of a tree.
//
// Version history
//   1  the first
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hako/base/endian.h"
#include "hako/base/inline.h"
#include "hako/format/page_format.h"
#include "hako/format/tree_file_format.h"

namespace hako {

inline constexpr unsigned kRecordWidthMax = 4096;                            // bytes
inline constexpr std::uint64_t kRecordIdMax = (std::uint64_t{1} << 40) - 1;  // of a record of an array

}  // namespace hako

namespace hako::format {

inline constexpr std::array<char, 16> kArrayFileMagic = {'h', 'a', 'k', 'o', ' ', 'a', 'r', 'r', 'a', 'y', ' ', 'D', 'B', 'M', '\n', 26};
inline constexpr std::uint32_t kArrayFileVersion = 1;
inline constexpr unsigned kFanoutBits = 10, kFanout = 1u << kFanoutBits;
inline constexpr unsigned kDirectoryLevels = 4;
inline constexpr unsigned kDirectoryBytes = kFanout * sizeof(std::uint32_t);
inline constexpr unsigned kHintBits = 32 * kPageHints;

struct ArrayImageHeader {
  Le<std::uint32_t> id;
  std::uint8_t level;
  std::uint8_t number_high;  // bits 32 to 39 of the page's number in its level
  Le<std::uint16_t> count;   // of records or children
  std::array<std::byte, 4> reserved;
  Le<std::uint32_t> number_low;

  std::uint64_t number() const { return std::uint64_t{number_high} << 32 | number_low; }
};
static_assert(sizeof(ArrayImageHeader) == 16 && alignof(ArrayImageHeader) == 1);

struct DirectoryEntry {
  Le<std::uint16_t> index;
  Le<std::uint32_t> child;
};
static_assert(sizeof(DirectoryEntry) == 6 && alignof(DirectoryEntry) == 1);

// Returns the shape of a page's line, with its level and number.
inline PageShape ArrayPageShape(unsigned level, std::uint64_t number, unsigned units) {
  PageShape shape;
  shape.kind = static_cast<std::uint8_t>(level);
  shape.units = static_cast<std::uint8_t>(units);
  shape.prefix = static_cast<std::uint16_t>(number);
  shape.heap = static_cast<std::uint16_t>(number >> 16);
  shape.count = static_cast<std::uint8_t>(number >> 32);
  return shape;
}
inline std::uint64_t NumberOfArrayPage(const PageShape& shape) {
  return std::uint64_t{shape.count} << 32 | std::uint64_t{shape.heap} << 16 | shape.prefix;
}

// The layout of a leaf: how many records of a width it has, and where they are in memory.
//
// Among the numbers of records whose full image takes at most 17 units of 512 bytes, a leaf has the
// number with the least space for each record. This space includes the image and the entry of the
// page map, and exceeds the width by at most 12 % and a bit. Numbers whose presence bits fit into
// the hints of a line are preferred within that bound.
struct ArrayShape {
  unsigned width = 0;
  unsigned per_leaf = 0;    // records of a leaf, at least 2
  unsigned data_begin = 0;  // where the records begin in a leaf; presence bits that are not in the line precede them
  unsigned units = 0;       // of a leaf in memory

  static constexpr unsigned kImageUnitsMax = 17;

  unsigned bit_bytes() const { return (per_leaf + 7) / 8; }
  bool bits_in_line() const { return data_begin == 0; }
  std::uint64_t leaves() const { return kRecordIdMax / per_leaf + 1; }  // leaves for all ids
  // The number of pages that a level can have.
  std::uint64_t PagesOf(unsigned level) const { return ((leaves() - 1) >> kFanoutBits * level) + 1; }

  static ArrayShape For(unsigned width) {
    ArrayShape shape;
    shape.width = width;
    shape.per_leaf = Best(width, kHintBits);
    if (Cost(width, shape.per_leaf) * 100 > shape.per_leaf * (width * 112 + 12)) {
      shape.per_leaf = Best(width, ~0u);
      shape.data_begin = (shape.bit_bytes() + 7) / 8 * 8;
    }
    shape.units = (shape.data_begin + shape.per_leaf * width + kPageUnit - 1) / kPageUnit;
    return shape;
  }

 private:
  static std::uint64_t ImageBytes(unsigned width, unsigned count) {
    return sizeof(ArrayImageHeader) + (count + 7) / 8 + std::uint64_t{count} * width;
  }
  // Returns the bytes that a full leaf takes in the file.
  static std::uint64_t Cost(unsigned width, unsigned count) {
    return TreeUnitsFor(ImageBytes(width, count)) * kTreeUnit + sizeof(PageEntry) + sizeof(DirectoryEntry);
  }
  static unsigned Best(unsigned width, unsigned most) {
    unsigned best = 0;
    for (unsigned units = 1; units <= kImageUnitsMax; ++units) {
      unsigned count = std::min(most, static_cast<unsigned>(units * kTreeUnit / width));
      while (count > 0 && ImageBytes(width, count) > units * kTreeUnit) --count;
      if (count < 2 || count == best) continue;
      if (best == 0 || Cost(width, count) * best < Cost(width, best) * count) best = count;
    }
    return best;
  }
};

}  // namespace hako::format
