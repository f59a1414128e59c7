// hako perf --stalls: the operations that it measures of each database, its output, its usage
// errors.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tool/tool_test.h"

namespace hako {
namespace {

// Small enough for any machine; times are not checked.
std::vector<std::string> StallsOf(const std::string& kind, const std::string& path, const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"perf", "--stalls", "--dbm", kind,      "--path", path,        "--records",
                                      "2k",   "--huge",   "300ki", "--batch", "100",    "--seconds", "0.01"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<std::string> OperationsIn(const ToolResult& result) {
  std::vector<std::string> names;
  for (const std::string& line : SplitLines(result.out)) {
    const auto report = nlohmann::json::parse(line);
    names.push_back(report.at("operation"));
    EXPECT_EQ(report.at("ok"), true) << line;
    for (const char* half : {"get_ns", "set_ns"}) {
      EXPECT_GT(report.at(half).at("count"), 0);
      EXPECT_LE(report.at(half).at("p50"), report.at(half).at("p99.9"));
      EXPECT_LE(report.at(half).at("p99.9"), report.at(half).at("max"));
    }
  }
  return names;
}

TEST(PerfStalls, MeasuresEveryOperationOfADatabase) {
  for (const std::string kind : {"hash", "tree", "tiny", "baby"}) {
    const TempDir dir;
    const ToolResult result = RunTool(StallsOf(kind, dir.File("p"), {"--json"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::vector<std::string> expected = {"harvest", "idle", "synchronize", "verify", "copy", "growth", "rebuild", "huge", "batch"};
    if (kind == "tree") expected.insert(expected.begin() + 2, "checkpoint");
    if (kind == "tiny" || kind == "baby") expected = {"idle", "verify", "copy", "growth", "huge", "batch"};
    EXPECT_EQ(OperationsIn(result), expected) << kind;
    EXPECT_FALSE(std::filesystem::exists(dir.File("p.stalls"))) << "the copy is removed";
    if (kind == "hash" || kind == "tree") {
      EXPECT_THAT(RunTool({"verify", dir.File("p") + "?dbm=" + kind}).out, HasSubstr(": ok, 2000 records"));
    }
  }
}

TEST(PerfStalls, MeasuresPositionalFiles) {
  for (const std::string kind : {"hash", "tree"}) {
    const TempDir dir;
    const ToolResult result = RunTool(StallsOf(kind, dir.File("p"), {"--json", "--file", "pos", "--durable"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(OperationsIn(result), testing::Contains("harvest"));
  }
}

TEST(PerfStalls, PrintsATable) {
  const ToolResult result =
      RunTool({"perf", "--stalls", "--dbm", "tiny", "--records", "100", "--seconds", "0.01", "--operations", "verify,idle"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = SplitLines(result.out);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_EQ(lines[0], "Stalls: impl=tiny num_records=100 value_size=100; microseconds of single Gets and Sets beside each operation");
  EXPECT_THAT(lines[1], MatchesRegex("operation +seconds +gets +p50 +p99.9 +longest +sets +p50 +p99.9 +longest"));
  EXPECT_THAT(lines[2], MatchesRegex("idle +[0-9.]+( +[0-9]+( +[0-9.]+){3}){2}"));
  EXPECT_THAT(lines[3], StartsWith("verify "));
}

TEST(PerfStalls, RefusesOtherArguments) {
  EXPECT_THAT(RunTool({"perf", "--json"}).err, HasSubstr("nothing to measure: give sequence, parallel, wicked or --stalls"));
  EXPECT_THAT(RunTool({"perf", "--stalls"}).err, HasSubstr("hako perf: nothing to measure: set --dbm tiny or baby"));
  EXPECT_THAT(RunTool({"perf", "--stalls", "--dbm", "tiny", "--operations", "verify,sleep"}).err,
              HasSubstr("sleep: the operations are harvest, idle"));
  EXPECT_EQ(RunTool({"perf", "--stalls", "--dbm", "tiny", "--records", "0"}).exit_code, 2);
  EXPECT_THAT(RunTool({"perf", "--help"}).out, AllOf(HasSubstr("--stalls"), HasSubstr("sequence")));
}

}  // namespace
}  // namespace hako
