// Value is a view of the content of a cell. OwnedValue is a Value with its own bytes. Cell is the
// name of a column with its value.
//
// A value is null, bytes, an int64, a double or a bool. A row keeps the kind of each cell, so no schema is
// needed to read it. An absent column and null are the same.
//
// The order of values. Conditions, indices, `order by`, pages, groups, min, max, unique columns,
// statements, and < and == here all use this one order:
//
//   null  <  numbers  <  bytes
//
//   numbers   int64, double and bool together, by their exact value: no int64 and no double is rounded. false
//             is 0, true is 1, and -0.0 is 0.0. So 1, 1.0 and true are equal: they form one group,
//             and a unique column takes only one of them. NaN is refused.
//   bytes     byte by byte, unsigned; a text is before those that it begins. A text is not a
//             number: '9' is above 100, and not equal to 9.
//
// No comparison in a condition holds for null. If a column has a type (table/schema.h), a literal
// that is compared with it is first converted to that type, if possible: beside an int64, '36' is
// 36; beside a string, 36 is '36'.
//
// Conditions on text (contains, begins, words ...) use the text of a value:
//   its text    bytes as they are; a number in decimal, a bool as "true" or "false"
// The cast `numeric` (Column::Numeric, RowOrder::kNumericAscending, IndexKind::kNumeric) uses its
//   number:
//   its number  an int64, double or bool as it is; of bytes that are a decimal number, without blanks, that
//               number; else null
//
// SQLite orders values in the same way, except that
//   - it has texts and blobs, all texts before all blobs; here both are bytes
//   - it converts literals also where the other side is an expression, a view or a subquery with an affinity;
//     here only a literal beside a column, or beside `numeric`
//   - it stores a text that an integer column cannot convert; here that is refused
//   - its sum takes the number that a text begins with; here a text adds nothing
//   - its cast to numeric is 0 for a text that is no number; here null
//   - 36.0 as text is '36.0' there, and '36' here
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/base/attributes.h"
#include "hako/base/assert.h"
#include "hako/base/integer_arg.h"
#include "hako/base/string_arg.h"

namespace hako {

// A value of a cell: see the head of this header. It does not copy bytes: a Value of a temporary
// string is valid only up to the end of the full expression.
class Value {
 public:
  // The kind of a value. In groups, min and max, equal numbers are represented by one of the first
  // kind.
  enum class Kind : std::uint8_t { kNull, kBytes, kInt, kDouble, kBool };

  // Conversions are implicit, so that lists of cells can have plain values. Characters,
  // enumerations, long double and other pointers do not convert.
  constexpr Value() = default;
  constexpr Value(std::nullopt_t) {}                                                                             // NOLINT
  constexpr Value(std::string_view bytes ABSL_ATTRIBUTE_LIFETIME_BOUND) : kind_(Kind::kBytes), bytes_(bytes) {}  // NOLINT
  Value(const std::string& bytes ABSL_ATTRIBUTE_LIFETIME_BOUND) : Value(std::string_view(bytes)) {}              // NOLINT
  // The text of a C string, up to its first zero byte.
  template <class T>
  requires(std::same_as<T, const char*> || std::same_as<T, char*>) constexpr Value(const T& text)  // NOLINT
      : Value(std::string_view(text)) {}
  template <std::size_t N>
  constexpr Value(const char (&text)[N] ABSL_ATTRIBUTE_LIFETIME_BOUND)  // NOLINT
      : Value(std::string_view(text, N).substr(0, std::string_view(text, N).find('\0'))) {}
  Value(std::nullptr_t) = delete;
  template <class T>
  requires std::convertible_to<const T&, std::span<const std::byte>> Value(const T& bytes ABSL_ATTRIBUTE_LIFETIME_BOUND)  // NOLINT
      : kind_(Kind::kBytes), bytes_(ViewOf(bytes)) {}
  // For an integer above INT64_MAX exceeds_int64() is true; tables and conditions refuse it.
  template <Integer T>
  constexpr Value(T number)  // NOLINT
      : kind_(Kind::kInt), int_(static_cast<std::int64_t>(number)) {
    if (number > T{0} && int_ < 0) {
      kind_ = Kind::kDouble;
      double_ = std::numeric_limits<double>::quiet_NaN();
      note_ = Note::kExceedsInt64;
    }
  }
  template <class T>
  requires(std::same_as<T, double> || std::same_as<T, float>) constexpr Value(T number)  // NOLINT
      : kind_(Kind::kDouble), double_(number) {}
  template <std::same_as<bool> T>
  constexpr Value(T truth) : kind_(Kind::kBool), int_(truth ? 1 : 0) {}  // NOLINT
  // The value in an optional; null if it is empty.
  template <class T>
  requires std::convertible_to<const T&, Value>
  constexpr Value(const std::optional<T>& value ABSL_ATTRIBUTE_LIFETIME_BOUND)  // NOLINT
      : Value(value ? Value(*value) : Value()) {}

