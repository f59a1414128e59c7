// The server as a process: limits, transactions beside other clients, durability.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hako/dbm/any_dbm.h"
#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/crash_states.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  TempDir dir_;
};

// The keys that a SCAN of all pages shows.
std::multiset<std::string> ScanAll(
    RespClient& client, const std::string& count, const std::function<void(int)>& between = [](int) {}) {
  std::multiset<std::string> keys;
  std::string cursor = "0";
  int page = 0;
  do {
    const std::string reply = client.Run({"scan", cursor, "count", count});
    const std::vector<std::string> bulks = RespClient::Bulks(reply);
    if (bulks.empty()) break;
    cursor = bulks[0];
    keys.insert(bulks.begin() + 1, bulks.end());
    between(page++);
  } while (cursor != "0");
  return keys;
}

TEST_F(ServerTest, KeepsItsRecordsWhenItIsStoppedAndStartedAgain) {
  for (const char* const file : {"a.hkh", "a.hkt", "a.hks"}) {
    {
      ServerProcess server({"--db", dir_.File(file)});
      RespClient client = server.Connect();
      EXPECT_EQ(client.Run({"set", "key", "value", "exat", "4000000000"}), "+OK\r\n");
      EXPECT_EQ(server.Stop(), 0);
    }
    ServerProcess server({"--db", dir_.File(file)});
    RespClient client = server.Connect();
    EXPECT_EQ(client.Run({"get", "key"}), "$5\r\nvalue\r\n") << file;
    EXPECT_EQ(client.Run({"expiretime", "key"}), ":4000000000\r\n");
    client.Send(RespClient::Encode({"shutdown"}));
    EXPECT_EQ(server.Wait(), 0);
  }
}

using ServerKillTest = ServerTest;  // apart, as it takes long

