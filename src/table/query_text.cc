// The parser: recursive descent, a function for each rule of the grammar.
#include "hako/table/query_text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako {
namespace {

struct Token {
  enum class Kind { kEnd, kWord, kQuotedWord, kText, kNumber, kSign };
  Kind kind = Kind::kEnd;
  std::string text = {};  // a word as it is written, or a text without its quotes
  std::size_t position = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view text, std::span<const Value> parameters = {}) : text_(text), parameters_(parameters) { Advance(); }

  StatusOr<Statement> ParseAll() {
    Statement statement;
    if (TakeWord("select")) {
      ParseSelection(&statement);
    } else if (TakeWord("update")) {
      statement.kind = Statement::Kind::kUpdate;
      if (!TakeWord("set")) Fail("'set'");
      do ParseAssignment(&statement);
      while (TakeSign(","));
    } else if (TakeWord("delete")) {
      statement.kind = Statement::Kind::kDelete;
    } else {
      Fail("'select', 'update' or 'delete'");
    }
    if (TakeWord("where")) statement.where = ParseOr();
    ParseEnd(&statement);
    statement.mentions = std::move(mentions_);
    return Finish(std::move(statement));
  }
  StatusOr<Condition> ParseConditionAlone() {
    Condition condition = IsWord("true") ? (Advance(), Condition()) : ParseOr();
    return Finish(std::move(condition));
  }

 private:
  template <class T>
  StatusOr<T> Finish(T result) {
    if (IsWord("from")) FailAt(token_.position, "a statement has no 'from': it is of the table that runs it");
    if (status_.ok() && token_.kind != Token::Kind::kEnd) Fail("the end");
    if (status_.ok() && num_taken_ < parameters_.size())
      FailAt(text_.size(), absl::StrCat(parameters_.size(), " parameters are given, and the statement has ", num_taken_, " places (?)"));
    if (!status_.ok()) return status_;
    return result;
  }

