// Regular expressions: characters and bytes, the errors and limits, hostile patterns, and the same answers as
// std::regex.
#include "hako/text/regular_expression.h"

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
      {"^ab$", "ab", "abb"},
      {"^b", "b", "a\nb"},
      {"(?m)^b$", "a\nb", "ab"},
      {"a|bc|^$", "xbcx", "bxc"},
      {"(?:ab)+c", "ababc", "abac"},
      {"^a*?b??c{2}d{1,}e{0,2}$", "aaccdde", "accdeee"},
      {"^(a|b){2,3}$", "aba", "abab"},
      {"^.$", "x", "\n"},
      {"^[^a-c]$", "d", "b"},
      {"^[a\\-z]+$", "a-z", "b"},
      {"^[[:upper:][:digit:]]+$", "A9", "a"},
      {"^\\d\\D\\s\\S\\w\\W$", "1a xa-", "1a xaa"},
      {"^\\x41\\t\\.$", "A\t.", "A\tx"},
      {"\\bcat\\b", "a cat.", "concat"},
      {"o\\B", "oo", "o"},
      {"(a*)*b", "aab", "aa"},
      {"(?i)^caf\xc3\x89$", "CAF\xc3\xa9", "cafe"},
  };
  for (const auto& [pattern, match, none] : kCases) {
    EXPECT_TRUE(Matches(pattern, match)) << pattern;
    EXPECT_FALSE(Matches(pattern, none)) << pattern;
  }
  EXPECT_TRUE(Matches("", "any"));
  EXPECT_TRUE(RegularExpression().Matches("any"));
  EXPECT_TRUE(Matches(std::string_view("a\0b", 3), std::string_view("xa\0b", 4)));
  EXPECT_TRUE(Matches("a\\0b", std::string_view("xa\0b", 4)));
}

TEST(RegularExpressionTest, TakesCharactersOfUtf8) {
  EXPECT_TRUE(Matches("^pl.m$", "pl\xc3\xbcm"));
  EXPECT_TRUE(Matches("^[\xc3\xa4\xc3\xb6\xc3\xbc]$", "\xc3\xbc"));
  EXPECT_FALSE(Matches("[^\xc3\xa4\xc3\xb6\xc3\xbc]", "\xc3\xbc"));
  EXPECT_TRUE(Matches("^\\x{20ac}$", "\xe2\x82\xac"));
  EXPECT_TRUE(Matches("^\\pL+$",
                      "Stra\xc3\x9f"
                      "e"));
  EXPECT_TRUE(Matches("b",
                      "a\xff"
                      "b\xc3"))
      << "also in a text that has other bytes";
  EXPECT_FALSE(Matches("^a.b$",
                       "a\xff"
                       "b"));
  EXPECT_TRUE(Matches("^a\\Cb$",
                      "a\xff"
                      "b"));
}

TEST(RegularExpressionTest, TakesBytesIfThePatternNamesOne) {
  for (const std::string_view pattern : {"^\\xff.$", "^\xff.$", "^\\\\?\\xfF.$", "^[\\xf0-\\xff].$"}) {
    EXPECT_TRUE(Matches(pattern, "\xff\xfe")) << pattern;
    EXPECT_FALSE(Matches(pattern, "\xc3\xbfx")) << pattern;
  }
  EXPECT_TRUE(Matches("^\\\\xff.$", "\\xff\xc3\xbc")) << "a backslash, and the letters xff";
}

