// Blocks of posting lists and of row numbers, as they are stored.
//
// A row of a table with text indices has a number (table/row_numbers.h). The posting list of a word or
// q-gram has the numbers of the rows in which it occurs, ascending, in blocks of at most kPostingBytesMax
// bytes, or kPostingBytesMaxWithPositions. So a change of one row rewrites one block of each of its words.
//
//   posting block  head, varint: the number of row numbers times 2, plus 1 if a beginning follows
//   (a value)      beginning, varint; 0 if there is none
//                  the row numbers, varints: each minus the least one that is possible at its place,
//                  which is the beginning of the block or the previous number plus 1
//                  in an index with positions, behind all numbers, those of each in the same order
//   (its key)      LIST 00 END, or LIST 01 of the last block: see table/index_key.h
//   positions      where the word or q-gram is in the text of one row: varints, each the gap above the
//                  position before, at first above -1, times 2, plus 1 if another one follows. A zero
//                  byte if they would take more than kPositionBytesMax: then the row must be read
//   key block      the keys of kKeysOfBlock rows by number: 4 bytes that tell by bit, little-endian,
//                  which numbers are taken; then for each of these the length of the beginning that it
//                  shares with the key before it, varint, the length of the rest, varint, and the rest
//
// Invariants
//   1. The blocks of a list cover all numbers without a gap: the first one begins at 0, each other one
//      where the block before it ends, and the last one has no end. So the block of a number is the first
//      one that ends behind it, and a number that is higher than all others belongs to the last block, whose
//      key follows from the word.
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

#include "hako/base/language.h"
#include "hako/base/status.h"

namespace hako::table {

using RowNumber = std::uint32_t;

inline constexpr std::size_t kPostingBytesMax = 256, kPostingBytesMaxWithPositions = 512;
inline constexpr std::size_t kPositionBytesMax = 120;
static_assert(kPositionBytesMax <= kPostingBytesMaxWithPositions / 4, "a block can be split");
// Where a word or q-gram is in a text that is no longer than a row; in an index without positions this one.
inline constexpr std::uint32_t kNoPosition = 0x7fff'ffff;
inline constexpr unsigned kKeysOfBlock = 32;

// The errors of those who read damaged blocks.
inline Status DamagedPostingsError() { return absl::DataLossError("a block of a posting list is damaged"); }
inline Status DamagedKeyBlockError() { return absl::DataLossError("a block of the keys of rows by number is damaged"); }

struct PostingBlock {
  static constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 32;

  RowNumber begin = 0;
  std::size_t count = 0;  // of row numbers
};

// Appends the row numbers of a block that ends at `end` to `numbers`. Returns nullopt if it is damaged.
// Unless `positions` is nullptr, the block has positions, and *positions receives the bytes of all.
std::optional<PostingBlock> DecodePostings(std::string_view bytes, std::uint64_t end, std::vector<RowNumber>* numbers,
                                           std::string_view* positions = nullptr);
// Decodes only the head.
std::optional<PostingBlock> DecodePostingHead(std::string_view bytes);
// Replaces `out` by a block of as many of the numbers as fit, and returns how many. If there are positions,
// they are those of the numbers. REQUIRES: the numbers ascend, from `begin` on
std::size_t EncodePostings(std::span<const RowNumber> numbers, RowNumber begin, std::string* out,
                           std::span<const std::string_view> positions = {});
// Replaces `out` by the block that ends at `end` with one number more, or less. Returns false if the block has
// the number already, or lacks it; if it begins behind it; if there is no room; or if the block is damaged.
// Unless `positions` is nullptr, the block has positions; an added number gets these, also if the block has it with others.
bool ChangePosting(std::string_view bytes, std::uint64_t end, RowNumber number, bool adds, std::string* out,
                   const std::string_view* positions = nullptr);

// Appends positions, which ascend.
void AppendPositions(std::span<const std::uint32_t> positions, std::string* out);
// Take the positions of one number, or of `count` ones, from the beginning of those of a block. Return an empty view, or
// false, if they are damaged. ReadPositions decodes them; there are none if they are unknown.
std::string_view TakePositions(std::string_view* bytes);
bool SkipPositions(std::string_view* bytes, std::size_t count);
struct Positions {
  std::size_t count = 0;
  std::array<std::uint32_t, kPositionBytesMax> at;  // ascending
};
bool ReadPositions(std::string_view* bytes, Positions* out);

// Reads the keys of a key block by ascending slots.
class KeyBlockReader {
 public:
  // Begins with the first slot. No key is in an empty string. Returns false if the block is damaged.
  bool Begin(std::string_view bytes);
  bool has(unsigned slot) const { return (taken_ >> slot & 1) != 0; }
  // Moves to a slot, which is not before the present one. Returns false if the block is damaged.
  // REQUIRES: has(slot)
  bool MoveTo(unsigned slot);
  std::string_view key() const { return key_; }  // at the present slot; valid until the next move
  bool IsAtEnd() const { return rest_.empty(); }

 private:
  std::uint32_t taken_ = 0;
  unsigned next_slot_ = 0;
  std::string_view rest_;
  std::string key_;
};

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
