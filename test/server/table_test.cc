// A server with a table, as a process: the commands of HAKO.TABLE in both protocols, bad input, pages, kills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "hako/base/hash.h"
#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Words = RespClient::Words;

class ServedTableTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  std::string Table() const { return dir_.File("a.hktb"); }
  TempDir dir_;
};

// A request of HAKO.TABLE.
std::string Ask(RespClient& client, Words words) {
  words.insert(words.begin(), "hako.table");
  return client.Run(words);
}

// For `a[ab]{n}c` each byte of it takes up to n steps.
std::string HostileText(std::uint64_t size) {
  std::string text;
  for (std::uint64_t i = 0; i < size; ++i) text.push_back("ab"[MixBits(i) % 2]);
  return text;
}

std::string Bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }

TEST_F(ServedTableTest, StoresAndShowsRowsInBothProtocols) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  EXPECT_EQ(Ask(client, {"put", "ada", "name", "Ada", "age", "36"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"PUTKEEP", "ada", "name", "Eva"}), ":0\r\n");
  EXPECT_EQ(Ask(client, {"putkeep", "bob", "name", std::string("B\0\r\n", 4)}), ":1\r\n");
  EXPECT_EQ(Ask(client, {"update", "eva", "age", "1"}), ":0\r\n");
  EXPECT_EQ(Ask(client, {"update", "bob", "age", "41"}), ":1\r\n");
  EXPECT_EQ(Ask(client, {"append", "ada", "name", " L."}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"append", "new", "t", "x"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"count"}), ":3\r\n");
  const std::string cells = Bulk("name") + Bulk("Ada L.") + Bulk("age") + ":36\r\n";
  EXPECT_EQ(Ask(client, {"get", "ada"}), "*4\r\n" + cells);
  EXPECT_EQ(Ask(client, {"get", "bob", "age", "none", "name"}),
            "*6\r\n" + Bulk("age") + ":41\r\n" + Bulk("none") + "$-1\r\n" + Bulk("name") + Bulk(std::string("B\0\r\n", 4)));
  EXPECT_EQ(Ask(client, {"get", "none"}), "$-1\r\n");
  client.Run({"hello", "3"});
  EXPECT_EQ(Ask(client, {"get", "ada"}), "%2\r\n" + cells);
  EXPECT_EQ(Ask(client, {"get", "ada", "none"}), "%1\r\n" + Bulk("none") + "_\r\n");
  EXPECT_EQ(Ask(client, {"get", "none"}), "_\r\n");
  EXPECT_EQ(Ask(client, {"del", "ada", "none", "new"}), ":2\r\n");
  EXPECT_EQ(Ask(client, {"count"}), ":1\r\n");
  EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");
}

TEST_F(ServedTableTest, ShowsValuesOfEachType) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  for (const auto& [name, type] : {std::pair("i", "INT64"), {"d", "double"}, {"b", "bool"}, {"s", "string"}})
    EXPECT_EQ(Ask(client, {"column", "set", name, type}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"put", "k", "i", "-7", "d", "1.5", "b", "true", "s", "1.5"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"get", "k", "i", "d", "b", "s"}),
            "*8\r\n" + Bulk("i") + ":-7\r\n" + Bulk("d") + Bulk("1.5") + Bulk("b") + ":1\r\n" + Bulk("s") + Bulk("1.5"));
  EXPECT_EQ(Ask(client, {"put", "k", "i", "seven"}), "-ERR column 'i' has type int64, which 'seven' is not\r\n");
  EXPECT_EQ(Ask(client, {"column", "set", "i", "int32"}), "-ERR 'int32' is no type of a column\r\n");
  EXPECT_EQ(Ask(client, {"query", "update set i = 9, d = null where key = 'k'"}), ":1\r\n");
  client.Run({"hello", "3"});
  EXPECT_EQ(Ask(client, {"get", "k", "i", "d", "b", "s"}),
            "%4\r\n" + Bulk("i") + ":9\r\n" + Bulk("d") + "_\r\n" + Bulk("b") + "#t\r\n" + Bulk("s") + Bulk("1.5"));
  EXPECT_EQ(Ask(client, {"query", "update set d = 2.5"}), ":1\r\n");
  EXPECT_EQ(Ask(client, {"get", "k", "d"}), "%1\r\n" + Bulk("d") + ",2.5\r\n");
  EXPECT_THAT(Ask(client, {"column", "list"}),
              StartsWith("*4\r\n%3\r\n" + Bulk("name") + Bulk("i") + Bulk("type") + Bulk("int64") + Bulk("not_null") + "#f\r\n"));
}

