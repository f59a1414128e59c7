#include "hako/table/condition.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/table/query_effort.h"
#include "hako/table/words.h"
#include "hako/text/regular_expression.h"

namespace hako {
namespace table {

struct Pattern {
  text::RegularExpression regex;
};

bool MatchesPattern(const Pattern& pattern, std::string_view text, QueryEffort* effort) {
  if (effort != nullptr) {
    if (!effort->TakeRow(text.size())) return false;
    if (pattern.regex.MostSteps(text.size()) > QueryEffort::kMatchStepsMax) {
      effort->Refuse(absl::OutOfRangeError(
          absl::StrCat("the regular expression is too large for a text of ", text.size(), " bytes: a match could take minutes")));
      return false;
    }
  }
  return pattern.regex.Matches(text);
}

namespace {

Condition Made(Node node) { return Condition(std::make_shared<const Node>(std::move(node))); }

// Parses one alternative of a full-text expression.
class SearchParser {
 public:
  SearchParser(const Column& column, std::string_view text) : column_(column), rest_(text) {}

  Condition Parse() {
    std::vector<Condition> any, all;
    bool has_word = false;  // whether there is a word that the text must have
    for (;;) {
      while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\n')) rest_.remove_prefix(1);
      if (rest_.empty() || rest_[0] == '|') {
        if (!all.empty() && !has_word) all.push_back(column_.IsNotNull());
        if (!all.empty()) any.push_back(Joined(Op::kAnd, all));
        all.clear();
        has_word = false;
        if (rest_.empty()) break;
        rest_.remove_prefix(1);
        continue;
      }
      Condition term = Term();
      if (!term.node()) continue;  // it has no word
      has_word = has_word || term.node()->op != Op::kNot;
      all.push_back(std::move(term));
    }
    return any.empty() ? column_.HasAny("") : Joined(Op::kOr, any);  // any of no words: holds for no row
  }

 private:
  Condition Term() {
    const bool is_negated = rest_[0] == '-';
    if (is_negated) rest_.remove_prefix(1);
    const bool is_phrase = !rest_.empty() && rest_[0] == '"';
    if (is_phrase) rest_.remove_prefix(1);
    const std::size_t end = std::min(rest_.size(), rest_.find_first_of(is_phrase ? "\"" : " \t\n|\""));
    const std::string_view words = rest_.substr(0, end);
    rest_.remove_prefix(is_phrase ? std::min(rest_.size(), end + 1) : end);
    if (WordsOf(words).empty()) return {};
    const Condition term = is_phrase ? column_.HasPhrase(words) : column_.HasAll(words);
    return is_negated ? !term : term;
  }

