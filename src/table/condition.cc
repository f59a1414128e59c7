#include "hako/table/condition.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/table/query_effort.h"
#include "hako/table/words.h"
#include "hako/text/regular_expression.h"

namespace hako {
namespace table {

struct Pattern {
  text::RegularExpression regex;
};

bool MatchesPattern(const Pattern& pattern, std::string_view text, QueryEffort* effort) {
  if (effort == nullptr) return pattern.regex.Matches(text);
  return pattern.regex.Search(text, [effort] { return effort->Take(); }).value_or(false);
}

namespace {

Condition Made(Node node) { return Condition(std::make_shared<const Node>(std::move(node))); }

Node Leaf(Op op, const std::string& column, std::initializer_list<Value> values = {}) {
  Node node{.op = op, .is_key = column.empty(), .column = column};
  node.values.reserve(values.size());
  for (const Value& value : values) {
    node.values.emplace_back(value);
    node.numbers.push_back(value.kind() == Value::Kind::kBytes ? std::nullopt : NumberOf(value));
    const bool is_nan = value.kind() != Value::Kind::kBytes && !node.numbers.back();
    if (is_nan) node.status = absl::InvalidArgumentError(absl::StrCat("column '", column, "' is compared with null or NaN; use IsNull"));
  }
  return node;
}

// One alternative of a full-text expression, from its tokens.
class SearchParser {
 public:
  SearchParser(const Column& column, std::string_view text) : column_(column), rest_(text) {}

  Condition Parse() {
    std::vector<Condition> any, all;
    for (;;) {
      while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\n')) rest_.remove_prefix(1);
      if (rest_.empty() || rest_[0] == '|') {
        if (!all.empty()) any.push_back(Joined(Op::kAnd, all));
        all.clear();
        if (rest_.empty()) break;
        rest_.remove_prefix(1);
        continue;
      }
      Condition term = Term();
      if (term.node()) all.push_back(std::move(term));  // else no word is in it
    }
    return any.empty() ? column_.HasAny("") : Joined(Op::kOr, any);  // of no words: holds for no row
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
  Node node{.op = Op::kKeyIn, .is_key = true};
  node.keys = std::make_shared<const std::vector<std::string>>(std::move(keys));
  return Made(std::move(node));
}

}  // namespace table

using table::Leaf;
using table::Made;
using table::Node;
using table::Op;

Condition operator&&(const Condition& a, const Condition& b) { return table::Joined(Op::kAnd, std::array{a, b}); }
Condition operator||(const Condition& a, const Condition& b) { return table::Joined(Op::kOr, std::array{a, b}); }
Condition operator!(const Condition& a) {
  Node node{.op = Op::kNot};
  if (!a.node_) return Made({.op = Op::kOr});  // of no alternatives: holds for no row
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

Condition operator==(const Column& column, const Value& value) { return Made(Leaf(Op::kEqual, column.name_, {value})); }
Condition operator!=(const Column& column, const Value& value) { return Made(Leaf(Op::kNotEqual, column.name_, {value})); }
Condition operator<(const Column& column, const Value& value) { return Made(Leaf(Op::kLess, column.name_, {value})); }
Condition operator<=(const Column& column, const Value& value) { return Made(Leaf(Op::kLessEqual, column.name_, {value})); }
Condition operator>(const Column& column, const Value& value) { return Made(Leaf(Op::kGreater, column.name_, {value})); }
Condition operator>=(const Column& column, const Value& value) { return Made(Leaf(Op::kGreaterEqual, column.name_, {value})); }
Condition Column::Between(const Value& low, const Value& high) const {
  Node node = Leaf(Op::kBetween, name_, {low, high});
  if ((low.kind() == Value::Kind::kBytes) != (high.kind() == Value::Kind::kBytes))
    node.status = absl::InvalidArgumentError(absl::StrCat("column '", name_, "': the bounds are a text and a number"));
  return Made(std::move(node));
}
Condition Column::In(std::vector<Value> values) const {
  Node node = Leaf(Op::kIn, name_);
  for (const Value& value : values) {
    Node one = Leaf(Op::kEqual, name_, {value});
    node.values.push_back(std::move(one.values[0]));
    node.numbers.push_back(one.numbers[0]);
    if (!one.status.ok()) node.status = one.status;
  }
  return Made(std::move(node));
}

Condition Column::Contains(std::string_view text) const { return Made(Leaf(Op::kContains, name_, {text})); }
Condition Column::BeginsWith(std::string_view text) const { return Made(Leaf(Op::kBegins, name_, {text})); }
Condition Column::EndsWith(std::string_view text) const { return Made(Leaf(Op::kEnds, name_, {text})); }
Condition Column::Matches(std::string_view regex) const {
  Node node = Leaf(Op::kRegex, name_, {regex});
  StatusOr<text::RegularExpression> compiled = text::RegularExpression::Compile(regex);
  if (compiled.ok())
    node.pattern = std::make_shared<const table::Pattern>(table::Pattern{*std::move(compiled)});
  else
    node.status = absl::InvalidArgumentError(absl::StrCat("column '", name_, "': ", compiled.status().message()));
  return Made(std::move(node));
}
Condition Column::HasAll(std::string_view words) const {
  Node node = Leaf(Op::kAllWords, name_, {words});
  node.words = table::WordsOf(words);
  std::sort(node.words.begin(), node.words.end());
  node.words.erase(std::unique(node.words.begin(), node.words.end()), node.words.end());
  return Made(std::move(node));
}
Condition Column::HasAny(std::string_view words) const {
  Node node = Leaf(Op::kAnyWord, name_, {words});
  node.words = table::WordsOf(words);
  std::sort(node.words.begin(), node.words.end());
  node.words.erase(std::unique(node.words.begin(), node.words.end()), node.words.end());
  return Made(std::move(node));
}
Condition Column::HasPhrase(std::string_view words) const {
  Node node = Leaf(Op::kPhrase, name_, {words});
  node.words = table::WordsOf(words);
  return Made(std::move(node));
}
Condition Column::Search(std::string_view expression) const { return table::SearchParser(*this, expression).Parse(); }
Condition Column::IsNull() const { return Made(Leaf(Op::kIsNull, name_)); }
Condition Column::IsNotNull() const { return Made(Leaf(Op::kIsNotNull, name_)); }

}  // namespace hako
