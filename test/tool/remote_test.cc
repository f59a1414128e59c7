// The commands on a server in place of a file: hako-server, and redis-server of Debian.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "server/certificates.h"
#include "server/redis_process.h"
#include "server/server_process.h"
#include "tool/tool_test.h"

namespace hako {
namespace {

class Remote : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  static std::string Address(const ServerProcess& server, const std::string& login = "") {
    return "redis://" + login + "127.0.0.1:" + std::to_string(server.port());
  }
  // The output of a run that must succeed.
  static std::string Out(const std::vector<std::string>& args, std::string_view input = {}) {
    const ToolResult result = RunTool(args, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  TempDir dir_;
};

TEST_F(Remote, RecordCommandsAreThoseOfAFile) {
  for (const char* const file : {"a.hkh", "a.hkt"}) {
    const ServerProcess server({"--db", dir_.File(file)});
    const std::string at = Address(server);
    Out({"set", at, "key", "value"});
    EXPECT_EQ(Out({"get", at, "key"}), "value\n");
    const ToolResult absent = RunTool({"get", at, "none"});
    EXPECT_EQ(absent.exit_code, 1);
    EXPECT_EQ(absent.err, "hako: " + at + ": no record of key 'none'\n");
    EXPECT_EQ(RunTool({"set", at, "key", "other", "--no_overwrite"}).exit_code, 1);
    Out({"set", at, "key", "more", "--append", ", "});
    Out({"set", at, "new", "first", "--append", ", "});
    EXPECT_EQ(Out({"get", at, "--multi", "key", "new"}), "key\tvalue, more\nnew\tfirst\n");
    EXPECT_EQ(Out({"set", at, "n", "--incr", "5"}), "5\n");
    EXPECT_EQ(Out({"set", at, "n", "--incr", "-7"}), "-2\n");
    Out({"set", at, "\\x00\\xff", "--unescape", "--value_file", "/dev/null"});
    EXPECT_EQ(Out({"get", at, "\\x00\\xff", "--unescape", "--raw"}), "");
    EXPECT_EQ(Out({"rekey", at, "n", "m"}), "");
    EXPECT_EQ(RunTool({"rekey", at, "n", "m"}).exit_code, 1);
    EXPECT_EQ(RunTool({"rekey", at, "key", "m", "--no_overwrite"}).exit_code, 1);
    EXPECT_EQ(RunTool({"rekey", at, "n", "n"}).exit_code, 1);
    EXPECT_EQ(Out({"expire", at, "m"}), "never\n");
    Out({"expire", at, "m", "--expire_at", "4000000000000"});
    EXPECT_EQ(Out({"expire", at, "m"}), "2096-10-02T07:06:40.000Z\n");
    Out({"expire", at, "m", "--never"});
    Out({"expire", at, "m", "--never"});
    EXPECT_EQ(Out({"expire", at, "m"}), "never\n");
    EXPECT_EQ(RunTool({"expire", at, "none", "--ttl", "1"}).exit_code, 1);
    EXPECT_EQ(Out({"count", at}), "4\n");
    EXPECT_EQ(RunTool({"remove", at, "m", "none"}).exit_code, 1);
    EXPECT_EQ(Out({"count", at}), "3\n");
    EXPECT_EQ(Out({"search", at, "ke", "--keys"}), "key\n");
    EXPECT_EQ(RunTool({"search", at, "none"}).exit_code, 1);
  }
}

// More than a page, and in order both ways where the database has one.
TEST_F(Remote, ListShowsAllRecordsOnce) {
  for (const char* const file : {"a.hkh", "a.hkt"}) {
    const ServerProcess server({"--db", dir_.File(file)});
    const std::string at = Address(server);
    RespClient client = server.Connect();
    std::string all;
    for (int i = 1000; i < 4000; ++i) {
      const std::string key = std::to_string(i), value(i % 100 == 0 ? 50'000 : 1, 'v');
      client.Run({"set", key, value});
      all += key + "\t" + value + "\n";
    }
    const bool is_ordered = std::string_view(file) == "a.hkt";
    std::vector<std::string> lines = SplitLines(all), listed = SplitLines(Out({"list", at}));
    if (!is_ordered) std::sort(listed.begin(), listed.end());
    EXPECT_TRUE(listed == lines) << file;
    EXPECT_EQ(SplitLines(Out({"list", at, "--prefix", "2", "--keys"})).size(), 1000u);
    EXPECT_EQ(Out({"list", at, "--prefix", "*"}), "");
    EXPECT_THAT(RunTool({"list", at, "--items", "3", "--keys"}).err, EndsWith(": the first 3; --items -1 lists all\n"));
    if (is_ordered) {
      EXPECT_EQ(Out({"list", at, "--from", "1500", "--to", "1503", "--keys"}), "1500\n1501\n1502\n");
      EXPECT_EQ(Out({"list", at, "--prefix", "399", "--reverse", "--keys", "--items", "2"}), "3999\n3998\n");
      listed = SplitLines(Out({"list", at, "--reverse"}));
      std::reverse(listed.begin(), listed.end());
      EXPECT_TRUE(listed == lines);
    } else {
      const ToolResult refused = RunTool({"list", at, "--reverse"});
      EXPECT_EQ(refused.exit_code, 3);
      EXPECT_THAT(refused.err, HasSubstr("not ordered"));
    }
  }
}

TEST_F(Remote, AnotherServerIsListedByScan) {
  const std::string program = FindRedis();
  if (program.empty()) GTEST_SKIP() << "needs redis-server";
  const RedisProcess redis(program, dir_.path());
  const std::string at = "unix://" + redis.socket();
  Out({"set", at, "a*b", "1"});
  Out({"set", at, "axb", "2"});
  redis.Connect().Run({"rpush", "a list", "element"});
  EXPECT_EQ(Out({"list", at, "--prefix", "a*"}), "a*b\t1\n");
  const ToolResult all = RunTool({"list", at});
  EXPECT_THAT(SplitLines(all.out), testing::UnorderedElementsAre("a*b\t1", "axb\t2"));
  EXPECT_THAT(all.err, HasSubstr("1 keys have no text as their value"));
  const ToolResult of_list = RunTool({"get", at, "a list"});
  EXPECT_EQ(of_list.exit_code, 3);
  EXPECT_THAT(of_list.err, HasSubstr("WRONGTYPE"));
  const ToolResult ordered = RunTool({"list", at, "--from", "b"});
  EXPECT_EQ(ordered.exit_code, 3);
  EXPECT_THAT(ordered.err, HasSubstr("unknown command"));
}

TEST_F(Remote, ErrorsNameTheServerAndTheWayOutAndNoPassword) {
  const ServerProcess server({"--requirepass", "s3cret@/"});
  const std::string at = Address(server), port = std::to_string(server.port());
  const auto fails = [&](const std::string& address, int code, const std::string& text) {
    const ToolResult result = RunTool({"get", address, "key"});
    EXPECT_EQ(result.exit_code, code) << address;
    EXPECT_THAT(result.err, AllOf(HasSubstr(text), Not(HasSubstr("wr0ng")))) << address;
  };
  EXPECT_EQ(Out({"count", Address(server, ":s3cret%40%2f@")}), "0\n");
  EXPECT_EQ(Out({"count", Address(server, "default:s3cret%40/@") + "/0"}), "0\n");
  setenv("REDISCLI_AUTH", "s3cret@/", 1);
  EXPECT_EQ(Out({"count", at}), "0\n");
  unsetenv("REDISCLI_AUTH");
  fails(at, 3, "hako: " + at + ": NOAUTH Authentication required.; give a login");
  fails(Address(server, ":wr0ng@"), 3, "hako: " + at + ": WRONGPASS ");
  fails(Address(server, "wr0ng@"), 2, "a login is USER:PASSWORD");
  fails(Address(server, ":wr0ng%4@"), 2, "malformed %XX");
  fails("redis://127.0.0.1:1", 3, "hako: redis://127.0.0.1:1: cannot connect: Connection refused; check that the server runs");
  fails("redis://host.invalid", 3, "hako: redis://host.invalid: cannot connect: ");
  fails("unix:///none", 3, "cannot connect: No such file or directory");
  fails("redis://127.0.0.1:70000", 2, "a port is a number");
  fails("redis://", 2, "no host");
  fails("redis://[::1", 2, "] is missing");
  fails(at + "/1", 2, "one database, /0");
  fails(at + "?cacert=x", 2, "of rediss:// alone");
  fails("rediss://127.0.0.1:" + port, 3, "the TLS handshake failed");
  EXPECT_THAT(RunTool({"verify", at}).err, HasSubstr("this command works on a file, not on a server"));
  EXPECT_EQ(RunTool({"copy", at, dir_.File("a.hkh")}).exit_code, 2);
  EXPECT_THAT(RunTool({"set", at, "a", "b", "--durability", "power"}).err, HasSubstr("--durability is for files"));
}

TEST_F(Remote, TlsChecksTheServer) {
  const Certificate ca("ca"), of_server("server", &ca), of_client("client", &ca), other_ca("other");
  ca.Write(dir_.File("ca"));
  of_server.Write(dir_.File("server"));
  of_client.Write(dir_.File("client"));
  other_ca.Write(dir_.File("other"));
  const ServerProcess server({"--tls-port", "any", "--tls-cert-file", dir_.File("server.crt"), "--tls-key-file", dir_.File("server.key"),
                              "--tls-ca-cert-file", dir_.File("ca.crt")});
  const std::string at = "rediss://localhost:" + std::to_string(server.tls_port()) + "?cacert=",
                    own = "&cert=" + dir_.File("client.crt") + "&key=" + dir_.File("client.key");
  Out({"set", at + dir_.File("ca.crt") + own, "key", "-"}, std::string(200'000, 'x'));
  EXPECT_EQ(Out({"get", at + dir_.File("ca.crt") + own, "key"}).size(), 200'001u);
  EXPECT_THAT(RunTool({"get", at + dir_.File("other.crt") + own, "key"}).err, HasSubstr("the TLS handshake failed: "));
  EXPECT_EQ(RunTool({"get", at + dir_.File("ca.crt"), "key"}).exit_code, 3) << "without a certificate";
  EXPECT_THAT(RunTool({"get", at + dir_.File("none") + own, "key"}).err, HasSubstr("none: it cannot be read"));
}

TEST_F(Remote, PerfMeasuresAndLeavesOtherRecords) {
  const ServerProcess server({});
  const std::string at = Address(server);
  Out({"set", at, "key", "value"});
  const std::vector<std::string> lines =
      SplitLines(Out({"perf", "--remote", at, "--records", "1001", "--threads", "3", "--pipeline", "7", "--size", "10", "--json"}));
  ASSERT_EQ(lines.size(), 3u);
  for (const std::string& line : lines) {
    const auto phase = nlohmann::json::parse(line);
    EXPECT_EQ(phase.at("num_records"), 1001);
    EXPECT_EQ(phase.at("wrong"), 0);
    EXPECT_GT(phase.at("per_second").get<double>(), 0);
  }
  EXPECT_THAT(server.Connect().Run({"info", "commandstats"}),
              AllOf(HasSubstr("cmdstat_get:calls=1001,"), HasSubstr("cmdstat_del:calls=1001,")));
  EXPECT_EQ(Out({"list", at}), "key\tvalue\n");
  EXPECT_THAT(Out({"perf", "--remote", at, "--records", "10"}), StartsWith("Server: records=10 size=100 threads=1 pipeline=1; "));
  EXPECT_EQ(RunTool({"perf", "--remote", "db.hkh"}).exit_code, 2);
  EXPECT_EQ(RunTool({"perf", "--remote", "redis://127.0.0.1:1"}).exit_code, 3);
}

}  // namespace
}  // namespace hako
