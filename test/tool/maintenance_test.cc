// rebuild, copy, merge, rekey, search, and databases in memory behind a snapshot file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class Maintenance : public testing::Test {
 protected:
  // Verifies the databases at the end of every test.
  void TearDown() override {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      const std::string path = entry.path();
      if (!path.ends_with(".hkh") && !path.ends_with(".hkt") && !path.ends_with(".hks")) continue;
      EXPECT_EQ(RunTool({"verify", path}).exit_code, 0) << path;
    }
  }
  void Import(const std::string& path, const std::string& text) { ASSERT_EQ(RunTool({"import", path}, text).exit_code, 0); }
  std::vector<std::string> List(const std::string& path) { return SplitLines(RunTool({"list", path, "--items", "-1"}).out); }
  static std::string Numbered(int begin, int end, const std::string& value) {
    std::string text;
    for (int i = begin; i < end; ++i) text += "key" + std::to_string(i) + "\t" + value + "\n";
    return text;
  }

  TempDir dir_;
  const std::string a_ = dir_.File("a.hkh"), b_ = dir_.File("b.hkh");
};

TEST_F(Maintenance, RebuildShrinksTheFile) {
  Import(a_, Numbered(0, 20000, std::string(300, 'v')));
  EXPECT_EQ(RunTool({"rebuild", a_, "--dry_run"}).exit_code, 1);
  const ToolResult unneeded = RunTool({"rebuild", a_, "--if_needed"});
  EXPECT_EQ(unneeded.exit_code, 1);
  EXPECT_EQ(unneeded.err, "hako: " + a_ + ": need not be rebuilt\n");
  std::vector<std::string> remove = {"remove", a_};
  for (int i = 0; i < 20000; ++i) {
    if (i % 10 != 0) remove.push_back("key" + std::to_string(i));
  }
  ASSERT_EQ(RunTool(remove).exit_code, 0);
  const auto before = std::filesystem::file_size(a_);
  const std::vector<std::string> records = List(a_);
  const ToolResult needed = RunTool({"rebuild", a_, "--dry-run"});
  EXPECT_EQ(needed.exit_code, 0);
  EXPECT_EQ(needed.err, "hako: " + a_ + ": should be rebuilt\n");
  EXPECT_EQ(std::filesystem::file_size(a_), before) << "only tells";
  const ToolResult rebuilt = RunTool({"rebuild", a_, "--if_needed"});
  EXPECT_EQ(rebuilt.exit_code, 0);
  EXPECT_THAT(rebuilt.err, AllOf(StartsWith("hako: " + a_ + ": rebuilt, "), EndsWith(" after\n")));
  EXPECT_LT(std::filesystem::file_size(a_), before / 2);
  EXPECT_THAT(List(a_), testing::UnorderedElementsAreArray(records));
}

TEST_F(Maintenance, CopyCreatesACompleteDatabase) {
  Import(a_, Numbered(0, 100, "v"));
  EXPECT_EQ(RunTool({"count", a_}).out, "100\n");
  EXPECT_EQ(RunTool({"copy", a_, b_}).exit_code, 0);
  EXPECT_THAT(List(b_), testing::UnorderedElementsAreArray(List(a_)));
  const ToolResult again = RunTool({"copy", a_, b_});
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_EQ(again.err, "hako: " + b_ + ": the file exists; choose another name, or replace it with --force\n");
  Import(a_, "more\tand more\n");
  EXPECT_EQ(RunTool({"copy", a_, b_, "--force"}).exit_code, 0);
  EXPECT_THAT(List(b_), testing::UnorderedElementsAreArray(List(a_)));
  EXPECT_EQ(
      RunTool({"copy", a_, dir_.path() + "/../" + std::filesystem::path(dir_.path()).filename().string() + "/a.hkh", "--force"}).exit_code,
      2);
  const ToolResult nowhere = RunTool({"copy", a_, dir_.File("no/such.hkh")});
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("no such directory"));
  EXPECT_EQ(RunTool({"copy", dir_.File("absent.hkh"), dir_.File("c.hkh")}).exit_code, 3);
  EXPECT_NE(access(dir_.File("c.hkh").c_str(), F_OK), 0);
}

