// Work of HAKO.TABLE in the thread pool: its changes are durable before its reply.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/command_table.h"
#include "server/dispatcher.h"
#include "support/failing_calls.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako::server {
namespace {

TEST(TableWorkTest, ChangesInThePoolAreDurableBeforeTheirReply) {
  FailingCalls& calls = FailingCalls::Instance();                                               // their definitions: fuzz/replay_test.cc
  calls.Arm({.call = ~std::uint64_t{0}, .reads = false, .writes = false, .lengthens = false});  // none fails; syncs are counted
  const TempDir dir;
  Settings settings;
  settings.fsync = Fsync::kAlways;
  ASSERT_OK_AND_ASSIGN(const auto database, AnyDBM::Open(*ParseAnyOptions("?dbm=tiny,num_records=64")));
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(dir.File("a.hktb")));
  ServerState state(*database, table.get(), settings, 1);
  CommandThread thread(&state, 0, AllCommands().size());
  Dispatcher dispatcher(thread);
  Client client;
  const auto run = [&](std::vector<std::string_view> words, std::string_view expected) {
    words.insert(words.begin(), "hako.table");
    OutputBuffer out;
    ReplyWriter reply(&out, 2);
    state.gate.Enter(0);
    dispatcher.BeginTurn();
    dispatcher.Execute(client, reply, words);
    state.gate.Leave(0);
    ASSERT_TRUE(client.work) << words[1];
    const std::uint64_t before = calls.counted();
    std::thread([&] { std::exchange(client.work, nullptr)(&out); }).join();
    EXPECT_EQ(out.view(), expected);
    EXPECT_THAT(client.work_commit, IsOk());
    EXPECT_GT(calls.counted(), before) << words[1];
  };
  run({"put", "k", "new", "1"}, "+OK\r\n");
  run({"query", "update set new = 2 where new matches '1'"}, ":1\r\n");
  run({"index", "create", "", "on", "new", "token"}, "+OK\r\n");
  run({"append", "k", "new", " word"}, "+OK\r\n");
  run({"del", "k"}, ":1\r\n");
  EXPECT_THAT(table->Verify(), IsOk());
  calls.Disarm();
}

}  // namespace
}  // namespace hako::server
