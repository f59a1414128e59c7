// Page codecs: compress the pages of a TreeDBM in its file, as a template parameter.
//
// A codec is a type with
//   kName                  the codec's name, which the file stores; Open refuses a file with another
//                          name
//   Compress(in, out)      writes a compressed form of `in` to `out` and returns its size, or 0 if
//                          the size is not less than out.size()
//   Decompress(in, out)    fills all of `out` with the original of `in`; false if `in` does not
//                          decompress to exactly out.size() bytes
// Both are called by several threads concurrently, and must accept any bytes.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include "hako/base/language.h"

namespace hako {

// The concept: see the head of this header.
template <class C>
concept PageCodec = requires(std::span<const char> in, std::span<char> out) {
  { C::kName } -> std::convertible_to<std::string_view>;
  { C::Compress(in, out) } -> std::same_as<std::size_t>;
  { C::Decompress(in, out) } -> std::same_as<bool>;
};

// Stores pages uncompressed.
struct NoCodec {
  // See PageCodec.
  static constexpr std::string_view kName = "none";
  static std::size_t Compress(std::span<const char>, std::span<char>) { return 0; }
  static bool Decompress(std::span<const char>, std::span<char>) { return false; }
};

}  // namespace hako
