// Pages: the first page and what is behind each row are parts of one sequence, which the order of the query
// defines, whichever index serves it. test/table/oracle_test.cc draws such queries at random.
#include <algorithm>
#include <functional>
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

using testing::ElementsAre;
using testing::IsEmpty;

class PageTest : public testing::Test {
 protected:
  ~PageTest() override { EXPECT_THAT(table_->Verify(), IsOk()); }

  std::vector<std::string> KeysOf(const Query& query) {
    const auto keys = query.Keys();
    EXPECT_THAT(keys, IsOk());
    return keys.value_or(std::vector<std::string>());
  }
  // The keys of all pages of `rows` rows.
  std::vector<std::string> Pages(const Query& query, const std::string& order, std::uint64_t rows) {
    std::vector<std::string> keys;
    Query page = query;
    page.Limit(rows);
    for (std::uint64_t count = rows; count == rows && keys.size() < 1000;) {
      count = 0;
      OwnedValue value;
      EXPECT_THAT(page.Each([&](std::string_view key, const RowView& row) {
        keys.emplace_back(key);
        if (!order.empty()) value = row[order];
        ++count;
        return true;
      }),
                  IsOk());
      if (count > 0) page.After(keys.back(), value.get());
    }
    return keys;
  }
  // Runs `check` without an index and with each of these.
  void WithIndices(const std::vector<IndexOptions>& indices, const std::function<void()>& check) {
    check();
    for (const IndexOptions& index : indices) {
      SCOPED_TRACE(index.columns.back().column + (index.unique ? " unique" : "") + (index.columns.size() > 1 ? " composite" : ""));
      ASSERT_THAT(table_->CreateIndex(index), IsOk());
      check();
      ASSERT_THAT(table_->DropIndex(table_->Indices()[0].options.name), IsOk());
    }
  }

  std::unique_ptr<TableDBM> table_ = *TableDBM::OpenInMemory();
};

TEST_F(PageTest, EqualityOnAUniqueIndexKeepsToAfter) {
  for (int i = 0; i < 200; ++i) ASSERT_THAT(table_->Put("k" + std::to_string(1000 + i), {{"u", i}}), IsOk());
  WithIndices({{.columns = {{"u"}}}, {.columns = {{"u"}}, .unique = true}}, [this] {
    const Query query = table_->Select().Where(Column("u") == 5);
    EXPECT_THAT(KeysOf(Query(query).After("a")), ElementsAre("k1005"));
    EXPECT_THAT(KeysOf(Query(query).After("k1005")), IsEmpty());
    EXPECT_THAT(KeysOf(Query(query).OrderBy("").After("a")), ElementsAre("k1005"));
    EXPECT_THAT(KeysOf(Query(query).OrderBy("", RowOrder::kDescending).After("x")), ElementsAre("k1005"));
    EXPECT_THAT(KeysOf(Query(query).OrderBy("", RowOrder::kDescending).After("k1005")), IsEmpty());
    EXPECT_THAT(KeysOf(Query(query).OrderBy("u").After("a", 5)), ElementsAre("k1005"));
  });
}

// Entries of a unique index beside a null end with the key of the row.
TEST_F(PageTest, UniqueIndexBesideANullHasAllRowsOfOneValue) {
  for (const char* const key : {"k1", "k2", "k3"}) ASSERT_THAT(table_->Put(key, {{"b", 7}}), IsOk());
  for (int i = 0; i < 200; ++i) ASSERT_THAT(table_->Put("z" + std::to_string(i), {{"a", i}, {"b", i}}), IsOk());
  WithIndices({{.columns = {{"a"}, {"b"}}}, {.columns = {{"a"}, {"b"}}, .unique = true}}, [this] {
    const Query query = table_->Select().Where(Column("a").IsNull()).OrderBy("b", RowOrder::kDescending);
    EXPECT_THAT(KeysOf(Query(query).Limit(2).After("k3", 7)), ElementsAre("k2", "k1"));
    EXPECT_THAT(Pages(query, "b", 1), ElementsAre("k3", "k2", "k1"));
    EXPECT_THAT(Pages(Query(query).OrderBy("b"), "b", 1), ElementsAre("k1", "k2", "k3"));
  });
}

// A row of the same value may have come since, or the position be of the application's own making.
TEST_F(PageTest, AfterAPositionOfNoRowInAUniqueIndex) {
  for (int i = 0; i < 200; ++i) ASSERT_THAT(table_->Put("k" + std::to_string(1000 + i), {{"u", i}}), IsOk());
  WithIndices({{.columns = {{"u"}}}, {.columns = {{"u"}}, .unique = true}}, [this] {
    EXPECT_THAT(KeysOf(table_->Select().OrderBy("u").Limit(2).After("a", 5)), ElementsAre("k1005", "k1006"));
    EXPECT_THAT(KeysOf(table_->Select().OrderBy("u").Limit(2).After("z", 5)), ElementsAre("k1006", "k1007"));
    EXPECT_THAT(KeysOf(table_->Select().OrderBy("u", RowOrder::kDescending).Limit(2).After("z", 5)), ElementsAre("k1005", "k1004"));
    EXPECT_THAT(KeysOf(table_->Select().OrderBy("u", RowOrder::kDescending).Limit(2).After("a", 5)), ElementsAre("k1004", "k1003"));
  });
}

