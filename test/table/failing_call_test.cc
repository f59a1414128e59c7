// A call that fails changes nothing: neither rows nor columns, indices, the number of rows, or the files.
//
// Calls that are refused: each with columns that no row has yet. Calls that would succeed: each call that
// they make of their database, and each allocation, fails in turn, once or from then on.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/allocation_counter.h"
#include "support/crash_states.h"
#include "support/hooked_store.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "table/naive_rows.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Call = std::function<Status(TableDBM&)>;
struct NamedCall {
  std::string name;
  Call make;
};

// All that a table shows.
std::string PictureOf(TableDBM& table) {
  std::string text;
  for (const ColumnInfo& column : table.Columns())
    absl::StrAppend(&text, "column ", column.name, " ", ToAbsl(NameOf(column.type)), column.not_null ? " not null" : "", "\n");
  for (const IndexInfo& info : table.Indices())
    absl::StrAppend(&text, "index ", info.options.name, info.is_ready ? "" : " not ready", info.options.unique ? " unique" : "", "\n");
  const NaiveRows rows(table);
  for (const auto& [key, row] : rows.rows()) {
    absl::StrAppend(&text, "row ", key);
    for (const auto& [name, value] : row) absl::StrAppend(&text, " ", name, "=", value);
    text += "\n";
  }
  const auto count = table.Count();
  absl::StrAppend(&text, "count ", count.ok() ? absl::StrCat(*count) : "unknown", "\n");
  return text;
}

// All records of its database.
std::string RecordsOf(internal::AnyDatabase& store) {
  std::string text;
  const auto cursor = store.MakeCursor();
  for (cursor->Jump(""); cursor->Valid(); cursor->Next()) absl::StrAppend(&text, ToAbsl(cursor->key()), "=", ToAbsl(cursor->value()), "\n");
  EXPECT_THAT(cursor->status(), IsOk());
  return text;
}

// A table in memory with a row of each kind, rules and indices.
struct Fixture {
  explicit Fixture(const TableOptions& options = {.columns = {{"id", {.type = ColumnType::kInt64}},
                                                              {"must", {.type = ColumnType::kString, .not_null = true}},
                                                              {"free", {}},
                                                              {"twice", {}},
                                                              {"t", {}},
                                                              {"u", {}}}}) {
    auto hooked = HookedStore<>::InMemory(hook);
    store = hooked.get();
    auto opened = TableDBM::Open(std::move(hooked), options);
    EXPECT_THAT(opened, IsOk());
    table = *std::move(opened);
    EXPECT_THAT(table->CreateIndex({.name = "unique", .columns = {{"u"}}, .unique = true}), IsOk());
    EXPECT_THAT(table->CreateIndex({.name = "words", .columns = {{"t", IndexKind::kToken}}, .where = "free is null"}), IsOk());
    for (int i = 0; i < 9; ++i) {
      const std::string number = std::to_string(i);
      EXPECT_THAT(table->Put("k" + number, {{"id", i}, {"must", "m"}, {"twice", "x"}, {"u", "u" + number}, {"t", "word" + number}}),
                  IsOk());
    }
    EXPECT_THAT(table->Put("text", {{"must", "m"}, {"free", "text"}, {"twice", "y"}}), IsOk());
  }

  const std::shared_ptr<StoreHook> hook = std::make_shared<StoreHook>();
  HookedStore<>* store;
  std::unique_ptr<TableDBM> table;
};

const std::string kLong(5000, 'x'), kLongName(300, 'n');

Status WriteOf(TableDBM& table, const std::function<void(TableBatch&)>& fill) {
  TableBatch batch;
  fill(batch);
  return table.Write(batch);
}

