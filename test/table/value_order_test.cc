// The order of values: a list that is written down in its order, and what each part of a table makes of it.
#include <algorithm>
#include <cstdint>
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
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kTwoTo53 = std::int64_t{1} << 53;

// Ascending; the values of one line are equal, and the first of them stands for all.
const std::vector<std::vector<Value>> kLines = {
    {Value()},
    {-kInfinity},
    {-1e300},
    {INT64_MIN, -9223372036854775808.0},
    {INT64_MIN + 1},
    {-kTwoTo53 - 1},
    {-kTwoTo53, -9007199254740992.0},
    {-2.5},
    {-1, -1.0},
    {-0.5},
    {0, 0.0, -0.0, false},
    {std::numeric_limits<double>::denorm_min()},
    {0.5},
    {1, 1.0, true},
    {2, 2.0},
    {9, 9.0},
    {36},
    {100},
    {kTwoTo53, 9007199254740992.0},
    {kTwoTo53 + 1},
    {kTwoTo53 + 2, 9007199254740994.0},
    {INT64_MAX - 1},
    {INT64_MAX},
    {9223372036854775808.0},
    {1e300},
    {kInfinity},
    {""},
    {std::string_view("\0", 1)},
    {std::string_view("\0\xff", 2)},
    {std::string_view("\1", 1)},
    {"-1"},
    {"1"},
    {"100"},
    {"36"},
    {"9"},
    {"Z"},
    {"a"},
    {std::string_view("a\0", 2)},
    {std::string_view("a\0b", 3)},
    {"a!"},
    {"ab"},
    {"true"},
    {"\xc3\xa9"},
    {"\xff"},
    {"\xff\xff"},
};

// A row for each value, and the key of a row tells the line of its value.
std::string KeyOf(std::size_t line, std::size_t i) {
  return std::string(1, static_cast<char>('a' + line / 26)) + static_cast<char>('a' + line % 26) + std::to_string(i);
}

std::unique_ptr<TableDBM> TableOfLines() {
  auto table = *TableDBM::OpenInMemory();
  for (std::size_t line = 0; line < kLines.size(); ++line) {
    for (std::size_t i = 0; i < kLines[line].size(); ++i) EXPECT_THAT(table->Put(KeyOf(line, i), {{"x", kLines[line][i]}}), IsOk());
  }
  return table;
}

// The keys of all rows whose line meets a test.
std::vector<std::string> KeysOfLines(const std::function<bool(std::size_t)>& is_wanted) {
  std::vector<std::string> keys;
  for (std::size_t line = 0; line < kLines.size(); ++line) {
    for (std::size_t i = 0; i < kLines[line].size() && is_wanted(line); ++i) keys.push_back(KeyOf(line, i));
  }
  return keys;
}

std::vector<std::string> Keys(const Query& query) {
  const auto keys = query.Keys();
  EXPECT_THAT(keys, IsOk());
  return keys.value_or(std::vector<std::string>{"failed"});
}

// Runs a test on a table without and with an index of the column.
class ValueOrderTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      ASSERT_THAT(table_->CreateIndex({.columns = {{"x"}}}), IsOk());
    }
  }
  void TearDown() override { EXPECT_THAT(table_->Verify(), IsOk()); }
  std::unique_ptr<TableDBM> table_ = TableOfLines();
};

INSTANTIATE_TEST_SUITE_P(Indices, ValueOrderTest, testing::Bool(),
                         [](const auto& one) { return std::string(one.param ? "Indexed" : "Plain"); });

TEST(ValueTest, ComparesByTheOrder) {
  for (std::size_t i = 0; i < kLines.size(); ++i) {
    for (std::size_t k = 0; k < kLines.size(); ++k) {
      for (const Value& a : kLines[i]) {
        for (const Value& b : kLines[k]) {
          EXPECT_EQ(a < b, i < k) << i << " " << k;
          EXPECT_EQ(a == b, i == k) << i << " " << k;
          EXPECT_EQ(a > b, i > k) << i << " " << k;
          EXPECT_EQ(OwnedValue(a) < OwnedValue(b), i < k) << i << " " << k;
        }
      }
    }
  }
}