// All keys that the pages of a query show, and how many pages there are.
std::vector<std::string> KeysOfPages(RespClient& client, const std::string& statement, const std::string& count, int* pages) {
  std::vector<std::string> keys;
  std::string cursor = "0";
  for (*pages = 0; (*pages == 0 || cursor != "0") && *pages < 100; ++*pages) {
    const std::string reply = Ask(client, {"query", statement, "count", count, "cursor", cursor});
    if (reply[0] != '*') return {reply};
    const std::vector<std::string> bulks = RespClient::Bulks(reply);
    cursor = bulks[0];
    for (std::size_t i = 2; i < bulks.size(); i += 2) keys.push_back(bulks[i]);  // "key" and the key
  }
  return keys;
}

// A value without a type is the number that it spells exactly, else a text; pages carry its type.
TEST_F(ServedTableTest, OrdersValuesByTheirTypes) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  EXPECT_EQ(Ask(client, {"column", "set", "s", "string"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"column", "set", "b", "bool"}), "+OK\r\n");
  const char* const values[] = {"-1.5", "9", "20", "36", "100", "1e+20", "007", "1.50", "old"};  // in order
  std::vector<std::string> keys;
  for (const char* const value : values) {
    keys.push_back("k" + std::to_string(keys.size()));
    EXPECT_EQ(Ask(client, {"put", keys.back(), "x", value, "s", value, "b", *value == '1' ? "1" : "false"}), "+OK\r\n");
  }
  EXPECT_EQ(Ask(client, {"append", "k1", "n", "1"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"append", "k1", "n", "2"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"get", "k1", "x", "s", "n"}), "*6\r\n" + Bulk("x") + ":9\r\n" + Bulk("s") + Bulk("9") + Bulk("n") + ":12\r\n");
  EXPECT_EQ(Ask(client, {"query", "select count(*) where x >= 20"}), "*1\r\n*2\r\n" + Bulk("count(*)") + ":7\r\n");
  EXPECT_EQ(Ask(client, {"query", "select count(*) where numeric(x) >= 20"}), "*1\r\n*2\r\n" + Bulk("count(*)") + ":4\r\n");
  EXPECT_EQ(Ask(client, {"query", "select count(*) where x = '36' or s = 100"}), "*1\r\n*2\r\n" + Bulk("count(*)") + ":1\r\n");
  for (const bool has_index : {false, true}) {
    if (has_index) {
      EXPECT_EQ(Ask(client, {"index", "create", "", "on", "x", "ordered"}), "+OK\r\n");
    }
    int pages = 0;
    EXPECT_EQ(KeysOfPages(client, "select key order by x", "1", &pages), keys);
    EXPECT_EQ(pages, 10);
    EXPECT_EQ(KeysOfPages(client, "select key order by x desc", "2", &pages), std::vector<std::string>(keys.rbegin(), keys.rend()));
    EXPECT_EQ(KeysOfPages(client, "select key order by s limit 3", "1", &pages), (std::vector<std::string>{"k0", "k6", "k7"}));
    EXPECT_EQ(KeysOfPages(client, "select key order by b", "2", &pages),
              (std::vector<std::string>{"k0", "k1", "k2", "k3", "k6", "k8", "k4", "k5", "k7"}));
  }
  for (const char* const cursor : {"-.2.k1v9", "-.2.k1i9x", "-.2.k1i", "-.2.k1dnan", "-.2.k1d", "-.2.k1b1", "-.2.k1nx"})
    EXPECT_EQ(Ask(client, {"query", "select key order by x", "count", "2", "cursor", cursor}), "-ERR invalid cursor\r\n") << cursor;
  EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");
}

// Rows r0 to r9: n is 0 to 9, and s is "even" or "odd".
void PutTenRows(RespClient& client) {
  for (int i = 0; i < 10; ++i) Ask(client, {"put", "r" + std::to_string(i), "n", std::to_string(i), "s", i % 2 == 0 ? "even" : "odd"});
}

