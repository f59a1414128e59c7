// XXH3 by AVX2, for builds of the library that may not use it everywhere. Every function of this
// file is compiled for AVX2, so the file includes the standard headers before it switches to AVX2,
// and includes no header of hako.
#if defined(__x86_64__) && !defined(__AVX2__)

#include <immintrin.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_INLINE_ALL
#define XXH_VECTOR 2  // XXH_AVX2
#include <xxhash.h>

namespace hako::internal {

std::uint64_t HashLongAvx2(const void* data, std::size_t size, std::uint64_t seed);
[[gnu::flatten]] std::uint64_t HashLongAvx2(const void* data, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

// `state` is an XXH3_state_t, which is the same for all instruction sets.
void AddToHashAvx2(void* state, const void* data, std::size_t size);
[[gnu::flatten]] void AddToHashAvx2(void* state, const void* data, std::size_t size) {
  (void)XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

}  // namespace hako::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
