// Indices of columns that no row has yet: their rows are found as those of any other, by writers of each
// kind, before and after the table is opened again; and the names that indices have by default.
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "table/naive_rows.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> ColumnsOf(const TableDBM& table) {
  std::vector<std::string> names;
  for (const ColumnInfo& column : table.Columns()) names.push_back(column.name);
  return names;
}

const std::vector<IndexOptions> kIndices = {{.columns = {{"n", IndexKind::kNumeric}}, .where = "status = 'open'"},
                                            {.columns = {{"s"}}, .where = "s is not null"},
                                            {.columns = {{"s"}}, .where = "gone is null"},
                                            {.columns = {{"t", IndexKind::kToken}}, .where = "status = 'open'"},
                                            {.columns = {{"t", IndexKind::kQGram}}, .where = "gone is null"},
                                            {.columns = {{"u"}}, .unique = true, .where = "status = 'open'"},
                                            {.columns = {{"u"}, {"n", IndexKind::kNumeric}}, .unique = true, .covering = {"s", "gone"}}};

void FillInEachWay(TableDBM& table) {
  for (int i = 0; i < 120; ++i) {
    const std::string text = std::to_string(i), key = "k" + text, t = "word" + std::to_string(i % 9) + " tail" + std::to_string(i % 4);
    const Value s = i % 3 == 0 ? Value() : Value("s"), status = i % 2 == 0 ? Value("open") : Value("done");
    const std::string u = "u" + text;
    std::vector<Cell> cells = {{"n", i % 7}, {"t", t}, {"u", u}, {"s", s}, {"status", status}};
    if (i % 5 == 0) cells.push_back({"gone", 1});
    TableBatch batch;
    switch (i % 4) {
      case 0:
        ASSERT_THAT(table.Put(key, cells), IsOk());
        break;
      case 1:
        batch.Put(key, cells);
        ASSERT_THAT(table.Write(batch), IsOk());
        break;
      case 2:
        ASSERT_THAT(table.PutKeep(key, {}), IsOk());
        ASSERT_THAT(table.Select().Where(Key() == key).Update(cells), IsOkAndHolds(1u));
        break;
      default:
        ASSERT_THAT(table.Append(key, cells), IsOk());
    }
  }
}

TEST(IndexColumnsTest, IndexMadeBeforeItsColumnsHasTheirRows) {
  for (const bool closes_schema : {false, true}) {
    SCOPED_TRACE(closes_schema);
    const TempDir dir;
    const std::string path = dir.File("t.hktb");
    TableOptions options;
    if (closes_schema) {
      options.closed_schema = true;
      for (const char* name : {"n", "s", "t", "u", "status", "gone"}) options.columns.push_back({name, {}});
    }
    {
      ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, options));
      for (IndexOptions index : kIndices) {
        index.name = "index" + std::to_string(table->Indices().size());
        ASSERT_THAT(table->CreateIndex(index), IsOk());
      }
      FillInEachWay(*table);
      ASSERT_THAT(table->Verify(), IsOk());
      ASSERT_EQ(NaiveRows(*table).CountWrongAnswers(100), 0);
      EXPECT_THAT(table->Put("other", {{"u", "u4"}, {"status", "open"}}), StatusIs(absl::StatusCode::kAlreadyExists));
      EXPECT_THAT(table->Put("other", {{"u", "u4"}, {"status", "done"}}), IsOk());
      EXPECT_THAT(table->Select().Where(Column("u") == "u4" && Column("status") == "open").Explain(), IsOkAndHolds(HasSubstr("index5")));
    }
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, options));
    EXPECT_THAT(table->Verify(), IsOk());
    EXPECT_EQ(NaiveRows(*table).CountWrongAnswers(100), 0);
  }
}

TEST(IndexColumnsTest, ColumnOfWhereIsAColumnOfTheTable) {
  const auto table = *TableDBM::OpenInMemory({.columns = {{"a", {}}}, .closed_schema = true});
  EXPECT_THAT(table->CreateIndex({.columns = {{"a"}}, .where = "mispelt = 1"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'mispelt'")));
  const auto open = *TableDBM::OpenInMemory();
  ASSERT_THAT(
      open->CreateIndex({.columns = {{"a"}}, .covering = {"b"}, .where = "c = 1 and not (d is null or \"e e\" > 'x') and key > 'k'"}),
      IsOk());
  EXPECT_THAT(ColumnsOf(*open), ElementsAre("a", "b", "c", "d", "e e"));
}

// A condition that is tested on rows that appear later, as that of an update by query.
TEST(IndexColumnsTest, QueryOfAnAbsentColumnSeesRowsThatGetIt) {
  const auto table = *TableDBM::OpenInMemory();
  for (int i = 0; i < 600; ++i) ASSERT_THAT(table->Put("k" + std::to_string(1000 + i), {{"n", i}}), IsOk());
  int num_shown = 0;
  ASSERT_THAT(table->Select().Where(Column("late").IsNull()).Each([&](std::string_view key, const RowView&) {
    if (num_shown++ == 0) {
      EXPECT_EQ(key, "k1000");
      std::thread([&table] { EXPECT_THAT(table->Update("k1599", {{"late", 1}}), IsOk()); }).join();
    }
    EXPECT_NE(key, "k1599");
    return true;
  }),
              IsOk());
  EXPECT_EQ(num_shown, 599);
}

TEST(IndexColumnsTest, DefaultNamesOfDifferentIndicesDiffer) {
  const auto table = *TableDBM::OpenInMemory();
  const std::vector<IndexOptions> indices = {{.columns = {{"a"}}},
                                             {.columns = {{"a", IndexKind::kNumeric}}},
                                             {.columns = {{"a", IndexKind::kToken}}},
                                             {.columns = {{"a", IndexKind::kQGram}}},
                                             {.columns = {{"a", IndexKind::kQGram}}, .q = 2},
                                             {.columns = {{"a"}}, .where = "a > 1"},
                                             {.columns = {{"a"}}, .where = "a > 2"},
                                             {.columns = {{"a"}, {"b"}}},
                                             {.columns = {{"a,b"}}},
                                             {.columns = {{"a", IndexKind::kNumeric}, {"b"}}},
                                             {.columns = {{"a", IndexKind::kNumeric}, {"b", IndexKind::kNumeric}}},
                                             {.columns = {{"a"}, {"b", IndexKind::kNumeric}}},
                                             {.columns = {{"a:numeric"}}},
                                             {.columns = {{"\"a,b\""}}}};
  for (const IndexOptions& index : indices) EXPECT_THAT(table->CreateIndex(index), IsOk());
  EXPECT_EQ(table->Indices()[0].options.name, "a");
  EXPECT_EQ(table->Indices()[1].options.name, "a:numeric");
  EXPECT_THAT(table->CreateIndex({.columns = {{"a"}}, .unique = true}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("give this one another name")));
  std::vector<IndexColumn> many;
  for (int i = 0; i < 16; ++i) many.push_back({std::string(250, static_cast<char>('a' + i))});
  EXPECT_THAT(table->CreateIndex({.columns = many}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("needs a name")));
  EXPECT_THAT(table->CreateIndex({.name = "many", .columns = many}), IsOk());
  EXPECT_THAT(table->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
