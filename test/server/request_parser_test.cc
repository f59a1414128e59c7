// The parser of requests: every stream split at every byte gives the same requests.
#include "server/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace hako::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Requests = std::vector<std::vector<std::string>>;

// The requests of a stream that arrives in these pieces; an error is a last request of one word.
Requests Read(const std::vector<std::string_view>& pieces, const RequestLimits& limits = {}) {
  RequestParser parser;
  std::string bytes;
  Requests requests;
  for (const std::string_view piece : pieces) {
    bytes = std::string(bytes).append(piece);  // in another place
    for (bool goes_on = true; goes_on;) {
      switch (parser.Parse(bytes, limits)) {
        case RequestParser::Result::kIncomplete:
          EXPECT_GE(parser.missing(), 1u);
          goes_on = false;
          break;
        case RequestParser::Result::kError:
          requests.push_back({"error: " + parser.error()});
          return requests;
        case RequestParser::Result::kRequest:
          if (!parser.words().empty()) requests.emplace_back(parser.words().begin(), parser.words().end());
          EXPECT_GT(parser.consumed(), 0u);
          bytes.erase(0, parser.consumed());
      }
    }
  }
  return requests;
}
Requests ReadWhole(std::string_view stream, const RequestLimits& limits = {}) { return Read({stream}, limits); }

TEST(RequestParser, ReadsArraysOfBulks) {
  EXPECT_THAT(ReadWhole("*2\r\n$3\r\nGET\r\n$5\r\nk\r\ney\r\n*1\r\n$0\r\n\r\n"),
              ElementsAre(ElementsAre("GET", "k\r\ney"), ElementsAre("")));
  EXPECT_THAT(ReadWhole("*0\r\n*-1\r\n\r\n\n*1\r\n$4\r\nPING\r\n"), ElementsAre(ElementsAre("PING")));
}

TEST(RequestParser, ReadsInlineCommands) {
  EXPECT_THAT(ReadWhole("PING\r\nset  key \t value\n\r\n  \n"), ElementsAre(ElementsAre("PING"), ElementsAre("set", "key", "value")));
  EXPECT_THAT(ReadWhole(R"(set "a b\x00\n\"" 'it\'s\n')"
                        "\n"),
              ElementsAre(ElementsAre("set", std::string("a b\0\n\"", 6), "it's\\n")));
  const std::string_view zeros("del a\0b\n\0ping \0\nset k \"v\0w\" '\0'\nset \"x\\\0\"\n", 43);
  EXPECT_THAT(ReadWhole(zeros),
              ElementsAre(ElementsAre("del", std::string("a\0b", 3)), ElementsAre(std::string("\0ping", 5), std::string(1, '\0')),
                          ElementsAre("set", "k", std::string("v\0w", 3), std::string(1, '\0')), ElementsAre("set", std::string("x\0", 2))))
      << "no line ends at a zero byte";
  EXPECT_THAT(ReadWhole("set \"\" ''\n"), ElementsAre(ElementsAre("set", "", "")));
}

TEST(RequestParser, SplitAtAnyByteGivesTheSameRequests) {
  const std::string_view streams[] = {
      "*2\r\n$3\r\nGET\r\n$5\r\nk\r\ney\r\n*1\r\n$0\r\n\r\n",
      "*0\r\nPING \"a\\x41\" 'b'\r\n*-1\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\n*1\r\n$4\r\nPING\r\nQUIT\n",
      "*1\r\n$4\r\nPING\r\n*1\r\n:4\r\n",
      "*1\r\n$-1\r\n",
      "*x\r\n",
      "*01\r\n$1\r\na\r\n",
      "SET \"open\n",
      "SET \"a\"b\n",
  };
  for (const std::string_view stream : streams) {
    const Requests whole = ReadWhole(stream);
    EXPECT_FALSE(whole.empty());
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < stream.size(); ++i) bytes.push_back(stream.substr(i, 1));
    EXPECT_EQ(Read(bytes), whole) << stream;
    for (std::size_t i = 1; i < stream.size(); ++i) {
      for (std::size_t j = i; j < stream.size(); ++j)
        ASSERT_EQ(Read({stream.substr(0, i), stream.substr(i, j - i), stream.substr(j)}), whole) << stream << " at " << i << " and " << j;
    }
  }
}

TEST(RequestParser, RefusesWhatRedisRefuses) {
  const auto error_of = [](std::string_view stream, const RequestLimits& limits = {}) {
    const Requests requests = ReadWhole(stream, limits);
    return requests.empty() ? "" : requests.back().front();
  };
  EXPECT_EQ(error_of("*1048577\r\n"), "error: Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1a\r\n"), "error: Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1\r\n+OK\r\n"), "error: Protocol error: expected '$', got '+'");
  EXPECT_EQ(error_of("*1\r\n$536870913\r\n"), "error: Protocol error: invalid bulk length");
  EXPECT_EQ(error_of("*1\r\n$-1\r\n"), "error: Protocol error: invalid bulk length");
  EXPECT_EQ(error_of("\"\n"), "error: Protocol error: unbalanced quotes in request");
  const std::string long_line(70000, '1');
  EXPECT_EQ(error_of(long_line), "error: Protocol error: too big inline request");
  EXPECT_EQ(error_of("*" + long_line), "error: Protocol error: too big mbulk count string");
  EXPECT_EQ(error_of("*1\r\n$" + long_line), "error: Protocol error: too big bulk count string");
  const RequestLimits stranger{.is_authenticated = false};
  EXPECT_EQ(error_of("*11\r\n", stranger), "error: Protocol error: unauthenticated multibulk length");
  EXPECT_EQ(error_of("*1\r\n$16385\r\n", stranger), "error: Protocol error: unauthenticated bulk length");
  EXPECT_EQ(error_of("*2\r\n$600\r\n" + std::string(600, 'a') + "\r\n$600\r\n", {.request = 1000}),
            "error: Protocol error: too big request");
}

TEST(RequestParser, ReservesNothingForBytesThatHaveNotArrived) {
  RequestParser parser;
  EXPECT_EQ(parser.Parse("*1048576\r\n$536870912\r\nabc", {}), RequestParser::Result::kIncomplete);
  EXPECT_EQ(parser.missing(), (std::size_t{512} << 20) + 2 - 3);
  EXPECT_THAT(parser.words(), IsEmpty());
}

}  // namespace
}  // namespace hako::server
