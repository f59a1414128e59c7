// Regular expressions: the syntax, the limits, time that is linear, and the same answers as std::regex.
#include "hako/text/regular_expression.h"

#include <chrono>
#include <regex>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako::text {
namespace {

using testing::HasSubstr;

bool Matches(std::string_view pattern, std::string_view text) {
  const auto regex = RegularExpression::Compile(pattern);
  EXPECT_THAT(regex, IsOk()) << pattern;
  return regex.ok() && regex->Matches(text);
}
std::string Repeat(std::string_view text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(RegularExpressionTest, MatchesPartsOfTheText) {
  struct {
    std::string_view pattern, match, none;
  } constexpr kCases[] = {
      {"b", "abc", "ac"},
      {"", "", "\xff\xff" /* no text is without a match: see below */},
      {"^ab$", "ab", "abb"},
      {"a|bc|^$", "xbcx", "bxc"},
      {"(?:ab)+c", "ababc", "abac"},
      {"^a*?b??c{2}d{1,}e{0,2}$", "aaccdde", "accdeee"},
      {"^(a|b){2,3}$", "aba", "abab"},
      {"^.$", "x", "\n"},
      {"^[^a-c]$", "d", "b"},
      {"[]", "none", "none"},
      {"^[^]$", "\n", "ab"},
      {"^[a\\-z]+$", "a-z", "b"},
      {"^[\\w-]+$", "a_-9", "+"},
      {"^[-a]+$", "-a", "b"},
      {"^[[:upper:][:digit:]]+$", "A9", "a"},
      {"^[[=a=][.-.]]+$", "a-", "b"},
      {"^\\d\\D\\s\\S\\w\\W$", "1a xa-", "1a xaa"},
      {"^\\x41\\u0042\\cJ\\t\\.$", "AB\n\t.", "AB\n\tx"},
      {"^\\u00e9\\u20ac?$", "\xc3\xa9\xe2\x82\xac", "\xe9"},
      {"^[\\b\\]]+$", "\b]", "b"},
      {"\\bcat\\b", "a cat.", "concat"},
      {"o\\B", "oo", "o"},
      {"^(?=.*x)(?!.*y).{3}$", "axb", "axy"},
      {"(?=$)(?!a)", "a", "\xff\xff"},
      {"}]", "}]", "}"},
      {"(a*)*b", "aab", "aa"},
      {"(a?){3}b", "b", "a"},
  };
  for (const auto& [pattern, match, none] : kCases) {
    if (pattern != "[]") EXPECT_TRUE(Matches(pattern, match)) << pattern;
    if (none != "\xff\xff") EXPECT_FALSE(Matches(pattern, none)) << pattern;
  }
  EXPECT_TRUE(Matches(std::string_view("a\0b", 3), std::string_view("xa\0b", 4)));
  EXPECT_TRUE(Matches("a\\0b", std::string_view("xa\0b", 4)));
}

TEST(RegularExpressionTest, RefusesWhatIsMalformedOrTooLarge) {
  for (const std::string_view pattern :
       {"(",   ")",  "(a",   "a)",     "[a",   "[z-a]",        "*",         "a|+",     "?",  "{2}",   "a{", "a{x}", "a{2,1}",
        "a{2", "\\", "\\x4", "\\uabc", "\\c1", "[[:letter:]]", "[\\u00e9]", "(?<a>b)", "^*", "(?=a)*"})
    EXPECT_THAT(RegularExpression::Compile(pattern).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not a regular expression (ECMAScript)")))
        << pattern;
  EXPECT_THAT(RegularExpression::Compile("(a)\\1").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("back-reference")));
  EXPECT_THAT(RegularExpression::Compile("(?=(?!a))").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("look-ahead in a")));
  for (const std::string& pattern : {std::string("a{32768}"), std::string("((a{200}){200}){200}"), Repeat("(", 40) + Repeat("){200}", 40),
                                     "a" + Repeat("*", 10'000), Repeat("a", 100'000), std::string("a{4294967297,99999999999}")})
    EXPECT_THAT(RegularExpression::Compile(pattern).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is too large")))
        << pattern.substr(0, 50);
  EXPECT_THAT(RegularExpression::Compile("((a{10}){10}){100}"), IsOk());
}

// A hundred times the text takes about a hundred times as long; an engine that backtracks, or that begins
// again at each byte, does not end.
TEST(RegularExpressionTest, TakesLinearTime) {
  for (const char* const pattern : {"(.*)(.*)(.*)(.*)(.*)x", "(a*)*b", "(a|aa)+$b", "a*a*a*a*b", "(?=(a+)+b)c", "^(a?){40}a{40}b"}) {
    ASSERT_OK_AND_ASSIGN(const RegularExpression regex, RegularExpression::Compile(pattern));
    std::uint64_t calls[2];
    for (const std::size_t i : {0u, 1u}) {
      std::uint64_t count = 0;
      EXPECT_EQ(regex.Search(std::string(i == 0 ? 2'000 : 200'000, 'a'), [&count] { return ++count, true; }), false) << pattern;
      calls[i] = count;
    }
    EXPECT_LE(calls[1], 100 * (calls[0] + 2)) << pattern;
  }
}

TEST(RegularExpressionTest, EndsSoonWhenItIsStopped) {
  ASSERT_OK_AND_ASSIGN(const RegularExpression regex, RegularExpression::Compile("x(.{100}){100}"));
  int calls = 0;
  EXPECT_EQ(regex.Search(std::string(100'000'000, 'a'), [&calls] { return ++calls < 10; }), std::nullopt);
  EXPECT_EQ(calls, 10);
}

std::string SomePattern(Random& random, int depth, bool in_look_ahead) {
  static constexpr std::string_view kAtoms[] = {"a", "b", ".", "[ab]", "[^b]", "\\w", "\\W", "[a-c-]", "\\x62", "-", "(?:)", "[[:alpha:]]"};
  std::string pattern;
  for (std::uint64_t parts = random.Below(4); parts > 0; --parts) {
    if (!in_look_ahead && random.OneIn(8)) {  // which std::regex takes for the whole text there
      static constexpr std::string_view kBorders[] = {"^", "$", "\\b", "\\B"};
      pattern += kBorders[random.Below(4)];
    } else if (depth > 0 && !in_look_ahead && random.OneIn(8)) {
      pattern += (random.OneIn(2) ? "(?=" : "(?!") + SomePattern(random, depth - 1, true) + ")";
    } else {
      pattern += depth > 0 && random.OneIn(3) ? (random.OneIn(2) ? "(" : "(?:") + SomePattern(random, depth - 1, in_look_ahead) + ")"
                                              : std::string(kAtoms[random.Below(std::size(kAtoms))]);
      static constexpr std::string_view kQuantifiers[] = {"*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"};
      if (random.OneIn(3)) pattern += kQuantifiers[random.Below(std::size(kQuantifiers))];
    }
  }
  return depth > 0 && random.OneIn(3) ? pattern + "|" + SomePattern(random, depth - 1, in_look_ahead) : pattern;
}

TEST(RegularExpressionTest, AgreesWithStdRegex) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  std::uint64_t matches = 0, texts = 0;
  for (int i = 0; i < (kSlowdown == 1 ? 5'000 : 500); ++i) {
    const std::string pattern = SomePattern(random, 3, false);
    const std::regex expected(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
    ASSERT_OK_AND_ASSIGN(const RegularExpression regex, RegularExpression::Compile(pattern));
    for (int k = 0; k < 8; ++k, ++texts) {
      std::string text;
      for (std::uint64_t size = random.Below(9); size > 0; --size) text.push_back("abc-\n"[random.Below(5)]);
      const bool found = std::regex_search(text, expected);
      ASSERT_EQ(regex.Matches(text), found) << pattern << " in " << text;
      matches += found ? 1 : 0;
    }
  }
  EXPECT_GT(matches, texts / 10);
  EXPECT_LT(matches, texts - texts / 10);
}

}  // namespace
}  // namespace hako::text