TEST_F(ServedTableTest, RunsStatements) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  PutTenRows(client);
  EXPECT_EQ(Ask(client, {"query", "select key, n where n >= 8 order by n desc"}),
            "*2\r\n*4\r\n" + Bulk("key") + Bulk("r9") + Bulk("n") + ":9\r\n*4\r\n" + Bulk("key") + Bulk("r8") + Bulk("n") + ":8\r\n");
  EXPECT_EQ(Ask(client, {"query", "select * where n = 3"}),
            "*1\r\n*6\r\n" + Bulk("key") + Bulk("r3") + Bulk("n") + ":3\r\n" + Bulk("s") + Bulk("odd"));
  EXPECT_EQ(Ask(client, {"query_ro", "select * where n = 33"}), "*0\r\n");
  EXPECT_EQ(Ask(client, {"query", "select count(*)"}), "*1\r\n*2\r\n" + Bulk("count(*)") + ":10\r\n");
  EXPECT_EQ(Ask(client, {"query", "select MIN(key), count(key)"}),
            "*1\r\n*4\r\n" + Bulk("min(key)") + Bulk("r0") + Bulk("count(key)") + ":10\r\n");
  EXPECT_EQ(Ask(client, {"query", "select count(*) where n = 3 group by s"}),
            "*1\r\n*4\r\n" + Bulk("s") + Bulk("odd") + Bulk("count(*)") + ":1\r\n");
  EXPECT_EQ(Ask(client, {"query", "update set s = 'big' where n > 7"}), ":2\r\n");
  EXPECT_EQ(Ask(client, {"query", "delete where n = 0"}), ":1\r\n");
  client.Run({"hello", "3"});
  EXPECT_EQ(Ask(client, {"query", "select count(*), max(n), sum(s) group by s"}),
            "*3\r\n%4\r\n" + Bulk("s") + Bulk("big") + Bulk("count(*)") + ":2\r\n" + Bulk("max(n)") + ":9\r\n" + Bulk("sum(s)") + ":0\r\n" +
                "%4\r\n" + Bulk("s") + Bulk("even") + Bulk("count(*)") + ":3\r\n" + Bulk("max(n)") + ":6\r\n" + Bulk("sum(s)") + ":0\r\n" +
                "%4\r\n" + Bulk("s") + Bulk("odd") + Bulk("count(*)") + ":4\r\n" + Bulk("max(n)") + ":7\r\n" + Bulk("sum(s)") + ":0\r\n");
  EXPECT_EQ(Ask(client, {"query", "select s, count(*) group by s order by count(*) desc limit 1"}),
            "*1\r\n%2\r\n" + Bulk("s") + Bulk("odd") + Bulk("count(*)") + ":4\r\n");
  EXPECT_EQ(Ask(client, {"query", "select count(*) limit 3"}), "*1\r\n%1\r\n" + Bulk("count(*)") + ":9\r\n");
  EXPECT_EQ(Ask(client, {"query", "select n limit 1"}), "*1\r\n%1\r\n" + Bulk("n") + ":1\r\n");
  EXPECT_THAT(Ask(client, {"explain", "select * where n = 3"}), StartsWith("=59\r\ntxt:all rows\nrows are read of 9 rows\n"));
  EXPECT_EQ(Ask(client, {"query", "update set s = 'few' order by n limit 2"}), ":2\r\n");
  EXPECT_EQ(Ask(client, {"query", "delete where s = 'few' in batches"}), ":2\r\n");
  EXPECT_EQ(Ask(client, {"query", "delete"}), ":7\r\n");
  EXPECT_EQ(Ask(client, {"count"}), ":0\r\n");
}

