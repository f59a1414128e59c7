// Commands whose replies depend on the server's state, on other clients or on chance. The replies of
// all others are those of redis-server (differential_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "hako/base/wall_clock.h"
#include "hako/dbm/any_dbm.h"
#include "server/client.h"
#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ServerCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  TempDir dir_;
};

// The number behind `name` in a text such as that of INFO; -1 if the name is not there.
std::int64_t NumberAfter(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + name.size());
}

// The replies to commands that are sent together.
std::vector<std::string> RunAll(RespClient& client, const std::vector<RespClient::Words>& commands, std::size_t num_replies) {
  std::string bytes;
  for (const auto& words : commands) bytes += RespClient::Encode(words);
  client.Send(bytes);
  std::vector<std::string> replies;
  while (replies.size() < num_replies) replies.push_back(client.Read());
  return replies;
}

TEST_F(ServerCommandsTest, AWrongArgumentIsOneError) {
  ServerProcess server({});
  RespClient client = server.Connect();
  const std::string expected = "-ERR client-id should be greater than 0\r\n";
  for (const std::string id : {"x", "0", "-4", ""})
    EXPECT_EQ(RunAll(client, {{"client", "kill", "id", id}, {"echo", id}}, 2)[1], "$" + std::to_string(id.size()) + "\r\n" + id + "\r\n");
  EXPECT_EQ(client.Run({"client", "kill", "id", "0"}), expected);
  EXPECT_EQ(client.Run({"command", "info", "foo"}), "*1\r\n$-1\r\n");
  EXPECT_EQ(client.Run({"slowlog", "get", "abc"}), "-ERR count should be greater than or equal to -1\r\n");
  EXPECT_EQ(client.Run({"slowlog", "get", "1", "2"}),
            "-ERR unknown subcommand or wrong number of arguments for 'get'. Try SLOWLOG HELP.\r\n");
  EXPECT_EQ(client.Run({"command", "getkeys", "ping"}), "-ERR wrong number of arguments for 'command|getkeys' command\r\n");
  EXPECT_EQ(client.Run({"foo", std::string(200, 'a')}),
            "-ERR unknown command 'foo', with args beginning with: '" + std::string(128, 'a') + "' \r\n");
}

TEST_F(ServerCommandsTest, RemovalOfAnAbsentKeyLeavesItsWatchersAlone) {
  ServerProcess server({});
  RespClient client = server.Connect(), other = server.Connect();
  client.Run({"set", "present", "1"});
  client.Run({"watch", "absent"});
  EXPECT_EQ(other.Run({"del", "present", "absent", "absent"}), ":1\r\n");
  client.Run({"multi"});
  EXPECT_EQ(client.Run({"exec"}), "*0\r\n");
  client.Run({"mset", "a", "1", "b", "1"});
  client.Run({"watch", "b"});
  EXPECT_EQ(other.Run({"del", "absent", "a", "b"}), ":2\r\n");
  client.Run({"multi"});
  EXPECT_EQ(client.Run({"exec"}), "*-1\r\n");
}

TEST_F(ServerCommandsTest, CommandsOfATransactionAreMeasuredAndLogged) {
  ServerProcess server({});
  RespClient client = server.Connect();
  client.Run({"config", "set", "slowlog-log-slower-than", "0"});
  client.Run({"set", "text", "x"});
  RunAll(client, {{"multi"}, {"append", "text", "y"}, {"incr", "text"}, {"exec"}}, 4);
  const std::string log = client.Run({"slowlog", "get", "-1"});
  EXPECT_THAT(log, HasSubstr("$6\r\nappend\r\n$4\r\ntext\r\n"));
  EXPECT_THAT(log, HasSubstr("$4\r\nincr\r\n$4\r\ntext\r\n"));
  EXPECT_THAT(log, Not(HasSubstr("$4\r\nexec\r\n")));
  const std::string info = client.Run({"info", "all"});
  EXPECT_THAT(info, HasSubstr("cmdstat_append:calls=1,"));
  EXPECT_EQ(NumberAfter(info, "total_error_replies:"), 1);
  EXPECT_GE(NumberAfter(info, "cmdstat_exec:calls="), 1);
}

