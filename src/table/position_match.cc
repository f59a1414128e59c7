#include "hako/table/position_match.h"

#include <algorithm>

#include "hako/base/assert.h"
#include "hako/text/text_encoding.h"

namespace hako::table {

PatternOffsets OffsetsOfWords(std::span<const std::string> words) {
  PatternOffsets offsets;
  for (std::size_t i = 0; i < words.size(); ++i) offsets[words[i]].push_back(static_cast<std::uint32_t>(i));
  return offsets;
}

// Of many, every q-th q-gram, and the last one.
PatternOffsets OffsetsOfGrams(std::string_view substring, unsigned q) {
  std::vector<std::uint32_t> begins;  // of the characters, and the end
  for (std::size_t at = 0; at < substring.size(); at += text::CharacterLength(substring.substr(at)))
    begins.push_back(static_cast<std::uint32_t>(at));
  begins.push_back(static_cast<std::uint32_t>(substring.size()));
  static constexpr std::size_t kFew = 16;
  HAKO_DCHECK(begins.size() > q);
  const std::size_t last = begins.size() - 1 - q;
  PatternOffsets offsets;
  for (std::size_t i = 0;; i = std::min(i + (last < kFew ? 1 : q), last)) {
    offsets[std::string(substring.substr(begins[i], begins[i + q] - begins[i]))].push_back(begins[i]);
    if (i == last) return offsets;
  }
}

void RemoveCovered(std::vector<const PatternOffsets::value_type*>* grams) {
  std::vector<std::size_t> num_covers;  // by byte of the substring
  const auto for_each_byte = [&](const PatternOffsets::value_type& gram, auto visit) {
    for (const std::uint32_t offset : gram.second) {
      num_covers.resize(std::max(num_covers.size(), offset + gram.first.size()));
      for (std::size_t i = 0; i < gram.first.size(); ++i) visit(num_covers[offset + i]);
    }
  };
  for (const auto* const gram : *grams) for_each_byte(*gram, [](std::size_t& count) { ++count; });
  for (std::size_t i = grams->size(); i-- > 1;) {
    bool is_needed = false;
    for_each_byte(*(*grams)[i], [](std::size_t& count) { --count; });
    for_each_byte(*(*grams)[i], [&](std::size_t& count) { is_needed = is_needed || count == 0; });
    if (is_needed)
      for_each_byte(*(*grams)[i], [](std::size_t& count) { ++count; });
    else
      grams->erase(grams->begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void PositionMatch::BeginList(std::span<const std::uint32_t> offsets) {
  HAKO_DCHECK(!offsets.empty());
  offsets_ = offsets;
  least_ = begin_;
  at_ = 0;
  next_.clear();
}

bool PositionMatch::TakeBlock(std::string_view block, std::uint64_t end) {
  const auto has_more = [this] { return is_first_ || at_ < candidates_.size(); };
  if (!has_more() || (!is_first_ && candidates_[at_].number >= end)) return true;
  numbers_.clear();
  std::string_view positions;
  if (!DecodePostings(block, end, &numbers_, &positions)) return false;
  std::size_t num_skipped = 0;
  for (const RowNumber number : numbers_) {
    while (!is_first_ && has_more() && candidates_[at_].number < number) ++at_;
    if (!has_more()) return true;
    if (number < least_ || number >= end_ || (!is_first_ && candidates_[at_].number != number)) {
      ++num_skipped;
      continue;
    }
    if (!SkipPositions(&positions, num_skipped) || !ReadPositions(&positions, &positions_)) return false;
    num_skipped = 0;
    is_first_ ? AddRow(number) : FilterRow(number);
  }
  least_ = std::max(least_, end);
  return SkipPositions(&positions, num_skipped) && positions.empty();
}

void PositionMatch::AddRow(RowNumber number) {
  if (positions_.count == 0) {
    next_.push_back({number, is_beginning_ ? 0 : kAnywhere, true});
  } else if (is_beginning_) {
    if (HasAt(0, offsets_)) next_.push_back({number, 0, false});
  } else {
    for (const std::uint32_t position : std::span(positions_.at).first(positions_.count)) {
      if (position >= offsets_[0] && HasAt(position - offsets_[0], offsets_.subspan(1)))
        next_.push_back({number, (position - offsets_[0]) & kNoPosition, false});
    }
  }
}

void PositionMatch::FilterRow(RowNumber number) {
  for (; at_ < candidates_.size() && candidates_[at_].number == number; ++at_) {
    Candidate candidate = candidates_[at_];
    if (positions_.count == 0) {
      candidate.is_undecided = 1;
      next_.push_back(candidate);
    } else if (candidate.start == kAnywhere) {
      AddRow(number);
      for (std::size_t i = next_.size(); i > 0 && next_[i - 1].number == number; --i) next_[i - 1].is_undecided = 1;
    } else if (HasAt(candidate.start, offsets_)) {
      next_.push_back(candidate);
    }
  }
}

bool PositionMatch::HasAt(std::uint32_t start, std::span<const std::uint32_t> offsets) const {
  if (positions_.count == 1 && offsets.size() == 1) return positions_.at[0] == start + offsets[0];
  const auto positions = std::span(positions_.at).first(positions_.count);
  return std::all_of(offsets.begin(), offsets.end(), [&](std::uint32_t offset) {
    return std::find(positions.begin(), positions.end(), std::uint64_t{start} + offset) != positions.end();
  });
}

std::vector<RowNumber> PositionMatch::EndList() {
  std::swap(candidates_, next_);
  is_first_ = false;
  return NumbersOf(false);
}

std::vector<RowNumber> PositionMatch::NumbersOf(bool only_undecided) const {
  std::vector<RowNumber> numbers;
  for (const Candidate& candidate : candidates_) {
    if ((candidate.is_undecided != 0 || !only_undecided) && (numbers.empty() || numbers.back() != candidate.number))
      numbers.push_back(candidate.number);
  }
  return numbers;
}

}  // namespace hako::table
