// Snapshots of tables beside a model, which is a copy of the rows: each shows the rows, columns and indices of its moment,
// by key and by queries, while rows change and indices come and go.
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
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/no_memory.h"
#include "hako/table/table_dbm.h"
#include "support/allocation_counter.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

struct ModelRow {
  std::optional<std::int64_t> n = {};
  std::optional<std::string> s = {}, t = {};
  bool operator==(const ModelRow&) const = default;
};
using Model = std::map<std::string, ModelRow>;

// A condition, and the same as a function.
struct Asked {
  Condition condition;
  std::function<bool(const std::string& key, const ModelRow& row)> holds;
};

const std::vector<IndexOptions> kIndices = {
    {.name = "n", .columns = {{"n"}}},
    {.name = "s", .columns = {{"s"}}},
    {.name = "words", .columns = {{"t", IndexKind::kToken}}},
    {.name = "phrases", .columns = {{"t", IndexKind::kToken}}, .positions = true},
    {.name = "grams", .columns = {{"t", IndexKind::kQGram}}},
    {.name = "places", .columns = {{"t", IndexKind::kQGram}}, .q = 2, .positions = true},
    {.name = "s and n", .columns = {{"s"}, {"n", IndexKind::kNumeric}}},
    {.name = "covers", .columns = {{"n"}}, .covering = {"s", "t"}},
    {.name = "part", .columns = {{"s"}}, .where = "n >= 5"},
};

enum class Place { kMemory, kMapped, kPositional };

class TableSnapshotTest : public testing::TestWithParam<Place> {
 protected:
  struct Taken {
    std::unique_ptr<TableDBM> snapshot;
    Model model;
    std::vector<std::string> indices, columns;
  };

  void OpenTable(std::uint64_t snapshot_bytes = std::uint64_t{1} << 30) {
    TableOptions options;
    options.tree.page_size = 512;
    options.tree.snapshot_bytes = snapshot_bytes;
    options.positional = GetParam() == Place::kPositional;
    auto opened = GetParam() == Place::kMemory ? TableDBM::OpenInMemory(options) : TableDBM::Open(dir_.File("t.hktb"), options);
    ASSERT_THAT(opened, IsOk());
    table_ = *std::move(opened);
  }
  std::string RandomKey() { return "k" + std::to_string(random_.Below(600)); }
  std::string Word() {
    static const char* const kWords[] = {"ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"};
    return kWords[random_.Below(8)];
  }
  std::string Text() {
    std::string text = Word();
    for (std::uint64_t i = random_.Below(5); i > 0; --i) text += " " + Word();
    return text;
  }
  ModelRow RandomRow() {
    ModelRow row;
    if (!random_.OneIn(6)) row.n = static_cast<std::int64_t>(random_.Below(12));
    if (!random_.OneIn(6)) row.s = Word();
    if (!random_.OneIn(6)) row.t = Text();
    return row;
  }
  // The cells are views of the row. A column that it lacks is null.
  static std::vector<Cell> CellsOf(const ModelRow& row) {
    return {{"n", row.n ? Value(*row.n) : Value()}, {"s", row.s ? Value(*row.s) : Value()}, {"t", row.t ? Value(*row.t) : Value()}};
  }
  static ModelRow RowOf(const RowView& view) {
    ModelRow row;
    if (!view["n"].is_null()) row.n = view["n"].int_value();
    if (!view["s"].is_null()) row.s = view["s"].bytes();
    if (!view["t"].is_null()) row.t = view["t"].bytes();
    return row;
  }