TEST_F(ServerCommandsTest, AgesDoNotDependOnTheClockOfTheDatabase) {
  AnyOptions options{.path = dir_.File("a.hkt"), .expiry = true, .clock = [] { return WallClock() / 1000 + 1'000'000'000; }};
  {
    auto ahead = AnyDBM::Open(options);
    ASSERT_TRUE(ahead.ok()) << ahead.status();
    ASSERT_TRUE((*ahead)->Set("key", "value").ok());
    ASSERT_TRUE((*ahead)->Close().ok());
  }
  ServerProcess server({"--db", options.path});
  RespClient client = server.Connect();
  const std::int64_t uptime = NumberAfter(client.Run({"info", "server"}), "uptime_in_seconds:");
  EXPECT_GE(uptime, 0);
  EXPECT_LT(uptime, 100);
  const std::int64_t age = NumberAfter(client.Run({"client", "info"}), " age=");
  EXPECT_GE(age, 0);
  EXPECT_LT(age, 100);
  client.Run({"config", "set", "slowlog-log-slower-than", "0"});
  const std::int64_t logged = NumberAfter(client.Run({"slowlog", "get", "1"}), "*6\r\n:0\r\n:");
  EXPECT_LE(std::abs(logged - static_cast<std::int64_t>(WallClock() / 1'000'000)), 100);
}

TEST_F(ServerCommandsTest, RandomKeysDifferFromStartToStart) {
  std::string walks[2];
  for (std::string& walk : walks) {
    ServerProcess server({"--db", "?dbm=baby"});
    RespClient client = server.Connect();
    for (int i = 100; i < 600; ++i) client.Run({"set", std::to_string(i), "v"});
    for (int i = 0; i < 16; ++i) walk += client.Run({"randomkey"});
  }
  EXPECT_NE(walks[0], walks[1]);
}

// What redis-server 7.0.15 replies to the same commands.
TEST_F(ServerCommandsTest, ClientReplyTurnsRepliesOffAndOn) {
  ServerProcess server({});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"client", "reply", "foo"}), "-ERR syntax error\r\n");
  using testing::ElementsAre;
  const auto run = [&](const std::vector<RespClient::Words>& commands, std::size_t num_replies) {
    return RunAll(client, commands, num_replies);
  };
  EXPECT_THAT(run({{"client", "reply", "skip"}, {"ping"}, {"echo", "1"}}, 1), ElementsAre("$1\r\n1\r\n"));
  EXPECT_THAT(run({{"client", "reply", "skip"}, {"client", "reply", "skip"}, {"echo", "1"}, {"echo", "2"}}, 1), ElementsAre("$1\r\n2\r\n"));
  EXPECT_THAT(run({{"client", "reply", "skip"}, {"hako.check"}, {"echo", "3"}}, 1), ElementsAre("$1\r\n3\r\n"));
  EXPECT_THAT(run({{"client", "reply", "off"},
                   {"set", "a", "b"},
                   {"foo"},
                   {"hako.check"},
                   {"multi"},
                   {"get", "a"},
                   {"exec"},
                   {"client", "reply", "skip"},
                   {"client", "reply", "on"},
                   {"get", "a"}},
                  2),
              ElementsAre("+OK\r\n", "$1\r\nb\r\n"));
  EXPECT_THAT(run({{"client", "reply", "off"}, {"reset"}, {"get", "a"}}, 2), ElementsAre("+RESET\r\n", "$1\r\nb\r\n"));
  EXPECT_THAT(run({{"multi"}, {"client", "reply", "off"}, {"exec"}}, 3)[1], StartsWith("-ERR Command not allowed inside"));
  EXPECT_THAT(run({{"client", "reply", "off"}, {"ping"}, {"quit"}}, 1), ElementsAre(""));
}

TEST_F(ServerCommandsTest, SetIfeqReplacesTheExpectedValueOnly) {
  ServerProcess server({});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"set", "a", "1", "ifeq", "0"}), "$-1\r\n");
  EXPECT_EQ(client.Run({"exists", "a"}), ":0\r\n");
  client.Run({"set", "a", "0", "ex", "1000"});
  EXPECT_EQ(client.Run({"set", "a", "1", "IFEQ", "0", "keepttl"}), "+OK\r\n");
  const std::int64_t ttl = NumberAfter(client.Run({"ttl", "a"}), ":");
  EXPECT_LE(ttl, 1000);
  EXPECT_GT(ttl, 900);
  EXPECT_EQ(client.Run({"set", "a", "2", "ifeq", "0", "get"}), "$1\r\n1\r\n");
  EXPECT_EQ(client.Run({"set", "a", "", "get", "ifeq", "1"}), "$1\r\n1\r\n");
  EXPECT_EQ(client.Run({"set", "a", "3", "ifeq", ""}), "+OK\r\n");
  for (const std::string other : {"nx", "xx", "ifeq"})
    EXPECT_EQ(client.Run({"set", "a", "4", "ifeq", "3", other, "3"}), "-ERR syntax error\r\n");
  EXPECT_EQ(client.Run({"set", "a", "4", "nx", "ifeq", "3"}), "-ERR syntax error\r\n");
  EXPECT_EQ(client.Run({"set", "a", "4", "ifeq"}), "-ERR syntax error\r\n");
  EXPECT_EQ(client.Run({"get", "a"}), "$1\r\n3\r\n");
}

