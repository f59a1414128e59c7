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