  void Update() {
    const std::string key = RandomKey();
    switch (random_.Below(8)) {
      case 0: {
        const Status removed = table_->Remove(key);
        ASSERT_EQ(removed.ok(), model_.erase(key) == 1) << removed;
        return;
      }
      case 1: {
        const std::int64_t n = static_cast<std::int64_t>(random_.Below(12));
        const Status updated = table_->Update(key, {{"n", n}});
        const auto it = model_.find(key);
        ASSERT_EQ(updated.ok(), it != model_.end()) << updated;
        if (it != model_.end()) it->second.n = n;
        return;
      }
      case 2: {
        TableBatch batch;
        for (std::uint64_t i = 2 + random_.Below(4); i > 0; --i) {
          const std::string one = RandomKey();
          if (random_.OneIn(4) && model_.erase(one) == 1) {
            batch.Remove(one);
          } else {
            const ModelRow row = RandomRow();
            batch.Put(one, CellsOf(row));
            model_[one] = row;
          }
        }
        ASSERT_THAT(table_->Write(batch), IsOk());
        return;
      }
      case 3:
        if (random_.OneIn(4)) return ChangeByQuery();
        [[fallthrough]];
      default: {
        const ModelRow row = RandomRow();
        ASSERT_THAT(table_->Put(key, CellsOf(row)), IsOk());
        model_[key] = row;
      }
    }
  }
  void ChangeByQuery() {
    const std::int64_t n = static_cast<std::int64_t>(random_.Below(12));
    const std::string word = Word();
    std::uint64_t num_changed = 0;
    if (random_.OneIn(3)) {
      num_changed = std::erase_if(model_, [&](const auto& one) { return one.second.n == n && one.second.s == word; });
      ASSERT_THAT(table_->Select().Where(Column("n") == n && Column("s") == word).Remove(), IsOkAndHolds(num_changed));
      return;
    }
    for (auto& [key, row] : model_) {
      if (row.n != n) continue;
      row.s = word;
      ++num_changed;
    }
    ASSERT_THAT(table_->Select().Where(Column("n") == n).Update({{"s", word}}), IsOkAndHolds(num_changed));
  }
  void ChangeSchema() {
    if (random_.OneIn(4)) {
      ASSERT_THAT(table_->SetColumn("more" + std::to_string(random_.Below(40)), {.type = ColumnType::kInt64}), IsOk());
      return;
    }
    const IndexOptions& index = kIndices[random_.Below(kIndices.size())];
    const Status created = table_->CreateIndex(index);
    if (created.ok()) return;
    ASSERT_THAT(created, StatusIs(absl::StatusCode::kAlreadyExists));
    ASSERT_THAT(table_->DropIndex(index.name), IsOk());
  }

  static std::vector<std::string> NamesOf(const std::vector<IndexInfo>& indices) {
    std::vector<std::string> names;
    for (const IndexInfo& index : indices) {
      EXPECT_TRUE(index.is_ready);
      names.push_back(index.options.name);
    }
    return names;
  }
  static std::vector<std::string> NamesOf(const std::vector<ColumnInfo>& columns) {
    std::vector<std::string> names;
    for (const ColumnInfo& column : columns) names.push_back(column.name);
    return names;
  }
  void Take() {
    ASSERT_OK_AND_ASSIGN(auto snapshot, table_->Snapshot());
    taken_.push_back({std::move(snapshot), model_, NamesOf(table_->Indices()), NamesOf(table_->Columns())});
  }

