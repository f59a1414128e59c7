// Numbers as stored in files: little-endian, unaligned, on every machine.
//
// Le<T> is the field type of on-disk structs: sizeof(T) bytes, alignment 1, no padding. It converts
// to and from T implicitly, so that code reads as if the field were a T. On a little-endian machine
// each conversion is one move. A default-constructed Le is zero.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hako/base/language.h"

namespace hako {

// bool is excluded, because a byte of a file may be neither 0 nor 1; so is long double, which has
// padding.
template <class T>
concept LeValue = (std::integral<T> && !std::same_as<std::remove_cv_t<T>, bool>) || std::is_enum_v<T> || std::same_as<T, float> ||
                  std::same_as<T, double>;

template <LeValue T>
class Le {
 public:
  constexpr Le() = default;
  constexpr Le(T value) : bytes_(Flip(std::bit_cast<Array>(value))) {}  // NOLINT: implicit by design

  constexpr T get() const { return std::bit_cast<T>(Flip(bytes_)); }
  constexpr operator T() const { return get(); }  // NOLINT: implicit by design

 private:
  using Array = std::array<std::byte, sizeof(T)>;

  static constexpr Array Flip(Array bytes) {
    if constexpr (std::endian::native == std::endian::big) std::reverse(bytes.begin(), bytes.end());
    return bytes;
  }

  Array bytes_{};
};

// Load and store a number in plain memory.
// REQUIRES: sizeof(T) bytes (unchecked: a pointer has no size)
template <LeValue T>
T LoadLe(const std::byte* from) {
  Le<T> value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <LeValue T>
void StoreLe(std::byte* to, std::type_identity_t<T> value) {
  const Le<T> le = value;
  std::memcpy(to, &le, sizeof(le));
}

// A number as 8 big-endian bytes, whose bytewise order is that of the numbers: values of Increment,
// keys that are times.
inline std::uint64_t LoadBigEndian(const char* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof(value));
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}
inline void StoreBigEndian(std::uint64_t value, char* to) {
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace hako
