// hako table: rows, statements, indices, CSV and JSON Lines.
#include <fstream>
#include <sstream>
#include <string>

#include "tool/tool_test.h"

namespace hako {
namespace {

class TableCommandTest : public testing::Test {
 protected:
  TableCommandTest() : path_(dir_.File("people.hktb")) {}
  void TearDown() override { EXPECT_EQ(RunTool({"table", "verify", path_}).exit_code, 0); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_.File(name)) << text;
    return dir_.File(name);
  }
  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(dir_.File(name)).rdbuf();
    return text.str();
  }

  TempDir dir_;
  const std::string path_;
};

TEST_F(TableCommandTest, PutsGetsAndQueriesRows) {
  ASSERT_EQ(RunTool({"table", "create", path_, "--column", "age:int64", "--column", "email:string:unique"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "create", path_}).exit_code, 1);
  ASSERT_EQ(RunTool({"table", "put", path_, "ada", "age=36", "email=a@x", "city='London'"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "put", path_, "bob", "age=20", "email=b@x"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "get", path_, "ada"}).out, "{\"key\":\"ada\",\"age\":36,\"email\":\"a@x\",\"city\":\"London\"}\n");
  EXPECT_EQ(RunTool({"table", "get", path_, "eve"}).exit_code, 1);
  EXPECT_EQ(RunTool({"table", "put", path_, "ada", "age=1", "--keep"}).exit_code, 1);
  EXPECT_EQ(RunTool({"table", "put", path_, "ada", "city=null", "--update"}).exit_code, 0);
  const ToolResult taken = RunTool({"table", "put", path_, "eve", "email=a@x"});
  EXPECT_EQ(taken.exit_code, 2);
  EXPECT_THAT(taken.err, HasSubstr("'email'"));
  EXPECT_THAT(RunTool({"table", "put", path_, "eve", "age=old"}).err, HasSubstr("'age' has type int64"));
  EXPECT_EQ(RunTool({"table", "query", path_, "select key, age where age >= 20 order by age desc"}).out,
            "{\"key\":\"ada\",\"age\":36}\n{\"key\":\"bob\",\"age\":20}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select age, email where key = 'bob'", "--csv"}).out, "age,email\n20,b@x\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select count(*), sum(age), max(email)"}).out,
            "{\"count(*)\":2,\"sum(age)\":56,\"max(email)\":\"b@x\"}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select max(key), count(key) group by none"}).out,
            "{\"none\":null,\"max(key)\":\"bob\",\"count(key)\":2}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "update set age = 21 where key = 'bob'"}).out, "1 row\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "delete where age < 30"}).out, "1 row\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select count(*) group by age"}).out, "{\"age\":36,\"count(*)\":1}\n");
  const ToolResult malformed = RunTool({"table", "query", path_, "select where age >"});
  EXPECT_EQ(malformed.exit_code, 2);
  EXPECT_THAT(malformed.err, HasSubstr("position 8"));
  EXPECT_EQ(RunTool({"table", "remove", path_, "ada"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "remove", path_, "ada"}).exit_code, 1);
}

