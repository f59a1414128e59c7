// Keyword tables beside a model: a text is a keyword if it has its size and is equal after A to Z
// were made a to z.
#include "hako/base/keyword_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace hako {
namespace {

using Keywords = std::vector<std::string>;

// All sizes from 0 on, with bytes that are not letters: those that differ only in bit 5 from
// others, from letters' neighbours, and 0.
constexpr auto kTable = MakeKeywordTable(
    "", "a", "-", "ab", "get", "set", "a\0b", "ping", "x-y", "host", ":path", "mget!", "expire", "@list[", "`list{", "expires", "hincrby_",
    "sismember", "setx-value", "zrangestore", "zrange:store", "content-type", "last-modified", "content-length", "x-reproxy-url12",
    "zunionstore-1234", "if-modified-since", "proxy-authenticate", "if-unmodified-since", "upgrade-insecure-requests",
    "access-control-request-headers", "access-control-allow-credential", "access-control-allow-credentials",
    "access-control-allow-credentials-", "prefixes-01234567-one-of-suffixes-8", "prefixes-01234567-two-of-suffixes-8");

Keywords ListOf(const auto& table) {
  Keywords keywords;
  for (std::size_t i = 0; i < table.size(); ++i) keywords.emplace_back(table[i]);
  return keywords;
}

std::string Fold(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}
std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

// The model.
class Model {
 public:
  explicit Model(const Keywords& keywords) {
    for (const std::string& keyword : keywords) folded_.push_back(Fold(keyword));
  }
  int Find(const std::string& text) const {
    const auto at = std::find(folded_.begin(), folded_.end(), Fold(text));
    return at == folded_.end() ? -1 : static_cast<int>(at - folded_.begin());
  }

