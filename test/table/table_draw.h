// What the oracles of tables (test/table/oracle_test.cc) compare, drawn at random: the types of columns, values,
// rows, and conditions.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hako/table/schema.h"
#include "support/random.h"
#include "table/table_oracle.h"

namespace hako::oracle {

inline const std::vector<std::string> kColumns = {"a", "b", "c", "d", "t"};

// Draws the types of the columns, and then what a table may be asked and given.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {
    for (const std::string& column : kColumns) {
      types_[column] = column == "t"      ? ColumnType::kString
                       : random_.OneIn(2) ? ColumnType::kAny
                                          : static_cast<ColumnType>(random_.Below(6));
    }
  }
  Random& random() { return random_; }
  ColumnType TypeOf(const std::string& column) { return types_.at(column); }

  // Below 'w', as the keys of the writer are not.
  std::string Key() {
    static const char* const kBegins[] = {"k", "l", "m", "", "0", "-", "+", "1."};
    return kBegins[random_.Below(std::size(kBegins))] + std::to_string(random_.Below(15));
  }
  std::string Column() { return kColumns[random_.Below(kColumns.size())]; }

  std::int64_t Integer() {
    using Limits = std::numeric_limits<std::int64_t>;
    switch (random_.Below(12)) {
      case 0:
        return (std::int64_t{1} << 53) + static_cast<std::int64_t>(random_.Below(5)) - 2;
      case 1:
        return -(std::int64_t{1} << 53) + static_cast<std::int64_t>(random_.Below(5)) - 2;
      case 2:
        return random_.OneIn(2) ? Limits::max() - static_cast<std::int64_t>(random_.Below(3))
                                : Limits::min() + static_cast<std::int64_t>(random_.Below(3));
      default:
        return static_cast<std::int64_t>(random_.Below(12)) - 3;
    }
  }
  double Real() {
    switch (random_.Below(10)) {
      case 0:
        return random_.OneIn(2) ? HUGE_VAL : -HUGE_VAL;
      case 1:
        return random_.OneIn(2) ? -0.0 : 0.0;
      case 2:
        return static_cast<double>(Integer());
      case 3:
        return random_.OneIn(2) ? 1e300 : -1e-300;
      default:
        return static_cast<double>(random_.Below(24)) / 2 - 3;
    }
  }
  std::string Word() {
    static const char* const kWords[] = {"a",
                                         "b",
                                         "ab",
                                         "ba",
                                         "abc",
                                         "B",
                                         "\xC3\xA9",
                                         "a\xC3\xA9_b",
                                         "12",
                                         "x_1",
                                         "\xC3\x89",
                                         "ae\xCC\x81_B",
                                         "E\xCC\x81",
                                         "\xEF\xBC\xA1"
                                         "b",
                                         "\xC3\x9F",
                                         "ss",
                                         "\xCF\x83\xCE\xA3",
                                         "\xCE\xA3\xCF\x82",
                                         "a\xC2\xAD"
                                         "b"};
    return kWords[random_.Below(std::size(kWords))];
  }
  std::string Text() {
    std::string text;
    for (std::uint64_t i = random_.Below(6); i > 0; --i) text += Word() + (random_.OneIn(4) ? ", " : random_.OneIn(4) ? "" : " ");
    return text;
  }
  // A text that is a number, or nearly one.
  std::string NumberText() {
    static const char* const kTexts[] = {"007",
                                         "1.50",
                                         "+5",
                                         "+-5",
                                         "-3",
                                         ".5",
                                         "5.",
                                         "1e1",
                                         "2E-1",
                                         "1e",
                                         " 5",
                                         "5 ",
                                         "-",
                                         "inf",
                                         "-0.0",
                                         "0x10",
                                         "1e400",
                                         "1,5",
                                         "9007199254740993"};
    return random_.OneIn(3) ? std::to_string(Integer()) : kTexts[random_.Below(std::size(kTexts))];
  }
  std::string Bytes() {
    switch (random_.Below(9)) {
      case 8:
        return NumberText();
      case 0:
        return std::string("a\0b", 3).substr(0, random_.Below(4));
      case 1:
        return std::string(random_.Below(3), '\0') + Word();
      case 2:
        return "\xff" + Word();
      case 3:
        return "\xA9" + Word();  // the second byte of a character
      case 4:
        return Integer() % 2 == 0 ? std::to_string(Integer()) : Val{Real()}.Text();
      default:
        return random_.OneIn(3) ? Text() : Word();
    }
  }
  Val AnyValue() {
    switch (random_.Below(8)) {
      case 0:
      case 1:
        return {Integer()};
      case 2:
        return {Real()};
      case 3:
        return {random_.OneIn(2)};
      case 4:
      case 5:
        return {Bytes()};
      case 6:
        return {Word()};
      default:
        return {};
    }
  }
  // A value that the column takes as it is.
  Val ValueFor(const std::string& column) {
    if (column.empty()) return {Key()};
    if (random_.OneIn(8)) return {};
    switch (TypeOf(column)) {
      case ColumnType::kInt64:
        return {Integer()};
      case ColumnType::kDouble:
        return {Real()};
      case ColumnType::kBool:
        return {random_.OneIn(2)};
      case ColumnType::kString:
        return {column == "t" ? Text() : random_.OneIn(4) ? NumberText() : Word()};
      case ColumnType::kBytes:
        return {Bytes()};
      case ColumnType::kAny:
        break;
    }
    return AnyValue();
  }
  // A literal to compare a column, or its cast, with.
  Val Literal(const std::string& column, bool is_numeric) {
    if (is_numeric && !random_.OneIn(3)) return random_.OneIn(2) ? Val{Integer()} : random_.OneIn(2) ? Val{Real()} : Val{NumberText()};
    for (;;) {
      const Val value = ValueFor(column);
      if (!value.is_null()) return value;
    }
  }
  Cells SomeCells() {
    Cells cells;
    for (const std::string& column : kColumns) {
      Val value = random_.OneIn(6) ? Val() : ValueFor(column);
      if (!value.is_null()) cells.emplace(column, std::move(value));
    }
    return cells;
  }

  // Alternatives of words and phrases, some of which are to be absent; a term may have no word.
  std::vector<std::vector<SearchTerm>> Search() {
    std::vector<std::vector<SearchTerm>> alternatives(1 + random_.Below(3));
    for (auto& terms : alternatives) {
      for (std::uint64_t i = random_.Below(4); i > 0; --i) {
        const bool is_phrase = random_.OneIn(3);
        std::string words = is_phrase ? Text() : random_.OneIn(6) ? "," : Word();
        if (!is_phrase && random_.OneIn(4)) words += "." + Word();
        terms.push_back({words, is_phrase, random_.OneIn(3)});
      }
    }
    return alternatives;
  }

  Where Leaf() {
    Where where;
    where.column = random_.OneIn(10) ? "" : Column();
    where.is_numeric = random_.OneIn(5);
    const auto text = [&] {
      if (where.is_numeric && random_.OneIn(2)) return NumberText();
      if (where.column == "t" || random_.OneIn(2)) return random_.OneIn(2) ? Text() : Word();
      return Bytes();
    };
    if (where.column == "t" ? !random_.OneIn(3) : random_.OneIn(4)) {
      static constexpr Operator kOfText[] = {Operator::kContains, Operator::kBegins, Operator::kEnds,   Operator::kRegex,
                                             Operator::kAll,      Operator::kAny,    Operator::kPhrase, Operator::kSearch};
      static const char* const kPatterns[] = {"^a", "b$", "a.*b", "[ab]c?", "[0-9]+", "(a|x_)[b1]"};
      where.op = kOfText[random_.Below(std::size(kOfText))];
      if (where.op == Operator::kSearch) {
        where.search = Search();
        return where;
      }
      where.values.push_back({where.op == Operator::kRegex ? kPatterns[random_.Below(std::size(kPatterns))] : text()});
      return where;
    }
    static constexpr Operator kOfValues[] = {Operator::kEqual,     Operator::kEqual,   Operator::kNotEqual,     Operator::kLess,
                                             Operator::kLessEqual, Operator::kGreater, Operator::kGreaterEqual, Operator::kBetween,
                                             Operator::kIn,        Operator::kIsNull,  Operator::kIsNotNull};
    where.op = kOfValues[random_.Below(std::size(kOfValues))];
    const bool has_none = where.op == Operator::kIsNull || where.op == Operator::kIsNotNull;
    const std::uint64_t count = has_none ? 0 : where.op == Operator::kBetween ? 2 : where.op == Operator::kIn ? 1 + random_.Below(4) : 1;
    for (std::uint64_t i = 0; i < count; ++i) where.values.push_back(Literal(where.column, where.is_numeric));
    return where;
  }
  Where SomeWhere(int depth) {
    const std::uint64_t kind = depth == 0 ? 9 : random_.Below(10);
    if (kind >= 6) return Leaf();
    if (kind == 5) return {.op = Operator::kNot, .parts = {SomeWhere(depth - 1)}};
    std::vector<Where> parts;
    for (std::uint64_t i = 2 + random_.Below(2); i > 0; --i) parts.push_back(SomeWhere(depth - 1));
    return {.op = kind < 3 ? Operator::kAnd : Operator::kOr, .parts = std::move(parts)};
  }

 private:
  Random random_;
  std::map<std::string, ColumnType> types_;
};

}  // namespace hako::oracle
