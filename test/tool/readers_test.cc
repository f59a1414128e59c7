// The commands that read, beside a process that writes the tree: they show its last checkpoint.
#include <filesystem>
#include <memory>
#include <string>

#include "hako/dbm/tree_dbm.h"
#include "support/status_matchers.h"
#include "tool/tool_test.h"

namespace hako {
namespace {

class Readers : public ToolTest {
 protected:
  Readers() : ToolTest("a.hkt") {}
};

TEST_F(Readers, CommandsThatReadShowTheLastCheckpoint) {
  ASSERT_OK_AND_ASSIGN(const auto db, TreeDBM<>::Open(path_));
  for (int i = 0; i < 100; ++i) ASSERT_THAT(db->Set("key" + std::to_string(100 + i), "old"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  for (int i = 0; i < 200; ++i) ASSERT_THAT(db->Set("key" + std::to_string(100 + i), "new"), IsOk());
  const auto run = [&](const std::vector<std::string>& command) {
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 0) << command[0] << ": " << result.err;
    return result.out;
  };
  EXPECT_EQ(run({"get", path_, "key123"}), "old\n");
  EXPECT_EQ(run({"count", path_}), "100\n");
  EXPECT_EQ(run({"list", path_, "--from", "key198"}), "key198\told\nkey199\told\n");
  EXPECT_THAT(run({"export", path_}), StartsWith("key100\told\n"));
  EXPECT_EQ(run({"inspect", path_, "num_records"}), "100\n");
  EXPECT_THAT(run({"verify", path_}), HasSubstr("ok, 100 records"));
  EXPECT_THAT(run({"scrub", path_}), HasSubstr("ok"));
  run({"copy", path_, dir_.File("copy.hkt")});
  EXPECT_EQ(run({"count", dir_.File("copy.hkt")}), "100\n");
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_EQ(run({"get", path_, "key123"}), "new\n");
  EXPECT_EQ(run({"count", path_}), "200\n");
  EXPECT_EQ(RunTool({"set", path_, "a", "b"}).exit_code, 4);
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_ + "-readers"));
  run({"set", path_, "a", "b"});
}

}  // namespace
}  // namespace hako