TEST_F(ServedTableTest, PagesShowEachRowOnce) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  PutTenRows(client);
  int pages = 0;
  const std::vector<std::string> up = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"};
  EXPECT_EQ(KeysOfPages(client, "select key", "3", &pages), up);
  EXPECT_EQ(pages, 4);
  EXPECT_EQ(Ask(client, {"column", "set", "b", "bool"}), "+OK\r\n");
  for (const bool has_index : {false, true}) {
    if (has_index) {
      EXPECT_EQ(Ask(client, {"index", "create", "", "on", "s", "ordered"}), "+OK\r\n");
    }
    EXPECT_EQ(KeysOfPages(client, "select key order by s limit 7 offset 1", "3", &pages),
              (std::vector<std::string>{"r2", "r4", "r6", "r8", "r1", "r3", "r5"}));
    EXPECT_EQ(pages, 3);
    EXPECT_EQ(KeysOfPages(client, "select key where n > 2 order by s desc", "100", &pages),
              (std::vector<std::string>{"r9", "r7", "r5", "r3", "r8", "r6", "r4"}));
    EXPECT_EQ(KeysOfPages(client, "select key order by b", "4", &pages), up);
  }
  EXPECT_EQ(Ask(client, {"query", "update set b = true, c = true where s = 'odd'"}), ":5\r\n");
  EXPECT_EQ(Ask(client, {"query", "update set b = false, c = false where s = 'even'"}), ":5\r\n");
  for (const char* const order : {"b", "c", "c numeric"})
    EXPECT_EQ(KeysOfPages(client, std::string("select key order by ") + order, "3", &pages),
              (std::vector<std::string>{"r0", "r2", "r4", "r6", "r8", "r1", "r3", "r5", "r7", "r9"}))
        << order;
  EXPECT_EQ(Ask(client, {"query", "select key", "count", "0"}), "-ERR COUNT is at least 1\r\n");
  for (const char* const cursor : {"1", "-", "-.", "-.1.", "-.1.an!", "9.9.", "-.18446744073709551615.x", "x.1.an", "-1.1.an"})
    EXPECT_EQ(Ask(client, {"query", "select key", "count", "2", "cursor", cursor}), "-ERR invalid cursor\r\n") << cursor;
  EXPECT_EQ(Ask(client, {"query", "select key", "cursor", "-.2.r8n"}), "-ERR CURSOR needs COUNT\r\n");
  EXPECT_EQ(Ask(client, {"query", "select key", "count", "2", "cursor", "-.2.r8n"}),
            "*2\r\n" + Bulk("0") + "*1\r\n*2\r\n" + Bulk("key") + Bulk("r9"));
  EXPECT_EQ(Ask(client, {"query", "select count(*)", "count", "2"}), "-ERR functions have no pages\r\n");
  EXPECT_EQ(Ask(client, {"query", "delete", "count", "2"}), "-ERR an update or a delete has no pages\r\n");
}

TEST_F(ServedTableTest, MakesIndices) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  PutTenRows(client);
  EXPECT_EQ(Ask(client, {"index", "create", "by_n", "covering", "1", "s", "where", "n >= 1", "on", "n", "ordered"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"index", "CREATE", "words", "positions", "on", "t", "token"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"index", "create", "u", "unique", "on", "s", "ordered"}),
            "-ERR index u cannot be unique: row 'r2' has the value of another one\r\n");
  EXPECT_EQ(Ask(client, {"index", "create", "by_n", "on", "s", "ordered"}),
            "-ERR the table has an index by_n: give this one another name\r\n");
  EXPECT_EQ(Ask(client, {"put", "w", "t", "some words here"}), "+OK\r\n");  // in the pool
  EXPECT_EQ(Ask(client, {"query", "select key where t all 'words'"}), "*1\r\n*2\r\n" + Bulk("key") + Bulk("w"));
  EXPECT_EQ(Ask(client, {"query", "select key where t phrase 'words here'"}), "*1\r\n*2\r\n" + Bulk("key") + Bulk("w"));
  EXPECT_EQ(Ask(client, {"index", "drop", "words"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"index", "drop", "words"}), "-ERR there is no index 'words'\r\n");
  EXPECT_EQ(Ask(client, {"index", "list"}), "*1\r\n*16\r\n" + Bulk("name") + Bulk("by_n") + Bulk("columns") + "*2\r\n" + Bulk("n") +
                                                Bulk("ordered") + Bulk("unique") + ":0\r\n" + Bulk("covering") + "*1\r\n" + Bulk("s") +
                                                Bulk("where") + Bulk("n >= 1") + Bulk("q") + ":3\r\n" + Bulk("positions") + ":0\r\n" +
                                                Bulk("ready") + ":1\r\n");
  EXPECT_EQ(Ask(client, {"column", "set", "n", "string"}), "-ERR column 'n': row 'r0' has a value of another type\r\n");
  EXPECT_EQ(Ask(client, {"column", "set", "n", "int64", "unique"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"put", "other", "n", "9"}), "-ERR column 'n': another row has the value, and index n is unique\r\n");
  EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");
}

