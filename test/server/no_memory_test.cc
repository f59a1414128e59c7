// A server in which allocations fail, one in some, while clients send all kinds of commands: it goes on, refuses what
// it cannot do, and keeps each acknowledged write.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/resp_client.h"
#include "server/server_process.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

#ifndef HAKO_FAILING_NEWS_PATH
#define HAKO_FAILING_NEWS_PATH ""
#endif

class ServerWithoutMemoryTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (*kServerPath == 0) GTEST_SKIP() << "hako-server is not built";
    const std::string path = dir_.File("period");
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(ftruncate(fd, sizeof(*period_)), 0);
    void* const map = mmap(nullptr, sizeof(*period_), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(map, MAP_FAILED);
    close(fd);
    period_ = static_cast<std::atomic<std::uint32_t>*>(map);
    setenv("HAKO_FAILING_NEWS", path.c_str(), 1);
    setenv("LD_PRELOAD", HAKO_FAILING_NEWS_PATH, 1);
  }
  void TearDown() override {
    if (period_ != nullptr) munmap(period_, sizeof(*period_));
  }

  TempDir dir_;
  std::atomic<std::uint32_t>* period_ = nullptr;  // of the allocations that fail; 0: none
};

// A client with keys that no other one changes. It knows the values that each may have.
class Writer {
 public:
  Writer(const ServerProcess& server, int number, std::uint64_t seed)
      : server_(server), prefix_("w" + std::to_string(number) + "."), random_(seed), client_(Connect()) {}

  void Step() {
    if (!client_->is_open()) client_ = Connect();
    const std::string key = prefix_ + std::to_string(random_.Below(20)), other = prefix_ + std::to_string(random_.Below(20));
    const std::string value =
        std::to_string(random_.Next()) + std::string(random_.OneIn(20) ? random_.Below(100'000) : random_.Below(100), 'v');
    switch (random_.Below(12)) {
      case 0:
      case 1:
      case 2:
        return Change({"set", key, value}, {{key, value}});
      case 3:
        return Change({"mset", key, value, other, value}, {{key, value}, {other, value}});
      case 4:
        return Change({"del", key}, {{key, "(none)"}});
      case 5:
        return Change({"getset", key, value}, {{key, value}});
      case 6: {
        client_->Send(RespClient::Encode({"watch", key}) + RespClient::Encode({"multi"}) + RespClient::Encode({"set", key, value}) +
                      RespClient::Encode({"set", other, value}));
        for (int i = 0; i < 4; ++i) client_->Read();
        return Change({"exec"}, {{key, value}, {other, value}});
      }
      default: {
        static const std::vector<RespClient::Words> kOthers = {{"get", "w0.1"},
                                                               {"mget", "w0.1", "w1.1", "w2.2"},
                                                               {"info"},
                                                               {"config", "get", "*"},
                                                               {"client", "list"},
                                                               {"scan", "0", "count", "5"},
                                                               {"randomkey"},
                                                               {"keys", "w1*"},
                                                               {"command"},
                                                               {"hako.check"},
                                                               {"hako.backup", "copy"},
                                                               {"hako.range", "w0", "w1"},
                                                               {"hako.table", "put", "a", "n", "1", "s", "text"},
                                                               {"hako.table", "query", "select * where n = 1"},
                                                               {"hako.table", "query", "select * where s matches 't.*t' order by s"},
                                                               {"hako.table", "query", "update set n = 2"},
                                                               {"slowlog", "get"},
                                                               {"latency", "histogram"},
                                                               {"config", "set", "slowlog-log-slower-than", "0"},
                                                               {"setrange", "long", "3000000", "x"},
                                                               {"get", "long"},
                                                               {"set", "soon", "gone", "px", "5"},
                                                               {"hello", "3", "setname", "name"},
                                                               {"acl", "list"},
                                                               {"unknown", "words"}};
        client_->Run(kOthers[random_.Below(kOthers.size())]);
      }
    }
  }
  // Whether each key has a value that it may have.
  void Check(RespClient& client) const {
    for (const auto& [key, values] : values_) {
      const std::string reply = client.Run({"get", key});
      const auto bulks = RespClient::Bulks(reply);
      const std::string found = reply == "$-1\r\n" ? "(none)" : bulks.empty() ? reply : bulks[0];
      EXPECT_TRUE(values.contains(found)) << key << " is " << found.substr(0, 40);
    }
  }

 private:
  std::unique_ptr<RespClient> Connect() const { return std::make_unique<RespClient>(server_.port()); }
  // The new values are stored if the reply is a success, and may be stored if there is no reply.
  void Change(const RespClient::Words& words, const std::map<std::string, std::string>& changes) {
    const std::string reply = client_->Run(words);
    const bool is_done = !reply.empty() && reply[0] != '-' && (words[0] != "exec" || reply == "*2\r\n+OK\r\n+OK\r\n");
    const bool is_refused = words[0] != "exec" && reply[0] == '-';
    for (const auto& [key, value] : changes) {
      auto& values = values_.try_emplace(key, std::set<std::string>{"(none)"}).first->second;
      if (is_done) values.clear();
      if (!is_refused) values.insert(value);
    }
  }

  const ServerProcess& server_;
  const std::string prefix_;
  Random random_;
  std::unique_ptr<RespClient> client_;
  std::map<std::string, std::set<std::string>> values_;
};

TEST_P(ServerWithoutMemoryTest, GoesOnAndLosesNothing) {
  const std::string name = GetParam();
  ServerProcess server({"--db", dir_.File(name), "--table", dir_.File("t.hktb"), "--backup-dir", dir_.path(), "--threads", "2",
                        "--appendfsync", "always", "--loglevel", "debug"});
  unsetenv("LD_PRELOAD");
  ASSERT_NE(server.port(), 0);
  std::string last_lines;
  std::thread log([&] {
    for (std::string line = server.ReadLogLine(); !line.empty(); line = server.ReadLogLine()) {
      if (line.find("client ") == std::string::npos) last_lines += line;
      if (last_lines.size() > 10'000) last_lines.erase(0, 5'000);
    }
  });
  std::vector<Writer> writers;
  writers.reserve(3);
  for (int i = 0; i < 3; ++i) writers.emplace_back(server, i, TestSeed() + static_cast<std::uint64_t>(i));
  for (const std::uint32_t period : {1009u, 61u, 11u, 3u}) {
    *period_ = period;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
    std::vector<std::thread> threads;
    for (Writer& writer : writers) {
      threads.emplace_back([&] {
        while (std::chrono::steady_clock::now() < end) writer.Step();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  *period_ = 0;
  RespClient client = server.Connect();
  for (const Writer& writer : writers) writer.Check(client);
  // An update that lacked memory for its entry in the log made the database refuse others until its next checkpoint.
  std::string reply = client.Run({"set", "after", "value"});
  for (int i = 0; i < 1000 && reply.starts_with("-OOM"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    reply = client.Run({"set", "after", "value"});
  }
  EXPECT_EQ(reply, "+OK\r\n");
  EXPECT_EQ(client.Run({"hako.check"}), "+OK\r\n");
  EXPECT_EQ(server.Stop(), 0);
  log.join();
  if (HasFailure()) ADD_FAILURE() << last_lines;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ServerWithoutMemoryTest, testing::Values("a.hkh", "a.hkh?direct", "a.hkt", "a.hks"));

}  // namespace
}  // namespace hako
