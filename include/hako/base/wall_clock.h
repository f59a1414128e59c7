// The wall clock, for display. It may be set back, so nothing is ordered by it.
#pragma once

#include <chrono>
#include <cstdint>

namespace hako {

// Microseconds since 1970.
inline std::uint64_t WallClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace hako
