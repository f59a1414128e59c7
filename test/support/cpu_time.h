// The processor time of the calling thread, on which other load has little influence.
#pragma once

#include <time.h>

#include <cstdint>

namespace hako {

inline std::uint64_t CpuNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace hako
