// The size of tests of promised figures: by default just large enough to find a mistake, with
// HAKO_TEST_FULL=1 in the environment as large as promised, which takes minutes.
#pragma once

#include <cstdlib>

namespace hako {

inline bool FullSize() {
  const char* const given = std::getenv("HAKO_TEST_FULL");
  return given != nullptr && *given == '1';
}

}  // namespace hako
