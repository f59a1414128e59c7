// TableDBM::Run: the result of a statement, its order and its limits; columns that are misspelt; updates and
// deletes of more rows than one atomic step takes.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/change_set.h"
#include "hako/table/table_dbm.h"
#include "support/full_size.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class StatementTest : public testing::Test {
 protected:
  ~StatementTest() override { EXPECT_THAT(table_->Verify(), IsOk()); }

  // Each row of the result as "name=value name=value".
  std::vector<std::string> Run(std::string_view text) {
    std::vector<std::string> rows;
    const StatusOr<std::uint64_t> shown = Try(text, &rows);
    EXPECT_THAT(shown, IsOkAndHolds(rows.size())) << text;
    return rows;
  }
  StatusOr<std::uint64_t> Try(std::string_view text, std::vector<std::string>* rows = nullptr) {
    HAKO_ASSIGN_OR_RETURN(const Statement statement, ParseStatement(text));
    const std::vector<std::string> names = ResultNames(statement);
    return table_->Run(statement, [&](const ResultRow& row) {
      std::string line;
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        if (!names.empty()) EXPECT_EQ(row.cells[i].column, names[i]);
        line += (i > 0 ? " " : "") + std::string(row.cells[i].column) + "=" +
                (row.cells[i].value.is_null() ? "null" : row.cells[i].value.ToText());
      }
      if (rows != nullptr) rows->push_back(line);
      return true;
    });
  }
  void PutPeople() {
    ASSERT_THAT(table_->Put("ada", {{"age", 36}, {"city", "London"}}), IsOk());
    ASSERT_THAT(table_->Put("bob", {{"age", 20}, {"city", "Rome"}}), IsOk());
    ASSERT_THAT(table_->Put("eve", {{"age", 100}, {"city", "Rome"}}), IsOk());
    ASSERT_THAT(table_->Put("kim", {{"age", 9}}), IsOk());
    ASSERT_THAT(table_->Put("tom", {{"age", 50}, {"city", "Oslo"}}), IsOk());
    ASSERT_THAT(table_->Put("zoe", {{"age", 7.5}, {"city", "Rome"}}), IsOk());
  }

  std::unique_ptr<TableDBM> table_ = *TableDBM::OpenInMemory();
};

TEST_F(StatementTest, LimitIsAboutTheRowsOfTheResult) {
  PutPeople();
  EXPECT_THAT(Run("select count(*) limit 2"), ElementsAre("count(*)=6"));
  EXPECT_THAT(Run("select count(*), max(age) limit 1"), ElementsAre("count(*)=6 max(age)=100"));
  EXPECT_THAT(Run("select count(*) limit 0"), ElementsAre());
  EXPECT_THAT(Run("select count(*) offset 1"), ElementsAre());
  EXPECT_THAT(Run("select count(*) group by city limit 2"), ElementsAre("city=null count(*)=1", "city=London count(*)=1"));
  EXPECT_THAT(Run("select count(*) group by city limit 2 offset 2"), ElementsAre("city=Oslo count(*)=1", "city=Rome count(*)=3"));
  EXPECT_THAT(Run("select key order by age limit 2 offset 1"), ElementsAre("key=kim", "key=bob"));
  EXPECT_THAT(Run("select key limit 2"), ElementsAre("key=ada", "key=bob"));
}

TEST_F(StatementTest, GroupsAreOrderedByTheirColumnOrAFunction) {
  PutPeople();
  EXPECT_THAT(Run("select city, count(*) group by city order by city desc"),
              ElementsAre("city=Rome count(*)=3", "city=Oslo count(*)=1", "city=London count(*)=1", "city=null count(*)=1"));
  EXPECT_THAT(Run("select count(*), city group by city order by count(*) desc limit 2"),
              ElementsAre("city=Rome count(*)=3", "city=Oslo count(*)=1"));
  EXPECT_THAT(Run("select count(*) group by city order by max(age)"),
              ElementsAre("city=null count(*)=1", "city=London count(*)=1", "city=Oslo count(*)=1", "city=Rome count(*)=3"));
  EXPECT_THAT(Run("select sum(age) where age > 8 group by city order by sum(age) desc limit 1"), ElementsAre("city=Rome sum(age)=120"));
  EXPECT_THAT(Run("select min(age), count(city) group by key order by key desc limit 1"),
              ElementsAre("key=zoe min(age)=7.5 count(city)=1"));
}

