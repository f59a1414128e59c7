// Blocks of posting lists and of row numbers, as they are stored.
//
// A row of a table with text indices has a number (table/row_numbers.h). The posting list of a word or
// q-gram has the numbers of the rows in which it occurs, ascending, in blocks of at most
// kPostingBytesMax bytes. So a change of one row rewrites one block of each of its words.
//
//   posting block  head, varint: the number of row numbers times 2, plus 1 unless it is the last block
//                  end, varint, unless it is the last block: where the next block begins, minus the
//                  beginning of this one
//                  the row numbers, varints: each minus the least one that is possible at its place,
//                  which is the beginning of the block or the previous number plus 1
//   key block      the keys of kKeysOfBlock rows by number: 4 bytes that tell by bit, little-endian,
//                  which numbers are taken; then for each of these the length of the beginning that it
//                  shares with the key before it, varint, the length of the rest, varint, and the rest
//
// Invariants
//   1. The blocks of a list cover all numbers without a gap: the first one begins at 0, each other one
//      where the block before it ends, and only the last one has no end. So the block of a number is the
//      last block of the list that begins at or before it.
//   2. A list of one block has a number; a block of a longer list may be empty.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hako::table {

using RowNumber = std::uint32_t;

inline constexpr std::size_t kPostingBytesMax = 256;
inline constexpr unsigned kKeysOfBlock = 32;

struct PostingBlock {
  static constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 32;

  RowNumber begin = 0;
  std::uint64_t end = kNoEnd;  // kNoEnd in the last block of a list
  std::size_t count = 0;       // of row numbers

  bool IsLast() const { return end == kNoEnd; }
};

// Appends the row numbers of the block that begins at `begin`. Returns nullopt if it is damaged.
std::optional<PostingBlock> DecodePostings(std::string_view bytes, RowNumber begin, std::vector<RowNumber>* numbers);
// Decodes only the head.
std::optional<PostingBlock> DecodePostingHead(std::string_view bytes, RowNumber begin);
// Replaces `out` by a block of as many of the numbers as fit, and returns how many. If that is all of
// them, the block ends at `end`, otherwise at the first number that does not fit.
// REQUIRES: the numbers ascend, are at least `begin` and less than `end`
std::size_t EncodePostings(std::span<const RowNumber> numbers, RowNumber begin, std::uint64_t end, std::string* out);

// The keys of kKeysOfBlock rows.
class KeyBlock {
 public:
  // Decodes a block. Returns false if it is damaged.
  bool Decode(std::string_view bytes);
  void Clear() {
    taken_ = 0;
    bytes_.clear();
  }

  bool has(unsigned slot) const { return (taken_ >> slot & 1) != 0; }
  bool IsEmpty() const { return taken_ == 0; }
  // Returns the key at a slot. REQUIRES: has(slot)
  std::string_view key(unsigned slot) const;
  void Set(unsigned slot, std::string_view key);
  void Remove(unsigned slot) { taken_ &= ~(std::uint32_t{1} << slot); }
  void Encode(std::string* out) const;

 private:
  std::uint32_t taken_ = 0;
  std::array<std::uint32_t, kKeysOfBlock> begins_, sizes_;
  std::string bytes_;
};

}  // namespace hako::table