  // A text of unknown type, such as a field of CSV or of a network request. A table stores it as a
  // text, with one exception: in a column without a type, a text that is exactly how hako writes a
  // number ("36", "-0.5", "1e+20", but neither "007" nor "1.50") is stored as that number. So no
  // byte is lost.
  static constexpr Value Untyped(StringArg text ABSL_ATTRIBUTE_LIFETIME_BOUND) {
    Value value(text);
    value.note_ = Note::kUntyped;
    return value;
  }

  // The kind of the value, and whether it is null.
  constexpr Kind kind() const { return kind_; }
  constexpr bool is_null() const { return kind_ == Kind::kNull; }
  constexpr bool is_untyped() const { return note_ == Note::kUntyped; }
  constexpr bool exceeds_int64() const { return note_ == Note::kExceedsInt64; }
  // REQUIRES: the value is of this kind
  constexpr std::string_view bytes() const {
    HAKO_DCHECK(kind_ == Kind::kBytes);
    return bytes_;
  }
  constexpr std::int64_t int_value() const {
    HAKO_DCHECK(kind_ == Kind::kInt);
    return int_;
  }
  constexpr double double_value() const {
    HAKO_DCHECK(kind_ == Kind::kDouble);
    return double_;
  }
  constexpr bool bool_value() const {
    HAKO_DCHECK(kind_ == Kind::kBool);
    return int_ != 0;
  }
  // Returns the same value with `copy` in place of its bytes, if it has any.
  constexpr Value WithBytes(std::string_view copy) const {
    Value value = *this;
    if (kind_ == Kind::kBytes) value.bytes_ = copy;
    return value;
  }

  // Returns the text of the value (see the head of this header), as a view of the bytes or of
  // *buffer.
  std::string_view Text(std::string* buffer) const;
  std::string ToText() const;

  // The order: see the head of this header. NaN is below all other numbers.
  friend std::weak_ordering operator<=>(const Value& a, const Value& b) { return Compare(a, b); }
  friend bool operator==(const Value& a, const Value& b) {
    if (a.kind_ == Kind::kBytes && b.kind_ == Kind::kBytes) return a.bytes_ == b.bytes_;
    return std::is_eq(Compare(a, b));
  }

 private:
  enum class Note : std::uint8_t { kNone, kUntyped, kExceedsInt64 };

  static std::string_view ViewOf(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  static std::weak_ordering Compare(const Value& a, const Value& b);

  Kind kind_ = Kind::kNull;
  Note note_ = Note::kNone;
  union {
    std::int64_t int_ = 0;
    double double_;
  };
  std::string_view bytes_;
};

// A value with its own bytes. Everything that converts to Value converts to it.
class OwnedValue {
 public:
  // Null.
  OwnedValue() = default;
  template <class T>
  requires(!std::same_as<T, OwnedValue> && std::convertible_to<const T&, Value>) OwnedValue(const T& value)  // NOLINT
      : value_(value) {
    if (value_.kind() == Value::Kind::kBytes) bytes_ = value_.bytes();
  }

  // Returns a view of the value, which is valid as long as this object is unchanged.
  Value get() const { return value_.WithBytes(bytes_); }

  friend std::weak_ordering operator<=>(const OwnedValue& a, const OwnedValue& b) { return a.get() <=> b.get(); }
  friend bool operator==(const OwnedValue& a, const OwnedValue& b) { return a.get() == b.get(); }

 private:
  Value value_;
  std::string bytes_;
};

// A column's name and its value, as views.
struct Cell {
  StringArg column;  // the name
  Value value;       // null removes the column
};

namespace table {

// A number in a form that orders int64 and double together: the nearest double and, for integers
// beyond 2^53, the distance of the integer above it.
struct Number {
  double nearest = 0;      // never NaN; 0 is positive
  std::int16_t above = 0;  // how far an int64 that is no double is above `nearest`

  friend bool operator==(const Number&, const Number&) = default;
  friend std::partial_ordering operator<=>(const Number& a, const Number& b) {
    if (a.nearest != b.nearest) return a.nearest <=> b.nearest;
    return a.above <=> b.above;
  }
};

// Returns the number of a value that is a number or a bool; nullopt for NaN and other values.
std::optional<Number> NumberOf(const Value& value);
// Parses a decimal text: returns an int64 if it is one, else a double; nullopt if it is not a
// number.
std::optional<Value> ParseDecimal(std::string_view text);
// Whether `number` is a double that was parsed from this integer and differs from it.
bool IsRounded(std::string_view integer, const Value& number);
// NumericOf is the cast `numeric` (see the head of this header). StoredOf is what a column without
// a type stores (see Value::Untyped).
Value NumericOf(const Value& value);
Value StoredOf(const Value& value);
// Whether `value` represents an equal one in groups, min and max, so that the order of rows does
// not matter.
bool StandsFor(const Value& value, const Value& equal);

}  // namespace table
}  // namespace hako