  const Column& column_;
  std::string_view rest_;
};

}  // namespace

Condition Joined(Op op, std::span<const Condition> parts) {
  HAKO_DCHECK(op != Op::kOr || !parts.empty());
  const auto holds_for_some = [](const Condition& part) { return part.node() != nullptr; };  // the others hold for all rows
  const auto num_joined = std::count_if(parts.begin(), parts.end(), holds_for_some);
  if (num_joined == 0 || (op == Op::kOr && num_joined < std::ssize(parts))) return {};
  if (num_joined == 1) return *std::find_if(parts.begin(), parts.end(), holds_for_some);
  Node node{.op = op};
  for (const Condition& part : parts) {
    if (!part.node()) continue;
    if (part.node()->op == op)
      node.children.insert(node.children.end(), part.node()->children.begin(), part.node()->children.end());
    else
      node.children.push_back(part.node());
  }
  return Made(std::move(node));
}

Condition KeyIn(std::vector<std::string> keys) {
  HAKO_DCHECK(std::ranges::is_sorted(keys));
  Node node{.op = Op::kKeyIn, .is_key = true};
  node.keys = std::make_shared<const std::vector<std::string>>(std::move(keys));
  return Made(std::move(node));
}

}  // namespace table

using table::Made;
using table::Node;
using table::Op;

Condition operator&&(const Condition& a, const Condition& b) {
  if (!a.node_ || !b.node_) return a.node_ ? a : b;
  return table::Joined(Op::kAnd, std::array{a, b});
}
Condition operator||(const Condition& a, const Condition& b) { return table::Joined(Op::kOr, std::array{a, b}); }
Condition operator!(const Condition& a) {
  Node node{.op = Op::kNot};
  if (!a.node_) return Made({.op = Op::kOr});  // no alternatives: holds for no row
  node.children.push_back(a.node_);
  return Made(std::move(node));
}

Status Condition::status() const {
  if (!node_) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(node_->status);
  for (const auto& child : node_->children) HAKO_RETURN_IF_ERROR(Condition(child).status());
  return absl::OkStatus();
}

Column Key() { return Column(); }

Column Column::Numeric() const {
  Column cast = *this;
  cast.is_numeric_ = true;
  return cast;
}

Node Column::Leaf(Op op, std::span<const Value> values) const {
  Node node{.op = op, .is_key = name_.empty(), .column = name_, .is_numeric = is_numeric_};
  node.values.reserve(values.size());
  for (const Value& value : values) {
    node.values.emplace_back(value);
    const char* const what = value.is_null()                                                  ? "null; use IsNull"
                             : value.exceeds_int64()                                          ? "an integer that exceeds int64"
                             : value.kind() != Value::Kind::kBytes && !table::NumberOf(value) ? "NaN"
                                                                                              : nullptr;
    if (what != nullptr) node.status = absl::InvalidArgumentError(absl::StrCat("column '", name_, "' is compared with ", what));
  }
  return node;
}
Condition Column::Of(Op op, std::span<const Value> values) const { return Made(Leaf(op, values)); }
Condition Column::OfText(Op op, std::string_view text) const { return Of(op, std::array{Value(text)}); }

Condition operator==(const Column& column, const Value& value) { return column.Of(Op::kEqual, std::array{value}); }
Condition operator!=(const Column& column, const Value& value) { return column.Of(Op::kNotEqual, std::array{value}); }
Condition operator<(const Column& column, const Value& value) { return column.Of(Op::kLess, std::array{value}); }
Condition operator<=(const Column& column, const Value& value) { return column.Of(Op::kLessEqual, std::array{value}); }
Condition operator>(const Column& column, const Value& value) { return column.Of(Op::kGreater, std::array{value}); }
Condition operator>=(const Column& column, const Value& value) { return column.Of(Op::kGreaterEqual, std::array{value}); }
Condition Column::Between(const Value& low, const Value& high) const { return Of(Op::kBetween, std::array{low, high}); }
Condition Column::In(std::vector<Value> values) const { return Of(Op::kIn, values); }

Condition Column::Contains(StringArg text) const { return OfText(Op::kContains, text); }
Condition Column::BeginsWith(StringArg text) const { return OfText(Op::kBegins, text); }
Condition Column::EndsWith(StringArg text) const { return OfText(Op::kEnds, text); }
Condition Column::Matches(StringArg regex) const {
  Node node = Leaf(Op::kRegex, std::array{Value(regex)});
  StatusOr<text::RegularExpression> compiled = text::RegularExpression::Compile(regex);
  if (compiled.ok())
    node.pattern = std::make_shared<const table::Pattern>(table::Pattern{*std::move(compiled)});
  else
    node.status = absl::InvalidArgumentError(absl::StrCat("column '", name_, "': ", compiled.status().message()));
  return Made(std::move(node));
}
Condition Column::HasAll(StringArg words) const {
  Node node = Leaf(Op::kAllWords, std::array{Value(words)});
  node.words = table::WordsOf(words);
  std::sort(node.words.begin(), node.words.end());
  node.words.erase(std::unique(node.words.begin(), node.words.end()), node.words.end());
  return Made(std::move(node));
}
Condition Column::HasAny(StringArg words) const {
  Node node = Leaf(Op::kAnyWord, std::array{Value(words)});
  node.words = table::WordsOf(words);
  std::sort(node.words.begin(), node.words.end());
  node.words.erase(std::unique(node.words.begin(), node.words.end()), node.words.end());
  return Made(std::move(node));
}
Condition Column::HasPhrase(StringArg words) const {
  Node node = Leaf(Op::kPhrase, std::array{Value(words)});
  node.words = table::WordsOf(words);
  return Made(std::move(node));
}
Condition Column::Search(StringArg expression) const { return table::SearchParser(*this, expression).Parse(); }
Condition Column::IsNull() const { return Of(Op::kIsNull); }
Condition Column::IsNotNull() const { return Of(Op::kIsNotNull); }

}  // namespace hako
