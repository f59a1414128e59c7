// Replies of `appendfsync always` while the device synchronizes the log: held_syncs.cc makes that last as
// long as a test wants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;

#ifndef HAKO_HELD_SYNCS_PATH
#define HAKO_HELD_SYNCS_PATH ""
#endif

class HeldSyncs : public testing::Test {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
  }
  void Start(std::vector<std::string> options) {
    options.insert(options.end(), {"--appendfsync", "always"});
    setenv("HAKO_HELD_SYNCS", dir_.path().c_str(), 1);
    setenv("LD_PRELOAD", HAKO_HELD_SYNCS_PATH, 1);
    server_.emplace(options);
    unsetenv("LD_PRELOAD");
    ASSERT_NE(server_->port(), 0);
  }

  // See held_syncs.cc.
  void Hold(const std::string& lines = {}) {
    std::ofstream(dir_.File("hold_")) << lines;
    std::filesystem::rename(dir_.File("hold_"), dir_.File("hold"));
  }
  void Release() {
    std::filesystem::remove(dir_.File("held"));
    std::filesystem::remove(dir_.File("hold"));
  }
  template <class F>
  static bool Becomes(F true_soon) {
    for (int i = 0; i < 30'000; ++i) {
      if (true_soon()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool IsHeld() const {
    return Becomes([&] { return std::filesystem::exists(dir_.File("held")); });
  }
  static bool HasReply(const RespClient& client) {
    pollfd wait = {.fd = client.socket_number(), .events = POLLIN, .revents = 0};
    return poll(&wait, 1, 0) > 0;
  }
  // Clients that have been served, so that it is known which thread each has.
  RespClient Connect() const {
    RespClient client = server_->Connect();
    EXPECT_EQ(client.Run({"ping"}), "+PONG\r\n");
    return client;
  }
  static void Send(RespClient& client, const RespClient::Words& words) { client.Send(RespClient::Encode(words)); }

  TempDir dir_;
  std::optional<ServerProcess> server_;
};

// The clients 0, 2, 4 of the server are of its first loop thread, the others of its second.
class HeldReplyTest : public HeldSyncs, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    HeldSyncs::SetUp();
    if (!IsSkipped()) Start({"--db", dir_.File(GetParam()), "--threads", "2"});
  }
};

TEST_P(HeldReplyTest, OthersAreServedDuringASync) {
  RespClient first = Connect(), watcher = Connect(), second = Connect(), other_watcher = Connect(), third = Connect();
  Hold();
  Send(first, {"set", "a", "1"});
  ASSERT_TRUE(IsHeld());
  second.Send(RespClient::Encode({"set", "b", "2"}) + RespClient::Encode({"get", "a"}));
  EXPECT_TRUE(Becomes([&] { return watcher.Run({"get", "b"}) == "$1\r\n2\r\n"; }));
  Send(first, {"set", "a", "3"});  // waits for the reply to the one before
  Send(third, {"get", "b"});       // would show a value that a power cut can take away
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(HasReply(first));
  EXPECT_FALSE(HasReply(second));
  EXPECT_FALSE(HasReply(third));
  EXPECT_EQ(watcher.Run({"get", "a"}), "$1\r\n1\r\n");
  Release();
  EXPECT_EQ(first.Read(), "+OK\r\n");
  EXPECT_EQ(first.Read(), "+OK\r\n");
  EXPECT_EQ(second.Read(), "+OK\r\n");
  EXPECT_EQ(second.Read(), "$1\r\n1\r\n");
  EXPECT_EQ(third.Read(), "$1\r\n2\r\n");
  EXPECT_EQ(watcher.Run({"get", "a"}), "$1\r\n3\r\n");
}