TEST_F(TableCommandTest, ImportsAndExportsCsvAndJsonLines) {
  const std::string csv = Write("in.csv", "id,name,age,note\r\n1,\"Smith, \"\"Jo\"\"\",36,\"two\nlines\"\n2,,40,\"\"\n");
  ASSERT_EQ(RunTool({"table", "import", path_, csv, "--key", "id"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "get", path_, "1"}).out,
            "{\"key\":\"1\",\"name\":\"Smith, \\\"Jo\\\"\",\"age\":36,\"note\":\"two\\nlines\"}\n");
  EXPECT_EQ(RunTool({"table", "get", path_, "2"}).out, "{\"key\":\"2\",\"age\":40,\"note\":\"\"}\n");
  const std::string rows = "{\"key\":\"3\",\"age\":41,\"x\":0.5}\n{\"key\":\"4\",\"b\":{\"b64\":\"/w==\"},\"on\":true}\n";
  ASSERT_EQ(RunTool({"table", "import", path_, Write("in.jsonl", rows)}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "export", path_, dir_.File("out.jsonl")}).exit_code, 0);
  EXPECT_THAT(Read("out.jsonl"), EndsWith(rows));
  ASSERT_EQ(RunTool({"table", "export", path_, dir_.File("out.csv")}).exit_code, 0);
  const std::string other = dir_.File("other.hktb");
  ASSERT_EQ(RunTool({"table", "import", other, dir_.File("out.jsonl")}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "export", other, dir_.File("again.jsonl")}).exit_code, 0);
  EXPECT_EQ(Read("again.jsonl"), Read("out.jsonl"));
  const ToolResult bad = RunTool({"table", "import", other, Write("bad.csv", "key,a\n1,2\n3\n")});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr("line 3: 1 fields, but the first line names 2"));
  EXPECT_THAT(RunTool({"table", "import", other, Write("bad.jsonl", "{\"a\":1}\n")}).err, HasSubstr("line 1: no member 'key'"));
}

TEST_F(TableCommandTest, ImportKeepsNumbersOrSaysWhyItCannot) {
  const auto import = [this](const std::string& line) { return RunTool({"table", "import", path_, Write("in.jsonl", line + "\n")}); };
  const std::string row = R"({"key":"k","a":9223372036854775807,"b":-9223372036854775808,"c":1e19,"d":1.0,"e":-0.0})";
  EXPECT_EQ(import(row).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "get", path_, "k"}).out,
            R"({"key":"k","a":9223372036854775807,"b":-9223372036854775808,"c":1e+19,"d":1.0,"e":-0.0})"
            "\n");
  const std::pair<const char*, const char*> refused[] = {
      {R"({"key":"x","a":9223372036854775808})", "line 1: member 'a': the integer 9223372036854775808 is out of range"},
      {R"({"key":"x","a":-9223372036854775809})", "the integer -9223372036854775809 is out of range"},
      {R"({"key":"x","a":18446744073709551615})", "the integer 18446744073709551615 is out of range"},
      {R"({"key":"x","a":18446744073709551616})", "the integer 18446744073709551616 is out of range"},
      {R"({"key":"x","a":1e400})", "member 'a': 1e400 is out of the range of a double"},
      {R"({"key":null})", "member 'key', the primary key, is null"},
      {R"({"key":1,"key":2})", "member 'key', the primary key, is given twice"},
      {R"({"key":"x","a":[1]})", "member 'a' is no text, number, bool or null"},
      {R"({"key":"x","a":{"b":1}})", "member 'a' is no text, number, bool or null"},
      {R"({"key":"x","a":{"b64":"/w==","b64":"/w=="}})", "member 'a' is no text, number, bool or null"},
      {R"({"key":"x","a":{"b64":"!"}})", "member 'a' is no text, number, bool or null"},
      {R"({"key":"x","a":{}})", "member 'a' is no text, number, bool or null"},
      {R"({"key":"x","a":{"b64":5}})", "member 'a' is no text, number, bool or null"},
      {R"({"key":"x"} 1)", "line 1: not an object of JSON"},
      {R"([1])", "not an object of JSON"},
      {R"(7)", "not an object of JSON"},
      {R"({"key")", "not an object of JSON"}};
  for (const auto& [line, error] : refused) {
    const ToolResult result = import(line);
    EXPECT_EQ(result.exit_code, 3) << line;
    EXPECT_THAT(result.err, HasSubstr(error)) << line;
  }
  EXPECT_EQ(RunTool({"table", "query", path_, "select count(*)"}).out, "{\"count(*)\":1}\n");
}

