// The log of a database: its updates in the order in which they were made. All numbers are
// little-endian.
//
// The file is a row of segments. Segments 0 and 1 have 16 KiB. Each later one is as large as all
// before it together, up to 16 MiB. A segment has a LogSegmentHeader and, from kLogSegmentHeader
// on, records at multiples of 8 bytes. A segment whose records are no longer needed is written
// again with a higher sequence.
//
// An LSN (log sequence number) is a position in the log: the number of bytes of all records before
// it. A segment stores the LSN of its first record. Its records end where its successor begins; the
// successor is the segment of the highest sequence that names it as its predecessor. The records of
// the last segment end at the first invalid one.
//
// A record is a LogRecordHeader and up to kLogPartMax bytes. Its check covers its LSN and the
// sequence of its segment, so records that an earlier use of the segment left are invalid.
//
// An entry, such as "set this key to this value", is key and value back to back, in as many records
// as it needs. The body of the first record is split at key_size; the body of a kPart is not split.
//
// A run is one or more entries that take effect together. The records of a short run are
// contiguous. The records of a long run have a stream number; records of other runs may lie between
// them, but none with the same stream number. A run takes effect where it ends. A run without an
// end has no effect.
//
// The id of a log is eight random bytes, and eight bytes computed from these and from the identity
// of the database file (LogIdOf). So Open can tell whether a log that the file does not name once
// belonged to the file.
//
// The log of a database with an archive (format/archive_format.h) continues the LSNs and sequences of
// the log before it, which has another id. Each of its segments also has a LogSegmentHistory, and
// its marks have times.
//
// Version history
//   1  the first
//   2  kAppliedIndex
//   3  streams
//   4  LogSegmentHistory, and the time of a mark
//   5  kTime. Segments of databases whose records do not expire are written as version 4.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "hako/base/endian.h"
#include "hako/base/hash.h"

