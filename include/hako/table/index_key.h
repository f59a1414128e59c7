// The keys of a table's records, and how values become parts of them so that the order of the bytes
// is the order of the values.
//
//   00 'h'                          the header of the table (table/catalogue.h)
//   00 'c' NUMBER                   a column; numbers are 2 bytes, big-endian
//   00 'i' NUMBER                   an index
//   00 'n'                          the number of rows, while the table is closed
//   01 KEY                          a row, by its primary key (table/row.h)
//   02 NUMBER PARTS [KEY]           an entry of an index; without KEY where a unique index has a value
//   02 NUMBER WORD 00 END           of a text index instead, a block of the posting list of a word or q-gram
//                                   (table/posting_block.h); END is where it ends, 4 bytes, big-endian
//   02 NUMBER WORD 01               the last block of the list; no word has a zero byte
//   03 BLOCK                        the keys of some rows by number (table/row_numbers.h)
//
// A part is, in the order of values (table/value.h)
//   00                              null
//   01 NUMBER                       a number or bool: see AppendNumber
//   02 BYTES 00 00                  bytes; a zero byte in them is 00 FF
// Equal values have the same part, whatever their kinds. No part is the beginning of another one, so parts can follow each other.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/endian.h"
#include "hako/table/schema.h"
#include "hako/table/value.h"

namespace hako::table {

inline constexpr char kCatalogueSpace = 0, kRowSpace = 1, kEntrySpace = 2, kNumberSpace = 3;
inline constexpr char kNullPart = 0, kNumberPart = 1, kTextPart = 2;

inline std::string CatalogueKey(char kind) { return {kCatalogueSpace, kind}; }
inline std::string CatalogueKey(char kind, std::uint16_t number) {
  return {kCatalogueSpace, kind, static_cast<char>(number >> 8), static_cast<char>(number & 0xff)};
}
// Returns the number in the key of a column or an index. REQUIRES: it has one
inline std::uint16_t CatalogueNumber(std::string_view key) {
  HAKO_DCHECK(key.size() >= 4);
  return static_cast<std::uint16_t>(static_cast<unsigned char>(key[2]) << 8 | static_cast<unsigned char>(key[3]));
}
inline std::string EntryPrefix(std::uint16_t index) {
  return {kEntrySpace, static_cast<char>(index >> 8), static_cast<char>(index & 0xff)};
}
inline std::string RowKey(std::string_view key) {
  std::string row_key(1, kRowSpace);
  return row_key.append(key);
}

// Appends a text with an end mark.
inline void AppendText(std::string_view text, std::string* out) {
  for (std::size_t zero; (zero = text.find('\0')) != text.npos; text.remove_prefix(zero + 1)) {
    out->append(text.substr(0, zero + 1));
    out->push_back('\xff');
  }
  out->append(text);
  out->append(2, '\0');
}
// Appends a text without the end mark. The result begins every text that begins with this one.
inline void AppendTextBeginning(std::string_view text, std::string* out) {
  AppendText(text, out);
  out->resize(out->size() - 2);
}

// Appends the nearest double in 8 bytes, big-endian, with the sign bit flipped, or with all bits
// flipped if the number is negative. If its magnitude is 2^53 or more, 2 more bytes tell how far an
// int64 is above it.
inline void AppendNumber(const Number& number, std::string* out) {
  auto bits = std::bit_cast<std::uint64_t>(number.nearest);
  bits ^= (bits >> 63) != 0 ? ~std::uint64_t{0} : std::uint64_t{1} << 63;
  char bytes[10];
  StoreBigEndian(bits, bytes);
  const auto above = static_cast<std::uint16_t>(number.above + 0x8000);
  bytes[8] = static_cast<char>(above >> 8);
  bytes[9] = static_cast<char>(above & 0xff);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  out->append(bytes, number.nearest < kExact && number.nearest > -kExact ? 8 : 10);
}

inline void AppendBigEndian32(std::uint32_t number, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(number >> shift & 0xff));
}
// Returns the number in the last 4 bytes of a key. REQUIRES: it has them
inline std::uint32_t BigEndian32At(std::string_view key) {
  HAKO_DCHECK(key.size() >= 4);
  std::uint32_t number = 0;
  for (std::size_t i = key.size() - 4; i < key.size(); ++i) number = number << 8 | static_cast<unsigned char>(key[i]);
  return number;
}

// A list is the common beginning of the keys of its blocks: the prefix of the index and the word.
inline constexpr char kBlockMark = 0, kLastBlockMark = 1;
inline void AppendLastBlock(std::string* list) { list->push_back(kLastBlockMark); }
inline void AppendBlock(std::uint32_t end, std::string* list) {
  list->push_back(kBlockMark);
  AppendBigEndian32(end, list);
}
struct BlockKey {
  std::string_view list;
  std::uint64_t end;  // 2^32 of the last block
};
// Splits the key of a block of a text index; nullopt if it is damaged.
inline std::optional<BlockKey> ParseBlockKey(std::string_view key) {
  static constexpr std::size_t kPrefixSize = 3, kEndSize = 4;
  const std::size_t mark = key.find(kBlockMark, kPrefixSize);
  if (mark != key.npos)
    return mark + 1 + kEndSize == key.size() ? std::optional(BlockKey{key.substr(0, mark), BigEndian32At(key)}) : std::nullopt;
  if (key.size() <= kPrefixSize || key.back() != kLastBlockMark) return std::nullopt;
  return BlockKey{key.substr(0, key.size() - 1), std::uint64_t{1} << 32};
}

inline std::string KeyBlockKey(std::uint32_t block) {
  std::string key(1, kNumberSpace);
  AppendBigEndian32(block, &key);
  return key;
}
inline constexpr std::size_t kKeyBlockKeySize = 5;

// Appends the part of a value or, in an index of kNumeric, of its cast. Returns false if it is the
// null part.
inline bool AppendPart(const Value& value, IndexKind kind, std::string* out) {
  if (kind == IndexKind::kNumeric) return AppendPart(NumericOf(value), IndexKind::kOrdered, out);
  if (value.kind() == Value::Kind::kBytes) {
    out->push_back(kTextPart);
    AppendText(value.bytes(), out);
    return true;
  }
  const std::optional<Number> number = NumberOf(value);
  out->push_back(number ? kNumberPart : kNullPart);
  if (number) AppendNumber(*number, out);
  return number.has_value();
}

// Returns the length of the part at the beginning of `parts`; 0 if it is damaged.
inline std::size_t PartLength(std::string_view parts) {
  const auto text_end = [&](std::size_t at) -> std::size_t {
    for (; (at = parts.find('\0', at)) != parts.npos && at + 1 < parts.size(); at += 2) {
      if (parts[at + 1] == '\0') return at + 2;
    }
    return 0;
  };
  if (parts.empty()) return 0;
  if (parts[0] == kNullPart) return 1;
  if (parts[0] == kTextPart) return text_end(1);
  if (parts[0] != kNumberPart || parts.size() < 9) return 0;
  const std::uint64_t bits = LoadBigEndian(parts.data() + 1);
  // The bounds that AppendNumber uses, encoded.
  constexpr auto kExact = std::uint64_t{0x4340000000000000} | std::uint64_t{1} << 63;
  const std::size_t size = bits < kExact && bits > ~kExact ? 9 : 11;
  return size <= parts.size() ? size : 0;
}

}  // namespace hako::table
