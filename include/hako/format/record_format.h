// How a record is laid out in its block.
//
//   in memory   [lengths][key][value]
//   in a file   both lengths below 128, so 8 bytes before the key:
//               [u32 check][u16 stamp][lengths][key][value]
//               otherwise:
//               [u32 check][u16 stamp][lengths][u32 head check][key][value]
//
// Lengths are two LEB128 varints, key size then value size. The bytes after the value, up to the
// end of the block (format/size_class.h), have no meaning. The check covers lengths, key, value and
// place; the stamp is described in format/stamp.h. The head check covers the check, the lengths and
// the place of a longer record. So a scan of arbitrary bytes need not hash megabytes because of
// bytes that only look like lengths. No check covers the stamp, because it changes. The stamp
// follows the check, so that a later record that overwrites a dead record up to its stamp has also
// overwritten its check.
//
// Both checks detect accidents. They have 32 bits: torn, stale or random bytes pass a check with a
// probability of 2^-32, and then count as a record of this key and place. A scan also requires a
// valid stamp and, for a longer record, a valid head check. A lookup also compares the key. The
// secret that seeds the checks is in the file, so they do not protect against forgery. A forged
// file can cause an error or a wrong value, but never an access outside the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hako/base/hash.h"
#include "hako/base/inline.h"
#include "hako/base/varint.h"

namespace hako {

// Limits, in bytes. Longer keys and values are refused with OutOfRange before anything changes.
inline constexpr std::uint64_t kKeySizeMax = (std::uint64_t{1} << 30) - 1;
inline constexpr std::uint64_t kValueSizeMax = (std::uint64_t{1} << 32) - 1;

}  // namespace hako

namespace hako::format {

struct Lengths {
  std::uint32_t header = 0;  // size of the two varints; 0 = malformed
  std::uint64_t key_size = 0;
  std::uint64_t value_size = 0;
};
inline constexpr std::size_t kLengthsMax = 10;  // two varints below 2^32

HAKO_INLINE constexpr unsigned LengthsSize(std::uint64_t key_size, std::uint64_t value_size) {
  return (key_size | value_size) < 128 ? 2 : static_cast<unsigned>(VarintSize(key_size) + VarintSize(value_size));
}

HAKO_INLINE unsigned EncodeLengths(char* out, std::uint64_t key_size, std::uint64_t value_size) {
  if ((key_size | value_size) < 128) [[likely]] {
    out[0] = static_cast<char>(key_size);
    out[1] = static_cast<char>(value_size);
    return 2;
  }
  auto* const begin = reinterpret_cast<std::byte*>(out);
  return static_cast<unsigned>(EncodeVarint(value_size, EncodeVarint(key_size, begin)) - begin);
}

// Decodes from at most `size` bytes that no other thread changes.
inline Lengths DecodeLengths(const char* bytes, std::size_t size) {
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
  std::uint32_t key_size, value_size;
  const std::byte* end = DecodeVarint(begin, begin + size, key_size);
  if (end != nullptr) end = DecodeVarint(end, begin + size, value_size);
  if (end == nullptr) return {};
  return {static_cast<std::uint32_t>(end - begin), key_size, value_size};
}

// In a short record each length takes one byte. Most records are short, and have fast paths.
inline constexpr std::size_t kShortLength = 128;  // both lengths are below it
inline constexpr std::size_t kShortHead = 8;      // bytes before the key of a short record in a file
inline constexpr std::size_t kShortRecordMax = kShortHead + 2 * kShortLength;

// Returns the number of bytes before the key in a file. The varints take `lengths` of them, which
// is 2 if and only if both are below kShortLength.
HAKO_INLINE constexpr std::uint64_t RecordHeadSize(std::uint64_t lengths) { return lengths == 2 ? kShortHead : kShortHead + 2 + lengths; }
inline constexpr std::size_t kRecordHeadMax = kShortHead + 2 + kLengthsMax;

HAKO_INLINE constexpr std::uint32_t RecordHeadCheck(std::uint32_t check, std::uint64_t key_size, std::uint64_t value_size,
                                                    std::uint64_t offset, std::uint64_t file_secret) {
  return static_cast<std::uint32_t>(MixBits((key_size << 32 | value_size) ^ MixBits(MixBits(offset ^ file_secret) + check)));
}

// The check of a record is the low 32 bits of XXH3 over the value, seeded by the key (its hash
// covers its length), the place and the file. So a record that is stale, or was copied from another
// place, does not validate.
HAKO_INLINE constexpr std::uint64_t RecordCheckSeed(std::uint64_t key_hash, std::uint64_t offset, std::uint64_t file_secret) {
  return (key_hash ^ file_secret) + offset;
}
HAKO_INLINE std::uint32_t RecordCheck(std::string_view value, std::uint64_t key_hash, std::uint64_t offset, std::uint64_t file_secret) {
  return static_cast<std::uint32_t>(Hash64(value, RecordCheckSeed(key_hash, offset, file_secret)));
}

}  // namespace hako::format
