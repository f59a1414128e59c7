// The wall clock, for display. It may be set back, so nothing is ordered by it.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace hako {

// Microseconds since 1970.
inline std::uint64_t WallClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// The same, to within some milliseconds, at the cost of a few loads.
inline std::uint64_t CoarseWallClock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000;
}

}  // namespace hako