TEST_F(PageTest, InfinitiesAndBoolsHaveAPlaceInTheOrder) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ASSERT_THAT(table_->Put("a", {{"x", kInfinity}}), IsOk());
  ASSERT_THAT(table_->Put("b", {{"x", 1}}), IsOk());
  ASSERT_THAT(table_->Put("c", {{"x", true}}), IsOk());
  ASSERT_THAT(table_->Put("d", {{"x", -kInfinity}}), IsOk());
  ASSERT_THAT(table_->Put("e", {{"x", 2}}), IsOk());
  ASSERT_THAT(table_->Put("f", {{"y", 2}}), IsOk());
  ASSERT_THAT(table_->Put("g", {{"x", "text"}}), IsOk());
  WithIndices({{.columns = {{"x"}}}, {.columns = {{"x", IndexKind::kNumeric}}}}, [this] {
    EXPECT_THAT(Pages(table_->Select().OrderBy("x"), "x", 1), ElementsAre("f", "d", "b", "c", "e", "a", "g"));
    EXPECT_THAT(Pages(table_->Select().OrderBy("x", RowOrder::kDescending), "x", 1), ElementsAre("g", "a", "e", "c", "b", "d", "f"));
    EXPECT_THAT(Pages(table_->Select().OrderBy("x", RowOrder::kNumericAscending), "x", 1), ElementsAre("f", "g", "d", "b", "c", "e", "a"));
  });
}

TEST_F(PageTest, AfterWithoutTheValueOfTheOrderIsRefused) {
  for (const int i : {1, 2, 3}) ASSERT_THAT(table_->Put("k" + std::to_string(i), {{"n", 10 * i}}), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("'n'"));
  EXPECT_THAT(table_->Select().OrderBy("n").After("k2").Keys().status(), refused);
  EXPECT_THAT(table_->Select().After("k2").OrderBy("n").Count().status(), refused);
  EXPECT_THAT(KeysOf(table_->Select().OrderBy("n").After("k2", 20)), ElementsAre("k3"));
  EXPECT_THAT(KeysOf(table_->Select().OrderBy("n").After("k0", std::nullopt)), ElementsAre("k1", "k2", "k3"));
  EXPECT_THAT(KeysOf(table_->Select().After("k0", 20).After("k2")), ElementsAre("k3"));
  EXPECT_THAT(KeysOf(table_->Select().OrderBy("").After("k2")), ElementsAre("k3"));
}

TEST_F(PageTest, NegativeOffsetIsRefused) {
  for (const int i : {1, 2, 3}) ASSERT_THAT(table_->Put("k" + std::to_string(i), {{"n", 10 * i}}), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("-10"));
  const int page = 0, rows = 10;
  const Query query = table_->Select().Limit(rows, (page - 1) * rows);
  EXPECT_THAT(query.Keys().status(), refused);
  EXPECT_THAT(query.Count().status(), refused);
  EXPECT_THAT(Query(query).Limit(0, -10).Count().status(), refused);
  EXPECT_THAT(query.Aggregate("n").status(), refused);
  EXPECT_THAT(query.Remove().status(), refused);
  EXPECT_THAT(Query(query).InBatches().Remove().status(), refused);
  EXPECT_THAT(table_->Select().Union(query).status(), refused);
  EXPECT_THAT(KeysOf(table_->Select().Limit(-1, 1)), ElementsAre("k2", "k3"));  // no limit
}

TEST_F(PageTest, CountOfAPageNeedsNoMoreMemoryThanThePage) {
  const auto table = *TableDBM::OpenInMemory({.sort_bytes = 20'000});
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(table->Put(std::to_string(i), {{"b", i}}), IsOk());
  const Query page = table->Select().OrderBy("b").After("9", 9).Limit(10);
  EXPECT_EQ(KeysOf(page).size(), 10u);
  EXPECT_THAT(page.Count(), IsOkAndHolds(10u));
  EXPECT_THAT(Query(page).Limit(10, 3).Count(), IsOkAndHolds(10u));
}

TEST_F(PageTest, PagesWithoutAnOrderAreByKey) {
  std::vector<std::string> small;
  for (int i = 0; i < 500; ++i) {
    const std::string key = "k" + std::to_string(1000 + i);
    ASSERT_THAT(table_->Put(key, {{"x", i * 37 % 100}}), IsOk());
    if (i * 37 % 100 < 5) small.push_back(key);
  }
  WithIndices({{.columns = {{"x"}}}}, [&] {
    const Query query = table_->Select().Where(Column("x") < 5);
    EXPECT_EQ(Pages(query, "", 4), small);
    EXPECT_THAT(KeysOf(Query(query).Limit(2, 3)), ElementsAre(small[3], small[4]));
    EXPECT_THAT(Query(query).Limit(100, 3).Count(), IsOkAndHolds(small.size() - 3));
    EXPECT_THAT(Query(query).Limit(4, 3).Count(), IsOkAndHolds(4u));
    EXPECT_THAT(Query(query).Limit(4, 1000).Count(), IsOkAndHolds(0u));
    EXPECT_THAT(Query(query).Limit(0).Count(), IsOkAndHolds(0u));
    EXPECT_THAT(Query(query).After(small[2]).Count(), IsOkAndHolds(small.size() - 3));
    EXPECT_THAT(table_->Select().Limit(7, 498).Count(), IsOkAndHolds(2u));
  });
}

}  // namespace
}  // namespace hako