const std::vector<NamedCall> kRefused = {
    {"update of no row",
     [](TableDBM& t) {
       return t.Update("absent", {{"new", 1}});
     }},
    {"put keep of a row",
     [](TableDBM& t) {
       return t.PutKeep("k1", {{"must", "m"}, {"new", 1}});
     }},
    {"put of another type",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"id", "text"}});
     }},
    {"put without a value",
     [](TableDBM& t) {
       return t.Put("k1", {{"new", 1}});
     }},
    {"put of a taken value",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"u", "u2"}});
     }},
    {"put of NaN",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", std::numeric_limits<double>::quiet_NaN()}});
     }},
    {"put of a column named key",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"key", 1}});
     }},
    {"put of a column without a name",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"", 1}});
     }},
    {"put of a long name",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {kLongName, 1}});
     }},
    {"put of a column twice",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"new", 2}});
     }},
    {"put of a long key",
     [](TableDBM& t) {
       return t.Put(kLong, {{"must", "m"}, {"new", 1}});
     }},
    {"put of a long value in an index",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"u", kLong}});
     }},
    {"append of a taken value",
     [](TableDBM& t) {
       return t.Append("new row", {{"must", "m"}, {"new", 1}, {"u", "u2"}});
     }},
    {"append without a value",
     [](TableDBM& t) {
       return t.Append("new row", {{"new", 1}});
     }},
    {"removal of no row", [](TableDBM& t) { return t.Remove("absent"); }},
    {"batch with a taken value",
     [](TableDBM& t) {
       return WriteOf(t, [](TableBatch& batch) {
         batch.Put("k1", {{"must", "m"}, {"new", 1}});
         batch.Remove("k2");
         batch.Put("another", {{"must", "m"}, {"newer", 1}, {"u", "u3"}});
       });
     }},
    {"batch with a removal of no row",
     [](TableDBM& t) {
       return WriteOf(t, [](TableBatch& batch) {
         batch.Put("another", {{"must", "m"}, {"new", 1}});
         batch.Remove("absent");
       });
     }},
    {"update by query to one value",
     [](TableDBM& t) {
       return t.Select().Where(Key() < "k4").Update({{"u", "one"}, {"new", 1}}).status();
     }},
    {"update by query to another type",
     [](TableDBM& t) {
       return t.Select().Update({{"new", 1}, {"id", "text"}}).status();
     }},
    {"update by query that removes a value",
     [](TableDBM& t) {
       return t.Select().Update({{"new", 1}, {"must", {}}}).status();
     }},
    {"update by a malformed query",
     [](TableDBM& t) {
       return t.Select().Where(Column("t").Matches("(")).Update({{"new", 1}}).status();
     }},
    {"unique column with a value twice",
     [](TableDBM& t) { return t.SetColumn("twice", {.type = ColumnType::kString, .not_null = true, .unique = true}); }},
    {"column of another type", [](TableDBM& t) { return t.SetColumn("free", {.type = ColumnType::kInt64, .unique = true}); }},
    {"column without values", [](TableDBM& t) { return t.SetColumn("id", {.type = ColumnType::kInt64, .not_null = true}); }},
    {"new column without values", [](TableDBM& t) { return t.SetColumn("new", {.not_null = true, .unique = true}); }},
    {"default of another type", [](TableDBM& t) { return t.SetColumn("new", {.type = ColumnType::kInt64, .default_value = "text"}); }},
    {"default of another type of a column",
     [](TableDBM& t) { return t.SetColumn("free", {.type = ColumnType::kInt64, .default_value = "text"}); }},
    {"rules of the key", [](TableDBM& t) { return t.SetColumn("key", {}); }},
    {"unique index with a value twice",
     [](TableDBM& t) { return t.CreateIndex({.columns = {{"twice"}}, .unique = true, .covering = {"new"}, .where = "newer is null"}); }},
    {"index with a malformed condition", [](TableDBM& t) { return t.CreateIndex({.columns = {{"new"}}, .where = "("}); }},
    {"index with a malformed pattern", [](TableDBM& t) { return t.CreateIndex({.columns = {{"new"}}, .where = "t matches '('"}); }},
    {"index of a name in use", [](TableDBM& t) { return t.CreateIndex({.name = "words", .columns = {{"new"}}}); }},
    {"index of no column", [](TableDBM& t) { return t.CreateIndex({.covering = {"new"}}); }},
    {"unique index of words",
     [](TableDBM& t) {
       return t.CreateIndex({.columns = {{"new", IndexKind::kToken}}, .unique = true});
     }},
    {"ordered index with positions", [](TableDBM& t) { return t.CreateIndex({.columns = {{"new"}}, .positions = true}); }},
    {"index of no q",
     [](TableDBM& t) {
       return t.CreateIndex({.columns = {{"new", IndexKind::kQGram}}, .q = 0});
     }},
    {"index of a column named key",
     [](TableDBM& t) {
       return t.CreateIndex({.columns = {{"new"}, {"key"}}});
     }},
    {"removal of no index", [](TableDBM& t) { return t.DropIndex("absent"); }}};

