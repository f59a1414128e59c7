// export and import: every format round-trips, malformed text is reported by line, an import can be
// interrupted.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>

#include "support/sanitizers.h"
#include "tool/tool_test.h"

namespace hako {
namespace {

using RecordMap = std::map<std::string, std::string>;

// The content of a database, read as hexadecimal digits, independently of the formats under test.
RecordMap ReadAll(const std::string& path) {
  const ToolResult listed = RunTool({"list", path, "--items", "-1", "--hex"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  RecordMap records;
  for (const std::string& line : SplitLines(listed.out)) {
    const std::size_t tab = line.find('\t');
    const auto decode = [](const std::string& digits) {
      std::string bytes;
      for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
      return bytes;
    };
    records[decode(line.substr(0, tab))] = decode(line.substr(tab + 1));
  }
  return records;
}

// Keys and values that are hard for text formats, and random bytes, some longer than the program's
// buffers.
RecordMap AwkwardRecords() {
  RecordMap records = {{"", "empty key"},
                       {"empty value", ""},
                       {"tab\tkey", "tab\tvalue\t"},
                       {"line\nkey\r", "\r\nvalue\n\n"},
                       {"\\t", "\\\\x41\\"},
                       {"quote\"", "{\"b64\":\"AA==\"}"},
                       {" space ", " "},
                       {"DATA=END", "HEADER=END"},
                       {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xed\xa0\x80 \xc0\x80 \xf4\x90\x80\x80 \xff"},
                       {std::string("nul\0key", 7), std::string("\0", 1)}};
  std::mt19937 random(20240701);
  for (int i = 0; i < 300; ++i) {
    std::string key(random() % 20, '\0');
    std::string value(i % (kSlowdown > 1 ? 300 : 100) == 0 ? 700000 : random() % 300, '\0');
    for (char& c : key) c = static_cast<char>(random());
    for (char& c : value) c = static_cast<char>(random());
    records[std::to_string(i) + key] = value;
  }
  return records;
}

std::string HexDump(const RecordMap& records) {
  std::string text = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n";
  const auto append = [&text](const std::string& bytes) {
    text += ' ';
    for (const char c : bytes) text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4], text += "0123456789abcdef"[c & 15];
    text += '\n';
  };
  for (const auto& [key, value] : records) append(key), append(value);
  return text + "DATA=END\n";
}

class Transfer : public ToolTest {};

TEST_F(Transfer, RoundTripThroughFilesAndPipes) {
  const RecordMap records = AwkwardRecords();
  ASSERT_EQ(RunTool({"import", path_, "--format", "dump"}, HexDump(records)).exit_code, 0);
  ASSERT_EQ(ReadAll(path_), records);

  using Flags = std::vector<std::string>;
  const std::pair<std::string, Flags> formats[] = {{"tsv", {}}, {"jsonl", {}}, {"dump", {}}, {"dump", {"--print"}}};
  for (const auto& [format, flags] : formats) {
    SCOPED_TRACE(format + (flags.empty() ? "" : " --print"));
    TempDir dir;
    const std::string text = dir.File("text." + format);  // the suffix selects the format
    Flags command = {"export", path_, text};
    command.insert(command.end(), flags.begin(), flags.end());
    const ToolResult exported = RunTool(command);
    EXPECT_EQ(exported.exit_code, 0);
    EXPECT_EQ(exported.out + exported.err, "");

    const std::string b = dir.File("b.hkh");
    const ToolResult imported = RunTool({"import", b, text});
    EXPECT_EQ(imported.exit_code, 0);
    EXPECT_EQ(imported.err, "hako: " + b + ": 310 records imported\n");
    EXPECT_EQ(ReadAll(b), records);
    EXPECT_EQ(RunTool({"verify", b}).exit_code, 0);

    command = {"export", path_, "--format", format};
    command.insert(command.end(), flags.begin(), flags.end());
    const std::string piped = RunTool(command).out;
    EXPECT_EQ(piped, ReadWhole(text));
    EXPECT_EQ(RunTool({"import", dir.File("c.hkh"), "-", "--format", format}, piped).exit_code, 0);
    EXPECT_EQ(ReadAll(dir.File("c.hkh")), records);
  }
}

TEST_F(Transfer, WritesTheDocumentedFormats) {
  ASSERT_EQ(RunTool({"import", path_, "--format", "tsv"}, "k\\\\\tv\\t\\xff\n").exit_code, 0);
  EXPECT_EQ(RunTool({"export", path_}).out, "k\\\\\tv\\t\xff\n");
  EXPECT_EQ(RunTool({"export", path_, "--format", "jsonl"}).out, "{\"key\":\"k\\\\\",\"value\":{\"b64\":\"dgn/\"}}\n");
  EXPECT_EQ(RunTool({"export", path_, "--format", "dump"}).out,
            "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n 6b5c\n 7609ff\nDATA=END\n");
  EXPECT_EQ(RunTool({"export", path_, "--format", "dump", "--print"}).out,
            "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n k\\5c\n v\\09\\ff\nDATA=END\n");
}

TEST_F(Transfer, ReadsFilesOfOtherTools) {
  const std::string mdb =
      "VERSION=3\nformat=print\ntype=btree\nmapsize=1048576\nmaxreaders=126\ndb_pagesize=4096\nHEADER=END\n"
      " key\n va\\\\lue\\0a\\FF\n k2\n \nDATA=END\n";
  ASSERT_EQ(RunTool({"import", path_, "--format", "dump"}, mdb).exit_code, 0);
  EXPECT_EQ(ReadAll(path_), (RecordMap{{"key", "va\\lue\n\xff"}, {"k2", ""}}));
  const std::string json = "{ \"value\" : \"\\u00e4\\n\" , \"key\" : {\"b64\":\"/w==\"} }\r\n{\"key\":\"last\",\"value\":\"no line feed\"}";
  ASSERT_EQ(RunTool({"import", dir_.File("b.hkh"), "--format", "jsonl"}, json).exit_code, 0);
  EXPECT_EQ(ReadAll(dir_.File("b.hkh")), (RecordMap{{"\xff", "\xc3\xa4\n"}, {"last", "no line feed"}}));
  ASSERT_EQ(RunTool({"import", dir_.File("c.hkh"), "--no_escape"}, "name\tC:\\new\tversion 1\nname2\t").exit_code, 0);
  EXPECT_EQ(ReadAll(dir_.File("c.hkh")), (RecordMap{{"name", "C:\\new\tversion 1"}, {"name2", ""}}));
}

void Shell(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

// Both programs print the records that they read in hexadecimal digits.
TEST_F(Transfer, ExchangesDumpsWithLmdb) {
  if (std::system("command -v mdb_load mdb_dump > /dev/null") != 0) GTEST_SKIP() << "lmdb-utils is not installed";
  RecordMap records = AwkwardRecords();
  records.erase("");  // LMDB refuses it
  ASSERT_EQ(RunTool({"import", path_, "--format", "dump"}, HexDump(records)).exit_code, 0);
  for (const std::string flag : {"--no-progress", "--print"}) {
    const std::string ours = dir_.File("ours.dump"), lmdb = dir_.File("l.mdb"), theirs = dir_.File("theirs.dump");
    ASSERT_EQ(RunTool({"export", path_, ours, flag, "--mapsize", "64m"}).exit_code, 0);
    unlink(lmdb.c_str());
    Shell("mdb_load -n -f " + ours + " " + lmdb);
    Shell("mdb_dump -n -f " + theirs + " " + lmdb);
    const std::string back = dir_.File("back" + flag + ".hkh");
    ASSERT_EQ(RunTool({"import", back, theirs}).exit_code, 0);
    EXPECT_EQ(ReadAll(back), records) << flag;
  }
}

TEST_F(Transfer, ExchangesDumpsWithBerkeleyDb) {
  if (std::system("command -v db5.3_load db5.3_dump > /dev/null") != 0) GTEST_SKIP() << "db-util is not installed";
  const RecordMap records = AwkwardRecords();
  ASSERT_EQ(RunTool({"import", path_, "--format", "dump"}, HexDump(records)).exit_code, 0);
  for (const std::string ours_flag : {"--no-progress", "--print"}) {
    for (const std::string theirs_flag : {"", "-p"}) {
      for (const std::string type : {"btree", "hash"}) {
        SCOPED_TRACE(ours_flag + " " + theirs_flag + " " + type);
        TempDir dir;
        const std::string ours = dir.File("ours.dump"), bdb = dir.File("b.db"), theirs = dir.File("theirs.dump");
        ASSERT_EQ(RunTool({"export", path_, ours, ours_flag}).exit_code, 0);
        Shell("db5.3_load -t " + type + " -f " + ours + " " + bdb);
        Shell("db5.3_dump " + theirs_flag + " -f " + theirs + " " + bdb);
        ASSERT_EQ(RunTool({"import", dir.File("back.hkh"), theirs}).exit_code, 0);
        EXPECT_EQ(ReadAll(dir.File("back.hkh")), records);
      }
    }
  }
}

struct Malformed {
  std::string format;
  std::string text;
  std::string complaint;
  std::size_t num_kept;  // records before the malformed line
};
const std::string kHeader = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n";

const Malformed kMalformedTexts[] = {
    {"tsv", "a\t1\nb\n", "line 2: no tab", 1},
    {"tsv", "a\t\\q\n", "line 1: invalid escape", 0},
    {"tsv", "a\t\\x4\n", "line 1: invalid escape", 0},
    {"tsv", "a\t\\", "line 1: invalid escape", 0},
    {"tsv", "a\t1\n\nb\n", "line 3: no tab", 1},
    {"jsonl", "{\"key\":\"a\"}\n", "line 1: not of the form", 0},
    {"jsonl", "{\"key\":\"a\",\"value\":\"1\"}\n[1,\n", "line 2: not of the form", 1},
    {"jsonl", "{\"key\":\"a\",\"value\":1}\n", "line 1: not of the form", 0},
    {"jsonl", "{\"key\":\"a\",\"value\":\"\",\"ttl\":5}\n", "line 1: not of the form", 0},
    {"jsonl", "{\"key\":\"a\",\"value\":{\"b64\":\"A===\"}}\n", "line 1: not of the form", 0},
    {"jsonl", "{\"key\":\"a\",\"value\":{\"b64\":\"/x==\"}}\n", "line 1: not of the form", 0},
    {"jsonl", std::string(100000, '['), "line 1: not of the form", 0},
    {"tsv", "a\t1\r\nb\t2\n", "line 2: ends without a carriage return", 1},
    {"tsv", "a\t1\nb\t2\r\n", "line 2: ends with a carriage return, and the lines before do not", 1},
    {"tsv", "a\t1\r\nb\t2\r", "line 2: ends with a carriage return without a line feed", 1},
    {"tsv", "a\t1\rb\t2\r", "line 1: ends with a carriage return without a line feed", 0},
    {"dump", "", "line 0: no HEADER=END", 0},
    {"dump", "rubbish\n", "line 1: malformed header line of a dump", 0},
    {"dump", "VERSION=4\nHEADER=END\nDATA=END\n", "line 1: unsupported dump version", 0},
    {"dump", "VERSION=3\ntype=recno\nHEADER=END\nDATA=END\n", "line 2: unsupported type", 0},
    {"dump", "VERSION=3\r\nHEADER=END\n", "line 2: ends without a carriage return", 0},
    {"dump", "VERSION=3\nduplicates=1\nHEADER=END\nDATA=END\n",
     "line 2: duplicates=1: dumps with several values for a key are not supported", 0},
    {"dump", "VERSION=3\ndupsort=1\nHEADER=END\n a\n b\n a\n c\nDATA=END\n",
     "line 2: dupsort=1: dumps with several values for a key are not supported", 0},
    {"dump", "VERSION=3\nintegerkey=1\nHEADER=END\nDATA=END\n", "line 2: integerkey=1: dumps with keys that are ordered as integers", 0},
    {"dump", "VERSION=3\nreversekey=1\nHEADER=END\nDATA=END\n",
     "line 2: reversekey=1: dumps with keys that are ordered from their last byte on", 0},
    {"dump", kHeader + " 61\n 31\n 61\n 32\nDATA=END\n", "line 7: the key of the record before again", 1},
    {"dump", kHeader + " 61\n 31\n 6a\n 32\n 6a\n 33\nDATA=END\n", "line 9: the key of the record before again", 2},
    {"dump", kHeader + " 61\n 31\n", "line 6: the dump ends without DATA=END", 1},
    {"dump", kHeader + " 61\n 31\n 62\nDATA=END\n", "line 8: the last key has no value", 1},
    {"dump", kHeader + " 6\n 31\nDATA=END\n", "line 5: not pairs of hexadecimal", 0},
    {"dump", kHeader + "61\n31\nDATA=END\n", "line 5: a data line must begin with a space", 0},
    {"dump", kHeader + " 61\n 31\nDATA=END\n" + kHeader, "line 8: text after DATA=END, as of a dump of several databases", 1},
    {"dump", "format=print\nHEADER=END\n \\6\n b\nDATA=END\n", "line 3: a backslash without", 0}};

TEST_F(Transfer, MalformedTextExitsWithThreeAndNamesTheLine) {
  for (const Malformed& malformed : kMalformedTexts) {
    SCOPED_TRACE(malformed.format + ": " + malformed.text.substr(0, 200));
    unlink(path_.c_str());
    const ToolResult result = RunTool({"import", path_, "--format", malformed.format}, malformed.text);
    EXPECT_EQ(result.exit_code, 3);
    const auto lines = SplitLines(result.err);
    ASSERT_EQ(lines.size(), 2u) << result.err;
    EXPECT_EQ(lines[0], "hako: " + path_ + ": " + std::to_string(malformed.num_kept) + (malformed.num_kept == 1 ? " record" : " records") +
                            " imported");
    EXPECT_THAT(lines[1], StartsWith("hako: standard input: " + malformed.complaint));
    if (malformed.num_kept == 0) {
      EXPECT_NE(access(path_.c_str(), F_OK), 0) << "made a database for nothing";
    } else {
      EXPECT_EQ(ReadAll(path_).size(), malformed.num_kept);
    }
  }
  ASSERT_EQ(RunTool({"create", path_}).exit_code, 0);
  EXPECT_EQ(RunTool({"import", path_}, "no tab").exit_code, 3);
  EXPECT_EQ(RunTool({"count", path_}).out, "0\n") << "a database that was there stays";
}

TEST_F(Transfer, CountsTheRecordsThatReplacedOthers) {
  EXPECT_EQ(RunTool({"import", path_}, "a\t1\nb\t1\na\t2\n").err,
            "hako: " + path_ + ": 3 records imported; the database has 2 more than before, as later records replace earlier ones\n");
  EXPECT_EQ(RunTool({"import", path_}, "c\t1\n").err, "hako: " + path_ + ": 1 record imported\n");
}

TEST_F(Transfer, LineEndsOfWindowsAreNoData) {
  const std::pair<std::string, std::string> texts[] = {
      {"tsv", "a\t1\r\n\r\nb\t2\\r\r\n"},
      {"tsv", "a\t1\r\nb\t2\\r"},
      {"dump", "VERSION=3\r\nformat=bytevalue\r\ntype=btree\r\ndupsort=0\r\nHEADER=END\r\n 61\r\n 31\r\n 62\r\n 320d\r\nDATA=END\r\n"}};
  for (const auto& [format, text] : texts) {
    unlink(path_.c_str());
    const ToolResult result = RunTool({"import", path_, "--format", format}, text);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(ReadAll(path_), (RecordMap{{"a", "1"}, {"b", "2\r"}})) << text;
  }
  unlink(path_.c_str());
  EXPECT_EQ(RunTool({"import", path_, "--no_escape"}, "a\t1\nb\t2\r\n").exit_code, 0);
  EXPECT_EQ(ReadAll(path_), (RecordMap{{"a", "1"}, {"b", "2\r"}})) << "taken literally";
}

TEST_F(Transfer, RefusesUnusableTexts) {
  ASSERT_EQ(RunTool({"create", path_}).exit_code, 0);
  const ToolResult absent = RunTool({"import", dir_.File("b.hkh"), dir_.File("absent.tsv")});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_EQ(absent.err, "hako: " + dir_.File("absent.tsv") + ": no such file or directory; check the name\n");
  EXPECT_NE(access(dir_.File("b.hkh").c_str(), F_OK), 0) << "made a database for nothing";
  EXPECT_EQ(RunTool({"import", dir_.File("b.hkh"), dir_.path(), "--format", "tsv"}).exit_code, 3);
  EXPECT_EQ(RunTool({"export", path_, dir_.File("no/such/folder.tsv")}).exit_code, 3);
  for (const char* command : {"import", "export"}) EXPECT_EQ(RunTool({command, path_, path_}).exit_code, 2);
  EXPECT_EQ(RunTool({"verify", path_}).exit_code, 0);
}

TEST_F(Transfer, BlankLinesAndByteOrderMarksAreSkipped) {
  const std::pair<std::string, std::string> texts[] = {
      {"tsv", "\xef\xbb\xbf\na\t1\n\n\r\n\nb\t2\n\n"},
      {"tsv",
       "\xef\xbb\xbf"
       "a\t1\nb\t2\n\r"},
      {"jsonl", "\xef\xbb\xbf{\"key\":\"a\",\"value\":\"1\"}\n\n \t\r\n{\"key\":\"b\",\"value\":\"2\"}\n\n"},
      {"dump", "\xef\xbb\xbf" + kHeader + " 61\n 31\n 62\n 32\nDATA=END\n"}};
  for (const auto& [format, text] : texts) {
    unlink(path_.c_str());
    const ToolResult result = RunTool({"import", path_, "--format", format}, text);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(ReadAll(path_), (RecordMap{{"a", "1"}, {"b", "2"}})) << text;
  }
}

TEST_F(Transfer, RefusesATooLongLine) {
  ASSERT_EQ(RunTool({"create", path_}).exit_code, 0);
  const std::string line = "k\t" + std::string(3 << 20, 'v');
  for (const std::string format : {"tsv", "jsonl", "dump"}) {
    const ToolResult result = RunTool({"import", path_, "--format", format, "--max_line", "1Mi"}, line);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("line 1: longer than 1048576 bytes")) << format;
    EXPECT_THAT(result.err, HasSubstr("--max_line"));
  }
  EXPECT_EQ(RunTool({"import", path_, "--max_line", "4Mi"}, line).exit_code, 0);
}

TEST_F(Transfer, LaterRecordsReplaceEarlierOnes) {
  ASSERT_EQ(RunTool({"import", path_}, "k\t1\nl\t1\nk\t2\n").exit_code, 0);
  ASSERT_EQ(RunTool({"import", path_}, "l\t3\n").exit_code, 0);
  EXPECT_EQ(ReadAll(path_), (RecordMap{{"k", "2"}, {"l", "3"}}));
}

class Signals : public Transfer, public testing::WithParamInterface<int> {};

TEST_P(Signals, StopAnImportBetweenRecords) {
  ToolProcess process({"import", path_});
  ASSERT_TRUE(process.Write(NumberedLines(0, 100000)));  // more than a pipe and the program's buffer hold: it is working
  process.Send(GetParam());
  const ToolResult result = [&] {
    // The pipe stays open, so the program must stop by itself.
    while (process.Write(NumberedLines(100000, 100100))) {
    }
    return process.Finish();
  }();
  EXPECT_EQ(result.exit_code, 128 + GetParam());
  EXPECT_THAT(result.err, AllOf(StartsWith("hako: " + path_ + ": "), EndsWith(" records imported, then stopped by a signal\n")));
  EXPECT_EQ(RunTool({"verify", path_}).exit_code, 0);
  const RecordMap records = ReadAll(path_);
  ASSERT_GT(records.size(), 1000u);
  for (int i = 0; i < static_cast<int>(std::min<std::size_t>(records.size(), 100000)); ++i) {
    const auto it = records.find(std::to_string(i));
    ASSERT_NE(it, records.end()) << i;
    ASSERT_EQ(it->second, "value of " + std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Transfer, Signals, testing::Values(SIGINT, SIGTERM, SIGHUP), testing::PrintToStringParamName());

TEST_F(Transfer, SignalEndsTheWaitForInput) {
  ToolProcess process({"import", path_});
  ASSERT_TRUE(process.Write(NumberedLines(0, 100000)));
  // From here on there is no more input, so the program waits sooner or later; the signal may
  // arrive before or after that.
  process.Send(SIGINT);
  ASSERT_EQ(process.WaitForEnd(), 0);
  EXPECT_EQ(process.Finish().exit_code, 130);
}

TEST_F(Transfer, ShowsProgressOnlyOnTerminals) {
  EXPECT_THAT(RunTool({"import", path_}, NumberedLines(0, 50000)).err, Not(HasSubstr("\r")));
  ToolProcess process({"import", path_}, ToolProcess::Screen::kTerminal);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  for (int i = 0; process.ReadTerminal().find('\r') == std::string::npos && std::chrono::steady_clock::now() < deadline;
       i = (i + 1000) % 100000)
    ASSERT_TRUE(process.Write(NumberedLines(i, i + 1000)));
  const ToolResult result = process.Finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, testing::ContainsRegex("\r[0-9,]+ records, [0-9,]+/s"));
}

}  // namespace
}  // namespace hako