TEST_P(ValueOrderTest, OrdersRows) {
  std::vector<std::string> keys = KeysOfLines([](std::size_t) { return true; });
  EXPECT_EQ(Keys(table_->Select().OrderBy("x")), keys);
  EXPECT_EQ(Keys(table_->Select().OrderBy("x").Limit(30)), std::vector<std::string>(keys.begin(), keys.begin() + 30));
  std::reverse(keys.begin(), keys.end());
  EXPECT_EQ(Keys(table_->Select().OrderBy("x", RowOrder::kDescending)), keys);
}

TEST_P(ValueOrderTest, PagesShowEachRowOnce) {
  const std::vector<std::string> all = KeysOfLines([](std::size_t) { return true; });
  for (const RowOrder order : {RowOrder::kAscending, RowOrder::kDescending, RowOrder::kNumericAscending}) {
    std::vector<std::string> keys;
    OwnedValue last;
    for (std::size_t shown = 3; shown == 3 && keys.size() <= all.size();) {
      Query page = table_->Select().OrderBy("x", order).Limit(3);
      if (!keys.empty()) page.After(std::string(keys.back()), last.get());
      shown = 0;
      ASSERT_THAT(page.Each([&](std::string_view key, const RowView& row) {
        keys.emplace_back(key);
        last = row["x"];
        return ++shown, true;
      }),
                  IsOk());
    }
    EXPECT_EQ(keys, Keys(table_->Select().OrderBy("x", order)));
    std::sort(keys.begin(), keys.end());
    EXPECT_EQ(keys, all);
  }
}

TEST_P(ValueOrderTest, ComparesWithLiterals) {
  const Column x("x");
  for (std::size_t line = 1; line < kLines.size(); ++line) {
    for (const Value& literal : kLines[line]) {
      SCOPED_TRACE(literal.ToText());
      const auto expect = [&](const Condition& condition, const std::function<bool(std::size_t)>& is_wanted) {
        const auto keys = KeysOfLines([&](std::size_t at) { return at > 0 && is_wanted(at); });
        EXPECT_EQ(Keys(table_->Select().Where(condition).OrderBy("")), keys) << condition.ToText();
        EXPECT_THAT(table_->Select().Where(condition).Count(), IsOkAndHolds(keys.size())) << condition.ToText();
        EXPECT_EQ(Keys(table_->Select().Where(condition).OrderBy("x")), keys) << condition.ToText();
        ASSERT_OK_AND_ASSIGN(const Condition parsed, ParseCondition(condition.ToText()));
        EXPECT_EQ(Keys(table_->Select().Where(parsed).OrderBy("x")), keys) << condition.ToText();
      };
      expect(x == literal, [line](std::size_t at) { return at == line; });
      expect(x != literal, [line](std::size_t at) { return at != line; });
      expect(x < literal, [line](std::size_t at) { return at < line; });
      expect(x <= literal, [line](std::size_t at) { return at <= line; });
      expect(x > literal, [line](std::size_t at) { return at > line; });
      expect(x >= literal, [line](std::size_t at) { return at >= line; });
      expect(x.Between(kLines[5][0], literal), [line](std::size_t at) { return at >= 5 && at <= line; });
      expect(x.In({literal, kLines[13][2], kLines[33][0]}), [line](std::size_t at) { return at == line || at == 13 || at == 33; });
    }
  }
  EXPECT_EQ(Keys(table_->Select().Where(x.IsNull())), KeysOfLines([](std::size_t at) { return at == 0; }));
}

