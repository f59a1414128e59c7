// hako log: what it prints of a log, in text and as JSON, and its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/child_process.h"
#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// A tree whose process has died.
class LogCommand : public testing::Test {
 protected:
  LogCommand() {
    ChildProcess child([this](ChildProcess&) -> int {
      auto db = TreeDBM<>::Open(path_);
      bool ok = db.ok() && (*db)->Set("first", "1\n").ok() && (*db)->Remove("first").ok() && (*db)->Set("long", std::string(500, 'l')).ok();
      WriteBatch batch;
      batch.Set("last", "update of all");
      batch.SetAppliedIndex(99);
      ok = ok && (*db)->Set("apple", "red").ok() && (*db)->RemoveRange("a", "b").ok() && (*db)->Write(batch).ok();
      _exit(ok ? 0 : 1);  // without Close
    });
    EXPECT_EQ(child.Result(), 0);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("casket.hkt");
};

TEST_F(LogCommand, PrintsTheLog) {
  const ToolResult result = RunTool({"log", path_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("casket.hkt-log, "), HasSubstr("\ncheckpoint: LSN 0 of segment 1\n"), HasSubstr("\ntail: complete\n"),
                    HasSubstr("set \"first\" = \"1\\n\"\n"), HasSubstr("remove \"first\"\n"), HasSubstr("... (500 bytes)\n"),
                    HasSubstr("remove range from \"a\" to before \"b\"\n"), HasSubstr("applied index 99\n")));
  EXPECT_THAT(RunTool({"get", path_, "last"}).out, HasSubstr("update of all"));  // nothing was changed
}

TEST_F(LogCommand, LimitsTheUpdates) {
  const ToolResult one = RunTool({"log", path_, "--limit", "1"});
  EXPECT_THAT(one.out,
              AllOf(HasSubstr("set \"first\""), Not(HasSubstr("remove \"first\"")), ContainsRegex("\\.\\.\\. [0-9]+ more; --limit -1")));
  EXPECT_THAT(RunTool({"log", path_, "--limit", "0"}).out, EndsWith("tail: complete\n"));
}

TEST_F(LogCommand, PrintsJson) {
  const ToolResult result = RunTool({"log", path_, "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(ContainsRegex("^\\{\"log\":\".*casket\\.hkt-log\",\"bytes\":[0-9]+,"),
                                HasSubstr("\"checkpoint\":{\"lsn\":0,\"sequence\":1}"), HasSubstr("\"tail\":\"complete\""),
                                ContainsRegex("\\{\"lsn\":[0-9]+,\"op\":\"set\",\"key\":\"first\",\"value\":\"1\\\\n\"\\}"),
                                HasSubstr("\"op\":\"remove range\",\"from\":\"a\",\"to\":\"b\"")));
}

TEST_F(LogCommand, TellsATornTailAndAMissingLog) {
  std::string log = ReadWhole(path_ + "-log");
  log[log.rfind("update of all")] ^= 1;
  WriteWhole(path_ + "-log", log);
  const ToolResult torn = RunTool({"log", path_});
  EXPECT_EQ(torn.exit_code, 0);
  EXPECT_THAT(torn.out, AllOf(HasSubstr("\ntail: torn, "), Not(HasSubstr("\"last\""))));
  ASSERT_EQ(std::remove((path_ + "-log").c_str()), 0);
  const ToolResult missing = RunTool({"log", path_});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, HasSubstr("\ndamage: the log is missing"));
}

TEST_F(LogCommand, ClosedDatabaseHasNone) {
  ASSERT_EQ(RunTool({"set", path_, "key", "value"}).exit_code, 0);
  const ToolResult result = RunTool({"log", path_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("has no log"));
  EXPECT_EQ(RunTool({"log", dir_.File("absent")}).exit_code, 3);
}

}  // namespace
}  // namespace hako
