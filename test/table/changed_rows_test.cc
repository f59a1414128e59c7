// Rows that change while a query shows them. A visitor has another thread change the rows at a point that is
// known: in the middle of the query, when its order is settled and most of its rows are still to be read.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

std::string KeyOf(int i) {
  std::string digits = std::to_string(i);
  return "k" + std::string(3 - digits.size(), '0') + digits;
}

// With an order that an index serves, and with one that is sorted in memory.
class ChangedRowsTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kRows = 300;

  void SetUp() override {
    for (int i = 0; i < kRows; ++i) ASSERT_THAT(table_->Put(KeyOf(i), {{"n", i / 2}}), IsOk());
    if (GetParam()) {
      ASSERT_THAT(table_->CreateIndex({.columns = {{"n", IndexKind::kNumeric}}}), IsOk());
    }
  }

  using Shown = std::vector<std::pair<std::string, std::int64_t>>;
  // The rows that a query shows; `change` runs in another thread when the first one is shown.
  static Shown Show(const Query& query, const std::function<void()>& change) {
    Shown shown;
    EXPECT_THAT(query.Each([&](std::string_view key, const RowView& row) {
      shown.emplace_back(key, row["n"].int_value());
      if (shown.size() == 1) std::thread(change).join();
      return true;
    }),
                IsOk());
    return shown;
  }
  Query ByNumber() { return table_->Select().OrderBy("n", RowOrder::kNumericAscending); }

  std::unique_ptr<TableDBM> table_ = *TableDBM::OpenInMemory();
};

INSTANTIATE_TEST_SUITE_P(Orders, ChangedRowsTest, testing::Bool(),
                         [](const auto& one) { return std::string(one.param ? "OfAnIndex" : "SortedInMemory"); });

TEST_P(ChangedRowsTest, LimitIsReachedAlthoughRowsAreRemoved) {
  const Shown shown = Show(ByNumber().Limit(60, 10), [this] {
    for (int i = 45; i < 65; ++i) ASSERT_THAT(table_->Remove(KeyOf(i)), IsOk());
  });
  ASSERT_EQ(shown.size(), 60u);
  EXPECT_TRUE(std::is_sorted(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
  EXPECT_EQ(shown.front().first, KeyOf(10));
  EXPECT_EQ(shown.back().first, KeyOf(89));
}

TEST_P(ChangedRowsTest, AllRowsAreShownIfFewerThanTheLimitAreLeft) {
  const Shown shown = Show(ByNumber().Limit(280), [this] {
    for (int i = 100; i < 200; ++i) ASSERT_THAT(table_->Remove(KeyOf(i)), IsOk());
  });
  EXPECT_EQ(shown.size(), 200u);
}

TEST_P(ChangedRowsTest, RowOfAnotherValueIsNotShownOutOfOrder) {
  const Shown shown = Show(ByNumber().Limit(60), [this] {
    for (int i = 40; i < 60; i += 2) ASSERT_THAT(table_->Put(KeyOf(i), {{"n", i % 4 == 0 ? 1000 : -1}}), IsOk());
  });
  ASSERT_EQ(shown.size(), 60u);
  EXPECT_TRUE(std::is_sorted(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
}

TEST_P(ChangedRowsTest, PagesHaveEachUnchangedRowOnce) {
  std::multiset<std::string> seen;
  std::optional<std::pair<std::string, std::string>> last;
  int page = 0;
  for (Shown shown;; ++page) {
    Query query = ByNumber().Limit(40);
    if (last) query.After(last->first, last->second);
    shown = Show(query, [&] {  // rows of this page and of the next one
      for (int i = 40 * page; i < std::min(kRows, 40 * page + 80); ++i) {
        if (i % 5 == 0) (void)table_->Put(KeyOf(i), {{"n", i % 10 == 0 ? kRows - i : i / 2}});
        if (i % 7 == 0) (void)table_->Remove(KeyOf(i));
      }
    });
    for (const auto& [key, number] : shown) seen.insert(key);
    if (shown.size() < 40) break;
    last = {shown.back().first, std::to_string(shown.back().second)};
  }
  EXPECT_GE(page, 4);
  for (int i = 0; i < kRows; ++i) {
    if (i % 5 == 0 || i % 7 == 0) continue;
    EXPECT_EQ(seen.count(KeyOf(i)), 1u) << i;
  }
  EXPECT_THAT(table_->Verify(), IsOk());
}

// Here rows change at any time, so also between the reading of an index's entries and that of their rows.
TEST_P(ChangedRowsTest, RowsAreInOrderWhileTheirValuesChange) {
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    Random random(TestSeed());
    while (!is_over) (void)table_->Put(KeyOf(static_cast<int>(random.Below(100)) * 3), {{"n", static_cast<int>(random.Below(kRows / 2))}});
  });
  for (int query = 0; query < (kSlowdown == 1 ? 300 : 30); ++query) {
    std::int64_t last = -1, count = 0;
    ASSERT_THAT(ByNumber().Limit(150).Each([&](std::string_view, const RowView& row) {
      EXPECT_LE(last, row["n"].int_value());
      last = row["n"].int_value();
      return ++count, true;
    }),
                IsOk());
    EXPECT_EQ(count, 150);
  }
  is_over = true;
  writer.join();
}

}  // namespace
}  // namespace hako
