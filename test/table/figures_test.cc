// The figures of a query: count, sum, min and max, of all rows and by group.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max(), kSmallest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kInexact = (std::int64_t{1} << 53) + 1;  // no double

class FiguresTest : public testing::Test {
 protected:
  // Rows that have one of these values each, in this order.
  void PutAll(const std::vector<Value>& values) {
    for (const Value& value : values) ASSERT_THAT(table_->Put("k" + std::to_string(num_rows_++), {{"q", value}}), IsOk());
  }
  // A figure of the column, with its kind: "int 7".
  std::string Figure(const std::string& function) {
    const auto statement = ParseStatement("select " + function + "(q)");
    EXPECT_THAT(statement, IsOk());
    const auto all = table_->Select(*statement)->Aggregate("q");
    EXPECT_THAT(all, IsOk());
    const OwnedValue figure = FigureOf(statement->aggregates[0], *all);
    static constexpr const char* kKinds[] = {"null", "text ", "int ", "double ", "bool "};
    return kKinds[static_cast<int>(figure.get().kind())] + figure.get().ToText();
  }
  std::unique_ptr<TableDBM> table_ = *TableDBM::OpenInMemory();
  int num_rows_ = 0;
};

TEST_F(FiguresTest, LeastAndGreatestIntegersAreExact) {
  PutAll({kInexact, kInexact + 2, -kInexact});
  EXPECT_EQ(Figure("min"), "int " + std::to_string(-kInexact));
  EXPECT_EQ(Figure("max"), "int " + std::to_string(kInexact + 2));
  PutAll({kLargest, kLargest - 1});
  EXPECT_EQ(Figure("max"), "int " + std::to_string(kLargest));
  PutAll({kSmallest});
  EXPECT_EQ(Figure("min"), "int " + std::to_string(kSmallest));
}

TEST_F(FiguresTest, SumOfIntegersIsExactInAnyOrder) {
  PutAll({kLargest, 5, kSmallest, -7});
  EXPECT_EQ(Figure("sum"), "int -3");
  PutAll({kSmallest, kSmallest});
  EXPECT_EQ(Figure("sum"), "double -18446744073709551616");
  EXPECT_EQ(Figure("min"), "int " + std::to_string(kSmallest));
  PutAll({kLargest, kLargest, 2});
  EXPECT_EQ(Figure("sum"), "int -3");
}

TEST_F(FiguresTest, IntegersAndDoublesAreComparedExactly) {
  PutAll({kInexact, static_cast<double>(kInexact - 1), 0.5, 1, 1.0});
  EXPECT_EQ(Figure("max"), "int " + std::to_string(kInexact));
  EXPECT_EQ(Figure("min"), "double 0.5");
  PutAll({-2.0, -2});  // the integer of equal numbers, in any order
  EXPECT_EQ(Figure("min"), "int -2");
  PutAll({"-1"});  // a text, which is above all numbers
  EXPECT_EQ(Figure("max"), "text -1");
  EXPECT_EQ(Figure("min"), "int -2");
}

TEST_F(FiguresTest, RowsWithoutTheColumnAreAGroupOfTheirOwn) {
  PutAll({"", "a", ""});
  ASSERT_THAT(table_->Put("other", {{"p", 1}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto groups, table_->Select().GroupBy("q"));
  std::vector<std::uint64_t> counts;
  for (const auto& [name, all] : groups) counts.push_back(all.count);
  EXPECT_THAT(counts, testing::ElementsAre(1, 2, 1));  // null, '' and 'a'
}

}  // namespace
}  // namespace hako
