// hako restore, hako log of an archive, and the option --log_archive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class Restore : public testing::TestWithParam<const char*> {
 protected:
  Restore() { std::filesystem::create_directory(archive_); }
  void Set(const std::string& key, const std::string& value) {
    const ToolResult result = RunTool({"set", path_, key, value, "--log_archive", archive_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  // Creates the database with "a", copies it, and sets "b" and "c".
  void MakeHistory() {
    ASSERT_EQ(RunTool({"create", path_, "--log_archive", archive_}).exit_code, 0);
    ASSERT_NO_FATAL_FAILURE(Set("a", "1"));
    ASSERT_EQ(RunTool({"copy", path_, copy_}).exit_code, 0);
    ASSERT_NO_FATAL_FAILURE(Set("b", "2"));
    ASSERT_NO_FATAL_FAILURE(Set("c", "3"));
  }
  std::string List(const std::string& path) { return RunTool({"list", path, "--items", "-1", "--raw"}).out; }

  TempDir dir_;
  const std::string path_ = dir_.File("db") + GetParam(), copy_ = dir_.File("copy") + GetParam(), to_ = dir_.File("to") + GetParam();
  const std::string archive_ = dir_.File("archive");
};
INSTANTIATE_TEST_SUITE_P(Kinds, Restore, testing::Values(".hkh", ".hkt", ".hks"),
                         [](const auto& tested) { return std::string(tested.param + 1); });

TEST_P(Restore, GoesToTheEndToAnLsnAndToATime) {
  ASSERT_NO_FATAL_FAILURE(MakeHistory());
  const ToolResult all = RunTool({"restore", copy_, archive_, to_, "--json"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const auto report = nlohmann::json::parse(all.out);
  EXPECT_EQ(report["num_updates"], 2);
  EXPECT_THAT(List(to_), AllOf(HasSubstr("a"), HasSubstr("b"), HasSubstr("c")));
  EXPECT_EQ(RunTool({"verify", to_}).exit_code, 0);

  const std::uint64_t lsn = report["lsn"];
  const std::string lsn_to = dir_.File("lsn") + GetParam(), time_to = dir_.File("time") + GetParam();
  const ToolResult by_lsn = RunTool({"restore", copy_, archive_, lsn_to, "--until", std::to_string(lsn - 1)});
  ASSERT_EQ(by_lsn.exit_code, 0) << by_lsn.err;
  EXPECT_THAT(by_lsn.out, AllOf(HasSubstr("copy: LSN "), ContainsRegex("restored: to LSN [0-9]+, 20"), HasSubstr("updates: 1\n")));
  EXPECT_EQ(RunTool({"get", lsn_to, "b"}).out, "2\n");
  EXPECT_EQ(RunTool({"get", lsn_to, "c"}).exit_code, 1);

  const ToolResult by_time = RunTool({"restore", copy_, archive_, time_to, "--until", report["time"].get<std::string>()});
  ASSERT_EQ(by_time.exit_code, 0) << by_time.err;
  EXPECT_EQ(RunTool({"get", time_to, "c"}).out, "3\n");
}

TEST_P(Restore, ExplainsWhatItRefuses) {
  ASSERT_NO_FATAL_FAILURE(MakeHistory());
  EXPECT_EQ(RunTool({"restore", copy_, archive_, to_, "--until", "yesterday"}).exit_code, 2);
  const ToolResult late = RunTool({"restore", copy_, archive_, to_, "--until", "999999999"});
  EXPECT_EQ(late.exit_code, 3);
  EXPECT_THAT(late.err, AllOf(HasSubstr("the last update has LSN"), HasSubstr("choose another point")));
  const ToolResult early = RunTool({"restore", copy_, archive_, to_, "--until", "@1000"});
  EXPECT_EQ(early.exit_code, 3);
  EXPECT_THAT(early.err, HasSubstr("before the copy"));
  const ToolResult there = RunTool({"restore", copy_, archive_, path_});
  EXPECT_EQ(there.exit_code, 3);
  EXPECT_THAT(there.err, HasSubstr("a restore never replaces a file"));
  const ToolResult no_log = RunTool({"restore", copy_, archive_, to_, "--log", dir_.File("lost-log")});
  EXPECT_EQ(no_log.exit_code, 3);
  EXPECT_THAT(no_log.err, HasSubstr(dir_.File("lost-log") + ": no such file"));
  EXPECT_FALSE(std::filesystem::exists(to_));
}

TEST_P(Restore, LogListsAnArchive) {
  ASSERT_NO_FATAL_FAILURE(MakeHistory());
  const ToolResult listed = RunTool({"log", archive_});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, ContainsRegex("segment 1: from LSN 0 to [0-9]+, begun 20"));
  EXPECT_THAT(listed.out, ContainsRegex("segment 3: from LSN "));
  const auto json = nlohmann::json::parse(RunTool({"log", archive_, "--json"}).out);
  ASSERT_EQ(json["segments"].size(), 3u);
  for (const auto& segment : json["segments"]) EXPECT_TRUE(segment["continues"]);
  std::filesystem::remove(archive_ + "/00000000000000000002.hka");
  EXPECT_THAT(RunTool({"log", archive_}).out, HasSubstr("segment 2 before it is missing"));
}

TEST_P(Restore, ASegmentIsNoArray) {
  ASSERT_NO_FATAL_FAILURE(MakeHistory());
  const ToolResult segment = RunTool({"inspect", archive_ + "/00000000000000000001.hka"});
  EXPECT_EQ(segment.exit_code, 3);
  EXPECT_THAT(segment.err, HasSubstr("it is a segment of a log archive: 'hako log DIRECTORY' lists it, 'hako restore' uses it"));
}

}  // namespace
}  // namespace hako
