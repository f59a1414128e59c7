// PositionMatch: the rows that have a phrase, or a substring longer than a q-gram, by the positions of its
// words or q-grams.
//
// The lists are read one after the other. Of each row that has been in all of them, it keeps where the
// pattern may begin. A row is dropped as soon as that is nowhere. If a list has a row with unknown
// positions, the other lists may still drop it; otherwise the row itself must be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/table/posting_block.h"

namespace hako::table {

// Where the words or q-grams of a pattern are in it, ascending. Their positions in a row are higher by the
// position of the pattern.
using PatternOffsets = std::map<std::string, std::vector<std::uint32_t>>;

// The words of a phrase.
PatternOffsets OffsetsOfWords(std::span<const std::string> words);
// Q-grams that cover a substring of at least q characters, none of which is a zero byte: all if they are few.
PatternOffsets OffsetsOfGrams(std::string_view substring, unsigned q);
// Removes q-grams, the last ones first, as long as the others cover the substring. The first one stays.
void RemoveCovered(std::vector<const PatternOffsets::value_type*>* grams);

class PositionMatch {
 public:
  // Finds rows with numbers in [begin, end). If it `is_beginning`, the pattern must be at position 0.
  PositionMatch(bool is_beginning, std::uint64_t begin, std::uint64_t end) : is_beginning_(is_beginning), begin_(begin), end_(end) {}

  // Begins the list of a word or q-gram with these offsets, which must outlive the list.
  void BeginList(std::span<const std::uint32_t> offsets);
  // Takes the next block of the list. Returns false if it is damaged.
  bool TakeBlock(std::string_view block, std::uint64_t end);
  // Returns the rows that are left, ascending.
  std::vector<RowNumber> EndList();
  // Returns those of them that must be read.
  std::vector<RowNumber> Undecided() const { return NumbersOf(true); }

 private:
  // Where the pattern may begin in a row.
  struct Candidate {
    RowNumber number;
    std::uint32_t start : 31, is_undecided : 1;
  };
  static constexpr std::uint32_t kAnywhere = kNoPosition;

  void AddRow(RowNumber number);
  void FilterRow(RowNumber number);
  // Whether the row has the word or q-gram at these offsets of a pattern that begins at `start`.
  bool HasAt(std::uint32_t start, std::span<const std::uint32_t> offsets) const;
  std::vector<RowNumber> NumbersOf(bool only_undecided) const;

  const bool is_beginning_;
  const std::uint64_t begin_, end_;
  bool is_first_ = true;  // list
  std::span<const std::uint32_t> offsets_;
  std::uint64_t least_ = 0;                   // where the next block begins: a list that is made again while it is read shows numbers twice
  std::size_t at_ = 0;                        // the first candidate that may be in the next block
  std::vector<Candidate> candidates_, next_;  // by all lists before this one; and by this one
  std::vector<RowNumber> numbers_;
  Positions positions_;  // of the row that is taken
};

}  // namespace hako::table
