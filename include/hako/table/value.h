// Value: what a cell of a row holds, as a view. Cell: a column's name and its value.
//
// A value is null, bytes, an int64, a double or a bool. A row keeps the kind of each cell, so no
// schema is needed to read it. Conditions and indices see a value in two ways:
//   its text    bytes as they are; a number in decimal, a bool as "true" or "false"
//   its number  an int64 or double as it is, a bool as 0 or 1; bytes if all of them are a decimal
//               number, without blanks; else none
// An absent column and null are the same.
//
// Numbers are compared exactly, int64 with double too: neither is rounded. NaN is refused.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hako {

// A value of a cell: see the head of this header. Bytes are not copied.
class Value {
 public:
  // What it holds.
  enum class Kind : std::uint8_t { kNull, kBytes, kInt, kDouble, kBool };

  // Conversions are implicit, so that values can stand in lists of cells.
  constexpr Value() = default;
  constexpr Value(std::nullopt_t) {}                                               // NOLINT
  constexpr Value(std::string_view bytes) : kind_(Kind::kBytes), bytes_(bytes) {}  // NOLINT
  constexpr Value(const char* text) : Value(std::string_view(text)) {}             // NOLINT
  Value(const std::string& bytes) : Value(std::string_view(bytes)) {}              // NOLINT
  template <std::signed_integral T>
  constexpr Value(T number) : kind_(Kind::kInt), int_(number) {}  // NOLINT
  template <std::unsigned_integral T>
  requires(sizeof(T) < 8 && !std::same_as<T, bool>) constexpr Value(T number)  // NOLINT
      : kind_(Kind::kInt), int_(static_cast<std::int64_t>(number)) {}
  constexpr Value(double number) : kind_(Kind::kDouble), double_(number) {}  // NOLINT
  template <std::same_as<bool> T>
  constexpr Value(T truth) : kind_(Kind::kBool), int_(truth ? 1 : 0) {}  // NOLINT

  // What it holds; and whether that is nothing.
  constexpr Kind kind() const { return kind_; }
  constexpr bool is_null() const { return kind_ == Kind::kNull; }
  // REQUIRES: the value is of this kind
  constexpr std::string_view bytes() const { return bytes_; }
  constexpr std::int64_t int_value() const { return int_; }
  constexpr double double_value() const { return double_; }
  constexpr bool bool_value() const { return int_ != 0; }

  // The text: see the head of this header. A view of the bytes, or of *buffer.
  std::string_view Text(std::string* buffer) const;
  std::string ToText() const;

  // Equal kinds and equal contents.
  friend bool operator==(const Value& a, const Value& b) {
    if (a.kind_ != b.kind_) return false;
    if (a.kind_ == Kind::kBytes) return a.bytes_ == b.bytes_;
    return a.kind_ == Kind::kDouble ? a.double_ == b.double_ : a.kind_ == Kind::kNull || a.int_ == b.int_;
  }

 private:
  Kind kind_ = Kind::kNull;
  union {
    std::int64_t int_ = 0;
    double double_;
  };
  std::string_view bytes_;
};

// A column's name and its value, as views.
struct Cell {
  std::string_view column;  // the name
  Value value;              // null removes the column
};

namespace table {

// A number in a form that orders int64 and double together: the nearest double, and for integers
// beyond 2^53 how far the integer is above it.
struct Number {
  double nearest = 0;      // never NaN; 0 is positive
  std::int16_t above = 0;  // of an int64 that is no double

  friend bool operator==(const Number&, const Number&) = default;
  friend std::partial_ordering operator<=>(const Number& a, const Number& b) {
    if (a.nearest != b.nearest) return a.nearest <=> b.nearest;
    return a.above <=> b.above;
  }
};

Number NumberOfInt(std::int64_t number);
// None for NaN.
std::optional<Number> NumberOfDouble(double number);
// The number of a value: see the head of this header.
std::optional<Number> NumberOf(const Value& value);
// The value that a decimal text is: an int64 if it is one, else a double. None if it is no number.
std::optional<Value> ParseDecimal(std::string_view text);

// A value with its own bytes.
class OwnedValue {
 public:
  OwnedValue() = default;
  explicit OwnedValue(const Value& value) : value_(value) {
    if (value.kind() == Value::Kind::kBytes) bytes_ = value.bytes();
  }
  Value get() const { return value_.kind() == Value::Kind::kBytes ? Value(std::string_view(bytes_)) : value_; }

 private:
  Value value_;
  std::string bytes_;
};

}  // namespace table
}  // namespace hako
