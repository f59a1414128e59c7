// Checks of internal invariants. A failed check prints its place and condition and aborts, because
// continuing could write corrupt data.
//
// HAKO_ASSERT is active in every build and costs one predicted branch. HAKO_DCHECK is for the hot
// path: active in debug builds, such as those of the presets dev, asan, tsan and fuzz, and compiled
// but not evaluated if NDEBUG is defined. Neither is for bytes read from a file or for errors of a
// caller that a function can return; those are a Status.
//
// A comment that says REQUIRES states what a caller must ensure. The function checks it by
// HAKO_DCHECK or an Assert function of the lock; otherwise the comment says where it is checked,
// "(checked in NAME)", or why it is not, "(unchecked: REASON)". test/house/requirements_test.cmake
// enforces this.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "hako/base/language.h"

namespace hako {

[[noreturn, gnu::cold, gnu::noinline]] inline void AssertFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: hako: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace hako

#define HAKO_ASSERT(...)                                      \
  do {                                                        \
    if (!(__VA_ARGS__)) [[unlikely]]                          \
      ::hako::AssertFailed(__FILE__, __LINE__, #__VA_ARGS__); \
  } while (false)

#ifdef NDEBUG
#define HAKO_DCHECK(...) static_cast<void>(sizeof(static_cast<bool>(__VA_ARGS__)))
#else
#define HAKO_DCHECK(...) HAKO_ASSERT(__VA_ARGS__)
#endif
