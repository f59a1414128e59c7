// hako scrub: the list of damage, the exit codes, the rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class Scrub : public testing::TestWithParam<const char*> {
 protected:
  Scrub() {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "key" + std::to_string(10000 + i) + "\tvalue of " + std::to_string(i) + "\n";
    EXPECT_EQ(RunTool({"import", path_}, text).exit_code, 0);
  }
  void Damage(const std::string& text) {
    std::string image = ReadWhole(path_);
    const std::size_t at = image.find(text);
    ASSERT_NE(at, image.npos);
    image[at] = 'x';
    WriteWhole(path_, image);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("casket") + GetParam();
};
INSTANTIATE_TEST_SUITE_P(Kinds, Scrub, testing::Values(".hkh", ".hkt"), [](const auto& tested) { return std::string(tested.param + 1); });

TEST_P(Scrub, UndamagedFileIsOk) {
  const ToolResult result = RunTool({"scrub", path_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, ContainsRegex("casket\\.hk.: ok, [0-9]+ bytes read\n$"));
  EXPECT_THAT(RunTool({"scrub", path_, "--json"}).out, ContainsRegex("\"ok\":true,\"read_bytes\":[0-9]+,\"damage\":\\[\\]"));
}

TEST_P(Scrub, ListsAllDamage) {
  ASSERT_NO_FATAL_FAILURE(Damage("value of 100"));
  ASSERT_NO_FATAL_FAILURE(Damage("value of 1900"));
  const ToolResult result = RunTool({"scrub", path_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              ContainsRegex("^damaged: (record|page) at offset [0-9]+, [0-9]+ bytes: .* fails its checksum at offset [0-9]+\n"));
  EXPECT_THAT(result.out, ContainsRegex(": 2 damaged, [0-9]+ bytes read\n$"));
  const ToolResult json = RunTool({"scrub", path_, "--json"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_THAT(json.out, ContainsRegex("\"ok\":false,.*\"damage\":\\[\\{\"kind\":\"(record|page)\",\"offset\":[0-9]+,"));
}

TEST_P(Scrub, KeepsTheRate) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(RunTool({"scrub", path_, "--rate", "100k"}).exit_code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(RunTool({"scrub", path_, "--rate", "-1"}).exit_code, 2);
}

TEST(ScrubFiles, SnapshotHasNothingToScrub) {
  TempDir dir;
  const std::string path = dir.File("casket.hks");
  ASSERT_EQ(RunTool({"import", path}, "key\tvalue\n").exit_code, 0);
  EXPECT_EQ(RunTool({"scrub", path}).out, path + ": ok, 0 bytes read\n");
  EXPECT_EQ(RunTool({"scrub", dir.File("absent.hkh")}).exit_code, 3);
}

}  // namespace
}  // namespace hako
