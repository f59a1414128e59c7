// The clocks of the system. The wall clock may be set back, so hako never orders events by it
// alone.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

#include "hako/base/language.h"

namespace hako {

// Microseconds since 1970.
inline std::uint64_t WallClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// Milliseconds since 1970, as of the kernel's last tick, up to 10 ms ago. Costs a few loads.
inline std::uint64_t CoarseWallMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// Milliseconds of a clock that cannot be set and that also runs while the machine sleeps.
inline std::uint64_t SteadyMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// Microseconds since 1970: see CoarseWallMilliseconds.
inline std::uint64_t CoarseWallClock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000;
}

}  // namespace hako
