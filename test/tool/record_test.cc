// create, get, set, remove, list, inspect, verify, and their errors.
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "hako/file/memory_map_parallel_file.h"
#include "support/status_matchers.h"
#include "tool/tool_test.h"

namespace hako {
namespace {

class Records : public ToolTest {
 protected:
  void SetUp() override { ASSERT_EQ(RunTool({"create", path_}).exit_code, 0); }

  int Set(const std::string& key, const std::string& value) { return RunTool({"set", path_, "--", key, value}).exit_code; }
  std::string Get(const std::string& key) { return RunTool({"get", path_, "--raw", "--", key}).out; }
};

TEST_F(Records, SetGetRemove) {
  EXPECT_EQ(Set("key", "value"), 0);
  const ToolResult got = RunTool({"get", path_, "key"});
  EXPECT_EQ(got.exit_code, 0);
  EXPECT_EQ(got.out, "value\n");
  EXPECT_EQ(got.err, "");
  EXPECT_EQ(Set("key", "other"), 0);
  EXPECT_EQ(Get("key"), "other");
  EXPECT_EQ(RunTool({"remove", path_, "key"}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path_, "key"}).exit_code, 1);
}

TEST_F(Records, RecordsExpire) {
  EXPECT_EQ(RunTool({"set", path_, "key", "value", "--ttl", "5"}).exit_code, 3);  // created without the option
  const std::string path = path_ + "-cache.hkh";
  ASSERT_EQ(RunTool({"create", path + "?expiry=true"}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path, "key", "value", "--expire_at", "32503680000000"}).exit_code, 0);
  EXPECT_EQ(RunTool({"expire", path, "key"}).out, "3000-01-01T00:00:00.000Z\n");
  EXPECT_EQ(RunTool({"expire", path, "key", "--json"}).out, "{\"key\":\"key\",\"expire_at\":32503680000000}\n");
  EXPECT_EQ(RunTool({"rekey", path, "key", "other"}).exit_code, 0);
  EXPECT_EQ(RunTool({"export", path, "--format", "jsonl"}).out, "{\"key\":\"other\",\"value\":\"value\",\"expire_at\":32503680000000}\n");
  EXPECT_EQ(RunTool({"export", path, "--times"}).out, "other\t32503680000000\tvalue\n");
  const ToolResult plain = RunTool({"export", path});
  EXPECT_EQ(plain.out, "other\tvalue\n");
  EXPECT_THAT(plain.err, testing::HasSubstr("lacks the time of 1 record"));
  EXPECT_EQ(RunTool({"export", path, "--times", "--format", "dump"}).exit_code, 2);
  EXPECT_EQ(RunTool({"expire", path, "other", "--never"}).exit_code, 0);
  EXPECT_EQ(RunTool({"expire", path, "other"}).out, "never\n");
  EXPECT_EQ(RunTool({"expire", path, "other", "--never", "--ttl", "5"}).exit_code, 2);
  EXPECT_EQ(RunTool({"expire", path, "other", "--expire_at", "1"}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path, "other"}).exit_code, 1);
  EXPECT_EQ(RunTool({"expire", path, "other"}).exit_code, 1);
  EXPECT_EQ(RunTool({"set", path, "key", "1", "--append", ",", "--ttl", "5"}).exit_code, 2);
}

