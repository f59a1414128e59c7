// StringArg: a string as an argument: a std::string_view that is never made of a null pointer or a number.
//
// The literals 0 and nullptr convert to std::string_view as a null pointer, and reading the view
// crashes. StringArg refuses them, and accepts std::string, std::string_view, and C strings:
// pointers to and arrays of characters, up to their first zero byte. {} is the empty string, {data,
// size} any bytes. A StringArg is passed in the same registers as a std::string_view, so it costs
// nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "hako/base/language.h"

namespace hako {

class StringArg : public std::string_view {
 public:
  constexpr StringArg() = default;
  constexpr StringArg(const char* data, std::size_t size) : std::string_view(data, size) {}
  // Implicit, like the conversions to std::string_view.
  template <class T>
  requires(std::convertible_to<const T&, std::string_view> && !std::is_null_pointer_v<T>) constexpr StringArg(const T& text)  // NOLINT
      : std::string_view(text) {}
};

}  // namespace hako
