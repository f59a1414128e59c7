// The file of a HashDBM (.hkh). All numbers are little-endian.
//
//   offset      0  superblock slot 0          512 bytes used
//            4096  superblock slot 1
//            8192  live state                 of the process that has, or had, the file open
//            9216  intent words               32 x u64, one in 64 bytes; see below
//           12288  index extents              5,120 x u32, see IndexExtentEntry
//           32768  extents, each a multiple of 16 KiB: heap extents begin with a HeapExtentHeader,
//                  index extents are bare buckets
//            tail  after a clean close: the closing note (free space), then the index of a file
//                  that is not mapped (hash/file/index_arena.h)
//
// The superblock names the last synced state; the newer valid slot counts. Only one slot is written
// at a time, and the other is updated after the first is durable, so a torn slot never loses a
// synced state. Recovery from a crash of the machine uses neither the live state nor the index: it
// scans the heap for the records of the synced epoch (format/stamp.h). If only the process died,
// the kernel's page cache has everything, and the live state says where the index is.
//
// Version history
//   1  before any release: another closing note, fewer fields in the live state. No longer read.
//   2  before any release: the closing note did not store the size of free blocks that are still
//      stamped as retired. No longer read.
//   3  before any release: other stamps (format/stamp.h). No longer read.
//   4  before any release: the head check of longer records had 16 bits and did not cover the check.
//      No longer read.
//   5  before any release: the extents began at 64 KiB and were multiples of that; large index
//      extents had 1 MiB. No longer read.
//   6  before any release: no intents, no applied index, no last epoch, no log; these are zero there.
//      Read, and written as the current version.
//   7  Files of before the release may lack map_identity, map_boot, seals and `published`: they are
//      zero there.
//   8  values have the stored form of dbm/expiry.h, and there is a clock. Files without expiry are
//      written as 7. Files of before the release may lack first_expiry: it is zero there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hako/base/endian.h"
#include "hako/base/hash.h"