TEST_P(ValueOrderTest, GroupsAndFiguresTakeEqualValuesAsOne) {
  ASSERT_OK_AND_ASSIGN(const Query::Groups groups, table_->Select().GroupBy("x"));
  ASSERT_EQ(groups.size(), kLines.size());
  std::size_t line = 0;
  for (const auto& [name, all] : groups) {
    EXPECT_EQ(name.get(), kLines[line][0]) << line;
    EXPECT_EQ(name.get().kind(), kLines[line][0].kind()) << line;
    EXPECT_EQ(name.get().ToText(), kLines[line][0].ToText()) << line;
    EXPECT_EQ(all.count, kLines[line].size()) << line;
    ++line;
  }
  ASSERT_OK_AND_ASSIGN(const Aggregates all, table_->Select().Aggregate("x"));
  EXPECT_EQ(all.min.get(), Value(-kInfinity));
  EXPECT_EQ(all.max.get(), Value("\xff\xff"));
  EXPECT_EQ(all.count, KeysOfLines([](std::size_t at) { return at > 0; }).size());
  for (std::size_t at = 1; at < kLines.size(); ++at) {  // also of equal values: the first kind
    ASSERT_OK_AND_ASSIGN(const Aggregates above, table_->Select().Where(Column("x") >= kLines[at][0]).Aggregate("x"));
    ASSERT_OK_AND_ASSIGN(const Aggregates below, table_->Select().Where(Column("x") <= kLines[at][0]).Aggregate("x"));
    for (const Value& found : {above.min.get(), below.max.get()}) {
      EXPECT_EQ(found.kind(), kLines[at][0].kind()) << at;
      EXPECT_EQ(found.ToText(), kLines[at][0].ToText()) << at;
    }
  }
}

TEST_P(ValueOrderTest, NumericIsTheNumbersOfTexts) {
  ASSERT_THAT(table_->Put("text", {{"x", "old"}}), IsOk());
  if (GetParam()) {
    ASSERT_THAT(table_->CreateIndex({.columns = {{"x", IndexKind::kNumeric}}}), IsOk());
  }
  const Column cast = Column("x").Numeric();
  const auto texts = [this](const Condition& condition) {
    std::vector<std::string> found;
    EXPECT_THAT(table_->Select().Where(condition).OrderBy("x").Each([&](std::string_view, const RowView& row) {
      found.push_back(row["x"].ToText());
      return true;
    }),
                IsOk());
    return found;
  };
  EXPECT_THAT(texts(cast.Between(9, 100)), ElementsAre("9", "9", "36", "100", "100", "36", "9"));
  EXPECT_THAT(texts(cast == "36"), ElementsAre("36", "36"));
  EXPECT_THAT(texts(cast > 1e200), ElementsAre("1e+300", "inf"));
  EXPECT_THAT(texts(cast.IsNull() && Column("x") >= "o"), ElementsAre("old", "true", "\xc3\xa9", "\xff", "\xff\xff"));
  EXPECT_THAT(texts(*ParseCondition("numeric(x) in (36, '100') and not numeric(x) < 50")), ElementsAre("100", "100"));
  EXPECT_EQ(ParseCondition("numeric(\"x y\") > 5 and numeric = 1 and numeric(key) is null")->ToText(),
            "numeric(\"x y\") > 5 and numeric = 1 and numeric(key) is null");
  std::vector<std::string> ordered;
  ASSERT_THAT(table_->Select().Where(cast.Between(2, 100)).OrderBy("x", RowOrder::kNumericDescending).Each([&](auto, const RowView& row) {
    ordered.push_back(row["x"].ToText());
    return true;
  }),
              IsOk());
  EXPECT_THAT(ordered, ElementsAre("100", "100", "36", "36", "9", "9", "9", "2", "2"));
  if (GetParam()) {
    EXPECT_THAT(table_->Select().Where(cast >= 5).Explain(), IsOkAndHolds(HasSubstr("index x:numeric: numeric(x) >= 5")));
    EXPECT_THAT(table_->Select().Where(Column("x") >= 5).Explain(), IsOkAndHolds(HasSubstr("index x: x >= 5")));
  }
}