TEST_F(TableCommandTest, PutKeepsTheBytesOfTexts) {
  ASSERT_EQ(RunTool({"table", "create", path_, "--column", "name:string"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "put", path_, "k", "zip=02134", "n=36", "name=5", "big=18446744073709551615", "t='36'", "on=true"}).exit_code,
            0);
  EXPECT_EQ(RunTool({"table", "get", path_, "k"}).out,
            R"({"key":"k","name":"5","zip":"02134","n":36,"big":"18446744073709551615","t":"36","on":true})"
            "\n");
}

// A field of CSV without a type is the number that it spells exactly, else a text; a column's type decides.
TEST_F(TableCommandTest, ImportOfCsvKeepsTypesAndBytes) {
  ASSERT_EQ(RunTool({"table", "create", path_, "--column", "code:string", "--column", "price:double"}).exit_code, 0);
  const std::string csv = "key,age,code,price\na,100,0100,1.50\nb,36,36,2\nc,9,9,0.5\nd,007,7,3\ne,20,20,4\n";
  ASSERT_EQ(RunTool({"table", "import", path_, Write("in.csv", csv)}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "query", path_, "select age order by age", "--csv"}).out, "age\n9\n20\n36\n100\n007\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select age order by age numeric limit 2", "--csv"}).out, "age\n007\n9\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select key where age >= 20 and age < '0'", "--csv"}).out, "key\na\nb\ne\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select key where numeric(age) < 9", "--csv"}).out, "key\nd\n");
  EXPECT_EQ(RunTool({"table", "get", path_, "a"}).out, "{\"key\":\"a\",\"code\":\"0100\",\"price\":1.5,\"age\":100}\n");
  EXPECT_EQ(RunTool({"table", "get", path_, "b"}).out, "{\"key\":\"b\",\"code\":\"36\",\"price\":2.0,\"age\":36}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select max(age), min(age), sum(age)"}).out,
            "{\"max(age)\":\"007\",\"min(age)\":9,\"sum(age)\":165}\n");
}

TEST_F(TableCommandTest, IndicesAreListedExplainedAndDropped) {
  ASSERT_EQ(
      RunTool({"table", "import", path_, Write("in.jsonl", "{\"key\":\"1\",\"a\":5,\"t\":\"some words\"}\n{\"key\":\"2\",\"a\":5}\n")})
          .exit_code,
      0);
  ASSERT_EQ(RunTool({"table", "index", path_, "--on", "a"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "index", path_, "--on", "t:token", "--name", "words"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "index", path_}).out, "a\ta ordered\nwords\tt token\n");
  EXPECT_THAT(RunTool({"table", "explain", path_, "select where a = 5"}).err, HasSubstr("position 8"));
  EXPECT_THAT(RunTool({"table", "explain", path_, "select * where a = 5"}).out, HasSubstr("index a: a = 5"));
  const ToolResult unique = RunTool({"table", "index", path_, "--on", "a", "--name", "one", "--unique"});
  EXPECT_EQ(unique.exit_code, 2);
  EXPECT_THAT(unique.err, HasSubstr("cannot be unique"));
  ASSERT_EQ(RunTool({"table", "index", path_, "--drop", "words"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "index", path_, "--drop", "words"}).exit_code, 1);
  EXPECT_EQ(RunTool({"table", "index", path_}).out, "a\ta ordered\n");
}

TEST_F(TableCommandTest, OtherCommandsRefuseATable) {
  ASSERT_EQ(RunTool({"table", "create", path_}).exit_code, 0);
  const ToolResult set = RunTool({"set", path_, "k", "v"});
  EXPECT_EQ(set.exit_code, 3);
  EXPECT_THAT(set.err, HasSubstr("is a table"));
  const std::string tree = dir_.File("a.hkt");
  ASSERT_EQ(RunTool({"create", tree}).exit_code, 0);
  const ToolResult get = RunTool({"table", "get", tree, "k"});
  EXPECT_EQ(get.exit_code, 3);
  EXPECT_THAT(get.err, HasSubstr("plain tree"));
}

}  // namespace
}  // namespace hako
