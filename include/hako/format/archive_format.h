// A file of a log archive: one segment of the log of a database (format/log_format.h) that the log
// itself no longer needs. All numbers are little-endian.
//
// The name of the file is the sequence of the segment, in 20 decimal digits, with the suffix .hka.
// The records follow the header at kLogSegmentHeader, from first_lsn up to end_lsn, as they were in
// the log. All of them are valid, and end_lsn is where the next segment of the history begins.
//
// Each opening of the database begins a log with another id. A file names the previous segment by
// its log and sequence, so segments of two branches of a history never fit together.
//
// Version history
//   1  the first
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/format/log_format.h"

namespace hako::format {

inline constexpr std::array<char, 16> kArchiveMagic = {'h', 'a', 'k', 'o', ' ', 'a', 'r', 'c', 'h', 'i', 'v', 'e', 0, '\r', '\n', 26};
inline constexpr std::uint32_t kArchiveVersion = 1;
inline constexpr std::string_view kArchiveSuffix = ".hka";
inline constexpr std::size_t kArchiveDigits = 20;
inline constexpr std::string_view kArchiveOwner = "owner";  // a file with the path of the database that has locked the archive

struct ArchiveHeader {
  std::array<char, 16> magic;
  Le<std::uint32_t> version;
  Le<std::uint32_t> index;                    // of the segment in the file of its log
  std::array<std::byte, 16> log;              // the id of the log
  std::array<std::byte, 16> predecessor_log;  // of the log of the segment before; zeros = none
  Le<std::uint64_t> sequence, predecessor;    // 0 = none
  Le<std::uint64_t> first_lsn, end_lsn;
  Le<std::uint64_t> secret;  // seeds the checks of the records
  Le<std::uint64_t> time;    // when the segment began, in microseconds since 1970
  Le<std::uint64_t> check;   // XXH3 of the fields above
};
static_assert(sizeof(ArchiveHeader) == 112 && sizeof(ArchiveHeader) <= kLogSegmentHeader && alignof(ArchiveHeader) == 1);
inline std::uint64_t CheckOf(const ArchiveHeader& header) { return Hash64(&header, offsetof(ArchiveHeader, check), 0); }

}  // namespace hako::format