TEST_F(Records, TimesAreTakenAsPeopleWriteThem) {
  const std::string path = path_ + "-cache.hkh";
  ASSERT_EQ(RunTool({"create", path + "?expiry=true"}).exit_code, 0);
  const auto expiry = [&path] {
    return std::stoull(RunTool({"expire", path, "k", "--json"}).out.substr(std::string("{\"key\":\"k\",\"expire_at\":").size()));
  };
  const auto now = [] {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  };
  for (const auto& [text, milliseconds] : {std::pair<const char*, std::uint64_t>{"60s", 60'000},
                                           {"60000", 60'000},
                                           {"5m", 300'000},
                                           {"2h", 7'200'000},
                                           {"7d", 604'800'000},
                                           {"59999ms", 59'999}}) {
    const std::uint64_t before = now();
    ASSERT_EQ(RunTool({"set", path, "k", "v", "--ttl", text}).exit_code, 0) << text;
    EXPECT_GE(expiry(), before + milliseconds) << text;
    EXPECT_LE(expiry(), now() + milliseconds) << text;
  }
  for (const char* text : {"2999-12-31T23:00Z", "3000-01-01T00:00:00+01:00", "@32503676400", "32503676400000"}) {
    ASSERT_EQ(RunTool({"expire", path, "k", "--expire-at", text}).exit_code, 0) << text;
    EXPECT_EQ(RunTool({"expire", path, "k"}).out, "2999-12-31T23:00:00.000Z\n") << text;
  }
  const ToolResult wrong = RunTool({"set", path, "k", "v", "--ttl", "5 min"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, testing::StartsWith("hako set: --ttl: '5 min' is no duration, such as 250ms, 60s, 5m, 2h or 7d\n"));
  EXPECT_EQ(RunTool({"set", path, "k", "v", "--ttl", "0"}).exit_code, 2);
  EXPECT_EQ(RunTool({"set", path, "k", "v", "--ttl", "900us"}).exit_code, 2) << "less than a millisecond";
  EXPECT_EQ(RunTool({"set", path, "k", "v", "--expire_at", "2026-02-30"}).exit_code, 2);
  EXPECT_EQ(RunTool({"get", path, "k", "--wait", "100ms"}).exit_code, 0);
}

TEST_F(Records, AbsentKeysExitWithOneAndAMessage) {
  ASSERT_EQ(Set("here", "1"), 0);
  for (const ToolResult& result : {RunTool({"get", path_, "absent\n"}), RunTool({"remove", path_, "absent\n", "here"})}) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "hako: " + path_ + ": no record of key 'absent\\n'\n");
  }
  EXPECT_EQ(RunTool({"get", path_, "here"}).exit_code, 1) << "the other key was removed all the same";
}

TEST_F(Records, KeysAndValuesAreTakenLiterally) {
  for (const std::string word : {"[a,b]", "{}", "", "-5", "--json", "list", "++", "%%", "a b", "\"q\"", "k=v"}) {
    EXPECT_EQ(Set(word, "<" + word + ">"), 0) << word;
    EXPECT_EQ(Get(word), "<" + word + ">");
    EXPECT_EQ(Set("as value", word), 0) << word;
    EXPECT_EQ(Get("as value"), word);
  }
  EXPECT_EQ(RunTool({"get", path_, "list"}).out, "<list>\n") << "not the command";
  EXPECT_EQ(RunTool({"get", path_, "[a,b]"}).out, "<[a,b]>\n") << "not two keys";
  EXPECT_EQ(RunTool({"get", path_, "{}"}).out, "<{}>\n") << "not no key";
}

TEST_F(Records, NoOverwriteKeepsTheRecord) {
  EXPECT_EQ(RunTool({"set", path_, "k", "first", "--no_overwrite"}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path_, "k", "second", "--no_overwrite"}).exit_code, 1);
  EXPECT_EQ(Get("k"), "first");
}

TEST_F(Records, AppendInsertsADelimiter) {
  EXPECT_EQ(RunTool({"set", path_, "k", "a", "--append", ", "}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path_, "k", "b", "--append", ", "}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path_, "k", "c", "--append", ""}).exit_code, 0);
  EXPECT_EQ(Get("k"), "a, bc");
}

TEST_F(Records, IncrAddsAndPrintsTheSum) {
  EXPECT_EQ(RunTool({"set", path_, "n", "--incr", "10k"}).out, "10000\n");
  EXPECT_EQ(RunTool({"set", path_, "n", "--incr", "-10001"}).out, "-1\n");
  EXPECT_EQ(RunTool({"set", path_, "n", "--incr", "2Ki", "--sync_hard"}).out, "2047\n");
  EXPECT_EQ(Get("n"), std::string("\0\0\0\0\0\0\x07\xff", 8));
  ASSERT_EQ(Set("text", "abc"), 0);
  const ToolResult refused = RunTool({"set", path_, "text", "--incr", "1"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("not an 8-byte number"));
  EXPECT_EQ(Get("text"), "abc");
}

TEST_F(Records, GetMultiPrintsExistingRecords) {
  ASSERT_EQ(Set("a", "1"), 0);
  ASSERT_EQ(Set("b", "2\t"), 0);
  const ToolResult some = RunTool({"get", "--multi", path_, "a", "x", "b", "--tsv"});
  EXPECT_EQ(some.exit_code, 1);
  EXPECT_EQ(some.out, "a\t1\nb\t2\\t\n");
  EXPECT_EQ(RunTool({"get", "--multi", path_, "a", "b"}).exit_code, 0);
}

TEST_F(Records, StylesOfOutput) {
  const std::string value = std::string("\x01\0\xff tab\t\xc3\xa4 \\\n", 13);
  ASSERT_EQ(RunTool({"import", path_, "--format", "jsonl"}, "{\"key\":\"k\",\"value\":{\"b64\":\"AQD/IHRhYgnDpCBcCg==\"}}\n").exit_code, 0);
  ASSERT_EQ(Get("k"), value);
  const auto get = [this](const char* style) { return RunTool({"get", path_, "k", style}).out; };
  EXPECT_EQ(RunTool({"get", path_, "k"}).out, value + "\n");
  EXPECT_EQ(get("--raw"), value);
  EXPECT_EQ(get("-0"), value + '\0');
  EXPECT_EQ(get("--hex"),
            "0100ff20746162"
            "09c3a4205c0a\n");
  EXPECT_EQ(get("--escape"), "\\x01\\x00\\xff tab\\t\xc3\xa4 \\\\\\n\n");
  EXPECT_EQ(get("--tsv"), std::string("\x01\0\xff tab\\t\xc3\xa4 \\\\\\n\n", 17));
  EXPECT_EQ(get("--json"), "{\"key\":\"k\",\"value\":{\"b64\":\"AQD/IHRhYgnDpCBcCg==\"}}\n");
  EXPECT_EQ(RunTool({"list", path_, "-0"}).out, std::string("k\0", 2) + value + '\0');
  EXPECT_EQ(RunTool({"list", path_, "--hex", "--keys"}).out, "6b\n");
}

// The environment of the programs that a test runs.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~ScopedVariable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST_F(Records, EscapesRecordsOnATerminal) {
  const ScopedVariable no_color("NO_COLOR", "1");
  ASSERT_EQ(Set("k", "\x1b[31mred\xc2\x9b"), 0);
  EXPECT_EQ(RunOnTerminal({"get", path_, "k"}).out, "\\x1b[31mred\\xc2\\x9b\r\n");
  EXPECT_EQ(RunOnTerminal({"list", path_}).out, "k\t\\x1b[31mred\\xc2\\x9b\r\n");
  EXPECT_EQ(RunOnTerminal({"get", path_, "k", "--raw"}).out, "\x1b[31mred\xc2\x9b");
}

TEST_F(Records, ColoursOnlyOnTerminalsThatAllowIt) {
  ASSERT_EQ(Set("k", "v"), 0);
  const auto has_colour = [this](const char* no_color, const char* term) {
    const ScopedVariable first("NO_COLOR", no_color), second("TERM", term);
    const std::string listed = RunOnTerminal({"list", path_}).out;
    const std::string failed = RunOnTerminal({"get", dir_.File("absent.hkh"), "k"}).out;
    EXPECT_EQ(listed.find('\x1b') == listed.npos, failed.find('\x1b') == failed.npos);
    EXPECT_EQ(RunTool({"list", path_}).out, "k\tv\n");
    EXPECT_THAT(RunTool({"get", dir_.File("absent.hkh"), "k"}).err, StartsWith("hako: "));
    return listed == "\x1b[36mk\x1b[0m\tv\r\n" && failed.starts_with("\x1b[1;31mhako:\x1b[0m ");
  };
  EXPECT_TRUE(has_colour("", "xterm"));
  EXPECT_FALSE(has_colour("1", "xterm"));
  EXPECT_FALSE(has_colour("", "dumb"));
}

TEST_F(Records, ListStopsAtItemsWithAMessage) {
  std::string text;
  for (int i = 0; i < 25; ++i) text += "key" + std::to_string(i) + "\tvalue" + std::to_string(i) + "\n";
  ASSERT_EQ(RunTool({"import", path_}, text).exit_code, 0);
  const ToolResult some = RunOnTerminal({"list", path_});
  EXPECT_EQ(some.exit_code, 0);
  EXPECT_THAT(SplitLines(some.out), SizeIs(11));
  EXPECT_THAT(some.out, EndsWith("hako: " + path_ + ": 10 of 25 records; --items -1 lists all\r\n"));
  EXPECT_EQ(RunTool({"list", path_, "--items", "10"}).err, "hako: " + path_ + ": 10 of 25 records; --items -1 lists all\n");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"list", path_, "--items", "-1"}, {"list", path_}}) {
    const ToolResult all = RunTool(command);
    EXPECT_EQ(all.err, "");
    EXPECT_THAT(SplitLines(all.out), testing::UnorderedElementsAreArray(SplitLines(text))) << "a pipe gets all";
  }
  EXPECT_THAT(RunTool({"list", path_, "--items", "25"}).err, "");
  const std::vector<std::string> keys = SplitLines(RunTool({"list", path_, "--items", "3", "--keys"}).out);
  EXPECT_THAT(keys, testing::Each(MatchesRegex("key[0-9]+")));
  EXPECT_THAT(keys, SizeIs(3));
  EXPECT_EQ(RunTool({"list", path_, "--items", "0"}).out, "");
  for (const std::string& line : SplitLines(RunTool({"list", path_, "--json"}).out)) {
    const auto record = nlohmann::json::parse(line);
    EXPECT_EQ("value" + record.at("key").get<std::string>().substr(3), record.at("value").get<std::string>());
  }
}

