// Rows of a table: what is put is found, in each of the ways; limits; types; and which files are
// tables.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<TableDBM> OpenMemory(const TableOptions& options = {}) {
  auto table = TableDBM::OpenInMemory(options);
  EXPECT_THAT(table, IsOk());
  return *std::move(table);
}

// A row as text: "name=value name=value".
std::string TextOf(const RowView& row) {
  std::string text;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i > 0) text += ' ';
    text += std::string(row.name(i)) + "=" + row.value(i).ToText();
  }
  return text;
}
std::string TextOf(TableDBM& table, std::string_view key) {
  const auto row = table.Get(key);
  return row.ok() ? TextOf(row->view()) : std::string(ToStd(row.status().ToString()));
}

TEST(TableTest, GetsWhatWasPut) {
  const auto table = OpenMemory();
  ASSERT_THAT(table->Put("ada", {{"name", "Ada"}, {"age", 36}, {"height", 1.65}, {"alive", false}, {"note", std::string_view("\0x", 2)}}),
              IsOk());
  ASSERT_OK_AND_ASSIGN(const Row row, table->Get("ada"));
  EXPECT_EQ(row["name"], Value("Ada"));
  EXPECT_EQ(row["age"], Value(36));
  EXPECT_EQ(row["height"], Value(1.65));
  EXPECT_EQ(row["alive"], Value(false));
  EXPECT_EQ(row["note"], Value(std::string_view("\0x", 2)));
  EXPECT_TRUE(row["absent"].is_null());
  EXPECT_EQ(row.size(), 5u);
  std::string seen;
  ASSERT_THAT(table->Get("ada", [&seen](const RowView& view) { seen = view["name"].ToText(); }), IsOk());
  EXPECT_EQ(seen, "Ada");
  EXPECT_THAT(table->Get("bob").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table->Contains("ada"), IsOkAndHolds(true));
  EXPECT_THAT(table->Contains("bob"), IsOkAndHolds(false));
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, KeepsIntegersOfAllSizes) {
  const auto table = OpenMemory();
  std::vector<std::int64_t> numbers = {0, INT64_MIN, INT64_MAX};
  for (int shift = 0; shift < 63; ++shift) {
    for (const std::int64_t near : {-1, 0, 1}) {
      numbers.push_back((std::int64_t{1} << shift) + near);
      numbers.push_back(-(std::int64_t{1} << shift) + near);
    }
  }
  for (const std::int64_t number : numbers) {
    ASSERT_THAT(table->Put("n", {{"n", number}}), IsOk());
    ASSERT_OK_AND_ASSIGN(const Row row, table->Get("n"));
    ASSERT_EQ(row["n"], Value(number));
  }
}

