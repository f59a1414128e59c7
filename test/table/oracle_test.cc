// Queries of tables beside two oracles that share no code with the library: SQLite, and a loop over all rows
// (test/table/table_oracle.h). Columns, rows, indices, conditions, orders, limits and pages are drawn at random
// (test/table/table_draw.h), each also with the cast `numeric`; so are figures, by group and of a query.
// Rows and indices change between the queries, a writer changes other rows beside them, and tables in files
// are opened again.
//
// HAKO_QUERIES=1000000 has OracleTest.QueriesShowTheRowsOfSqlite compare at least this many queries.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/table/index_key.h"
#include "hako/table/table_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "table/sqlite_oracle.h"
#include "table/table_draw.h"
#include "table/table_oracle.h"

namespace hako {
namespace {

using oracle::Cells;
using oracle::Draw;
using oracle::Figures;
using oracle::kColumns;
using oracle::Operator;
using oracle::Rows;
using oracle::Val;
using oracle::Wanted;
using oracle::Where;

struct SomeIndex {
  IndexOptions options;
  Where where;  // of a partial one
};

// A table, its rows in a map and in SQLite, and steps that change and query all of them.
class Trial {
 public:
  explicit Trial(std::uint64_t seed) : draw_(seed), random_(draw_.random()), sqlite_(kColumns) {
    for (const std::string& column : kColumns) {
      if (draw_.TypeOf(column) != ColumnType::kAny) options_.columns.emplace_back(column, ColumnOptions{.type = draw_.TypeOf(column)});
    }
    has_file_ = random_.OneIn(4);
    if (has_file_) {
      table_ = *TableDBM::Open(dir_.File("a.hktb"), options_);
    } else {
      auto store = *BabyDBM<>::Open();
      store_ = store.get();
      table_ = *TableDBM::Open(std::move(store), options_);
    }
  }

  std::uint64_t num_queries() const { return num_queries_; }
  std::uint64_t num_walks() const { return num_walks_; }

  void Run(int num_steps) {
    has_writer_ = random_.OneIn(4);
    std::atomic<bool> is_over = false;
    std::thread writer;
    if (has_writer_) writer = std::thread([this, &is_over, seed = random_.Next()] { WriteBeside(seed, is_over); });
    for (std::uint64_t i = random_.Below(4); i > 0; --i) ChangeIndices();  // of columns that no row has yet
    for (std::uint64_t i = random_.OneIn(3) ? 0 : random_.OneIn(2) ? 20 : 100; i > 0; --i) ChangeRow();
    for (int step = 0; step < num_steps && !testing::Test::HasFatalFailure(); ++step) {
      if (random_.OneIn(12)) ChangeIndices();
      if (random_.OneIn(30)) ChangeByQuery();
      if (has_file_ && !has_writer_ && random_.OneIn(60)) Reopen();
      random_.OneIn(3) ? ChangeRow() : random_.OneIn(3) ? ComparePages() : CompareQuery();
    }
    is_over = true;
    if (has_writer_) writer.join();
    ASSERT_THAT(table_->Verify(), IsOk());
    if (!has_writer_) {
      ASSERT_THAT(table_->Count(), IsOkAndHolds(rows_.size()));
    }
  }

  // Removes or forges an entry of an index behind the table's back. Returns whether there was one.
  bool DamageAnEntry() {
    if (store_ == nullptr) return false;
    std::vector<std::pair<std::string, std::string>> entries;
    auto cursor = store_->MakeIterator();
    for (cursor.Jump({&table::kEntrySpace, 1}); cursor.Valid(); cursor.Next()) entries.emplace_back(cursor.key(), cursor.value());
    if (entries.empty()) return false;
    const auto [key, value] = entries[random_.Below(entries.size())];
    const auto change = [&](std::string_view at, const Action& action) {
      EXPECT_THAT(store_->Process(at, [&](std::optional<std::string_view>) { return action; }), IsOk());
    };
    if (random_.OneIn(2)) {
      change(key, Action::Remove());
      return true;
    }
    const std::string forged = key.substr(0, key.size() - 1) + static_cast<char>(key.back() + 1);
    if (std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == forged; })) return false;
    change(forged, Action::Set(value));
    return true;
  }
  // Of some random queries, those that show other rows than they must.
  int CountWrongQueries(int num_queries) {
    int wrong = 0;
    for (; num_queries > 0; --num_queries) {
      const Wanted wanted = SomeWanted();
      const StatusOr<std::vector<std::string>> keys = QueryOf(wanted).Keys();
      wrong += !keys.ok() || *keys != KeysOf(rows_, wanted) ? 1 : 0;
    }
    return wrong;
  }
  Status Verify() { return table_->Verify(); }