TEST(FailingCallTest, RefusedCallsChangeNothing) {
  Fixture fixture;
  TableDBM& table = *fixture.table;
  const std::string picture = PictureOf(table), records = RecordsOf(*fixture.store);
  for (const NamedCall& call : kRefused) {
    const Status status = call.make(table);
    EXPECT_FALSE(status.ok()) << call.name;
    EXPECT_EQ(PictureOf(table), picture) << call.name << ": " << status;
    EXPECT_EQ(RecordsOf(*fixture.store), records) << call.name << ": " << status;
  }
  EXPECT_THAT(table.FindColumn("new").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table.Verify(), IsOk());
  // A later column gets the number that they have not used up.
  ASSERT_THAT(table.Put("k1", {{"must", "m"}, {"later", 1}}), IsOk());
  EXPECT_EQ(static_cast<int>(*table.FindColumn("later")), 7);
  EXPECT_THAT(table.Verify(), IsOk());
}

TEST(FailingCallTest, UpdatesOfNoRowUseUpNoColumn) {
  const auto table = *TableDBM::OpenInMemory();
  for (std::size_t i = 0; i < TableLimits::kColumns + 10; ++i)
    ASSERT_THAT(table->Update("absent", {{"c" + std::to_string(i), 1}}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table->Select().Where(Column("a") == 1).Update({{"b", 1}}), IsOkAndHolds(0u));
  EXPECT_THAT(table->Columns(), IsEmpty());
  EXPECT_THAT(table->Put("k", {{"a", 1}}), IsOk());
}

TEST(FailingCallTest, ClosedSchemaStaysClosed) {
  Fixture fixture({.columns = {{"must", {}}, {"id", {}}, {"twice", {}}, {"t", {}}, {"u", {}}, {"free", {}}}, .closed_schema = true});
  TableDBM& table = *fixture.table;
  const std::string picture = PictureOf(table), records = RecordsOf(*fixture.store);
  const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("takes no others"));
  EXPECT_THAT(table.CreateIndex({.columns = {{"new"}}}), is_refused);
  EXPECT_THAT(table.CreateIndex({.columns = {{"id"}}, .covering = {"new"}}), is_refused);
  EXPECT_THAT(table.CreateIndex({.columns = {{"id"}}, .where = "new is null"}), is_refused);
  EXPECT_THAT(table.CreateIndex({.columns = {{"new"}}, .where = "("}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(table.Put("k", {{"new", 1}}), is_refused);
  EXPECT_THAT(table.Put("k", {{"new", {}}}), is_refused);
  EXPECT_EQ(PictureOf(table), picture);
  EXPECT_EQ(RecordsOf(*fixture.store), records);
  EXPECT_THAT(table.SetColumn("new", {}), IsOk());
  EXPECT_THAT(table.Put("k", {{"new", 1}}), IsOk());
  EXPECT_THAT(table.Verify(), IsOk());
}

const std::vector<NamedCall> kSucceeding = {
    {"put",
     [](TableDBM& t) {
       return t.Put("k1", {{"must", "m"}, {"new", 1}, {"u", "one"}, {"t", "other words"}});
     }},
    {"append",
     [](TableDBM& t) {
       return t.Append("another", {{"must", "m"}, {"new", 1}, {"newer", 2}});
     }},
    {"batch",
     [](TableDBM& t) {
       return WriteOf(t, [](TableBatch& batch) {
         batch.Update("k1", {{"u", "u2"}, {"new", 2}});
         batch.Update("k2", {{"u", "u1"}});
         batch.Remove("k3");
       });
     }},
    {"update by query",
     [](TableDBM& t) {
       return t.Select().Where(Column("id") > 2).Update({{"new", 1}, {"t", "x"}}).status();
     }},
    {"removal by query", [](TableDBM& t) { return t.Select().Where(Column("id") > 2).Remove().status(); }},
    {"rules of a column", [](TableDBM& t) { return t.SetColumn("t", {.type = ColumnType::kString, .unique = true}); }},
    {"rules of a new column",
     [](TableDBM& t) { return t.SetColumn("new", {.type = ColumnType::kInt64, .unique = true, .default_value = "7"}); }},
    {"index",
     [](TableDBM& t) {
       return t.CreateIndex({.columns = {{"id", IndexKind::kNumeric}}, .covering = {"u", "new"}});
     }},
    {"unique index", [](TableDBM& t) { return t.CreateIndex({.columns = {{"t"}}, .unique = true, .where = "new is null"}); }},
    {"index of words",
     [](TableDBM& t) {
       return t.CreateIndex({.columns = {{"t", IndexKind::kQGram}}, .positions = true});
     }},
    {"removal of an index", [](TableDBM& t) { return t.DropIndex("words"); }},
    {"clear", [](TableDBM& t) { return t.Clear(); }}};

// What a call leaves after `failures` of it: all as before, or as after the call.
void ExpectAllOrNothing(Fixture& fixture, const Status& status, const std::string& picture, const std::string& records) {
  TableDBM& table = *fixture.table;
  if (!status.ok()) {
    EXPECT_EQ(PictureOf(table), picture) << status;
    EXPECT_THAT(table.DropIndex("absent"), StatusIs(absl::StatusCode::kNotFound));  // removes what a failed step has left
    EXPECT_EQ(RecordsOf(*fixture.store), records) << status;
  }
  EXPECT_THAT(table.Verify(), IsOk());
  EXPECT_EQ(NaiveRows(table).CountWrongAnswers(100), 0);
  EXPECT_THAT(table.Put("k5", {{"must", "m"}, {"after", 1}, {"u", "after"}}), IsOk());
  EXPECT_THAT(table.Verify(), IsOk());
}

TEST(FailingCallTest, EachCallOfTheDatabaseFails) {
  std::uint64_t failures = 0;
  for (const NamedCall& call : kSucceeding) {
    for (const absl::StatusCode code : {absl::StatusCode::kResourceExhausted, absl::StatusCode::kDataLoss}) {
      for (const bool forever : {false, true}) {
        for (int number = 0;; ++number) {
          SCOPED_TRACE(absl::StrCat(call.name, ": call ", number, forever ? " and all after it" : "", " fails"));
          Fixture fixture;
          const std::string picture = PictureOf(*fixture.table), records = RecordsOf(*fixture.store);
          int calls = 0;
          fixture.hook->before = [&](StoreHook::Call) {
            const bool fails = calls == number || (forever && calls > number);
            ++calls;
            return fails ? Status(code, "injected") : absl::OkStatus();
          };
          const Status status = call.make(*fixture.table);
          fixture.hook->before = nullptr;
          if (calls > number) {
            ++failures;
            EXPECT_TRUE(status.ok() || status.code() == code) << status;
          } else {
            ASSERT_THAT(status, IsOk());
          }
          ExpectAllOrNothing(fixture, status, picture, records);
          if (calls <= number || testing::Test::HasFailure()) break;
        }
      }
    }
  }
  ReportFailures(failures);
}

TEST(FailingCallTest, EachAllocationFails) {
  std::uint64_t failures = 0;
  for (const NamedCall& call : kSucceeding) {
    for (const auto which : {FailingAllocation::Which::kOnce, FailingAllocation::Which::kFromThenOn}) {
      const std::uint64_t stride = kSlowdown > 1 ? 9 : which == FailingAllocation::Which::kOnce ? 1 : 3;
      for (std::uint64_t number = 1;; number += stride) {
        SCOPED_TRACE(absl::StrCat(call.name, ": allocation ", number, " fails"));
        Fixture fixture;
        const std::string picture = PictureOf(*fixture.table), records = RecordsOf(*fixture.store);
        Status status;
        bool has_failed = false;
        {
          const FailingAllocation failing(number, which, FailingAllocation::Whose::kThisThread);
          status = CatchNoMemory([&] { return call.make(*fixture.table); });  // the options of the call take memory, too
          has_failed = failing.HasFailed();
        }
        failures += has_failed ? 1 : 0;
        ASSERT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        ExpectAllOrNothing(fixture, status, picture, records);
        if (!has_failed || testing::Test::HasFailure()) break;
      }
    }
  }
  ReportFailures(failures);
}

// ---- opening ----

const TableOptions kNew = {.columns = {{"a", {.type = ColumnType::kInt64, .not_null = true, .unique = true}}, {"b", {.default_value = 1}}},
                           .closed_schema = true};

TEST(FailingCallTest, OpenWithMalformedColumnsLeavesNoFile) {
  const std::vector<std::vector<std::pair<std::string, ColumnOptions>>> malformed = {
      {{"a", {}}, {"key", {}}},
      {{"a", {.unique = true}}, {"b", {.type = ColumnType::kInt64, .default_value = "text"}}},
      {{"a", {}}, {"", {}}},
      {{"a", {}}, {kLongName, {}}},
      {{"a", {}}, {"\xff", {}}},
      {{"a", {}}, {"b", {}}, {"a", {.not_null = true}}},
      std::vector<std::pair<std::string, ColumnOptions>>(65, {"a", {.unique = true}})};
  for (const bool is_positional : {false, true}) {
    for (const auto& columns : malformed) {
      const TempDir dir;
      const std::string path = dir.File("t.hktb");
      TableOptions options = kNew;
      options.positional = is_positional;
      options.columns = columns;
      EXPECT_FALSE(TableDBM::Open(path, options).ok());
      EXPECT_FALSE(TableDBM::OpenInMemory(options).ok());
      EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
      options.columns = kNew.columns;
      ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, options));
      EXPECT_EQ(table->Columns().size(), 2u);
      EXPECT_TRUE(table->Columns()[0].not_null);
      EXPECT_EQ(table->Indices().size(), 1u);
      EXPECT_THAT(table->Put("k", {{"a", 1}, {"c", 1}}), StatusIs(absl::StatusCode::kInvalidArgument));
      EXPECT_THAT(table->Put("k", {{"a", 1}}), IsOk());
      EXPECT_THAT(table->Put("l", {{"a", 1}}), StatusIs(absl::StatusCode::kAlreadyExists));
      EXPECT_THAT(table->Verify(), IsOk());
    }
  }
}

