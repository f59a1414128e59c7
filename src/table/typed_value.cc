#include "hako/table/typed_value.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako::table {
namespace {

using Kind = Value::Kind;

std::optional<Value> AsInt64(const Value& value) {
  if (value.kind() == Kind::kInt) return value;
  if (value.kind() == Kind::kBool) return Value(std::int64_t{value.bool_value()});
  if (value.kind() == Kind::kBytes) {
    const std::optional<Value> number = ParseDecimal(value.bytes());
    return number && number->kind() == Kind::kInt ? number : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Value> AsDouble(const Value& value) {
  if (value.kind() == Kind::kDouble) return value;
  if (value.kind() == Kind::kInt) return Value(static_cast<double>(value.int_value()));
  if (value.kind() != Kind::kBytes) return std::nullopt;
  const std::optional<Value> number = ParseDecimal(value.bytes());
  return number ? AsDouble(*number) : std::nullopt;
}

std::optional<Value> AsBool(const Value& value) {
  if (value.kind() == Kind::kBool) return value;
  if (value.kind() == Kind::kInt && (value.int_value() == 0 || value.int_value() == 1)) return Value(value.int_value() == 1);
  if (value.kind() != Kind::kBytes) return std::nullopt;
  if (value.bytes() == "true" || value.bytes() == "1") return Value(true);
  if (value.bytes() == "false" || value.bytes() == "0") return Value(false);
  return std::nullopt;
}

std::optional<Value> Converted(ColumnType type, const Value& value) {
  switch (type) {
    case ColumnType::kInt64:
      return AsInt64(value);
    case ColumnType::kDouble:
      return AsDouble(value);
    case ColumnType::kBool:
      return AsBool(value);
    case ColumnType::kString:
      return value.kind() == Kind::kBytes && text::IsUtf8(value.bytes()) ? std::optional(value) : std::nullopt;
    case ColumnType::kBytes:
      return value.kind() == Kind::kBytes ? std::optional(value) : std::nullopt;
    case ColumnType::kAny:
      break;
  }
  return StoredOf(value);
}

std::shared_ptr<const Node> TypedNode(const std::shared_ptr<const Node>& node, const ColumnNames& names) {
  std::shared_ptr<Node> changed;  // a copy, made once a part differs
  const auto change = [&]() -> Node& {
    if (changed == nullptr) changed = std::make_shared<Node>(*node);
    return *changed;
  };
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    std::shared_ptr<const Node> child = TypedNode(node->children[i], names);
    if (child != node->children[i]) change().children[i] = std::move(child);
  }
  if (node->op < Op::kEqual || node->op > Op::kIn) return changed != nullptr ? changed : node;
  const StoredColumn* const column = node->is_key ? nullptr : names.Find(node->column);
  const ColumnType type = node->is_numeric    ? ColumnType::kDouble
                          : node->is_key      ? ColumnType::kString
                          : column == nullptr ? ColumnType::kAny
                                              : column->type;
  for (std::size_t i = 0; i < node->values.size(); ++i) {
    OwnedValue literal = TypedLiteral(type, node->values[i].get());
    if (literal.get().kind() != node->values[i].get().kind()) change().values[i] = std::move(literal);
  }
  return changed != nullptr ? changed : node;
}

}  // namespace

Status CheckValue(std::string_view column, const Value& value) {
  if (value.kind() != Kind::kDouble || !std::isnan(value.double_value())) return absl::OkStatus();
  if (value.exceeds_int64())
    return absl::InvalidArgumentError(
        absl::StrCat("column '", ToAbsl(column), "': an integer exceeds int64, whose greatest is ", INT64_MAX));
  return absl::InvalidArgumentError(absl::StrCat("column '", ToAbsl(column), "': NaN is no value"));
}

StatusOr<Value> TypedValue(const StoredColumn& column, const Value& value) {
  if (value.is_null()) return value;
  HAKO_RETURN_IF_ERROR(CheckValue(column.name, value));
  const std::optional<Value> typed = Converted(column.type, value);
  if (typed) return *typed;
  const std::string text = value.ToText();
  const std::string what = value.kind() == Kind::kBytes    ? absl::StrCat("'", text::IsUtf8(text) ? text.substr(0, 40) : "...", "'")
                           : value.kind() == Kind::kDouble ? absl::StrCat("the double ", text)
                                                           : absl::StrCat(value.kind() == Kind::kInt ? "the integer " : "the bool ", text);
  return absl::InvalidArgumentError(
      absl::StrCat("column '", column.name, "' has type ", ToAbsl(NameOf(column.type)), ", which ", what, " is not"));
}

OwnedValue TypedLiteral(ColumnType type, const Value& literal) {
  const bool is_text = literal.kind() == Kind::kBytes;
  switch (type) {
    case ColumnType::kInt64:
    case ColumnType::kDouble:
      return is_text ? ParseDecimal(literal.bytes()).value_or(literal) : literal;
    case ColumnType::kBool:
      return is_text ? AsBool(literal).value_or(literal) : literal;
    case ColumnType::kString:
      return is_text || literal.is_null() ? OwnedValue(literal) : OwnedValue(literal.ToText());
    case ColumnType::kBytes:
      return literal;
    case ColumnType::kAny:
      break;
  }
  return StoredOf(literal);
}

Condition TypedCondition(const Condition& condition, const ColumnNames& names) {
  return condition.node() == nullptr ? condition : Condition(TypedNode(condition.node(), names));
}

}  // namespace hako::table
