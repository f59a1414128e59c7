// Ordered databases: list, merge and copy, and that the help names the kinds.
#include <stdio.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tool/tool_test.h"

namespace hako {
namespace {

using testing::IsEmpty;

class Ordered : public ToolTest, public testing::WithParamInterface<const char*> {
 protected:
  Ordered() : ToolTest(GetParam()) {}
  void SetUp() override {
    const std::string text = "banana\t3\napricot\t2\nb\t5\napple\t1\n\xff\xfe\t6\nax\t4\n";
    ASSERT_EQ(RunTool({"import", path_}, text).exit_code, 0);
  }

  std::vector<std::string> List(const std::vector<std::string>& options) {
    std::vector<std::string> command = {"list", path_, "--keys", "--escape"};
    command.insert(command.end(), options.begin(), options.end());
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return SplitLines(result.out);
  }
};

TEST_P(Ordered, ListIsInKeyOrderInBothDirections) {
  EXPECT_THAT(List({}), ElementsAre("apple", "apricot", "ax", "b", "banana", "\\xff\\xfe"));
  EXPECT_THAT(List({"--reverse"}), ElementsAre("\\xff\\xfe", "banana", "b", "ax", "apricot", "apple"));
  EXPECT_THAT(List({"--reverse", "--items", "2"}), ElementsAre("\\xff\\xfe", "banana"));
  EXPECT_THAT(List({"--move", "first", "--reverse"}), ElementsAre("apple"));
}

TEST_P(Ordered, ListByPrefixEndsAfterThePrefix) {
  EXPECT_THAT(List({"--prefix", "ap"}), ElementsAre("apple", "apricot"));
  EXPECT_THAT(List({"--prefix", "ap", "--reverse"}), ElementsAre("apricot", "apple"));
  EXPECT_THAT(List({"--prefix", "b"}), ElementsAre("b", "banana"));
  EXPECT_THAT(List({"--prefix", "\\xff", "--unescape"}), ElementsAre("\\xff\\xfe"));
  EXPECT_THAT(List({"--prefix", "\\xff", "--unescape", "--reverse"}), ElementsAre("\\xff\\xfe"));
  EXPECT_THAT(List({"--prefix", "aq"}), IsEmpty());
  EXPECT_THAT(List({"--prefix", "aq", "--reverse"}), IsEmpty());
  EXPECT_THAT(List({"--prefix", "b", "--move", "first"}), ElementsAre("b", "banana"));
  EXPECT_EQ(RunTool({"list", path_, "--prefix", "ap", "--items", "2"}).err, "");
  EXPECT_THAT(RunTool({"list", path_, "--prefix", "ap", "--items", "1"}).err, HasSubstr("the first 1; --items -1 lists all"));
}

TEST_P(Ordered, ListStaysWithinItsBounds) {
  EXPECT_THAT(List({"--from", "apricot", "--to", "banana"}), ElementsAre("apricot", "ax", "b"));
  EXPECT_THAT(List({"--from", "apricot", "--to", "banana", "--reverse"}), ElementsAre("b", "ax", "apricot"));
  EXPECT_THAT(List({"--from", "aq", "--items", "2"}), ElementsAre("ax", "b"));
  EXPECT_THAT(List({"--to", "aq"}), ElementsAre("apple", "apricot"));
  EXPECT_THAT(List({"--to", "aq", "--reverse", "--items", "1"}), ElementsAre("apricot"));
  EXPECT_THAT(List({"--from", "apq", "--prefix", "a"}), ElementsAre("apricot", "ax"));
  EXPECT_THAT(List({"--to", "ax", "--prefix", "a", "--reverse"}), ElementsAre("apricot", "apple"));
  EXPECT_THAT(List({"--from", "a", "--to", "c", "--prefix", "b"}), ElementsAre("b", "banana"));
  EXPECT_THAT(List({"--from", "\\xff", "--unescape"}), ElementsAre("\\xff\\xfe"));
  EXPECT_THAT(List({"--from", "b", "--to", "b"}), IsEmpty());
  EXPECT_THAT(List({"--from", "c", "--to", "b", "--reverse"}), IsEmpty());
  EXPECT_THAT(List({"--to", ""}), IsEmpty());
  EXPECT_THAT(List({"--move", "jump", "--jump_key", "ax", "--to", "banana"}), ElementsAre("ax", "b"));
  EXPECT_THAT(List({"--move", "first", "--from", "b", "--to", "c"}), ElementsAre("b", "banana"));
  EXPECT_THAT(RunTool({"list", path_, "--from", "b", "--items", "1"}).err, HasSubstr("the first 1; --items -1 lists all"));
}

TEST_P(Ordered, ListStartsAtTheGivenKey) {
  const auto from = [this](const std::string& move, const std::string& key, const std::vector<std::string>& more = {"--items", "2"}) {
    std::vector<std::string> options = {"--move", move, "--jump_key", key};
    options.insert(options.end(), more.begin(), more.end());
    return List(options);
  };
  EXPECT_THAT(from("jump", "ax"), ElementsAre("ax", "b"));
  EXPECT_THAT(from("jump", "ay"), ElementsAre("b", "banana"));
  EXPECT_THAT(from("jumplower", "ax"), ElementsAre("apricot", "ax"));
  EXPECT_THAT(from("jumplowerinc", "ax"), ElementsAre("ax", "b"));
  EXPECT_THAT(from("jumpupper", "ax"), ElementsAre("b", "banana"));
  EXPECT_THAT(from("jumpupperinc", "ax"), ElementsAre("ax", "b"));
  EXPECT_THAT(from("jumplower", "ax", {"--reverse"}), ElementsAre("apricot", "apple"));
  EXPECT_THAT(from("jump", "b", {"--reverse", "--prefix", "a"}), ElementsAre("ax", "apricot", "apple"));
  const ToolResult none = RunTool({"list", path_, "--move", "jumplower", "--jump_key", "a"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("no record at the key to jump to"));
}

TEST_P(Ordered, RefusesTooLongKeys) {
  EXPECT_EQ(RunTool({"set", path_, std::string(4096, 'k'), "v"}).exit_code, 0);
  const ToolResult refused = RunTool({"set", path_, std::string(4097, 'k'), "v"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("4096"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Ordered, testing::Values("fruit.hkt", "fruit.hkt?file=pos,page_size=128", "fruit.hks?dbm=baby"));

TEST(OrderedSnapshot, SnapshotLoadsIntoEitherKind) {
  TempDir dir;
  const std::string path = dir.File("fruit.hks?dbm=baby"), plain = dir.File("fruit.hks"), copy = dir.File("copy.hks");
  ASSERT_EQ(RunTool({"import", path}, "banana\t3\napple\t1\nax\t4\n").exit_code, 0);
  EXPECT_EQ(RunTool({"get", plain, "ax"}).out, "4\n") << "as a tiny one";
  EXPECT_EQ(RunTool({"set", plain, "ay", "7"}).exit_code, 0);
  EXPECT_EQ(RunTool({"list", path, "--keys", "--prefix", "a"}).out, "apple\nax\nay\n");
  EXPECT_EQ(RunTool({"copy", path, copy}).exit_code, 0);
  EXPECT_EQ(RunTool({"list", copy, "--dbm", "baby", "--keys", "--items", "1"}).out, "apple\n");
  EXPECT_EQ(RunTool({"merge", dir.File("all.hkh"), path}).exit_code, 0);
  EXPECT_EQ(RunTool({"count", dir.File("all.hkh")}).out, "4\n");
  EXPECT_EQ(RunTool({"shell", path}, "list --reverse --prefix a --items 1 --keys\n").out, "ay\n");
}

TEST(OrderedHelp, HelpNamesTheKinds) {
  EXPECT_THAT(RunTool({"help", "list"}).out,
              AllOf(HasSubstr("auto|hash|tree|array|tiny|baby"), HasSubstr("jumplowerinc"), HasSubstr("--from KEY")));
  EXPECT_THAT(RunTool({"help", "perf", "wicked"}).out, AllOf(HasSubstr("auto|hash|tree|tiny|baby"), HasSubstr("--max_page_size")));
  EXPECT_THAT(RunTool({"man"}).out,
              AllOf(HasSubstr("auto|hash|tree|array|tiny|baby"), HasSubstr("page_size, max_bytes, width, cache_bytes, checkpoint_bytes")));
  for (const std::string shell : {"bash", "zsh", "fish"})
    EXPECT_THAT(RunTool({"completion", shell}).out, HasSubstr("auto hash tree tiny baby")) << shell;
}

class Array : public ToolTest {
 protected:
  Array() : ToolTest("a.hka") {}
  void SetUp() override { ASSERT_EQ(RunTool({"create", path_ + "?width=8"}).exit_code, 0); }
};

TEST_F(Array, KeysAreNumbersInTheirOrder) {
  ASSERT_EQ(RunTool({"import", path_}, "10\tten\n9\tnine\n1000000000000\tfar\n").exit_code, 0);
  EXPECT_EQ(RunTool({"list", path_, "--keys"}).out, "9\n10\n1000000000000\n");
  EXPECT_EQ(RunTool({"list", path_, "--keys", "--reverse"}).out, "1000000000000\n10\n9\n");
  EXPECT_EQ(RunTool({"list", path_, "--keys", "--from", "9", "--to", "11"}).out, "9\n10\n");
  EXPECT_EQ(RunTool({"list", path_, "--keys", "--from", "10"}).out, "10\n1000000000000\n");
  EXPECT_EQ(RunTool({"list", path_, "--keys", "--prefix", "1"}).out, "10\n1000000000000\n");
  EXPECT_EQ(RunTool({"get", path_, "10"}).out, std::string("ten\0\0\0\0\0\n", 9));
  const ToolResult word = RunTool({"set", path_, "ten", "x"});
  EXPECT_EQ(word.exit_code, 3);
  EXPECT_THAT(word.err, HasSubstr("the key 'ten' is not the number of a record: 0 to 1099511627775, in decimal"));
  EXPECT_THAT(RunTool({"set", path_, "1", "more than eight"}).err, HasSubstr("exceeds the limit of 8 bytes"));
  EXPECT_THAT(RunTool({"create", dir_.File("b.hka")}).err, HasSubstr("width"));
}

// The pipe holds the command back until all records have expired: they had not at the moment that is listed.
TEST(OrderedMomentTest, ListShowsOneMomentWhileRecordsExpire) {
  static constexpr std::uint64_t kRecords = 3'000;
  const TempDir dir(TempDir::MemoryParent());
  const auto now = [] {
    const auto time = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  for (std::uint64_t seconds = 2;; seconds *= 2) {
    const std::string path = dir.File(std::to_string(seconds) + ".hkt");
    const std::uint64_t expire_at = now() + seconds * 1'000;
    std::string text;
    for (std::uint64_t i = 0; i < kRecords; ++i)
      text += std::to_string(10'000 + i) + "\t" + std::to_string(expire_at) + "\t" + std::string(200, 'v') + "\n";
    ASSERT_EQ(RunTool({"import", path + "?expiry=true", "--times"}, text).exit_code, 0);
    FILE* const listing = popen((HAKO_TOOL_PATH " list --items -1 " + path).c_str(), "r");
    ASSERT_NE(listing, nullptr);
    char line[1024];
    std::uint64_t num_listed = fgets(line, sizeof(line), listing) != nullptr ? 1 : 0;
    const bool has_begun = now() < expire_at;  // false: the machine is slow
    while (has_begun && now() < expire_at + 100) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    while (fgets(line, sizeof(line), listing) != nullptr) ++num_listed;
    EXPECT_EQ(pclose(listing), 0);
    if (!has_begun) continue;
    EXPECT_EQ(num_listed, kRecords);
    EXPECT_EQ(RunTool({"list", path}).out, "");
    return;
  }
}

}  // namespace
}  // namespace hako