TEST_F(StatementTest, WhatHasNoMeaningIsAnErrorWithItsPosition) {
  PutPeople();
  const auto error = [](std::string_view text) { return std::string(ParseStatement(text).status().message()); };
  EXPECT_THAT(error("select city, count(*)"), StartsWith("position 8: a column beside functions must be the one of `group by`"));
  EXPECT_THAT(error("select count(*), age group by city"), StartsWith("position 18: a column beside functions"));
  EXPECT_THAT(error("select count(*) group by city order by age"), StartsWith("position 40: groups are ordered by"));
  EXPECT_THAT(error("select count(*) order by age"), StartsWith("position 26: functions without `group by` show one row"));
  EXPECT_THAT(error("select * order by count(*)"), StartsWith("position 19: only groups are ordered by a function"));
  EXPECT_THAT(error("select * group by city"), StartsWith("position 10: group by needs a function"));
  EXPECT_THAT(error("select count(*) group by city order by city numeric"), StartsWith("position 45: groups are ordered by their values"));
  EXPECT_THAT(error("delete where age = 1 order by age in batches"), StartsWith("position 22: batches are in the order of the keys"));
  EXPECT_THAT(error("delete where age = 1 in parts"), StartsWith("position 25: expected 'batches', found 'parts'"));
  EXPECT_THAT(error("select * in batches"), StartsWith("position 10: expected the end"));
  EXPECT_THAT(error("select name where name = \"Ada\""), HasSubstr("found \"Ada\", a column in double quotes"));
  EXPECT_THAT(error("select * from people"), StartsWith("position 10: a statement has no 'from'"));
  EXPECT_THAT(error("update set key = 'k'"), StartsWith("position 12: the primary key of a row does not change"));
  EXPECT_THAT(ParseStatement("select * limit ?", {"ten"}),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("position 16: parameter 1 is no number of rows")));
  EXPECT_THAT(error("delete group by city"), StartsWith("position 8: expected the end"));
}

TEST_F(StatementTest, MisspeltColumnsAreErrors) {
  EXPECT_THAT(Run("select agee where agee > 3"), ElementsAre());  // the table has no column yet
  PutPeople();
  for (const auto& [text, position] : {std::pair("select agee", 8),
                                       {"select * where age > 3 and agee < 5", 28},
                                       {"select sum(agee)", 12},
                                       {"select count(*) group by agee", 26},
                                       {"select * order by agee", 19},
                                       {"select count(*) group by city order by min(agee)", 44},
                                       {"delete where agee is null", 14},
                                       {"update set age = 1 where numeric(agee) = 3", 34},
                                       {"select * where not (agee = 1 or age = 2)", 21}}) {
    EXPECT_THAT(Try(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith("position " + std::to_string(position) + ": no row has had a column 'agee'; did you mean 'age'?")))
        << text;
  }
  EXPECT_THAT(Try("select kye").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("did you mean 'key'?")));
  EXPECT_THAT(Try("select telephone").status(), StatusIs(absl::StatusCode::kInvalidArgument, testing::EndsWith("a column 'telephone'")));
  EXPECT_THAT(table_->Select(*ParseStatement("select agee")).status(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Try("update set agee = 3 where key = 'ada'"), IsOkAndHolds(1u));  // a new column
  EXPECT_THAT(Run("select agee where agee > 1"), ElementsAre("agee=3"));
  // A program may ask for a column before a row has it.
  EXPECT_THAT(table_->Select().Where(Column("nickname") == "Al").Count(), IsOkAndHolds(0u));
}

TEST_F(StatementTest, UpdatesAndDeletesTakeALimit) {
  PutPeople();
  EXPECT_THAT(Try("update set city = 'Roma' where city = 'Rome' limit 2"), IsOkAndHolds(2u));
  EXPECT_THAT(Run("select key where city = 'Roma'"), ElementsAre("key=bob", "key=eve"));
  EXPECT_THAT(Try("delete order by age desc limit 2"), IsOkAndHolds(2u));
  EXPECT_THAT(Run("select key"), ElementsAre("key=ada", "key=bob", "key=kim", "key=zoe"));
  EXPECT_THAT(Try("delete limit 1 offset 1"), IsOkAndHolds(1u));
  EXPECT_THAT(Run("select key"), ElementsAre("key=ada", "key=kim", "key=zoe"));
  EXPECT_THAT(Try("delete"), IsOkAndHolds(3u));
  EXPECT_THAT(table_->Count(), IsOkAndHolds(0u));
}

