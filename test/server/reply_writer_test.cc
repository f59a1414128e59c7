// Replies in both protocols, numbers and patterns as Redis has them.
#include "server/reply_writer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <string_view>

#include "server/glob_pattern.h"
#include "support/sanitizers.h"

namespace hako::server {
namespace {

// What `write` writes.
template <class F>
std::string Written(int protocol, F write) {
  OutputBuffer out;
  ReplyWriter reply(&out, protocol);
  write(reply);
  return std::string(out.view());
}

TEST(ReplyWriter, WritesTypesOfBothProtocols) {
  const auto all = [](ReplyWriter& reply) {
    reply.Map(1);
    reply.Bulk("a\r\n");
    reply.Null();
    reply.Set(0);
    reply.NullArray();
    reply.Verbatim("text");
    reply.Integer(-5);
    reply.Bool(true);
  };
  EXPECT_EQ(Written(2, all), "*2\r\n$3\r\na\r\n\r\n$-1\r\n*0\r\n*-1\r\n$4\r\ntext\r\n:-5\r\n:1\r\n");
  EXPECT_EQ(Written(3, all), "%1\r\n$3\r\na\r\n\r\n_\r\n~0\r\n_\r\n=8\r\ntxt:text\r\n:-5\r\n:1\r\n");
}

TEST(ReplyWriter, ErrorsAreOneLine) {
  EXPECT_EQ(Written(2, [](ReplyWriter& reply) { reply.Error("ERR a\r\nb\n\r\n"); }), "-ERR a  b\r\n");
}

TEST(ReplyWriter, ABulkThatIsBegunAgainReplacesTheFirst) {
  EXPECT_EQ(Written(2,
                    [](ReplyWriter& reply) {
                      reply.Ok();
                      std::memset(reply.BeginBulk(100'000), 'x', 100'000);
                      std::memcpy(reply.BeginBulk(3), "abc", 3);
                      reply.EndBulk();
                    }),
            "+OK\r\n$3\r\nabc\r\n");
}

TEST(OutputBuffer, StaysValidWhereMemoryRunsOut) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the program instead; see no_memory_test";
  OutputBuffer out;
  out.Append("abc");
  EXPECT_THROW(out.Reserve(std::size_t{1} << 60), std::bad_alloc);
  out.Append(std::string(100'000, 'x'));
  EXPECT_EQ(out.view(), "abc" + std::string(100'000, 'x'));
}

TEST(OutputBuffer, KeepsBytesWhileItGrowsAndIsConsumed) {
  OutputBuffer out;
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string piece(static_cast<std::size_t>(i % 97), static_cast<char>('a' + i % 26));
    out.Append(piece);
    expected += piece;
    if (i % 7 == 0) {
      const std::size_t taken = out.size() / 2;
      ASSERT_EQ(out.view().substr(0, taken), expected.substr(0, taken));
      out.Consume(taken);
      expected.erase(0, taken);
    }
  }
  EXPECT_EQ(out.view(), expected);
}

TEST(NumberText, IntegersAreStrict) {
  EXPECT_EQ(ParseInteger("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(ParseInteger("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ParseInteger("0"), 0);
  for (const std::string_view bad : {"", "-", "+1", "01", "-0", "1 ", " 1", "9223372036854775808", "1e3", "0x1"})
    EXPECT_FALSE(ParseInteger(bad)) << bad;
}

TEST(NumberText, FloatsAreAsRedisWritesThem) {
  EXPECT_EQ(FloatText(*ParseFloat("3.0")), "3");
  EXPECT_EQ(FloatText(*ParseFloat("10.5") + *ParseFloat("0.1")), "10.6");
  EXPECT_EQ(FloatText(*ParseFloat("5.0e3")), "5000");
  EXPECT_EQ(FloatText(-0.0L), "0");
  for (const std::string_view bad : {"", " 1", "1 ", "nan", "1x", "1e99999"}) EXPECT_FALSE(ParseFloat(bad)) << bad;
}

TEST(GlobPattern, MatchesAsRedis) {
  const auto matches = [](std::string_view pattern, std::string_view text) { return GlobPattern(pattern).Matches(text); };
  for (const auto& [pattern, text] : {std::pair("*", ""),
                                      {"h?llo", "hello"},
                                      {"h*o", "ho"},
                                      {"h[ae]llo", "hallo"},
                                      {"h[^e]llo", "hallo"},
                                      {"h[b-a]y", "hay"},
                                      {"\\*", "*"},
                                      {"a[", "a["},
                                      {"**a**b", "xaxb"},
                                      {"[\\]]", "]"},
                                      {"a\\", "a\\"}}) {
    EXPECT_EQ(matches(pattern, text), std::string_view(pattern) != "a[") << pattern << " " << text;
  }
  for (const auto& [pattern, text] : {std::pair("?", ""), {"h[^e]llo", "hello"}, {"a", "A"}, {"", "a"}, {"h*o", "hop"}, {"[a-c]", "d"}})
    EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
  EXPECT_TRUE(GlobPattern("MAX*", true).Matches("maxmemory"));
  EXPECT_FALSE(GlobPattern("*a*a*a*a*a*a*a*a*b").Matches(std::string(10'000, 'a')));  // in little time
  EXPECT_FALSE(GlobPattern("[a").Matches("b"));
  EXPECT_TRUE(GlobPattern("[^").Matches("b"));
  EXPECT_TRUE(GlobPattern("[a-").Matches("-"));
  EXPECT_FALSE(GlobPattern("[\\A]", true).Matches("a")) << "a byte behind a \\ in a set keeps its case";
  EXPECT_TRUE(GlobPattern("x[^A-C]*", true).Matches("XD"));
  EXPECT_TRUE(GlobPattern("*b*ab").Matches("abcab"));
  EXPECT_FALSE(GlobPattern("*ab*ab").Matches("ab"));
  EXPECT_FALSE(GlobPattern("a*b*a").Matches("ab"));
}

// Each member of a set took a step for each byte: 40,000 times 40,000 of them.
TEST(GlobPattern, LargeSetsTakeNoMoreThanSmallOnes) {
  const std::string text(40'000, 'a'), set = "[" + std::string(40'000, 'b') + "]";
  const clock_t begin = clock();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(GlobPattern("*" + set).Matches(text));
    EXPECT_FALSE(GlobPattern(set + "*").Matches(text));
    EXPECT_FALSE(GlobPattern("*" + set + "*").Matches(text));
    EXPECT_FALSE(GlobPattern("*" + std::string(20'000, '?') + set).Matches(text));
  }
  EXPECT_LT(clock() - begin, 20 * CLOCKS_PER_SEC);  // 400 times 1.6 billion steps take more than a minute each
}

}  // namespace
}  // namespace hako::server