// Each call that Open makes of the database fails: the next Open has all columns, rows and indices.
TEST(FailingCallTest, OpenThatFailsKeepsTheTable) {
  for (const bool is_new : {true, false}) {
    for (int number = 0;; ++number) {
      SCOPED_TRACE(absl::StrCat(is_new ? "new table" : "table", ", call ", number));
      const TempDir dir;
      const std::string path = dir.File("t.hktb");
      std::string picture;
      if (!is_new) {
        ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, kNew));
        for (int i = 0; i < 5; ++i) ASSERT_THAT(table->Put("k" + std::to_string(i), {{"a", i}}), IsOk());
        picture = PictureOf(*table);
        ASSERT_THAT(table->Close(), IsOk());
      }
      const auto hook = std::make_shared<StoreHook>();
      int calls = 0;
      hook->before = [&](StoreHook::Call) { return calls++ == number ? absl::ResourceExhaustedError("injected") : absl::OkStatus(); };
      {
        ASSERT_OK_AND_ASSIGN(auto tree, TreeDBM<>::Open(path, TreeOptions{.type = kTableType}));
        auto store = std::make_unique<HookedStore<TreeDBM<>>>(std::move(tree), hook);
        const auto opened = TableDBM::Open(std::move(store), kNew);
        hook->before = nullptr;
        EXPECT_EQ(opened.ok(), calls <= number) << opened.status();
      }
      ASSERT_OK_AND_ASSIGN(const auto table, TableDBM::Open(path, kNew));
      EXPECT_EQ(table->Columns().size(), 2u);
      EXPECT_EQ(table->Indices().size(), 1u);
      if (!is_new) EXPECT_EQ(PictureOf(*table), picture);
      EXPECT_THAT(table->Put("k", {{"a", 100}}), IsOk());
      EXPECT_THAT(table->Verify(), IsOk());
      if (calls <= number || testing::Test::HasFailure()) break;
    }
  }
}

}  // namespace
}  // namespace hako
