// hako table: rows, statements, indices, CSV and JSON Lines.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

// Tables in the key spaces of one tree.
TEST_F(TableCommandTest, InKeySpaces) {
  ASSERT_EQ(RunTool({"table", "create", path_}).exit_code, 0);  // for TearDown
  const std::string tree = dir_.File("shop.hkt");
  ASSERT_EQ(RunTool({"table", "create", tree, "--space", "people", "--column", "age:int64"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "put", tree, "ada", "age=36", "--space", "people"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "put", tree, "1", "who=ada", "--space", "orders"}).exit_code, 0);
  EXPECT_EQ(RunTool({"table", "query", tree, "select key, age", "--space", "people"}).out, "{\"key\":\"ada\",\"age\":36}\n");
  EXPECT_EQ(RunTool({"table", "get", tree, "1", "--space=orders"}).out, "{\"key\":\"1\",\"who\":\"ada\"}\n");
  EXPECT_EQ(RunTool({"table", "verify", tree, "--space", "people"}).exit_code, 0);
  EXPECT_EQ(RunTool({"verify", tree}).exit_code, 0);
  const ToolResult whole = RunTool({"table", "get", tree, "ada"});
  EXPECT_EQ(whole.exit_code, 3);
  EXPECT_THAT(whole.err, HasSubstr("plain tree"));
  EXPECT_EQ(RunTool({"table", "get", tree, "ada", "--space", ""}).exit_code, 3);
}

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
  EXPECT_EQ(RunTool({"table", "query", path_, "select max(key), count(key) where city is null group by city limit 1"}).out,
            "{\"city\":null,\"max(key)\":\"bob\",\"count(key)\":2}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select age, count(*) group by age order by count(*) desc limit 1", "--csv"}).out,
            "age,count(*)\n36,1\n");
  const ToolResult misspelt = RunTool({"table", "query", path_, "select * where agee > 3"});
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("position 16: no row has had a column 'agee'; did you mean 'age'?"));
  EXPECT_EQ(RunTool({"table", "explain", path_, "select * where agee > 3"}).exit_code, 2);
  EXPECT_EQ(RunTool({"table", "query", path_, "update set age = 21 where key = 'bob'"}).out, "1 row\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "delete where age < 30"}).out, "1 row\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select count(*) group by age"}).out, "{\"age\":36,\"count(*)\":1}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "update set age = 37 limit 10 in batches"}).out, "1 row\n");
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

TEST_F(TableCommandTest, ImportOfCsvNamesColumnsThatMixNumbersAndTexts) {
  ASSERT_EQ(RunTool({"table", "create", path_, "--column", "typed:double"}).exit_code, 0);
  const std::string csv = Write("in.csv",
                                "key,price,typed,name,age,note\n"
                                "a,2,2,Ada,36,\nb,1.50,1.50,Bob,007,7\nc,3,3,Cy,1,\nd,4,4,Di,x,8\n");
  const ToolResult imported = RunTool({"table", "import", path_, csv});
  EXPECT_EQ(imported.exit_code, 0);
  EXPECT_THAT(imported.err, HasSubstr("column 'price' has no type, and mixes 3 numbers and 1 text ('1.50' in line 3); to give it one, "
                                      "create the table first: 'hako table create FILE --column price:double' (or int64, string)\n"));
  EXPECT_THAT(imported.err, HasSubstr("column 'age' has no type, and mixes 2 numbers and 2 texts (as '007' in line 3)"));
  for (const char* other : {"'typed'", "'name'", "'note'"}) EXPECT_THAT(imported.err, Not(HasSubstr(other)));
  EXPECT_EQ(RunTool({"table", "query", path_, "select price order by price", "--csv"}).out, "price\n2\n3\n4\n1.50\n");
  // Texts of JSON are texts.
  const ToolResult json = RunTool({"table", "import", path_, Write("in.jsonl", "{\"key\":\"e\",\"x\":\"1\"}\n{\"key\":\"f\",\"x\":1}\n")});
  EXPECT_EQ(json.err, "hako: " + path_ + ": 2 rows imported\n");
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

TEST_F(TableCommandTest, EveryCommandOnADatabaseTakesATable) {
  ASSERT_EQ(RunTool({"create", path_}).exit_code, 0);
  EXPECT_EQ(RunTool({"create", path_}).exit_code, 3) << "exists";
  const std::string csv = Write("in.csv", "id,name,age\n1,Ada,36\n2,Bob,20\n3,Eve,\n");
  EXPECT_EQ(RunTool({"import", path_, csv, "--key", "id"}).err, "hako: " + path_ + ": 3 rows imported\n");
  EXPECT_EQ(RunTool({"import", path_, csv, "--key", "id"}).err,
            "hako: " + path_ + ": 3 rows imported; the table has 0 more than before, as later rows replace earlier ones\n");
  EXPECT_EQ(RunTool({"count", path_}).out, "3\n");
  EXPECT_EQ(RunTool({"export", path_, "--format", "csv"}).out, "key,name,age\n1,Ada,36\n2,Bob,20\n3,Eve,\n");
  EXPECT_EQ(RunTool({"export", path_}).out, RunTool({"table", "export", path_}).out);
  const ToolResult dump = RunTool({"export", path_, "--format", "dump"});
  EXPECT_EQ(dump.exit_code, 2);
  EXPECT_THAT(dump.err, HasSubstr("CSV or JSON Lines"));
  EXPECT_EQ(RunTool({"export", path_, dir_.File("x.hkt"), "--format", "csv"}).exit_code, 2) << "the name of a database";
  EXPECT_EQ(RunTool({"verify", path_}).out, path_ + ": ok, 3 rows\n");
  EXPECT_EQ(RunTool({"verify", path_, "--json"}).out, "{\"file\":\"" + path_ + "\",\"ok\":true,\"num_records\":3}\n");
  EXPECT_THAT(RunTool({"scrub", path_}).out, HasSubstr(": ok, "));
  EXPECT_EQ(RunTool({"rebuild", path_}).exit_code, 0);
  EXPECT_EQ(RunTool({"inspect", path_, "num_records"}).out, "3\n");
  EXPECT_EQ(RunTool({"inspect", path_, "class"}).out, "TableDBM\n");
  EXPECT_EQ(RunTool({"inspect", path_, "num_columns"}).out, "2\n");
  const std::string copy = dir_.File("copy.hktb");
  ASSERT_EQ(RunTool({"copy", path_, copy}).exit_code, 0);
  EXPECT_EQ(RunTool({"export", copy}).out, RunTool({"export", path_}).out);
  ASSERT_EQ(RunTool({"copy", path_ + "?raw", copy, "--force"}).exit_code, 0) << "byte by byte the same file";
  EXPECT_EQ(RunTool({"verify", copy}).exit_code, 0);
  EXPECT_EQ(RunTool({"copy", path_, dir_.File("copy.hkt")}).exit_code, 2);
  EXPECT_EQ(RunTool({"set", path_, "k", "v"}).exit_code, 3);
  const std::string tree = dir_.File("a.hkt");
  ASSERT_EQ(RunTool({"create", tree}).exit_code, 0);
  const ToolResult get = RunTool({"table", "get", tree, "k"});
  EXPECT_EQ(get.exit_code, 3);
  EXPECT_THAT(get.err, HasSubstr("plain tree"));
  EXPECT_EQ(RunTool({"import", tree, csv}).exit_code, 2) << "CSV is for tables";
}

// By a copy and the archive of the log.
TEST_F(TableCommandTest, IsRestored) {
  const std::string archive = dir_.File("archive"), copy = dir_.File("copy.hktb"), back = dir_.File("back.hktb");
  std::filesystem::create_directory(archive);
  ASSERT_EQ(RunTool({"create", path_, "--log_archive", archive}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "put", path_, "1", "a=1", "--log_archive", archive}).exit_code, 0);
  ASSERT_EQ(RunTool({"copy", path_, copy}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "put", path_, "2", "a=2", "--log_archive", archive}).exit_code, 0);
  ASSERT_EQ(RunTool({"restore", copy, archive, back}).exit_code, 0);
  EXPECT_EQ(RunTool({"export", back}).out, "{\"key\":\"1\",\"a\":1}\n{\"key\":\"2\",\"a\":2}\n");
  EXPECT_EQ(RunTool({"verify", back}).exit_code, 0);
}

TEST_F(TableCommandTest, ColumnsAndSchemaAreListed) {
  ASSERT_EQ(
      RunTool({"table", "create", path_, "--closed", "--column", "name:string:not_null", "--column", "mail:string:unique", "--column", "x"})
          .exit_code,
      0);
  ASSERT_EQ(RunTool({"table", "index", path_, "--on", "name:qgram", "--where", "mail is not null"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "index", path_, "--on", "name:token", "--positions"}).exit_code, 0);
  ASSERT_EQ(RunTool({"table", "index", path_, "--on", "name", "--positions"}).exit_code, 2);
  EXPECT_EQ(RunTool({"table", "columns", path_}).out, "name\tstring\tnot_null\nmail\tstring\tunique\nx\tany\n");
  const auto lines = SplitLines(RunTool({"table", "columns", path_, "--json"}).out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[0], "{\"name\":\"name\",\"type\":\"string\",\"not_null\":true,\"unique\":false,\"default\":null}");
  const auto schema = nlohmann::json::parse(RunTool({"table", "schema", path_, "--json"}).out);
  EXPECT_EQ(schema["closed"], true);
  ASSERT_EQ(schema["columns"].size(), 3u);
  EXPECT_EQ(schema["columns"][1]["unique"], true);
  ASSERT_EQ(schema["indices"].size(), 3u);
  EXPECT_EQ(schema["indices"][1]["columns"][0]["kind"], "qgram");
  EXPECT_EQ(schema["indices"][1]["q"], 3);
  EXPECT_EQ(schema["indices"][1]["positions"], false);
  EXPECT_EQ(schema["indices"][1]["ready"], true);
  EXPECT_EQ(schema["indices"][2]["positions"], true);
  EXPECT_THAT(RunTool({"table", "schema", path_}).out, AllOf(StartsWith("schema\tclosed"), HasSubstr("column\tname\tstring\tnot_null\n"),
                                                             HasSubstr("index\tname:qgram where mail is not null\tname qgram"),
                                                             HasSubstr("index\tname:token:positions\tname token\tpositions\n")));
}

class TableRows : public TableCommandTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(RunTool({"import", path_},
                      "{\"key\":\"1\",\"name\":\"Ada\",\"age\":36}\n{\"key\":\"2\",\"name\":\"Bob\",\"age\":7}\n"
                      "{\"key\":\"3\",\"name\":\"\xe5\xb1\xb1\xe7\x94\xb0 it's\"}\n")
                  .exit_code,
              0);
  }
};