// Each acknowledged write is there after kill -9, whatever appendfsync is.
TEST_F(ServerKillTest, LosesNoAcknowledgedWrite) {
  const int rounds = Kills(67);
  for (const char* const file : {"a.hkh", "a.hkt", "a.hks"}) {
    std::int64_t acknowledged = 0;
    for (int round = 0; round < rounds; ++round) {
      ServerProcess server({"--db", dir_.File(file), "--appendfsync", round % 2 == 0 ? "always" : "everysec", "--threads", "2"});
      RespClient client = server.Connect();
      ASSERT_TRUE(client.is_open()) << file << ", round " << round;
      if (acknowledged > 0) {
        const std::string reply = client.Run({"incrby", "n", "0"});
        EXPECT_GE(std::atoll(reply.c_str() + 1), acknowledged) << file << ", round " << round;
        const std::string text = std::to_string(acknowledged);
        EXPECT_EQ(client.Run({"get", "k" + text}), "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n");
        acknowledged = std::atoll(reply.c_str() + 1);
      }
      std::atomic<int> num_new = 0;  // of those that were acknowledged
      std::thread killer([&] {
        for (int i = 0; i < 60'000 && num_new == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        server.Kill();
      });
      while (client.is_open()) {
        const std::string next = std::to_string(acknowledged + 1);
        client.Send(RespClient::Encode({"multi"}) + RespClient::Encode({"set", "k" + next, next}) + RespClient::Encode({"incr", "n"}) +
                    RespClient::Encode({"exec"}));
        std::string last;
        for (int i = 0; i < 4 && client.is_open(); ++i) last = client.Read();
        if (last == "*2\r\n+OK\r\n:" + next + "\r\n") ++acknowledged, ++num_new;
      }
      killer.join();
    }
    EXPECT_GT(acknowledged, 0) << file;
    ServerProcess server({"--db", dir_.File(file)});
    EXPECT_EQ(server.Connect().Run({"hako.check"}), "+OK\r\n");
  }
  ReportKills(3 * static_cast<std::uint64_t>(rounds));
}

// Increments, transactions and multi-key commands of many clients in several threads are exact.
TEST_F(ServerTest, ConcurrentClientsSeeAtomicCommands) {
  ServerProcess server({"--db", dir_.File("a.hkh"), "--threads", "3"});
  static constexpr int kClients = 6, kTimes = 300;
  std::atomic<int> torn = 0, aborted = 0, done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      RespClient client = server.Connect();
      for (int time = 0; time < kTimes; ++time) {
        client.Run({"incr", "single"});
        const std::string value = std::to_string(i * kTimes + time);
        client.Run({"mset", "a", value, "b", value});
        const std::string both = client.Run({"mget", "a", "b"});
        const std::string half = both.substr(4, (both.size() - 4) / 2);
        if (both != "*2\r\n" + half + half) ++torn;
        client.Run({"watch", "sum"});
        const std::string sum = client.Run({"get", "sum"});
        const std::int64_t old = sum[1] == '-' ? 0 : std::atoll(sum.c_str() + sum.find("\r\n") + 2);
        client.Run({"multi"});
        client.Run({"set", "sum", std::to_string(old + 1)});
        client.Run({"incr", "executed"});
        client.Run({"exec"}) == "*-1\r\n" ? ++aborted : ++done;
        if (time % 10 == 0) client.Run({"info", "all"});  // reads the figures of all threads
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RespClient client = server.Connect();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(done + aborted, kClients * kTimes);
  EXPECT_EQ(client.Run({"incrby", "single", "0"}), ":" + std::to_string(kClients * kTimes) + "\r\n");
  EXPECT_EQ(client.Run({"incrby", "sum", "0"}), ":" + std::to_string(done) + "\r\n");
  EXPECT_EQ(client.Run({"incrby", "executed", "0"}), ":" + std::to_string(done) + "\r\n");
}

// A backup that is made beside transactions and MSETs has all of each or nothing of it, of every kind.
TEST_F(ServerTest, ConcurrentBackupIsTheStateOfOneMoment) {
  static constexpr int kPairs = 2'000;
  const int backups = Copies(3);
  const std::string directory = dir_.File("backups");
  std::filesystem::create_directory(directory);
  for (const std::string database : {"?dbm=tiny", "?dbm=baby", "a.hks", "a.hkh", "a.hkt"}) {
    ServerProcess server({"--db", database[0] == '?' ? database : dir_.File(database), "--backup-dir", directory, "--threads", "2"});
    ASSERT_NE(server.port(), 0) << database;
    RespClient client = server.Connect();
    const auto key = [](const char* of, int i) { return of + std::to_string(i); };
    for (int i = 0; i < kPairs; ++i) client.Run({"mset", key("a", i), "0", key("z", i), "0", key("l", i), "0"});
    std::atomic<bool> stops = false;
    std::thread writer([&] {
      RespClient beside = server.Connect();
      for (int n = 1; !stops; ++n) {
        const int i = n * 37 % kPairs;
        const std::string value = std::to_string(n);
        beside.Run({"mset", key("a", i), value, key("z", i), value});
        beside.Run({"multi"});
        beside.Run({"incr", "first"});
        beside.Run({"rename", key(n / kPairs % 2 == 0 ? "l" : "r", i), key(n / kPairs % 2 == 0 ? "r" : "l", i)});
        beside.Run({"incr", "last"});
        beside.Run({"exec"});
      }
    });
    int torn = 0;
    const std::string suffix = database[0] == '?' ? ".hks" : database.substr(1);
    for (int n = 0; n < backups; ++n) {
      const std::string name = "backup" + suffix;
      EXPECT_EQ(client.Run({"hako.backup", name}), "+OK\r\n") << database;
      const auto backup = AnyDBM::Open(directory + "/" + name + "?mode=read");
      ASSERT_TRUE(backup.ok()) << backup.status();
      const auto value_of = [&](const std::string& wanted) { return (*backup)->GetOr(wanted, "none").value(); };
      bool is_torn = value_of("first") != value_of("last");
      for (int i = 0; i < kPairs; ++i) {
        is_torn = is_torn || value_of(key("a", i)) != value_of(key("z", i));
        is_torn = is_torn || (value_of(key("l", i)) == "none") == (value_of(key("r", i)) == "none");
      }
      torn += is_torn ? 1 : 0;
    }
    stops = true;
    writer.join();
    std::cout << database << ": " << torn << " of " << backups << " backups torn\n";
    EXPECT_EQ(torn, 0) << database;
  }
}

TEST_F(ServerTest, ScanShowsEachKeyOnceWhileTheDatabaseGrowsAndShrinks) {
  for (const char* const file : {"a.hkh", "a.hkt"}) {
    ServerProcess server({"--db", dir_.File(file)});
    RespClient client = server.Connect();
    for (int i = 0; i < 500; ++i) client.Run({"set", "key" + std::to_string(i), "v"});
    const auto keys = ScanAll(client, "7", [&](int page) {
      for (int i = 0; i < 20; ++i) client.Run({"set", "new" + std::to_string(page * 20 + i), "v"});
      client.Run({"del", "new" + std::to_string(page)});
    });
    for (int i = 0; i < 500; ++i) ASSERT_EQ(keys.count("key" + std::to_string(i)), 1u) << file << " " << i;
    EXPECT_THAT(client.Run({"scan", "123456"}), StartsWith("-ERR invalid cursor"));
    std::set<std::string> random;
    for (int i = 0; i < 30; ++i) random.insert(client.Run({"randomkey"}));
    EXPECT_GT(random.size(), 10u);
  }
}

TEST_F(ServerTest, RangesAreInOrder) {
  ServerProcess server({"--db", dir_.File("a.hkt"), "--backup-dir", dir_.path()});
  RespClient client = server.Connect();
  client.Run({"mset", "a", "1", "b", "2", "c", "3", "d", "4"});
  EXPECT_EQ(client.Run({"hako.range", "b", "d"}), "*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n3\r\n");
  EXPECT_EQ(client.Run({"hako.range", "b", "", "rev", "limit", "2", "keys"}), "*2\r\n$1\r\nd\r\n$1\r\nc\r\n");
  EXPECT_EQ(client.Run({"hako.range", "b", "d", "rev", "keys"}), "*2\r\n$1\r\nc\r\n$1\r\nb\r\n");
  EXPECT_EQ(client.Run({"hako.cas", "a", "1", "9"}), ":1\r\n");
  EXPECT_EQ(client.Run({"hako.cas", "a", "1", "8"}), ":0\r\n");
  EXPECT_EQ(client.Run({"hako.cas", "no", "", "8"}), ":0\r\n");
  EXPECT_EQ(client.Run({"get", "a"}), "$1\r\n9\r\n");
  EXPECT_EQ(client.Run({"hako.backup", "copy.hkt"}), "+OK\r\n");
  for (const std::string name : {"", ".", "../copy.hkt", "/tmp/copy.hkt"})
    EXPECT_THAT(client.Run({"hako.backup", name}), StartsWith("-ERR the name"));
  ServerProcess copy({"--db", dir_.File("copy.hkt")});
  EXPECT_EQ(copy.Connect().Run({"mget", "a", "d"}), "*2\r\n$1\r\n9\r\n$1\r\n4\r\n");
}

TEST_F(ServerTest, ShowsTheFieldsThatClientLibrariesNeed) {
  ServerProcess server({});
  RespClient client = server.Connect();
  EXPECT_THAT(client.Run({"info"}), HasSubstr("# Cluster\r\ncluster_enabled:0\r\n"));
  for (const char* const field : {"age", "idle", "sub", "psub", "multi", "qbuf", "qbuf-free", "obl", "oll", "omem", "argv-mem", "tot-mem"})
    EXPECT_THAT(client.Run({"client", "info"}), HasSubstr(std::string(" ") + field + "=")) << field;
  EXPECT_THAT(client.Run({"client", "list", "type", "normal"}), HasSubstr("id=1 "));
  EXPECT_THAT(client.Run({"client", "list", "id", "7", "1"}), HasSubstr("id=1 "));
  EXPECT_EQ(client.Run({"client", "list", "id", "7"}), "$0\r\n\r\n");
  EXPECT_EQ(client.Run({"client", "list", "type", "replica"}), "$0\r\n\r\n");
  EXPECT_EQ(client.Run({"client", "list", "type", "x"}), "-ERR Unknown client type 'x'\r\n");
  EXPECT_EQ(client.Run({"client", "kill", "id", "x"}), "-ERR client-id should be greater than 0\r\n");
  EXPECT_EQ(client.Run({"ping"}), "+PONG\r\n");  // one reply a request
}

TEST_F(ServerTest, ClientsNeedThePassword) {
  ServerProcess server({"--requirepass", "secret"});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"get", "a"}), "-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(client.Run({"auth", "secre"}), "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
  EXPECT_EQ(client.Run({"auth", "default", "secret"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"get", "a"}), "$-1\r\n");
  RespClient stranger = server.Connect();
  EXPECT_THAT(stranger.Run({"hello", "3"}), StartsWith("-NOAUTH HELLO must be called"));
  EXPECT_THAT(stranger.Run({"hello", "3", "auth", "default", "secret", "setname", "me"}), StartsWith("%7\r\n"));
  EXPECT_EQ(stranger.Run({"client", "getname"}), "$2\r\nme\r\n");
  RespClient long_one = server.Connect();
  long_one.Send("*1\r\n$16385\r\n");
  EXPECT_THAT(long_one.Read(), StartsWith("-ERR Protocol error: unauthenticated bulk length"));
  EXPECT_EQ(long_one.Read(), "");
}

