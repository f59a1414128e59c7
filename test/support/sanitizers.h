// HAKO_ASAN or HAKO_TSAN is defined if these tests are compiled with that sanitizer. Loops of
// random cases are then shorter, because all code is far slower; the next run draws other numbers.
// They are as short where HAKO_TEST_SMALL is defined, as in the preset `test`.
#pragma once

#include "hako/base/per_byte_copy.h"  // defines HAKO_TSAN

#if defined(__SANITIZE_ADDRESS__)
#define HAKO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAKO_ASAN 1
#endif
#endif

namespace hako {

#if defined(HAKO_TSAN)
inline constexpr int kSlowdown = 10;
#elif defined(HAKO_ASAN) || defined(HAKO_TEST_SMALL)
inline constexpr int kSlowdown = 8;
#else
inline constexpr int kSlowdown = 1;
#endif

#if defined(HAKO_TSAN) || defined(HAKO_ASAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace hako
