// Replies of `appendfsync always` while the device synchronizes the log: held_syncs.cc makes that last as
// long as a test wants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

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

// The clients 0, 2, 4 of the server are of its first loop thread, the others of its second.
class HeldReplyTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
    setenv("HAKO_HELD_SYNCS", dir_.path().c_str(), 1);
    setenv("LD_PRELOAD", HAKO_HELD_SYNCS_PATH, 1);
    server_.emplace(std::vector<std::string>{"--db", dir_.File(GetParam()), "--appendfsync", "always", "--threads", "2"});
    unsetenv("LD_PRELOAD");
    ASSERT_NE(server_->port(), 0);
  }

  void Hold() { std::ofstream(dir_.File("hold")); }
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

TEST_P(HeldReplyTest, OthersAreServedDuringASync) {
  RespClient first = Connect(), watcher = Connect(), second = Connect(), other_watcher = Connect(), third = Connect();
  Hold();
  Send(first, {"set", "a", "1"});
  ASSERT_TRUE(IsHeld());
  second.Send(RespClient::Encode({"set", "b", "2"}) + RespClient::Encode({"get", "a"}));
  EXPECT_TRUE(Becomes([&] { return watcher.Run({"get", "b"}) == "$1\r\n2\r\n"; }));
  Send(first, {"set", "a", "3"});  // waits for the reply to the one before
  Send(third, {"get", "b"});       // would show what a power cut can take away
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
  RespClient first = Connect(), watcher = Connect(), second = Connect();
  Hold();
  Send(first, {"set", "a", "1"});
  ASSERT_TRUE(IsHeld());
  Send(second, {"set", "b", "2"});
  EXPECT_TRUE(Becomes([&] { return watcher.Run({"exists", "b"}) == ":1\r\n"; }));
  std::ofstream(dir_.File("fail"));
  Release();
  EXPECT_EQ(first.Read(), "");
  EXPECT_EQ(second.Read(), "");
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

INSTANTIATE_TEST_SUITE_P(Databases, HeldReplyTest, testing::Values("a.hkh", "a.hkt", "a.hks", "a.hkh?direct"));

}  // namespace
}  // namespace hako