TEST_F(TableRows, StatementsTakeParameters) {
  EXPECT_EQ(RunTool({"table", "query", path_, "select name where age = ?", "36"}).out, "{\"name\":\"Ada\"}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select key where name contains ? limit ?", "it's", "5"}).out, "{\"key\":\"3\"}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "select key where name = ? or name in (?, ?)", "x' or key > '", "Ada", "Bob"}).out,
            "{\"key\":\"1\"}\n{\"key\":\"2\"}\n");
  EXPECT_EQ(RunTool({"table", "query", path_, "update set age = ?, note = ? where key = ?", "null", "'5'", "'2'"}).out, "1 row\n");
  EXPECT_EQ(RunTool({"table", "get", path_, "2"}).out, "{\"key\":\"2\",\"name\":\"Bob\",\"note\":\"5\"}\n");
  for (const auto& [arguments, error] :
       {std::pair<std::vector<std::string>, const char*>{{"select * where age = ?"}, "position 22: parameter 1 is not given"},
        {{"select * where age = ?", "1", "2"}, "2 parameters are given, and the statement has 1 places (?)"},
        {{"select * where age = ?", "null"}, "position 22: parameter 1 is null: use 'is null'"},
        {{"select * where name contains ?", "5"}, "parameter 1 is no text"},
        {{"select * limit ?", "x"}, "no number of rows"},
        {{"select ? where age = 1", "name"}, "a column"}}) {
    std::vector<std::string> command = {"table", "query", path_};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ToolResult result = RunTool(command);
    EXPECT_EQ(result.exit_code, 2) << error;
    EXPECT_THAT(result.err, HasSubstr(error));
  }
}