TEST(RegularExpressionTest, RefusesWhatIsMalformed) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"(a", "'(a' is not a regular expression: missing ): (a"},
      {"a)b", "'a)b' is not a regular expression: unexpected ): a)b"},
      {"ab[c", "'ab[c' is not a regular expression: missing ]: [c at position 3"},
      {"a[z-b]", "'a[z-b]' is not a regular expression: invalid character class range: z-b at position 3"},
      {"a|*", "'a|*' is not a regular expression: no argument for repetition operator: * at position 3"},
      {"a**", "'a**' is not a regular expression: bad repetition operator: ** at position 2"},
      {"ba{2,1}", "'ba{2,1}' is not a regular expression: invalid repetition size: {2,1} at position 3"},
      {"a\\", "'a\\\\' is not a regular expression: trailing \\"},
      {"(a)\\1", "'(a)\\\\1' is not a regular expression: invalid escape sequence: \\1 at position 4"},
      {"a(?=b)", "'a(?=b)' is not a regular expression: invalid perl operator: (?= at position 2"},
      {"[[:letter:]]", "invalid character class range: [:letter:] at position 2"}};
  for (const auto& [pattern, message] : kCases)
    EXPECT_THAT(RegularExpression::Compile(pattern).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(message))))
        << pattern;
}

TEST(RegularExpressionTest, RefusesWhatIsTooLarge) {
  for (const std::string& pattern :
       {Repeat("a{1000}", 20), Repeat("a", RegularExpression::kPatternMax + 1), Repeat("\\pL", 100), Repeat("(", 100'000)})
    EXPECT_THAT(RegularExpression::Compile(pattern).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("...' is too large for a regular expression")))
        << pattern.substr(0, 50);
  EXPECT_THAT(RegularExpression::Compile("((a{10}){10}){10}"), IsOk());
  EXPECT_THAT(RegularExpression::Compile(Repeat("(", 15'000) + "a" + Repeat(")", 15'000)), IsOk()) << "no stack overflows";
}

// An engine that backtracks, or that begins again at each byte, does not end.
TEST(RegularExpressionTest, EndsOnPatternsOfManyWays) {
  const std::string text(200'000, 'a');
  for (const char* const pattern : {"(.*)(.*)(.*)(.*)(.*)x", "(a*)*b", "(a|aa)+$b", "a*a*a*a*b", "^(a?){40}a{40}b", "[ax].{200}b"}) {
    ASSERT_OK_AND_ASSIGN(const RegularExpression regex, RegularExpression::Compile(pattern));
    EXPECT_FALSE(regex.Matches(text)) << pattern;
  }
}

TEST(RegularExpressionTest, WritesNothingToStandardError) {
  Random random(1);
  std::string text;
  for (int i = 0; i < 200'000; ++i) text.push_back("ab"[random.Below(2)]);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(RegularExpression::Compile("(").ok());
  EXPECT_FALSE(Matches("a[ab]{500}c", text)) << "more states than its memory has room for";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

std::string SomePattern(Random& random, int depth) {
  static constexpr std::string_view kAtoms[] = {"a", "b", ".", "[ab]", "[^b]", "\\w", "\\W", "[a-c-]", "\\x62", "-", "(?:)", "[[:alpha:]]"};
  std::string pattern;
  for (std::uint64_t parts = random.Below(4); parts > 0; --parts) {
    if (random.OneIn(8)) {
      static constexpr std::string_view kBorders[] = {"^", "$", "\\b", "\\B"};
      pattern += kBorders[random.Below(4)];
    } else {
      pattern += depth > 0 && random.OneIn(3) ? (random.OneIn(2) ? "(" : "(?:") + SomePattern(random, depth - 1) + ")"
                                              : std::string(kAtoms[random.Below(std::size(kAtoms))]);
      static constexpr std::string_view kQuantifiers[] = {"*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"};
      if (random.OneIn(3)) pattern += kQuantifiers[random.Below(std::size(kQuantifiers))];
    }
  }
  return depth > 0 && random.OneIn(3) ? pattern + "|" + SomePattern(random, depth - 1) : pattern;
}

TEST(RegularExpressionTest, AgreesWithStdRegex) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  std::uint64_t matches = 0, texts = 0;
  for (int i = 0; i < (kSlowdown == 1 ? 5'000 : 500); ++i) {
    const std::string pattern = SomePattern(random, 3);
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
