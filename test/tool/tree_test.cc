// A tree in a file under every command. Its ordered operations are in ordered_test.cc.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tool/tool_test.h"

namespace hako {
namespace {

class TreeFile : public ToolTest {
 protected:
  TreeFile() : ToolTest("a.hkt") {}
  ToolResult Run(std::vector<std::string> command, std::string_view input = {}) {
    const ToolResult result = RunTool(command, input);
    EXPECT_EQ(result.exit_code, 0) << command[0] << ": " << result.err;
    return result;
  }
  void TearDown() override {
    if (std::filesystem::exists(path_)) ToolTest::TearDown();
  }
};

TEST_F(TreeFile, CreatesAndInspects) {
  Run({"create", path_, "--max_page_size", "512"});
  EXPECT_EQ(RunTool({"create", path_}).exit_code, 3) << "it exists";
  Run({"import", path_}, NumberedLines(0, 1000));
  EXPECT_EQ(Run({"inspect", path_, "class"}).out, "TreeDBM\n");
  EXPECT_EQ(Run({"inspect", path_, "comparator"}).out, "bytewise\n");
  const auto found = nlohmann::json::parse(Run({"inspect", path_, "--json", "--validate"}).out);
  EXPECT_EQ(found.at("num_records"), 1000);
  EXPECT_EQ(found.at("validated"), true);
  EXPECT_EQ(found.at("file_size"), std::filesystem::file_size(path_));
  EXPECT_GT(found.at("stats").at("num_buckets"), 40) << "leaves of 512 bytes at most";
  EXPECT_EQ(Run({"count", path_}).out, "1000\n");
  EXPECT_EQ(Run({"verify", path_}).out, path_ + ": ok, 1000 records\n");
  Run({"create", path_, "--truncate"});
  EXPECT_EQ(Run({"count", path_}).out, "0\n");
}

TEST_F(TreeFile, SetsAndGetsRecords) {
  Run({"create", path_});
  Run({"set", path_, "k", "v"});
  Run({"set", path_, "k", "w", "--append", ","});
  EXPECT_EQ(RunTool({"set", path_, "k", "x", "--no_overwrite"}).exit_code, 1);
  EXPECT_EQ(Run({"get", path_, "k"}).out, "v,w\n");
  Run({"set", path_, "visits", "--incr", "2"});
  Run({"set", path_, "safe", "1", "--durability", "power"});
  EXPECT_EQ(Run({"get", path_, "k", "safe", "--multi"}).out, "k\tv,w\nsafe\t1\n");
  Run({"rekey", path_, "k", "key"});
  EXPECT_EQ(RunTool({"get", path_, "k"}).exit_code, 1);
  Run({"remove", path_, "visits", "safe"});
  EXPECT_EQ(Run({"list", path_}).out, "key\tv,w\n");
  const std::string large(100'000, 'x');
  Run({"set", path_, "large", large, "--file", "pos"});
  EXPECT_EQ(Run({"get", path_, "large"}).out, large + "\n") << "it lies outside of the pages";
  EXPECT_EQ(Run({"search", path_, "^l", "--mode", "regex", "--keys"}).out, "large\n");
  EXPECT_EQ(Run({"shell", path_}, "set a 1\nset b 2\nlist --from b --to c\n").out, "b\t2\n");
}

TEST_F(TreeFile, ExportsImportedTextInOrder) {
  const std::string text = "\t1\na\\tb\t2\nb\t3\n\xff\t4\n";
  Run({"import", path_}, text);
  EXPECT_EQ(Run({"export", path_, "-"}).out, text);
  for (const std::string name : {"b.tsv", "b.jsonl", "b.dump"}) {
    const std::string file = dir_.File(name), copy = dir_.File(name + ".hkt");
    Run({"export", path_, file});
    Run({"import", copy, file});
    EXPECT_EQ(Run({"export", copy, "-"}).out, text) << name;
  }
}

TEST_F(TreeFile, RebuildShrinksTheFile) {
  std::string lines;
  std::vector<std::string> remove = {"remove", path_};
  for (int i = 0; i < 4000; ++i) {
    lines += std::to_string(i) + "\t" + std::string(1000, 'v') + "\n";
    if (i % 1000 >= 100) remove.push_back(std::to_string(i));
  }
  Run({"import", path_}, lines);
  EXPECT_EQ(RunTool({"rebuild", path_, "--if_needed"}).exit_code, 1);
  Run(remove);
  EXPECT_GT(nlohmann::json::parse(Run({"inspect", path_, "--json"}).out).at("stats").at("free_bytes"), 2'000'000);
  EXPECT_EQ(RunTool({"rebuild", path_, "--dry_run"}).exit_code, 0) << "it should be";
  const auto before = std::filesystem::file_size(path_);
  Run({"rebuild", path_, "--if_needed"});
  EXPECT_LT(std::filesystem::file_size(path_), before / 4);
  EXPECT_EQ(Run({"count", path_}).out, "400\n");
  EXPECT_EQ(RunTool({"rebuild", path_, "--dry_run"}).exit_code, 1);
}

TEST_F(TreeFile, CopiesAndMergesWithOtherKinds) {
  const std::string copy = dir_.File("copy.hkt"), hash = dir_.File("b.hkh"), all = dir_.File("all.hkt");
  Run({"import", path_}, NumberedLines(0, 100));
  Run({"copy", path_, copy});
  EXPECT_EQ(Run({"export", copy, "-"}).out, Run({"export", path_, "-"}).out);
  EXPECT_EQ(RunTool({"copy", path_, copy}).exit_code, 3) << "it exists";
  Run({"copy", path_, copy, "--force"});
  Run({"import", hash}, NumberedLines(50, 150));
  Run({"merge", all, hash, path_});
  EXPECT_EQ(Run({"verify", all}).out, all + ": ok, 150 records\n");
  EXPECT_EQ(Run({"list", all, "--keys", "--from", "148"}).out.substr(0, 8), "148\n149\n");
  Run({"merge", hash, path_});
  EXPECT_EQ(Run({"count", hash}).out, "150\n");
}

TEST_F(TreeFile, RefusesOtherFiles) {
  const std::string hash = dir_.File("b.hkh");
  Run({"create", hash});
  Run({"create", path_});
  for (const auto& [name, kind] : {std::pair(hash, "tree"), {path_, "hash"}, {path_, "tiny"}}) {
    const ToolResult refused = RunTool({"get", name, "k", "--dbm", kind});
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    EXPECT_THAT(refused.err, StartsWith("hako: " + name + ": ")) << kind;
  }
  const ToolResult absent = RunTool({"get", dir_.File("none.hkt"), "k"});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, HasSubstr("no such file"));
}

TEST_F(TreeFile, DamageIsReported) {
  Run({"import", path_}, NumberedLines(0, 5000));
  std::string bytes = ReadWhole(path_);
  const std::string whole = bytes;
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteWhole(path_, bytes);
  const ToolResult result = RunTool({"verify", path_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("damaged: "));
  const ToolResult listed = RunTool({"export", path_, "-"});
  EXPECT_EQ(listed.exit_code, 3) << listed.err;
  EXPECT_THAT(NumberedLines(0, 5000).size(), testing::Gt(listed.out.size()));
  WriteWhole(path_, whole);
}

}  // namespace
}  // namespace hako
