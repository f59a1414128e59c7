// Random queries of a table with indices show the same rows, in the same order, as those of a table
// without, which reads and tests all rows. Rows change between the queries, indices come and go, and
// the conditions, orders, limits and pages are drawn at random. At the end Verify compares rows and
// entries.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

const std::vector<IndexOptions> kIndices = {
    {.columns = {{"s"}}},
    {.columns = {{"n", IndexKind::kNumeric}}},
    {.columns = {{"n"}}},
    {.columns = {{"t", IndexKind::kToken}}},
    {.columns = {{"t", IndexKind::kQGram}}},
    {.columns = {{"s", IndexKind::kQGram}}, .q = 2},
    {.columns = {{"t", IndexKind::kToken}}, .positions = true},
    {.columns = {{"t", IndexKind::kQGram}}, .q = 2, .positions = true},
    {.name = "s and n", .columns = {{"s"}, {"n", IndexKind::kNumeric}}},
    {.name = "covers", .columns = {{"n", IndexKind::kNumeric}}, .covering = {"s"}},
    {.name = "part", .columns = {{"s"}}, .where = "n >= 5"},
    {.name = "unique", .columns = {{"u"}}, .unique = true},
};

class Model {
 public:
  explicit Model(std::uint64_t seed)
      : random_(seed), num_keys_(random_.OneIn(2) ? 60 : 500), indexed_(*TableDBM::OpenInMemory()), plain_(*TableDBM::OpenInMemory()) {}

  void Run(int num_steps) {
    for (int step = 0; step < num_steps && !testing::Test::HasFatalFailure(); ++step) {
      if (random_.OneIn(25)) ChangeIndices();
      if (random_.OneIn(40)) ChangeByQuery();
      random_.OneIn(3) ? CompareQueries() : ChangeRow();
    }
    ASSERT_THAT(indexed_->Verify(), IsOk());
    EXPECT_EQ(*indexed_->Count(), *plain_->Count());
  }

 private:
  std::string Word() {
    return std::string(1, static_cast<char>('a' + random_.Below(5))) +
           (random_.OneIn(2) ? "" : std::string(random_.Below(4), static_cast<char>('a' + random_.Below(2))));
  }
  std::string Text() {
    std::string text;
    for (std::uint64_t i = random_.Below(6); i > 0; --i) text += Word() + (random_.OneIn(4) ? ", " : " ");
    return text;
  }
  // Numbers as int64, double, bool and text; small ones, and some about 2^53.
  Value NumberValue(std::string* buffer) {
    const auto number = static_cast<std::int64_t>(random_.Below(12)) - 2 + (random_.OneIn(10) ? std::int64_t{1} << 53 : 0);
    switch (random_.Below(4)) {
      case 0:
        return random_.OneIn(20) ? Value(number < 0 ? -0.0 : 1 / 0.0) : Value(static_cast<double>(number) + (random_.OneIn(3) ? 0.5 : 0));
      case 1:
        return Value(*buffer = std::to_string(number));
      case 2:
        return random_.OneIn(4) ? Value(*buffer = Word()) : random_.OneIn(4) ? Value(number > 3) : Value(number);
      default:
        return Value(number);
    }
  }

  void ChangeRow() {
    const std::string key = "k" + std::to_string(random_.Below(num_keys_)), s = Word(), t = Text(), u = std::to_string(random_.Below(80));
    std::string buffer;
    std::vector<Cell> cells;
    if (!random_.OneIn(5)) cells.push_back({"s", random_.OneIn(10) ? Value(std::string_view("a\0b", 3)) : Value(s)});
    if (!random_.OneIn(5)) cells.push_back({"n", NumberValue(&buffer)});
    if (!random_.OneIn(5)) cells.push_back({"t", t});
    if (random_.OneIn(2)) cells.push_back({"u", u});
    Status expected, found;
    switch (random_.Below(6)) {
      case 0:
        found = indexed_->Remove(key);
        expected = found.ok() || absl::IsNotFound(found) ? plain_->Remove(key) : absl::OkStatus();
        break;
      case 1:
        found = indexed_->Update(key, cells);
        expected = absl::IsAlreadyExists(found) ? found : plain_->Update(key, cells);
        break;
      case 2:
        found = indexed_->Append(key, cells);
        expected = absl::IsAlreadyExists(found) ? found : plain_->Append(key, cells);
        break;
      default:
        found = indexed_->Put(key, cells);
        expected = absl::IsAlreadyExists(found) ? found : plain_->Put(key, cells);  // the value of "u" is taken
    }
    ASSERT_EQ(found.code(), expected.code()) << found;
    if (absl::IsAlreadyExists(found)) {
      ASSERT_GE(*plain_->Select().Where(Column("u").IsNotNull()).Count(), 1u);
    }
  }

  void ChangeIndices() {
    const std::size_t number = random_.Below(kIndices.size());
    IndexOptions options = kIndices[number];
    const std::string name = "index" + std::to_string(number);
    options.name = name;
    if (std::any_of(created_.begin(), created_.end(), [&](const std::string& one) { return one == name; })) {
      ASSERT_THAT(indexed_->DropIndex(name), IsOk());
      created_.erase(name);
      return;
    }
    const Status status = indexed_->CreateIndex(options);
    if (absl::IsAlreadyExists(status) && options.unique) return;
    ASSERT_THAT(status, IsOk());
    created_.insert(name);
  }

