#include "hako/table/filter.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "hako/table/words.h"

namespace hako::table {
namespace {

bool HasAllWords(const Node& node, std::string_view text) {
  const std::size_t count = std::min<std::size_t>(node.words.size(), 64);  // more words are looked for one by one
  const auto end = node.words.begin() + static_cast<std::ptrdiff_t>(count);
  std::uint64_t missing = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;  // by word
  for (WordReader reader(text); missing != 0 && reader.Next();) {
    const auto it = std::lower_bound(node.words.begin(), end, reader.word());
    if (it != end && *it == reader.word()) missing &= ~(std::uint64_t{1} << (it - node.words.begin()));
  }
  if (missing != 0 || count == node.words.size()) return missing == 0;
  std::vector<std::string> words = WordsOf(text);
  std::sort(words.begin(), words.end());
  return std::includes(words.begin(), words.end(), node.words.begin(), node.words.end());
}

bool HasAnyWord(const Node& node, std::string_view text) {
  for (WordReader reader(text); reader.Next();) {
    if (std::binary_search(node.words.begin(), node.words.end(), reader.word())) return true;
  }
  return false;
}

bool HasPhrase(const Node& node, std::string_view text) {
  if (node.words.empty()) return false;
  if (node.words.size() == 1) return HasAnyWord(node, text);
  const std::vector<std::string>& words = node.words;
  // Knuth, Morris and Pratt: again[n] is how many of the last words among the first n also begin
  // the phrase.
  std::vector<std::size_t> again(words.size() + 1, 0);
  const auto advance = [&](std::size_t matched, std::string_view word) {
    while (matched > 0 && words[matched] != word) matched = again[matched];
    return matched + (words[matched] == word ? 1 : 0);
  };
  for (std::size_t i = 1; i < words.size(); ++i) again[i + 1] = advance(again[i], words[i]);
  std::size_t matched = 0;
  for (WordReader reader(text); matched < words.size() && reader.Next();) matched = advance(matched, reader.word());
  return matched == words.size();
}

// Takes linear time, unlike std::string_view::find.
bool HasPart(std::string_view text, std::string_view part) {
  return part.empty() || ::memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

bool MeetsText(const Node& node, std::string_view text, QueryEffort* effort) {
  switch (node.op) {
    case Op::kContains:
      return HasPart(text, node.values[0].get().bytes());
    case Op::kBegins:
      return text.starts_with(node.values[0].get().bytes());
    case Op::kEnds:
      return text.ends_with(node.values[0].get().bytes());
    case Op::kRegex:
      return node.pattern != nullptr && MatchesPattern(*node.pattern, text, effort);
    case Op::kAllWords:
      return !node.words.empty() && HasAllWords(node, text);
    case Op::kAnyWord:
      return HasAnyWord(node, text);
    case Op::kPhrase:
      return HasPhrase(node, text);
    default:
      return false;
  }
}

}  // namespace

bool MeetsLeaf(const Node& node, const Value& cell, QueryEffort* effort) {
  const Value value = node.is_numeric ? NumericOf(cell) : cell;
  if (node.op == Op::kIsNull) return value.is_null();
  if (value.is_null()) return false;
  const auto literal = [&node](std::size_t i) { return node.values[i].get(); };
  switch (node.op) {
    case Op::kIsNotNull:
      return true;
    case Op::kKeyIn:
      return std::binary_search(node.keys->begin(), node.keys->end(), value.bytes());
    case Op::kIn:
      return std::any_of(node.values.begin(), node.values.end(), [&value](const OwnedValue& one) { return value == one.get(); });
    case Op::kEqual:
      return value == literal(0);
    case Op::kNotEqual:
      return value != literal(0);
    case Op::kLess:
      return value < literal(0);
    case Op::kLessEqual:
      return value <= literal(0);
    case Op::kGreater:
      return value > literal(0);
    case Op::kGreaterEqual:
      return value >= literal(0);
    case Op::kBetween:
      return value >= literal(0) && value <= literal(1);
    default:
      break;
  }
  std::string buffer;
  return MeetsText(node, value.Text(&buffer), effort);
}

Filter::Filter(const Condition& condition, FindColumn find, QueryEffort* effort) : condition_(condition), effort_(effort) {
  if (condition.node()) Add(*condition.node(), find);
}

void Filter::Add(const Node& node, FindColumn find) {
  ColumnId column = ColumnId::kKey;
  if (!node.is_key) {
    const table::StoredColumn* const found = find(node.column);
    column = found == nullptr ? kNone : found->id;
  }
  const std::size_t at = tests_.size();
  tests_.push_back({&node, column, 0});
  for (const auto& child : node.children) Add(*child, find);
  tests_[at].behind = static_cast<std::uint32_t>(tests_.size());
}

bool Filter::MatchesRest(std::string_view key, const RowView& row, std::uint64_t met) const {
  if (met == 0 || tests_.empty() || tests_[0].node->op != Op::kAnd) return (met & 1) != 0 || Matches(key, row);
  std::size_t bit = 0;
  for (std::size_t child = 1; child < tests_[0].behind; child = tests_[child].behind, ++bit) {
    if ((bit >= 64 || (met >> bit & 1) == 0) && !Holds(child, key, row)) return false;
  }
  return true;
}

bool Filter::Holds(std::size_t i, std::string_view key, const RowView& row) const {
  const Test& test = tests_[i];
  switch (test.node->op) {
    case Op::kNot:
      return !Holds(i + 1, key, row);
    case Op::kAnd:
    case Op::kOr: {
      const bool ends_with = test.node->op == Op::kOr;  // the first child of this result decides
      for (std::size_t child = i + 1; child < test.behind; child = tests_[child].behind) {
        if (Holds(child, key, row) == ends_with) return ends_with;
      }
      return !ends_with;
    }
    default:
      return MeetsLeaf(*test.node,
                       test.column == ColumnId::kKey ? Value(key)
                       : test.column == kNone        ? row.Get(test.node->column)
                                                     : row.Get(test.column),
                       effort_);
  }
}

void Filter::AddColumns(std::vector<ColumnId>* columns) const {
  for (const Test& test : tests_) {
    if (test.node->op > Op::kNot) columns->push_back(test.column);
  }
}

}  // namespace hako::table
