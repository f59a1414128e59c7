#include "hako/table/typed_value.h"

#include <cmath>
#include <optional>

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
  return value;
}

}  // namespace

StatusOr<Value> TypedValue(const StoredColumn& column, const Value& value) {
  if (value.is_null()) return value;
  if (value.kind() == Kind::kDouble && std::isnan(value.double_value()))
    return absl::InvalidArgumentError(absl::StrCat("column '", column.name, "': NaN is no value"));
  const std::optional<Value> typed = Converted(column.type, value);
  if (typed) return *typed;
  const std::string text = value.ToText();
  return absl::InvalidArgumentError(absl::StrCat("column '", column.name, "' has type ", ToAbsl(NameOf(column.type)), ", which '",
                                                 text::IsUtf8(text) ? text.substr(0, 40) : "...", "' is not"));
}

}  // namespace hako::table
