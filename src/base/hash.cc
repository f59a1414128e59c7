#include "hako/base/hash.h"

namespace hako {
namespace internal {

#if defined(__x86_64__) && !defined(__AVX2__)
// hash_avx2.cc. REQUIRES: the processor has AVX2
std::uint64_t HashLongAvx2(const void* data, std::size_t size, std::uint64_t seed);
#endif

}  // namespace internal

[[gnu::flatten]] std::uint64_t HashLong(const void* data, std::size_t size, std::uint64_t seed) {
#if defined(__x86_64__) && !defined(__AVX2__)
  if (size > XXH3_MIDSIZE_MAX && __builtin_cpu_supports("avx2")) return internal::HashLongAvx2(data, size, seed);
#endif
  return XXH3_64bits_withSeed(data, size, seed);
}

}  // namespace hako
