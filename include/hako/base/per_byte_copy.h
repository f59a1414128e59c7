// memcpy from and to bytes that other threads may write concurrently: P1478's
// atomic_load_per_byte_memcpy and atomic_store_per_byte_memcpy. Each byte is read or written
// atomically (relaxed), but the copy as a whole is not: a reader that overlaps a writer gets a mix
// of old and new bytes, and must detect that by other means.
//
// In C++ a plain copy would be a data race. Every instruction that compilers emit for memcpy is
// atomic per byte on known hardware, so these functions are memcpy. A build with the thread
// sanitizer uses loops of real byte atomics, so that the sanitizer needs no suppression. Such a
// build defines HAKO_TSAN.
#pragma once

#include <cstddef>
#include <cstring>

#include "hako/base/language.h"

#if defined(__SANITIZE_THREAD__)
#define HAKO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAKO_TSAN 1
#endif
#endif

namespace hako {

inline void LoadPerByte(void* to, const void* shared, std::size_t size) {
#ifdef HAKO_TSAN
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(shared);
  for (std::size_t i = 0; i < size; ++i) out[i] = __atomic_load_n(in + i, __ATOMIC_RELAXED);
#else
  if (size != 0) std::memcpy(to, shared, size);
#endif
}

inline void StorePerByte(void* shared, const void* from, std::size_t size) {
#ifdef HAKO_TSAN
  auto* out = static_cast<char*>(shared);
  const auto* in = static_cast<const char*>(from);
  for (std::size_t i = 0; i < size; ++i) __atomic_store_n(out + i, in[i], __ATOMIC_RELAXED);
#else
  if (size != 0) std::memcpy(shared, from, size);
#endif
}

}  // namespace hako