TEST_F(ServerTest, LimitsClientsAndDisconnectsThem) {
  ServerProcess server({"--maxclients", "3"});
  RespClient a = server.Connect(), b = server.Connect();
  EXPECT_EQ(a.Run({"client", "setname", "first"}), "+OK\r\n");
  EXPECT_EQ(b.Run({"client", "setname", "with space"}), "-ERR Client names cannot contain spaces, newlines or special characters.\r\n");
  RespClient c = server.Connect();
  EXPECT_EQ(c.Run({"ping"}), "+PONG\r\n");
  EXPECT_EQ(server.Connect().Read(), "-ERR max number of clients reached\r\n");
  EXPECT_THAT(b.Run({"client", "list"}), HasSubstr("name=first"));
  EXPECT_EQ(b.Run({"client", "kill", "id", "1"}), ":1\r\n");
  EXPECT_EQ(a.Read(), "");
  EXPECT_EQ(b.Run({"quit"}), "+OK\r\n");
  EXPECT_EQ(b.Read(), "");
  EXPECT_EQ(c.Run({"config", "set", "timeout", "1"}), "+OK\r\n");
  EXPECT_EQ(c.Read(), "");  // it was idle
}

// A client that sends and never reads is stopped once its replies fill the buffers; another one is served.
TEST_F(ServerTest, ASlowReaderTakesBoundedMemoryAndStopsNobody) {
  ServerProcess server({});
  RespClient slow = server.Connect(), other = server.Connect();
  other.Run({"set", "big", std::string(100'000, 'x')});
  const std::size_t before = server.ResidentBytes();
  const std::string gets = [] {
    std::string bytes;
    for (int i = 0; i < 2000; ++i) bytes += RespClient::Encode({"get", "big"});
    return bytes;
  }();
  slow.SendWithoutReading(gets);
  EXPECT_FALSE(slow.is_open()) << "the server reads on";
  EXPECT_EQ(other.Run({"strlen", "big"}), ":100000\r\n");
  EXPECT_LT(server.ResidentBytes(), before + (std::size_t{16} << 20));
}

// Replies to a pipeline of any length come complete and in order.
TEST_F(ServerTest, AnswersLongPipelinesInOrder) {
  ServerProcess server({});
  RespClient client = server.Connect();
  static constexpr int kCount = 20'000;
  std::thread sender([&] {
    std::string bytes;
    for (int i = 0; i < kCount; ++i) bytes += RespClient::Encode({"echo", std::to_string(i) + std::string(200, 'e')});
    client.Send(bytes);
  });
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    const std::string text = std::to_string(i) + std::string(200, 'e');
    wrong += client.Read() != "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }
  sender.join();
  EXPECT_EQ(wrong, 0);
  client.Send("*2\r\n$4\r\nECHO\r\n$10000000\r\n");
  client.Send(std::string(10'000'000, 'b') + "\r\nPING\r\n");
  EXPECT_EQ(client.Read().size(), 10'000'000u + 13);
  EXPECT_EQ(client.Read(), "+PONG\r\n");
}

// What a turn did not run is run, and replied, in the next one at once, without waiting for an event.
TEST_F(ServerTest, ALongPipelineDoesNotWaitForATimer) {
  ServerProcess server({});
  RespClient client = server.Connect();
  std::string pings;
  for (int i = 0; i < 1500; ++i) pings += "PING\r\n";
  // A busy machine may need longer, but not each time.
  auto least = std::chrono::steady_clock::duration::max();
  for (int attempt = 0; attempt < 5 && least >= std::chrono::seconds(2); ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < 4; ++round) {
      client.Send(pings);
      for (int i = 0; i < 1500; ++i) ASSERT_EQ(client.Read(), "+PONG\r\n");
    }
    least = std::min(least, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(least, std::chrono::seconds(2));
}

// Where records are read past the page cache, the requests of a turn are gathered, and their records read
// together.
TEST_F(ServerTest, GatheredRequestsAreAllRun) {
  static constexpr int kRecords = 2000, kClients = 20;
  ServerProcess server({"--db", dir_.File("a.hkh?direct,block_cache_bytes=1mi")});
  RespClient first = server.Connect();
  const auto value_of = [](int i) { return std::to_string(i) + std::string(1000, 'v'); };
  for (int i = 0; i < kRecords; ++i) ASSERT_EQ(first.Run({"set", "k" + std::to_string(i), value_of(i)}), "+OK\r\n");
  std::vector<RespClient> clients;
  for (int c = 0; c < kClients; ++c) clients.push_back(server.Connect());
  for (int round = 0; round < 5; ++round) {
    const auto key_of = [round](int c, int i) { return (round * 7919 + c * 613 + i * 37) % kRecords; };
    for (int c = 0; c < kClients; ++c) {
      std::string requests = c % 3 == 0 ? "get k5\r\n" : "";
      for (int i = 0; i < 40; ++i) requests += RespClient::Encode({"get", "k" + std::to_string(key_of(c, i))});
      requests += RespClient::Encode({"incr", "n"});
      if (c % 4 == 0) {  // in two pieces
        clients[static_cast<std::size_t>(c)].Send(requests.substr(0, 777));
        requests.erase(0, 777);
      }
      clients[static_cast<std::size_t>(c)].Send(requests);
    }
    int wrong = 0;
    const auto reply_of = [&](int i) { return "$" + std::to_string(value_of(i).size()) + "\r\n" + value_of(i) + "\r\n"; };
    for (int c = 0; c < kClients; ++c) {
      RespClient& client = clients[static_cast<std::size_t>(c)];
      if (c % 3 == 0) wrong += client.Read() != reply_of(5);
      for (int i = 0; i < 40; ++i) wrong += client.Read() != reply_of(key_of(c, i));
      EXPECT_THAT(client.Read(), StartsWith(":"));
    }
    EXPECT_EQ(wrong, 0);
  }
  EXPECT_EQ(first.Run({"get", "n"}), "$3\r\n100\r\n");
  for (const char byte : RespClient::Encode({"set", "bytes", "one by one"})) first.Send({&byte, 1});
  EXPECT_EQ(first.Read(), "+OK\r\n");
  const std::string large(3'000'000, 'l');
  first.Send(RespClient::Encode({"set", "large", large}) + RespClient::Encode({"get", "large"}) + RespClient::Encode({"get", "bytes"}));
  EXPECT_EQ(first.Read(), "+OK\r\n");
  EXPECT_EQ(first.Read().size(), large.size() + 12);
  EXPECT_EQ(first.Read(), "$10\r\none by one\r\n");
  RespClient ends = server.Connect();  // its last bytes fill a buffer, and their end comes at once
  ends.Send("PI");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::string pings = "NG\r\n";
  while (pings.size() < 16'384) pings += "PING\r\n";
  ends.Send(pings);
  shutdown(ends.socket_number(), SHUT_WR);
  EXPECT_EQ(ends.ReadAll().size(), (1 + pings.size() / 6) * 7);
  for (int i = 0; i < 20; ++i) server.Connect().Send(RespClient::Encode({"incr", "left"}));  // and leaves
  for (int i = 0; i < 10'000 && first.Run({"get", "left"}) != "$2\r\n20\r\n"; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(first.Run({"get", "left"}), "$2\r\n20\r\n");
  EXPECT_EQ(first.Run({"hako.check"}), "+OK\r\n");
}

TEST_F(ServerTest, SettingsChangeAtRunTime) {
  ServerProcess server({"--db", dir_.File("a.hkt"), "--appendfsync", "no"});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"config", "get", "append*"}), "*4\r\n$11\r\nappendfsync\r\n$2\r\nno\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n");
  EXPECT_EQ(client.Run({"config", "set", "appendfsync", "always", "slowlog-log-slower-than", "0"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"set", "a", "b"}), "+OK\r\n");
  EXPECT_THAT(client.Run({"slowlog", "get", "1"}), HasSubstr("$3\r\nset\r\n$1\r\na\r\n$1\r\nb\r\n"));
  EXPECT_THAT(client.Run({"config", "set", "appendfsync", "sometimes"}), StartsWith("-ERR CONFIG SET failed"));
  EXPECT_THAT(client.Run({"config", "set", "port", "1"}), HasSubstr("can't set immutable config"));
  EXPECT_THAT(client.Run({"config", "set", "nothing", "1"}), StartsWith("-ERR Unknown option"));
  EXPECT_EQ(client.Run({"hako.backup", "copy"}), "-ERR the server has no backup-dir\r\n");
  client.Run({"config", "set", "client-query-buffer-limit", "1mb"});
  client.Run({"multi"});
  EXPECT_EQ(client.Run({"set", "a", std::string(600'000, 'x')}), "+QUEUED\r\n");
  EXPECT_THAT(client.Run({"set", "a", std::string(600'000, 'x')}), StartsWith("-ERR the transaction exceeds"));
  EXPECT_THAT(client.Run({"exec"}), StartsWith("-EXECABORT"));
  EXPECT_THAT(client.Run({"info", "all"}), HasSubstr("cmdstat_set:calls=1,"));
  EXPECT_THAT(client.Run({"latency", "histogram", "set"}), StartsWith("*2\r\n$3\r\nset\r\n*4\r\n$5\r\ncalls\r\n:1\r\n"));
  EXPECT_THAT(client.Run({"command", "info", "get", "foo"}),
              StartsWith("*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"));
}

}  // namespace
}  // namespace hako