TEST_F(Records, SetReadsItsValueFromAStreamOrAFile) {
  std::string value(300'000, 'v');
  value += std::string("\0\n", 2);
  WriteWhole(dir_.File("value"), value);
  EXPECT_EQ(RunTool({"set", path_, "piped", "-"}, value).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path_, "from file", "--value_file", dir_.File("value")}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path_, "appended", "-", "--append", ""}, "piped").exit_code, 0);
  EXPECT_EQ(RunTool({"set", path_, "dash", "\\x2d", "--unescape"}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path_, "piped", "--raw"}).out, value);
  EXPECT_EQ(RunTool({"get", path_, "from file", "--raw"}).out, value);
  EXPECT_EQ(RunTool({"get", path_, "appended"}).out, "piped\n");
  EXPECT_EQ(RunTool({"get", path_, "dash"}).out, "-\n");
  const ToolResult absent = RunTool({"set", path_, "k", "--value_file", dir_.File("absent")});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, HasSubstr("no such file or directory"));
  EXPECT_EQ(RunTool({"shell", path_}, "set k -\n").exit_code, 2);
}

TEST_F(Records, NumbersOfIncrPrintReadably) {
  ASSERT_EQ(RunTool({"set", path_, "n", "--incr", "-42"}).out, "-42\n");
  EXPECT_EQ(RunTool({"get", path_, "n", "--number"}).out, "-42\n");
  EXPECT_EQ(RunTool({"get", path_, "n", "--number", "--raw"}).out, "-42");
  EXPECT_EQ(RunTool({"list", path_, "--number", "--json"}).out, "{\"key\":\"n\",\"value\":\"-42\"}\n");
  ASSERT_EQ(Set("text", "no number"), 0);
  EXPECT_EQ(RunTool({"get", path_, "text", "--number"}).out, "no number\n");
}

