// Queries that an opponent may write: of any depth, of many parts, with the largest numbers. They are
// answered or refused in a time that is linear in their length, and no memory beyond it.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/table/table_dbm.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Repeat(std::string_view text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::unique_ptr<TableDBM> OpenThreeRows() {
  auto table = *TableDBM::OpenInMemory();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(table->Put(std::string(1, static_cast<char>('a' + i)), {{"n", i}, {"t", "x y"}}), IsOk());
  return table;
}

TEST(HostileQueryTest, RefusesHostileRegularExpressions) {
  const std::string deep = Repeat("(", 200'000) + "a" + Repeat(")", 200'000);
  EXPECT_THAT(ParseCondition("t matches '" + deep + "'").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is too large")));
  EXPECT_THAT(ParseCondition("t matches '" + Repeat("(", 15'000) + "x" + Repeat(")", 15'000) + "'"), IsOk());
  EXPECT_THAT(ParseCondition("t matches '(?=.*x)'").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("invalid perl operator: (?= at position 1")));
  EXPECT_THAT(ParseCondition("t matches '[" + Repeat("(", 500) + "]\\(\\(x'"), IsOk());  // none of these opens a group
  EXPECT_THAT(ParseCondition("t matches '" + Repeat("x{1000}", 20) + "'").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is too large")));
}

TEST(HostileQueryTest, RefusesDeepConditions) {
  EXPECT_THAT(ParseCondition(Repeat("(", 100'000) + "n = 1").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("position 101: expected fewer levels of parentheses")));
  EXPECT_THAT(ParseCondition(Repeat("not ", 100'000) + "n = 1"), IsOk());
}

TEST(HostileQueryTest, EffortEndsEachKindOfPlan) {
  const auto table = *TableDBM::OpenInMemory();
  for (int i = 0; i < 500; ++i)
    ASSERT_THAT(table->Put("k" + std::to_string(i), {{"n", i}, {"m", i}, {"t", "x y" + std::to_string(i)}, {"u", i}}), IsOk());
  for (const IndexOptions& index : {IndexOptions{.columns = {{"n"}}}, {.columns = {{"m"}}}, {.columns = {{"t", IndexKind::kToken}}}})
    ASSERT_THAT(table->CreateIndex(index), IsOk());
  // All rows, a range of an index, an intersection, a union, words, a sort, a plan that counts candidates.
  for (const char* const where : {"u >= 0", "n >= 0", "n >= 0 and m >= 0", "n >= 0 or m >= 0", "t all 'x'", "t all 'x y1'", "key >= 'k'"}) {
    ASSERT_OK_AND_ASSIGN(const Condition condition, ParseCondition(where));
    for (const bool is_sorted : {false, true}) {
      Query query = table->Select().Where(condition);
      if (is_sorted) query.OrderBy("u");
      ASSERT_OK_AND_ASSIGN(const auto keys, query.Keys());
      QueryEffort enough(10'000), few(20), none(0);
      EXPECT_THAT(Query(query).Within(&enough).Keys(), IsOkAndHolds(keys)) << where;
      EXPECT_FALSE(enough.is_spent());
      if (keys.size() > 20) {
        EXPECT_THAT(Query(query).Within(&few).Keys().status(), StatusIs(absl::StatusCode::kCancelled)) << where;
      }
      EXPECT_THAT(Query(query).Within(&none).Each([](std::string_view, const RowView&) { return true; }),
                  StatusIs(absl::StatusCode::kCancelled))
          << where;
    }
  }
  QueryEffort few(20);
  EXPECT_THAT(table->Select().Where(Column("u") >= 0).Within(&few).Remove().status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(few.is_spent());
  EXPECT_THAT(table->Count(), IsOkAndHolds(500u));
  std::atomic<bool> stop = false;
  QueryEffort stopped(QueryEffort::kUnlimited, &stop);
  int rows = 0;
  EXPECT_THAT(table->Select().Within(&stopped).Each([&](std::string_view, const RowView&) {
    stop = ++rows == 7;
    return true;
  }),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(rows, 7);
  // Long rows take more.
  ASSERT_THAT(table->Put("long", {{"b", std::string(100'000, 'x')}}), IsOk());
  QueryEffort units(300);
  EXPECT_THAT(table->Select().Where(Key() == "long").Within(&units).Count().status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(table->Verify(), IsOk());
}

// A text that is not matched is neither shown nor changed, not even if the condition is negated.
TEST(HostileQueryTest, EffortCountsTheTextsOfRegularExpressions) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->Put("k", {{"t", std::string(20'000, 'a')}, {"n", 1}}), IsOk());
  const Condition quadratic = Column("t").Matches("(.*)(.*)(.*)(.*)(.*)x"), one = Column("n") == 1;
  EXPECT_THAT(table->Select().Where(quadratic).Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Select().Where(!quadratic).Count(), IsOkAndHolds(1u));
  constexpr std::uint64_t kUnits = 20'000 / QueryEffort::kBytes * 3 / 2;  // enough for the row, not for its text
  for (const Condition& condition : {quadratic, !quadratic, one && !quadratic, !quadratic || Column("n") == 2}) {
    QueryEffort units(kUnits), sort_units(kUnits), update_units(kUnits);
    int rows = 0;
    EXPECT_THAT(table->Select().Where(condition).Within(&units).Each([&rows](std::string_view, const RowView&) { return ++rows, true; }),
                StatusIs(absl::StatusCode::kCancelled));
    EXPECT_THAT(table->Select().Where(condition).OrderBy("n").Limit(1).Within(&sort_units).Each([&rows](std::string_view, const RowView&) {
      return ++rows, true;
    }),
                StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(rows, 0);
    EXPECT_THAT(table->Select().Where(condition).Within(&update_units).Update({{"n", 2}}).status(), StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_EQ(table->Get("k")->Get("n"), Value(1));
}

// A match cannot be stopped, so one that may take long is refused where a query can be.
TEST(HostileQueryTest, RefusesLongMatchesOfQueriesWithEffort) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->Put("k", {{"t", std::string(1 << 20, 'a')}}), IsOk());
  const Condition large = Column("t").Matches(Repeat("(?:a|b){1000}", 4)), usual = Column("t").Matches("a.*b{100}");
  QueryEffort effort(QueryEffort::kUnlimited);
  for (const Condition& condition : {large, !large, usual || large}) {
    EXPECT_THAT(table->Select().Where(condition).Within(&effort).Count().status(),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("too large for a text of 1048576 bytes")));
    effort = QueryEffort(QueryEffort::kUnlimited);
  }
  EXPECT_THAT(table->Select().Where(usual).Within(&effort).Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Select().Where(large).Count(), IsOkAndHolds(1u));
}

TEST(HostileQueryTest, StopEndsRegularExpressionsBetweenRows) {
  const auto table = *TableDBM::OpenInMemory();
  std::string text;
  for (int i = 0; i < 20'000; ++i) text.push_back("ab"[MixBits(static_cast<std::uint64_t>(i)) % 2]);
  for (int i = 0; i < 1'000; ++i) ASSERT_THAT(table->Put("k" + std::to_string(i), {{"t", text}}), IsOk());
  std::atomic<bool> stop = false;
  QueryEffort effort(QueryEffort::kUnlimited, &stop);
  std::thread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(table->Select().Where(Column("t").Matches("a[ab]{1000}c")).Within(&effort).Count().status(),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // the whole takes far longer
  stopper.join();
}

TEST(HostileQueryTest, LongTextsTakeLinearTime) {
  const auto table = *TableDBM::OpenInMemory();
  const std::size_t size = kSlowdown == 1 ? 4 << 20 : 1 << 20;
  ASSERT_THAT(table->Put("k", {{"t", std::string(size, 'a')}, {"w", Repeat("a ", size / 2)}}), IsOk());
  const std::string part = std::string(size / 4, 'a') + "b" + std::string(size / 4, 'a'), words = Repeat("a ", size / 8);
  EXPECT_THAT(table->Select().Where(Column("t").Contains(part)).Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Select().Where(Column("t").Contains(part.substr(0, size / 4))).Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Select().Where(Column("w").HasPhrase(words + "b " + words)).Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Select().Where(Column("w").HasPhrase(words + words)).Count(), IsOkAndHolds(1u));
  std::string others;
  for (std::size_t i = 0; i < size / 16; ++i) others += "b" + std::to_string(i) + " ";
  EXPECT_THAT(table->Select().Where(Column("w").HasAny(others)).Count(), IsOkAndHolds(0u));
}

TEST(HostileQueryTest, ManyAlternativesTakeLinearTime) {
  const auto table = OpenThreeRows();
  ASSERT_THAT(table->CreateIndex({.columns = {{"n"}}}), IsOk());
  const std::size_t many = kSlowdown == 1 ? 100'000 : 20'000;
  ASSERT_OK_AND_ASSIGN(const Condition any, ParseCondition("n = 1" + Repeat(" or n = 2", many)));
  EXPECT_THAT(table->Select().Where(any).Count(), IsOkAndHolds(2u));
  ASSERT_OK_AND_ASSIGN(const Condition all, ParseCondition("n = 1" + Repeat(" and n > 0", many)));
  EXPECT_THAT(table->Select().Where(all).Count(), IsOkAndHolds(1u));
  std::string list = "n in (1";
  for (std::size_t i = 3; i < many; ++i) list += ", " + std::to_string(i);
  ASSERT_OK_AND_ASSIGN(const Condition in, ParseCondition(list + ", 1.0)"));
  EXPECT_THAT(table->Select().Where(in).Keys(), IsOkAndHolds(ElementsAre("b")));
  EXPECT_THAT(table->Select().Where(Column("t").Search("x" + Repeat(" y", many))).Count(), IsOkAndHolds(3u));
}

TEST(HostileQueryTest, LargestLimitAndOffsetDoNotOverflow) {
  const auto table = OpenThreeRows();
  const std::uint64_t most = ~std::uint64_t{0};
  EXPECT_THAT(table->Select().OrderBy("n", RowOrder::kNumericDescending).Limit(most, 1).Keys(), IsOkAndHolds(ElementsAre("b", "a")));
  EXPECT_THAT(table->Select().Limit(most, 2).Keys(), IsOkAndHolds(ElementsAre("c")));
  const std::uint64_t far = most / 2;  // an offset above this is a negative number
  EXPECT_THAT(table->Select().OrderBy("n").Limit(1, far).Keys(), IsOkAndHolds(ElementsAre()));
  EXPECT_THAT(table->Select().OrderBy("n").Limit(most, far).Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Select().OrderBy("n").Limit(1, most).Keys().status(), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Equal numbers in one list show a row once; a text in it is another value.
TEST(HostileQueryTest, ListsOfTextsAndNumbersShowARowOnce) {
  const auto table = OpenThreeRows();
  ASSERT_THAT(table->Put("d", {{"n", "1"}}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"n"}}}), IsOk());
  EXPECT_THAT(table->Select().Where(Column("n").In({"1", 1, 1.0, true})).OrderBy("").Keys(), IsOkAndHolds(ElementsAre("b", "d")));
  EXPECT_THAT(table->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