TEST_F(Maintenance, MergeAddsTheRecordsOfOthers) {
  Import(a_, "k\tof a\nonly a\t1\n");
  Import(b_, "k\tof b\nonly b\t2\n");
  const std::string c = dir_.File("c.hks"), d = dir_.File("d.hkh");
  Import(c, "k\tof c\n");
  const ToolResult merged = RunTool({"merge", d, a_, b_, c});
  EXPECT_EQ(merged.exit_code, 0);
  EXPECT_THAT(SplitLines(merged.err),
              ElementsAre("hako: " + a_ + ": 2 records merged into " + d, "hako: " + b_ + ": 2 records merged into " + d,
                          "hako: " + c + ": 1 record merged into " + d));
  EXPECT_THAT(List(d), UnorderedElementsAre("k\tof c", "only a\t1", "only b\t2"));
  EXPECT_EQ(RunTool({"merge", a_, b_, "--no_overwrite"}).exit_code, 0);
  EXPECT_THAT(List(a_), UnorderedElementsAre("k\tof a", "only a\t1", "only b\t2"));
  EXPECT_EQ(RunTool({"merge", a_, a_}).exit_code, 2);
  const ToolResult absent = RunTool({"merge", a_, dir_.File("absent.hkh")});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, StartsWith("hako: " + dir_.File("absent.hkh") + ": no such file"));
}

TEST_F(Maintenance, MergeKeepsTheTimesOfRecords) {
  const std::string from = dir_.File("from.hkh"), to = dir_.File("to.hkt?expiry=true");
  ASSERT_EQ(RunTool({"create", from + "?expiry=true"}).exit_code, 0);
  ASSERT_EQ(RunTool({"set", from, "k", "v", "--expire_at", "2100-01-01T00:00Z"}).exit_code, 0);
  EXPECT_EQ(RunTool({"merge", to, from}).exit_code, 0);
  EXPECT_EQ(RunTool({"expire", dir_.File("to.hkt"), "k"}).out, "2100-01-01T00:00:00.000Z\n");
  const ToolResult plain = RunTool({"merge", a_, from});  // as import refuses such a record
  EXPECT_EQ(plain.exit_code, 3);
  EXPECT_THAT(plain.err, HasSubstr("without the option expiry"));
  EXPECT_THAT(List(a_), testing::IsEmpty());
}

TEST_F(Maintenance, NameOfACopyTakesNoOptions) {
  Import(a_, "k\tv\n");
  const ToolResult copied = RunTool({"copy", a_, dir_.File("c.hkh?expiry=true")});
  EXPECT_EQ(copied.exit_code, 2);
  EXPECT_THAT(copied.err, HasSubstr("its name takes none"));
  EXPECT_FALSE(std::filesystem::exists(dir_.File("c.hkh?expiry=true")));
}