TEST_P(HeldReplyTest, ASyncThatFailsDisconnectsAllThatWaitForIt) {
  RespClient first = Connect(), watcher = Connect(), second = Connect(), other_watcher = Connect(), reader = Connect();
  Hold();
  Send(first, {"set", "a", "1"});
  ASSERT_TRUE(IsHeld());
  Send(reader, {"get", "a"});
  Send(second, {"set", "b", "2"});
  EXPECT_TRUE(Becomes([&] { return watcher.Run({"exists", "b"}) == ":1\r\n"; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the reader's turn
  std::ofstream(dir_.File("fail"));
  Release();
  EXPECT_EQ(first.Read(), "");
  EXPECT_EQ(second.Read(), "");
  EXPECT_EQ(reader.Read(), "");
  EXPECT_EQ(watcher.Run({"get", "a"}), "$1\r\n1\r\n");
}

TEST_P(HeldReplyTest, AClientMayLeaveOrBeKilledDuringASync) {
  RespClient watcher = Connect(), filler = Connect(), killed = Connect();
  {
    RespClient unused = Connect(), leaves = Connect();
    Hold();
    Send(leaves, {"set", "a", "1"});
    ASSERT_TRUE(IsHeld());
    Send(killed, {"set", "b", "2"});
    EXPECT_TRUE(Becomes([&] { return filler.Run({"exists", "b"}) == ":1\r\n"; }));
  }
  EXPECT_THAT(filler.Run({"client", "kill", "id", "3"}), HasSubstr(":1"));
  EXPECT_EQ(killed.Read(), "");
  Send(watcher, {"mget", "a", "b"});
  Release();
  EXPECT_EQ(watcher.Read(), "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
}

TEST_P(HeldReplyTest, AStopWaitsForTheSyncAndReplies) {
  RespClient first = Connect(), watcher = Connect(), second = Connect();
  Hold();
  Send(first, {"set", "a", "1"});
  ASSERT_TRUE(IsHeld());
  Send(second, {"set", "b", "2"});
  EXPECT_TRUE(Becomes([&] { return watcher.Run({"exists", "b"}) == ":1\r\n"; }));
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Release();
  });
  EXPECT_EQ(server_->Stop(), 0);
  release.join();
  EXPECT_EQ(first.Read(), "+OK\r\n");
  EXPECT_EQ(second.Read(), "+OK\r\n");
}

TEST_P(HeldReplyTest, ARequestThatIsCompletedDuringASyncIsRunAfterIt) {
  RespClient first = Connect(), watcher = Connect(), idle = Connect();
  Hold();
  const std::string second = RespClient::Encode({"set", "b", std::string(20'000, 'b')});
  first.Send(RespClient::Encode({"set", "a", "1"}) + second.substr(0, 1000));
  ASSERT_TRUE(IsHeld());
  first.Send(second.substr(1000));
  shutdown(first.socket_number(), SHUT_WR);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(watcher.Run({"exists", "a", "b"}), ":1\r\n");
  Release();
  EXPECT_EQ(first.ReadAll(), "+OK\r\n+OK\r\n");
  EXPECT_EQ(watcher.Run({"strlen", "b"}), ":20000\r\n");
}

class HeldTimeoutTest : public HeldSyncs {};
TEST_F(HeldTimeoutTest, AClientThatWaitsIsNotIdle) {
  Start({"--db", dir_.File("a.hkt"), "--timeout", "1"});
  RespClient first = Connect(), idle = Connect();
  Hold();
  Send(first, {"set", "a", "1"});
  ASSERT_TRUE(IsHeld());
  EXPECT_EQ(idle.Read(), "") << "it is disconnected";
  std::this_thread::sleep_for(std::chrono::seconds(2));
  Release();
  EXPECT_EQ(first.Read(), "+OK\r\n");
}

// The thread pool has one thread, which the copy takes until its sync is let go: so the query runs once the
// other client has put its row, whose sync must end before the reply.
class HeldTableTest : public HeldSyncs {};
TEST_F(HeldTableTest, WorkBesideTheLoopShowsNothingThatIsNotCommitted) {
  setenv("UV_THREADPOOL_SIZE", "1", 1);
  Start({"--db", dir_.File("a.hkh"), "--table", dir_.File("rows.hktb"), "--backup-dir", dir_.path()});
  unsetenv("UV_THREADPOOL_SIZE");
  RespClient first = Connect(), second = Connect(), copier = Connect(), idle = Connect();
  EXPECT_EQ(first.Run({"hako.table", "put", "r0", "name", "x"}), "+OK\r\n");
  Hold("/copy\nrows.hktb-log\n");
  Send(copier, {"hako.backup", "copy"});
  ASSERT_TRUE(IsHeld());
  first.Send(RespClient::Encode({"hako.table", "put", "r1", "name", "x"}) +
             RespClient::Encode({"hako.table", "query", "select count(*) where name matches 'x.*'"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  Send(second, {"hako.table", "put", "r2", "name", "x"});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(HasReply(first));
  Hold("rows.hktb-log\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(HasReply(first));
  EXPECT_FALSE(HasReply(second));
  Release();
  EXPECT_EQ(first.Read(), "+OK\r\n");
  EXPECT_THAT(first.Read(), HasSubstr("3"));
  EXPECT_EQ(second.Read(), "+OK\r\n");
}

INSTANTIATE_TEST_SUITE_P(Databases, HeldReplyTest, testing::Values("a.hkh", "a.hkt", "a.hks", "a.hkh?direct"));

}  // namespace
}  // namespace hako
