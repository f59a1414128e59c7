// How often tests of crashes and failures are repeated, and a report of how often they were.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "support/sanitizers.h"

namespace hako {

// How many states a test draws at least: HAKO_CRASH_STATES, or `usual`, of which it is a part where
// loops are shorter.
inline std::uint64_t CrashStates(std::uint64_t usual) {
  const char* given = std::getenv("HAKO_CRASH_STATES");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : std::max<std::uint64_t>(usual / kSlowdown, 1);
}

// How many processes a test kills: HAKO_KILLS, or `usual` if that is more; of these a part, as above.
inline int Kills(int usual) {
  usual = std::max(usual / kSlowdown, 2);
  const char* given = std::getenv("HAKO_KILLS");
  return given != nullptr ? std::max(usual, std::atoi(given)) : usual;
}

// How many copies of a database a test makes beside writers: HAKO_COPIES, or `usual`.
inline int Copies(int usual) {
  const char* given = std::getenv("HAKO_COPIES");
  return given != nullptr ? std::atoi(given) : usual;
}

// Whether a test that is to kill `wanted` processes goes on: where something is still lacking, as on
// a slow or busy machine, it kills more, but not for ever.
inline bool KillsMore(int killed, int wanted, bool is_lacking) { return killed < wanted || (is_lacking && killed < 20 * wanted); }

// Prints a count, and records it in the results of the test that is running, which .ci/run sums up.
// The counts of several calls in one test are added.
inline void ReportCount(const char* property, const char* what, std::uint64_t count) {
  static std::map<std::pair<const testing::TestInfo*, std::string>, std::uint64_t> totals;
  const std::uint64_t total = totals[{testing::UnitTest::GetInstance()->current_test_info(), property}] += count;
  std::printf("%llu %s\n", static_cast<unsigned long long>(count), what);
  testing::Test::RecordProperty(property, std::to_string(total));
}

// To be called at the end of a test: the number of states of a crash that were compared with those
// allowed, of processes that were killed, of times that a call or an allocation was made to fail.
inline void ReportCrashStates(std::uint64_t count) { ReportCount("crash_states", "crash states compared", count); }
inline void ReportKills(std::uint64_t count) { ReportCount("kills", "processes killed", count); }
inline void ReportFailures(std::uint64_t count) { ReportCount("failures", "failures injected", count); }

}  // namespace hako