TEST(ValueTest, UniqueColumnTakesOneOfEqualValues) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->SetColumn("x", {.unique = true}), IsOk());
  for (std::size_t line = 1; line < kLines.size(); ++line) {
    for (std::size_t i = 0; i < kLines[line].size(); ++i) {
      EXPECT_THAT(table->Put(KeyOf(line, i), {{"x", kLines[line][i]}}),
                  i == 0 ? StatusIs(absl::StatusCode::kOk) : StatusIs(absl::StatusCode::kAlreadyExists));
    }
  }
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(ValueTest, LiteralsAreOfTheTypeOfTheirColumn) {
  TableOptions options;
  options.columns = {{"i", {.type = ColumnType::kInt64}},
                     {"d", {.type = ColumnType::kDouble}},
                     {"b", {.type = ColumnType::kBool}},
                     {"s", {.type = ColumnType::kString}}};
  const auto table = *TableDBM::OpenInMemory(options);
  ASSERT_THAT(table->Put("k", {{"i", 36}, {"d", 1.5}, {"b", true}, {"s", "36"}, {"any", 36}}), IsOk());
  ASSERT_THAT(table->Put("36", {{"any", "36"}}), IsOk());
  for (const char* const index : {"", "i", "d", "b", "s", "any"}) {
    if (*index != '\0') {
      ASSERT_THAT(table->CreateIndex({.columns = {{index}}}), IsOk());
    }
    for (const char* const true_of_k : {"i = '36'",
                                        "i > '9'",
                                        "i < '100'",
                                        "i between '9' and '100'",
                                        "i in ('x', '36')",
                                        "i < 'x'",
                                        "d = '1.5'",
                                        "d < '10'",
                                        "b = 'true'",
                                        "b = '1'",
                                        "b = 1",
                                        "b > 'false'",
                                        "s = 36",
                                        "s < 4",
                                        "s in (36)",
                                        "any = 36",
                                        "any < '36'",
                                        "i = 36.0",
                                        "numeric(s) = '36'",
                                        "key > 36",
                                        "key != 36"}) {
      EXPECT_THAT(table->Select().Where(*ParseCondition(true_of_k)).Where(Key() == "k").Count(), IsOkAndHolds(1u)) << true_of_k;
    }
    EXPECT_THAT(table->Select().Where(Column("any") == 36).Keys(), IsOkAndHolds(ElementsAre("k")));
    EXPECT_THAT(table->Select().Where(Column("any") == "36").Keys(), IsOkAndHolds(ElementsAre("36")));
    EXPECT_THAT(table->Select().Where(Key() == 36).Keys(), IsOkAndHolds(ElementsAre("36")));
    EXPECT_THAT(table->Select().Where(Column("i") == "x" || Column("s") == true).Count(), IsOkAndHolds(0u));
    EXPECT_THAT(table->Select().OrderBy("i").After("36", std::nullopt).Keys(), IsOkAndHolds(ElementsAre("k")));
    EXPECT_THAT(table->Select().OrderBy("i").After("a", "36").Keys(), IsOkAndHolds(ElementsAre("k")));
    EXPECT_THAT(table->Select().OrderBy("i").After("a", "37").Keys(), IsOkAndHolds(ElementsAre()));
  }
  EXPECT_THAT(table->Verify(), IsOk());
}

// The condition of a partial index keeps its meaning when its column gets a type.
TEST(ValueTest, PartialIndexKeepsTheMeaningOfItsLiterals) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->SetColumn("i", {.type = ColumnType::kInt64}), IsOk());
  for (int i = 0; i < 20; ++i) ASSERT_THAT(table->Put("k" + std::to_string(i), {{"i", i}, {"j", i}}), IsOk());
  ASSERT_THAT(table->CreateIndex({.name = "i", .columns = {{"i"}}, .where = "i >= '10'"}), IsOk());
  ASSERT_THAT(table->CreateIndex({.name = "j", .columns = {{"j"}}, .where = "j >= '10'"}), IsOk());
  EXPECT_EQ(table->Indices()[0].options.where, "i >= 10");
  EXPECT_EQ(table->Indices()[1].options.where, "j >= '10'");
  ASSERT_THAT(table->SetColumn("j", {.type = ColumnType::kInt64}), IsOk());
  for (const char* const column : {"i", "j"}) {
    const Condition condition = *ParseCondition(std::string(column) + " >= '10'");
    EXPECT_THAT(table->Select().Where(condition && Column(column) < 15).Count(), IsOkAndHolds(5u));
  }
  EXPECT_THAT(table->Verify(), IsOk());
}

