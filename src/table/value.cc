#include "hako/table/value.h"

#include <charconv>
#include <cmath>

namespace hako {

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
      return *buffer =
                 std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), int_).ptr - digits));
    case Kind::kDouble:
      return *buffer =
                 std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), double_).ptr - digits));
  }
  return {};
}

std::string Value::ToText() const {
  std::string buffer;
  return std::string(Text(&buffer));
}

namespace table {

Number NumberOfInt(std::int64_t number) {
  const auto nearest = static_cast<double>(number);
  constexpr double kTwoTo63 = 9223372036854775808.0;
  // 2^63 is no int64, but is the nearest double of the largest ones.
  const auto above = nearest >= kTwoTo63 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(number) - (std::uint64_t{1} << 63))
                                         : number - static_cast<std::int64_t>(nearest);
  return {nearest, static_cast<std::int16_t>(above)};
}

std::optional<Number> NumberOfDouble(double number) {
  if (std::isnan(number)) return std::nullopt;
  return Number{number + 0.0, 0};  // -0 becomes 0
}

std::optional<Value> ParseDecimal(std::string_view text) {
  const char* const end = text.data() + text.size();
  const char* begin = text.data();
  if (text.size() > 1 && *begin == '+' && text[1] != '-') ++begin;
  if (begin == end) return std::nullopt;
  const char first = *begin == '-' && end - begin > 1 ? begin[1] : *begin;
  if ((first < '0' || first > '9') && first != '.') return std::nullopt;  // neither nan nor inf
  std::int64_t number = 0;
  if (const auto [to, error] = std::from_chars(begin, end, number); to == end && error == std::errc()) return Value(number);
  double real = 0;
  if (const auto [to, error] = std::from_chars(begin, end, real); to == end && error == std::errc()) return Value(real);
  return std::nullopt;
}

std::optional<Number> NumberOf(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      return std::nullopt;
    case Value::Kind::kBytes: {
      const std::optional<Value> number = ParseDecimal(value.bytes());
      return number ? NumberOf(*number) : std::nullopt;
    }
    case Value::Kind::kInt:
      return NumberOfInt(value.int_value());
    case Value::Kind::kDouble:
      return NumberOfDouble(value.double_value());
    case Value::Kind::kBool:
      return Number{value.bool_value() ? 1.0 : 0.0, 0};
  }
  return std::nullopt;
}

}  // namespace table
}  // namespace hako
