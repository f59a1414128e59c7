// The number of crash states that the tests draw, and a report of those compared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace hako {

// How many states a test draws: HAKO_CRASH_STATES, or `usual`.
inline std::uint64_t CrashStates(std::uint64_t usual) {
  const char* given = std::getenv("HAKO_CRASH_STATES");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : usual;
}

// To be called once at the end of a test: prints the number of states compared, and records it in
// the test's results, which .ci/run sums up.
inline void ReportCrashStates(std::uint64_t compared) {
  std::printf("%llu crash states compared\n", static_cast<unsigned long long>(compared));
  testing::Test::RecordProperty("crash_states", std::to_string(compared));
}

}  // namespace hako