TEST_F(ServedTableTest, RefusesBadInputInOneLine) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  PutTenRows(client);
  const std::pair<Words, std::string> cases[] = {
      {{"put", "k", "a", "1", "b"}, "-ERR wrong number of arguments for 'hako.table|put' command\r\n"},
      {{"put", "k"}, "-ERR wrong number of arguments for 'hako.table|put' command\r\n"},
      {{"put", "k", "a", "1", "a", "2"}, "-ERR column 'a' is given twice\r\n"},
      {{"none", "k"}, "-ERR unknown subcommand 'none'. Try HAKO.TABLE HELP.\r\n"},
      {{"query", "select * where n >"}, "-ERR position 19: expected "},
      {{"query", "select * where\r\nn ~ 1"}, "-ERR position 19: "},
      {{"query", "select", "limit", "1"}, "-ERR syntax error\r\n"},
      {{"query", "select * group by n"}, "-ERR position 10: group by needs a function"},
      {{"query", "select nn where s = 'odd'"}, "-ERR position 8: no row has had a column 'nn'; did you mean 'n'?\r\n"},
      {{"query", "select count(*)", "count", "3"}, "-ERR functions have no pages\r\n"},
      {{"query", "delete where n = 99", "count", "3"}, "-ERR an update or a delete has no pages\r\n"},
      {{"query_ro", "delete"}, "-ERR QUERY_RO takes a select only\r\n"},
      {{"query_ro", "delete where s = '" + std::string(2000, 'x') + "'"}, "-ERR QUERY_RO takes a select only\r\n"},
      {{"query", "select * where s matches '('"}, "-ERR "},
      {{"explain", "select * where"}, "-ERR position 15: "},
      {{"index", "create", "i", "on", "n", "none"}, "-ERR 'none' is no kind of index\r\n"},
      {{"index", "create", "i", "on", "n"}, "-ERR syntax error\r\n"},
      {{"index", "create", "i", "covering", "9", "n", "on", "n", "ordered"}, "-ERR syntax error\r\n"},
      {{"index", "create", "i", "covering", "1", "on", "n", "numeric"}, "-ERR syntax error\r\n"},
      {{"index", "create", "i", "q", "9", "on", "n", "qgram"}, "-ERR Q is from 1 to 8\r\n"},
      {{"index", "create", "i", "where", "n >", "on", "n", "ordered"}, "-ERR "},
      {{"index", "create", "i", "positions", "on", "n", "ordered"}, "-ERR index i: only an index of words or q-grams has positions\r\n"},
      {{"index", "none"}, "-ERR syntax error\r\n"},
      {{"column", "set", "n", "int64", "none"}, "-ERR syntax error\r\n"},
      {{"put", std::string(1025, 'k'), "a", "1"}, "-ERR a primary key of 1025 bytes exceeds the limit of 1024 bytes\r\n"},
      {{"get", std::string(1025, 'k')}, "-ERR a primary key of 1025 bytes"},
      {{"put", "k", "a\r\nb\xff", "1"}, "-ERR "},
  };
  for (const int protocol : {2, 3}) {
    client.Run({"hello", std::to_string(protocol)});
    for (const auto& [words, expected] : cases) {
      const std::string reply = Ask(client, words);
      EXPECT_THAT(reply, StartsWith(expected)) << words[0] << " " << words[1];
      EXPECT_EQ(reply.find('\n'), reply.size() - 1) << reply;
    }
  }
  EXPECT_EQ(client.Run({"multi"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"put", "k", "a", "1"}), "-ERR Command not allowed inside a transaction\r\n");
  EXPECT_THAT(client.Run({"exec"}), StartsWith("-EXECABORT"));
  EXPECT_EQ(Ask(client, {"count"}), ":10\r\n");
}