TEST_F(Maintenance, CopyKeepsRestrictivePermissions) {
  Import(a_, "k\tv\n");
  const std::string copy = dir_.File("copy.hkh");
  ASSERT_EQ(chmod(a_.c_str(), 0600), 0);
  EXPECT_EQ(RunTool({"copy", a_, copy}).exit_code, 0);
  struct stat info = {};
  ASSERT_EQ(stat(copy.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_EQ(chmod(copy.c_str(), 0640), 0);
  EXPECT_EQ(RunTool({"copy", a_, copy, "--force"}).exit_code, 0);
  ASSERT_EQ(stat(copy.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u) << "that of the file that it replaces";
}

TEST_F(Maintenance, RekeyMovesARecord) {
  Import(a_, "old\tvalue\nother\tx\n");
  EXPECT_EQ(RunTool({"rekey", a_, "old", "new"}).exit_code, 0);
  EXPECT_THAT(List(a_), UnorderedElementsAre("new\tvalue", "other\tx"));
  const ToolResult absent = RunTool({"rekey", a_, "old", "new"});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_EQ(absent.err, "hako: " + a_ + ": no record of key 'old'\n");
  EXPECT_EQ(RunTool({"rekey", a_, "new", "other", "--no_overwrite"}).exit_code, 1);
  EXPECT_EQ(RunTool({"rekey", a_, "new", "new"}).exit_code, 0);
  EXPECT_THAT(List(a_), UnorderedElementsAre("new\tvalue", "other\tx"));
  EXPECT_EQ(RunTool({"rekey", a_, "new", "other"}).exit_code, 0);
  EXPECT_THAT(List(a_), UnorderedElementsAre("other\tvalue"));
}

TEST_F(Maintenance, SearchFindsByModes) {
  Import(a_, "apple\t1\npineapple\t2\nplum\t3\nap+le\t4\n");
  const auto search = [this](const std::vector<std::string>& args) {
    std::vector<std::string> command = {"search", a_, "--keys"};
    command.insert(command.end(), args.begin(), args.end());
    return SplitLines(RunTool(command).out);
  };
  EXPECT_THAT(search({"ap"}), UnorderedElementsAre("apple", "pineapple", "ap+le"));
  EXPECT_THAT(search({"ap", "--mode", "begin"}), UnorderedElementsAre("apple", "ap+le"));
  EXPECT_THAT(search({"apple", "--mode", "end"}), UnorderedElementsAre("apple", "pineapple"));
  EXPECT_THAT(search({"^p.*[em]$", "--mode", "regex"}), UnorderedElementsAre("pineapple", "plum"));
  EXPECT_THAT(search({"p+l"}), UnorderedElementsAre("ap+le")) << "no expression without --mode regex";
  EXPECT_THAT(search({"pineappl", "--mode", "edit", "--items", "2"}), testing::ElementsAre("pineapple", "apple")) << "nearest first";
  const ToolResult none = RunTool({"search", a_, "cherry"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.out + none.err, "");
  const ToolResult cut = RunTool({"search", a_, "p", "--items", "2"});
  EXPECT_EQ(cut.exit_code, 0);
  EXPECT_EQ(SplitLines(cut.out).size(), 2u);
  EXPECT_EQ(cut.err, "hako: " + a_ + ": the first 2; --items -1 finds all\n");
}

TEST_F(Maintenance, ListStartsAtAKey) {
  Import(a_, Numbered(0, 50, "v"));
  const std::vector<std::string> all = List(a_);
  const std::string key = all[20].substr(0, all[20].find('\t'));
  const std::vector<std::string> rest = SplitLines(RunTool({"list", a_, "--move", "jump", "--jump_key", key, "--items", "-1"}).out);
  EXPECT_EQ(rest, std::vector<std::string>(all.begin() + 20, all.end()));
  EXPECT_EQ(RunTool({"list", a_, "--move", "jump", "--jump_key", "absent"}).exit_code, 1);
}

TEST_F(Maintenance, SnapshotsSupportTheSameCommands) {
  const std::string path = dir_.File("a.hks");
  EXPECT_EQ(RunTool({"create", path}).exit_code, 0);
  EXPECT_EQ(RunTool({"create", path}).exit_code, 3) << "it exists";
  EXPECT_EQ(RunTool({"set", path, "k", "v"}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path, "k", "w", "--append", ","}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path, "k"}).out, "v,w\n");
  EXPECT_EQ(RunTool({"set", path, "n", "--incr", "5"}).out, "5\n");
  EXPECT_EQ(RunTool({"remove", path, "n"}).exit_code, 0);
  EXPECT_EQ(RunTool({"verify", path}).out, path + ": ok, 1 record\n");
  EXPECT_EQ(nlohmann::json::parse(RunTool({"verify", path, "--json"}).out),
            nlohmann::json({{"file", path}, {"ok", true}, {"num_records", 1}}));
  EXPECT_EQ(nlohmann::json::parse(RunTool({"inspect", path, "--json"}).out).at("attributes").at("class"), "TinyDBM");
  EXPECT_EQ(RunTool({"copy", path, dir_.File("copy.hks")}).exit_code, 0);
  EXPECT_THAT(List(dir_.File("copy.hks")), ElementsAre("k\tv,w"));
  EXPECT_EQ(RunTool({"rebuild", path}).exit_code, 0);
  WriteWhole(dir_.File("text.hks.bad"), std::string(5000, 'x'));
  const ToolResult foreign = RunTool({"get", dir_.File("text.hks.bad"), "--dbm", "tiny", "k"});
  EXPECT_EQ(foreign.exit_code, 3);
  EXPECT_THAT(foreign.err, StartsWith("hako: " + dir_.File("text.hks.bad") + ": "));
}

TEST_F(Maintenance, NamesCarryOptions) {
  EXPECT_EQ(RunTool({"create", a_ + "?num_records=100k,align_pow=4"}).exit_code, 0);
  EXPECT_GT(nlohmann::json::parse(RunTool({"inspect", a_, "--json"}).out).at("stats").at("num_buckets"), 10000);
  const std::string path = dir_.File("plain.db");
  EXPECT_EQ(RunTool({"set", path + "?dbm=hash", "k", "v"}).exit_code, 3) << "is not there yet";
  EXPECT_EQ(RunTool({"create", path + "?dbm=hash"}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path + "?dbm=hash", "k", "v"}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path, "k", "--dbm", "hash"}).out, "v\n");
  EXPECT_EQ(RunTool({"get", path + "?dbm=hash,file=pos", "k"}).out, "v\n");
}

// The pipe of its output is full and not read, so the program is working when the signal arrives.
TEST_F(Maintenance, ASignalStopsAnExport) {
  Import(a_, Numbered(0, 50000, std::string(200, 'v')));
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0600), 0);
  ToolProcess process({"export", a_, dir_.File("pipe"), "--format", "dump"});
  const int reader = open(dir_.File("pipe").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  std::string text(100'000, '\0');
  ASSERT_GT(read(reader, text.data(), text.size()), 0);
  process.Send(SIGINT);
  std::string all;
  for (ssize_t size; (size = read(reader, text.data(), text.size())) > 0;) all.append(text.data(), static_cast<std::size_t>(size));
  close(reader);
  const ToolResult result = process.Finish();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, MatchesRegex("hako: .*a\\.hkh: [0-9,]+ records exported, then stopped by a signal\n"));
  EXPECT_EQ(all.find("DATA=END"), all.npos) << "readers notice that it is not whole";
}

}  // namespace
}  // namespace hako