namespace hako::format {

inline constexpr std::array<char, 16> kHashFileMagic = {'h', 'a', 'k', 'o', ' ', 'h', 'a', 's', 'h', ' ', 'D', 'B', 'M', '\r', '\n', 26};
inline constexpr std::uint32_t kHashFileVersion = 8;
inline constexpr std::uint32_t kHashFilePlainVersion = 7;  // of files without a clock
inline constexpr std::uint32_t kHashFileOldest = 6;        // oldest version that is still read
inline constexpr std::uint64_t kExtentUnit = 16 << 10;
// Extents of at least this size, except the first, begin at a multiple of it.
inline constexpr std::uint64_t kExtentAlignment = 64 << 10;
inline constexpr std::uint64_t kSmallIndexExtent = 64 << 10, kLargeIndexExtent = 4 << 20;
inline constexpr std::uint64_t kLiveStateOffset = 8192;
inline constexpr std::uint64_t kIntentsOffset = 9216;
inline constexpr std::uint64_t kIndexExtentsOffset = 12288;
inline constexpr std::uint64_t kFirstExtent = 32 << 10;
inline constexpr std::uint64_t kIndexExtentsMax = (kFirstExtent - kIndexExtentsOffset) / 4;

struct HashSuperBlock {
  std::array<char, 16> magic;
  Le<std::uint32_t> version;
  Le<std::uint32_t> align_pow;
  Le<std::uint64_t> hash_seed;
  Le<std::uint64_t> secret;    // seeds the record checks
  Le<std::uint64_t> sequence;  // of commits; the slot with the larger one is newer
  Le<std::uint64_t> epoch;     // s, the last durable epoch
  Le<std::uint64_t> tail;      // the end of the extents
  Le<std::uint64_t> num_records;
  Le<std::uint64_t> clean;  // 1 = closed cleanly; then the next five fields are valid
  Le<std::uint64_t> num_lines;
  Le<std::uint64_t> index_extents;
  Le<std::uint64_t> index_check;  // checksum of the index, in its extents or after the note
  Le<std::uint64_t> note_size;    // of the closing note, at tail
  Le<std::uint64_t> note_check;
  std::array<std::byte, 64> metadata;  // the user's
  Le<std::uint32_t> type;              // the user's
  std::array<std::byte, 4> reserved0;
  // When the epoch was made durable, in microseconds since 1970. Nothing depends on it.
  Le<std::uint64_t> synced_at;
  // The progress of the sweep (hash/file/stamp_sweep.h): an extent, the place in it, and where the
  // pass ends.
  Le<std::uint64_t> sweep_extent;
  Le<std::uint64_t> sweep_to;
  Le<std::uint64_t> sweep_end;
  Le<std::uint64_t> applied_index;  // of the application, as of the epoch; 0 = none
  Le<std::uint64_t> last_epoch;     // the latest epoch that a stamp in the file may name; less than s + 2 means s + 2
  // The log that has the updates since the epoch (zeros = none), and where they begin.
  std::array<std::byte, 16> log_id;
  Le<std::uint64_t> log_lsn;
  Le<std::uint64_t> log_sequence;
  // Names the file and the boot in which a process last mapped it; 0 = the last user did not map
  // the file, or its pages were not in the page cache.
  Le<std::uint64_t> map_identity;
  // The latest time that the database has seen, in milliseconds since 1970; 0 = records do not
  // expire.
  Le<std::uint64_t> clock;
  // After a clean close: no record of the file expires before this time; ~0 = none expires, 0 =
  // unknown.
  Le<std::uint64_t> first_expiry;
  Le<std::uint64_t> file_id;  // random; 0 in files of an older library
  // Names the boot of map_identity alone; 0 = map_identity is 0, or the boot is unknown.
  Le<std::uint64_t> map_boot;
  std::array<std::byte, 192> reserved;
  Le<std::uint64_t> check;  // of the 504 bytes before it
};
static_assert(sizeof(HashSuperBlock) == 512 && alignof(HashSuperBlock) == 1 && offsetof(HashSuperBlock, check) == 504);

inline std::uint64_t CheckOf(const HashSuperBlock& block) { return Hash64(&block, offsetof(HashSuperBlock, check), 0x68616b6f); }

// The state of the process that has the file open, updated by single stores into the map. It names
// the boot and the inode, and is trusted only while they are the same: then the page cache still
// has everything that was stored. Sealed fields have a check in their upper bits (SealLive);
// applied_index has none.
struct LiveState {
  std::uint64_t in_use;  // 1 while a process has the file open for writing
  std::array<std::byte, 16> boot_id;
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t epoch;  // the current epoch; sealed, as the next three fields are
  std::uint64_t tail;
  std::uint64_t num_lines;
  std::uint64_t index_extents;
  std::uint64_t clearing;              // kClearing while Clear runs: the next Open finishes it
  std::uint64_t poisoned;              // kPoisoned or kDoubtful after a failed sync: the page cache may have dropped dirty pages
  std::uint64_t oldest_retired_epoch;  // no block is stamped as retired in an earlier epoch; sealed
  std::uint64_t applied_index;         // of the application; 0 = none
  std::uint64_t published;             // kPublished or kWithdrawn, stored after in_use = 1 and before in_use = 0
  std::uint64_t clock;                 // as SuperBlock::clock; with a check (SealClock)
};
static_assert(sizeof(LiveState) == 120 && alignof(LiveState) == 8);

// Values that a flipped bit cannot produce.
inline constexpr std::uint64_t kClearing = 0x63'6c'65'61'72'69'6e'67;
inline constexpr std::uint64_t kPoisoned = 0x70'6f'69'73'6f'6e'65'64;
inline constexpr std::uint64_t kDoubtful = 0x64'6f'75'62'74'66'75'6c;  // set by the Open after a kill
inline constexpr std::uint64_t kPublished = 0x70'75'62'6c'69'73'68'65, kWithdrawn = 0x77'69'74'68'64'72'61'77;

// A sealed word has a value in its low 40 bits, and a check above it that older files lack.
inline constexpr unsigned kLiveBits = 40;
inline std::uint64_t SealLive(std::uint64_t value) { return value | MixBits(value) << kLiveBits; }
// Returns the value; all bits set if it fails its check.
inline std::uint64_t UnsealLive(std::uint64_t word) {
  const std::uint64_t value = word & ((std::uint64_t{1} << kLiveBits) - 1);
  return word == value || word == SealLive(value) ? value : ~std::uint64_t{0};
}

// A sealed clock has a value of 53 bits.
inline constexpr unsigned kClockBits = 53;
inline std::uint64_t SealClock(std::uint64_t clock) { return clock | MixBits(clock) >> kClockBits << kClockBits; }
inline std::uint64_t UnsealClock(std::uint64_t word) { return word & ((std::uint64_t{1} << kClockBits) - 1); }
inline bool IsSealedClock(std::uint64_t word) { return word == SealClock(UnsealClock(word)) || word == UnsealClock(word); }

// The intent words belong to the live state. Each is 0 or the handle of an intent
// (format/intent_format.h) whose changes are being made. Intents with an applied index use only
// word 0, so there is at most one of them at a time.
inline constexpr unsigned kIntentWords = 32;
inline constexpr std::uint64_t kIntentDistance = 64;
static_assert(kIntentsOffset >= kLiveStateOffset + sizeof(LiveState) &&
              kIntentsOffset + kIntentWords * kIntentDistance <= kIndexExtentsOffset);

// Bits 0..29: offset / 16 KiB; bit 30: 4 MiB long, else 64 KiB; bit 31: overflow buckets, else the
// next chunk of buckets.
struct IndexExtentEntry {
  std::uint64_t offset;
  std::uint64_t bytes;
  bool overflow;

  std::uint32_t Pack() const {
    return static_cast<std::uint32_t>(offset / kExtentUnit) | (bytes > kSmallIndexExtent ? 1u << 30 : 0) | (overflow ? 1u << 31 : 0);
  }
  static IndexExtentEntry Unpack(std::uint32_t word) {
    return {(word & 0x3fffffff) * kExtentUnit, (word >> 30 & 1) != 0 ? kLargeIndexExtent : kSmallIndexExtent, word >> 31 != 0};
  }
};

struct HeapExtentHeader {
  std::array<char, 8> magic;
  Le<std::uint64_t> bytes;  // size of the whole extent
  std::array<std::byte, 40> reserved;
  Le<std::uint64_t> check;  // of the 56 bytes before it, seeded by the file's secret and the offset

  std::uint64_t CheckAt(std::uint64_t offset, std::uint64_t secret) const {
    return Hash64(this, offsetof(HeapExtentHeader, check), MixBits(secret ^ offset));
  }
};
static_assert(sizeof(HeapExtentHeader) == 64);
inline constexpr std::array<char, 8> kHeapExtentMagic = {'h', 'a', 'k', 'o', 'h', 'e', 'a', 'p'};

}  // namespace hako::format
