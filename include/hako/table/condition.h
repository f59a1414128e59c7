// Conditions on the rows of a table.
//
//   Column("age") >= 20 && (Column("city") == "Rome" || !Column("name").BeginsWith("A"))
//   Column("text").Search("tree \"page cache\" | hash -lock")
//   Key() >= "user:"
//
// Comparisons are those of the order of values (table/value.h): every number is below every text, so
// `Column("age") >= 20` holds for the text 'old', and `Column("age").Numeric() >= 20` does not. For
// a row that lacks the column every condition except IsNull is false. `!` turns true into false and
// false into true, so `!(Column("a") == 1)` holds for rows without `a`, and `Column("a") != 1` does
// not.
//
// A condition is a value: copies share its parts, which never change. It copies the bytes of its
// literals. A query reports the errors of its condition, such as a malformed regular expression.
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
#include "hako/base/string_arg.h"
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

  // Both conditions hold; at least one of them holds; the condition does not hold.
  friend Condition operator&&(const Condition& a, const Condition& b);
  friend Condition operator||(const Condition& a, const Condition& b);
  friend Condition operator!(const Condition& a);

  // Returns the condition as text for ParseCondition (table/query_text.h); "true" if it holds for
  // every row.
  std::string ToText() const;
  // Returns OK, or InvalidArgument, which names the malformed part.
  Status status() const;
  // Returns nullptr if the condition holds for every row.
  const std::shared_ptr<const table::Node>& node() const { return node_; }

 private:
  std::shared_ptr<const table::Node> node_;
};

// A column in a condition.
class Column {
 public:
  // Names a column, of any table.
  explicit Column(StringArg name) : name_(name) {}
  // Casts the column's value to a number (table/value.h): a text becomes the number that it spells,
  // or null.
  Column Numeric() const;

  // The value is equal to the literal; is present and differs from it; and so on.
  friend Condition operator==(const Column& column, const Value& value);
  friend Condition operator!=(const Column& column, const Value& value);
  friend Condition operator<(const Column& column, const Value& value);
  friend Condition operator<=(const Column& column, const Value& value);
  friend Condition operator>(const Column& column, const Value& value);
  friend Condition operator>=(const Column& column, const Value& value);
  // The value is at least `low` and at most `high`.
  Condition Between(const Value& low, const Value& high) const;
  // The value is equal to one of `values`.
  Condition In(std::vector<Value> values) const;

  // The cell's text contains this text; begins with it; ends with it. Bytes are compared.
  Condition Contains(StringArg text) const;
  Condition BeginsWith(StringArg text) const;
  Condition EndsWith(StringArg text) const;
  // A part of the text matches a regular expression of RE2 (text/regular_expression.h). The time is
  // linear in the size of the text.
  Condition Matches(StringArg regex) const;
  // The text has all words of `words`; at least one of them; or all of them in a row. Words ignore
  // case, and how their characters are encoded (table/words.h).
  Condition HasAll(StringArg words) const;
  Condition HasAny(StringArg words) const;
  Condition HasPhrase(StringArg words) const;
  // The text matches a full-text expression. Words and "phrases in quotes" must all occur; one with
  // `-` before it must not occur; `|` separates alternatives, and binds less tightly than a blank.
  // False if the row lacks the column, even if the expression only has words that must not occur.
  Condition Search(StringArg expression) const;

  // The row lacks the column; has it.
  Condition IsNull() const;
  Condition IsNotNull() const;

 private:
  friend Column Key();
  Column() = default;
  // Leaf makes the node of one operator on this column; Of and OfText make the condition.
  table::Node Leaf(table::Op op, std::span<const Value> values = {}) const;
  Condition Of(table::Op op, std::span<const Value> values = {}) const;
  Condition OfText(table::Op op, std::string_view text) const;

  std::string name_;  // empty = the primary key
  bool is_numeric_ = false;
};

// The primary key, as a column of text.
Column Key();

namespace table {

struct Pattern;  // a compiled regular expression

// A node of a condition, which never changes.
struct Node {
  Op op;
  bool is_key = false;  // whether it is about the primary key
  std::string column = {};
  bool is_numeric = false;  // whether it is about the cast of the column
  std::vector<OwnedValue> values = {};
  std::vector<std::string> words = {};  // folded
  std::vector<std::shared_ptr<const Node>> children = {};
  std::shared_ptr<const Pattern> pattern = nullptr;
  std::shared_ptr<const std::vector<std::string>> keys = nullptr;  // ascending
  Status status = {};
};

// Joins the conditions by kAnd or kOr in one node. The time is linear in their number.
// REQUIRES: for kOr, there is one
Condition Joined(Op op, std::span<const Condition> parts);
// Makes a condition that the primary key is one of `keys`. REQUIRES: ascending
Condition KeyIn(std::vector<std::string> keys);
// Whether a part of the text matches. Unless `effort` is nullptr, takes units of it first, and
// returns false if they are spent.
bool MatchesPattern(const Pattern& pattern, std::string_view text, QueryEffort* effort);

}  // namespace table
}  // namespace hako
