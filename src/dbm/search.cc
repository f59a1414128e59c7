#include "hako/dbm/search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "hako/base/assert.h"
#include "hako/text/regular_expression.h"
#include "hako/text/text_encoding.h"

namespace hako {
namespace {

// REQUIRES: !text.empty()
std::string_view FirstCharacter(std::string_view text) {
  HAKO_DCHECK(!text.empty());
  return text.substr(0, text::CharacterLength(text));
}

}  // namespace

std::optional<SearchMode> SearchModeOfName(StringArg name) {
  constexpr std::pair<std::string_view, SearchMode> kModes[] = {{"contain", SearchMode::kContain},
                                                                {"begin", SearchMode::kBegin},
                                                                {"end", SearchMode::kEnd},
                                                                {"regex", SearchMode::kRegex},
                                                                {"edit", SearchMode::kEdit}};
  for (const auto& [its_name, mode] : kModes) {
    if (its_name == name) return mode;
  }
  return std::nullopt;
}

struct KeyMatcher::Pattern {
  SearchMode mode;
  std::string text;
  text::RegularExpression regex;
};

StatusOr<KeyMatcher> KeyMatcher::Make(SearchMode mode, StringArg pattern) {
  auto made = std::make_shared<Pattern>(Pattern{mode, std::string(pattern), {}});
  if (mode == SearchMode::kRegex) {
    HAKO_ASSIGN_OR_RETURN(made->regex, text::RegularExpression::Compile(pattern));
  }
  return KeyMatcher(std::move(made));
}

bool KeyMatcher::operator()(StringArg key) const {
  switch (pattern_->mode) {
    case SearchMode::kContain:
      return key.find(pattern_->text) != key.npos;
    case SearchMode::kBegin:
      return key.starts_with(pattern_->text);
    case SearchMode::kEnd:
      return key.ends_with(pattern_->text);
    case SearchMode::kRegex:
      return pattern_->regex.Matches(key);
    case SearchMode::kEdit:
      break;
  }
  return true;
}

std::size_t EditDistance(StringArg a, StringArg b) {
  if (a.size() < b.size()) std::swap(a, b);
  std::vector<std::string_view> characters;  // the characters of the shorter text
  for (; !b.empty(); b.remove_prefix(characters.back().size())) characters.push_back(FirstCharacter(b));
  std::vector<std::size_t> row(characters.size() + 1);  // row[i]: the distance of the prefix of `a` read so far to the first i characters
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (; !a.empty(); a.remove_prefix(FirstCharacter(a).size())) {
    std::size_t diagonal = row[0]++;
    for (std::size_t i = 0; i < characters.size(); ++i) {
      const std::size_t replaced = diagonal + (FirstCharacter(a) != characters[i]);
      diagonal = row[i + 1];
      row[i + 1] = std::min({replaced, row[i] + 1, diagonal + 1});
    }
  }
  return row.back();
}

void NearestKeys::Show(StringArg key) {
  Found found(EditDistance(pattern_, key), key);
  if (heap_.size() == capacity_) {
    if (heap_.empty() || !(found < heap_.front())) return;
    std::ranges::pop_heap(heap_);
    heap_.pop_back();
  }
  heap_.push_back(std::move(found));
  std::ranges::push_heap(heap_);
}

std::vector<std::string> NearestKeys::Take() && {
  std::ranges::sort_heap(heap_);
  std::vector<std::string> keys;
  for (Found& found : heap_) keys.push_back(std::move(found.second));
  return keys;
}

}  // namespace hako
