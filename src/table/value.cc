#include "hako/table/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

namespace hako {
namespace {

std::string_view AppendDecimal(const Value& value, char* digits, std::size_t size) {
  const std::to_chars_result end = value.kind() == Value::Kind::kInt ? std::to_chars(digits, digits + size, value.int_value())
                                                                     : std::to_chars(digits, digits + size, value.double_value());
  return {digits, static_cast<std::size_t>(end.ptr - digits)};
}

}  // namespace

std::string_view Value::Text(std::string* buffer) const {
  char digits[32];
  switch (kind_) {
    case Kind::kNull:
      return {};
    case Kind::kBytes:
      return bytes_;
    case Kind::kBool:
      return int_ != 0 ? "true" : "false";
    case Kind::kInt:
    case Kind::kDouble:
      return *buffer = AppendDecimal(*this, digits, sizeof(digits));
  }
  return {};
}

std::string Value::ToText() const {
  std::string buffer;
  return std::string(Text(&buffer));
}

std::weak_ordering Value::Compare(const Value& a, const Value& b) {
  if (a.kind_ == Kind::kInt && b.kind_ == Kind::kInt) return a.int_ <=> b.int_;
  const auto class_of = [](Kind kind) { return kind == Kind::kNull ? 0 : kind == Kind::kBytes ? 2 : 1; };
  const int by_class = class_of(a.kind_) - class_of(b.kind_);
  if (by_class != 0) return by_class <=> 0;
  if (a.kind_ == Kind::kNull) return std::weak_ordering::equivalent;
  if (a.kind_ == Kind::kBytes) return a.bytes_.compare(b.bytes_) <=> 0;
  const std::optional<table::Number> x = table::NumberOf(a), y = table::NumberOf(b);
  if (!x || !y) return x.has_value() <=> y.has_value();
  if (x->nearest != y->nearest) return x->nearest < y->nearest ? std::weak_ordering::less : std::weak_ordering::greater;
  return x->above <=> y->above;
}

namespace table {
namespace {

Number NumberOfInt(std::int64_t number) {
  const auto nearest = static_cast<double>(number);
  constexpr double kTwoTo63 = 9223372036854775808.0;
  // 2^63 is not an int64, but it is the double nearest to the largest ones.
  const auto above = nearest >= kTwoTo63 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(number) - (std::uint64_t{1} << 63))
                                         : number - static_cast<std::int64_t>(nearest);
  return {nearest, static_cast<std::int16_t>(above)};
}

template <class T>
std::optional<Value> ParsedWhole(std::string_view text) {
  T number{};
  const auto [to, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return to == text.data() + text.size() && error == std::errc() ? std::optional(Value(number)) : std::nullopt;
}

// Whether a decimal number may begin like this text. Excludes nan and inf.
bool BeginsAsDecimal(std::string_view text) {
  const char first = text.size() > 1 && text[0] == '-' ? text[1] : text.empty() ? '\0' : text[0];
  return (first >= '0' && first <= '9') || first == '.';
}

}  // namespace

std::optional<Number> NumberOf(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kInt:
      return NumberOfInt(value.int_value());
    case Value::Kind::kDouble:
      if (std::isnan(value.double_value())) return std::nullopt;
      return Number{value.double_value() + 0.0, 0};  // -0 becomes 0
    case Value::Kind::kBool:
      return Number{value.bool_value() ? 1.0 : 0.0, 0};
    default:
      return std::nullopt;
  }
}

std::optional<Value> ParseDecimal(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  if (!BeginsAsDecimal(text)) return std::nullopt;
  const std::optional<Value> whole = ParsedWhole<std::int64_t>(text);
  return whole ? whole : ParsedWhole<double>(text);
}

bool IsRounded(std::string_view integer, const Value& number) {
  if (number.kind() != Value::Kind::kDouble || integer.find_first_of(".eE") != integer.npos) return false;
  if (integer.starts_with('+')) integer.remove_prefix(1);
  const bool is_negative = integer.starts_with('-');
  if (is_negative) integer.remove_prefix(1);
  integer.remove_prefix(std::min(integer.size(), integer.find_first_not_of('0')));
  char digits[400];
  const auto end = std::to_chars(digits, digits + sizeof(digits), std::abs(number.double_value()), std::chars_format::fixed).ptr;
  return std::string_view(digits, static_cast<std::size_t>(end - digits)) != integer;
}

Value NumericOf(const Value& value) { return value.kind() == Value::Kind::kBytes ? ParseDecimal(value.bytes()).value_or(Value()) : value; }

Value StoredOf(const Value& value) {
  if (!value.is_untyped() || !BeginsAsDecimal(value.bytes())) return value;
  char digits[32];
  for (const auto& number : {ParsedWhole<std::int64_t>(value.bytes()), ParsedWhole<double>(value.bytes())}) {
    if (number && AppendDecimal(*number, digits, sizeof(digits)) == value.bytes()) return *number;
  }
  return value;
}

bool StandsFor(const Value& value, const Value& equal) {
  const auto rank = [](const Value& one) {
    return std::tuple(one.kind(), one.kind() == Value::Kind::kDouble && std::signbit(one.double_value()));
  };
  return rank(value) < rank(equal);
}

}  // namespace table
}  // namespace hako