TEST_F(ServedTableTest, ServesATableAloneOrBesideADatabase) {
  {
    ServerProcess server({"--table", Table()});
    RespClient client = server.Connect();
    const char* const refusal = "-ERR this server has a table and no other database, see --db: use HAKO.TABLE\r\n";
    EXPECT_EQ(client.Run({"set", "a", "1"}), refusal);
    EXPECT_EQ(client.Run({"dbsize"}), refusal);
    EXPECT_EQ(client.Run({"multi"}), "+OK\r\n");
    EXPECT_EQ(client.Run({"get", "a"}), refusal);
    EXPECT_THAT(client.Run({"exec"}), StartsWith("-EXECABORT"));
    PutTenRows(client);
    EXPECT_EQ(server.Stop(), 0);
  }
  ServerProcess server({"--table", Table(), "--db", dir_.File("a.hkh"), "--backup-dir", dir_.path()});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"set", "a", "1"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"count"}), ":10\r\n");
  EXPECT_EQ(client.Run({"dbsize"}), ":1\r\n");
  EXPECT_EQ(client.Run({"hako.backup", "copy.hkh"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"flushall"}), "+OK\r\n");
  EXPECT_EQ(Ask(client, {"count"}), ":10\r\n");
  EXPECT_THAT(client.Run({"info", "table"}), HasSubstr("table_rows:10\r\ntable_columns:2\r\ntable_indices:0\r\n"));
  ServerProcess copy({"--table", dir_.File("copy.hkh.hktb"), "--db", dir_.File("copy.hkh")});
  RespClient reader = copy.Connect();
  EXPECT_EQ(Ask(reader, {"count"}), ":10\r\n");
  EXPECT_EQ(reader.Run({"get", "a"}), Bulk("1"));
  ServerProcess plain({});
  RespClient other = plain.Connect();
  EXPECT_EQ(Ask(other, {"count"}), "-ERR the server has no table, see --table\r\n");
  EXPECT_EQ(ServerProcess({"--db", dir_.File("b.hktb")}).port(), 0);
  EXPECT_EQ(ServerProcess({"--table", dir_.File("a.hkt")}).port(), 0);
}

TEST_F(ServedTableTest, RefusesChangesOfATableThatIsRead) {
  {
    ServerProcess server({"--table", Table()});
    RespClient client = server.Connect();
    PutTenRows(client);
    EXPECT_EQ(server.Stop(), 0);
  }
  ServerProcess server({"--table", Table() + "?mode=read", "--appendfsync", "always"});
  RespClient client = server.Connect();
  const std::string refusal = "-ERR the database was opened read-only\r\n";
  EXPECT_EQ(Ask(client, {"put", "k", "n", "1"}), refusal);
  EXPECT_EQ(Ask(client, {"put", "k", "new", "1"}), refusal);
  EXPECT_EQ(Ask(client, {"del", "r1"}), refusal);
  EXPECT_EQ(Ask(client, {"query", "update set n = 1"}), refusal);
  EXPECT_EQ(Ask(client, {"index", "create", "", "on", "n", "ordered"}), refusal);
  EXPECT_EQ(Ask(client, {"count"}), ":10\r\n");
}

