// Copies of bytes that one thread may write while others read them.
//
// An optimistic reader copies bytes that may change meanwhile, and then checks a version to learn
// whether the copy is consistent. The copies have the semantics of base/per_byte_copy.h. These
// forms are for short runs of bytes: they inline, and keep the compiler from reading a byte twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hako/base/inline.h"
#include "hako/base/per_byte_copy.h"

namespace hako::sync {

// g++ 12 -O3 warns about the branches for longer copies where the size is a constant.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"

// A copy whose short forms, up to 128 bytes, inline as overlapping moves from both ends. (For a
// copy of a size known to be small, gcc would otherwise emit rep movs, which takes longer to start
// than the whole copy and stalls instructions in flight.)
HAKO_INLINE void CopyBytes(char* to, const char* from, std::size_t size) {
  using Block [[gnu::vector_size(16)]] = std::uint64_t;
  const auto load = [from](std::size_t at) {
    Block block;
    std::memcpy(&block, from + at, sizeof(block));
#if defined(__x86_64__)
    asm("" : "+x"(block));  // keeps gcc from joining two blocks, which would need an aligned stack
#endif
    return block;
  };
  const auto store = [to](std::size_t at, Block block) { std::memcpy(to + at, &block, sizeof(block)); };
  if (size > 128) {
    asm("" : "+r"(size));  // hide the known range of size
    std::memcpy(to, from, size);
  } else if (size > 32) {
    const std::size_t end = size - sizeof(Block);
    const Block first = load(0), second = load(16), third = load(end - 16), last = load(end);
    if (size > 64) {
      const Block a = load(32), b = load(48), c = load(end - 48), d = load(end - 32);
      store(32, a);
      store(48, b);
      store(end - 48, c);
      store(end - 32, d);
    }
    store(0, first);
    store(16, second);
    store(end - 16, third);
    store(end, last);
  } else if (size >= 16) {
    const Block first = load(0), last = load(size - 16);
    store(0, first);
    store(size - 16, last);
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

#pragma GCC diagnostic pop

HAKO_INLINE bool EqualBytes(const char* a, const char* b, std::size_t size) {
  const auto differ64 = [&](std::size_t at) __attribute__((always_inline)) {
    std::uint64_t x, y;
    std::memcpy(&x, a + at, 8);
    std::memcpy(&y, b + at, 8);
    return x ^ y;
  };
  const auto differ32 = [&](std::size_t at) __attribute__((always_inline)) {
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

HAKO_INLINE void LoadShared(char* to, const char* shared, std::size_t size) { LoadPerByte(to, shared, size); }
HAKO_INLINE void StoreShared(char* shared, const char* from, std::size_t size) { StorePerByte(shared, from, size); }
HAKO_INLINE bool EqualShared(const char* shared, const char* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (__atomic_load_n(shared + i, __ATOMIC_RELAXED) != bytes[i]) return false;
  }
  return true;
}
inline void MoveShared(char* to, const char* from, std::size_t size) {
  for (std::size_t n = 0; n < size; ++n) {
    const std::size_t i = to < from ? n : size - 1 - n;
    __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  }
}
inline const char* SharedOrCopy(const char*, const char* copy) { return copy; }

#else

HAKO_INLINE void LoadShared(char* to, const char* shared, std::size_t size) { CopyBytes(to, shared, size); }
HAKO_INLINE void StoreShared(char* shared, const char* from, std::size_t size) { CopyBytes(shared, from, size); }
HAKO_INLINE bool EqualShared(const char* shared, const char* bytes, std::size_t size) { return EqualBytes(shared, bytes, size); }
// Moves bytes within shared memory that only the caller writes. The ranges may overlap.
HAKO_INLINE void MoveShared(char* to, const char* from, std::size_t size) { std::memmove(to, from, size); }
// Returns where to reread bytes that were just copied from `shared`, for results that count only if
// the version still holds afterwards. Rereading the copy would be slow: the processor cannot
// forward its stores to loads that overlap them only in part, so these loads would wait until all
// earlier stores have retired.
HAKO_INLINE const char* SharedOrCopy(const char* shared, const char*) { return shared; }

#endif

// Stores a header of a few bytes, nearly always of `Usual` bytes.
template <std::size_t Usual>
HAKO_INLINE void StoreSharedHeader(char* shared, const char* from, std::size_t size) {
  if (size == Usual) [[likely]]
    return StoreShared(shared, from, Usual);
  for (std::size_t i = 0; i < size; ++i) StoreShared(shared + i, from + i, 1);
}

// Loads a little-endian word of shared bytes, exactly once.
HAKO_INLINE std::uint64_t LoadSharedWord(const char* shared) {
  std::uint64_t word;
  LoadShared(reinterpret_cast<char*>(&word), shared, sizeof(word));
  asm volatile("" : "+r"(word));  // keeps the compiler from reading twice
  return word;
}

}  // namespace hako::sync