TEST_F(Records, ListByPrefix) {
  ASSERT_EQ(RunTool({"import", path_}, "apple\t1\napricot\t2\nbanana\t3\n\xff\xfe\t4\n").exit_code, 0);
  const auto list = [this](const std::string& prefix, const std::string& flag) {
    return SplitLines(RunTool({"list", path_, "--prefix", prefix, flag}).out);
  };
  EXPECT_THAT(list("ap", "--keys"), UnorderedElementsAre("apple", "apricot"));
  EXPECT_THAT(list("apricot", "--raw"), ElementsAre("apricot\t2"));
  EXPECT_THAT(list("apricots", "--raw"), testing::IsEmpty());
  EXPECT_THAT(list("\xff", "--hex"), ElementsAre("fffe\t34"));
  EXPECT_THAT(list("", "--keys"), SizeIs(4));
  const ToolResult cut = RunTool({"list", path_, "--prefix", "ap", "--items", "1"});
  EXPECT_EQ(cut.err, "hako: " + path_ + ": the first 1; --items -1 lists all\n");
  EXPECT_EQ(RunTool({"list", path_, "--prefix", "ap", "--items", "2"}).err, "");
}

// Escaped output can be given as input again, for keys that an argument cannot hold.
TEST_F(Records, UnescapeParsesTheOutputOfEscape) {
  const std::string key("\0\\\n\xff", 4);
  const std::string typed = "\\x00\\\\\\n\\xff";
  ASSERT_EQ(RunTool({"set", path_, typed, "\\tvalue", "--unescape"}).exit_code, 0);
  EXPECT_EQ(RunTool({"list", path_, "--hex"}).out, "005c0aff\t0976616c7565\n");
  EXPECT_EQ(RunTool({"list", path_, "--escape"}).out, typed + "\t\\tvalue\n");
  EXPECT_EQ(RunTool({"get", path_, typed, "--unescape"}).out, "\tvalue\n");
  EXPECT_EQ(RunTool({"get", path_, typed}).exit_code, 1) << "as it is";
  EXPECT_EQ(RunTool({"list", path_, "--prefix", "\\0", "--unescape", "--keys", "--escape"}).out, typed + "\n");
  EXPECT_EQ(RunTool({"search", path_, "\\xff", "--unescape", "--keys", "--escape"}).out, typed + "\n");
  EXPECT_EQ(RunTool({"list", path_, "--move", "jump", "--jump_key", typed, "--unescape", "--keys", "--escape"}).out, typed + "\n");
  EXPECT_EQ(RunTool({"rekey", path_, typed, "\\r", "--unescape"}).exit_code, 0);
  EXPECT_EQ(RunTool({"remove", path_, "\\r", "--unescape"}).exit_code, 0);
  EXPECT_EQ(RunTool({"count", path_}).out, "0\n");
}

