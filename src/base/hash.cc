#include "hako/base/hash.h"

#include "hako/base/hash_stream.h"

namespace hako {
namespace internal {

#if defined(__x86_64__) && !defined(__AVX2__)
// hash_avx2.cc. REQUIRES: the processor has AVX2 (unchecked: each caller in this file has asked for
// it)
std::uint64_t HashLongAvx2(const void* data, std::size_t size, std::uint64_t seed);
void AddToHashAvx2(void* state, const void* data, std::size_t size);
#endif

}  // namespace internal

[[gnu::flatten]] std::uint64_t HashLong(const void* data, std::size_t size, std::uint64_t seed) {
#if defined(__x86_64__) && !defined(__AVX2__)
  if (size > XXH3_MIDSIZE_MAX && __builtin_cpu_supports("avx2")) return internal::HashLongAvx2(data, size, seed);
#endif
  return XXH3_64bits_withSeed(data, size, seed);
}

[[gnu::flatten]] HashStream::HashStream(std::uint64_t seed) {
  XXH3_INITSTATE(&state_);
  (void)XXH3_64bits_reset_withSeed(&state_, seed);
}

[[gnu::flatten]] void HashStream::Add(const void* data, std::size_t size) {
#if defined(__x86_64__) && !defined(__AVX2__)
  if (size > XXH3_MIDSIZE_MAX && __builtin_cpu_supports("avx2")) return internal::AddToHashAvx2(&state_, data, size);
#endif
  (void)XXH3_64bits_update(&state_, data, size);
}

[[gnu::flatten]] std::uint64_t HashStream::Get() const { return XXH3_64bits_digest(&state_); }

}  // namespace hako
