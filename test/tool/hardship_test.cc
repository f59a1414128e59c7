// Unusable files and streams: directories, empty and foreign files, no permission, full disks,
// closed pipes, closed streams. Every message names the file, the error and the way out, and no
// partial file is left.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "hako/file/memory_map_parallel_file.h"
#include "support/small_disk.h"
#include "support/status_matchers.h"
#include "tool/tool_test.h"

namespace hako {
namespace {

using Args = std::vector<std::string>;

class Hardship : public ToolTest {
 protected:
  void SetUp() override { ASSERT_EQ(RunTool({"import", path_}, NumberedLines(0, 1000)).exit_code, 0); }

  // Runs a line of sh in which $HAKO is the program and $DB the database, and returns its standard
  // error.
  std::string Shell(const std::string& line, int expected) {
    const std::string err = dir_.File("sh.err");
    const std::string command = "cd " + dir_.path() + "; HAKO=" + HAKO_TOOL_PATH + " DB=" + path_ + "; { " + line + "; } 2> " + err;
    const int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == expected) << line << ": " << status << " " << ReadWhole(err);
    return ReadWhole(err);
  }
};

TEST_F(Hardship, ReportsADirectory) {
  const std::string hash = dir_.File("d.hkh"), tiny = dir_.File("d.hks");
  for (const std::string& name : {hash, tiny}) {
    std::filesystem::create_directory(name);
    for (const Args& command :
         {Args{"get", name, "k"}, Args{"set", name, "k", "v"}, Args{"create", name}, Args{"create", name, "--truncate"}, Args{"list", name},
          Args{"verify", name}, Args{"rebuild", name}, Args{"inspect", name}, Args{"import", name}, Args{"export", name},
          Args{"export", path_, name}, Args{"merge", path_, name}, Args{"import", dir_.File("new.hkh"), name}}) {
      const ToolResult result = RunTool(command);
      EXPECT_EQ(result.exit_code, 3) << command[0];
      EXPECT_EQ(result.err, "hako: " + name + ": is a directory; give the name of a file in it\n") << command[0];
      EXPECT_EQ(result.out, "");
    }
  }
  EXPECT_NE(access(dir_.File("new.hkh").c_str(), F_OK), 0) << "made a database for nothing";
  EXPECT_EQ(RunTool({"perf", "sequence", "--path", hash, "--iter", "1"}).err,
            "hako: " + hash + ": is a directory; give the name of a file in it\n");
  for (const Args& command : {Args{"copy", path_, hash}, Args{"copy", path_, hash, "--force"}, Args{"copy", path_, dir_.path()}}) {
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(result.err, "hako: " + command[2] + ": is a directory; give the name of a file in it\n");
  }
}

TEST_F(Hardship, EmptyFileIsNoDatabase) {
  const std::string empty = dir_.File("empty.hkh");
  WriteWhole(empty, "");
  const ToolResult result = RunTool({"get", empty, "k"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.err, "hako: " + empty + ": the file is empty, not a database; create one with 'hako create " + empty + "'\n");
  EXPECT_EQ(RunTool({"create", empty}).exit_code, 0);
  EXPECT_EQ(RunTool({"count", empty}).out, "0\n");
}

// As another user if the tests run as root, because root ignores permissions.
TEST_F(Hardship, ReportsMissingPermissions) {
  const std::string as_nobody = geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : "";
  if (std::system((as_nobody + HAKO_TOOL_PATH + " --version > /dev/null 2>&1").c_str()) != 0) GTEST_SKIP() << "cannot be another user here";
  chmod(dir_.path().c_str(), 0755);
  chmod(path_.c_str(), 0400);
  const std::string locked_folder = dir_.File("folder");
  std::filesystem::create_directory(locked_folder);
  chmod(locked_folder.c_str(), 0555);
  const std::string advice = "Permission denied; check the permissions of the file and of its directory\n";
  // Its owner may read the file; another may not.
  EXPECT_EQ(Shell(as_nobody + "$HAKO set $DB k v", 3), "hako: " + path_ + ": cannot open: " + advice);
  const std::string made = locked_folder + "/b.hkh";
  EXPECT_EQ(Shell(as_nobody + "$HAKO create " + made, 3), "hako: " + made + ": cannot open: " + advice);
  EXPECT_EQ(Shell(as_nobody + "$HAKO import " + made + " /dev/null", 3), "hako: " + made + ": cannot open: " + advice);
  chmod(path_.c_str(), 0444);
  EXPECT_EQ(Shell(as_nobody + "$HAKO count $DB > /dev/null", 0), "") << "reading needs no more than that";
  const std::string text = locked_folder + "/a.tsv";
  EXPECT_EQ(Shell(as_nobody + "$HAKO export $DB " + text, 3), "hako: " + text + ": cannot create a new file: " + advice);
  EXPECT_THAT(Shell(as_nobody + "$HAKO copy $DB " + made, 3),
              AllOf(StartsWith("hako: " + made + ": cannot create a new file"), EndsWith(advice)));
}

TEST_F(Hardship, FullDiskLeavesNothingDamaged) {
  SmallDisk disk(2 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  const std::string path = disk.File("a.hkh");
  const std::string full = "No space left on device; free some space, or raise the limit, and run the command again\n";
  const ToolResult imported = RunTool({"import", path}, NumberedLines(0, 300'000));
  EXPECT_EQ(imported.exit_code, 3);
  const auto lines = SplitLines(imported.err);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], EndsWith(" records imported"));
  EXPECT_THAT(imported.err, EndsWith(full));
  std::string imported_count = lines[0].substr(("hako: " + path + ": ").size());
  std::erase(imported_count, ',');
  EXPECT_EQ(std::to_string(std::stoi(imported_count)) + "\n", RunTool({"count", path}).out);
  EXPECT_EQ(RunTool({"verify", path}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path, "0"}).out, "value of 0\n");

  // On a full disk a file that could not be created leaves nothing.
  const ToolResult exported = RunTool({"export", path, disk.File("a.tsv")});
  EXPECT_EQ(exported.exit_code, 3);
  EXPECT_THAT(exported.err, AllOf(StartsWith("hako: " + disk.File("a.tsv") + ": "), EndsWith(full)));
  for (const char* name : {"b.hkh", "b.hkt", "b.hks"}) {
    const ToolResult created = RunTool({"create", disk.File(name)});
    EXPECT_EQ(created.exit_code, 3);
    EXPECT_THAT(created.err, AllOf(StartsWith("hako: " + disk.File(name) + ": "), EndsWith(full)));
    EXPECT_NE(access(disk.File(name).c_str(), F_OK), 0) << name;
  }
  const ToolResult copied = RunTool({"copy", path, disk.File("c.hkh")});
  EXPECT_EQ(copied.exit_code, 3);
  EXPECT_THAT(copied.err, AllOf(StartsWith("hako: " + disk.File("c.hkh") + ": "), EndsWith(full)));
  EXPECT_NE(access(disk.File("c.hkh").c_str(), F_OK), 0);
  EXPECT_NE(access(disk.File("c.hkh.tmp").c_str(), F_OK), 0);
}

// A tree and its log fill the disk: every record that was imported is there, and once there is space
// the database takes updates again.
TEST_F(Hardship, FullDiskLosesNothingOfATree) {
  SmallDisk disk(2 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  const std::string path = disk.File("a.hkt"), options = "?checkpoint_bytes=256ki";
  const ToolResult imported = RunTool({"import", path + options}, NumberedLines(0, 300'000));
  EXPECT_EQ(imported.exit_code, 3);
  EXPECT_THAT(imported.err, AllOf(HasSubstr(" records imported\n"), HasSubstr("; free some space"),
                                  testing::AnyOf(HasSubstr("No space left on device"),                            // of checkpoint or log
                                                 HasSubstr("the device is full: only removals are accepted"))));  // of a Set after it
  const int count = std::stoi(RunTool({"count", path}).out);
  EXPECT_GT(count, 10'000);
  EXPECT_EQ(RunTool({"get", path, std::to_string(count - 1)}).out, "value of " + std::to_string(count - 1) + "\n");
  EXPECT_EQ(RunTool({"export", path, "-"}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path, "0"}).out, "value of 0\n");
  EXPECT_EQ(RunTool({"verify", path}).out, path + ": ok, " + std::to_string(count) + " records\n");
  std::vector<std::string> remove = {"remove", path};
  for (int i = 0; i < 10; ++i) remove.push_back(std::to_string(i));
  ASSERT_TRUE(disk.Enlarge(8 << 20));
  EXPECT_EQ(RunTool(remove).exit_code, 0);
  EXPECT_EQ(RunTool({"count", path}).out, std::to_string(count - 10) + "\n");
}

TEST_F(Hardship, FailedCreateLeavesNoFile) {
  const std::string path = dir_.File("big.hkh");
  const ToolResult result = RunTool({"create", path + "?reserve_bytes=1m", "--num_records", "1m"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(StartsWith("hako: " + path + ": cannot grow to "), HasSubstr("raise the limit")));
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_EQ(RunTool({"create", path_ + "?reserve_bytes=1m", "--truncate", "--num_records", "1m"}).exit_code, 3);
  EXPECT_EQ(access(path_.c_str(), F_OK), 0) << "was there before";
  EXPECT_EQ(RunTool({"create", path_, "--truncate"}).exit_code, 0);
}

TEST_F(Hardship, ClosedPipeEndsQuietly) {
  ASSERT_EQ(RunTool({"import", path_}, NumberedLines(0, 100'000)).exit_code, 0);
  for (const std::string command : {"export $DB", "list $DB --items -1", "search $DB 1 --items -1"}) {
    const std::string line = "{ $HAKO " + command + "; echo $? > code; } | head -c 10 > /dev/null; exit $(cat code)";
    EXPECT_EQ(Shell(line, 141), "") << "as if by the signal, but in order";
  }
}

// A change is made although the sum cannot be printed.
TEST_F(Hardship, EveryCommandReportsAFailedWrite) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  for (const std::string command : {"--help", "--version", "man", "completion bash", "help get", "list $DB", "get $DB 0", "verify $DB",
                                    "inspect $DB", "count $DB", "export $DB"}) {
    EXPECT_THAT(Shell("$HAKO " + command + " > /dev/full", 3),
                AllOf(StartsWith("hako: standard output: "), HasSubstr("No space left on device; free some space")))
        << command;
  }
  EXPECT_THAT(Shell("$HAKO perf sequence --dbm tiny --iter 10 > /dev/full", 3), StartsWith("hako: standard output: cannot write"));
}

// The next file opened must not take the descriptor of a closed stream.
TEST_F(Hardship, ClosedStreamsAreHarmless) {
  EXPECT_EQ(Shell("$HAKO set $DB k v >&-", 0), "");
  EXPECT_THAT(Shell("$HAKO get $DB k >&-", 3), HasSubstr("hako: standard output: cannot write: "));
  Shell("$HAKO get $DB absent 2>&-", 1);
  Shell("$HAKO import $DB /no/such/text 2>&- >&- <&-", 3);
  Shell("$HAKO set $DB k --append , w --no_overwrite 2>&-", 2);
  EXPECT_THAT(Shell("$HAKO import new.hkh <&-", 3), HasSubstr("hako: standard input: cannot read: "));
  EXPECT_EQ(RunTool({"get", path_, "k"}).out, "v\n");
}

TEST_F(Hardship, CopyDoesNotReplaceAnOpenDatabase) {
  const std::string other = dir_.File("b.hkh");
  ASSERT_EQ(RunTool({"create", other}).exit_code, 0);
  auto held = MemoryMapParallelFile::Open(other, {.mode = OpenMode::kReadWrite});
  ASSERT_THAT(held, IsOk());
  const ToolResult refused = RunTool({"copy", path_, other, "--force"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, StartsWith("hako: " + other + ": locked: another process has it open; "));
  ASSERT_THAT(held->Close(), IsOk());
  EXPECT_EQ(RunTool({"count", other}).out, "0\n");
  EXPECT_EQ(RunTool({"copy", path_, other, "--force"}).exit_code, 0);
  EXPECT_EQ(RunTool({"count", other}).out, "1000\n");
}

TEST_F(Hardship, ForeignFilesStayUnchanged) {
  const std::string text = "this is no database\n";
  for (const char* name : {"text.hkh", "text.hkt", "text.hks"}) {
    const std::string path = dir_.File(name);
    WriteWhole(path, text);
    for (const Args& command : {Args{"set", path, "k", "v"}, Args{"import", path}, Args{"create", path}, Args{"rebuild", path},
                                Args{"copy", path, dir_.File("copy.hkh")}, Args{"merge", path, path_}, Args{"get", path, "k"}}) {
      const ToolResult result = RunTool(command);
      EXPECT_TRUE(result.exit_code == 3 || (command[0] == "copy" && result.exit_code == 2)) << command[0];
      EXPECT_THAT(result.err, AllOf(StartsWith("hako"), HasSubstr("; "), Not(HasSubstr(path + ": " + path))));
      EXPECT_EQ(ReadWhole(path), text) << command[0];
    }
  }
}

}  // namespace
}  // namespace hako