TEST_F(Records, EveryWritingCommandAcceptsADurability) {
  for (const char* level : {"process", "power"}) {
    EXPECT_EQ(RunTool({"set", path_, "k", "v", "--durability", level}).exit_code, 0);
    EXPECT_EQ(RunTool({"rekey", path_, "k", "l", "--durability", level}).exit_code, 0);
    EXPECT_EQ(RunTool({"import", path_, "--durability", level}, "m\t1\n").exit_code, 0);
    EXPECT_EQ(RunTool({"merge", dir_.File("b.hkh"), path_, "--durability", level}).exit_code, 0);
    EXPECT_EQ(RunTool({"rebuild", path_, "--durability", level}).exit_code, 0);
    EXPECT_EQ(RunTool({"remove", path_, "l", "--durability", level}).exit_code, 0);
  }
  EXPECT_EQ(RunTool({"list", path_}).out, "m\t1\n");
  const auto syncs = [this](const std::string& durability) {
    const std::string epoch = RunTool({"inspect", path_, "epoch"}).out;
    EXPECT_EQ(RunTool({"set", path_, "k", "v", "--durability", durability}).exit_code, 0);
    return std::stoi(RunTool({"inspect", path_, "epoch"}).out) - std::stoi(epoch);
  };
  EXPECT_GT(syncs("power"), syncs("process"));
}