  void Fail(std::string_view expected) {
    if (!status_.ok()) return;
    const std::string found = token_.kind == Token::Kind::kEnd          ? "the end"
                              : token_.kind == Token::Kind::kQuotedWord ? absl::StrCat("\"", token_.text, "\", a column in double quotes")
                                                                        : absl::StrCat("'", token_.text, "'");
    status_ =
        absl::InvalidArgumentError(absl::StrCat("position ", token_.position + 1, ": expected ", ToAbsl(expected), ", found ", found));
  }
  void FailAt(std::size_t position, std::string_view what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("position ", position + 1, ": ", ToAbsl(what)));
  }
  static bool IsWordByte(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
  }
  char Peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void Advance() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    token_ = {.position = at_};
    if (!status_.ok() || at_ == text_.size()) return;
    const char c = text_[at_];
    const bool signed_number =
        (c == '-' || c == '+' || c == '.') && (absl::ascii_isdigit(static_cast<unsigned char>(Peek(1))) || (c != '.' && Peek(1) == '.'));
    if ((c == 'x' || c == 'X') && Peek(1) == '\'') {
      ++at_;
      TakeQuoted('\'', Token::Kind::kText);
      std::string bytes(token_.text.size(), '\0');
      const auto size = text::DecodeHex(token_.text, bytes.data());
      if (!size) return FailAt(token_.position, "x'...' is not an even number of hexadecimal digits");
      token_.text = bytes.substr(0, *size);
    } else if (c == '\'') {
      TakeQuoted(c, Token::Kind::kText);
    } else if (c == '"') {
      TakeQuoted(c, Token::Kind::kQuotedWord);
    } else if (signed_number || absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      const std::size_t begin = at_++;
      while (IsWordByte(Peek()) || Peek() == '.' ||
             ((Peek() == '-' || Peek() == '+') && absl::ascii_tolower(static_cast<unsigned char>(text_[at_ - 1])) == 'e'))
        ++at_;
      token_.kind = Token::Kind::kNumber;
      token_.text = text_.substr(begin, at_ - begin);
    } else if (IsWordByte(c)) {
      const std::size_t begin = at_;
      while (IsWordByte(Peek())) ++at_;
      token_.kind = Token::Kind::kWord;
      token_.text = text_.substr(begin, at_ - begin);
    } else {
      const std::string_view two = text_.substr(at_, 2);
      const bool is_two = two == "<=" || two == ">=" || two == "!=" || two == "<>";
      token_.kind = Token::Kind::kSign;
      token_.text = two.substr(0, is_two ? 2 : 1);
      at_ += token_.text.size();
    }
  }
  void TakeQuoted(char quote, Token::Kind kind) {
    token_.kind = kind;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) return FailAt(token_.position, "the quote is not closed");
      if (text_[at_] == quote && Peek(1) != quote) break;
      if (text_[at_] == quote) ++at_;
      token_.text.push_back(text_[at_]);
    }
    ++at_;
  }
  bool IsWord(std::string_view word) const {
    return token_.kind == Token::Kind::kWord && absl::EqualsIgnoreCase(token_.text, ToAbsl(word));
  }
  bool TakeWord(std::string_view word) {
    if (!status_.ok() || !IsWord(word)) return false;
    Advance();
    return true;
  }
  bool TakeSign(std::string_view sign) {
    if (!status_.ok() || token_.kind != Token::Kind::kSign || token_.text != sign) return false;
    Advance();
    return true;
  }
  void Expect(std::string_view sign) {
    if (!TakeSign(sign)) Fail(absl::StrCat("'", ToAbsl(sign), "'"));
  }

  // Takes the name of a column; empty = the primary key.
  std::string TakeColumn() {
    const bool is_key = IsWord("key"), is_word = token_.kind == Token::Kind::kWord && (is_key || !table::IsReservedWord(token_.text));
    if (!is_word && token_.kind != Token::Kind::kQuotedWord) Fail("a column");
    if (token_.kind == Token::Kind::kQuotedWord && token_.text.empty()) Fail("the name of a column");
    std::string name = is_key ? std::string() : token_.text;
    mentions_.push_back({name, token_.position});
    if (status_.ok()) Advance();
    return name;
  }
  // Takes a column, or numeric(column).
  Column TakeOperand() {
    const bool may_be_cast = IsWord("numeric");
    const std::string name = TakeColumn();
    if (!may_be_cast || !TakeSign("(")) return name.empty() ? Key() : Column(name);
    mentions_.pop_back();
    const std::string cast = TakeColumn();
    Expect(")");
    return (cast.empty() ? Key() : Column(cast)).Numeric();
  }
  // Takes a ?, and returns its parameter. Returns nullopt if the next token is not a ?, or no
  // parameter is left.
  std::optional<Value> TakeParameter() {
    if (token_.kind != Token::Kind::kSign || token_.text != "?") return std::nullopt;
    if (num_taken_ == parameters_.size()) {
      FailAt(token_.position, absl::StrCat("parameter ", num_taken_ + 1, " is not given"));
      return std::nullopt;
    }
    return parameters_[num_taken_++];
  }
  OwnedValue TakeLiteral(bool may_be_null = false) {
    const std::size_t position = token_.position;
    std::optional<Value> value = TakeParameter();
    if (value && value->is_null() && !may_be_null) {
      FailAt(position, absl::StrCat("parameter ", num_taken_, " is null: use 'is null'"));
      return {};
    }
    const std::string text = token_.text;
    if (token_.kind == Token::Kind::kText) value = Value(text);
    if (token_.kind == Token::Kind::kNumber) {
      value = table::ParseDecimal(text);
      if (!value) FailAt(token_.position, "the number is malformed, or out of the range of a double");
      if (value && table::IsRounded(text, *value))
        FailAt(token_.position, "the integer is out of the range of int64, and no double is exactly it");
    }
    const bool is_negative = TakeSign("-");  // for inf; the token of a number includes its sign
    const double infinity = std::numeric_limits<double>::infinity();
    if (IsWord("inf")) value = Value(is_negative ? -infinity : infinity);
    if (IsWord("true") && !is_negative) value = Value(true);
    if (IsWord("false") && !is_negative) value = Value(false);
    if (IsWord("null") && !is_negative && may_be_null) value = Value();
    if (!value) {
      Fail("a literal: 'text', a number, true, false or ?");
      return {};
    }
    Advance();
    return *value;
  }
  std::string TakeText() {
    const std::optional<Value> parameter = TakeParameter();
    const bool is_text = parameter && parameter->kind() == Value::Kind::kBytes;
    if (parameter ? !is_text : token_.kind != Token::Kind::kText)
      parameter ? FailAt(token_.position, absl::StrCat("parameter ", num_taken_, " is no text")) : Fail("a text in single quotes");
    std::string text = is_text ? std::string(parameter->bytes()) : token_.text;
    if (status_.ok()) Advance();
    return text;
  }
  std::uint64_t TakeCount() {
    const std::optional<Value> parameter = TakeParameter();
    const std::optional<Value> number = !parameter && token_.kind == Token::Kind::kNumber ? table::ParseDecimal(token_.text) : parameter;
    if (!number || number->kind() != Value::Kind::kInt || number->int_value() < 0) {
      if (parameter) FailAt(token_.position, absl::StrCat("parameter ", num_taken_, " is no number of rows"));
      Fail("a number of rows");
      return 0;
    }
    Advance();
    return static_cast<std::uint64_t>(number->int_value());
  }

  Condition ParseOr() {
    if (++depth_ > kDepthMax) Fail("fewer levels of parentheses");
    std::vector<Condition> parts = {ParseAnd()};
    while (TakeWord("or")) parts.push_back(ParseAnd());
    --depth_;
    return table::Joined(table::Op::kOr, parts);
  }
  Condition ParseAnd() {
    std::vector<Condition> parts = {ParseNot()};
    while (TakeWord("and")) parts.push_back(ParseNot());
    return table::Joined(table::Op::kAnd, parts);
  }
  Condition ParseNot() {
    bool is_negated = false;
    while (TakeWord("not")) is_negated = !is_negated;
    Condition condition;
    if (TakeSign("(")) {
      condition = ParseOr();
      Expect(")");
    } else {
      condition = ParseComparison();
    }
    return is_negated ? !condition : condition;
  }
  Condition ParseComparison() {
    if (!status_.ok()) return {};
    const std::size_t position = token_.position;
    const Column column = TakeOperand();
    const bool is_negated = TakeWord("not");
    Condition condition = is_negated ? ParseWordComparison(column) : ParseAnyComparison(column);
    if (const Status status = condition.status(); !status.ok()) FailAt(position, ToStd(status.message()));
    return is_negated ? !condition : condition;
  }
  Condition ParseAnyComparison(const Column& column) {
    if (TakeWord("is")) {
      const bool has = TakeWord("not");
      if (!TakeWord("null")) Fail("'null'");
      return has ? column.IsNotNull() : column.IsNull();
    }
    if (TakeSign("=")) return column == TakeLiteral().get();
    if (TakeSign("!=") || TakeSign("<>")) return column != TakeLiteral().get();
    if (TakeSign("<=")) return column <= TakeLiteral().get();
    if (TakeSign(">=")) return column >= TakeLiteral().get();
    if (TakeSign("<")) return column < TakeLiteral().get();
    if (TakeSign(">")) return column > TakeLiteral().get();
    return ParseWordComparison(column);
  }
  Condition ParseWordComparison(const Column& column) {
    if (TakeWord("between")) {
      const OwnedValue low = TakeLiteral();
      if (!TakeWord("and")) Fail("'and'");
      return column.Between(low.get(), TakeLiteral().get());
    }
    if (TakeWord("in")) {
      std::vector<OwnedValue> values;
      Expect("(");
      do values.push_back(TakeLiteral());
      while (TakeSign(","));
      Expect(")");
      std::vector<Value> views;
      for (const OwnedValue& value : values) views.push_back(value.get());
      return column.In(std::move(views));
    }
    using Make = Condition (Column::*)(StringArg) const;
    static constexpr std::pair<const char*, Make> kOfText[] = {
        {"contains", &Column::Contains}, {"begins", &Column::BeginsWith}, {"ends", &Column::EndsWith},    {"matches", &Column::Matches},
        {"all", &Column::HasAll},        {"any", &Column::HasAny},        {"phrase", &Column::HasPhrase}, {"search", &Column::Search}};
    for (const auto& [word, make] : kOfText) {
      if (TakeWord(word)) return (column.*make)(TakeText());
    }
    Fail("a comparison");
    return {};
  }

  // Takes a column, or a function, which has parentheses.
  std::string TakeColumnOr(std::optional<Statement::Aggregate>* function) {
    const Token first = token_;
    const std::string name = TakeColumn();
    if (first.kind != Token::Kind::kWord || !TakeSign("(")) return name;
    mentions_.pop_back();
    static constexpr std::array<std::string_view, 4> kFunctions = {"count", "sum", "min", "max"};
    const std::string word = absl::AsciiStrToLower(first.text);
    if (std::find(kFunctions.begin(), kFunctions.end(), word) == kFunctions.end())
      FailAt(first.position, "the functions are count, sum, min and max");
    const bool is_all = word == "count" && TakeSign("*");
    *function = {word, is_all ? std::string() : TakeColumn(), is_all};
    Expect(")");
    return {};
  }
  void ParseSelection(Statement* statement) {
    if (TakeSign("*")) return;
    do {
      const std::size_t position = token_.position;
      std::optional<Statement::Aggregate> function;
      const std::string name = TakeColumnOr(&function);
      if (function) {
        statement->aggregates.push_back(*std::move(function));
      } else {
        statement->columns.push_back(name);
        column_positions_.push_back(position);
      }
    } while (TakeSign(","));
  }
  void ParseAssignment(Statement* statement) {
    const std::size_t position = token_.position;
    const std::string name = TakeColumn();
    mentions_.pop_back();  // a column that is set may be new
    if (name.empty()) FailAt(position, "the primary key of a row does not change: put the row under another key, and remove this one");
    Expect("=");
    statement->assignments.push_back({name, TakeLiteral(true)});
  }
  // Parses what follows the condition.
  void ParseEnd(Statement* statement) {
    const bool is_select = statement->kind == Statement::Kind::kSelect;
    const std::size_t position = token_.position;
    if (is_select && TakeWord("group")) {
      if (!TakeWord("by")) Fail("'by'");
      statement->group_by = TakeColumn();
      if (statement->aggregates.empty()) FailAt(position, "group by needs a function: count(*), sum(x), min(x) or max(x)");
    }
    for (std::size_t i = 0; i < statement->columns.size() && !statement->aggregates.empty(); ++i) {
      if (statement->columns[i] != statement->group_by)
        FailAt(column_positions_[i], "a column beside functions must be the one of `group by`");
    }
    if (TakeWord("order")) ParseOrder(statement);
    if (TakeWord("limit")) statement->limit = TakeCount();
    if (TakeWord("offset")) statement->offset = TakeCount();
    if (is_select || !TakeWord("in")) return;
    if (!TakeWord("batches")) Fail("'batches'");
    if (statement->order_by) FailAt(position, "batches are in the order of the keys, not in another one");
    statement->in_batches = true;
  }
  void ParseOrder(Statement* statement) {
    if (!TakeWord("by")) Fail("'by'");
    const std::size_t position = token_.position;
    std::string name = TakeColumnOr(&statement->order_by_function);
    const bool is_figures = !statement->aggregates.empty();
    if (is_figures && !statement->group_by) FailAt(position, "functions without `group by` show one row, which has no order");
    if (is_figures && !statement->order_by_function && name != statement->group_by)
      FailAt(position, "groups are ordered by the column of `group by` or by a function");
    if (!is_figures && statement->order_by_function) FailAt(position, "only groups are ordered by a function");
    if (!statement->order_by_function) statement->order_by = std::move(name);
    const bool descends = TakeWord("desc") || (TakeWord("asc") && false);
    const std::size_t cast = token_.position;
    const bool is_numeric = TakeWord("numeric");
    if (is_numeric && is_figures) FailAt(cast, "groups are ordered by their values, not by the numbers of texts");
    statement->order = is_numeric ? (descends ? RowOrder::kNumericDescending : RowOrder::kNumericAscending)
                                  : (descends ? RowOrder::kDescending : RowOrder::kAscending);
  }

  static constexpr int kDepthMax = 100;
  std::string_view text_;
  std::span<const Value> parameters_;
  std::size_t num_taken_ = 0;  // parameters that were taken
  std::size_t at_ = 0;
  Token token_;
  Status status_;
  int depth_ = 0;
  std::vector<Statement::Mention> mentions_;
  std::vector<std::size_t> column_positions_;  // positions of the columns of a select
};

}  // namespace

StatusOr<Statement> ParseStatement(StringArg text, std::span<const Value> parameters) { return Parser(text, parameters).ParseAll(); }
StatusOr<Condition> ParseCondition(StringArg text) { return Parser(text).ParseConditionAlone(); }

}  // namespace hako
