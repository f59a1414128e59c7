// What a query of a table must show, by code that shares none with the library: values, conditions and rows of
// its own, and a loop over all rows. test/table/sqlite_oracle.h has SQLite evaluate the same conditions.
//
// Rules of hako that SQLite does not have, and how sqlite_oracle.h states them in SQL:
//   - A comparison with an absent column is false, and `not` of it is true: each leaf is coalesce(..., 0).
//   - Text and bytes are one class, which is ordered by bytes: SQLite has them all as blobs.
//   - A bool is the number 0 or 1 in comparisons: SQLite has it as an integer. As text it is 'true' or 'false'.
//   - Functions of text take the text of any value: SQLite has it in a second column, NAME_t.
//   - Words and regular expressions: functions that this header defines. A search is and, or, not of these.
//   - The cast `numeric` is null for a text that is no number, which a function of this header says; of a number
//     SQLite makes the cast. Its text is in a third column, NAME_n.
//   - The sum of no numbers is 0, and one beyond int64 is a double: SQLite has it as total().
//   - Rows of equal values are ordered by their keys, in the direction of the order.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hako/table/condition.h"
#include "hako/table/value.h"

namespace hako::oracle {

// A value with its own bytes.
struct Val {
  std::variant<std::monostate, std::int64_t, double, bool, std::string> held = {};

  bool is_null() const { return held.index() == 0; }
  bool is_bytes() const { return held.index() == 4; }
  const std::string& bytes() const { return std::get<std::string>(held); }
  // As the library takes it.
  Value view() const {
    switch (held.index()) {
      case 1:
        return Value(std::get<std::int64_t>(held));
      case 2:
        return Value(std::get<double>(held));
      case 3:
        return Value(std::get<bool>(held));
      case 4:
        return Value(std::string_view(bytes()));
      default:
        return Value();
    }
  }
  static Val Of(const Value& value) {
    switch (value.kind()) {
      case Value::Kind::kNull:
        return {};
      case Value::Kind::kInt:
        return {value.int_value()};
      case Value::Kind::kDouble:
        return {value.double_value()};
      case Value::Kind::kBool:
        return {value.bool_value()};
      case Value::Kind::kBytes:
        return {std::string(value.bytes())};
    }
    return {};
  }
  // Of 64 bits of mantissa, so exact for an int64 and for a double.
  long double number() const {
    static_assert(sizeof(long double) > 8);
    if (held.index() == 1) return static_cast<long double>(std::get<std::int64_t>(held));
    if (held.index() == 2) return std::get<double>(held);
    return std::get<bool>(held) ? 1 : 0;
  }
  std::string Text() const {
    char digits[64];
    switch (held.index()) {
      case 1:
        return std::to_string(std::get<std::int64_t>(held));
      case 2:
        return {digits, std::to_chars(digits, digits + sizeof(digits), std::get<double>(held)).ptr};
      case 3:
        return std::get<bool>(held) ? "true" : "false";
      case 4:
        return bytes();
      default:
        return {};
    }
  }
  // The kind, too: 1, 1.0 and true differ.
  friend bool operator==(const Val& a, const Val& b) { return a.held == b.held; }
  friend std::string ToString(const Val& value) { return "TNDBS"[value.held.index()] + value.Text(); }
};

// The cast `numeric`: the number that bytes are in decimal, or null.
inline Val NumericOf(const Val& value) {
  static const std::regex kNumber("[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?"), kInteger("[-+]?[0-9]+");
  if (!value.is_bytes()) return value;
  const std::string& text = value.bytes();
  if (text.find_first_not_of("0123456789+-.eE") != text.npos || !std::regex_match(text, kNumber)) return {};
  errno = 0;
  if (const long long whole = std::strtoll(text.c_str(), nullptr, 10); errno == 0 && std::regex_match(text, kInteger))
    return {static_cast<std::int64_t>(whole)};
  const double number = std::strtod(text.c_str(), nullptr);
  return std::isfinite(number) ? Val{number} : Val();
}

// Null, then numbers, then bytes.
inline int Compare(const Val& a, const Val& b) {
  const auto rank = [](const Val& value) { return value.is_null() ? 0 : value.is_bytes() ? 2 : 1; };
  if (rank(a) != rank(b)) return rank(a) < rank(b) ? -1 : 1;
  if (rank(a) == 0) return 0;
  if (rank(a) == 1) return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  return a.bytes().compare(b.bytes());
}

using Cells = std::map<std::string, Val>;   // by column; nulls are left out
using Rows = std::map<std::string, Cells>;  // by key

inline Val CellOf(const std::string& key, const Cells& cells, const std::string& column) {
  if (column.empty()) return {key};
  const auto it = cells.find(column);
  return it == cells.end() ? Val() : it->second;
}

enum class Operator {
  kAlways,
  kAnd,
  kOr,
  kNot,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kBetween,
  kIn,
  kContains,
  kBegins,
  kEnds,
  kRegex,
  kAll,
  kAny,
  kPhrase,
  kSearch,
  kIsNull,
  kIsNotNull
};

// A term of a full-text expression: words all of which a text has, or a phrase; or which it must not have.
struct SearchTerm {
  std::string words;
  bool is_phrase = false, is_absent = false;
};

// A condition: of a column, or of parts.
struct Where {
  Operator op = Operator::kAlways;
  std::string column = {};  // empty: the key
  bool is_numeric = false;  // of its cast
  std::vector<Val> values = {};
  std::vector<std::vector<SearchTerm>> search = {};  // alternatives
  std::vector<Where> parts = {};

