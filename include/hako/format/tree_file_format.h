// The file of a TreeDBM (.hkt). All numbers are little-endian; space is counted in units of 512
// bytes.
//
//   offset      0  superblock slot 0          512 bytes used
//            4096  superblock slot 1
//            8192  units: images of pages, long values, nodes of the page map; in any order, with
//                  free units between them
//
// A page or a long value is named by an id. The page map tells where its image lies. It is a radix
// tree: a node has 256 entries of 16 bytes; entry i, counted over all nodes of one level, names
// node i of the level below, and on the lowest level the image with id i. The superblock has the
// entries that name the highest nodes. An entry holds the checksum of the node or image that it
// names, so the superblock's own checksum covers the whole tree.
//
// A unit that the valid superblock reaches is never overwritten. A checkpoint
// 1. writes the changes to free units and syncs,
// 2. writes the superblock slot that is not the newer one, and syncs.
// After a crash the file has the state of the last checkpoint, and Open reads only a superblock
// slot. If the slot names a log, Open replays the updates of the log from log_lsn on. A new file
// starts with a superblock that names no root, which is synced before anything else: an empty
// database.
//
// The image of a page
//   PageImageHeader
//   heads     i32[count]    as in format/page_format.h
//   children  u32[count]    inner pages only
//   offsets   u16[count]    of the cells, counted back from the end of the image
//   heap      cells, fences, prefix, PageTail: the end of the page as it is in memory
// The part after the header may be compressed (base/page_codec.h). The check of the image also
// covers the zeros up to the next unit.
//
// The image of a long value is its bytes, and the check covers only these.
//
// Version history
//   1  the first
//   2  applied_index, which is zero in files of version 1. A checkpoint of a file of version 1 makes
//      it one of version 2.
//   3  values have the stored form of dbm/expiry.h, and there is a clock. Files without expiry are
//      written as 2. Files of before the release may lack first_expiry: it is zero there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/format/page_format.h"

namespace hako::format {

inline constexpr std::array<char, 16> kTreeFileMagic = {'h', 'a', 'k', 'o', ' ', 't', 'r', 'e', 'e', ' ', 'D', 'B', 'M', '\r', '\n', 26};
inline constexpr std::uint32_t kTreeFileVersion = 3;
inline constexpr std::uint32_t kTreeFilePlainVersion = 2;  // of files without a clock
inline constexpr std::uint64_t kTreeUnit = 512;
inline constexpr std::uint64_t TreeUnitsFor(std::uint64_t bytes) { return (bytes + kTreeUnit - 1) / kTreeUnit; }
inline constexpr std::uint64_t kTreeFirstUnit = 8192 / kTreeUnit;
inline constexpr unsigned kMapFanout = 256;
inline constexpr unsigned kMapLevels = 3;
inline constexpr unsigned kMapRoots = 4;
inline constexpr std::uint64_t kTreeIdsMax = std::uint64_t{kMapRoots} << 24;  // a root per 256^3 ids
static_assert(kTreeIdsMax == std::uint64_t{kMapRoots} * kMapFanout * kMapFanout * kMapFanout);
inline constexpr std::size_t kComparatorNameMax = 64;
inline constexpr std::size_t kCodecNameMax = 16;

// The place of an image; all zero if there is none.
struct PageEntry {
  static constexpr unsigned kPlaceBits = 40;
  Le<std::uint64_t> place_and_units;
  // XXH3 of the image, seeded by the file's secret and the id, or the level and number of a node.
  Le<std::uint64_t> check;

  static PageEntry For(std::uint64_t place, std::uint64_t units, std::uint64_t check) { return {place | units << kPlaceBits, check}; }
  std::uint64_t place() const { return place_and_units & ((std::uint64_t{1} << kPlaceBits) - 1); }
  std::uint64_t units() const { return place_and_units >> kPlaceBits; }
  bool IsNone() const { return place_and_units == 0; }
};
static_assert(sizeof(PageEntry) == 16 && alignof(PageEntry) == 1);

struct TreeSuperBlock {
  std::array<char, 16> magic;
  Le<std::uint32_t> version;
  Le<std::uint32_t> page_size;
  std::array<char, kComparatorNameMax> comparator;  // name, zero-padded
  std::array<char, kCodecNameMax> codec;            // name, zero-padded
  Le<std::uint64_t> secret;                         // seeds the checksums
  // Counts checkpoints, from 1; the slot with the larger one is newer.
  Le<std::uint64_t> sequence;
  Le<std::uint64_t> end;  // no unit at or above it is in use
  Le<std::uint64_t> num_records;
  Le<std::uint32_t> root;      // id of the root page; 0: no checkpoint yet
  Le<std::uint32_t> id_end;    // no id at or above it is in use
  Le<std::uint64_t> num_long;  // number of long values
  // The LSN of the first update that is in the log (format/log_format.h) and not in the checkpoint.
  Le<std::uint64_t> log_lsn;
  std::array<PageEntry, kMapRoots> map;
  std::array<std::byte, 64> metadata;  // the user's
  Le<std::uint32_t> type;              // the user's
  std::array<std::byte, 4> reserved0;
  Le<std::uint64_t> synced_at;       // microseconds since 1970; informative only
  Le<std::uint64_t> num_ids;         // number of ids in use; 0: unknown
  std::array<std::byte, 16> log_id;  // of the log that has the updates since the checkpoint; zero = none
  Le<std::uint64_t> log_sequence;    // of the segment of the log that contains log_lsn or ends at it
  Le<std::uint64_t> applied_index;   // of the application (dbm/write_batch.h)
  // The latest time that the database has seen, in milliseconds since 1970; 0 = records do not
  // expire.
  Le<std::uint64_t> clock;
  // After a clean close: no record of the file expires before this time; ~0 = none expires, 0 =
  // unknown.
  Le<std::uint64_t> first_expiry;
  Le<std::uint64_t> file_id;  // random, and another one in a copy (CopyTo); 0 in files of an older library
  std::array<std::byte, 128> reserved;
  // Has no meaning. MakeSuperDurable changes the first byte, so that the system writes the block to
  // the device again.
  std::array<std::byte, 8> touched;
  Le<std::uint64_t> check;  // of the 496 bytes before `touched`
};
static_assert(sizeof(TreeSuperBlock) == 512 && alignof(TreeSuperBlock) == 1 && offsetof(TreeSuperBlock, check) == 504);

inline std::uint64_t CheckOf(const TreeSuperBlock& block) { return Hash64(&block, offsetof(TreeSuperBlock, touched), 0x68616b74); }

struct PageImageHeader {
  Le<std::uint32_t> id;
  std::uint8_t count;
  std::uint8_t kind;  // the bits kLevel and kGuarded of PageShape::kind
  Le<std::uint16_t> prefix;
  Le<std::uint16_t> heap;
  Le<std::uint16_t> packed;  // compressed size of the rest; 0: it is not compressed
  std::array<std::byte, 4> reserved;
};
static_assert(sizeof(PageImageHeader) == 16 && alignof(PageImageHeader) == 1);

inline constexpr std::size_t kPageImageMax = 33 << 10;
static_assert(kPageImageMax >= sizeof(PageImageHeader) + kPageUnitsMax * kPageUnit && kPageImageMax % kTreeUnit == 0);

}  // namespace hako::format
