// Matches the lines that `hako perf` prints.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tool/tool_runner.h"

namespace hako {

// Twenty lines of `dots` dots each, with the count after each.
inline std::vector<std::string> DotLines(int dots, int step) {
  std::vector<std::string> lines;
  for (int i = 1; i <= 20; ++i) {
    char count[16];
    std::snprintf(count, sizeof(count), "(%08d)", i * step);
    lines.push_back(std::string(static_cast<std::size_t>(dots), '.') + " " + count);
  }
  return lines;
}

// Takes lines off the front of an output and matches them.
class PerfOutput {
 public:
  explicit PerfOutput(std::string_view text) : lines_(SplitLines(text)) {}
  void ExpectLine(const std::string& regex) {
    ASSERT_LT(next_, lines_.size()) << "instead of " << regex;
    EXPECT_THAT(lines_[next_++], testing::MatchesRegex(regex));
  }
  void ExpectLines(const std::vector<std::string>& expected) {
    for (const std::string& line : expected) {
      ASSERT_LT(next_, lines_.size());
      EXPECT_EQ(lines_[next_++], line);
    }
  }
  void ExpectEnd() { EXPECT_EQ(next_, lines_.size()) << lines_[next_]; }

 private:
  std::vector<std::string> lines_;
  std::size_t next_ = 0;
};

struct PerfPhase {
  std::string impl;
  std::string size = "8", threads = "1";
  bool is_in_file = false, validates = false, is_direct = false;
  std::vector<std::string> dots;
  std::string num_iterations;
};

inline void ExpectPhase(PerfOutput& output, const PerfPhase& want, const std::string& phase, const std::string& num_records) {
  const bool is_update = phase == "Setting" || phase == "Removing" || phase == "Doing";
  output.ExpectLine(phase + ": impl=" + want.impl + " num_iterations=" + want.num_iterations + " value_size=" + want.size +
                    " num_threads=" + want.threads);
  output.ExpectLines(want.dots);
  if (is_update) output.ExpectLine("Synchronizing: \\.\\.\\. done \\(elapsed=[0-9]+\\.[0-9]{6}\\)");
  if (is_update && want.validates) output.ExpectLine("Validating records: \\.\\.\\. done \\(elapsed=[0-9]+\\.[0-9]{6}\\)");
  output.ExpectLine((phase == "Doing" ? "Done" : phase + " done") + ": elapsed_time=[0-9]+\\.[0-9]{6} num_records=" + num_records +
                    " qps=[0-9]+ mem=-?[0-9]+");
  if (want.is_in_file) output.ExpectLine("  file_size=[0-9]+ eff_data_size=[0-9]+ efficiency=[0-9]+\\.[0-9]{2}%");
  output.ExpectLine("  num_buckets=[0-9]+ load_factor=[0-9]+\\.[0-9]{2}");
  if (want.is_direct) {
    output.ExpectLine(
        "  dev: reads=[0-9]+ writes=[0-9]+ read_bytes=[0-9]+ written_bytes=[0-9]+ second_reads=[0-9]+ "
        "reads_per_op=[0-9]+\\.[0-9]{3} writes_per_op=[0-9]+\\.[0-9]{3}");
  }
  output.ExpectLine("");
}

}  // namespace hako
