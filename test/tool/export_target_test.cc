// The file that export writes: the whole text or the old content, and never in place of a database.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>

#include "tool/tool_test.h"

namespace hako {
namespace {

class ExportTarget : public ToolTest {
 protected:
  void SetUp() override { ASSERT_EQ(RunTool({"import", path_}, "k\tv\n").exit_code, 0); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) names.push_back(entry.path().filename());
    return names;
  }
};

TEST_F(ExportTarget, RefusesDatabases) {
  for (const std::string name : {"b.hkh", "b.hkt", "b.hks", "other?dbm=hash", "other.tsv?dbm=tree"}) {
    const std::string other = dir_.File(name), file = other.substr(0, other.find('?'));
    ASSERT_EQ(RunTool({"create", other}).exit_code, 0) << name;
    ASSERT_EQ(RunTool({"set", other, "important", "data"}).exit_code, 0);
    for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--format", "tsv"}}) {
      std::vector<std::string> command = {"export", path_, file};
      command.insert(command.end(), flags.begin(), flags.end());
      const ToolResult result = RunTool(command);
      EXPECT_EQ(result.exit_code, 2);
      EXPECT_THAT(result.err, HasSubstr(file + " is a database, not a text"));
    }
    EXPECT_EQ(RunTool({"get", other, "important"}).out, "data\n") << name;
    std::filesystem::remove(file);
  }
  EXPECT_EQ(RunTool({"export", path_, dir_.File("new.hkh")}).exit_code, 2);
  const ToolResult imported = RunTool({"import", dir_.File("c.hkh"), path_});
  EXPECT_EQ(imported.exit_code, 2);
  EXPECT_THAT(imported.err, HasSubstr("hako merge"));
}

TEST_F(ExportTarget, UnknownSuffixRequiresFormat) {
  for (const std::string name : {"out.json", "out.txt", "out"}) {
    const ToolResult result = RunTool({"export", path_, dir_.File(name)});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("unknown suffix; use .tsv"));
    EXPECT_FALSE(std::filesystem::exists(dir_.File(name)));
    EXPECT_EQ(RunTool({"export", path_, dir_.File(name), "--format", "jsonl"}).exit_code, 0);
    EXPECT_EQ(ReadWhole(dir_.File(name)), "{\"key\":\"k\",\"value\":\"v\"}\n");
  }
  EXPECT_EQ(RunTool({"export", path_, "/dev/null"}).exit_code, 0);
}

TEST_F(ExportTarget, KeepsPermissionsAndLinks) {
  WriteWhole(dir_.File("real.tsv"), "old");
  ASSERT_EQ(chmod(dir_.File("real.tsv").c_str(), 0600), 0);
  std::filesystem::create_symlink("real.tsv", dir_.File("link.tsv"));
  EXPECT_EQ(RunTool({"export", path_, dir_.File("link.tsv")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(dir_.File("link.tsv")));
  EXPECT_EQ(ReadWhole(dir_.File("real.tsv")), "k\tv\n");
  struct stat info = {};
  ASSERT_EQ(stat(dir_.File("real.tsv").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(ExportTarget, DamagedDatabaseLeavesNoPartialFile) {
  const std::string damaged = dir_.File("damaged.hkh"), text = dir_.File("text.tsv");
  ASSERT_EQ(RunTool({"import", damaged}, "one\t1\ntwo\tthe value that is damaged\n").exit_code, 0);
  std::string bytes = ReadWhole(damaged);
  bytes[bytes.find("value that is")] ^= 1;
  WriteWhole(damaged, bytes);
  for (const std::string before : {"", "what was there before"}) {
    if (!before.empty()) WriteWhole(text, before);
    EXPECT_EQ(RunTool({"export", damaged, text}).exit_code, 3);
    EXPECT_EQ(std::filesystem::exists(text), !before.empty());
    EXPECT_EQ(ReadWhole(text), before);
  }
  EXPECT_THAT(Names(), UnorderedElementsAre("a.hkh", "damaged.hkh", "text.tsv"));
}

TEST_F(ExportTarget, SkipDamagedWritesAllSoundRecords) {
  const std::string damaged = dir_.File("damaged.hkh"), text = dir_.File("text.tsv");
  ASSERT_EQ(RunTool({"import", damaged}, "one\t1\ntwo\tthe value that is damaged\nthree\t3\n").exit_code, 0);
  std::string bytes = ReadWhole(damaged);
  bytes[bytes.find("value that is")] ^= 1;
  WriteWhole(damaged, bytes);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"export", damaged, "--skip_damaged"}, {"list", damaged, "--skip_damaged"}}) {
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(SplitLines(result.out), UnorderedElementsAre("one\t1", "three\t3"));
    EXPECT_THAT(SplitLines(result.err), ElementsAre(MatchesRegex("hako: .*damaged\\.hkh: skipped: .* at offset [0-9]+"),
                                                    HasSubstr("damaged.hkh: 1 damaged place was skipped; keep the file")));
  }
  EXPECT_EQ(RunTool({"export", damaged, text, "--skip_damaged"}).exit_code, 1);
  EXPECT_THAT(SplitLines(ReadWhole(text)), UnorderedElementsAre("one\t1", "three\t3"));
  EXPECT_EQ(RunTool({"merge", dir_.File("new.hkh"), damaged, "--skip_damaged"}).exit_code, 1);
  EXPECT_EQ(RunTool({"count", dir_.File("new.hkh")}).out, "2\n");
  EXPECT_EQ(RunTool({"list", damaged}).exit_code, 3) << "unless told otherwise damage ends it";
}

// The source is large enough that the signal comes in the middle.
TEST_F(ExportTarget, SignalLeavesTheOldTextAndItsExitCode) {
  ASSERT_EQ(RunTool({"import", path_}, NumberedLines(0, 300'000)).exit_code, 0);
  const std::string text = dir_.File("text.tsv");
  WriteWhole(text, "what was there before");
  ToolProcess process({"export", path_, text});
  while (Names().size() < 3 && !process.HasEnded()) usleep(100);
  process.Send(SIGTERM);
  const ToolResult result = process.Finish();
  if (result.exit_code == 0) GTEST_SKIP() << "was done before the signal came";
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(result.err, "hako: " + text + ": stopped by a signal; nothing was written\n");
  EXPECT_EQ(ReadWhole(text), "what was there before");
  EXPECT_THAT(Names(), UnorderedElementsAre("a.hkh", "text.tsv"));
}

TEST_F(ExportTarget, SignalDoesNotWaitForTheReaderOfAPipe) {
  ASSERT_EQ(RunTool({"import", path_}, NumberedLines(0, 100'000)).exit_code, 0);
  const std::string pipe = dir_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ToolProcess process({"export", path_, pipe});
  const int reader = open(pipe.c_str(), O_RDONLY | O_CLOEXEC);  // reads nothing
  ASSERT_GE(reader, 0);
  process.Send(SIGINT);
  EXPECT_EQ(process.Finish().exit_code, 130);
  close(reader);
}

}  // namespace
}  // namespace hako
