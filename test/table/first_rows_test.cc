// The first rows by key of a query by text indices, which reads a part of the posting lists at a time
// (ZoneStream), beside a map.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hako/table/table_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

std::string KeyOf(std::uint64_t i) {
  std::string digits = std::to_string(i);
  return "row " + std::string(8 - digits.size(), '0') + digits;
}

// In which order rows come, and which of them go.
enum class Arrival { kAscending, kDescending, kRandom, kQueue };

class FirstRowsTest : public testing::TestWithParam<Arrival> {
 protected:
  struct Case {
    Condition condition;
    std::function<bool(const std::string& text)> holds;
  };

  std::string NextKey() {
    ++num_puts_;
    switch (GetParam()) {
      case Arrival::kDescending:
        return KeyOf(50'000'000 - num_puts_ * 3);
      case Arrival::kRandom:
        return KeyOf(random_.Below(100'000'000));
      default:
        return KeyOf(num_puts_ * 3);
    }
  }
  std::string DrawText() {
    std::string text;
    for (std::uint64_t n = random_.Below(8); n > 0; --n) text += (text.empty() ? "w" : " w") + std::to_string(random_.SkewedSize(6));
    return text;
  }
  void Change(TableDBM& table, std::uint64_t count) {
    TableBatch batch;
    for (; count > 0; --count) {
      if (rows_.size() > kRowsMax || (!rows_.empty() && random_.OneIn(5))) {
        const bool is_queue = GetParam() == Arrival::kQueue;
        const auto row = is_queue ? rows_.begin() : std::next(rows_.begin(), static_cast<std::ptrdiff_t>(random_.Below(rows_.size())));
        batch.Remove(row->first);
        rows_.erase(row);
      } else if (!rows_.empty() && random_.OneIn(5)) {
        const auto row = std::next(rows_.begin(), static_cast<std::ptrdiff_t>(random_.Below(rows_.size())));
        row->second = DrawText();
        batch.Update(row->first, {{"t", row->second}});
      } else {
        const std::string key = NextKey();
        batch.Put(key, {{"t", rows_[key] = DrawText()}});
      }
    }
    ASSERT_THAT(table.Write(batch), IsOk());
  }
  Case DrawCase() {
    const std::string one = "w" + std::to_string(random_.SkewedSize(6)), two = "w" + std::to_string(random_.SkewedSize(6));
    const auto has = [](const std::string& text, const std::string& word) {
      return (" " + text + " ").find(" " + word + " ") != std::string::npos;
    };
    const Column t("t");
    switch (random_.Below(7)) {
      case 0:
        return {t.HasAll(one), [=](const std::string& text) { return has(text, one); }};
      case 1:
        return {t.HasAll(one) && t.HasAll(two), [=](const std::string& text) { return has(text, one) && has(text, two); }};
      case 2:
        return {t.HasAll(one) && !t.HasAll(two), [=](const std::string& text) { return has(text, one) && !has(text, two); }};
      case 3:
        return {t.HasAny(one + " " + two), [=](const std::string& text) { return has(text, one) || has(text, two); }};
      case 4:
        return {t.HasPhrase(one + " " + two), [=](const std::string& text) { return has(text, one + " " + two); }};
      case 5:
        return {t.Contains(one + " " + two), [=](const std::string& text) { return text.find(one + " " + two) != std::string::npos; }};
      default:
        return {t.Contains(one.substr(0, 2)), [=](const std::string& text) { return text.find(one.substr(0, 2)) != std::string::npos; }};
    }
  }
  // Draws a condition, an order, a range of keys, a limit and a position, and compares the keys.
  void Ask(TableDBM& table) {
    const Case drawn = DrawCase();
    Condition condition = drawn.condition;
    const bool is_descending = random_.OneIn(2);
    std::string from, to = "s";
    if (random_.OneIn(3)) condition = condition && Key() >= (from = DrawKey());
    if (random_.OneIn(3)) condition = condition && Key() < (to = DrawKey());
    const std::uint64_t limit = 1 + random_.Below(30), offset = random_.OneIn(3) ? random_.Below(10) : 0;
    std::optional<std::string> after;
    if (random_.OneIn(3)) after = DrawKey();
    std::vector<std::string> expected;
    const auto look = [&](const auto& row) {
      const auto& [key, text] = row;
      if (key < from || key >= to || !drawn.holds(text)) return;
      if (after && (is_descending ? key >= *after : key <= *after)) return;
      expected.push_back(key);
    };
    if (is_descending)
      std::for_each(rows_.rbegin(), rows_.rend(), look);
    else
      std::for_each(rows_.begin(), rows_.end(), look);
    expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(offset, expected.size())));
    if (expected.size() > limit) expected.resize(limit);
    Query query =
        table.Select().Where(condition).OrderBy("", is_descending ? RowOrder::kDescending : RowOrder::kAscending).Limit(limit, offset);
    if (after) query.After(*after);
    const StatusOr<std::string> plan = query.Explain();
    ASSERT_THAT(plan, IsOk());
    num_by_zones_ += plan->find("the first rows by key") != std::string::npos ? 1 : 0;
    ASSERT_THAT(query.Keys(), IsOkAndHolds(expected)) << condition.ToText() << "\n" << *plan;
  }
  std::string DrawKey() {
    if (rows_.empty() || random_.OneIn(3)) return KeyOf(random_.Below(60'000));
    return std::next(rows_.begin(), static_cast<std::ptrdiff_t>(random_.Below(rows_.size())))->first;
  }
  void CreateIndices(TableDBM& table) {
    ASSERT_THAT(table.CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
    ASSERT_THAT(table.CreateIndex({.columns = {{"t", IndexKind::kQGram}}}), IsOk());
  }

  static constexpr std::size_t kRowsMax = 6000 / kSlowdown;
  Random random_{TestSeed()};
  std::map<std::string, std::string> rows_;
  std::uint64_t num_puts_ = 0;
  int num_by_zones_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Arrivals, FirstRowsTest,
                         testing::Values(Arrival::kAscending, Arrival::kDescending, Arrival::kRandom, Arrival::kQueue));

TEST_P(FirstRowsTest, BesideAMap) {
  const auto table = *TableDBM::OpenInMemory();
  CreateIndices(*table);
  for (int round = 0; round < 16; ++round) {
    Change(*table, kRowsMax / 8);
    for (int i = 0; i < 12; ++i) Ask(*table);
  }
  EXPECT_THAT(table->Verify(), IsOk());
  // Numbers that ascend or descend with keys, or did so before rows went, are used.
  if (GetParam() != Arrival::kRandom) EXPECT_GT(num_by_zones_, 10);
}

TEST_P(FirstRowsTest, OfAReopenedTableWithLittleMemory) {
  const TempDir dir;
  for (int life = 0; life < 6; ++life) {
    const auto table = *TableDBM::Open(dir.File("a.hktb"), {.sort_bytes = life % 2 == 0 ? 4096u : 1u << 20});
    if (life == 0) CreateIndices(*table);
    Change(*table, kRowsMax / 4);
    for (int i = 0; i < 40; ++i) Ask(*table);
    if (life == 3) {
      ASSERT_THAT(table->Clear(), IsOk());
      rows_.clear();
      Change(*table, kRowsMax / 2);
      for (int i = 0; i < 40; ++i) Ask(*table);
    }
    ASSERT_THAT(table->Verify(), IsOk());
    ASSERT_THAT(table->Close(), IsOk());
  }
}

// Lists decide conditions only while no writer has run since they were read.
TEST(FirstRowsBesideWritersTest, ARowThatChangesAfterItsListsWereReadIsTested) {
  static constexpr int kRows = 300, kChanged = 70;
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  for (const std::uint64_t limit : {0u, 100u, 250u}) {
    for (std::uint64_t i = 0; i < kRows; ++i) ASSERT_THAT(table->Put(KeyOf(i), {{"t", "some word"}}), IsOk());
    Query query = table->Select().Where(Column("t").HasAll("word") && Column("t").HasAll("some"));
    if (limit != 0) query.Limit(limit);
    std::uint64_t num_shown = 0;
    ASSERT_THAT(query.Each([&](std::string_view key, const RowView& row) {
      EXPECT_EQ(row["t"].bytes(), "some word") << key;
      if (num_shown++ == 0) std::thread([&] { EXPECT_THAT(table->Put(KeyOf(kChanged), {{"t", "none"}}), IsOk()); }).join();
      return true;
    }),
                IsOk());
    EXPECT_EQ(num_shown, limit == 0 ? kRows - 1 : limit);
  }
}

// Rows that stay are shown once, in order, by pages in both directions, while others come, change and go.
TEST(FirstRowsBesideWritersTest, PagesShowEachRowThatStaysOnce) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
  static constexpr std::uint64_t kStable = 3000 / kSlowdown;
  TableBatch batch;
  for (std::uint64_t i = 0; i < kStable; ++i) {
    batch.Put(KeyOf(4 * i), {{"t", "stable word"}});
    batch.Put(KeyOf(4 * i + 1), {{"t", "none"}});
  }
  ASSERT_THAT(table->Write(batch), IsOk());
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    Random random(TestSeed() + 1);
    while (!is_over) {
      const std::string key = KeyOf(4 * random.Below(kStable) + 2);
      const Status changed = random.OneIn(2) ? table->Put(key, {{"t", "word"}}) : table->Remove(key);
      EXPECT_TRUE(changed.ok() || absl::IsNotFound(changed)) << changed;
      if (random.OneIn(4))
        EXPECT_THAT(table->Update(KeyOf(4 * random.Below(kStable) + 1), {{"t", random.OneIn(2) ? "word" : "none"}}), IsOk());
    }
  });
  for (int round = 0; round < 6; ++round) {
    const bool is_descending = round % 2 == 1;
    std::uint64_t num_stable = 0;
    std::optional<std::string> last;
    for (bool goes_on = true; goes_on;) {
      Query query = table->Select().Where(Column("t").HasAll("word"));
      query.OrderBy("", is_descending ? RowOrder::kDescending : RowOrder::kAscending).Limit(20);
      if (last) query.After(*last);
      std::uint64_t num_shown = 0;
      ASSERT_THAT(query.Each([&](std::string_view key, const RowView& row) {
        EXPECT_TRUE(!last || (is_descending ? key < *last : key > *last)) << key << " behind " << *last;
        EXPECT_NE(row["t"].bytes().find("word"), std::string_view::npos) << "a row that does not meet the condition";
        last = key;
        ++num_shown;
        if (row["t"].bytes() == "stable word") {
          EXPECT_EQ(key, KeyOf(4 * (is_descending ? kStable - 1 - num_stable : num_stable)));
          ++num_stable;
        }
        return true;
      }),
                  IsOk());
      goes_on = num_shown == 20;
    }
    EXPECT_EQ(num_stable, kStable);
  }
  is_over = true;
  writer.join();
  EXPECT_THAT(table->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
