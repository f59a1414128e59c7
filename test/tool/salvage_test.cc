// hako salvage: the report, the exit codes, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;

class Salvage : public testing::TestWithParam<const char*> {
 protected:
  Salvage() {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "key" + std::to_string(10000 + i) + "\tvalue of " + std::to_string(i) + "\n";
    EXPECT_EQ(RunTool({"import", from_}, text).exit_code, 0);
  }
  // Damages the value of record i.
  void Damage(int i) {
    std::string image = ReadWhole(from_);
    const std::size_t at = image.find("value of " + std::to_string(i));
    ASSERT_NE(at, image.npos);
    image[at] = 'x';
    WriteWhole(from_, image);
  }
  std::string Export(const std::string& path) { return RunTool({"list", path, "--items", "-1", "--raw"}).out; }

  TempDir dir_;
  const std::string from_ = dir_.File("from") + GetParam(), to_ = dir_.File("to") + GetParam();
};
INSTANTIATE_TEST_SUITE_P(Kinds, Salvage, testing::Values(".hkh", ".hkt"), [](const auto& tested) { return std::string(tested.param + 1); });

TEST_P(Salvage, UndamagedDatabaseIsCopied) {
  const ToolResult result = RunTool({"salvage", from_, to_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "records written: 2000\nrecords lost: 0\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(RunTool({"verify", to_}).exit_code, 0);
  EXPECT_EQ(SplitLines(Export(to_)).size(), 2000u);
}

TEST_P(Salvage, ReportsWhatIsLost) {
  ASSERT_NO_FATAL_FAILURE(Damage(1234));
  EXPECT_EQ(RunTool({"verify", from_}).exit_code, 1);
  const ToolResult result = RunTool({"salvage", from_, to_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
  if (from_.ends_with(".hkh")) {
    EXPECT_THAT(result.out, ContainsRegex("^damaged: record at offset [0-9]+, 29 bytes, key \"key11234\"\n"));
    EXPECT_THAT(result.out, EndsWith("records written: 1999\nrecords lost: 1\n"));
  } else {
    EXPECT_THAT(result.out,
                ContainsRegex("^damaged: page at offset [0-9]+, [0-9]+ bytes\nlost: all keys from \"key1[0-9]+\" to before \"key1"));
    EXPECT_THAT(result.out, ContainsRegex("records written: 1[0-9]+\nrecords lost: [1-9][0-9]+\n$"));
  }
  EXPECT_EQ(RunTool({"verify", to_}).exit_code, 0);
  EXPECT_THAT(Export(to_), Not(HasSubstr("key11234\t")));
}

TEST(SalvageOfAnArray, ReportsTheNumbersThatAreLost) {
  TempDir dir;
  const std::string from = dir.File("from.hka"), to = dir.File("to.hka");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + "\tvalue " + std::to_string(1000 + i) + "\n";
  ASSERT_EQ(RunTool({"create", from + "?width=10"}).exit_code, 0);
  ASSERT_EQ(RunTool({"import", from}, text).exit_code, 0);
  std::string image = ReadWhole(from);
  image.at(image.find("value 1500")) = 'x';
  WriteWhole(from, image);
  const ToolResult result = RunTool({"salvage", from, to});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              ContainsRegex("^damaged: page at offset [0-9]+, [0-9]+ bytes\nlost: all keys from \"[0-9]+\" to before \"[0-9]+\"\n"));
  EXPECT_THAT(result.out, ContainsRegex("records written: [0-9]+\nrecords lost: [1-9][0-9]+\n$"));
  EXPECT_EQ(RunTool({"verify", to}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", to, "0"}).out, "value 1000\n");
  EXPECT_EQ(RunTool({"get", to, "500"}).exit_code, 1);
}

TEST_P(Salvage, NeedsOneSuperBlock) {
  std::string image = ReadWhole(from_);
  image.replace(0, 512, std::string(512, 'x'));
  WriteWhole(from_, image);
  const ToolResult one = RunTool({"salvage", from_, to_});
  EXPECT_THAT(one.out, HasSubstr("damaged: superblock at offset 0, 512 bytes\n"));
  image.replace(4096, 512, std::string(512, '\0'));
  image.replace(0, 512, std::string(512, '\0'));
  WriteWhole(from_, image);
  const std::string other = to_ + "2";
  const ToolResult none = RunTool({"salvage", from_, other});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("both superblocks"));
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_P(Salvage, RefusesAnExistingFile) {
  WriteWhole(to_, "mine");
  const ToolResult result = RunTool({"salvage", from_, to_});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.err, "hako: " + to_ + ": the file exists; choose another name: a salvage never replaces a file\n");
  EXPECT_EQ(ReadWhole(to_), "mine");
}

TEST_P(Salvage, RefusesOtherFiles) {
  const std::string text = dir_.File("text"), absent = dir_.File("absent.hkh");
  WriteWhole(text, "no database\n");
  const ToolResult other = RunTool({"salvage", text, to_});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_THAT(other.err, HasSubstr("only a hash table, a tree or an array in a file can be salvaged"));
  EXPECT_EQ(RunTool({"salvage", absent, to_}).exit_code, 3);
  EXPECT_EQ(RunTool({"salvage", from_}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(to_));
}

}  // namespace
}  // namespace hako
