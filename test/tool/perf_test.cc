// hako perf sequence: every line it prints, matched; the data it generates; its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_dir.h"
#include "tool_runner.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

// Twenty lines of `dots` dots each, with the count after each.
std::vector<std::string> DotLines(int dots, int step) {
  std::vector<std::string> lines;
  for (int i = 1; i <= 20; ++i) {
    char count[16];
    std::snprintf(count, sizeof(count), "(%08d)", i * step);
    lines.push_back(std::string(static_cast<std::size_t>(dots), '.') + " " + count);
  }
  return lines;
}

// Takes lines off the front of an output and matches them.
class Output {
 public:
  explicit Output(std::string_view text) : lines_(SplitLines(text)) {}
  void ExpectLine(const std::string& regex) {
    ASSERT_LT(next_, lines_.size()) << "instead of " << regex;
    EXPECT_THAT(lines_[next_++], MatchesRegex(regex));
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

struct Expectation {
  std::string impl;
  std::string size = "8", threads = "1";
  bool is_in_file = false, validates = false;
  std::vector<std::string> dots;
  std::string num_iterations;
};

void ExpectPhase(Output& output, const Expectation& want, const std::string& phase, const std::string& num_records) {
  const bool is_update = phase == "Setting" || phase == "Removing";
  output.ExpectLine(phase + ": impl=" + want.impl + " num_iterations=" + want.num_iterations + " value_size=" + want.size +
                    " num_threads=" + want.threads);
  output.ExpectLines(want.dots);
  if (is_update) output.ExpectLine("Synchronizing: \\.\\.\\. done \\(elapsed=[0-9]+\\.[0-9]{6}\\)");
  if (is_update && want.validates) output.ExpectLine("Validating records: \\.\\.\\. done \\(elapsed=[0-9]+\\.[0-9]{6}\\)");
  output.ExpectLine(phase + " done: elapsed_time=[0-9]+\\.[0-9]{6} num_records=" + num_records + " qps=[0-9]+ mem=-?[0-9]+");
  if (want.is_in_file) output.ExpectLine("  file_size=[0-9]+ eff_data_size=[0-9]+ efficiency=[0-9]+\\.[0-9]{2}%");
  output.ExpectLine("  num_buckets=[0-9]+ load_factor=[0-9]+\\.[0-9]{2}");
  output.ExpectLine("");
}

TEST(Perf, TinyPrintsFourPhases) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--iter", "10k"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  Output output(result.out);
  const Expectation want = {.impl = "tiny", .dots = DotLines(50, 500), .num_iterations = "10000"};
  for (const char* phase : {"Setting", "Getting", "Iterating"}) ExpectPhase(output, want, phase, "10000");
  ExpectPhase(output, want, "Removing", "0");
  output.ExpectEnd();
}

TEST(Perf, HashPrintsItsFile) {
  TempDir dir;
  const std::string path = dir.File("p.hkh");
  const ToolResult result = RunTool({"perf", "sequence", "--path", path, "--iter", "1000", "--threads", "3", "--size", "20", "--validate",
                                     "--random_key", "--random_value", "--get_copy", "--sync_hard", "--copy", dir.File("copy.hkh")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  Output output(result.out);
  const Expectation want = {.impl = "auto",
                            .size = "20",
                            .threads = "3",
                            .is_in_file = true,
                            .validates = true,
                            .dots = DotLines(50, 50),
                            .num_iterations = "1000"};
  // 3000 keys drawn from 3000 by a generator with a fixed seed: about 1 - 1/e of them are different.
  for (const char* phase : {"Setting", "Getting", "Iterating"}) ExpectPhase(output, want, phase, "1[89][0-9]{2}");
  ExpectPhase(output, want, "Removing", "0");
  output.ExpectEnd();
  EXPECT_THAT(RunTool({"verify", dir.File("copy.hkh")}).out, MatchesRegex(".*: ok, 1[89][0-9]{2} records\n"));
  EXPECT_EQ(RunTool({"verify", path}).exit_code, 0);
}

TEST(Perf, EfficiencyIsDataByFileSize) {
  TempDir dir;
  const auto line = RunTool({"perf", "sequence", "--path", dir.File("p.hkh"), "--iter", "5k", "--set_only", "--json"}).out;
  const auto report = nlohmann::json::parse(line);
  EXPECT_EQ(report.at("eff_data_size"), 5000 * 16);
  EXPECT_GT(report.at("file_size"), 5000 * 16);
}

TEST(Perf, DotsOfOddCounts) {
  const auto dots = [](const char* iterations) {
    std::vector<std::pair<std::size_t, std::string>> lines;
    for (const std::string& line : SplitLines(RunTool({"perf", "sequence", "--dbm", "tiny", "--set_only", "--iter", iterations}).out)) {
      if (line.starts_with('.')) lines.emplace_back(line.find(' '), line.substr(line.find('(')));
    }
    return lines;
  };
  EXPECT_THAT(dots("7"), SizeIs(7));
  EXPECT_EQ(dots("7").back(), std::make_pair(std::size_t{1}, std::string("(00000007)")));
  EXPECT_THAT(dots("1050"), SizeIs(21));
  EXPECT_EQ(dots("1050").front(), std::make_pair(std::size_t{52}, std::string("(00000052)")));
  EXPECT_EQ(dots("1050").back(), std::make_pair(std::size_t{10}, std::string("(00001050)")));
  EXPECT_THAT(dots("2100"), SizeIs(10)) << "a dot for 2, a count for 105: they meet at 210";
  EXPECT_EQ(dots("2100").front(), std::make_pair(std::size_t{105}, std::string("(00000210)")));
  EXPECT_THAT(dots("100001"), SizeIs(20)) << "the odd one is behind the last dot";
}

TEST(Perf, GeneratesTheSameRecordsAsTheToolItFollows) {
  TempDir dir;
  const std::string path = dir.File("p.hkh");
  const auto records = [&path](std::vector<std::string> flags) {
    std::vector<std::string> command = {"perf", "sequence", "--path", path, "--set_only"};
    command.insert(command.end(), flags.begin(), flags.end());
    EXPECT_EQ(RunTool(command).exit_code, 0);
    return SplitLines(RunTool({"list", path}).out);
  };
  EXPECT_THAT(records({"--iter", "3", "--threads", "2"}),
              testing::UnorderedElementsAre("00000000\tabcdefgh", "00000001\tbcdefghi", "00000002\tcdefghij", "00000003\tdefghiak",
                                            "00000004\tghijbldn", "00000005\thiakcmeo"));
  // One thread: where two set the same random key, the later one wins.
  EXPECT_THAT(records({"--iter", "8", "--random_key", "--random_value", "--random_seed", "5"}),
              testing::UnorderedElementsAre("00000000\t", "00000001\tcvex", "00000002\td", "00000006\tdnfph", "00000007\tcfehgjil"));
}

TEST(Perf, JsonIsOneObjectAPhase) {
  const std::vector<std::string> lines = SplitLines(RunTool({"perf", "sequence", "--dbm", "tiny", "--json", "--get_copy"}).out);
  ASSERT_THAT(lines, SizeIs(4));
  std::vector<std::string> phases;
  for (const std::string& line : lines) {
    const auto report = nlohmann::json::parse(line);
    phases.push_back(report.at("phase"));
    EXPECT_EQ(report.at("impl"), "tiny");
    EXPECT_EQ(report.at("num_iterations"), 10000);
    EXPECT_GT(report.at("qps"), 0);
    EXPECT_EQ(report.at("ok"), true);
  }
  EXPECT_THAT(phases, ElementsAre("Setting", "Getting", "Iterating", "Removing"));
  EXPECT_EQ(nlohmann::json::parse(lines[1]).at("values_copied"), true);
}

TEST(Perf, AnAbsentKeyStopsAllPhases) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--get_only", "--iter_only", "--iter", "100"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "Get failed: NOT_FOUND_ERROR\n");
  Output output(result.out);
  const Expectation want = {.impl = "tiny", .dots = {}, .num_iterations = "100"};
  ExpectPhase(output, want, "Getting", "0");
  ExpectPhase(output, want, "Iterating", "0");
  output.ExpectEnd();
}

TEST(Perf, KeysFromEntropyMayBeAbsent) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--random_key", "--random_seed", "-1", "--iter", "1000"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Perf, TinyKeepsItsRecordsInPath) {
  TempDir dir;
  const std::string path = dir.File("tiny.snapshot");
  ASSERT_EQ(RunTool({"perf", "sequence", "--dbm", "tiny", "--path", path, "--set_only", "--iter", "500"}).exit_code, 0);
  const ToolResult got = RunTool({"perf", "sequence", "--dbm", "tiny", "--path", path, "--get_only", "--iter", "500"});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_THAT(got.out, HasSubstr("num_records=500 "));
}

TEST(Perf, OptionsWithoutMeaningAreTakenWithANote) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--iter", "1", "--set_only", "--direct_io", "--block_size", "512",
                                     "--cache_buckets", "--no_wait", "--ulog", "x", "--verbose"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* name : {"--direct_io", "--block_size", "--cache_buckets", "--no_wait", "--ulog", "--verbose"})
    EXPECT_THAT(result.err, HasSubstr(std::string("hako perf sequence: ") + name + " has no meaning here\n"));
  EXPECT_THAT(RunTool({"perf", "sequence", "--dbm", "tiny", "--iter", "1", "--directio"}).err, HasSubstr("did you mean '--direct_io'?"));
}

TEST(Perf, AFileThatCannotBeOpenedEndsWithThree) {
  EXPECT_EQ(RunTool({"perf", "sequence", "--path", "/no/such/folder/p.hkh"}).exit_code, 3);
  TempDir dir;
  const ToolResult result = RunTool({"perf", "sequence", "--path", dir.File("p.hkh"), "--get_only"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace hako
