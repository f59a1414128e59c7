// Transactions of tables: beside a model that asks each question again at the moment of the commit, with threads, and
// case by case.
#include "hako/table/table_transaction.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/key_space.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/table/table_dbm.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

struct ModelRow {
  std::optional<std::int64_t> n = {};
  std::optional<std::string> t = {}, u = {};  // u is unique
  bool operator==(const ModelRow&) const = default;
};
using Rows = std::map<std::string, ModelRow>;
using Writes = std::map<std::string, std::optional<ModelRow>>;

Rows Merged(Rows rows, const Writes& writes) {
  for (const auto& [key, row] : writes) {
    rows.erase(key);
    if (row) rows.emplace(key, *row);
  }
  return rows;
}

std::vector<Cell> CellsOf(const ModelRow& row) {
  return {{"n", row.n ? Value(*row.n) : Value()}, {"t", row.t ? Value(*row.t) : Value()}, {"u", row.u ? Value(*row.u) : Value()}};
}
ModelRow RowOf(const RowView& view) {
  ModelRow row;
  if (!view["n"].is_null()) row.n = view["n"].int_value();
  if (!view["t"].is_null()) row.t = view["t"].bytes();
  if (!view["u"].is_null()) row.u = view["u"].bytes();
  return row;
}

struct Baby {
  static auto Open(const std::string&) { return BabyDBM<>::Open({.page_size = 512}); }
};
struct Tree {
  static auto Open(const std::string& path) { return TreeDBM<>::Open(path, {.page_size = 512, .cache_bytes = 1 << 20}); }
};
struct AnyTree {
  static auto Open(const std::string& path) { return AnyDBM::Open(path + ".hkt?page_size=512"); }
};

constexpr int kTables = 2;

