// hako perf sequence: every line it prints, matched; the data it generates; its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"
#include "tool/perf_output.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

TEST(Perf, PrintsFourPhases) {
  for (const std::string impl : {"tiny", "baby"}) {
    const ToolResult result = RunTool({"perf", "sequence", "--dbm", impl, "--iter", "10k"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    PerfOutput output(result.out);
    const PerfPhase want = {.impl = impl, .dots = DotLines(50, 500), .num_iterations = "10000"};
    for (const char* phase : {"Setting", "Getting", "Iterating"}) ExpectPhase(output, want, phase, "10000");
    ExpectPhase(output, want, "Removing", "0");
    output.ExpectEnd();
  }
}

TEST(Perf, MaxPageSizeLimitsPages) {
  TempDir dir;
  for (const std::string impl : {"baby", "tree"}) {
    const auto num_pages = [&](const std::string& size) {
      const std::vector<std::string> command = {"perf",         "sequence",   "--dbm",           impl, "--path",
                                                dir.File(impl), "--set_only", "--max_page_size", size, "--json"};
      return nlohmann::json::parse(RunTool(command).out).at("num_buckets").get<int>();
    };
    EXPECT_GT(num_pages("512"), 4 * num_pages("4096")) << impl;
  }
}

TEST(Perf, CacheAndCheckpointBytesTakeEffect) {
  TempDir dir;
  const std::string path = dir.File("p.hkt");
  const auto inspect = [&](const std::vector<std::string>& options, const char* name) {
    std::vector<std::string> command = {"perf", "sequence", "--path", path, "--set_only", "--iter", "60k", "--size", "200", "--json"};
    command.insert(command.end(), options.begin(), options.end());
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(nlohmann::json::parse(result.out).at("num_records"), 60000);
    return nlohmann::json::parse(RunTool({"inspect", path, "--json"}).out).at("stats").at(name).get<int>();
  };
  const int few = inspect({}, "epoch");
  EXPECT_GT(inspect({"--checkpoint_bytes", "64ki"}, "epoch"), few + 1);
  EXPECT_GT(inspect({"--cache_bytes", "1Mi"}, "epoch"), few + 1) << "a quarter of it causes a checkpoint too";
}

class PerfOnFile : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Endings, PerfOnFile, testing::Values(".hkh", ".hkt"));

TEST_P(PerfOnFile, ThreadsShareTheWork) {
  TempDir dir;
  const std::string path = dir.File("p" + GetParam()), copy = dir.File("copy" + GetParam());
  const ToolResult result = RunTool({"perf", "sequence", "--path", path, "--iter", "1000", "--threads", "3", "--size", "20", "--validate",
                                     "--random_key", "--random_value", "--get_copy", "--sync_hard", "--copy", copy});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  PerfOutput output(result.out);
  const PerfPhase want = {.impl = "auto",
                          .size = "20",
                          .threads = "3",
                          .is_in_file = true,
                          .validates = true,
                          .dots = DotLines(50, 50),
                          .num_iterations = "1000"};
  // 3000 keys drawn from 3000 by a generator with a fixed seed: about 1 - 1/e of them are
  // different.
  for (const char* phase : {"Setting", "Getting", "Iterating"}) ExpectPhase(output, want, phase, "1[89][0-9]{2}");
  ExpectPhase(output, want, "Removing", "0");
  output.ExpectEnd();
  EXPECT_THAT(RunTool({"verify", copy}).out, MatchesRegex(".*: ok, 1[89][0-9]{2} records\n"));
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

TEST(Perf, GeneratesTheSameRecordsAsTkrzw) {
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

TEST(Perf, AbsentKeyStopsAllPhases) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--get_only", "--iter_only", "--iter", "100"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "hako perf sequence: Get failed: NOT_FOUND\n");
  PerfOutput output(result.out);
  const PerfPhase want = {.impl = "tiny", .dots = {}, .num_iterations = "100"};
  ExpectPhase(output, want, "Getting", "0");
  ExpectPhase(output, want, "Iterating", "0");
  output.ExpectEnd();
}

TEST(Perf, KeysFromEntropyMayBeAbsent) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--random_key", "--random_seed", "-1", "--iter", "1000"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Perf, DatabasesInMemoryKeepTheirRecordsInPath) {
  for (const std::string impl : {"tiny", "baby"}) {
    TempDir dir;
    const std::string path = dir.File("snapshot");
    ASSERT_EQ(RunTool({"perf", "sequence", "--dbm", impl, "--path", path, "--set_only", "--iter", "500"}).exit_code, 0);
    const ToolResult got = RunTool({"perf", "sequence", "--dbm", impl, "--path", path, "--get_only", "--iter", "500"});
    EXPECT_EQ(got.exit_code, 0) << got.err;
    EXPECT_THAT(got.out, HasSubstr("num_records=500 "));
  }
}

TEST(Perf, NamesTheOptionThatWasMeant) {
  EXPECT_THAT(RunTool({"perf", "sequence", "--dbm", "tiny", "--iter", "1", "--directio"}).err, HasSubstr("did you mean '--direct_io'?"));
}

TEST(Perf, ParallelPrintsOnePhase) {
  TempDir dir;
  for (const std::string impl : {"tiny", "baby", "hash", "tree"}) {
    const ToolResult result =
        RunTool({"perf", "parallel", "--dbm", impl, "--path", dir.File(impl), "--iter", "1k", "--threads", "4", "--validate", "--rebuild"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    PerfOutput output(result.out);
    // A fifth of 4,000 keys see a CompareExchange, which seldom makes a record; of the rest, 4/5
    // times 1/2 are set.
    const PerfPhase want = {.impl = impl,
                            .threads = "4",
                            .is_in_file = impl == "hash" || impl == "tree",
                            .validates = true,
                            .dots = DotLines(50, 50),
                            .num_iterations = "1000"};
    ExpectPhase(output, want, "Doing", "1[2-5][0-9]{2}");
    output.ExpectEnd();
  }
}

TEST(Perf, ParallelSharesFewKeys) {
  const auto report = nlohmann::json::parse(
      RunTool({"perf", "parallel", "--dbm", "tiny", "--iter", "2k", "--threads", "3", "--keys", "50", "--random_value", "--json"}).out);
  EXPECT_LE(report.at("num_records"), 50);
  EXPECT_GT(report.at("num_records"), 5);
}

TEST(Perf, WickedChecksEveryOperation) {
  TempDir dir;
  for (const std::string impl : {"tiny", "baby", "hash", "tree"}) {
    const ToolResult result = RunTool({"perf", "wicked", "--dbm", impl, "--path", dir.File(impl), "--iter", "3k", "--threads", "4",
                                       "--size", "100", "--iterator", "--clear", "--sync", "--rebuild", "--validate"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    PerfOutput output(result.out);
    const PerfPhase want = {.impl = impl,
                            .size = "100",
                            .threads = "4",
                            .is_in_file = impl == "hash" || impl == "tree",
                            .validates = true,
                            .dots = DotLines(50, 150),
                            .num_iterations = "3000"};
    ExpectPhase(output, want, "Doing", "[0-9]+");
    output.ExpectEnd();
  }
  for (const std::string impl : {"hash", "tree"}) EXPECT_EQ(RunTool({"verify", dir.File(impl), "--dbm", impl}).exit_code, 0);
}

TEST(Perf, HonestModesAddLines) {
  const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--iter", "2k", "--threads", "2", "--honest", "--latency"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  int num_latencies = 0, num_opens = 0;
  for (const std::string& line : SplitLines(result.out)) {
    num_latencies +=
        testing::Matches(MatchesRegex("  latency_ns: p50=[1-9][0-9]* p99=[1-9][0-9]* p99\\.9=[1-9][0-9]* max=[1-9][0-9]*"))(line);
    num_opens += testing::Matches(MatchesRegex("  open_time=[0-9]+\\.[0-9]{6} close_time=[0-9]+\\.[0-9]{6}"))(line);
  }
  EXPECT_EQ(num_latencies, 4);
  EXPECT_EQ(num_opens, 4);
}

TEST(Perf, GetOrdersAndMisses) {
  for (const std::string order : {"same", "shuffle", "uniform", "zipf"}) {
    for (const std::string keys : {"--get_copy", "--random_key"}) {
      const ToolResult result = RunTool({"perf", "sequence", "--dbm", "tiny", "--iter", "3k", "--threads", "2", "--get_order", order,
                                         "--miss", "30", keys, "--json", "--latency"});
      EXPECT_EQ(result.exit_code, 0) << result.err;
      const std::vector<std::string> lines = SplitLines(result.out);
      ASSERT_THAT(lines, SizeIs(4));
      const auto getting = nlohmann::json::parse(lines[1]);
      EXPECT_EQ(getting.at("get_order"), order);
      EXPECT_EQ(getting.at("miss_percent"), 30);
      EXPECT_GE(getting.at("latency_ns").at("max"), getting.at("latency_ns").at("p99.9"));
      EXPECT_GE(getting.at("latency_ns").at("p99.9"), getting.at("latency_ns").at("p50"));
      EXPECT_EQ(nlohmann::json::parse(lines[0]).at("num_records"), nlohmann::json::parse(lines[2]).at("num_records"));
    }
  }
}

TEST(Perf, UnopenableFileExitsWithThree) {
  EXPECT_EQ(RunTool({"perf", "sequence", "--path", "/no/such/folder/p.hkh"}).exit_code, 3);
  TempDir dir;
  const ToolResult result = RunTool({"perf", "sequence", "--path", dir.File("p.hkh"), "--get_only"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace hako
