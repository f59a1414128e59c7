// The commands that read, beside a process that writes the tree: they show its last checkpoint.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
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

std::vector<std::vector<std::string>> CellsOf(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) lines.push_back(absl::StrSplit(line, ' ', absl::SkipEmpty()));
  return lines;
}

TEST_F(Readers, StatShowsTheFiguresBesideAWriter) {
  ASSERT_OK_AND_ASSIGN(const auto db, TreeDBM<>::Open(path_));
  const auto write = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_THAT(db->Set("key" + std::to_string(i), "value"), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  };
  write(100);
  ToolResult result = RunTool({"stat", path_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  auto lines = CellsOf(result.out);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], ElementsAre("checkpoint_at", "checkpoints", "per_s", "records", "per_s", "logged/s", "file", "free", "kept",
                                    "readers", "oldest_s"));
  ASSERT_THAT(lines[1], SizeIs(11));
  const Stats stats = db->GetStats();
  EXPECT_EQ(lines[1][1], std::to_string(stats.epoch));
  EXPECT_EQ(lines[1][3], "100");
  EXPECT_EQ(lines[1][6], std::to_string(stats.total_bytes));
  EXPECT_EQ(lines[1][7], "-");  // no checkpoint has found a reader
  EXPECT_EQ(lines[1][9], "0");
  EXPECT_EQ(lines[1][10], "-");
  ASSERT_OK_AND_ASSIGN(const auto reader, TreeDBM<>::Open(path_, {}, {.mode = OpenMode::kReadOnly}));
  for (int i = 0; i < 3; ++i) write(200);
  lines = CellsOf(RunTool({"stat", path_}).out);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[1][3], "200");
  EXPECT_EQ(lines[1][7], std::to_string(db->GetStats().free_bytes));
  EXPECT_EQ(lines[1][8], std::to_string(db->GetStats().reader_bytes));
  EXPECT_NE(lines[1][8], "0");
  EXPECT_EQ(lines[1][9], "1");
  EXPECT_NE(lines[1][10], "-");
  result = RunTool({"stat", path_, "--watch", "--count", "3", "--interval", "20ms"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  lines = CellsOf(result.out);
  ASSERT_THAT(lines, SizeIs(4));
  for (int i = 2; i < 4; ++i) EXPECT_THAT(std::vector(lines[i].begin() + 2, lines[i].begin() + 6), ElementsAre("0.0", "200", "0.0", "0.0"));
  EXPECT_EQ(RunTool({"stat", dir_.File("b.hkh")}).exit_code, 2);
  EXPECT_EQ(RunTool({"stat", dir_.File("absent.hkt")}).exit_code, 3);
}

}  // namespace
}  // namespace hako