  Asked Leaf() {
    const std::int64_t n = static_cast<std::int64_t>(random_.Below(12));
    const std::string word = Word(), other = Word(), key = RandomKey(), part = word.substr(1) + " " + other.substr(0, 2);
    const auto has = [](const ModelRow& row, const std::string& words) {
      return row.t && (" " + *row.t + " ").find(" " + words + " ") != std::string::npos;
    };
    switch (random_.Below(12)) {
      case 0:
        return {Column("n") == n, [n](const auto&, const ModelRow& row) { return row.n == n; }};
      case 1:
        return {Column("n") < n, [n](const auto&, const ModelRow& row) { return row.n && *row.n < n; }};
      case 2:
        return {Column("n").Between(n, n + 3), [n](const auto&, const ModelRow& row) { return row.n && *row.n >= n && *row.n <= n + 3; }};
      case 3:
        return {Column("n") >= 5, [](const auto&, const ModelRow& row) { return row.n && *row.n >= 5; }};
      case 4:
        return {Column("s") == word, [word](const auto&, const ModelRow& row) { return row.s == word; }};
      case 5:
        return {Column("s").In({word, other}), [word, other](const auto&, const ModelRow& row) { return row.s == word || row.s == other; }};
      case 6:
        return {Column("t").HasAll(word + " " + other),
                [=](const auto&, const ModelRow& row) { return has(row, word) && has(row, other); }};
      case 7:
        return {Column("t").HasAny(word + " " + other),
                [=](const auto&, const ModelRow& row) { return has(row, word) || has(row, other); }};
      case 8:
        return {Column("t").HasPhrase(word + " " + other), [=](const auto&, const ModelRow& row) { return has(row, word + " " + other); }};
      case 9:
        return {Column("t").Contains(part),
                [part](const auto&, const ModelRow& row) { return row.t && row.t->find(part) != std::string::npos; }};
      case 10:
        return {Key() >= key, [key](const std::string& of, const ModelRow&) { return of >= key; }};
      default:
        return {Column("s").IsNull(), [](const auto&, const ModelRow& row) { return !row.s; }};
    }
  }
  Asked SomeAsked(int depth) {
    if (depth == 0 || random_.OneIn(2)) return Leaf();
    const Asked a = SomeAsked(depth - 1), b = SomeAsked(depth - 1);
    switch (random_.Below(3)) {
      case 0:
        return {a.condition && b.condition, [=](const auto& key, const auto& row) { return a.holds(key, row) && b.holds(key, row); }};
      case 1:
        return {a.condition || b.condition, [=](const auto& key, const auto& row) { return a.holds(key, row) || b.holds(key, row); }};
      default:
        return {!a.condition, [=](const auto& key, const auto& row) { return !a.holds(key, row); }};
    }
  }

  using Rows = std::vector<std::pair<std::string, ModelRow>>;
  static Rows RowsOf(const Query& query) {
    Rows rows;
    EXPECT_THAT(query.Each([&rows](std::string_view key, const RowView& row) {
      rows.emplace_back(key, RowOf(row));
      return true;
    }),
                IsOk());
    return rows;
  }

