// Names and records with control characters are escaped on a terminal.
#include "tool/tool_test.h"

namespace hako {
namespace {

const std::string kNasty = std::string("\x1b[31m \xe2\x80\xae \xc2\x9b\n \x07");

void ExpectHarmless(const std::string& text) {
  for (const char* bad : {"\x1b", "\xe2\x80\xae", "\xc2\x9b", "\x07"}) EXPECT_EQ(text.find(bad), text.npos) << text;
}

TEST(Display, EscapesNamesInMessages) {
  TempDir dir;
  const std::string path = dir.File("a" + kNasty + ".hkh"), text = dir.File("b" + kNasty + ".tsv");
  ASSERT_EQ(RunTool({"create", path}).exit_code, 0);
  for (const std::vector<std::string>& command : {std::vector<std::string>{"get", path, kNasty},
                                                  {"get", text + ".hkh", "k"},
                                                  {"import", path, text},
                                                  {"export", path, path},
                                                  {"get", path},
                                                  {"list", path, kNasty},
                                                  {"get", path, "k", "--" + kNasty},
                                                  {kNasty},
                                                  {"list", path + "?" + kNasty}}) {
    const ToolResult result = RunTool(command);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err, "");
    ExpectHarmless(result.err);
  }
}

TEST(Display, EscapesNamesAndRecordsOnATerminal) {
  TempDir dir;
  const std::string path = dir.File("a" + kNasty + ".hkt");
  ASSERT_EQ(RunTool({"create", path}).exit_code, 0);
  ASSERT_EQ(RunTool({"set", path, "k" + kNasty, "v" + kNasty}).exit_code, 0);
  setenv("NO_COLOR", "1", 1);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"list", path}, {"get", path, "k" + kNasty}, {"verify", path}, {"inspect", path}}) {
    const ToolResult result = RunOnTerminal(command);
    EXPECT_EQ(result.exit_code, 0) << command[0];
    ExpectHarmless(result.out);
  }
  unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace hako
