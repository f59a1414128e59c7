// Writes conditions as text, which src/table/query_text.cc parses.
#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "hako/table/condition.h"
#include "hako/table/query_text.h"
#include "hako/text/text_encoding.h"

namespace hako {
namespace table {

void AppendLiteral(const Value& value, std::string* out) {
  std::string buffer;
  if (value.is_null()) {
    out->append("null");
  } else if (value.kind() != Value::Kind::kBytes) {
    out->append(value.Text(&buffer));
    if (buffer == "-0") out->append(".0");  // the integer has no sign
  } else if (text::IsUtf8(value.bytes()) && value.bytes().find('\0') == std::string_view::npos) {
    out->push_back('\'');
    for (const char c : value.bytes()) out->append(c == '\'' ? 2 : 1, c);
    out->push_back('\'');
  } else {
    out->append("x'");
    text::AppendHex(value.bytes(), out);
    out->push_back('\'');
  }
}

bool IsReservedWord(std::string_view name) {
  static constexpr std::string_view kTaken[] = {"key",  "not",   "and",   "or",    "true",  "false",
                                                "null", "where", "order", "group", "limit", "offset"};
  return std::any_of(std::begin(kTaken), std::end(kTaken),
                     [name](std::string_view taken) { return absl::EqualsIgnoreCase(ToAbsl(name), ToAbsl(taken)); });
}

void AppendColumnName(std::string_view name, std::string* out) {
  const auto is_plain_byte = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const bool is_plain = !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
                        std::all_of(name.begin(), name.end(), is_plain_byte) && !IsReservedWord(name);
  if (is_plain) {
    out->append(name);
    return;
  }
  out->push_back('"');
  for (const char c : name) out->append(c == '"' ? 2 : 1, c);
  out->push_back('"');
}

namespace {

std::string_view WordOf(Op op) {
  switch (op) {
    case Op::kEqual:
      return " = ";
    case Op::kNotEqual:
      return " != ";
    case Op::kLess:
      return " < ";
    case Op::kLessEqual:
      return " <= ";
    case Op::kGreater:
      return " > ";
    case Op::kGreaterEqual:
      return " >= ";
    case Op::kContains:
      return " contains ";
    case Op::kBegins:
      return " begins ";
    case Op::kEnds:
      return " ends ";
    case Op::kRegex:
      return " matches ";
    case Op::kAllWords:
      return " all ";
    case Op::kAnyWord:
      return " any ";
    case Op::kPhrase:
      return " phrase ";
    case Op::kIsNull:
      return " is null";
    case Op::kIsNotNull:
      return " is not null";
    case Op::kBetween:
      return " between ";
    default:
      return " in (";
  }
}

void AppendNode(const Node& node, std::string* out) {
  if (node.op == Op::kNot) {
    out->append("not (");
    AppendNode(*node.children[0], out);
    out->push_back(')');
    return;
  }
  if (node.op == Op::kAnd || node.op == Op::kOr) {
    if (node.children.empty()) out->append("key any ''");  // holds for no row
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      if (i > 0) out->append(node.op == Op::kAnd ? " and " : " or ");
      const bool nested = node.children[i]->op == Op::kOr;
      if (nested) out->push_back('(');
      AppendNode(*node.children[i], out);
      if (nested) out->push_back(')');
    }
    return;
  }
  if (node.is_numeric) out->append("numeric(");
  node.is_key ? void(out->append("key")) : AppendColumnName(node.column, out);
  if (node.is_numeric) out->push_back(')');
  out->append(WordOf(node.op));
  const std::size_t count = node.keys ? std::min<std::size_t>(node.keys->size(), 5) : node.values.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out->append(node.op == Op::kBetween ? " and " : ", ");
    AppendLiteral(node.keys ? Value((*node.keys)[i]) : node.values[i].get(), out);
  }
  if (node.keys && count < node.keys->size()) out->append(", ...");
  if (node.op == Op::kIn || node.op == Op::kKeyIn) out->push_back(')');
}

}  // namespace
}  // namespace table

std::string Condition::ToText() const {
  if (!node_) return "true";
  std::string text;
  table::AppendNode(*node_, &text);
  return text;
}

}  // namespace hako
