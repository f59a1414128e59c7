// hako shell on a terminal: editing, history, completion, help.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <optional>

#include "tool/tool_test.h"

namespace hako {
namespace {

class ShellEditing : public ToolTest {
 protected:
  explicit ShellEditing(const std::string& name = "a.hkt") : ToolTest(name) {
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    setenv("HAKO_HISTORY", history_.c_str(), 1);
  }
  void SetUp() override {
    ASSERT_EQ(RunTool({"create", path_}).exit_code, 0);
    Start();
  }
  void TearDown() override {
    process_.reset();
    ToolTest::TearDown();
    unsetenv("TERM");
    unsetenv("NO_COLOR");
    unsetenv("HAKO_HISTORY");
  }

  void Start() {
    process_.emplace(std::vector<std::string>{"shell", path_}, ToolProcess::Screen::kInteractive);
    WaitFor("hako> ", 0);
  }
  // Types, and waits until the terminal shows `wanted` once more than before.
  void Type(const std::string& keys, const std::string& wanted) {
    const std::size_t before = process_->ReadTerminal().size();
    ASSERT_TRUE(process_->Write(keys));
    WaitFor(wanted, before);
  }
  void WaitFor(const std::string& wanted, std::size_t from) {
    constexpr int kTries = 1000;  // 20 s
    for (int i = 0; i < kTries; ++i) {
      if (process_->ReadTerminal(20).find(wanted, from) != std::string::npos) return;
    }
    FAIL() << "the terminal does not show '" << wanted << "': " << process_->ReadTerminal().substr(from);
  }
  ToolResult End() {
    EXPECT_TRUE(process_->Write("\x04"));
    EXPECT_EQ(process_->WaitForEnd(), 0);
    return process_->Finish();
  }

  const std::string history_ = dir_.File("history");
  std::optional<ToolProcess> process_;
};

TEST_F(ShellEditing, KeysMoveTheCursorAndRecallLines) {
  Type("set k vaue\x1b[D\x1b[Dl\r", "hako> ");
  Type("get k\r", "value\r\n");
  Type("\x1b[A\r", "value\r\n");
  const ToolResult result = End();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.find("^[["), std::string::npos) << "no raw escapes";
  EXPECT_EQ(RunTool({"get", path_, "k"}).out, "value\n");
}

TEST_F(ShellEditing, HistoryIsPrivateAndSkipsLinesThatBeginWithABlank) {
  Type("set k first\r", "hako> ");
  Type(" set k secret\r", "hako> ");
  End();
  struct stat info = {};
  ASSERT_EQ(stat(history_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 077, 0u);
  EXPECT_THAT(ReadWhole(history_), AllOf(HasSubstr("first"), Not(HasSubstr("secret"))));
  Start();
  Type("\x1b[A\r", "hako> ");
  End();
  EXPECT_EQ(RunTool({"get", path_, "k"}).out, "first\n");
}

TEST_F(ShellEditing, TabCompletesCommandsOptionsAndKeys) {
  Type("set 'a long key' v1\r", "hako> ");
  Type("cou\t\r", "1\r\n");
  Type("get a\t\r", "v1\r\n");
  Type("list --rev\t--keys\r", "a long key\r\n");
  Type("re\t", "rekey");
  process_->Send(SIGTERM);
  EXPECT_EQ(process_->WaitForEnd(), 0);
}

TEST_F(ShellEditing, InterruptDropsTheLine) {
  Type("set k lost", "lost");
  const std::size_t before = process_->ReadTerminal().size();  // the prompt may come at once
  process_->Send(SIGINT);
  WaitFor("hako> ", before);
  Type("count\r", "0\r\n");
  EXPECT_EQ(End().exit_code, 0);
}

class TableShellEditing : public ShellEditing {
 protected:
  TableShellEditing() : ShellEditing("a.hktb") {}
};

TEST_F(TableShellEditing, TabCompletesStatementsAndKeys) {
  Type("put 'a long key' amount=5\r", "hako> ");
  Type("sel\t am\t wh\t am\t = 5\r", "1 row\r\n");
  Type("get a\t\r", "\"amount\":5}\r\n");
  Type("col\t\r", "amount");
  EXPECT_EQ(End().exit_code, 0);
}

TEST(ShellHelp, ListsTheCommands) {
  TempDir dir;
  const std::string path = dir.File("a.hkh");
  ASSERT_EQ(RunTool({"create", path}).exit_code, 0);
  const ToolResult help = RunTool({"shell", path}, "help\n");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* there : {"  get  ", "  set  ", "  exit  ", "  verify  "}) EXPECT_THAT(help.out, HasSubstr(there));
  for (const char* absent : {"create", "perf", "merge", "completion", "shell"})
    EXPECT_THAT(help.out, Not(HasSubstr(std::string("\n  ") + absent)));
  EXPECT_EQ(RunTool({"shell", path}, "help create\n").exit_code, 2);
  EXPECT_THAT(RunTool({"shell", path}, "help get\n").out, HasSubstr("Usage: hako get"));
}

}  // namespace
}  // namespace hako