const char kBox[] =
    "┌─────┬───────────┬─────┐\n"
    "│ key │ name      │ age │\n"
    "├─────┼───────────┼─────┤\n"
    "│ 1   │ Ada       │  36 │\n"
    "│ 2   │ Bob       │   7 │\n"
    "│ 3   │ 山田 it's │     │\n"
    "└─────┴───────────┴─────┘\n"
    "3 rows\n";

TEST_F(TableRows, AreABoxOnATerminal) {
  EXPECT_EQ(RunTool({"table", "query", path_, "select *", "--box"}).out, kBox);
  setenv("NO_COLOR", "1", 1);
  std::string shown = RunOnTerminal({"table", "query", path_, "select *"}).out;
  unsetenv("NO_COLOR");
  std::erase(shown, '\r');
  EXPECT_EQ(shown, kBox);
  EXPECT_THAT(RunTool({"table", "query", path_, "select name where key = 'x'", "--box"}).out,
              AllOf(HasSubstr("│ name │"), EndsWith("0 rows\n")));
  EXPECT_THAT(RunTool({"table", "query", path_, "select count(*)", "--box"}).out, HasSubstr("│        3 │"));
  EXPECT_EQ(RunTool({"table", "query", path_, "select *", "--box", "--csv"}).exit_code, 2);
  // Long cells are cut, and many columns stand below each other.
  ASSERT_EQ(RunTool({"table", "put", path_, "4", "name=" + std::string(500, 'x') + "\x1b[31m"}).exit_code, 0);
  const auto lines = SplitLines(RunTool({"table", "query", path_, "select * where key = '4'", "--box"}).out);
  EXPECT_THAT(lines[3], AllOf(HasSubstr("xxx…"), Not(HasSubstr("\x1b"))));
  std::vector<std::string> wide = {"table", "put", path_, "5"};
  for (int i = 0; i < 30; ++i) wide.push_back("column" + std::to_string(i) + "=" + std::to_string(i));
  ASSERT_EQ(RunTool(wide).exit_code, 0);
  EXPECT_THAT(RunTool({"table", "query", path_, "select * where key = '5'", "--box"}).out,
              AllOf(StartsWith("── row 1\n"), HasSubstr("\n column29 │ 29\n")));
}