  // What the column is compared with: beside a cast, the number that a text is.
  Val Literal(std::size_t i) const {
    const Val number = is_numeric && op < Operator::kContains ? NumericOf(values[i]) : Val();
    return number.is_null() ? values[i] : number;
  }
};

// Letters, digits, underscores and all bytes from 0x80 on; ASCII letters folded, and the others as kSpellings has
// them. The texts of these tests have no other punctuation than that of ASCII; test/table/words_test.cc has all.
inline std::vector<std::string> Words(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {{"\xC3\x89", "\xC3\xA9"},   // an E with an accent
                                                                                 {"e\xCC\x81", "\xC3\xA9"},  // and in two characters
                                                                                 {"E\xCC\x81", "\xC3\xA9"},
                                                                                 {"\xC3\x9F", "ss"},        // a sharp s
                                                                                 {"\xEF\xBC\xA1", "a"},     // a full-width A
                                                                                 {"\xCE\xA3", "\xCF\x83"},  // sigma
                                                                                 {"\xCF\x82", "\xCF\x83"},  // and at the end of a word
                                                                                 {"\xC2\xAD", ""}};         // a soft hyphen
  std::vector<std::string> words;
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const auto spelling = std::find_if(std::begin(kSpellings), std::end(kSpellings),
                                       [&](const auto& one) { return text.substr(std::min(i, text.size())).starts_with(one.first); });
    if (spelling != std::end(kSpellings)) {
      word += spelling->second;
      i += spelling->first.size() - 1;
      continue;
    }
    const char c = i < text.size() ? text[i] : ' ';
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || static_cast<unsigned char>(c) >= 0x80) {
      word += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

inline bool HasText(Operator op, const std::string& text, const std::string& wanted) {
  const auto has = [words = Words(text)](const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const std::vector<std::string> asked = Words(wanted), words = Words(text);
  switch (op) {
    case Operator::kContains:
      return text.find(wanted) != text.npos;
    case Operator::kBegins:
      return text.substr(0, wanted.size()) == wanted;
    case Operator::kEnds:
      return text.size() >= wanted.size() && text.substr(text.size() - wanted.size()) == wanted;
    case Operator::kRegex: {
      static std::map<std::string, std::regex> compiled;
      return std::regex_search(text, compiled.try_emplace(wanted, wanted).first->second);
    }
    case Operator::kAll:
      return !asked.empty() && std::all_of(asked.begin(), asked.end(), has);
    case Operator::kAny:
      return std::any_of(asked.begin(), asked.end(), has);
    default:
      return !asked.empty() && std::search(words.begin(), words.end(), asked.begin(), asked.end()) != words.end();
  }
}

// The alternatives of a search without its terms of no words; those that are left with none do not count.
inline std::vector<std::vector<SearchTerm>> Asked(std::vector<std::vector<SearchTerm>> search) {
  for (auto& terms : search) std::erase_if(terms, [](const SearchTerm& term) { return Words(term.words).empty(); });
  std::erase_if(search, [](const auto& terms) { return terms.empty(); });
  return search;
}

inline bool MeetsSearch(const std::vector<std::vector<SearchTerm>>& search, const std::string& text) {
  const std::vector<std::vector<SearchTerm>> asked = Asked(search);
  return std::any_of(asked.begin(), asked.end(), [&](const std::vector<SearchTerm>& terms) {
    return std::all_of(terms.begin(), terms.end(), [&](const SearchTerm& term) {
      return HasText(term.is_phrase ? Operator::kPhrase : Operator::kAll, text, term.words) != term.is_absent;
    });
  });
}

// As the library takes it: -, quotes and | as in `a -"b c" | d`.
inline std::string TextOf(const std::vector<std::vector<SearchTerm>>& search) {
  std::string text;
  for (std::size_t i = 0; i < search.size(); ++i) {
    if (i > 0) text += "|";
    for (const SearchTerm& term : search[i])
      text += std::string(text.empty() ? "" : " ") + (term.is_absent ? "-" : "") + (term.is_phrase ? '"' + term.words + '"' : term.words);
  }
  return text;
}

inline bool Holds(const Where& where, const std::string& key, const Cells& cells) {
  const auto holds = [&](const Where& part) { return Holds(part, key, cells); };
  switch (where.op) {
    case Operator::kAlways:
      return true;
    case Operator::kAnd:
      return std::all_of(where.parts.begin(), where.parts.end(), holds);
    case Operator::kOr:
      return std::any_of(where.parts.begin(), where.parts.end(), holds);
    case Operator::kNot:
      return !holds(where.parts[0]);
    default:
      break;
  }
  const Val cell = CellOf(key, cells, where.column), value = where.is_numeric ? NumericOf(cell) : cell;
  if (where.op == Operator::kIsNull || value.is_null()) return (where.op == Operator::kIsNull) == value.is_null() && value.is_null();
  const auto order = [&](std::size_t i) { return Compare(value, where.Literal(i)); };
  switch (where.op) {
    case Operator::kIsNotNull:
      return true;
    case Operator::kEqual:
      return order(0) == 0;
    case Operator::kNotEqual:
      return order(0) != 0;
    case Operator::kLess:
      return order(0) < 0;
    case Operator::kLessEqual:
      return order(0) <= 0;
    case Operator::kGreater:
      return order(0) > 0;
    case Operator::kGreaterEqual:
      return order(0) >= 0;
    case Operator::kBetween:
      return order(0) >= 0 && order(1) <= 0;
    case Operator::kIn:
      for (std::size_t i = 0; i < where.values.size(); ++i) {
        if (order(i) == 0) return true;
      }
      return false;
    case Operator::kSearch:
      return MeetsSearch(where.search, value.Text());
    default:
      return HasText(where.op, value.Text(), where.values[0].bytes());
  }
}

// As the library takes it.
inline Condition ToCondition(const Where& where) {
  const Column plain = where.column.empty() ? Key() : Column(where.column), column = where.is_numeric ? plain.Numeric() : plain;
  const auto value = [&](std::size_t i) { return where.values[i].view(); };
  switch (where.op) {
    case Operator::kAlways:
      return {};
    case Operator::kAnd:
    case Operator::kOr: {
      Condition all = ToCondition(where.parts[0]);
      for (std::size_t i = 1; i < where.parts.size(); ++i)
        all = where.op == Operator::kAnd ? all && ToCondition(where.parts[i]) : all || ToCondition(where.parts[i]);
      return all;
    }
    case Operator::kNot:
      return !ToCondition(where.parts[0]);
    case Operator::kEqual:
      return column == value(0);
    case Operator::kNotEqual:
      return column != value(0);
    case Operator::kLess:
      return column < value(0);
    case Operator::kLessEqual:
      return column <= value(0);
    case Operator::kGreater:
      return column > value(0);
    case Operator::kGreaterEqual:
      return column >= value(0);
    case Operator::kBetween:
      return column.Between(value(0), value(1));
    case Operator::kIn: {
      std::vector<Value> values;
      for (const Val& one : where.values) values.push_back(one.view());
      return column.In(std::move(values));
    }
    case Operator::kContains:
      return column.Contains(value(0).bytes());
    case Operator::kBegins:
      return column.BeginsWith(value(0).bytes());
    case Operator::kEnds:
      return column.EndsWith(value(0).bytes());
    case Operator::kRegex:
      return column.Matches(value(0).bytes());
    case Operator::kAll:
      return column.HasAll(value(0).bytes());
    case Operator::kAny:
      return column.HasAny(value(0).bytes());
    case Operator::kPhrase:
      return column.HasPhrase(value(0).bytes());
    case Operator::kSearch:
      return column.Search(TextOf(where.search));
    case Operator::kIsNull:
      return column.IsNull();
    case Operator::kIsNotNull:
      return column.IsNotNull();
  }
  return {};
}

// A query: rows that meet a condition, in an order, of these the part behind a position, and of these some.
struct Wanted {
  struct Position {
    std::string key;
    Val value;  // of the column of the order, which its cast may stand for
  };
  Where where = {};
  std::string order = {};   // a column; empty: the key
  bool is_numeric = false;  // of its cast
  bool is_descending = false;
  std::optional<Position> after = {};
  std::optional<std::uint64_t> limit = {};
  std::uint64_t offset = 0;

  // Whether the row `a` stands before `b`.
  bool IsBefore(const Position& a, const Position& b) const {
    const int by_value = is_numeric ? Compare(NumericOf(a.value), NumericOf(b.value)) : order.empty() ? 0 : Compare(a.value, b.value);
    const int by_order = by_value != 0 ? by_value : a.key.compare(b.key);
    return is_descending ? by_order > 0 : by_order < 0;
  }
};

// Figures over the values of some rows.
struct Figures {
  std::uint64_t count = 0, num_numbers = 0;
  Val min = {}, max = {};
  long double sum = 0, magnitude = 0;  // of the numbers; of their absolute values
  bool is_whole = true;                // all numbers are integers
  __extension__ __int128 whole = 0;    // the sum of these, of which `sum` loses digits on the way

  void Add(const Val& value) {
    if (value.is_null()) return;
    if (++count == 1 || Compare(value, min) < 0) min = value;
    if (count == 1 || Compare(value, max) > 0) max = value;
    if (value.is_bytes()) return;
    ++num_numbers;
    is_whole = is_whole && value.held.index() != 2;
    if (is_whole) whole += static_cast<std::int64_t>(value.number());
    sum += value.number();
    magnitude += std::fabs(value.number());
  }
  // Whether this is the sum, in its kind, but for what doubles lose.
  bool IsSum(const Val& found) const {
    const bool is_int64 = is_whole && whole == static_cast<std::int64_t>(whole);
    if (found.held.index() != (is_int64 ? 1 : 2)) return false;
    if (is_int64) return static_cast<std::int64_t>(found.number()) == whole;
    return IsNear(found, {static_cast<double>(sum)});
  }
  // Whether the sums are the same but for what doubles lose. Of inf and -inf it is NaN, which SQLite has as null.
  bool IsNear(const Val& a, const Val& b) const {
    const bool has_sum = !std::isnan(sum);
    const auto is_number = [](const Val& one) { return !one.is_null() && !std::isnan(one.number()); };
    if (is_number(a) != has_sum || is_number(b) != has_sum) return false;
    return !has_sum || a.number() == b.number() || (std::isfinite(sum) && std::fabs(a.number() - b.number()) <= magnitude * 1e-14L);
  }
};

// Their keys, by a loop over all rows.
inline std::vector<std::string> KeysOf(const Rows& rows, const Wanted& wanted) {
  std::vector<Wanted::Position> found;
  for (const auto& [key, cells] : rows) {
    const Wanted::Position position = {key, CellOf(key, cells, wanted.order)};
    if (Holds(wanted.where, key, cells) && (!wanted.after || wanted.IsBefore(*wanted.after, position))) found.push_back(position);
  }
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return wanted.IsBefore(a, b); });
  std::vector<std::string> keys;
  for (std::size_t i = wanted.offset; i < found.size() && (!wanted.limit || keys.size() < *wanted.limit); ++i) keys.push_back(found[i].key);
  return keys;
}

}  // namespace hako::oracle
