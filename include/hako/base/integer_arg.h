// IntegerArg: an integer as an argument. Floating-point numbers, which an argument of a built-in type would
// cut off, do not convert to it, nor do characters, bool and enumerations.
//
// A negative number converts to an unsigned one as usual: -1 becomes the largest. So a function
// that takes IntegerArg<std::uint64_t> refuses an argument that IsNegative where such a number
// would do harm.
#pragma once

#include <concepts>
#include <cstdint>

#include "hako/base/language.h"

namespace hako {

// A type of numbers, not of characters.
template <class T>
concept Integer = std::integral<T> && sizeof(T) <= sizeof(std::int64_t) && !std::same_as<T, bool> && !std::same_as<T, char> &&
                  !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

template <Integer Number>
class IntegerArg {
 public:
  // Implicit, like conversions of integers.
  template <Integer T>
  constexpr IntegerArg(T number) : number_(static_cast<Number>(number)) {}  // NOLINT
  constexpr operator Number() const { return number_; }                     // NOLINT
  // Whether the argument was negative, or an unsigned number above INT64_MAX.
  constexpr bool IsNegative() const { return static_cast<std::int64_t>(number_) < 0; }

 private:
  Number number_;
};

}  // namespace hako