 private:
  // Rows of keys that no other step sees.
  void WriteBeside(std::uint64_t seed, const std::atomic<bool>& is_over) {
    Draw draw(seed);
    while (!is_over) {
      const std::string key = "w" + std::to_string(draw.random().Below(30)), text = draw.Text();
      const Val a = draw.ValueFor("a");
      if (draw.random().OneIn(4))
        (void)table_->Remove(key);
      else  // a value of another type than the column's is refused
        (void)table_->Put(key, {{"t", text}, {"a", a.view()}});
    }
  }

  // Whether each column is in the schema, or a row has had it.
  bool HasAllColumns() const {
    return std::all_of(kColumns.begin(), kColumns.end(), [this](const auto& one) { return table_->FindColumn(one).ok(); });
  }

  static std::vector<Cell> ViewOf(const Cells& cells) {
    std::vector<Cell> views;
    for (const auto& [column, value] : cells) views.push_back({column, value.view()});
    return views;
  }

  // Whether two of these rows have the same value in a unique index.
  bool Conflicts(const Rows& rows) const {
    for (const auto& [name, index] : indices_) {
      if (!index.options.unique) continue;
      std::vector<std::vector<Val>> values;
      for (const auto& [key, cells] : rows) {
        std::vector<Val> parts;
        for (const IndexColumn& part : index.options.columns) {
          const Val cell = CellOf(key, cells, part.column);
          parts.push_back(part.kind == IndexKind::kNumeric ? NumericOf(cell) : cell);
        }
        const bool has_all = std::none_of(parts.begin(), parts.end(), [](const Val& one) { return one.is_null(); });
        if (has_all && Holds(index.where, key, cells)) values.push_back(std::move(parts));
      }
      const auto order = [](const std::vector<Val>& a, const std::vector<Val>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) {
          if (const int found = Compare(a[i], b[i]); found != 0) return found;
        }
        return 0;
      };
      std::sort(values.begin(), values.end(), [&](const auto& a, const auto& b) { return order(a, b) < 0; });
      for (std::size_t i = 1; i < values.size(); ++i) {
        if (order(values[i - 1], values[i]) == 0) return true;
      }
    }
    return false;
  }

  // The rows are those of `changed` if the change is one that no unique index forbids; else they stay.
  void Expect(const Status& status, const Rows& changed) {
    if (Conflicts(changed)) {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kAlreadyExists));
      return;
    }
    ASSERT_THAT(status, IsOk());
    for (const auto& [key, cells] : rows_) {
      if (!changed.contains(key)) sqlite_.Remove(key);
    }
    for (const auto& [key, cells] : changed) {
      const auto it = rows_.find(key);
      if (it == rows_.end() || it->second != cells) sqlite_.Put(key, cells);
    }
    rows_ = changed;
  }

  void ChangeRow() {
    const std::string key = draw_.Key();
    Rows changed = rows_;
    if (random_.OneIn(6)) {
      changed.erase(key);
      const Status status = table_->Remove(key);
      if (rows_.contains(key)) {
        Expect(status, changed);
      } else {
        ASSERT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
      }
      return;
    }
    const Cells cells = draw_.SomeCells();
    if (random_.OneIn(4) && rows_.contains(key)) {
      for (const auto& [column, value] : cells) changed[key][column] = value;
      return Expect(table_->Update(key, ViewOf(cells)), changed);
    }
    changed[key] = cells;
    Expect(table_->Put(key, ViewOf(cells)), changed);
  }

  // Of the same rows, since they are drawn by key.
  void ChangeByQuery() {
    Wanted wanted = SomeWanted();
    wanted.after.reset();
    wanted.limit = random_.OneIn(3) ? std::optional<std::uint64_t>() : random_.Below(10);
    if (!wanted.limit) wanted.offset = 0;
    const std::vector<std::string> keys = KeysOf(rows_, wanted);
    Rows changed = rows_;
    StatusOr<std::uint64_t> found;
    if (random_.OneIn(3)) {
      for (const std::string& key : keys) changed.erase(key);
      found = QueryOf(wanted).Remove();
    } else {
      const std::string column = draw_.Column();
      const Val value = draw_.ValueFor(column);
      for (const std::string& key : keys) {
        changed[key].erase(column);
        if (!value.is_null()) changed[key].emplace(column, value);
      }
      found = QueryOf(wanted).Update({{column, value.view()}});
    }
    if (found.ok()) {
      ASSERT_EQ(*found, keys.size()) << About(wanted);
    }
    Expect(found.status(), changed);
  }

  void ChangeIndices() {
    if (!indices_.empty() && (indices_.size() >= 8 || random_.OneIn(3))) {
      const auto it = std::next(indices_.begin(), static_cast<std::ptrdiff_t>(random_.Below(indices_.size())));
      ASSERT_THAT(table_->DropIndex(it->first), IsOk());
      indices_.erase(it);
      return;
    }
    SomeIndex index;
    index.options.name = "i" + std::to_string(next_index_++);
    if (random_.OneIn(3)) {
      index.options.columns = {{random_.OneIn(2) ? "t" : draw_.Column(), random_.OneIn(2) ? IndexKind::kToken : IndexKind::kQGram}};
      index.options.q = static_cast<unsigned>(1 + random_.Below(3));
      index.options.positions = random_.OneIn(2);
    } else {
      std::vector<std::string> columns = kColumns;
      for (std::uint64_t i = 1 + (random_.OneIn(2) ? random_.Below(3) : 0); i > 0; --i) {
        const auto it = columns.begin() + static_cast<std::ptrdiff_t>(random_.Below(columns.size()));
        index.options.columns.push_back({*it, random_.OneIn(3) ? IndexKind::kNumeric : IndexKind::kOrdered});
        columns.erase(it);
      }
      index.options.unique = random_.OneIn(3);
      if (random_.OneIn(3)) index.options.covering = {draw_.Column()};
    }
    if (random_.OneIn(4)) {
      index.where = draw_.Leaf();
      index.options.where = ToCondition(index.where).ToText();
    }
    if (has_writer_) index.options.unique = false;  // the writer's rows may have equal values
    indices_.emplace(index.options.name, index);
    if (!Conflicts(rows_)) {
      ASSERT_THAT(table_->CreateIndex(index.options), IsOk()) << index.options.where;
      return;
    }
    indices_.erase(index.options.name);
    ASSERT_THAT(table_->CreateIndex(index.options), StatusIs(absl::StatusCode::kAlreadyExists));
  }

  void Reopen() {
    ASSERT_THAT(table_->Close(), IsOk());
    table_.reset();
    table_ = *TableDBM::Open(dir_.File("a.hktb"), options_);
  }

  Wanted SomeWanted() {
    Wanted wanted;
    if (!random_.OneIn(12)) wanted.where = draw_.SomeWhere(2);
    // The partial indices are for queries that have their condition.
    for (const auto& [name, index] : indices_) {
      if (index.where.op != Operator::kAlways && random_.OneIn(4))
        wanted.where = {.op = Operator::kAnd, .parts = {wanted.where, index.where}};
    }
    const Where is_ours = {.op = Operator::kLess, .values = {{std::string("w")}}};
    if (has_writer_) wanted.where = {.op = Operator::kAnd, .parts = {wanted.where, is_ours}};
    wanted.order = random_.OneIn(4) ? "" : draw_.Column();
    wanted.is_numeric = random_.OneIn(4);
    wanted.is_descending = random_.OneIn(2);
    if (random_.OneIn(2)) {
      wanted.limit = random_.Below(20);
      wanted.offset = random_.OneIn(2) ? 0 : random_.Below(6);
    }
    if (random_.OneIn(4)) {
      const std::string key = draw_.Key();
      wanted.after = {key, wanted.order.empty() ? Val{key} : draw_.ValueFor(wanted.order)};
      if (!rows_.empty() && random_.OneIn(2)) {
        const auto it = std::next(rows_.begin(), static_cast<std::ptrdiff_t>(random_.Below(rows_.size())));
        wanted.after = {it->first, CellOf(it->first, it->second, wanted.order)};
      }
    }
    return wanted;
  }

  // The query; of an ascending order by key, pages and limits have it without a word.
  Query QueryOf(const Wanted& wanted) {
    Condition condition = ToCondition(wanted.where);
    if (random_.OneIn(4)) {
      const StatusOr<Condition> parsed = ParseCondition(condition.ToText());
      EXPECT_THAT(parsed, IsOk()) << condition.ToText();
      if (parsed.ok()) condition = *parsed;
    }
    Query query = table_->Select().Where(condition);
    const bool is_said =
        !wanted.order.empty() || wanted.is_numeric || wanted.is_descending || !(wanted.limit || wanted.after) || random_.OneIn(2);
    static constexpr RowOrder kOrders[] = {RowOrder::kAscending, RowOrder::kDescending, RowOrder::kNumericAscending,
                                           RowOrder::kNumericDescending};
    if (is_said) query.OrderBy(wanted.order, kOrders[(wanted.is_numeric ? 2 : 0) + (wanted.is_descending ? 1 : 0)]);
    if (wanted.limit) query.Limit(*wanted.limit, wanted.offset);
    if (wanted.after) query.After(wanted.after->key, wanted.after->value.view());
    return query;
  }

  std::string About(const Wanted& wanted) {
    std::string text = "where " + ToCondition(wanted.where).ToText() + " order by '" + wanted.order +
                       (wanted.is_descending ? "' desc" : "'") + (wanted.is_numeric ? " numeric" : "");
    if (wanted.limit) text += " limit " + std::to_string(*wanted.limit) + " offset " + std::to_string(wanted.offset);
    if (wanted.after) text += " after '" + wanted.after->key + "', " + ToString(wanted.after->value);
    text += "\n" + QueryOf(wanted).Explain().value_or("no plan") + "indices:\n";
    for (const IndexInfo& info : table_->Indices()) {
      text += "  " + info.options.name + (info.options.unique ? " unique" : "");
      for (const IndexColumn& part : info.options.columns) text += " " + part.column + " " + std::string(NameOf(part.kind));
      text += info.options.where.empty() ? "\n" : " where " + info.options.where + "\n";
    }
    return text;
  }

  std::vector<std::string> Show(const Wanted& wanted) {
    ++num_queries_;
    std::vector<std::string> keys;
    Query query = QueryOf(wanted);
    const std::string column = draw_.Column();
    if (random_.OneIn(2)) query.Columns({column});
    const Status status = query.Each([&](std::string_view key, const RowView& row) {
      keys.emplace_back(key);
      if (const auto it = rows_.find(keys.back()); it != rows_.end()) {
        EXPECT_EQ(ToString(Val::Of(row[column])), ToString(CellOf(keys.back(), it->second, column))) << About(wanted);
      }
      return true;
    });
    EXPECT_THAT(status, IsOk()) << About(wanted);
    return keys;
  }

  void CompareQuery() {
    const Wanted wanted = SomeWanted();
    const std::vector<std::string> expected = KeysOf(rows_, wanted);
    ASSERT_EQ(sqlite_.KeysOf(wanted), expected) << "the oracles differ: " << About(wanted);
    ASSERT_EQ(Show(wanted), expected) << About(wanted);
    switch (random_.Below(6)) {
      case 0:
        ++num_queries_;
        ASSERT_THAT(QueryOf(wanted).Keys(), IsOkAndHolds(expected)) << About(wanted);
        break;
      case 1:
        ++num_queries_;
        ASSERT_THAT(QueryOf(wanted).Count(), IsOkAndHolds(expected.size())) << About(wanted);
        break;
      case 2:
        CompareFigures(wanted.where);
        break;
      case 3:
        CompareAggregate(wanted, expected);
        break;
      case 4:
        CompareStatement(wanted, expected);
        break;
      default:
        break;
    }
  }

  // The figures over the rows that a query shows.
  void CompareAggregate(const Wanted& wanted, const std::vector<std::string>& keys) {
    ++num_queries_;
    const std::string column = random_.OneIn(8) ? "" : draw_.Column();
    Figures expected;
    for (const std::string& key : keys) expected.Add(CellOf(key, rows_.at(key), column));
    ASSERT_OK_AND_ASSIGN(const Aggregates found, QueryOf(wanted).Aggregate(column));
    ASSERT_EQ(found.count, expected.count) << About(wanted);
    ASSERT_EQ(found.num_numbers, expected.num_numbers) << About(wanted);
    ASSERT_EQ(Compare(Val::Of(found.min.get()), expected.min), 0) << About(wanted);
    ASSERT_EQ(Compare(Val::Of(found.max.get()), expected.max), 0) << About(wanted);
    ASSERT_TRUE(expected.IsSum(Val::Of(found.Sum())))
        << ToString(Val::Of(found.Sum())) << " of column '" << column << "', " << About(wanted);
  }

  // Runs a statement; is_refused_ if no row has had one of its columns.
  void RunStatement(const std::string& text, std::vector<std::vector<Val>>* rows) {
    const StatusOr<Statement> statement = ParseStatement(text);
    ASSERT_THAT(statement, IsOk()) << text;
    const bool has_all_columns = HasAllColumns();  // a writer may add one while the statement runs
    const auto shown = table_->Run(*statement, [rows](const ResultRow& row) {
      rows->emplace_back();
      for (const Cell& cell : row.cells) rows->back().push_back(Val::Of(cell.value));
      return true;
    });
    is_refused_ = !has_all_columns && absl::IsInvalidArgument(shown.status());
    if (!is_refused_) ASSERT_THAT(shown, IsOkAndHolds(rows->size())) << text;
  }

  // The same query as a statement.
  void CompareStatement(const Wanted& wanted, const std::vector<std::string>& expected) {
    if (wanted.after) return;
    ++num_queries_;
    const std::string column = draw_.Column(), where = ToCondition(wanted.where).ToText();
    std::string text = "select " + column + ", key" + (where == "true" ? "" : " where " + where);
    text += " order by " + (wanted.order.empty() ? "key" : wanted.order) + (wanted.is_descending ? " desc" : "") +
            (wanted.is_numeric ? " numeric" : "");
    if (wanted.limit) text += " limit " + std::to_string(*wanted.limit) + " offset " + std::to_string(wanted.offset);
    std::vector<std::vector<Val>> rows;
    ASSERT_NO_FATAL_FAILURE(RunStatement(text, &rows));
    if (is_refused_) return;
    std::vector<std::string> keys;
    for (const std::vector<Val>& row : rows) {
      const std::string& key = keys.emplace_back(row[1].bytes());
      ASSERT_EQ(ToString(row[0]), ToString(rows_.contains(key) ? CellOf(key, rows_.at(key), column) : Val())) << text;
    }
    ASSERT_EQ(keys, expected) << text;
  }

  // A statement of functions by groups, of which some are shown in an order.
  void CompareFigures(const Where& where) {
    ++num_queries_;
    const std::string group = random_.OneIn(8) ? "key" : draw_.Column(), of = draw_.Column();
    const std::string functions = "count(*), count(" + of + "), min(" + of + "), max(" + of + "), ";
    const std::string total = "total(CASE WHEN typeof(" + of + ") <> 'blob' THEN " + of + " END)";
    const std::string orders[] = {group, "count(*)", "count(" + of + ")", "min(" + of + ")", "max(" + of + ")"};
    const std::string order = orders[random_.Below(std::size(orders))], direction = random_.OneIn(2) ? " desc" : "";
    const std::string limit = " limit " + std::to_string(random_.Below(8)) + " offset " + std::to_string(random_.Below(3));
    const Condition condition = ToCondition(where);
    const std::string text = "select " + functions + "sum(" + of + ")" + (condition.node() ? " where " + condition.ToText() : "") +
                             " group by " + group + " order by " + order + direction + limit;
    const std::string sql = "SELECT " + group + ", " + functions + total + " FROM rows WHERE $WHERE GROUP BY " + group + " ORDER BY " +
                            order + direction + ", " + group + direction + limit;
    std::vector<std::vector<Val>> rows;
    ASSERT_NO_FATAL_FAILURE(RunStatement(text, &rows));
    const std::vector<std::vector<Val>> expected = sqlite_.Query(sql, where);
    if (is_refused_) return;
    ASSERT_EQ(rows.size(), expected.size()) << text;
    const auto cell = [](const std::string& key, const Cells& cells, const std::string& column) {
      return CellOf(key, cells, column == "key" ? "" : column);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i].size(), expected[i].size());
      Figures figures;
      for (const auto& [key, cells] : rows_) {
        if (Holds(where, key, cells) && Compare(cell(key, cells, group), rows[i][0]) == 0) figures.Add(cell(key, cells, of));
      }
      ASSERT_TRUE(figures.IsSum(rows[i].back())) << text << "\nrow " << i << ": " << ToString(rows[i].back());
      ASSERT_TRUE(figures.IsNear(rows[i].back(), expected[i].back())) << text << "\nrow " << i << ": " << ToString(rows[i].back());
      for (std::size_t k = 0; k + 1 < rows[i].size(); ++k)
        ASSERT_EQ(Compare(rows[i][k], expected[i][k]), 0)
            << text << "\nrow " << i << ": " << ToString(rows[i][k]) << " is not " << ToString(expected[i][k]);
    }
  }

  // The pages of one size are together the whole, and so is what follows a row.
  void ComparePages() {
    ++num_walks_;
    Wanted wanted = SomeWanted();
    wanted.after.reset();
    wanted.limit.reset();
    wanted.offset = 0;
    const std::vector<std::string> whole = KeysOf(rows_, wanted);
    const auto behind = [&](const std::string& key) { wanted.after = {key, CellOf(key, rows_.at(key), wanted.order)}; };
    wanted.limit = 1 + random_.Below(random_.OneIn(2) ? 4 : 30);
    std::vector<std::string> keys;
    for (std::vector<std::string> page;;) {
      page = Show(wanted);
      keys.insert(keys.end(), page.begin(), page.end());
      ASSERT_LE(keys.size(), whole.size()) << About(wanted);
      if (page.size() < *wanted.limit) break;
      behind(page.back());
    }
    ASSERT_EQ(keys, whole) << About(wanted);
    if (whole.empty()) return;
    const std::size_t at = random_.Below(whole.size());
    behind(whole[at]);
    wanted.limit.reset();
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>(at + 1);
    ASSERT_EQ(Show(wanted), std::vector<std::string>(from, whole.end())) << About(wanted);
  }

  Draw draw_;
  Random& random_;
  const TempDir dir_;
  TableOptions options_;
  BabyDBM<>* store_ = nullptr;  // of a table in memory
  std::unique_ptr<TableDBM> table_;
  Rows rows_;
  oracle::Sqlite sqlite_;
  std::map<std::string, SomeIndex> indices_;
  int next_index_ = 0;
  bool has_file_ = false, has_writer_ = false, is_refused_ = false;
  std::uint64_t num_queries_ = 0, num_walks_ = 0;
};

