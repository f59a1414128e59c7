// Search (dbm/search.h): every mode on every kind of database.
#include "hako/dbm/search.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "support/model_dbm.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

template <class D>
std::vector<std::string> Found(D& db, SearchMode mode, std::string_view pattern, std::size_t capacity = 0) {
  const auto keys = Search(db, mode, pattern, capacity);
  EXPECT_THAT(keys, IsOk());
  return keys.value_or(std::vector<std::string>());
}

template <class D>
void ExpectFindsInEveryMode(D& db) {
  EXPECT_THAT(Found(db, SearchMode::kContain, ""), IsEmpty());
  for (const char* key : {"apple", "pineapple", "ap+le", "plum", "", "pl\xc3\xbcm"}) ASSERT_THAT(db.Set(key, "value"), IsOk());
  EXPECT_THAT(Found(db, SearchMode::kContain, "p+l"), ElementsAre("ap+le"));
  EXPECT_THAT(Found(db, SearchMode::kContain, "app"), UnorderedElementsAre("apple", "pineapple"));
  EXPECT_THAT(Found(db, SearchMode::kContain, ""), testing::SizeIs(6));
  EXPECT_THAT(Found(db, SearchMode::kBegin, "ap"), UnorderedElementsAre("apple", "ap+le"));
  EXPECT_THAT(Found(db, SearchMode::kEnd, "apple"), UnorderedElementsAre("apple", "pineapple"));
  EXPECT_THAT(Found(db, SearchMode::kRegex, "^p.*[em]$"), UnorderedElementsAre("pineapple", "plum", "pl\xc3\xbcm"));
  EXPECT_THAT(Found(db, SearchMode::kRegex, "e"), UnorderedElementsAre("apple", "pineapple", "ap+le"));
  EXPECT_THAT(Found(db, SearchMode::kRegex, "cherry"), IsEmpty());
  EXPECT_THAT(Found(db, SearchMode::kEdit, "pl\xc3\xb6m", 3), ElementsAre("plum", "pl\xc3\xbcm", "")) << "the nearest first";
  EXPECT_THAT(Found(db, SearchMode::kEdit, "apple"), ElementsAre("apple", "ap+le", "pineapple", "plum", "pl\xc3\xbcm", ""));
  EXPECT_THAT(Found(db, SearchMode::kContain, "p", 2), testing::SizeIs(2)) << "the capacity";
}

TEST(Search, FindsInEveryModeInEveryKindOfDatabase) {
  TempDir directory;
  for (const std::string& name : {directory.File("a.hkh"), directory.File("a.hks")}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(name));
    ExpectFindsInEveryMode(*db);
  }
  ASSERT_OK_AND_ASSIGN(auto tiny, TinyDBM<>::Open());
  ExpectFindsInEveryMode(*tiny);
  ModelDBM model;
  ExpectFindsInEveryMode(model);
}

TEST(Search, RefusesInvalidRegularExpressions) {
  ModelDBM db;
  for (const char* pattern : {"(", "[a", "*", "a{2,1}"})
    EXPECT_THAT(Search(db, SearchMode::kRegex, pattern),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("' is not a regular expression: ")))
        << pattern;
  EXPECT_THAT(Search(db, SearchMode::kRegex, "(a)\\1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("invalid escape sequence: \\1 at position 4")));
}

TEST(Search, RefusesDeepRegularExpressions) {
  ModelDBM db;
  const std::string deep = std::string(200'000, '(') + "a" + std::string(200'000, ')');
  EXPECT_THAT(Search(db, SearchMode::kRegex, deep), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is too large")));
}

TEST(Search, RegexOnLongKeysDoesNotOverflowTheStack) {
  ModelDBM db;
  ASSERT_THAT(db.Set(std::string(300'000, 'a') + "b", "value"), IsOk());
  EXPECT_THAT(Found(db, SearchMode::kRegex, "^(a|c)*b$"), testing::SizeIs(1));
}

TEST(Search, ModesHaveNames) {
  EXPECT_EQ(SearchModeOfName("contain"), SearchMode::kContain);
  EXPECT_EQ(SearchModeOfName("begin"), SearchMode::kBegin);
  EXPECT_EQ(SearchModeOfName("end"), SearchMode::kEnd);
  EXPECT_EQ(SearchModeOfName("regex"), SearchMode::kRegex);
  EXPECT_EQ(SearchModeOfName("edit"), SearchMode::kEdit);
  EXPECT_EQ(SearchModeOfName("similar"), std::nullopt);
}

TEST(EditDistance, CountsInsertionsRemovalsAndReplacements) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("saturday", "sunday"), 3u);
  EXPECT_EQ(EditDistance("ab", "ba"), 2u);
  EXPECT_EQ(EditDistance("m\xc3\xbcnchen", "munchen"), 1u) << "a character of two bytes is one";
  EXPECT_EQ(EditDistance("\xff\xfe", "\xfe"), 1u) << "bytes that are no character";
}

}  // namespace
}  // namespace hako