template <class Kind>
class TableTransactionTest : public testing::Test {
 protected:
  using Database = std::remove_reference_t<decltype(**Kind::Open(""))>;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db_, Kind::Open(dir_.File("db")));
    for (int i = 0; i < kTables; ++i) {
      ASSERT_OK_AND_ASSIGN(tables_[i], TableDBM::Open(KeySpace(*db_, i == 0 ? "people" : "orders")));
      ASSERT_THAT(tables_[i]->SetColumn("u", {.unique = true}), IsOk());
      ASSERT_THAT(tables_[i]->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
      ASSERT_THAT(tables_[i]->CreateIndex({.name = "words", .columns = {{"t", IndexKind::kToken}}}), IsOk());
      ASSERT_THAT(tables_[i]->CreateIndex({.name = "grams", .columns = {{"t", IndexKind::kQGram}}, .positions = true}), IsOk());
      ASSERT_THAT(tables_[i]->CreateIndex({.name = "covers", .columns = {{"n"}}, .covering = {"t"}, .where = "n >= 5"}), IsOk());
    }
  }
  void TearDown() override {
    CheckAll();
    for (auto& table : tables_) ASSERT_THAT(table->Close(), IsOk());
    ASSERT_THAT(db_->Verify(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
  }

  std::string Word() {
    static const char* const kWords[] = {"ant", "bee", "cat", "dog", "elk", "fox"};
    return kWords[random_.Below(std::size(kWords))];
  }
  std::string Text() {
    std::string text = Word();
    for (std::uint64_t i = random_.Below(4); i > 0; --i) text += " " + Word();
    return text;
  }
  std::string RandomKey() { return "k" + std::to_string(random_.Below(num_keys_)); }
  std::int64_t Number() { return static_cast<std::int64_t>(random_.Below(12)); }
  ModelRow RandomRow() {
    ModelRow row;
    if (!random_.OneIn(6)) row.n = Number();
    if (!random_.OneIn(6)) row.t = Text();
    if (random_.OneIn(3)) row.u = "u" + std::to_string(random_.Below(num_keys_));
    return row;
  }

  struct Running {
    explicit Running(Database& db, std::unique_ptr<TableDBM> (&tables)[kTables]) : transaction(db) {
      for (int i = 0; i < kTables; ++i) views[i] = *tables[i]->In(transaction);
    }
    Transaction<Database> transaction;
    std::unique_ptr<TableDBM> views[kTables];
    Writes writes[kTables];
    std::vector<std::function<bool(const Rows (&)[kTables])>> answers;  // as of transaction_test.cc
    std::vector<std::pair<Savepoint, std::pair<Writes, Writes>>> savepoints;
    std::uint64_t moment = 0;
  };

  // Notes an answer about the rows of a table, with the updates of the transaction. It must be right at once if nobody has
  // changed anything since the transaction began.
  void Note(Running& run, int table, std::function<bool(const Rows&)> holds, const std::string& what) {
    auto answer = [holds = std::move(holds), table, writes = run.writes[table]](const Rows(&rows)[kTables]) {
      return holds(Merged(rows[table], writes));
    };
    if (run.moment == moment_) {
      ++num_checked_;
      EXPECT_TRUE(answer(rows_)) << what;
    }
    run.answers.push_back(std::move(answer));
  }

  static bool HasUnique(const Rows& rows, const std::string& key, const ModelRow& row) {
    return row.u && std::ranges::any_of(rows, [&](const auto& other) { return other.first != key && other.second.u == row.u; });
  }
  // A change of one row, by any table: of a transaction, or the table itself. Returns what it makes of the rows.
  struct Change {
    int kind;
    std::string key;
    ModelRow row;
    // The status of the change and, if it is OK, the row then.
    std::pair<StatusCode, std::optional<ModelRow>> Apply(const Rows& rows) const {
      const auto found = rows.find(key);
      std::optional<ModelRow> after;
      switch (kind) {
        case 0:
          if (found == rows.end()) return {StatusCode::kNotFound, {}};
          return {StatusCode::kOk, {}};
        case 1:
          if (found == rows.end()) return {StatusCode::kNotFound, {}};
          after = found->second;
          after->n = row.n;
          after->t = row.t;
          break;
        case 2:
          if (found != rows.end()) return {StatusCode::kAlreadyExists, {}};
          after = row;
          break;
        default:
          after = row;
      }
      if (HasUnique(rows, key, *after)) return {StatusCode::kAlreadyExists, {}};
      return {StatusCode::kOk, after};
    }
    Status Make(TableDBM& table) const {
      const std::vector<Cell> cells = CellsOf(row);
      switch (kind) {
        case 0:
          return table.Remove(key);
        case 1:
          return table.Update(key, std::span(cells).first(2));
        case 2:
          return table.PutKeep(key, cells);
        default:
          return table.Put(key, cells);
      }
    }
  };
  Change RandomChange() { return {static_cast<int>(random_.Below(6)), RandomKey(), RandomRow()}; }

  // Another one changes a row.
  void ChangeBeside() {
    const int table = static_cast<int>(random_.Below(kTables));
    const Change change = RandomChange();
    const auto [code, after] = change.Apply(rows_[table]);
    const Status made = change.Make(*tables_[table]);
    ASSERT_EQ(made.code(), code) << made;
    if (!made.ok()) return;
    rows_[table].erase(change.key);
    if (after) rows_[table].emplace(change.key, *after);
    ++moment_;
  }

  void ChangeRow(Running& run) {
    const int table = static_cast<int>(random_.Below(kTables));
    const Change change = RandomChange();
    const Status made = change.Make(*run.views[table]);
    if (absl::IsAborted(made)) return;
    Note(
        run, table, [change, code = made.code()](const Rows& rows) { return change.Apply(rows).first == code; },
        "change of " + change.key + ": " + std::string(made.message()));
    if (!made.ok()) return;
    // What the row is now depends on what it was, which was noted by its reading.
    StatusOr<Row> row = run.views[table]->Get(change.key);
    if (absl::IsAborted(row.status())) return;
    std::optional<ModelRow> now;
    if (row.ok()) now = RowOf(row->view());
    Note(
        run, table, [change, now](const Rows& rows) { return change.Apply(rows).second == now; }, "row after the change of " + change.key);
    run.writes[table][change.key] = now;
  }

  void Get(Running& run) {
    const int table = static_cast<int>(random_.Below(kTables));
    const std::string key = RandomKey();
    const StatusOr<Row> row = run.views[table]->Get(key);
    if (absl::IsAborted(row.status())) return;
    ASSERT_TRUE(row.ok() || absl::IsNotFound(row.status())) << row.status();
    std::optional<ModelRow> seen;
    if (row.ok()) seen = RowOf(row->view());
    Note(
        run, table,
        [key, seen](const Rows& rows) {
          const auto found = rows.find(key);
          return (found != rows.end()) == seen.has_value() && (!seen || found->second == *seen);
        },
        "Get " + key);
  }

  // A condition, and the same as a function.
  struct Asked {
    Condition condition;
    std::function<bool(const std::string& key, const ModelRow& row)> holds;
  };
  Asked RandomCondition() {
    switch (random_.Below(8)) {
      case 0: {
        const std::int64_t n = Number();
        return {Column("n") == n, [n](const std::string&, const ModelRow& row) { return row.n == n; }};
      }
      case 1: {
        const std::int64_t n = Number();
        return {Column("n") >= n, [n](const std::string&, const ModelRow& row) { return row.n && *row.n >= n; }};
      }
      case 2: {
        const std::string word = Word();
        return {Column("t").HasAll(word),
                [word](const std::string&, const ModelRow& row) { return row.t && row.t->find(word) != row.t->npos; }};
      }
      case 3: {
        const std::string part = Word() + " " + Word();
        return {Column("t").Contains(part),
                [part](const std::string&, const ModelRow& row) { return row.t && row.t->find(part) != row.t->npos; }};
      }
      case 4: {
        const std::string u = "u" + std::to_string(random_.Below(num_keys_));
        return {Column("u") == u, [u](const std::string&, const ModelRow& row) { return row.u == u; }};
      }
      case 5: {
        const std::string word = Word();
        const std::int64_t n = Number();
        return {Column("t").HasAll(word) && Column("n") < n, [word, n](const std::string&, const ModelRow& row) {
                  return row.t && row.t->find(word) != row.t->npos && row.n && *row.n < n;
                }};
      }
      case 6: {
        std::string from = RandomKey(), to = RandomKey();
        if (to < from) std::swap(from, to);
        return {Key().Between(from, to), [from, to](const std::string& key, const ModelRow&) { return from <= key && key <= to; }};
      }
      default: {
        const std::int64_t n = 5 + Number();
        const std::string word = Word();
        return {Column("n") >= n || Column("t").HasAll(word), [n, word](const std::string&, const ModelRow& row) {
                  return (row.n && *row.n >= n) || (row.t && row.t->find(word) != row.t->npos);
                }};
      }
    }
  }
  void Ask(Running& run) {
    const int table = static_cast<int>(random_.Below(kTables));
    const Asked asked = RandomCondition();
    if (random_.OneIn(4)) {
      const StatusOr<std::uint64_t> count = run.views[table]->Select().Where(asked.condition).Count();
      if (absl::IsAborted(count.status())) return;
      ASSERT_THAT(count, IsOk());
      Note(
          run, table,
          [asked, seen = *count](const Rows& rows) {
            return static_cast<std::uint64_t>(
                       std::ranges::count_if(rows, [&](const auto& row) { return asked.holds(row.first, row.second); })) == seen;
          },
          "count of " + asked.condition.ToText());
      return;
    }
    const std::uint64_t limit = random_.OneIn(3) ? 1 + random_.Below(4) : num_keys_;
    Query query = run.views[table]->Select().Where(asked.condition).OrderBy("");
    Rows seen;
    const Status status = query.Limit(limit).Each([&](std::string_view key, const RowView& row) {
      seen.emplace(key, RowOf(row));
      return true;
    });
    if (absl::IsAborted(status)) return;
    ASSERT_THAT(status, IsOk());
    Note(
        run, table,
        [asked, seen, limit](const Rows& rows) {
          Rows found;
          for (const auto& [key, row] : rows) {
            if (found.size() < limit && asked.holds(key, row)) found.emplace(key, row);
          }
          return found == seen;
        },
        asked.condition.ToText());
  }
  // Update or Remove of a query.
  void ChangeRows(Running& run) {
    const int table = static_cast<int>(random_.Below(kTables));
    const Asked asked = RandomCondition();
    const bool removes = random_.OneIn(3);
    const std::int64_t n = Number();
    const Query query = run.views[table]->Select().Where(asked.condition);
    const StatusOr<std::uint64_t> count = removes ? query.Remove() : query.Update({{"n", n}});
    if (absl::IsAborted(count.status())) return;
    ASSERT_THAT(count, IsOk());
    const auto made = [asked, removes, n](const Rows& rows) {
      Writes writes;
      for (const auto& [key, row] : rows) {
        if (!asked.holds(key, row)) continue;
        std::optional<ModelRow> after;
        if (!removes) (after = row)->n = n;
        writes[key] = after;
      }
      return writes;
    };
    if (run.moment != moment_) {  // which rows it has changed is not known: only the commit can tell whether it may stand
      run.transaction.Rollback();
      Begin(run);
      return;
    }
    const Writes writes = made(Merged(rows_[table], run.writes[table]));
    EXPECT_EQ(*count, writes.size()) << asked.condition.ToText();
    Note(
        run, table, [made, writes](const Rows& rows) { return made(rows) == writes; }, "change of " + asked.condition.ToText());
    for (const auto& [key, row] : writes) run.writes[table][key] = row;
  }
  void Save(Running& run) {
    if (run.savepoints.empty() || random_.OneIn(2)) {
      run.savepoints.emplace_back(run.transaction.SetSavepoint(), std::pair(run.writes[0], run.writes[1]));
      return;
    }
    ASSERT_THAT(run.transaction.RollbackTo(run.savepoints.back().first), IsOk());
    std::tie(run.writes[0], run.writes[1]) = run.savepoints.back().second;
    run.savepoints.pop_back();
  }

  void Begin(Running& run) {
    for (auto& writes : run.writes) writes.clear();
    run.answers.clear();
    run.savepoints.clear();
    run.moment = moment_;
  }
  void Commit(Running& run) {
    const Status status = run.transaction.Commit();
    const bool all_hold = std::ranges::all_of(run.answers, [&](const auto& answer) { return answer(rows_); });
    if (status.ok()) {
      EXPECT_TRUE(all_hold) << "committed with an answer that no longer held";
      bool writes = false;
      for (int i = 0; i < kTables; ++i) {
        rows_[i] = Merged(rows_[i], run.writes[i]);
        writes = writes || !run.writes[i].empty();
      }
      if (writes) ++moment_;
      ++num_committed_;
    } else {
      ASSERT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_NE(run.moment, moment_) << "nobody has changed anything: " << status;
      ++num_aborted_;
    }
    Begin(run);
  }

  void CheckAll() {
    for (int i = 0; i < kTables; ++i) {
      ASSERT_THAT(tables_[i]->Verify(), IsOk());
      Rows found;
      ASSERT_THAT(tables_[i]->Select().Each([&](std::string_view key, const RowView& row) {
        found.emplace(key, RowOf(row));
        return true;
      }),
                  IsOk());
      ASSERT_EQ(found, rows_[i]);
      ASSERT_THAT(tables_[i]->Count(), IsOkAndHolds(rows_[i].size()));
    }
  }

  TempDir dir_;
  Random random_{20261128};
  std::uint64_t num_keys_ = 40;
  std::unique_ptr<Database> db_;
  std::unique_ptr<TableDBM> tables_[kTables];
  Rows rows_[kTables];
  std::uint64_t moment_ = 0, num_committed_ = 0, num_aborted_ = 0, num_checked_ = 0;
};

using Kinds = testing::Types<Baby, Tree, AnyTree>;
TYPED_TEST_SUITE(TableTransactionTest, Kinds);

TYPED_TEST(TableTransactionTest, IsSerializable) {
  std::vector<std::unique_ptr<typename TestFixture::Running>> runs;
  for (int i = 0; i < 3; ++i) {
    runs.push_back(std::make_unique<typename TestFixture::Running>(*this->db_, this->tables_));
    this->Begin(*runs.back());
  }
  const int steps = FullSize() ? 60'000 : 3'000;
  for (int step = 0; step < steps && !this->HasFatalFailure() && !this->HasFailure(); ++step) {
    auto& run = *runs[this->random_.Below(runs.size())];
    switch (this->random_.Below(16)) {
      case 0:
      case 1:
        this->Commit(run);
        break;
      case 2:
        if (this->random_.OneIn(3)) {
          run.transaction.Rollback();
          this->Begin(run);
        }
        break;
      case 3:
      case 4:
      case 5:
        this->ChangeRow(run);
        break;
      case 6:
        this->ChangeRows(run);
        break;
      case 7:
        this->Save(run);
        break;
      case 8:
        this->Get(run);
        break;
      case 9:
        if (this->random_.OneIn(3)) this->ChangeBeside();
        break;
      default:
        this->Ask(run);
    }
    if (step % 500 == 0) this->CheckAll();
  }
  this->RecordProperty("committed", std::to_string(this->num_committed_));
  EXPECT_GT(this->num_committed_, static_cast<std::uint64_t>(steps / 40));
  EXPECT_GT(this->num_aborted_, static_cast<std::uint64_t>(steps / 100));
  EXPECT_GT(this->num_checked_, static_cast<std::uint64_t>(steps / 20));
}

}  // namespace
}  // namespace hako