TEST_F(TableRows, ShellTakesStatementsAndCommands) {
  const ToolResult result =
      RunTool({"shell", path_},
              "# all\nselect name where age > 10;\nbind 7 'Ada'\nSELECT key WHERE age = ? OR name = ?\nbind\nget 1\nput 4 name=Eve\n"
              "count\nremove 4\nupdate set age = 8 where key = '2'\nexplain select * where age = 8\ncolumns\nverify\nget 9\n");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out,
              StartsWith("{\"name\":\"Ada\"}\n{\"key\":\"1\"}\n{\"key\":\"2\"}\n{\"key\":\"1\",\"name\":\"Ada\",\"age\":36}\n4\n1 row\n"));
  EXPECT_THAT(result.out, EndsWith("name\tany\nage\tany\n" + path_ + ": ok, 3 rows\n"));
  EXPECT_EQ(RunTool({"shell", path_, "--csv"}, "select key, age where key = '2'").out, "key,age\n2,8\n");
  const ToolResult wrong = RunTool({"shell", path_}, "select from where\nremove 1\n");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("position "), EndsWith("hako shell: stopped at line 1\n")));
  EXPECT_THAT(RunTool({"shell", path_}, "selct *\n").err, HasSubstr("did you mean 'select'?"));
  EXPECT_EQ(RunTool({"shell", path_}, "list\n").exit_code, 2) << "of records";
  EXPECT_THAT(RunTool({"shell", path_}, "help\n").out, AllOf(HasSubstr("\n  bind "), HasSubstr("\n  columns "), HasSubstr("\n  copy ")));
  EXPECT_THAT(RunTool({"shell", path_}, "help put\n").out, HasSubstr("Usage: hako table put"));
  EXPECT_EQ(RunTool({"count", path_}).out, "3\n");
}

TEST_F(TableCommandTest, NothingOfCsvIsChangedSilently) {
  const auto rows = [this](const std::string& csv) {
    std::filesystem::remove(path_);
    const ToolResult imported = RunTool({"import", path_, "--format", "csv", "--key", "id"}, csv);
    EXPECT_EQ(imported.exit_code, 0) << imported.err;
    return RunTool({"export", path_}).out;
  };
  const std::string ada = "{\"key\":\"1\",\"name\":\"Ada\"}\n";
  EXPECT_EQ(rows("\xef\xbb\xbf\"name\",\"id\"\r\n\"Ada\",\"1\"\r\n"), ada);
  EXPECT_EQ(rows("\xef\xbb\xbf\"id\",\"name\"\r\n\"1\",\"Ada\"\r\n"), ada);
  EXPECT_EQ(rows("id,name\n1,\"a\rb\r\n\"\n"), "{\"key\":\"1\",\"name\":\"a\\rb\\r\\n\"}\n");
  EXPECT_EQ(rows("id,name\n\"\",Ada\n"), "{\"key\":\"\",\"name\":\"Ada\"}\n");
  for (const auto& [csv, error] : {std::pair<const char*, const char*>{"id,name\n1,a\rb\n", "line 2: a carriage return"},
                                   {"id,name\n1,\"a\"\r\"b\"\n", "line 2: a carriage return"},
                                   {"id,name\r1,Ada\r", "line 1: a carriage return"},
                                   {"id,name,name\n1,a,b\n", "line 1: two fields are named 'name'"},
                                   {"id,\n1,a\n", "line 1: field 2 names no column"},
                                   {"id,name\n,a\n", "line 2: the field of the key is empty"},
                                   {"", "line 1: no line names the columns"}}) {
    std::filesystem::remove(path_);
    const ToolResult imported = RunTool({"import", path_, "--format", "csv", "--key", "id"}, csv);
    EXPECT_EQ(imported.exit_code, 3) << csv;
    EXPECT_THAT(imported.err, HasSubstr(error));
    EXPECT_FALSE(std::filesystem::exists(path_)) << "made a table for nothing";
  }
  EXPECT_THAT(RunTool({"import", path_}, "{\"key\":null,\"a\":1}\n").err, HasSubstr("line 1: member 'key', the primary key, is null"));
  ASSERT_EQ(RunTool({"import", path_}, "\xef\xbb\xbf{\"key\":1}\r\n").exit_code, 0);
}

}  // namespace
}  // namespace hako
