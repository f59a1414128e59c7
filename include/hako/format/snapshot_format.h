// A snapshot: all records of a database as a byte stream.
//
//   [header, 64 bytes][block]...[end block]
//   block = [u32 payload bytes][u32 records][u64 check][payload: records as in
//           format/record_format.h]
//
// A block has at least one record. The end block has none; its payload is a SnapshotEnd. The check
// is XXH3 of the payload, seeded by the snapshot's id, the block's offset and its two counts, so a
// block of another snapshot or place does not validate.
//
// More end blocks may follow, each naming another log. The last valid one counts. An invalid end
// block after it is incomplete or damaged. If it is incomplete, the log that it was to name has no
// update yet.
//
// Version history
//   1  the first: one end block, whose payload is the total number of records as a u64
//   2  SnapshotEnd: the applied index, and a log
//   3  values have the stored form of dbm/expiry.h, and SnapshotEnd has a clock. Snapshots of
//      databases whose records do not expire are written as version 2, whose SnapshotEnd lacks the
//      clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/format/log_format.h"

namespace hako::format {

inline constexpr std::array<char, 16> kSnapshotMagic = {'h', 'a', 'k', 'o', ' ', 's', 'n', 'a', 'p', 's', 'h', 'o', 't', '\r', '\n', 26};
inline constexpr std::uint32_t kSnapshotVersion = 3;
inline constexpr std::uint32_t kSnapshotPlainVersion = 2;  // of snapshots without a clock

struct SnapshotHeader {
  std::array<char, 16> magic;
  Le<std::uint32_t> version;
  Le<std::uint32_t> reserved0;
  Le<std::uint64_t> id;
  std::array<char, 24> reserved;
  Le<std::uint64_t> check;  // of the 56 bytes before it
};
static_assert(sizeof(SnapshotHeader) == 64 && alignof(SnapshotHeader) == 1);

struct SnapshotBlockHeader {
  Le<std::uint32_t> payload_bytes;
  Le<std::uint32_t> records;
  Le<std::uint64_t> check;
};
static_assert(sizeof(SnapshotBlockHeader) == 16 && alignof(SnapshotBlockHeader) == 1);

// Names the log with the updates since the snapshot (format/log_format.h): its id (zeros = none),
// where those updates begin, and the secret of its checks. With kLogEnded the snapshot has all
// updates.
struct SnapshotLog {
  std::array<std::byte, 16> id{};
  Le<std::uint64_t> lsn, sequence, secret;

  bool HasEnded() const { return (sequence & kLogEnded) != 0; }
  bool IsNeeded() const { return id != decltype(id){} && !HasEnded(); }
};
struct SnapshotEnd {
  Le<std::uint64_t> records;  // number of records in all blocks
  Le<std::uint64_t> applied_index;
  SnapshotLog log;
  // The latest time that the database has seen, in milliseconds since 1970; 0 = records do not
  // expire.
  Le<std::uint64_t> clock;
};
static_assert(sizeof(SnapshotEnd) == 64 && alignof(SnapshotEnd) == 1);
inline constexpr std::size_t SnapshotEndSize(std::uint32_t version) {
  return version == 1 ? offsetof(SnapshotEnd, applied_index) : version == 2 ? offsetof(SnapshotEnd, clock) : sizeof(SnapshotEnd);
}

inline std::uint64_t SnapshotBlockCheck(std::string_view payload, std::uint32_t records, std::uint64_t id, std::uint64_t offset) {
  return Hash64(payload, MixBits(id ^ offset) ^ (std::uint64_t{records} << 32 | payload.size()));
}

}  // namespace hako::format