// Databases in memory evict records that were not used lately; all others refuse the option.
TEST_F(ServerCommandsTest, MaxmemoryEvictsRecordsOfADatabaseInMemory) {
  const std::string kOom = "OOM command not allowed when used memory > 'maxmemory'.\r\n";
  for (const char* const kind : {"?dbm=tiny", "?dbm=baby"}) {
    SCOPED_TRACE(kind);
    ServerProcess server({"--db", kind, "--maxmemory", "4mb"});
    RespClient client = server.Connect();
    EXPECT_EQ(client.Run({"config", "get", "maxmemory*"}),
              "*4\r\n$9\r\nmaxmemory\r\n$7\r\n4194304\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lru\r\n");
    const std::string quarter(std::size_t{1} << 20, 'x'), part(200'000, 'x');
    client.Run({"set", "first", "1"});
    EXPECT_EQ(client.Run({"set", "a", quarter}), "-" + kOom);
    EXPECT_EQ(client.Run({"setrange", "a", "1100000", "x"}), "-" + kOom);
    EXPECT_EQ(client.Run({"setbit", "a", "9000000", "1"}), "-" + kOom);
    EXPECT_EQ(RunAll(client, {{"multi"}, {"set", "a", quarter}, {"exec"}}, 3)[2], "-EXECABORT Transaction discarded because of: " + kOom);
    EXPECT_EQ(NumberAfter(client.Run({"info", "stats"}), "evicted_keys:"), 0);
    EXPECT_EQ(client.Run({"mget", "first", "a"}), "*2\r\n$1\r\n1\r\n$-1\r\n");
    for (int i = 0; i < 100; ++i) EXPECT_EQ(client.Run({"set", "k" + std::to_string(i), part}), "+OK\r\n");
    const std::string info = client.Run({"info"});
    EXPECT_GT(NumberAfter(info, "evicted_keys:"), 50);
    EXPECT_EQ(NumberAfter(info, "maxmemory:"), 4194304);
    EXPECT_LE(NumberAfter(info, "used_memory_dataset:"), 4194304);
    EXPECT_THAT(info, HasSubstr("keyspace_hits:1\r\nkeyspace_misses:1\r\n"));
    EXPECT_THAT(client.Run({"config", "set", "maxmemory", "0"}), HasSubstr("can't set immutable config"));
    EXPECT_THAT(client.Run({"config", "set", "maxmemory-policy", "noeviction"}), HasSubstr("can't set immutable config"));
    EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");
  }
  for (const char* const file : {"a.hkh", "a.hkt"}) EXPECT_EQ(ServerProcess({"--db", dir_.File(file), "--maxmemory", "4mb"}).port(), 0);
  for (const char* const wrong : {"4xb", "-1", "2000000gb", "mb"}) EXPECT_EQ(ServerProcess({"--maxmemory", wrong}).port(), 0) << wrong;
  EXPECT_EQ(ServerProcess({"--maxmemory", "4M"}).Connect().Run({"config", "get", "maxmemory"}),
            "*2\r\n$9\r\nmaxmemory\r\n$7\r\n4000000\r\n");
  EXPECT_NE(ServerProcess({"--db", dir_.File("a.hks"), "--maxmemory", "4mb"}).port(), 0);
}

// Few bytes of requests that make long replies and large records.
TEST_F(ServerCommandsTest, ShortRequestsTakeBoundedMemory) {
  ServerProcess server({"--client-output-buffer-limit", "4mb", "--client-query-buffer-limit", "8mb"});
  RespClient client = server.Connect();
  client.Run({"setrange", "big", "999999", "x"});
  RespClient::Words all(200, "big");
  all[0] = "mget";
  std::vector<RespClient::Words> reads(200, {"get", "big"}), writes;
  reads.front() = {"multi"};
  reads[1] = {"incr", "n"};
  reads.back() = {"exec"};
  for (int i = 0; i < 200; ++i) writes.push_back({"setbit", "bits" + std::to_string(i), "7999999", "1"});
  writes.front() = {"multi"};
  writes.back() = {"exec"};
  const std::size_t before = server.ResidentBytes();
  EXPECT_EQ(client.Run(all), "-ERR the reply exceeds client-output-buffer-limit\r\n");
  EXPECT_THAT(RunAll(client, writes, writes.size()).back(),
              StartsWith("-EXECABORT Transaction discarded because of: OOM the records of the transaction exceed"));
  EXPECT_EQ(client.Run({"dbsize"}), ":1\r\n");
  const std::string shown = RunAll(client, reads, reads.size()).back();  // as many values as have room, and errors
  EXPECT_TRUE(shown.starts_with("*198\r\n:1\r\n$1000000\r\n") && shown.ends_with("-ERR the reply exceeds client-output-buffer-limit\r\n"));
  EXPECT_LT(server.ResidentBytes(), before + (std::size_t{40} << 20));
  EXPECT_EQ(server.Connect().Run({"get", "n"}), "$1\r\n1\r\n");
}

TEST(ClientRegistry, ConcurrentAdditionsNeverExceedTheLimit) {
  static constexpr std::size_t kThreads = 4, kEach = 200, kMax = 100;
  server::ClientRegistry registry;
  std::vector<server::Client> clients(kThreads * kEach);
  std::atomic<std::size_t> added = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t j = 0; j < kEach; ++j) added += registry.Add(&clients[i * kEach + j], kMax, nullptr) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(added, kMax);
  EXPECT_EQ(registry.size(), kMax);
}

}  // namespace
}  // namespace hako