TEST(OracleTest, QueriesShowTheRowsOfSqlite) {
  SCOPED_TRACE(TestSeed());
  const char* const given = std::getenv("HAKO_QUERIES");
  const std::uint64_t wanted = given != nullptr ? std::strtoull(given, nullptr, 0) : 20'000 / (kSlowdown == 1 ? 1 : 10);
  std::uint64_t num_queries = 0, num_walks = 0;
  for (std::uint64_t number = 0; num_queries < wanted; ++number) {
    SCOPED_TRACE(number);
    Trial trial(Random::Mix(TestSeed()) + number);
    ASSERT_NO_FATAL_FAILURE(trial.Run(300));
    num_queries += trial.num_queries();
    num_walks += trial.num_walks();
  }
  std::printf("%llu queries, of %llu walks from page to page and of single ones\n", static_cast<unsigned long long>(num_queries),
              static_cast<unsigned long long>(num_walks));
}

TEST(OracleTest, VerifyFailsIfAQueryIsWrong) {
  SCOPED_TRACE(TestSeed());
  int num_damaged = 0, num_wrong = 0;
  for (std::uint64_t number = 0; num_damaged < 40; ++number) {
    SCOPED_TRACE(number);
    Trial trial(Random::Mix(TestSeed()) + number);
    ASSERT_NO_FATAL_FAILURE(trial.Run(30));
    if (!trial.DamageAnEntry()) continue;
    ++num_damaged;
    num_wrong += trial.CountWrongQueries(40) > 0 ? 1 : 0;
    EXPECT_THAT(trial.Verify(), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_GT(num_wrong, 0);  // queries do find the damage
}

}  // namespace
}  // namespace hako
