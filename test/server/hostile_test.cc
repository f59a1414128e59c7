// Clients that attack the server, operators that mistype, and a machine without memory or files: nobody else is
// disturbed, and nothing is lost unseen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class HostileServerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  TempDir dir_;
};

std::string Bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }

// A web page can have a browser send this; redis-server closes such a connection, too.
TEST_F(HostileServerTest, ABrowserRunsNoCommands) {
  ServerProcess server({});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"set", "a", "b"}), "+OK\r\n");
  for (const std::string request : {"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nFLUSHALL\r\nSET c d\r\n",
                                    "GET / HTTP/1.1\r\nhOST: localhost\r\n\r\nFLUSHALL\r\nSET c d\r\n"}) {
    RespClient browser = server.Connect();
    browser.Send(request);
    EXPECT_THAT(browser.ReadAll(), testing::Not(HasSubstr("OK")));
  }
  EXPECT_EQ(client.Run({"mget", "a", "c"}), "*2\r\n$1\r\nb\r\n$-1\r\n");
}

// A reply that is too long is an error, and the value that it would have shown stays.
TEST_F(HostileServerTest, AValueThatCannotBeShownIsNotRemoved) {
  for (const std::string name : {"a.hkh", "b.hkh?direct", "a.hkt", "a.hks", "?dbm=baby"}) {
    SCOPED_TRACE(name);
    ServerProcess server({"--db", name[0] == '?' ? name : dir_.File(name), "--client-output-buffer-limit", "1mb"});
    RespClient client = server.Connect();
    const std::string long_value(2 << 20, 'x'), error = "-ERR the reply exceeds client-output-buffer-limit\r\n";
    ASSERT_EQ(client.Run({"set", "a", long_value, "ex", "1000"}), "+OK\r\n");
    EXPECT_EQ(client.Run({"get", "a"}), error);
    EXPECT_EQ(client.Run({"getdel", "a"}), error);
    EXPECT_EQ(client.Run({"getset", "a", "new"}), error);
    EXPECT_EQ(client.Run({"set", "a", "new", "get"}), error);
    EXPECT_EQ(client.Run({"getex", "a", "persist"}), error);
    EXPECT_EQ(client.Run({"strlen", "a"}), ":" + std::to_string(long_value.size()) + "\r\n");
    EXPECT_NE(client.Run({"ttl", "a"}), ":-1\r\n");
    EXPECT_EQ(client.Run({"config", "set", "client-output-buffer-limit", "4mb"}), "+OK\r\n");
    EXPECT_EQ(client.Run({"getex", "a", "px", "500000"}), Bulk(long_value));
    EXPECT_EQ(client.Run({"getset", "a", ""}), Bulk(long_value));
    EXPECT_EQ(client.Run({"set", "a", "new", "get"}), Bulk(""));
    EXPECT_EQ(client.Run({"getdel", "a"}), Bulk("new"));
    EXPECT_EQ(client.Run({"getdel", "a"}), "$-1\r\n");
  }
}