  void ChangeByQuery() {
    const Condition condition = SomeCondition(2);
    if (random_.OneIn(2)) {
      const auto found = indexed_->Select().Where(condition).Update({{"s", "by query"}, {"n", 3}});
      ASSERT_THAT(found, IsOk());
      ASSERT_THAT(plain_->Select().Where(condition).Update({{"s", "by query"}, {"n", 3}}), IsOkAndHolds(*found)) << condition.ToText();
    } else {
      const auto found = indexed_->Select().Where(condition && Column("n") > 3).Remove();
      ASSERT_THAT(found, IsOk());
      ASSERT_THAT(plain_->Select().Where(condition && Column("n") > 3).Remove(), IsOkAndHolds(*found)) << condition.ToText();
    }
  }

  Condition Leaf() {
    std::string buffer;
    const Value number = NumberValue(&buffer);
    const std::string word = Word(), other = Word(), text = Text();
    const Column n = random_.OneIn(3) ? Column("n").Numeric() : Column("n"), s("s"), t("t");
    switch (random_.Below(24)) {
      case 0:
        return n == number;
      case 1:
        return n < number;
      case 2:
        return n <= number;
      case 3:
        return n > number;
      case 4:
        return n >= number;
      case 5:
        return n.Between(number, 7);
      case 6:
        return n.In({number, 4, 4.0, "4", 2, true});
      case 7:
        return n != number;
      case 8:
        return s == word;
      case 9:
        return s < word;
      case 10:
        return s >= word;
      case 11:
        return s.Between(word, other);
      case 12:
        return s.In({word, other});
      case 13:
        return s.BeginsWith(word);
      case 14:
        return t.HasAll(text);
      case 15:
        return t.HasAny(text);
      case 16:
        return t.HasPhrase(word + " " + other);
      case 17:
        return t.Search(word + " \"" + other + " " + word + "\" | " + other + " -" + word);
      case 18:
        return t.Contains(word + other);
      case 19:
        return t.EndsWith(word + ", ");
      case 20:
        return random_.OneIn(2) ? s.Contains(word) : n.BeginsWith(NumberValue(&buffer).ToText().substr(0, 1));
      case 21:
        return random_.OneIn(2) ? s.IsNull() : n.IsNotNull();
      case 22:
        return Key() >= "k3";
      default:
        return random_.OneIn(2) ? Key().In({"k1", "k5", "k7", "nobody"}) : Column("u") == std::to_string(random_.Below(80));
    }
  }
  Condition SomeCondition(int depth) {
    switch (depth == 0 ? 9 : random_.Below(10)) {
      case 0:
      case 1:
      case 2:
        return SomeCondition(depth - 1) && SomeCondition(depth - 1);
      case 3:
      case 4:
        return SomeCondition(depth - 1) || SomeCondition(depth - 1);
      case 5:
        return !SomeCondition(depth - 1);
      default:
        return Leaf();
    }
  }

  static std::vector<std::string> RowsOf(const Query& query) {
    std::vector<std::string> rows;
    const Status status = query.Each([&rows](std::string_view key, const RowView& row) {
      rows.push_back(std::string(key) + ":" + row["s"].ToText() + ":" + row["n"].ToText());
      return true;
    });
    EXPECT_THAT(status, IsOk());
    return rows;
  }

  void CompareQueries() {
    const Condition condition = random_.OneIn(15) ? Condition() : SomeCondition(2);
    Query found = indexed_->Select().Where(condition), expected = plain_->Select().Where(condition);
    const auto both = [&](auto&& change) { change(found), change(expected); };
    const bool is_ordered = random_.OneIn(2);
    if (is_ordered) {
      const std::string column = random_.OneIn(4) ? "" : random_.OneIn(2) ? "n" : "s";
      const auto order = static_cast<RowOrder>(random_.Below(column == "n" ? 4 : 2));
      both([&](Query& query) { query.OrderBy(column, order); });
      if (random_.OneIn(4)) {
        std::string buffer;
        const Value value = column == "n" ? NumberValue(&buffer) : Value(buffer = Word());
        const std::string key = "k" + std::to_string(random_.Below(num_keys_));
        both([&](Query& query) { query.After(key, value); });
      }
      if (random_.OneIn(2)) {
        const std::uint64_t limit = random_.Below(20), offset = random_.Below(5);
        both([&](Query& query) { query.Limit(limit, offset); });
      }
    }
    if (random_.OneIn(3)) both([](Query& query) { query.Columns({"s", "n"}); });
    std::vector<std::string> rows = RowsOf(found), expected_rows = RowsOf(expected);
    if (!is_ordered) std::sort(rows.begin(), rows.end()), std::sort(expected_rows.begin(), expected_rows.end());
    ASSERT_EQ(rows, expected_rows) << condition.ToText() << "\n" << *found.Explain();
    ASSERT_THAT(found.Count(), IsOkAndHolds(rows.size())) << condition.ToText() << "\n" << *found.Explain();
    const auto parsed = ParseCondition(condition.ToText());
    ASSERT_THAT(parsed, IsOk()) << condition.ToText();
    ASSERT_EQ(parsed->ToText(), condition.ToText());
    ASSERT_EQ(*indexed_->Select().Where(*parsed).Count(), *plain_->Select().Where(condition).Count()) << condition.ToText();
  }

  Random random_;
  const std::uint64_t num_keys_;
  std::unique_ptr<TableDBM> indexed_, plain_;
  std::set<std::string> created_;
};

TEST(QueryModelTest, IndicesChangeNoResult) {
  SCOPED_TRACE(TestSeed());
  for (std::uint64_t number = 0; number < 12; ++number) {  // of small tables and of larger ones
    SCOPED_TRACE(number);
    Model model(Random::Mix(TestSeed()) + number);
    ASSERT_NO_FATAL_FAILURE(model.Run(kSlowdown == 1 ? 1500 : 120));
  }
}

}  // namespace
}  // namespace hako
