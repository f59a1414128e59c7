// Comparators: the order of keys in a tree. The comparator is a template parameter, so that
// comparisons inline. The orders of Tkrzw's trees are included.
//
// A Comparator is a type with
//   kName                     the name of the order, which the file stores; Open refuses a file
//                             with another name
//   Compare(a, b)             < 0, 0 or > 0; a total order. Keys that compare equal are one key.
//                             A record keeps the first spelling of its key: Set, Rekey to an equal
//                             key and all other updates keep it. To change it, remove the record
//                             and store it again; one batch can do both. An expired record is
//                             absent, so the next Set chooses the spelling again.
// and, for speed, one of
//   kBytewise = true          the order is that of memcmp, with a prefix before its extensions:
//                             pages then share common prefixes
//   Head(key) -> uint32_t     a prefix word that never falls as keys rise: Compare(a, b) <= 0
//                             implies Head(a) <= Head(b). A search compares keys in full only if
//                             their words are equal.
// Without either, every comparison of a search calls Compare. All are static, thread-safe, and
// accept any bytes as a key.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/endian.h"
#include "hako/base/varint.h"

namespace hako {

// The concept: see the head of this header.
template <class C>
concept Comparator = requires(std::string_view key) {
  { C::kName } -> std::convertible_to<std::string_view>;
  { C::Compare(key, key) } -> std::same_as<int>;
};
// A comparator with kBytewise.
template <class C>
concept BytewiseOrder = Comparator<C> && requires {
  requires bool{C::kBytewise};
};

// The order of memcmp, with a prefix before its extensions: the default.
struct BytewiseComparator {
  // See Comparator.
  static constexpr std::string_view kName = "bytewise";
  static constexpr bool kBytewise = true;
  static int Compare(std::string_view a, std::string_view b) { return a.compare(b); }
};

namespace internal {

// Returns the first four bytes as a big-endian number, zero-padded.
template <class Byte>
std::uint32_t FirstFour(std::string_view key, Byte byte) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word = word << 8 | (i < key.size() ? byte(static_cast<unsigned char>(key[i])) : 0u);
  return word;
}

// Returns a word that never falls as the number rises. NaNs equal each other and sort before all
// numbers.
inline std::uint32_t HeadOfNumber(double number) {
  if (std::isnan(number)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(number) + 0.0f);  // turns -0 into 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

template <class Number>
int CompareNumbers(Number a, Number b) {
  if constexpr (std::floating_point<Number>) {
    if (std::isnan(a) || std::isnan(b)) return int{std::isnan(b)} - int{std::isnan(a)};
  }
  return a < b ? -1 : a > b ? 1 : 0;
}

// Compares numbers first. Keys that spell the same number differently ("7", "07") are different
// keys, in bytewise order.
template <class Form>
struct NumericComparator {
  static int Compare(std::string_view a, std::string_view b) {
    const int order = CompareNumbers(Form::Parse(a), Form::Parse(b));
    return order != 0 ? order : a.compare(b);
  }
  static std::uint32_t Head(std::string_view key) { return HeadOfNumber(static_cast<double>(Form::Parse(key))); }
};

inline std::string_view WithoutSpaceAndPlus(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || (text.front() >= '\t' && text.front() <= '\r'))) text.remove_prefix(1);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

struct DecimalForm {
  static std::int64_t Parse(std::string_view key) {
    key = WithoutSpaceAndPlus(key);
    std::int64_t number = 0;
    const auto result = std::from_chars(key.data(), key.data() + key.size(), number);
    if (result.ec != std::errc::result_out_of_range) return number;
    return key.front() == '-' ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
  }
};

struct HexadecimalForm {
  static std::uint64_t Parse(std::string_view key) {
    key = WithoutSpaceAndPlus(key);
    if (key.size() > 2 && key[0] == '0' && (key[1] == 'x' || key[1] == 'X')) key.remove_prefix(2);
    std::uint64_t number = 0;
    const auto result = std::from_chars(key.data(), key.data() + key.size(), number, 16);
    return result.ec == std::errc::result_out_of_range ? std::numeric_limits<std::uint64_t>::max() : number;
  }
};

struct RealForm {
  static double Parse(std::string_view key) {
    key = WithoutSpaceAndPlus(key);
    double number = 0;
    const auto result = std::from_chars(key.data(), key.data() + key.size(), number);
    if (result.ec != std::errc::result_out_of_range) return number;
    // The number is too large or too small for a double: the sign of its exponent decides.
    const std::string_view matched(key.data(), static_cast<std::size_t>(result.ptr - key.data()));
    const double size = matched.find("e-") != matched.npos || matched.find("E-") != matched.npos ? 0 : HUGE_VAL;
    return key.front() == '-' ? -size : size;
  }
};

// The first 8 bytes of the key as a big-endian number.
inline std::uint64_t BigEndianNumber(std::string_view key) {
  std::uint64_t number = 0;
  for (const char c : key.substr(0, 8)) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

struct SignedBigEndianForm {
  static std::int64_t Parse(std::string_view key) {
    const std::size_t size = std::min<std::size_t>(key.size(), 8);
    if (size == 0) return 0;
    const auto shift = static_cast<unsigned>(64 - 8 * size);  // the first bit is the sign of a shorter number too
    return static_cast<std::int64_t>(BigEndianNumber(key) << shift) >> shift;
  }
};

struct FloatBigEndianForm {
  static double Parse(std::string_view key) {
    if (key.size() == 4) return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(BigEndianNumber(key))));
    return key.size() == 8 ? std::bit_cast<double>(BigEndianNumber(key)) : 0;
  }
};