// A query that takes long is answered after the other clients of its loop thread; the replies of one client
// stay in order, and no reply is longer than the limit.
TEST_F(ServedTableTest, LongQueriesDelayNoOtherClient) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  static constexpr int kRows = 400;
  std::string requests;
  for (int i = 0; i < kRows; ++i) requests += RespClient::Encode({"hako.table", "put", std::to_string(i), "t", HostileText(1'000)});
  std::thread sender([&] { client.Send(requests); });
  for (int i = 0; i < kRows; ++i) EXPECT_EQ(client.Read(), "+OK\r\n");
  sender.join();
  RespClient slow = server.Connect();
  // On a busy machine this process may have to wait for longer than the query takes.
  bool is_answered_first = true;
  for (int attempt = 0; attempt < 20 && is_answered_first; ++attempt) {
    slow.Send(RespClient::Encode({"hako.table", "query", "select count(*) where t matches 'a[ab]{200}c'"}) +
              RespClient::Encode({"hako.table", "get", "7", "none"}));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(Ask(client, {"get", "7", "none"}), "*2\r\n" + Bulk("none") + "$-1\r\n");
    pollfd readable{.fd = slow.socket_number(), .events = POLLIN, .revents = 0};
    is_answered_first = poll(&readable, 1, 0) != 0;
    EXPECT_EQ(slow.Read(), "*1\r\n*2\r\n" + Bulk("count(*)") + ":0\r\n");
    EXPECT_EQ(slow.Read(), "*2\r\n" + Bulk("none") + "$-1\r\n");
  }
  EXPECT_FALSE(is_answered_first);
  client.Run({"config", "set", "client-output-buffer-limit", "20kb"});
  EXPECT_THAT(Ask(slow, {"query", "select *"}).substr(0, 100), StartsWith("-ERR the rows exceed half of client-output-buffer-limit"));
  EXPECT_THAT(Ask(slow, {"query", "select count(*) group by key"}).substr(0, 100),
              StartsWith("-ERR the groups exceed half of client-output-buffer-limit"));
}

// All threads of the pool match a slow regular expression, and end behind the text in which they are.
TEST_F(ServedTableTest, KilledClientsAndTheStopEndRegularExpressions) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  const std::string text = HostileText(20'000);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(Ask(client, {"put", std::to_string(i), "t", text}), "+OK\r\n");
  const std::string slow = RespClient::Encode({"hako.table", "query", "select key where t matches 'a[ab]{500}c'"});
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RespClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(server.Connect());
    const std::string id = clients.back().Run({"client", "id"});
    clients.back().Send(slow);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(client.Run({"client", "kill", "id", id.substr(1, id.size() - 3)}), ":1\r\n");
  }
  EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");  // in the pool
  for (int i = 0; i < 4; ++i) clients.push_back(server.Connect()), clients.back().Send(slow);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(ServedTableTest, SlowLogAndInfoMeasureCommandsInTheThreadPool) {
  ServerProcess server({"--table", Table()});
  RespClient client = server.Connect();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Ask(client, {"put", std::to_string(i), "t", HostileText(1'000)}), "+OK\r\n");
  const std::string query = "select count(*) where t matches 'a[ab]{300}c'";
  client.Run({"config", "set", "slowlog-log-slower-than", "1000"});
  EXPECT_EQ(Ask(client, {"query", query}), "*1\r\n*2\r\n" + Bulk("count(*)") + ":0\r\n");
  EXPECT_THAT(client.Run({"slowlog", "get", "1"}), HasSubstr(Bulk("hako.table") + Bulk("query") + Bulk(query)));
  const std::string stats = client.Run({"info", "commandstats"});
  const std::size_t usec = stats.find("cmdstat_hako.table|query:calls=1,usec=");
  ASSERT_NE(usec, std::string::npos) << stats;
  EXPECT_GE(std::atoi(stats.c_str() + stats.find("usec=", usec) + 5), 1000);
  client.Run({"config", "set", "slowlog-log-slower-than", "0"});
  client.Run({"hako.check"});
  EXPECT_THAT(client.Run({"slowlog", "get", "1"}), HasSubstr(Bulk("hako.check")));
}

// Each acknowledged row is there after kill -9, with its entries in the index.
TEST_F(ServedTableTest, KillLosesNoAcknowledgedRow) {
  const char* const given = std::getenv("HAKO_KILLS");
  const int rounds = given != nullptr ? std::atoi(given) : 10;
  static constexpr int kClients = 3;
  int acknowledged[kClients] = {};
  const auto key = [](int client, int i) { return std::to_string(client) + "_" + std::to_string(i); };
  for (int round = 0; round <= rounds; ++round) {
    ServerProcess server({"--table", Table(), "--appendfsync", round % 4 == 3 ? "everysec" : "always", "--threads", "2"});
    RespClient client = server.Connect();
    ASSERT_TRUE(client.is_open()) << "round " << round;
    if (round == 0) {
      ASSERT_EQ(Ask(client, {"index", "create", "", "on", "n", "ordered"}), "+OK\r\n");
    }
    for (int i = 0; i < kClients; ++i) {
      if (acknowledged[i] == 0) continue;
      const std::string last = key(i, acknowledged[i]);
      EXPECT_EQ(Ask(client, {"get", last, "n"}), "*2\r\n" + Bulk("n") + Bulk(last)) << "round " << round;
      EXPECT_EQ(Ask(client, {"query", "select key where n = '" + last + "'"}), "*1\r\n*2\r\n" + Bulk("key") + Bulk(last));
      const std::string count = Ask(client, {"query", "select count(*) where key begins '" + std::to_string(i) + "_'"});
      EXPECT_GE(std::atoi(count.c_str() + count.rfind(':') + 1), acknowledged[i]);
    }
    EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");
    if (round == rounds) break;
    std::atomic<int> num_new = 0;  // of those that were acknowledged
    std::vector<std::thread> writers;
    for (int i = 0; i < kClients; ++i) {
      writers.emplace_back([&, i] {
        RespClient writer = server.Connect();
        while (writer.is_open()) {
          const std::string next = key(i, acknowledged[i] + 1);
          if (Ask(writer, {"put", next, "n", next}) == "+OK\r\n") ++acknowledged[i], ++num_new;
        }
      });
    }
    for (int i = 0; i < 60'000 && num_new < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + round % 7 * 5));
    server.Kill();
    for (std::thread& writer : writers) writer.join();
  }
  EXPECT_GT(acknowledged[0] + acknowledged[1] + acknowledged[2], rounds);
}

}  // namespace
}  // namespace hako
