// Unsigned numbers in as few bytes as needed (LEB128): seven bits per byte, low bits first, the top
// bit set on all but the last.
//
// Decoding accepts untrusted bytes. It never reads past the given end, and rejects a number that is
// truncated, too large for its type, or longer than necessary: a number has exactly one encoding,
// so equal numbers have equal bytes.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hako/base/language.h"

namespace hako {

inline constexpr std::size_t kVarint32SizeMax = 5;
inline constexpr std::size_t kVarint64SizeMax = 10;

constexpr std::size_t VarintSize(std::uint64_t value) { return (static_cast<std::size_t>(std::bit_width(value | 1)) + 6) / 7; }

// Returns the end of the encoding.
// REQUIRES: VarintSize(value) bytes at `out` (unchecked: a pointer has no size)
constexpr std::byte* EncodeVarint(std::uint64_t value, std::byte* out) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<std::byte>((value & 0x7f) | 0x80);
  *out++ = static_cast<std::byte>(value);
  return out;
}

// Returns the number of bytes written; 0 if `out` is too small.
constexpr std::size_t EncodeVarint(std::uint64_t value, std::span<std::byte> out) {
  const std::size_t size = VarintSize(value);
  if (size > out.size()) return 0;
  EncodeVarint(value, out.data());
  return size;
}

// Reads a number from [p, end). Returns the end of its encoding; nullptr if it is malformed, with
// `value` unchanged.
template <std::unsigned_integral T>
constexpr const std::byte* DecodeVarint(const std::byte* p, const std::byte* end, T& value) {
  constexpr int kBits = std::numeric_limits<T>::digits;
  T result = 0;
  for (int shift = 0; shift < kBits && p != end; shift += 7) {
    const auto byte = std::to_integer<unsigned>(*p++);
    const auto bits = static_cast<T>(byte & 0x7f);
    if (shift + 7 > kBits && (bits >> (kBits - shift)) != 0) return nullptr;  // bits beyond T
    result = static_cast<T>(result | static_cast<T>(bits << shift));
    if (byte < 0x80) {
      if (byte == 0 && shift != 0) return nullptr;  // longer than necessary
      value = result;
      return p;
    }
  }
  return nullptr;
}

// Returns the number of bytes read; 0 if the encoding is malformed, with `value` unchanged.
template <std::unsigned_integral T>
constexpr std::size_t DecodeVarint(std::span<const std::byte> in, T& value) {
  const std::byte* end = DecodeVarint(in.data(), in.data() + in.size(), value);
  return end == nullptr ? 0 : static_cast<std::size_t>(end - in.data());
}

}  // namespace hako