TEST_F(StatementTest, BatchesChangeEachRowOnce) {
  for (int i = 0; i < 100; ++i) ASSERT_THAT(table_->Put("k" + std::to_string(100 + i), {{"n", i % 10}, {"m", 0}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.columns = {{"m"}}}), IsOk());
  const Query small = table_->Select().Where(Column("n") < 5);
  EXPECT_THAT(Query(small).InBatches(7).Update({{"m", 1}}), IsOkAndHolds(50u));
  EXPECT_THAT(table_->Select().Where(Column("m") == 1).Count(), IsOkAndHolds(50u));
  EXPECT_THAT(Query(small).InBatches(7).Limit(20, 3).Update({{"n", 8}}), IsOkAndHolds(20u));  // these leave the query
  EXPECT_THAT(small.Count(), IsOkAndHolds(30u));
  EXPECT_THAT(Query(small).OrderBy("n").InBatches(7).Remove().status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("order")));
  EXPECT_THAT(Query(small).InBatches(1000).Limit(0).Remove(), IsOkAndHolds(0u));
  EXPECT_THAT(Try("delete where n < 5 in batches"), IsOkAndHolds(30u));
  EXPECT_THAT(table_->Count(), IsOkAndHolds(70u));
}

TEST_F(StatementTest, FailedBatchTellsHowManyRowsTheOthersChanged) {
  for (int i = 0; i < 10; ++i) ASSERT_THAT(table_->Put("k" + std::to_string(i), {{"n", i}}), IsOk());
  ASSERT_THAT(table_->Put("k7", {{"n", 7}, {"u", 1}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "one", .columns = {{"v"}}, .unique = true, .where = "u = 1"}), IsOk());
  ASSERT_THAT(table_->Put("x", {{"u", 1}, {"v", 5}}), IsOk());
  const auto changed = table_->Select().Where(Column("n") >= 0).InBatches(2).Update({{"v", 5}});  // refused for k7
  EXPECT_THAT(changed.status(), StatusIs(absl::StatusCode::kAlreadyExists, AllOf(StartsWith("after 6 rows: "), HasSubstr("'v'"))));
  EXPECT_THAT(table_->Select().Where(Column("v") == 5 && Column("n") >= 0).Count(), IsOkAndHolds(6u));
}

// The rows have many entries, so that few of them are more than one step takes; HAKO_TEST_FULL=1 has 600,000 rows.
TEST_F(StatementTest, MoreThanOneStepTakesIsRefusedAndMadeInBatches) {
  if (kSlowdown != 1) GTEST_SKIP() << "more than a million entries";
  const int num_rows = FullSize() ? 600'000 : 12, num_words = FullSize() ? 0 : 90'000;
  int word = 0;
  ASSERT_THAT(table_->CreateIndex({.columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (int i = 0; i < num_rows; ++i) {
    std::string text;
    for (int k = 0; k < num_words; ++k) text += std::to_string(word++) + " ";
    ASSERT_THAT(table_->Put("k" + std::to_string(1'000'000 + i), {{"n", i}, {"t", text}}), IsOk());
  }
  const std::uint64_t num_key_blocks = (static_cast<std::uint64_t>(num_rows) + table::kKeysOfBlock - 1) / table::kKeysOfBlock;
  const std::uint64_t records = static_cast<std::uint64_t>(num_rows) * static_cast<std::uint64_t>(num_words + 2) + num_key_blocks;
  ASSERT_GT(records, table::ChangeSet::kRecordsMax);
  EXPECT_THAT(Try("delete where n >= 0").status(),
              StatusIs(absl::StatusCode::kOutOfRange,
                       AllOf(HasSubstr(std::to_string(records)), HasSubstr("1048576"), HasSubstr("`limit`"), HasSubstr("`in batches`"))));
  EXPECT_THAT(table_->Count(), IsOkAndHolds(static_cast<std::uint64_t>(num_rows)));
  // One batch of 10,000 rows would be too large here, and is halved.
  if (FullSize()) EXPECT_THAT(Try("update set n = 0 in batches"), IsOkAndHolds(600'000u));
  EXPECT_THAT(Try("delete where n >= 0 in batches"), IsOkAndHolds(static_cast<std::uint64_t>(num_rows)));
  EXPECT_THAT(table_->Count(), IsOkAndHolds(0u));
}

// In one step, although they have more entries than a batch may have.
TEST_F(StatementTest, DeleteOfAllRowsHasNoLimit) {
  if (!FullSize()) GTEST_SKIP() << "HAKO_TEST_FULL=1";
  TableBatch batch;
  for (int i = 0; i < 1'100'000; ++i) {
    batch.Put("k" + std::to_string(i), {{"n", i}});
    if (batch.size() < 10'000) continue;
    ASSERT_THAT(table_->Write(batch), IsOk());
    batch.Clear();
  }
  EXPECT_THAT(Try("delete"), IsOkAndHolds(1'100'000u));
  EXPECT_THAT(table_->Count(), IsOkAndHolds(0u));
}

}  // namespace
}  // namespace hako