namespace hako::format {

inline constexpr std::array<char, 16> kLogMagic = {'h', 'a', 'k', 'o', ' ', 'l', 'o', 'g', 0, 0, 0, 0, 0, '\r', '\n', 26};
inline constexpr std::uint32_t kLogVersion = 5, kLogPlainVersion = 4;

inline constexpr std::uint64_t kLogSegmentMin = 16 << 10, kLogSegmentMax = 16 << 20;
inline constexpr unsigned kLogDoublings = std::bit_width(kLogSegmentMax / kLogSegmentMin) - 1;
inline constexpr std::uint64_t LogSegmentSize(std::uint32_t index) {
  return kLogSegmentMin << std::min(index == 0 ? 0u : index - 1, kLogDoublings);
}
inline constexpr std::uint64_t LogSegmentOffset(std::uint32_t index) {
  if (index == 0) return 0;
  if (index <= kLogDoublings + 1) return kLogSegmentMin << (index - 1);
  return kLogSegmentMax * (index - kLogDoublings);
}
inline constexpr std::uint64_t kLogSegmentHeader = 128;  // bytes before the first record

struct LogSegmentHeader {
  std::array<char, 16> magic;
  Le<std::uint32_t> version;
  Le<std::uint32_t> index;                  // of the segment in the file
  std::array<std::byte, 16> database;       // identifies the log
  Le<std::uint64_t> sequence, predecessor;  // from 1; 0 = none
  Le<std::uint64_t> first_lsn;              // of the first record
  Le<std::uint64_t> check;                  // XXH3 of the fields above
};
static_assert(sizeof(LogSegmentHeader) == 72 && alignof(LogSegmentHeader) == 1);
inline std::uint64_t CheckOf(const LogSegmentHeader& header) { return Hash64(&header, offsetof(LogSegmentHeader, check), 0); }

// Follows the header of a segment if the log has an archive; otherwise these bytes are zero.
struct LogSegmentHistory {
  std::array<std::byte, 16> predecessor_log;  // the id of the log that has the predecessor
  Le<std::uint64_t> secret;                   // seeds the checks of the records
  Le<std::uint64_t> time;                     // when the segment began, in microseconds since 1970
  Le<std::uint64_t> check;                    // XXH3 of the header and the fields above
};
static_assert(sizeof(LogSegmentHistory) == 40 && alignof(LogSegmentHistory) == 1);
struct LogSegmentStart {
  LogSegmentHeader header;
  LogSegmentHistory history;
};
static_assert(sizeof(LogSegmentStart) == 112 && sizeof(LogSegmentStart) <= kLogSegmentHeader);
inline std::uint64_t CheckOf(const LogSegmentStart& start) {
  return Hash64(&start, offsetof(LogSegmentStart, history) + offsetof(LogSegmentHistory, check), 0);
}

using LogId = std::array<std::byte, 16>;
// Returns the id of a log with these random bytes, of the file that `owner` identifies.
inline LogId LogIdOf(std::uint64_t random, std::uint64_t owner) {
  const Le<std::uint64_t> words[] = {random, Hash64(&random, sizeof(random), owner)};
  LogId id;
  static_assert(sizeof(words) == sizeof(id));
  std::memcpy(id.data(), words, sizeof(id));
  return id;
}
inline bool IsLogIdOf(const LogId& id, std::uint64_t owner) {
  Le<std::uint64_t> random = 0;
  std::memcpy(static_cast<void*>(&random), id.data(), sizeof(random));
  return id == LogIdOf(random, owner);
}

// A bit in the sequence by which a database file names a segment of its log. If it is set, the log
// ended with this segment, the whole log is in the archive, and the log's file is not needed. The
// LSN is that of the state.
inline constexpr std::uint64_t kLogEnded = std::uint64_t{1} << 63;
// Set together with kLogEnded in a copy of an open database: the history continues in that
// database.
inline constexpr std::uint64_t kLogOfCopy = std::uint64_t{1} << 62;

// The kind of a record: what its replay does.
enum class LogOp : std::uint8_t {
  kPart = 0,          // continues the entry of the record before
  kMark = 1,          // no entry: a LogMark
  kSet = 2,           // stores the value
  kRemove = 3,        // removes the record of the key
  kRemoveRange = 4,   // removes the keys in [key, value)
  kRemoveFrom = 5,    // removes the keys from key on
  kClear = 6,         // removes all records
  kAppliedIndex = 7,  // sets the applied index of the database to the number in the value, 8 bytes
  kTime = 8,          // the time of the database (dbm/expiry.h), 8 bytes in the value; alone in its run
};
inline constexpr std::uint8_t kLogOps = 9;

// The body of a kMark. It has no time if the log has no archive.
struct LogMark {
  Le<std::uint64_t> durable;  // everything below this LSN was durable
  Le<std::uint64_t> time;     // in microseconds since 1970; all updates after the mark were made at this time or later
};
static_assert(sizeof(LogMark) == 16 && alignof(LogMark) == 1);

// An entry in memory. The `value` of a kRemoveRange is the end of the range.
struct LogEntry {
  LogOp op;
  std::string_view key, value;
};

// Returns the time in a kTime; nullopt if the entry has none.
inline std::optional<std::uint64_t> TimeIn(const LogEntry& entry) {
  Le<std::uint64_t> time = 0;
  if (!entry.key.empty() || entry.value.size() != sizeof(time)) return std::nullopt;
  std::memcpy(static_cast<void*>(&time), entry.value.data(), sizeof(time));
  return time;
}

struct LogRecordHeader {
  static constexpr std::uint8_t kEntryContinues = 1;  // flags: the entry goes on in the next record
  static constexpr std::uint8_t kRunContinues = 2;    // another entry of the run follows
  static constexpr std::uint8_t kStreamBegins = 4;    // the first record of a run with a stream number

  Le<std::uint32_t> check;
  Le<std::uint32_t> size;  // bytes of the record without padding
  Le<std::uint8_t> op, flags;
  Le<std::uint16_t> stream;    // the stream number of a long run; 0 = a short run
  Le<std::uint32_t> key_size;  // bytes of the entry that are its key; 0 in a kPart
};
static_assert(sizeof(LogRecordHeader) == 16 && alignof(LogRecordHeader) == 1);
inline constexpr std::size_t kLogPartMax = 8 << 10;
inline constexpr unsigned kLogStreams = 64;  // numbers from 1 to this
inline constexpr std::uint64_t LogRecordSpace(std::uint64_t size) { return (size + 7) / 8 * 8; }

// Returns the check of the record that begins at `record`, whose header is complete except for the
// check.
inline std::uint32_t LogCheck(const char* record, std::size_t size, std::uint64_t lsn, std::uint64_t sequence, std::uint64_t secret) {
  constexpr std::size_t kBegin = sizeof(LogRecordHeader::check);
  const std::uint64_t seed = (secret ^ lsn) + sequence * 0x9e3779b97f4a7c15u;
  return static_cast<std::uint32_t>(Hash64(record + kBegin, size - kBegin, seed));
}

}  // namespace hako::format