TEST(ValueTest, KeysAreOrderedAsNumbers) {
  const auto table = *TableDBM::OpenInMemory();
  for (const char* key : {"10", "9", "x", "9.5", "-1", "009"}) ASSERT_THAT(table->Put(key, {{"a", 1}}), IsOk());
  const auto query = [&](RowOrder order) { return table->Select().OrderBy("", order); };
  EXPECT_THAT(query(RowOrder::kNumericAscending).Keys(), IsOkAndHolds(ElementsAre("x", "-1", "009", "9", "9.5", "10")));
  EXPECT_THAT(query(RowOrder::kNumericDescending).Limit(3).Keys(), IsOkAndHolds(ElementsAre("10", "9.5", "9")));
  EXPECT_THAT(query(RowOrder::kNumericAscending).After("009").Limit(2).Keys(), IsOkAndHolds(ElementsAre("9", "9.5")));
  EXPECT_THAT(table->Select(*ParseStatement("select key order by key desc numeric limit 1"))->Keys(), IsOkAndHolds(ElementsAre("10")));
}

TEST(ValueTest, LiteralsOfStatementsAreExactOrRefused) {
  for (const char* const exact : {"9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616",
                                  "100000000000000000000", "0000000000000000000000000000007", "+5", "-0.0", "1e300", "inf", "-inf"}) {
    EXPECT_THAT(ParseCondition("x = " + std::string(exact)), IsOk()) << exact;
  }
  for (const char* const rounded : {"9223372036854775809", "-9223372036854775809", "18446744073709551615", "100000000000000000001"})
    EXPECT_THAT(ParseCondition("x = 1 and x < " + std::string(rounded)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("position 15: the integer is out of the range of int64")))
        << rounded;
  for (const char* const malformed : {"1e400", "1x", "-1e999", "1.2.3"})
    EXPECT_THAT(ParseCondition("x = " + std::string(malformed)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("position 5: the number is malformed, or out of the range")))
        << malformed;
  EXPECT_THAT(ParseCondition("x = -true").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a literal")));
  EXPECT_EQ((Column("x") < kInfinity && Column("x") >= -kInfinity).ToText(), "x < inf and x >= -inf");
}

TEST(ValueTest, SumIsOfNumbers) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->Put("a", {{"x", 5}}), IsOk());
  ASSERT_THAT(table->Put("b", {{"x", "7"}}), IsOk());
  ASSERT_THAT(table->Put("c", {{"x", true}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const Aggregates all, table->Select().Aggregate("x"));
  EXPECT_EQ(all.count, 3u);
  EXPECT_EQ(all.num_numbers, 2u);
  EXPECT_EQ(all.Sum().kind(), Value::Kind::kInt);
  EXPECT_EQ(all.Sum(), Value(6));
  ASSERT_THAT(table->Put("d", {{"x", 0.5}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const Aggregates more, table->Select().Aggregate("x"));
  EXPECT_EQ(more.Sum().kind(), Value::Kind::kDouble);
  EXPECT_EQ(more.Sum(), Value(6.5));
}

// An index serves `begins` only where no number and no bool has a text that begins so.
TEST(ValueTest, BeginningsOfNumbersAndBoolsAreFound) {
  const auto table = *TableDBM::OpenInMemory();
  int row = 0;
  for (const Value& value : {Value(36), Value("36"), Value(3.5), Value(-3), Value("-3"), Value(true), Value("tree"), Value(false),
                             Value("far"), Value(kInfinity), Value("inf"), Value("apple"), Value("art"), Value(1e300)})
    ASSERT_THAT(table->Put("k" + std::to_string(row++), {{"x", value}}), IsOk());
  ASSERT_THAT(table->Put("none", {}), IsOk());
  const auto counts = [&table] {
    std::vector<std::uint64_t> all;
    for (const char* const begin : {"", "3", "-", "t", "tr", "f", "i", "inf", "a", "ar", "1e", "n"})
      all.push_back(*table->Select().Where(Column("x").BeginsWith(begin)).Count());
    return all;
  };
  const std::vector<std::uint64_t> expected = {14, 3, 2, 2, 2, 2, 2, 2, 2, 1, 1, 0};
  EXPECT_EQ(counts(), expected);
  ASSERT_THAT(table->CreateIndex({.columns = {{"x"}}}), IsOk());
  EXPECT_EQ(counts(), expected);
  EXPECT_THAT(table->Select().Where(Column("x").BeginsWith("ar")).Explain(), IsOkAndHolds(HasSubstr("index x: x begins 'ar'")));
  EXPECT_THAT(table->Select().Where(Column("x").BeginsWith("t")).Explain(), IsOkAndHolds(HasSubstr("all rows")));
  ASSERT_THAT(table->SetColumn("s", {.type = ColumnType::kString}), IsOk());
  ASSERT_THAT(table->CreateIndex({.columns = {{"s"}}}), IsOk());
  EXPECT_THAT(table->Select().Where(Column("s").BeginsWith("t")).Explain(), IsOkAndHolds(HasSubstr("index s: s begins 't'")));
}

// A pattern may cut a character: its q-grams are those of the characters that it has whole.
TEST(ValueTest, QGramsOfCutCharactersLoseNoRow) {
  const std::string texts[] = {
      "\xc3\xa9"
      "abc",
      "abc\xc3\xa9",
      "x\xe2\x82\xac"
      "yz\xe2\x82\xac\xe2\x82\xac",
      "\xa9"
      "abc",
      "abc\xc3",
      "\xf0\x9f\x98\x80\xf0\x9f\x98\x80"
      "a",
      "\x80\x80\x80\x80",
      "a\x80\x80\x80z\xf0\x9f\x98"};
  for (const unsigned q : {1u, 2u, 3u}) {
    const auto table = *TableDBM::OpenInMemory();
    for (std::size_t i = 0; i < std::size(texts); ++i) ASSERT_THAT(table->Put("k" + std::to_string(i), {{"x", texts[i]}}), IsOk());
    ASSERT_THAT(table->CreateIndex({.columns = {{"x", IndexKind::kQGram}}, .q = q}), IsOk());
    for (const std::string& text : texts) {
      for (std::size_t begin = 0; begin < text.size(); ++begin) {
        for (std::size_t size = 1; size <= text.size() - begin; ++size) {
          const std::string part = text.substr(begin, size);
          std::uint64_t contains = 0, begins = 0, ends = 0;
          for (const std::string& other : texts) {
            contains += other.find(part) != other.npos ? 1u : 0u;
            begins += other.starts_with(part) ? 1u : 0u;
            ends += other.ends_with(part) ? 1u : 0u;
          }
          EXPECT_THAT(table->Select().Where(Column("x").Contains(part)).Count(), IsOkAndHolds(contains)) << part;
          EXPECT_THAT(table->Select().Where(Column("x").BeginsWith(part)).Count(), IsOkAndHolds(begins)) << part;
          EXPECT_THAT(table->Select().Where(Column("x").EndsWith(part)).Count(), IsOkAndHolds(ends)) << part;
        }
      }
    }
    EXPECT_THAT(table->Select().Where(Column("x").Contains("abc\xc3")).Explain(), IsOkAndHolds(HasSubstr("index x:qgram")));
  }
}

TEST(ValueTest, SearchIsFalseWithoutTheColumn) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->Put("has", {{"t", "a b"}}), IsOk());
  ASSERT_THAT(table->Put("lacks", {{"u", 1}}), IsOk());
  const auto keys = [&table](const char* expression) { return *table->Select().Where(Column("t").Search(expression)).Keys(); };
  for (const bool is_indexed : {false, true}) {
    if (is_indexed) {
      ASSERT_THAT(table->CreateIndex({.columns = {{"t", IndexKind::kToken}}}), IsOk());
    }
    EXPECT_THAT(keys("-x"), ElementsAre("has"));
    EXPECT_THAT(keys("-\"b a\" -y"), ElementsAre("has"));
    EXPECT_THAT(keys("z | -x"), ElementsAre("has"));
    EXPECT_THAT(keys("-a"), ElementsAre());
    EXPECT_THAT(keys("a -x"), ElementsAre("has"));
    EXPECT_THAT(table->Select().Where(!Column("t").Search("-x")).Keys(), IsOkAndHolds(ElementsAre("lacks")));
  }
}

}  // namespace
}  // namespace hako
