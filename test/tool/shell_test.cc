// hako shell: lines from a pipe and from a terminal.
#include "tool/tool_test.h"

namespace hako {
namespace {

class Shell : public ToolTest {
 protected:
  void SetUp() override { ASSERT_EQ(RunTool({"create", path_}).exit_code, 0); }
};

TEST_F(Shell, RunsACommandPerLine) {
  const ToolResult result = RunTool({"shell", path_},
                                    "# a comment\n\nset k v\nset 'two words' \"a\\\"b\\\\\"\nset empty ''\n  get two\\ words  \r\n"
                                    "get empty\nset n --incr 5\nget -- k # not a key\ncount\nrekey k -- -k\nremove n\nget k");
  EXPECT_EQ(result.exit_code, 1) << "the last key is absent";
  EXPECT_EQ(result.out, "a\"b\\\n\n5\nv\n4\n");
  EXPECT_EQ(result.err, "hako: " + path_ + ": no record of key 'k'\n");
  EXPECT_EQ(RunTool({"get", path_, "--", "-k"}).out, "v\n");
  EXPECT_EQ(RunTool({"count", path_}).out, "3\n");
}

TEST_F(Shell, StopsAtTheFirstErrorFromAPipe) {
  const ToolResult result = RunTool({"shell", path_}, "set a 1\nste b 2\nset c 3\n");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(StartsWith("hako shell: unknown command 'ste'; did you mean 'set'?; the commands are get, set, "),
                                EndsWith("hako shell: stopped at line 2\n")));
  EXPECT_EQ(RunTool({"list", path_}).out, "a\t1\n");
  for (const char* line : {"get 'a", "perf sequence --dbm tiny", "create x.hkh", "import", "import -", "get a --frob", "shell"})
    EXPECT_EQ(RunTool({"shell", path_}, std::string(line) + "\nset d 4\n").exit_code, 2) << line;
  EXPECT_EQ(RunTool({"shell", path_}, "exit\nset d 4\n").exit_code, 0);
  EXPECT_EQ(RunTool({"list", path_}).out, "a\t1\n");
}

TEST_F(Shell, RunsCommandsOnADatabase) {
  WriteWhole(dir_.File("text.tsv"), "x\t1\ny\t2\n");
  for (const std::string& file : {path_, dir_.File("b.hks"), dir_.File("c.db?dbm=hash")}) {
    if (file != path_) {
      ASSERT_EQ(RunTool({"create", file}).exit_code, 0);
    }
    const std::string out = dir_.File("out.tsv"), copy = dir_.File("copy" + std::string(file.ends_with("s") ? ".hks" : ".hkh"));
    std::remove(copy.c_str());
    const ToolResult result =
        RunTool({"shell", file}, "import " + dir_.File("text.tsv") + "\nset z 3 --durability power\nsearch z\nexport " + out + "\ncopy " +
                                     copy + "\nverify\ninspect num_records\nrebuild\nhelp get\n");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(StartsWith("z\t3\n"), HasSubstr(": ok, 3 records\n3\n"), HasSubstr("Usage: hako get")));
    EXPECT_EQ(SplitLines(ReadWhole(out)).size(), 3u);
    EXPECT_EQ(RunTool({"count", copy}).out, "3\n");
    EXPECT_EQ(RunTool({"count", file}).out, "3\n");
  }
}

TEST_F(Shell, KeepsTheDatabaseLocked) {
  ToolProcess process({"shell", path_}, ToolProcess::Screen::kTerminal);
  ASSERT_TRUE(process.Write("set k v\nget k\n"));
  while (process.ReadTerminal(100).find("v\r\n") == std::string::npos) {
  }
  EXPECT_EQ(RunTool({"get", path_, "k"}).exit_code, 4);
  process.Send(SIGINT);
  ASSERT_EQ(process.WaitForEnd(), 0);
  EXPECT_EQ(process.Finish().exit_code, 130);
  EXPECT_EQ(RunTool({"get", path_, "k"}).out, "v\n");
}

}  // namespace
}  // namespace hako
