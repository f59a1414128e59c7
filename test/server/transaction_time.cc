// The time within a transaction: it stands still, whatever the clock does. Run without a process, so that the
// clock is the test's.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/command_table.h"
#include "server/dispatcher.h"
#include "server/request_parser.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

// Goes on by a millisecond each time that it is read.
std::atomic<std::uint64_t> now_ms = 1'700'000'000'000;
std::uint64_t Clock() { return ++now_ms; }

class TransactionTimeTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    state_.threads.push_back(&thread_);
    client_.is_authenticated = true;
    ASSERT_EQ(Run("set tick x px 100000000\n"), "+OK\r\n");  // whoever reads it reads the clock
  }
  void TearDown() override {
    state_.watches.Remove(&client_.watched);
    EXPECT_THAT(database_->Verify(), IsOk());
  }
  static std::unique_ptr<AnyDBM> Open() {
    AnyOptions options = *ParseAnyOptions(GetParam());
    options.expiry = true;
    options.clock = &Clock;
    return *AnyDBM::Open(options);
  }
  // The replies to lines of inline commands.
  std::string Run(std::string_view lines) {
    server::OutputBuffer out;
    server::ReplyWriter reply(&out, 2);
    server::RequestParser parser;
    while (parser.Parse(lines, {}) == server::RequestParser::Result::kRequest) {
      state_.gate.Enter(0);
      dispatcher_.BeginTurn();
      dispatcher_.Execute(client_, reply, parser.words());
      state_.gate.Leave(0);
      lines.remove_prefix(parser.consumed());
    }
    return std::string(out.view());
  }

  server::Settings settings_;
  const std::unique_ptr<AnyDBM> database_ = Open();
  server::ServerState state_{*database_, nullptr, settings_, 1};
  server::CommandThread thread_{&state_, 0, server::AllCommands().size()};
  server::Dispatcher dispatcher_{thread_};
  server::Client client_;
};

std::string Times(int n, std::string_view text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST_P(TransactionTimeTest, ARecordThatIsAliveAtItsBeginStaysSo) {
  EXPECT_EQ(Run("set q 5 px 60\n"), "+OK\r\n");
  EXPECT_EQ(
      Run("multi\n" + Times(100, "strlen tick\n") + Times(100, "get q\n") + "incr q\nget q\npersist q\nexec\n"),
      "+OK\r\n" + Times(203, "+QUEUED\r\n") + "*203\r\n" + Times(100, ":1\r\n") + Times(100, "$1\r\n5\r\n") + ":6\r\n$1\r\n6\r\n:1\r\n");
  EXPECT_EQ(Run("get q\npttl q\n"), "$1\r\n6\r\n:-1\r\n");
}

TEST_P(TransactionTimeTest, AScanDoesNotLetTimeGoOn) {
  EXPECT_EQ(Run("set q 5 px 60\n"), "+OK\r\n");
  const std::string reply = Run("multi\nset p 1 px 50\nkeys *\n" + Times(100, "strlen tick\n") + "dbsize\nget q\nincr p\npttl p\nexec\n");
  EXPECT_TRUE(reply.ends_with("$1\r\n5\r\n:2\r\n:50\r\n")) << reply;
  EXPECT_EQ(Run(Times(100, "strlen tick\n") + "get q\nget p\n"), Times(100, ":1\r\n") + "$-1\r\n$-1\r\n");
}

INSTANTIATE_TEST_SUITE_P(Databases, TransactionTimeTest, testing::Values("?dbm=tiny", "?dbm=baby"),
                         [](const auto& tested) { return std::string(tested.param).substr(5); });

}  // namespace
}  // namespace hako