  // Compares a part of what a snapshot shows with the model.
  void Compare(Taken& one) {
    TableDBM& snapshot = *one.snapshot;
    const Model& model = one.model;
    ASSERT_EQ(NamesOf(snapshot.Indices()), one.indices);
    ASSERT_EQ(NamesOf(snapshot.Columns()), one.columns);
    ASSERT_THAT(snapshot.Count(), IsOkAndHolds(model.size()));
    for (int i = 0; i < 10; ++i) {
      const std::string key = RandomKey();
      const auto it = model.find(key);
      ASSERT_THAT(snapshot.Contains(key), IsOkAndHolds(it != model.end()));
      const StatusOr<Row> row = snapshot.Get(key);
      if (it == model.end())
        ASSERT_THAT(row.status(), StatusIs(absl::StatusCode::kNotFound));
      else
        ASSERT_EQ(RowOf(row->view()), it->second);
    }
    for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(CompareQuery(snapshot, model));
  }
  void CompareQuery(TableDBM& snapshot, const Model& model) {
    const Asked asked = SomeAsked(2);
    Query query = snapshot.Select().Where(asked.condition);
    SCOPED_TRACE(asked.condition.ToText() + "\n" + query.Explain().value_or("no plan"));
    Rows expected;
    for (const auto& [key, row] : model) {
      if (asked.holds(key, row)) expected.emplace_back(key, row);
    }
    ASSERT_THAT(query.Count(), IsOkAndHolds(expected.size()));
    auto keys = query.Keys();
    ASSERT_THAT(keys, IsOk());
    std::sort(keys->begin(), keys->end());
    ASSERT_EQ(keys->size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ((*keys)[i], expected[i].first);
    std::int64_t sum = 0;
    std::uint64_t count = 0;
    std::map<std::optional<std::string>, std::uint64_t> groups;
    for (const auto& [key, row] : expected) {
      sum += row.n.value_or(0);
      count += row.n ? 1 : 0;
      ++groups[row.s];
    }
    ASSERT_OK_AND_ASSIGN(const Aggregates figures, query.Aggregate("n"));
    ASSERT_EQ(figures.count, count);
    ASSERT_EQ(figures.Sum(), Value(sum));
    ASSERT_OK_AND_ASSIGN(const Query::Groups found, query.GroupBy("s"));
    ASSERT_EQ(found.size(), groups.size());
    for (const auto& [group, of_group] : found) {
      const Value name = group.get();
      ASSERT_EQ(of_group.count, groups[name.is_null() ? std::nullopt : std::optional<std::string>(name.bytes())]);
    }
    const bool by_number = random_.OneIn(2), is_descending = random_.OneIn(2);
    std::stable_sort(expected.begin(), expected.end(), [&](const auto& a, const auto& b) {
      const auto rank = [&](const auto& one) { return std::tuple(by_number ? one.second.n.value_or(-1) : 0, one.first); };
      return is_descending ? rank(b) < rank(a) : rank(a) < rank(b);
    });
    query.OrderBy(by_number ? "n" : "", is_descending ? RowOrder::kDescending : RowOrder::kAscending);
    if (random_.OneIn(3)) {
      ASSERT_EQ(RowsOf(query), expected);
      return;
    }
    Rows shown;  // in pages
    const std::uint64_t size = 1 + random_.Below(40);
    for (int page = 0; page < 5; ++page) {
      const Rows rows = RowsOf(query.Limit(size));
      shown.insert(shown.end(), rows.begin(), rows.end());
      if (rows.size() < size) break;
      if (by_number)
        query.After(shown.back().first, shown.back().second.n ? Value(*shown.back().second.n) : Value());
      else
        query.After(shown.back().first);
    }
    expected.resize(std::min<std::size_t>(expected.size(), 5 * size));
    ASSERT_EQ(shown, expected);
  }

  Random random_{TestSeed()};
  TempDir dir_{TempDir::MemoryParent()};
  std::unique_ptr<TableDBM> table_;
  Model model_;
  std::vector<Taken> taken_;
};

INSTANTIATE_TEST_SUITE_P(Places, TableSnapshotTest, testing::Values(Place::kMemory, Place::kMapped, Place::kPositional));

TEST_P(TableSnapshotTest, ShowsTheTableOfItsMoment) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  for (int i = 0; i < 400; ++i) ASSERT_NO_FATAL_FAILURE(Update());
  for (int step = 0; step < (kSlowdown == 1 ? 2'500 : 600); ++step) {
    ASSERT_NO_FATAL_FAILURE(Update());
    if (random_.OneIn(30)) ASSERT_NO_FATAL_FAILURE(ChangeSchema());
    if (step % 40 == 0) ASSERT_NO_FATAL_FAILURE(Take());
    if (random_.OneIn(700)) {
      ASSERT_THAT(table_->Clear(), IsOk());
      model_.clear();
    }
    if (random_.OneIn(60) && taken_.size() > 4) taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(random_.Below(taken_.size())));
    if (random_.OneIn(300)) ASSERT_THAT(table_->Synchronize(SyncMode::kHard), IsOk());
    if (random_.OneIn(10) && !taken_.empty()) ASSERT_NO_FATAL_FAILURE(Compare(taken_[random_.Below(taken_.size())]));
  }
  ASSERT_GT(taken_.size(), 3u);
  for (Taken& one : taken_) {
    ASSERT_NO_FATAL_FAILURE(Compare(one));
    const Rows all(one.model.begin(), one.model.end());
    ASSERT_EQ(RowsOf(one.snapshot->Select().OrderBy("")), all);
    EXPECT_THAT(one.snapshot->Verify(), IsOk()) << "the entries of its indices are those of its rows";
  }
  taken_.clear();
  ASSERT_THAT(table_->Verify(), IsOk());
  ASSERT_THAT(table_->Close(), IsOk());
}

