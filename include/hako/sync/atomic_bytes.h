// Bytes that one thread may write while another reads them.
//
// An optimistic reader copies bytes that may change under it and afterwards asks a version whether the copy is whole. In C++ such a copy
// is a data race unless every access is atomic. These functions have the semantics of P1478's atomic_load_per_byte_memcpy and
// atomic_store_per_byte_memcpy: each byte is read or written atomically (relaxed), the whole is not. Every instruction that a compiler
// makes from memcpy has that property on the hardware we know, so they are memcpy with the compiler kept from reading twice. A
// thread-sanitized build makes them loops of real byte atomics instead, so that the sanitizer sees the truth and needs no suppression.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hako/base/inline.h"

#if defined(__SANITIZE_THREAD__)
#define HAKO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAKO_TSAN 1
#endif
#endif

namespace hako::sync {

// A copy whose short forms inline: two overlapping moves for up to 32 bytes.
HAKO_INLINE void CopyBytes(char* to, const char* from, std::size_t size) {
  if (size > 32) {
    std::memcpy(to, from, size);
  } else if (size >= 16) {
    std::uint64_t a[2], b[2];
    std::memcpy(a, from, 16);
    std::memcpy(b, from + size - 16, 16);
    std::memcpy(to, a, 16);
    std::memcpy(to + size - 16, b, 16);
  } else if (size >= 8) {
    std::uint64_t a, b;
    std::memcpy(&a, from, 8);
    std::memcpy(&b, from + size - 8, 8);
    std::memcpy(to, &a, 8);
    std::memcpy(to + size - 8, &b, 8);
  } else if (size >= 4) {
    std::uint32_t a, b;
    std::memcpy(&a, from, 4);
    std::memcpy(&b, from + size - 4, 4);
    std::memcpy(to, &a, 4);
    std::memcpy(to + size - 4, &b, 4);
  } else if (size > 0) {
    const char a = from[0], b = from[size / 2], c = from[size - 1];
    to[0] = a;
    to[size / 2] = b;
    to[size - 1] = c;
  }
}

HAKO_INLINE bool EqualBytes(const char* a, const char* b, std::size_t size) {
  const auto differ64 = [&](std::size_t at) {
    std::uint64_t x, y;
    std::memcpy(&x, a + at, 8);
    std::memcpy(&y, b + at, 8);
    return x ^ y;
  };
  const auto differ32 = [&](std::size_t at) {
    std::uint32_t x, y;
    std::memcpy(&x, a + at, 4);
    std::memcpy(&y, b + at, 4);
    return x ^ y;
  };
  if (size > 32) return std::memcmp(a, b, size) == 0;
  if (size > 16) return (differ64(0) | differ64(8) | differ64(size - 16) | differ64(size - 8)) == 0;
  if (size >= 8) return (differ64(0) | differ64(size - 8)) == 0;
  if (size >= 4) return (differ32(0) | differ32(size - 4)) == 0;
  return size == 0 || (a[0] == b[0] && a[size / 2] == b[size / 2] && a[size - 1] == b[size - 1]);
}

#ifdef HAKO_TSAN

inline char LoadByte(const char* shared) { return __atomic_load_n(shared, __ATOMIC_RELAXED); }

HAKO_INLINE void LoadShared(char* to, const char* shared, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) to[i] = LoadByte(shared + i);
}
HAKO_INLINE void StoreShared(char* shared, const char* from, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) __atomic_store_n(shared + i, from[i], __ATOMIC_RELAXED);
}
HAKO_INLINE bool EqualShared(const char* shared, const char* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (LoadByte(shared + i) != bytes[i]) return false;
  }
  return true;
}

#else

HAKO_INLINE void LoadShared(char* to, const char* shared, std::size_t size) { CopyBytes(to, shared, size); }
HAKO_INLINE void StoreShared(char* shared, const char* from, std::size_t size) { CopyBytes(shared, from, size); }
HAKO_INLINE bool EqualShared(const char* shared, const char* bytes, std::size_t size) { return EqualBytes(shared, bytes, size); }

#endif

// A header of a few bytes, nearly always of `Usual`.
template <std::size_t Usual>
void StoreSharedHeader(char* shared, const char* from, std::size_t size) {
  if (size == Usual) [[likely]]
    return StoreShared(shared, from, Usual);
  for (std::size_t i = 0; i < size; ++i) StoreShared(shared + i, from + i, 1);
}

// A little-endian word of shared bytes, read once.
HAKO_INLINE std::uint64_t LoadSharedWord(const char* shared) {
  std::uint64_t word;
  LoadShared(reinterpret_cast<char*>(&word), shared, sizeof(word));
  asm volatile("" : "+r"(word));  // no second read
  return word;
}

}  // namespace hako::sync
