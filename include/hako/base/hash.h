// XXH3 (libxxhash): hako's only hash, for keys and for checks. Stable since xxHash 0.8.0 and pinned
// by a golden test, because its results are stored in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hako/base/inline.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace hako {

// Returns XXH3_64bits_withSeed of more than 128 bytes. Compiled in the library, which uses AVX2
// where the processor has it.
std::uint64_t HashLong(const void* data, std::size_t size, std::uint64_t seed);

[[gnu::noinline, gnu::flatten]] inline std::uint64_t HashMedium(const void* data, std::size_t size, std::uint64_t seed) {
  return XXH3_len_17to128_64b(static_cast<const std::uint8_t*>(data), size, XXH3_kSecret, sizeof(XXH3_kSecret), seed);
}

// Returns XXH3_64bits_withSeed. The form for up to 16 bytes inlines, which saves a call for most
// keys.
HAKO_INLINE std::uint64_t Hash64(const void* data, std::size_t size, std::uint64_t seed) {
  if (size > 16) return size <= 128 ? HashMedium(data, size, seed) : HashLong(data, size, seed);
  return XXH3_len_0to16_64b(static_cast<const std::uint8_t*>(data), size, XXH3_kSecret, seed);
}
HAKO_INLINE std::uint64_t Hash64(std::string_view bytes, std::uint64_t seed) { return Hash64(bytes.data(), bytes.size(), seed); }

// Spreads a few bits over all 64 (splitmix64's finalizer). For seeds, not for keys.
inline constexpr std::uint64_t MixBits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace hako
