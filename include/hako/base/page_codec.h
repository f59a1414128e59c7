// How a TreeDBM makes its pages smaller on their way to the file: a template parameter.
//
// A codec is a type with
//   kName                  stored by the file, which is refused under another
//   Compress(in, out)      writes `in` to `out` in fewer bytes; how many, or 0 if they would not be fewer than out.size()
//   Decompress(in, out)    fills `out`, to the last byte, with what Compress made of it; false if that is not what `in` is
// Both are called by several threads at once, and take any bytes whatever.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

namespace hako {

template <class C>
concept PageCodec = requires(std::span<const char> in, std::span<char> out) {
  { C::kName } -> std::convertible_to<std::string_view>;
  { C::Compress(in, out) } -> std::same_as<std::size_t>;
  { C::Decompress(in, out) } -> std::same_as<bool>;
};

// Leaves pages as they are.
struct NoCodec {
  static constexpr std::string_view kName = "none";
  static std::size_t Compress(std::span<const char>, std::span<char>) { return 0; }
  static bool Decompress(std::span<const char>, std::span<char>) { return false; }
};

}  // namespace hako