 private:
  Keywords folded_;
};

// Each keyword in many mixes of case, with each byte replaced by all others, without either end,
// and with a byte more at either end.
void ExpectExact(const auto& table) {
  const Keywords keywords = ListOf(table);
  const Model model(keywords);
  std::mt19937 random(14);
  int num_wrong = 0;
  const auto check = [&](const std::string& text) {
    if (table.Find(text) != model.Find(text) && ++num_wrong < 10) ADD_FAILURE() << testing::PrintToString(text) << ": " << table.Find(text);
  };
  for (std::size_t i = 0; i < keywords.size(); ++i) {
    EXPECT_EQ(table.Find(keywords[i]), static_cast<int>(i)) << keywords[i];
    check(Upper(keywords[i]));
    for (int round = 0; round < 20; ++round) {
      std::string text = keywords[i];
      for (char& c : text) c = random() % 2 != 0 ? Upper({c})[0] : Fold({c})[0];
      EXPECT_EQ(table.Find(text), static_cast<int>(i)) << text;
    }
    for (std::size_t at = 0; at < keywords[i].size(); ++at) {
      std::string text = keywords[i];
      for (int c = 0; c < 256; ++c) {
        text[at] = static_cast<char>(c);
        check(text);
      }
      check(keywords[i].substr(at + 1));
      check(keywords[i].substr(0, at));
    }
    for (const char c : {'\0', 'a', '\xe1', keywords[i].empty() ? ' ' : keywords[i].back()}) {
      check(keywords[i] + c);
      check(c + keywords[i]);
    }
  }
  EXPECT_EQ(num_wrong, 0);
}

// Texts that lie at the end of a readable page, or at the begin of one.
class GuardedPage {
 public:
  GuardedPage() {
    pages_ = static_cast<char*>(mmap(nullptr, 3 * kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(pages_, MAP_FAILED);
    EXPECT_EQ(mprotect(pages_ + kSize, kSize, PROT_READ | PROT_WRITE), 0);
  }
  ~GuardedPage() { munmap(pages_, 3 * kSize); }

  std::string_view AtEnd(const std::string& text) { return Put(pages_ + 2 * kSize - text.size(), text); }
  std::string_view AtBegin(const std::string& text) { return Put(pages_ + kSize, text); }

 private:
  static std::string_view Put(char* to, const std::string& text) {
    std::copy(text.begin(), text.end(), to);
    return {to, text.size()};
  }
  const std::size_t kSize = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char* pages_;
};

TEST(KeywordTable, FindsAtCompileTime) {
  static_assert(MakeKeywordTable("get", "set").Find("SET") == 1);
  static_assert(MakeKeywordTable("get", "set").Find("sets") == -1);
  static_assert(kTable.Find("If-Modified-Since") >= 0 && kTable.Find("If-Modified\rSince") == -1);
  static_assert(kTable.Find("PREFIXES-01234567-two-of-suffixes-8") == int{kTable.size()} - 1);
  static_assert(MakeKeywordTable("Get")[0] == "Get" && MakeKeywordTable("Get").Find("get") == 0);
}

TEST(KeywordTable, FindsExactlyItsKeywords) { ExpectExact(kTable); }

TEST(KeywordTable, FindsExactlyItsKeywordsInEveryTableSize) {
  static constexpr auto kOne = MakeKeywordTable("get");
  static constexpr auto kTwo = MakeKeywordTable("get", "set");
  static constexpr auto kChained = MakeKeywordTable("a[", "a{", "A]", "}");
  ExpectExact(kOne);
  ExpectExact(kTwo);
  ExpectExact(kChained);
}

// The bytes for which OR 0x20 would take them.
TEST(KeywordTable, RefusesControlBytesForPunctuation) {
  for (const char* text : {"x\ry", "\x1apath", "last\rmodified", "content\rlength", "if\rmodified\rsince"})
    EXPECT_EQ(kTable.Find(text), -1) << testing::PrintToString(text);
}

TEST(KeywordTable, ReadsNothingOutsideTheText) {
  GuardedPage page;
  const Model model(ListOf(kTable));
  for (std::size_t size = 0; size <= 300; ++size) {
    for (const std::string& text : {std::string(size, 'a'), Upper(ListOf(kTable)[size % kTable.size()])}) {
      EXPECT_EQ(kTable.Find(page.AtEnd(text)), model.Find(text)) << text;
      EXPECT_EQ(kTable.Find(page.AtBegin(text)), model.Find(text)) << text;
    }
  }
  EXPECT_EQ(kTable.Find(std::string_view()), 0);  // a null pointer
}

TEST(RuntimeKeywordTable, FindsKeywordsOfEverySize) {
  Keywords keywords;
  for (std::size_t size = 0; size <= 300; ++size) {
    keywords.emplace_back(size, 'k');
    for (std::size_t i = 0; i < size; ++i) keywords.back()[i] = "Key-word_@["[(i * 7 + size) % 11];
  }
  const auto table = RuntimeKeywordTable::Make(keywords);
  ASSERT_TRUE(table.ok()) << table.status();
  const Model model(keywords);
  GuardedPage page;
  for (std::size_t i = 0; i < keywords.size(); ++i) {
    EXPECT_EQ(table->Find(page.AtEnd(Upper(keywords[i]))), static_cast<int>(i));
    for (std::size_t at = 0; at < i; ++at) {
      std::string text = keywords[i];
      text[at] ^= static_cast<char>(0x20);
      ASSERT_EQ(table->Find(text), model.Find(text)) << text;
    }
  }
}

// Of 1 to 600 keywords, many of which begin or end alike, differ only in bit 5 or in the middle.
TEST(RuntimeKeywordTable, FindsExactlyItsKeywords) {
  std::mt19937 random(4);
  for (const std::size_t count : {1u, 2u, 3u, 8u, 64u, 65u, 240u, 600u}) {
    Keywords keywords;
    while (keywords.size() < count) {
      std::string keyword(1 + random() % 6, '.');
      for (char& c : keyword) c = "abXYZ01-[{@`_\x7f"[random() % 14];
      if (random() % 4 == 0) keyword = "metrics." + keyword + ".usage_percent";
      if (Model(keywords).Find(keyword) < 0) keywords.push_back(keyword);
    }
    const auto table = RuntimeKeywordTable::Make(keywords);
    ASSERT_TRUE(table.ok()) << table.status();
    const Model model(keywords);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(table->Find(Upper(keywords[i])), static_cast<int>(i));
      for (std::size_t at = 0; at < keywords[i].size(); ++at) {
        for (const int bit : {0, 2, 5, 6, 7}) {
          std::string text = keywords[i];
          text[at] = static_cast<char>(text[at] ^ 1 << bit);
          ASSERT_EQ(table->Find(text), model.Find(text)) << text;
        }
      }
    }
  }
}

TEST(RuntimeKeywordTable, IsEmptyWithoutKeywords) {
  const auto table = RuntimeKeywordTable::Make({});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->Find(""), -1);
  EXPECT_EQ(table->Find("a"), -1);
  EXPECT_EQ(table->Find(std::string(65535, '\0')), -1);
}

TEST(RuntimeKeywordTable, FindsAfterMove) {
  auto table = RuntimeKeywordTable::Make({"a", "a-keyword-of-more-than-thirty-two-bytes"});
  ASSERT_TRUE(table.ok());
  const RuntimeKeywordTable moved = *std::move(table);
  EXPECT_EQ(moved.Find("A"), 0);
  EXPECT_EQ(moved.Find("A-Keyword-of-more-than-thirty-two-bytes"), 1);
}

TEST(RuntimeKeywordTable, RefusesWhatIsNoSetOfKeywords) {
  using absl::StatusCode;
  EXPECT_EQ(RuntimeKeywordTable::Make({"get", "set", "GET"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RuntimeKeywordTable::Make({"get", "get"}).status().message(), "keyword 'get' is given twice, perhaps in another case");
  EXPECT_EQ(RuntimeKeywordTable::Make({"gr\xc3\xbc\xc3\x9f"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RuntimeKeywordTable::Make({std::string(65535, 'a')}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(RuntimeKeywordTable::Make(Keywords(32769)).status().code(), StatusCode::kOutOfRange);
  const auto longest = RuntimeKeywordTable::Make({std::string(65534, 'a')});
  ASSERT_TRUE(longest.ok());
  EXPECT_EQ(longest->Find(std::string(65534, 'A')), 0);
}

}  // namespace
}  // namespace hako
