// Conditions on rows.
//
//   Column("age") >= 20 && (Column("city") == "Rome" || !Column("name").BeginsWith("A"))
//   Column("text").Search("tree \"page cache\" | hash -lock")
//   Key() >= "user:"
//
// Comparisons are those of the order of values (table/value.h): every number is below every text, so
// `Column("age") >= 20` holds for the text 'old', and `Column("age").Numeric() >= 20` does not. A condition on
// a row that lacks the column is false, except IsNull. `!` turns true into false and false into true, so
// `!(Column("a") == 1)` holds for rows without `a`, and `Column("a") != 1` does not.
//
// A condition is a value: copies share its parts, which never change. It has its own bytes. An error
// in it, such as a malformed regular expression, is reported by the query that uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/value.h"

namespace hako {

class QueryEffort;

namespace table {

struct Node;

// The operator of a node of a condition.
enum class Op : std::uint8_t {
  kAnd,
  kOr,
  kNot,  // of its children
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kBetween,
  kIn,  // of the values
  kContains,
  kBegins,
  kEnds,
  kRegex,  // of the first value, a text
  kAllWords,
  kAnyWord,
  kPhrase,  // of the words
  kIsNull,
  kIsNotNull,
  kKeyIn  // of the keys: the primary key is one of them
};

}  // namespace table

// A condition: see the head of this header.
class Condition {
 public:
  // Holds for every row.
  Condition() = default;
  explicit Condition(std::shared_ptr<const table::Node> node) : node_(std::move(node)) {}

  // Both hold, one of them holds, it does not hold.
  friend Condition operator&&(const Condition& a, const Condition& b);
  friend Condition operator||(const Condition& a, const Condition& b);
  friend Condition operator!(const Condition& a);

  // The text that ParseCondition (table/query_text.h) takes; "true" if it holds for every row.
  std::string ToText() const;
  // OK, or InvalidArgument that names the malformed part.
  Status status() const;
  // nullptr if it holds for every row.
  const std::shared_ptr<const table::Node>& node() const { return node_; }

 private:
  std::shared_ptr<const table::Node> node_;
};

// A column in a condition.
class Column {
 public:
  // The column of this name, in any table.
  explicit Column(std::string_view name) : name_(name) {}
  // The cast `numeric` of its value (table/value.h): the numbers of texts, and null of other texts.
  Column Numeric() const;

  // Equal to the literal; present and different from it; and so on.
  friend Condition operator==(const Column& column, const Value& value);
  friend Condition operator!=(const Column& column, const Value& value);
  friend Condition operator<(const Column& column, const Value& value);
  friend Condition operator<=(const Column& column, const Value& value);
  friend Condition operator>(const Column& column, const Value& value);
  friend Condition operator>=(const Column& column, const Value& value);
  // From `low` to `high`, both included.
  Condition Between(const Value& low, const Value& high) const;
  // Equal to one of them.
  Condition In(std::vector<Value> values) const;

  // The cell's text has this substring, beginning, end.
  Condition Contains(std::string_view text) const;
  Condition BeginsWith(std::string_view text) const;
  Condition EndsWith(std::string_view text) const;
  // A part of the text matches a regular expression of RE2 (text/regular_expression.h), in a time that is linear
  // in the text.
  Condition Matches(std::string_view regex) const;
  // Words (table/words.h): the text has all of those of `words`, one of them, or all in a row.
  Condition HasAll(std::string_view words) const;
  Condition HasAny(std::string_view words) const;
  Condition HasPhrase(std::string_view words) const;
  // A full-text expression: words and "phrases in quotes", all of which the text has; `-` before one
  // that it must not have; `|` between alternatives, which binds less than a blank. False if the row lacks
  // the column, also where all words are to be absent.
  Condition Search(std::string_view expression) const;

  // The row lacks the column, or has it.
  Condition IsNull() const;
  Condition IsNotNull() const;

 private:
  friend Column Key();
  Column() = default;
  // A condition of one operator, and its node.
  table::Node Leaf(table::Op op, std::span<const Value> values = {}) const;
  Condition Of(table::Op op, std::span<const Value> values = {}) const;
  Condition OfText(table::Op op, std::string_view text) const;

  std::string name_;  // empty: the primary key
  bool is_numeric_ = false;
};

// The primary key, as a column of text.
Column Key();

namespace table {

struct Pattern;  // a compiled regular expression

// A node of a condition, which never changes.
struct Node {
  Op op;
  bool is_key = false;  // of the primary key
  std::string column = {};
  bool is_numeric = false;  // of the cast of the column
  std::vector<OwnedValue> values = {};
  std::vector<std::string> words = {};  // folded
  std::vector<std::shared_ptr<const Node>> children = {};
  std::shared_ptr<const Pattern> pattern = nullptr;
  std::shared_ptr<const std::vector<std::string>> keys = nullptr;  // ascending
  Status status = {};
};

// The conditions joined by kAnd or kOr, in one node: the time is linear in their number.
// REQUIRES: for kOr, there is one
Condition Joined(Op op, std::span<const Condition> parts);
// A condition that the primary key is one of these. REQUIRES: ascending
Condition KeyIn(std::vector<std::string> keys);
// Whether a part of the text matches. It takes units of `effort` first, unless that is nullptr, and is false if
// they are spent.
bool MatchesPattern(const Pattern& pattern, std::string_view text, QueryEffort* effort);

}  // namespace table
}  // namespace hako
