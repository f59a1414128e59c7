// Every hint names the real cause of an error, or there is none.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/small_disk.h"
#include "tool/tool_test.h"

namespace hako {
namespace {

using Args = std::vector<std::string>;

class Hints : public ToolTest {
 protected:
  void SetUp() override { ASSERT_EQ(RunTool({"import", path_}, "k\tv\n").exit_code, 0); }
  // Runs a command that fails; its only line of error, without the line about help.
  std::string Error(const Args& command, int code = 3, const std::string& input = "") {
    const ToolResult result = RunTool(command, input);
    EXPECT_EQ(result.exit_code, code) << command[0];
    const auto lines = SplitLines(result.err);
    return lines.empty() ? "" : lines.back().starts_with("Try ") ? lines.front() : lines.back();
  }
};

TEST_F(Hints, DatabaseWithoutTimes) {
  const std::string hint =
      "the database was created without the option expiry; create another with hako create 'NEW?expiry=true', and move the "
      "records by hako merge NEW OLD";
  EXPECT_EQ(Error({"set", path_, "k", "v", "--ttl", "60s"}), "hako: " + path_ + ": " + hint);
  EXPECT_EQ(Error({"expire", path_, "k", "--ttl", "60s"}), "hako: " + path_ + ": " + hint);
  EXPECT_EQ(Error({"expire", path_, "k", "--never"}), "hako: " + path_ + ": " + hint);
  const std::string other = dir_.File("new.hkh");  // the hint works
  ASSERT_EQ(RunTool({"create", other + "?expiry=true"}).exit_code, 0);
  ASSERT_EQ(RunTool({"merge", other, path_}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", other, "k", "v", "--ttl", "60s"}).exit_code, 0);
}

TEST_F(Hints, AbsentDirectory) {
  const std::string absent = dir_.File("absent"), hint = "check the name, or create the directory first";
  for (const Args& command : {Args{"set", path_, "k", "v", "--log_archive", absent},
                              {"create", dir_.File("b.hkt?log_archive=") + absent},
                              {"salvage", path_, absent + "/b.hkh"},
                              {"copy", path_, absent + "/b.hkh"},
                              {"get", absent + "/b.hkh", "k"},
                              {"create", absent + "/b.hktb"},
                              {"log", absent + "/b.hkh"},
                              {"export", path_, absent + "/b.tsv"},
                              {"inspect", path_, "--svg", absent + "/b.svg"}})
    EXPECT_THAT(Error(command), AllOf(StartsWith("hako: "), EndsWith("; " + hint))) << command[0];
}

TEST_F(Hints, ValueIsNoNumber) {
  EXPECT_EQ(Error({"set", path_, "k", "--incr", "1"}), "hako: " + path_ + ": Increment: the value is not an 8-byte number");
}

TEST_F(Hints, TooLongKey) {
  ASSERT_EQ(RunTool({"create", dir_.File("a.hkt")}).exit_code, 0);
  EXPECT_THAT(Error({"set", dir_.File("a.hkt"), std::string(5000, 'k'), "v"}),
              EndsWith("a key of 5000 bytes exceeds the limit of 4096 bytes"));
}

TEST_F(Hints, MalformedText) {
  EXPECT_THAT(Error({"import", path_}, 3, "a\t1\nb\n"),
              EndsWith("line 2: no tab between key and value; what is before it is stored, so mend this "
                       "place and import the text again"));
  EXPECT_THAT(Error({"import", dir_.File("a.hktb"), "--format", "csv"}, 3, "key,a\n1\n"),
              HasSubstr("line 2: 1 fields, but the first line names 2; "));
}

TEST_F(Hints, WrongOptionsAndForeignFiles) {
  EXPECT_THAT(Error({"get", path_ + "?width=0", "k"}), HasSubstr("option width requires dbm=array"));
  WriteWhole(dir_.File("text.hkh"), "this is no database\n");
  EXPECT_THAT(Error({"get", dir_.File("text.hkh"), "k"}),
              AllOf(HasSubstr("not a hako hash database"),
                    EndsWith("it is a file of another program, or its beginning is damaged: check the path")));
  ASSERT_EQ(RunTool({"create", dir_.File("t.hktb")}).exit_code, 0);
  std::filesystem::rename(dir_.File("t.hktb"), dir_.File("t.hkt"));
  EXPECT_THAT(Error({"get", dir_.File("t.hkt"), "k"}), AllOf(HasSubstr("the file is a table: open it with "), HasSubstr("'hako table'")));
}

// A snapshot cannot be salvaged.
TEST_F(Hints, DamagedSnapshot) {
  const std::string path = dir_.File("a.hks");
  ASSERT_EQ(RunTool({"import", path}, "k\tv\n").exit_code, 0);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  EXPECT_THAT(Error({"get", path, "k"}), AllOf(HasSubstr("damaged: "), EndsWith("; keep the file, and restore a copy")));
}

TEST_F(Hints, DamagedFile) {
  const std::string path = dir_.File("a.hkt");
  ASSERT_EQ(RunTool({"import", path}, NumberedLines(0, 1000)).exit_code, 0);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(Error({"verify", path}, 1), AllOf(HasSubstr("damaged: "), EndsWith("or save the rest with 'hako salvage'")));
}

TEST_F(Hints, LockedTable) {
  const std::string path = dir_.File("a.hktb");
  ASSERT_EQ(RunTool({"create", path}).exit_code, 0);
  ToolProcess holder({"shell", path}, ToolProcess::Screen::kTerminal);
  ASSERT_TRUE(holder.Write("count\n"));
  while (holder.ReadTerminal(100).find("0\r\n") == std::string::npos) {
  }
  EXPECT_THAT(Error({"table", "get", path, "k"}, 1), EndsWith("no row 'k'"));  // others may read meanwhile
  EXPECT_THAT(Error({"table", "put", path, "k", "a=1"}, 4), EndsWith("wait for it with --wait SECONDS, or end the other process"));
  EXPECT_EQ(RunTool({"table", "put", path, "k", "a=1", "--wait", "10ms"}).exit_code, 4) << "the option is there";
  holder.CloseInput();
  EXPECT_EQ(holder.Finish().exit_code, 0);
}

TEST_F(Hints, ReadOnlyFileSystem) {
  SmallDisk disk(2 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  const std::string path = disk.File("a.hkh"), folder = std::filesystem::path(path).parent_path();
  ASSERT_EQ(RunTool({"create", path}).exit_code, 0);
  if (std::system(("mount -o remount,ro " + folder).c_str()) != 0) GTEST_SKIP() << "cannot remount it";
  EXPECT_THAT(Error({"set", path, "k", "v"}), EndsWith("Read-only file system; mount the file system for writing"));
  EXPECT_EQ(std::system(("mount -o remount,rw " + folder).c_str()), 0);
}

// What is done instead, by command.
TEST_F(Hints, CommandsOnRecordsNameTheirCounterpartOfTables) {
  const std::string path = dir_.File("a.hktb");
  ASSERT_EQ(RunTool({"create", path}).exit_code, 0);
  const std::pair<Args, const char*> commands[] = {
      {{"get", path, "k"}, "'hako table get'"},         {{"set", path, "k", "v"}, "'hako table put'"},
      {{"remove", path, "k"}, "'hako table remove'"},   {{"rekey", path, "k", "l"}, "'hako table put'"},
      {{"list", path}, "'hako table query'"},           {{"search", path, "k"}, "'hako table query'"},
      {{"merge", path, path_}, "'hako table import'"},  {{"merge", path_, path}, "'hako table import'"},
      {{"expire", path, "k"}, "its rows do not expire"}};
  for (const auto& [command, hint] : commands)
    EXPECT_THAT(Error(command), AllOf(StartsWith("hako: " + path + ": is a table of rows; "), HasSubstr(hint))) << command[0];
}

}  // namespace
}  // namespace hako