TEST_F(Records, InspectPrintsOneAttribute) {
  ASSERT_EQ(Set("k", "v"), 0);
  EXPECT_EQ(RunTool({"inspect", path_, "class"}).out, "HashDBM\n");
  EXPECT_EQ(RunTool({"inspect", path_, "num_records"}).out, "1\n");
  const ToolResult none = RunTool({"inspect", path_, "colour"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "hako: " + path_ + ": no attribute 'colour'; 'hako inspect' lists them\n");
}

TEST_F(Records, InspectReportsProperties) {
  ASSERT_EQ(Set("k", "v"), 0);
  const std::vector<std::string> lines = SplitLines(RunTool({"inspect", path_, "--validate"}).out);
  ASSERT_GE(lines.size(), 7u);
  EXPECT_EQ(lines[0], "Inspection:");
  EXPECT_EQ(lines[1], "  class=HashDBM");
  EXPECT_THAT(lines, testing::Contains("  num_records=1"));
  const std::vector<std::string> tail(lines.end() - 5, lines.end());
  EXPECT_THAT(tail, ElementsAre(MatchesRegex("Actual File Size: [1-9][0-9]*"), "Number of Records: 1", "Healthy: true",
                                "Should be Rebuilt: false", MatchesRegex("Validating records: ... ok \\(elapsed=[0-9]+\\.[0-9]{6}\\)")));
  EXPECT_THAT(RunTool({"inspect", path_}).out, EndsWith("Should be Rebuilt: false\n"));

  const auto json = nlohmann::json::parse(RunTool({"inspect", path_, "--json", "--validate"}).out);
  EXPECT_EQ(json.at("file"), path_);
  EXPECT_GT(json.at("file_size"), 0);
  EXPECT_EQ(json.at("num_records"), 1);
  EXPECT_EQ(json.at("healthy"), true);
  EXPECT_EQ(json.at("validated"), true);
  EXPECT_EQ(json.at("should_be_rebuilt"), false);
  EXPECT_EQ(json.at("attributes").at("class"), "HashDBM");
  for (const char* name : {"total_bytes", "record_bytes", "free_bytes", "index_bytes", "num_buckets", "num_overflow", "epoch"})
    EXPECT_TRUE(json.at("stats").at(name).is_number_unsigned()) << name;
}

TEST_F(Records, CreateKeepsAnExistingFileWithoutTruncate) {
  ASSERT_EQ(Set("k", "v"), 0);
  const ToolResult again = RunTool({"create", path_});
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_EQ(again.err, "hako: " + path_ + ": the file exists; choose another name, or empty it with --truncate\n");
  EXPECT_EQ(Get("k"), "v");
  EXPECT_EQ(RunTool({"create", path_, "--truncate", "--num_records", "10k", "--align_pow", "4"}).exit_code, 0);
  EXPECT_EQ(RunTool({"verify", path_}).out, path_ + ": ok, 0 records\n");
  WriteWhole(dir_.File("empty.hkh"), "");
  EXPECT_EQ(RunTool({"create", dir_.File("empty.hkh")}).exit_code, 0);
  EXPECT_EQ(RunTool({"verify", dir_.File("empty.hkh")}).exit_code, 0);
}

TEST_F(Records, MappedAndPositionalReadTheSameFile) {
  ASSERT_EQ(RunTool({"set", path_, "a", "1", "--file", "pos"}).exit_code, 0);
  ASSERT_EQ(RunTool({"set", path_, "b", "2", "--file", "mmap"}).exit_code, 0);
  for (const char* how : {"pos", "mmap"})
    EXPECT_THAT(SplitLines(RunTool({"list", path_, "--file", how}).out), UnorderedElementsAre("a\t1", "b\t2")) << how;
}

TEST_F(Records, UnknownSuffixRequiresTheKind) {
  const std::string path = dir_.File("a.db");
  EXPECT_EQ(RunTool({"create", path}).exit_code, 2);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_EQ(RunTool({"create", path, "--dbm", "hash"}).exit_code, 0);
  EXPECT_EQ(RunTool({"set", path, "--dbm", "hash", "k", "v"}).exit_code, 0);
  EXPECT_EQ(RunTool({"get", path, "--dbm", "hash", "k"}).out, "v\n");
}

TEST_F(Records, OpenFileExitsWithFour) {
  ASSERT_EQ(Set("k", "v"), 0);
  const auto held = MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadWrite});
  ASSERT_THAT(held, IsOk());
  const std::vector<std::vector<std::string>> commands = {{"get", path_, "k"},
                                                          {"set", path_, "k", "w"},
                                                          {"remove", path_, "k"},
                                                          {"list", path_},
                                                          {"inspect", path_},
                                                          {"verify", path_},
                                                          {"export", path_},
                                                          {"import", path_},
                                                          {"create", path_, "--truncate"},
                                                          {"perf", "sequence", "--path", path_, "--iter", "1"}};
  for (const auto& command : commands) {
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 4) << command[0];
    EXPECT_EQ(result.err,
              "hako: " + path_ + ": locked: another process has it open; wait for it with --wait SECONDS, or end the other process\n");
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(Records, WaitLastsUntilTheFileIsReleased) {
  ASSERT_EQ(Set("k", "v"), 0);
  auto held = MemoryMapParallelFile::Open(path_, {.mode = OpenMode::kReadWrite});
  ASSERT_THAT(held, IsOk());
  ToolProcess process({"get", path_, "k", "--wait", "600"});
  ASSERT_THAT(held->Close(), IsOk());
  const ToolResult result = process.Finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "v\n");
}