TEST_P(TableSnapshotTest, KeepsTheIndicesOfItsMoment) {
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  ASSERT_THAT(table_->CreateIndex({.name = "by n", .columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "by words", .columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (int i = 0; i < 2'000; ++i)
    ASSERT_THAT(table_->Put("k" + std::to_string(10'000 + i), {{"n", i % 100}, {"t", i % 10 == 3 ? "old words" : "other words"}}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, table_->Snapshot());
  ASSERT_THAT(table_->DropIndex("by n"), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "new", .columns = {{"n"}}, .covering = {"s"}}), IsOk());
  for (int i = 0; i < 2'000; i += 3) ASSERT_THAT(table_->Put("k" + std::to_string(10'000 + i), {{"n", 5}, {"t", "old"}}), IsOk());
  for (int i = 1; i < 2'000; i += 3) ASSERT_THAT(table_->Remove("k" + std::to_string(10'000 + i)), IsOk());
  for (int i = 0; i < 500; ++i) ASSERT_THAT(table_->Put("new" + std::to_string(i), {{"n", 5}, {"t", "old"}}), IsOk());
  const Query by_number = snapshot->Select().Where(Column("n") == 5);
  EXPECT_THAT(by_number.Explain(), IsOkAndHolds(testing::HasSubstr("index by n: n = 5")));
  EXPECT_THAT(by_number.Count(), IsOkAndHolds(20u));
  Query by_word = snapshot->Select().Where(Column("t").HasAll("old"));
  EXPECT_THAT(by_word.Explain(), IsOkAndHolds(testing::HasSubstr("index by words")));
  EXPECT_THAT(by_word.Count(), IsOkAndHolds(200u));
  EXPECT_THAT(snapshot->Select().Where(!Column("t").HasAll("old")).Count(), IsOkAndHolds(1'800u));
  by_word.Limit(5, 2);
  EXPECT_THAT(by_word.Explain(), IsOkAndHolds(testing::HasSubstr("the first rows by key")));
  EXPECT_THAT(by_word.Keys(), IsOkAndHolds(testing::ElementsAre("k10023", "k10033", "k10043", "k10053", "k10063")));
  EXPECT_THAT(snapshot->Verify(), IsOk());
  EXPECT_THAT(table_->Verify(), IsOk());
}

// Their entries are not complete at the moment, so queries must not use them.
TEST_P(TableSnapshotTest, DoesNotUseIndicesThatAreBeingBuilt) {
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  for (int i = 0; i < 2'000; ++i)
    ASSERT_THAT(table_->Put(std::to_string(i), {{"n", i % 10}, {"t", "word" + std::to_string(i % 10)}}), IsOk());
  for (const IndexOptions& index :
       {IndexOptions{.name = "n", .columns = {{"n"}}}, IndexOptions{.name = "t", .columns = {{"t", IndexKind::kToken}}},
        IndexOptions{.name = "grams", .columns = {{"t", IndexKind::kQGram}}, .positions = true}}) {
    std::vector<std::unique_ptr<TableDBM>> snapshots;
    ASSERT_THAT(table_->CreateIndex(index,
                                    [&](std::uint64_t num_rows) {
                                      auto snapshot = table_->Snapshot();
                                      ASSERT_THAT(snapshot, IsOk());
                                      snapshots.push_back(*std::move(snapshot));
                                      ASSERT_THAT(table_->Put(std::to_string(num_rows / 2), {{"n", 77}, {"t", "changed"}}), IsOk());
                                    }),
                IsOk());
    ASSERT_GT(snapshots.size(), 1u) << index.name;
    std::uint64_t before = 2'000;
    for (const auto& snapshot : snapshots) {
      EXPECT_EQ(snapshot->Indices().back().options.name, index.name);
      EXPECT_FALSE(snapshot->Indices().back().is_ready);
      ASSERT_OK_AND_ASSIGN(const std::uint64_t by_number, snapshot->Select().Where(Column("n") < 10).Count());
      EXPECT_LE(by_number, before);
      before = by_number;
      EXPECT_THAT(snapshot->Select().Where(Column("t").Contains("word")).Count(), IsOkAndHolds(by_number));
      EXPECT_THAT(snapshot->Select().Where(Column("t").HasAll("changed")).Count(), IsOkAndHolds(2'000 - by_number));
      EXPECT_THAT(snapshot->Verify(), IsOk());
    }
    EXPECT_TRUE(table_->Indices().back().is_ready);
  }
  EXPECT_THAT(table_->Verify(), IsOk());
}

TEST_P(TableSnapshotTest, RunsStatements) {
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  for (int i = 0; i < 50; ++i) ASSERT_THAT(table_->Put(std::to_string(i), {{"n", i}}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, table_->Snapshot());
  ASSERT_THAT(table_->Select().Remove(), IsOkAndHolds(50u));
  const auto run = [&](std::string_view text) -> StatusOr<std::uint64_t> {
    HAKO_ASSIGN_OR_RETURN(const Statement statement, ParseStatement(text));
    return snapshot->Run(statement, [](const ResultRow&) { return true; });
  };
  EXPECT_THAT(run("select * where n < 7"), IsOkAndHolds(7u));
  EXPECT_THAT(run("delete where n < 7").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(run("update set n = 7 where n < 7").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_P(TableSnapshotTest, CopiesTheTableOfItsMoment) {
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  ASSERT_THAT(table_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "words", .columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (int i = 0; i < 300; ++i) ASSERT_NO_FATAL_FAILURE(Update());
  const Model model = model_;
  ASSERT_OK_AND_ASSIGN(const auto snapshot, table_->Snapshot());
  for (int i = 0; i < 300; ++i) ASSERT_NO_FATAL_FAILURE(Update());
  ASSERT_THAT(table_->DropIndex("n"), IsOk());
  const std::string path = dir_.File("copy.hktb");
  if (GetParam() == Place::kMemory) {
    EXPECT_THAT(snapshot->CopyTo(path), StatusIs(absl::StatusCode::kUnimplemented));
    return;
  }
  ASSERT_THAT(snapshot->CopyTo(path), IsOk());
  ASSERT_OK_AND_ASSIGN(auto copy, TableDBM::Open(path));
  Model found;
  ASSERT_THAT(copy->Select().Each([&](std::string_view key, const RowView& row) {
    found.emplace(key, RowOf(row));
    return true;
  }),
              IsOk());
  EXPECT_EQ(found, model);
  EXPECT_EQ(copy->Indices().size(), 2u);
  EXPECT_THAT(copy->Count(), IsOkAndHolds(model.size()));
  EXPECT_THAT(copy->Verify(), IsOk());
  EXPECT_THAT(copy->Close(), IsOk());
}

TEST_P(TableSnapshotTest, TakesNoChanges) {
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  ASSERT_THAT(table_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->Put("a", {{"n", 1}}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto snapshot, table_->Snapshot());
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(snapshot->IsWritable());
  EXPECT_THAT(snapshot->Put("b", {{"n", 1}}), refused);
  EXPECT_THAT(snapshot->Put("b", {{"new", 1}}), refused);
  EXPECT_THAT(snapshot->Update("a", {{"n", 2}}), refused);
  EXPECT_THAT(snapshot->Remove("a"), refused);
  EXPECT_THAT(snapshot->Clear(), refused);
  EXPECT_THAT(snapshot->Select().Remove().status(), refused);
  EXPECT_THAT(snapshot->CreateIndex({.name = "other", .columns = {{"s"}}}), refused);
  EXPECT_THAT(snapshot->DropIndex("n"), refused);
  EXPECT_THAT(snapshot->SetColumn("n", {.type = ColumnType::kInt64}), refused);
  EXPECT_THAT(snapshot->Snapshot().status(), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(snapshot->Select().Where(Column("n") == 1).Keys(), IsOkAndHolds(testing::ElementsAre("a")));
  EXPECT_THAT(snapshot->Count(), IsOkAndHolds(1u));
  EXPECT_EQ(NamesOf(snapshot->Columns()), std::vector<std::string>{"n"});
  EXPECT_EQ(NamesOf(snapshot->Indices()), std::vector<std::string>{"n"});
  EXPECT_THAT(snapshot->Verify(), IsOk());
  EXPECT_THAT(table_->Verify(), IsOk());
  EXPECT_THAT(table_->Count(), IsOkAndHolds(1u));
}

TEST_P(TableSnapshotTest, IsCancelledBeyondTheLimitAndEndsWithTheTable) {
  ASSERT_NO_FATAL_FAILURE(OpenTable(64 << 10));
  for (int i = 0; i < 3'000; ++i) ASSERT_THAT(table_->Put(std::to_string(i), {{"n", i}}), IsOk());
  ASSERT_OK_AND_ASSIGN(auto cancelled, table_->Snapshot());
  EXPECT_EQ(cancelled->GetStats().snapshot_bytes, 0u);
  for (int i = 0; i < 3'000; ++i) ASSERT_THAT(table_->Update(std::to_string(i), {{"n", -i}}), IsOk()) << "no update fails";
  EXPECT_THAT(cancelled->Get("1").status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(cancelled->Select().Keys().status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(cancelled->Count().status(), StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK_AND_ASSIGN(auto closed, table_->Snapshot());
  EXPECT_THAT(closed->Close(), IsOk());
  EXPECT_THAT(closed->Get("1").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(auto last, table_->Snapshot());
  EXPECT_THAT(last->Select().Count(), IsOkAndHolds(3'000u));
  EXPECT_THAT(last->Select().Where(Column("n") == -5).Keys(), IsOkAndHolds(testing::ElementsAre("5")));
  ASSERT_THAT(table_->Close(), IsOk());
  EXPECT_THAT(last->Get("1").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(last->Select().Keys().status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table_->Snapshot().status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_P(TableSnapshotTest, ReportsThatMemoryRunsOut) {
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  ASSERT_THAT(table_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "t", .columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (int i = 0; i < 100; ++i) ASSERT_THAT(table_->Put(std::to_string(i), {{"n", i}, {"t", "word"}}), IsOk());
  const Condition by_number = Column("n") < 50, by_word = Column("t").HasAll("word");
  const auto read = [&]() -> Status {
    HAKO_ASSIGN_OR_RETURN(const auto snapshot, table_->Snapshot());
    HAKO_RETURN_IF_ERROR(table_->Put("7", {{"n", 7}, {"t", "word"}}));
    HAKO_RETURN_IF_ERROR(snapshot->Get("7").status());
    std::optional<Query> numbers, words;
    HAKO_RETURN_IF_ERROR(CatchNoMemory([&]() -> Status {  // the construction of a query may throw
      numbers = snapshot->Select().Where(by_number);
      words = snapshot->Select().Where(by_word);
      return absl::OkStatus();
    }));
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, numbers->Count());
    HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> keys, words->Keys());
    EXPECT_EQ(count, 50u);
    EXPECT_EQ(keys.size(), 100u);
    return absl::OkStatus();
  };
  std::uint64_t num_failed = 0;
  for (std::uint64_t n = 1;; ++n) {
    Status status;
    bool has_failed = false;
    {
      FailingAllocation failing(n, FailingAllocation::Which::kOnce, FailingAllocation::Whose::kThisThread);
      status = read();
      has_failed = failing.HasFailed();
    }
    if (!status.ok()) ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted)) << "allocation " << n;
    num_failed += !status.ok();
    if (!has_failed) break;
  }
  EXPECT_GT(num_failed, 0u);
  EXPECT_EQ(table_->GetStats().num_snapshots, 0u);
  EXPECT_THAT(table_->Verify(), IsOk());
}

// Threads move amounts between rows by batches, others add and remove rows, and indices come and go. Each snapshot has the
// same sum by each way to read it, and the entries and the number of its rows.
TEST_P(TableSnapshotTest, ConcurrentBatchesAreShownAsAWhole) {
  static constexpr int kRows = 300;
  ASSERT_NO_FATAL_FAILURE(OpenTable());
  for (int i = 0; i < kRows; ++i) ASSERT_THAT(table_->Put(std::to_string(i), {{"n", 1'000}, {"t", "word"}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "n", .columns = {{"n"}}}), IsOk());
  ASSERT_THAT(table_->CreateIndex({.name = "t", .columns = {{"t", IndexKind::kToken}}}), IsOk());
  std::atomic<bool> stops{false};
  std::atomic<std::uint64_t> num_batches{0};
  std::vector<std::thread> threads;
  for (std::uint64_t half = 0; half < 2; ++half) {  // each thread changes rows of its own
    threads.emplace_back([&, half] {
      Random random(TestSeed() + half);
      std::vector<std::int64_t> amounts(kRows, 1'000);
      while (!stops) {
        const std::uint64_t from = 2 * random.Below(kRows / 2) + half, to = 2 * random.Below(kRows / 2) + half;
        if (from == to) continue;
        TableBatch batch;
        const std::string word = "word " + std::to_string(random.Below(50));
        batch.Put(std::to_string(from), {{"n", --amounts[from]}, {"t", word}});
        batch.Update(std::to_string(to), {{"n", ++amounts[to]}});
        EXPECT_THAT(table_->Write(batch), IsOk());
        ++num_batches;
      }
    });
  }
  threads.emplace_back([&] {
    for (std::uint64_t i = 0; !stops; ++i) {
      EXPECT_THAT(table_->Put("x" + std::to_string(i), {{"s", "short-lived"}}), IsOk());
      if (i >= 10) EXPECT_THAT(table_->Remove("x" + std::to_string(i - 10)), IsOk());
    }
  });
  threads.emplace_back([&] {
    while (!stops) {
      EXPECT_THAT(table_->CreateIndex({.name = "now and then", .columns = {{"n", IndexKind::kNumeric}}, .covering = {"t"}}), IsOk());
      EXPECT_THAT(table_->DropIndex("now and then"), IsOk());
    }
  });
  for (int round = 0; round < (kSlowdown == 1 ? 12 : 4); ++round) {
    for (const std::uint64_t begun = num_batches; num_batches < begun + 5;) std::this_thread::yield();
    ASSERT_OK_AND_ASSIGN(auto snapshot, table_->Snapshot());
    ASSERT_OK_AND_ASSIGN(const std::vector<std::string> keys, snapshot->Select().Keys());
    EXPECT_GE(keys.size(), static_cast<std::size_t>(kRows));
    EXPECT_THAT(snapshot->Count(), IsOkAndHolds(keys.size()));
    EXPECT_THAT(snapshot->Select().Where(!Column("t").HasAll("word")).Count(), IsOkAndHolds(keys.size() - kRows));
    for (const Query& query : {snapshot->Select(), snapshot->Select().Where(Column("n") > -1'000'000),
                               snapshot->Select().Where(Column("t").HasAll("word")), snapshot->Select().OrderBy("n")}) {
      ASSERT_OK_AND_ASSIGN(const Aggregates figures, query.Aggregate("n"));
      EXPECT_EQ(figures.count, static_cast<std::uint64_t>(kRows));
      EXPECT_EQ(figures.Sum(), Value(kRows * 1'000));
    }
    EXPECT_THAT(snapshot->Verify(), IsOk());
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(table_->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