TEST(TableTest, PutKeepUpdateAppendAndRemove) {
  const auto table = OpenMemory();
  EXPECT_THAT(table->Update("k", {{"a", 1}}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table->PutKeep("k", {{"a", 1}, {"b", "x"}}), IsOk());
  EXPECT_THAT(table->PutKeep("k", {{"a", 2}}), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(table->Update("k", {{"c", 3}, {"a", 7}}), IsOk());
  EXPECT_EQ(TextOf(*table, "k"), "a=7 b=x c=3");
  EXPECT_THAT(table->Append("k", {{"b", "y"}, {"a", 5}, {"d", "new"}}), IsOk());
  EXPECT_EQ(TextOf(*table, "k"), "a=75 b=xy c=3 d=new");
  EXPECT_THAT(table->Update("k", {{"b", {}}}), IsOk());
  EXPECT_EQ(TextOf(*table, "k"), "a=75 c=3 d=new");
  EXPECT_THAT(table->Put("k", {{"b", "only"}}), IsOk());
  EXPECT_EQ(TextOf(*table, "k"), "b=only");
  EXPECT_THAT(table->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Remove("k"), IsOk());
  EXPECT_THAT(table->Remove("k"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table->Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Append("k", {{"b", "y"}}), IsOk());
  EXPECT_EQ(TextOf(*table, "k"), "b=y");
  EXPECT_THAT(table->Put("", {}), IsOk());
  EXPECT_EQ(TextOf(*table, ""), "");
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, BatchMakesAllChangesOrNone) {
  const auto table = OpenMemory();
  ASSERT_THAT(table->CreateIndex({.name = {}, .columns = {{"email"}}, .unique = true}), IsOk());
  TableBatch batch;
  batch.Put("a", {{"email", "a@x"}});
  batch.Put("b", {{"email", "b@x"}, {"n", 1}});
  batch.Update("a", {{"n", 2}});
  ASSERT_THAT(table->Write(batch), IsOk());
  EXPECT_EQ(TextOf(*table, "a"), "email=a@x n=2");
  batch.Clear();  // they exchange their values
  batch.Update("a", {{"email", "b@x"}});
  batch.Update("b", {{"email", "a@x"}});
  ASSERT_THAT(table->Write(batch), IsOk());
  EXPECT_EQ(TextOf(*table, "a"), "email=b@x n=2");
  batch.Clear();
  batch.Put("c", {{"n", 3}});
  batch.Remove("nobody");
  EXPECT_THAT(table->Write(batch), StatusIs(absl::StatusCode::kNotFound, HasSubstr("'nobody'")));
  EXPECT_THAT(table->Contains("c"), IsOkAndHolds(false));
  batch.Clear();
  batch.Put("c", {{"email", "c@x"}});
  batch.Put("d", {{"email", "c@x"}});
  EXPECT_THAT(table->Write(batch), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'email'")));
  EXPECT_THAT(table->Count(), IsOkAndHolds(2u));
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, LimitsNameTheColumnAndChangeNothing) {
  const auto table = OpenMemory();
  const std::string long_name(TableLimits::kColumnName + 1, 'n');
  EXPECT_THAT(table->Put(std::string(TableLimits::kKeySize + 1, 'k'), {}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("primary key")));
  EXPECT_THAT(table->Get(std::string(5000, 'k')).status(), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(table->Put("k", {{long_name, 1}}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("nnnn")));
  EXPECT_THAT(table->Put("k", {{"", 1}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(table->Put("k", {{"\xff", 1}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  EXPECT_THAT(table->Put("k", {{"a", 1}, {"b", 1}, {"a", 2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a' is given twice")));
  EXPECT_THAT(table->Put("k", {{"big", std::string(TableLimits::kRowSize, 'v')}}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("'big'")));
  std::vector<std::string> names;
  for (std::size_t i = 0; i <= TableLimits::kColumnsOfRow; ++i) names.push_back("c" + std::to_string(i));
  std::vector<Cell> cells;
  for (const std::string& name : names) cells.push_back({name, 1});
  EXPECT_THAT(table->Put("k", cells), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("1001 columns")));
  cells.pop_back();
  EXPECT_THAT(table->Count(), IsOkAndHolds(0u));
  ASSERT_THAT(table->Put("k", cells), IsOk());
  EXPECT_THAT(table->Update("k", {{"one more", 1}}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("1001 columns")));
  ASSERT_OK_AND_ASSIGN(const Row row, table->Get("k"));
  EXPECT_EQ(row.size(), TableLimits::kColumnsOfRow);
  EXPECT_EQ(row["c999"], Value(1));
  ASSERT_THAT(table->CreateIndex({.name = "by text", .columns = {{"text"}}}), IsOk());
  EXPECT_THAT(table->Put("x", {{"text", std::string(TableLimits::kIndexedSize, 't')}}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("index by text")));
  EXPECT_THAT(table->Contains("x"), IsOkAndHolds(false));
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, RefusesAColumnNamedAsThePrimaryKey) {
  const auto table = OpenMemory();
  const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'key'"));
  ASSERT_THAT(table->Put("k", {{"a", 1}, {"KEY", 2}, {"keys", 3}}), IsOk());
  EXPECT_THAT(table->Put("k", {{"key", 1}}), is_refused);
  EXPECT_THAT(table->PutKeep("x", {{"key", 1}}), is_refused);
  EXPECT_THAT(table->Update("k", {{"a", 2}, {"key", 1}}), is_refused);
  EXPECT_THAT(table->Append("k", {{"key", 1}}), is_refused);
  EXPECT_THAT(table->Select().Update({{"key", 1}}), is_refused);
  TableBatch batch;
  batch.Put("y", {{"key", 1}});
  EXPECT_THAT(table->Write(batch), is_refused);
  EXPECT_THAT(table->SetColumn("key", {.type = ColumnType::kInt64}), is_refused);
  EXPECT_THAT(table->CreateIndex({.columns = {{"key"}}}), is_refused);
  EXPECT_THAT(table->CreateIndex({.columns = {{"a"}}, .covering = {"key"}}), is_refused);
  TableOptions options;
  options.columns = {{"key", {}}};
  EXPECT_THAT(TableDBM::OpenInMemory(options).status(), is_refused);
  EXPECT_EQ(TextOf(*table, "k"), "a=1 KEY=2 keys=3");
  EXPECT_THAT(table->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Indices(), testing::IsEmpty());
}

TEST(TableTest, OpensTableThatHasAColumnNamedAsThePrimaryKey) {
  const TempDir dir;
  const std::string path = dir.path() + "/t.hktb";
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    ASSERT_THAT(table->Put("k", {{"kez", 1}}), IsOk());
  }
  {  // as an earlier version may have stored it
    ASSERT_OK_AND_ASSIGN(const auto raw, AnyDBM::Open(path + "?raw"));
    ASSERT_THAT(raw->Set(std::string_view("\0c\0\1", 4), std::string_view("\0\0\3key", 6)), IsOk());
    ASSERT_THAT(raw->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
  EXPECT_EQ(TextOf(*table, "k"), "key=1");
  EXPECT_THAT(table->Select().Where(*ParseCondition("\"key\" = 1 and key = 'k'")).Keys(), IsOkAndHolds(ElementsAre("k")));
  EXPECT_THAT(table->Put("l", {{"key", 2}}), IsOk());
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, LimitOfColumnNamesIsKept) {
  const auto table = OpenMemory();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < TableLimits::kColumns; ++i) names.push_back("c" + std::to_string(i));
  for (std::size_t i = 0; i < names.size(); i += 512) {
    std::vector<Cell> cells;
    for (std::size_t k = i; k < i + 512; ++k) cells.push_back({names[k], static_cast<int>(k)});
    ASSERT_THAT(table->Put(std::to_string(i), cells), IsOk());
  }
  EXPECT_THAT(table->Put("k", {{"another", 1}}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("'another'")));
  ASSERT_OK_AND_ASSIGN(const Row row, table->Get("512"));
  EXPECT_EQ(row["c600"], Value(600));
  EXPECT_TRUE(row["c1"].is_null());
}

TEST(TableTest, SchemaConvertsOrRefuses) {
  TableOptions options;
  options.columns = {{"id", {.type = ColumnType::kInt64, .not_null = true}},
                     {"share", {.type = ColumnType::kDouble}},
                     {"on", {.type = ColumnType::kBool, .default_value = true}},
                     {"name", {.type = ColumnType::kString, .unique = true}}};
  options.closed_schema = true;
  const auto table = OpenMemory(options);
  ASSERT_THAT(table->Put("k", {{"id", "12"}, {"share", 1}, {"name", "n"}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const Row row, table->Get("k"));
  EXPECT_EQ(row["id"], Value(12));
  EXPECT_EQ(row["share"], Value(1.0));
  EXPECT_EQ(row["on"], Value(true));
  EXPECT_THAT(table->Put("x", {{"id", "12x"}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'id' has type int64")));
  EXPECT_THAT(table->Put("x", {{"name", "n2"}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'id' is not null")));
  EXPECT_THAT(table->Update("k", {{"id", {}}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'id' is not null")));
  EXPECT_THAT(table->Put("x", {{"id", 1}, {"name", "\xff"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'name' has type string")));
  EXPECT_THAT(table->Put("x", {{"id", 1}, {"name", "n"}}), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'name'")));
  EXPECT_THAT(table->Put("x", {{"id", 1}, {"other", 1}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'other'")));
  EXPECT_THAT(table->SetColumn("share", {.type = ColumnType::kInt64}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("row 'k'")));
  EXPECT_THAT(table->Update("k", {{"share", 0.5}}), IsOk());  // the type is as before
  EXPECT_THAT(table->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, NewRowsTakeDefaultsFromEachFunction) {
  TableOptions options;
  options.columns = {{"n", {.type = ColumnType::kInt64, .default_value = "7"}},
                     {"s", {.type = ColumnType::kString, .not_null = true, .default_value = "none"}},
                     {"t", {.default_value = "t"}}};
  const auto table = OpenMemory(options);
  ASSERT_THAT(table->Put("a", {{"t", "x"}}), IsOk());
  ASSERT_THAT(table->PutKeep("b", {{"t", "x"}}), IsOk());
  ASSERT_THAT(table->Append("c", {{"t", "x"}}), IsOk());
  TableBatch batch;
  batch.Append("d", {{"t", "x"}});
  batch.Append("e", {{"n", "1"}});
  batch.Append("e", {{"n", "2"}});
  ASSERT_THAT(table->Write(batch), IsOk());
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_EQ(TextOf(*table, key), "n=7 s=none t=x") << key;
  EXPECT_EQ(TextOf(*table, "e"), "n=12 s=none t=t");
  EXPECT_EQ(table->Get("e")->Get("n"), Value(12));
  ASSERT_THAT(table->Update("a", {{"n", {}}}), IsOk());
  ASSERT_THAT(table->Append("a", {{"t", "y"}}), IsOk());
  EXPECT_EQ(TextOf(*table, "a"), "s=none t=xy");  // of an old row, none
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, ReopensWithColumnsIndicesAndCount) {
  const TempDir dir;
  const std::string path = dir.path() + "/t.hktb";
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    ASSERT_THAT(table->SetColumn("age", {.type = ColumnType::kInt64}), IsOk());
    ASSERT_THAT(table->CreateIndex({.name = "old", .columns = {{"age"}}, .where = "age >= 60"}), IsOk());
    for (int i = 0; i < 100; ++i) ASSERT_THAT(table->Put(std::to_string(i), {{"age", i}}), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
    EXPECT_THAT(table->Put("late", {}), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
  EXPECT_THAT(table->Count(), IsOkAndHolds(100u));
  EXPECT_EQ(TextOf(*table, "42"), "age=42");
  ASSERT_EQ(table->Indices().size(), 1u);
  EXPECT_TRUE(table->Indices()[0].is_ready);
  EXPECT_EQ(table->Columns()[0].type, ColumnType::kInt64);
  EXPECT_THAT(table->Put("x", {{"age", "old"}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(table->Clear(), IsOk());
  EXPECT_THAT(table->Count(), IsOkAndHolds(0u));
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, TablesAndPlainTreesRefuseEachOther) {
  const TempDir dir;
  const std::string table_path = dir.path() + "/t.hktb", tree_path = dir.path() + "/t.hkt";
  { ASSERT_OK_AND_ASSIGN(const auto tree, TreeDBM<>::Open(tree_path)); }
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(table_path));
    ASSERT_THAT(table->Put("k", {{"a", 1}}), IsOk());
  }
  const auto bytes = [](const std::string& path) {
    std::string all;
    FILE* const file = std::fopen(path.c_str(), "rb");
    char part[4096];
    for (std::size_t size; (size = std::fread(part, 1, sizeof(part), file)) > 0;) all.append(part, size);
    std::fclose(file);
    return all;
  };
  const std::string table_bytes = bytes(table_path), tree_bytes = bytes(tree_path);
  EXPECT_THAT(TableDBM::Open(tree_path).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a plain tree, not a table")));
  EXPECT_THAT(TreeDBM<>::Open(table_path).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the file is a table")));
  EXPECT_THAT(AnyDBM::Open(table_path).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the file is a table")));
  EXPECT_EQ(bytes(table_path), table_bytes);
  EXPECT_EQ(bytes(tree_path), tree_bytes);
  ASSERT_OK_AND_ASSIGN(const auto raw, AnyDBM::Open(table_path + "?raw,mode=read"));
  EXPECT_THAT(raw->Contains("\1k"), IsOkAndHolds(true));
}

// Records of the catalogue that are changed in the tree below the table.
TEST(TableTest, DamagedCatalogueIsDataLoss) {
  const TempDir dir;
  const std::string path = dir.path() + "/t.hktb";
  const auto change = [&path](std::string_view key, std::optional<std::string_view> value) {
    ASSERT_OK_AND_ASSIGN(const auto raw, AnyDBM::Open(path + "?raw"));
    ASSERT_THAT(value ? raw->Set(key, *value) : raw->Remove(key), IsOk());
    ASSERT_THAT(raw->Close(), IsOk());
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    ASSERT_THAT(table->Put("k", {{"a", 1}}), IsOk());
  }
  change({"\0n", 2}, std::string_view("\0\0\0\0\0\0\0\7", 8));  // the number of rows
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    EXPECT_THAT(table->Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the table has 1 rows, and 7 are noted")));
  }
  change({"\1x", 2}, std::string_view("\x10\1\x63\2\1\5", 6));  // a row with column 99
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    EXPECT_THAT(table->Update("x", {{"a", 2}}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a column without a name")));
    EXPECT_THAT(table->Put("x", {{"a", 2}}), IsOk());
  }
  change({"\0c\0\1", 4}, std::string_view("\1\0\1a", 4));  // the type of a column whose values are integers
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    EXPECT_THAT(table->Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has a value of another type than column 'a'")));
  }
  change({"\0h", 2}, std::string_view("\1\0", 2));  // an earlier version
  EXPECT_THAT(TableDBM::Open(path).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("export its rows with the hako")));
  change({"\0h", 2}, std::nullopt);
  EXPECT_THAT(TableDBM::Open(path).status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("header of the table")));
}

TEST(TableTest, ReadOnlyTableRefusesChanges) {
  const TempDir dir;
  const std::string path = dir.path() + "/t.hktb";
  {
    ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path));
    ASSERT_THAT(table->Put("k", {{"a", 1}}), IsOk());
  }
  TableOptions options;
  options.file.mode = OpenMode::kReadOnly;
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, options));
  EXPECT_THAT(table->Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Put("k", {{"a", 2}}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table->Put("k", {{"new", 2}}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table->CreateIndex({.columns = {{"a"}}}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(TextOf(*table, "k"), "a=1");
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(TableTest, ClosedTableRefusesEachQuery) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(dir.path() + "/t.hktb"));
  ASSERT_THAT(table->Put("k", {{"a", 1}}), IsOk());
  EXPECT_THAT(table->Select().Count(), IsOkAndHolds(1u));
  ASSERT_THAT(table->Close(), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed"));
  EXPECT_THAT(table->Select().Count(), refused);
  EXPECT_THAT(table->Select().Limit(5).Count(), refused);
  EXPECT_THAT(table->Select().Where(Column("a") == 1).Count(), refused);
  EXPECT_THAT(table->Select().Keys(), refused);
  EXPECT_THAT(table->Select().Aggregate("a").status(), refused);
  EXPECT_THAT(table->Count(), refused);
}

TEST(TableTest, TableInMemoryRefusesWhatRequiresAFile) {
  const TempDir dir;
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("path"));
  EXPECT_THAT(TableDBM::OpenInMemory({.tree = {.durability = Durability::kPower}}), refused);
  EXPECT_THAT(TableDBM::OpenInMemory({.tree = {.log_archive = dir.path()}}), refused);
}

TEST(TableTest, ErrorsNameTheKindOfAValueAndTheIndexThatHasNoNameYet) {
  const auto table = OpenMemory();
  ASSERT_THAT(table->SetColumn("age", {.type = ColumnType::kInt64}), IsOk());
  EXPECT_THAT(table->Put("k", {{"age", 2.0}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("which the double 2 is not")));
  EXPECT_THAT(table->Put("k", {{"age", "two"}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("which 'two' is not")));
  EXPECT_THAT(table->CreateIndex({.columns = {{"text", IndexKind::kQGram}}, .q = 9}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("index text:qgram:9: q must be 1 to 8, and is 9")));
  EXPECT_THAT(table->CreateIndex({.columns = {{"age"}}, .where = "age >"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("index age where age >: position 6")));
}

// It would wait for its own query.
TEST(TableTest, VisitorCannotDropTheIndexThatShowsIt) {
  const auto table = OpenMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"a"}}}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"b"}}}), IsOk());
  ASSERT_THAT(table->Put("k", {{"a", 1}}), IsOk());
  Status own, inner, other;
  const auto drop = [&](std::string_view, const RowView&) {
    own = table->DropIndex("a");
    inner = table->Select().Where(Key() == "k").Each([&](std::string_view, const RowView&) {
      own = table->DropIndex("a");
      return false;
    });
    other = table->DropIndex("b");
    return false;
  };
  EXPECT_THAT(table->Select().Where(Column("a") == 1).Each(drop), IsOk());
  EXPECT_THAT(own, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("index a")));
  EXPECT_THAT(inner, IsOk());
  EXPECT_THAT(other, IsOk());
  EXPECT_THAT(table->DropIndex("a"), IsOk());
  EXPECT_TRUE(table->Indices().empty());
}

}  // namespace
}  // namespace hako