// Concatenates "pair-" and the names of the parts.
template <class... Parts>
constexpr auto kPairName = [] {
  constexpr std::string_view kPair = "pair-";
  std::array<char, (kPair.size() + ... + Parts::kName.size())> name{};
  char* end = std::ranges::copy(kPair, name.data()).out;
  ((end = std::ranges::copy(Parts::kName, end).out), ...);
  return name;
}();

}  // namespace internal

// Treats A to Z as a to z, and all other bytes as they are: keys that differ only in the case of
// ASCII letters are one key.
struct CaseInsensitiveComparator {
  // See Comparator.
  static constexpr std::string_view kName = "case-insensitive";
  static int Compare(std::string_view a, std::string_view b) {
    const std::size_t size = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < size; ++i) {
      const unsigned x = Fold(static_cast<unsigned char>(a[i])), y = Fold(static_cast<unsigned char>(b[i]));
      if (x != y) return x < y ? -1 : 1;
    }
    return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
  }
  // See Comparator.
  static std::uint32_t Head(std::string_view key) { return internal::FirstFour(key, Fold); }

 private:
  static unsigned Fold(unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32u : c; }
};

// Decimal integers: white space, a sign, digits. Keys with the same number are in bytewise order. A
// key without a number counts as 0; a number out of range counts as the nearest one in range.
struct DecimalComparator : internal::NumericComparator<internal::DecimalForm> {
  static constexpr std::string_view kName = "decimal";  // see Comparator
};
// Hexadecimal integers, without a sign, with or without 0x.
struct HexadecimalComparator : internal::NumericComparator<internal::HexadecimalForm> {
  static constexpr std::string_view kName = "hexadecimal";  // see Comparator
};
// Decimal fractions with or without an exponent; "nan" is before all numbers.
struct RealNumberComparator : internal::NumericComparator<internal::RealForm> {
  static constexpr std::string_view kName = "real";  // see Comparator
};
// Two's complement numbers of up to 8 bytes, most significant first.
struct SignedBigEndianComparator : internal::NumericComparator<internal::SignedBigEndianForm> {
  static constexpr std::string_view kName = "signed-big-endian";  // see Comparator
};
// IEEE 754 numbers of 4 or 8 bytes, most significant first.
struct FloatBigEndianComparator : internal::NumericComparator<internal::FloatBigEndianForm> {
  static constexpr std::string_view kName = "float-big-endian";  // see Comparator
};

// A key of two parts: [size of the first, varint][first][second].
inline std::string JoinPair(std::string_view first, std::string_view second) {
  std::byte size[kVarint64SizeMax];
  const std::size_t n = EncodeVarint(first.size(), std::span(size));
  std::string key(reinterpret_cast<const char*>(size), n);
  return key.append(first).append(second);
}
// Splits a key of JoinPair. A key in another format is a first part, with an empty second one.
inline std::pair<std::string_view, std::string_view> SplitPair(std::string_view key) {
  std::uint64_t size = 0;
  const std::size_t n = DecodeVarint(std::span(reinterpret_cast<const std::byte*>(key.data()), key.size()), size);
  if (n == 0 || size > key.size() - n) return {key, {}};
  return {key.substr(n, static_cast<std::size_t>(size)), key.substr(n + static_cast<std::size_t>(size))};
}

// Keys of JoinPair: by first part in the order of First, then by second part bytewise.
template <Comparator First>
struct PairComparator {
  // See Comparator.
  static constexpr std::string_view kName{internal::kPairName<First>.data(), internal::kPairName<First>.size()};
  static int Compare(std::string_view a, std::string_view b) {
    const auto x = SplitPair(a), y = SplitPair(b);
    if (const int order = First::Compare(x.first, y.first); order != 0) return order;
    return x.second.compare(y.second);
  }
  // See Comparator.
  static std::uint32_t Head(std::string_view key) {
    const std::string_view first = SplitPair(key).first;
    if constexpr (BytewiseOrder<First>)
      return internal::FirstFour(first, [](unsigned char c) { return unsigned{c}; });
    else if constexpr (requires { First::Head(first); })
      return First::Head(first);
    else
      return 0;
  }
};

}  // namespace hako