TEST_F(Records, UnopenableFilesExitWithThree) {
  const std::string absent = dir_.File("absent.hkh");
  for (const auto& command : std::vector<std::vector<std::string>>{{"get", absent, "k"},
                                                                   {"set", absent, "k", "v"},
                                                                   {"remove", absent, "k"},
                                                                   {"list", absent},
                                                                   {"inspect", absent},
                                                                   {"verify", absent},
                                                                   {"export", absent}}) {
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 3) << command[0];
    EXPECT_EQ(result.err, "hako: " + absent + ": no such file; check the name, or create it with 'hako create " + absent + "'\n");
    EXPECT_NE(access(absent.c_str(), F_OK), 0) << command[0] << " made it";
  }
  EXPECT_THAT(RunTool({"create", dir_.File("no/such.hkh")}).err,
              HasSubstr("no such directory; check the name, or create the directory first"));
  EXPECT_EQ(RunTool({"list", dir_.path(), "--dbm", "hash"}).exit_code, 3);
  WriteWhole(dir_.File("text.hkh"), std::string(200000, 'x'));
  const ToolResult foreign = RunTool({"list", dir_.File("text.hkh")});
  EXPECT_EQ(foreign.exit_code, 3);
  EXPECT_THAT(foreign.err, AllOf(StartsWith("hako: " + dir_.File("text.hkh") + ": "), testing::Not(HasSubstr("text.hkh: " + dir_.path())),
                                 HasSubstr("; ")));
}

TEST_F(Records, FullStdoutIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  ASSERT_EQ(Set("k", "v"), 0);
  const ToolResult result = RunTool({"export", path_, "/dev/full"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(StartsWith("hako: /dev/full: "), HasSubstr("No space left")));
}

TEST_F(Records, VerifyFindsDamage) {
  ASSERT_EQ(Set("key", "the value that is damaged"), 0);
  const std::string copy = dir_.File("damaged.hkh");
  std::string bytes = ReadWhole(path_);
  const std::size_t value = bytes.find("the value that is damaged");
  ASSERT_NE(value, bytes.npos);
  bytes[value] ^= 1;
  WriteWhole(copy, bytes);
  const ToolResult verified = RunTool({"verify", copy});
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_EQ(verified.out, "");
  EXPECT_THAT(verified.err, AllOf(StartsWith("hako: " + copy + ": damaged: "), HasSubstr("offset")));
  const ToolResult inspected = RunTool({"inspect", copy, "--validate"});
  EXPECT_EQ(inspected.exit_code, 1);
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("Healthy: false\n"), HasSubstr("Validating records: ... failed ")));
  EXPECT_EQ(RunTool({"get", copy, "key"}).exit_code, 3) << "not 1: the key is not absent";
}

}  // namespace
}  // namespace hako