TEST_F(HostileServerTest, LimitsThatWouldLockEveryoneOutAreRefused) {
  ServerProcess server({});
  RespClient client = server.Connect();
  for (const std::string name : {"client-query-buffer-limit", "proto-max-bulk-len", "client-output-buffer-limit"}) {
    for (const std::string value : {"0", "1", "1kb"})
      EXPECT_THAT(client.Run({"config", "set", name, value}), HasSubstr("argument must be a memory value of at least"));
  }
  EXPECT_THAT(client.Run({"config", "set", "requirepass", std::string(20'000, 'p')}), HasSubstr("at most 16 KiB"));
  EXPECT_EQ(client.Run({"ping"}), "+PONG\r\n");
}

TEST_F(HostileServerTest, ClosedTerminalsDoNotStopTheServer) {
  ServerProcess server({});
  kill(server.pid(), SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(server.Connect().Run({"ping"}), "+PONG\r\n");
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(HostileServerTest, ShutdownStopsOnlyForArgumentsThatFitTogether) {
  ServerProcess server({});
  RespClient client = server.Connect();
  for (const RespClient::Words& words : {RespClient::Words{"shutdown", "save", "nosave"},
                                         {"shutdown", "abort", "now"},
                                         {"shutdown", "abort", "save"},
                                         {"shutdown", "later"}})
    EXPECT_EQ(client.Run(words), "-ERR syntax error\r\n");
  EXPECT_EQ(client.Run({"shutdown", "abort"}), "-ERR No shutdown in progress.\r\n");
  client.Send(RespClient::Encode({"shutdown", "nosave", "now", "force"}));
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(HostileServerTest, ABackupReplacesNoOther) {
  ServerProcess server({"--db", dir_.File("a.hkh"), "--table", dir_.File("a.hktb"), "--backup-dir", dir_.path()});
  RespClient client = server.Connect();
  EXPECT_EQ(client.Run({"hako.backup", "one"}), "+OK\r\n");
  EXPECT_THAT(client.Run({"hako.backup", "one.hktb"}), StartsWith("-ERR the copy of the table has the suffix .hktb"));
}

// Clients wait until there is a file for them; the log has a line a second at most.
TEST_F(HostileServerTest, WithoutFilesClientsWait) {
  ServerProcess server({});
  RespClient client = server.Connect();
  ASSERT_EQ(client.Run({"ping"}), "+PONG\r\n");
  rlimit limit{};
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  const rlimit few = {40, limit.rlim_max};
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<std::unique_ptr<RespClient>> waiting;
  for (int i = 0; i < 60; ++i) waiting.push_back(std::make_unique<RespClient>(server.port()));
  EXPECT_THAT(server.ReadLogLine(), HasSubstr("clients cannot be accepted now"));
  const std::uint64_t before = server.ProcessorMilliseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_LT(server.ProcessorMilliseconds() - before, 500u);
  EXPECT_EQ(client.Run({"ping"}), "+PONG\r\n");
  waiting.erase(waiting.begin(), waiting.begin() + 40);  // those that were accepted, among others
  EXPECT_EQ(waiting.back()->Run({"ping"}), "+PONG\r\n");
  int num_lines = 0;
  kill(server.pid(), SIGTERM);
  while (!server.ReadLogLine().empty()) ++num_lines;
  EXPECT_LT(num_lines, 20);
}

// The memory of the process is limited while it serves; requests that need more fail, and the others are served.
TEST_F(HostileServerTest, WithoutMemoryRequestsFailAndTheServerGoesOn) {
  for (const std::string name : {"a.hkh", "b.hkh?direct", "a.hkt", "a.hks", "?dbm=tiny"}) {
    for (const std::string fsync : {"always", "everysec"}) {
      if (fsync == "always" && name != "a.hkt") continue;
      SCOPED_TRACE(name + " " + fsync);
      ServerProcess server({"--db", name[0] == '?' ? name : dir_.File(name), "--appendfsync", fsync});
      RespClient client = server.Connect();
      ASSERT_EQ(client.Run({"set", "small", "value"}), "+OK\r\n");
      const rlimit limit = {server.VirtualBytes() + (std::size_t{16} << 20), RLIM_INFINITY};
      ASSERT_EQ(prlimit(server.pid(), RLIMIT_AS, &limit, nullptr), 0);
      for (const std::size_t megabytes : {8, 13, 15, 40, 100}) {
        RespClient hungry = server.Connect();
        hungry.Run({"set", "big", std::string(megabytes << 20, 'x')});  // an error, or the end of the connection
        RespClient scans = server.Connect();
        scans.Run({"get", "big"});
        client.Run({"set", "counter", std::to_string(megabytes)});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // the ticker works each second
      const rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
      ASSERT_EQ(prlimit(server.pid(), RLIMIT_AS, &none, nullptr), 0);
      RespClient later = server.Connect();
      EXPECT_EQ(later.Run({"get", "small"}), Bulk("value"));
      EXPECT_EQ(later.Run({"set", "after", "value"}), "+OK\r\n");
      EXPECT_EQ(server.Stop(), 0);
    }
  }
}

// The client gets the error, and the operator a line of the log.
TEST_F(HostileServerTest, AFullDeviceIsLogged) {
  for (const std::string name : {"a.hkh", "b.hkh?direct", "a.hkt", "a.hks"}) {
    SCOPED_TRACE(name);
    ServerProcess server({"--db", dir_.File(name), "--appendfsync", "always"});
    RespClient client = server.Connect();
    ASSERT_EQ(client.Run({"set", "a", "b"}), "+OK\r\n");
    rlimit limit{};
    ASSERT_EQ(prlimit(server.pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
    const rlimit small = {std::size_t{4} << 20, limit.rlim_max};
    ASSERT_EQ(prlimit(server.pid(), RLIMIT_FSIZE, &small, nullptr), 0);
    std::string reply;
    for (int i = 0; i < 400 && !reply.starts_with('-'); ++i) {
      if (!client.is_open()) break;
      reply = client.Run({"set", std::to_string(i), std::string(100'000, 'x')});
    }
    EXPECT_THAT(server.ReadLogLine(), HasSubstr(" error "));
    ASSERT_EQ(prlimit(server.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
    EXPECT_EQ(server.Connect().Run({"get", "a"}), Bulk("b"));
  }
}

// What --check-config accepts, a start accepts.
TEST_F(HostileServerTest, CheckConfigFindsWhatAStartWouldRefuse) {
  const auto check = [&](const std::string& lines) {
    std::ofstream(dir_.File("conf")) << lines;
    return WEXITSTATUS(std::system((std::string(kServerPath) + " --check-config --config " + dir_.File("conf") + " 2> /dev/null").c_str()));
  };
  EXPECT_EQ(check("db = \"a.hkh\"\nbind = \"127.0.0.1 ::1\"\n"), 0);
  for (const std::string wrong : {"bind = \"foo\"", "bind = \"\"", "metrics-port = \"any\"\nmetrics-bind = \"foo\"", "db = \"a.foo\"",
                                  "db = \"a.hkh?foo=1\"", "db = \"a.hktb\"", "table = \"a.hkh\"", "db = \"a.hkh\"\nmaxmemory = \"1gb\"",
                                  "db = \"a.hkt?dbm=none\"", "proto-max-bulk-len = \"1kb\""})
    EXPECT_EQ(check(wrong), 2) << wrong;
}

// A '#' within a word is part of it, such as of a password.
TEST_F(HostileServerTest, PasswordsOfTheFileKeepTheirSigns) {
  std::ofstream(dir_.File("conf")) << "# a comment\nrequirepass = a#b  # another\ntimeout = 500 # a third\n";
  ServerProcess server({"--config", dir_.File("conf")});
  RespClient client = server.Connect();
  EXPECT_THAT(client.Run({"auth", "a"}), StartsWith("-WRONGPASS"));
  EXPECT_EQ(client.Run({"auth", "a#b"}), "+OK\r\n");
  EXPECT_EQ(client.Run({"config", "get", "timeout"}), "*2\r\n" + Bulk("timeout") + Bulk("500"));
}

}  // namespace
}  // namespace hako
