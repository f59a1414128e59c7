// What converts to a value, and what does not compile; integers that no int64 is; texts without a type.
#include "hako/table/value.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/table/table_dbm.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using testing::HasSubstr;
using Kind = Value::Kind;

template <class T>
constexpr bool kConverts = std::is_convertible_v<T, Value>;
enum Plain { kOne };
enum class Scoped { kOne };

// Numbers of any size, texts, bytes, and what may be absent.
static_assert(kConverts<signed char> && kConverts<unsigned char> && kConverts<short> && kConverts<unsigned> && kConverts<long> &&
              kConverts<long long> && kConverts<unsigned long> && kConverts<unsigned long long> && kConverts<std::size_t>);
static_assert(kConverts<float> && kConverts<double> && kConverts<bool> && kConverts<std::nullopt_t>);
static_assert(kConverts<const char*> && kConverts<char*> && kConverts<const char (&)[3]> && kConverts<char (&)[3]> &&
              kConverts<std::string> && kConverts<const std::string&> && kConverts<std::string_view>);
static_assert(kConverts<std::span<const std::byte>> && kConverts<std::span<std::byte>> && kConverts<std::vector<std::byte>> &&
              kConverts<std::array<std::byte, 4>>);
static_assert(kConverts<std::optional<int>> && kConverts<std::optional<std::string>> && kConverts<std::optional<std::uint64_t>> &&
              kConverts<std::optional<Value>>);
// Neither numbers nor texts: they would be stored as something else.
static_assert(!kConverts<char> && !kConverts<wchar_t> && !kConverts<char8_t> && !kConverts<char16_t> && !kConverts<char32_t>);
static_assert(!kConverts<long double> && !kConverts<Plain> && !kConverts<Scoped> && !kConverts<std::byte>);
static_assert(!kConverts<std::nullptr_t> && !kConverts<void*> && !kConverts<const void*> && !kConverts<int*> && !kConverts<Value*> &&
              !kConverts<const unsigned char*> && !kConverts<const wchar_t*> && !kConverts<const char8_t*>);
static_assert(!kConverts<std::unique_ptr<int>> && !kConverts<std::optional<char>> && !kConverts<std::optional<long double>> &&
              !kConverts<std::optional<const void*>> && !kConverts<std::vector<int>> && !kConverts<std::vector<bool>::reference>);
static_assert(!std::is_constructible_v<Value, char> && !std::is_constructible_v<Value, Plain> && !std::is_constructible_v<Value, void*> &&
              !std::is_constructible_v<Value, long double> && !std::is_constructible_v<Value, std::nullptr_t>);
static_assert(Value(std::uint64_t{7}).kind() == Kind::kInt && Value(std::uint64_t{INT64_MAX}).int_value() == INT64_MAX);
static_assert(Value(std::uint64_t{1} << 63).exceeds_int64() && Value(UINT64_MAX).exceeds_int64() && !Value(INT64_MIN).exceeds_int64());
static_assert(Value(true).kind() == Kind::kBool && Value(1.5f).double_value() == 1.5);
static_assert(sizeof(Value) == 32);

// Strings of a table are made of neither null pointers nor numbers, and numbers of rows are integers.
template <class Table, class Batch, class Q, class C, class R, class V>
void RefuseNulls() {
  static_assert(
      !requires(Table & t) { t.Get(0); } && !requires(Table & t) { t.Get(nullptr); } && !requires(Table & t) { t.Get("k", nullptr); });
  static_assert(
      !requires(Table & t) { t.Put(0, {}); } && !requires(Table & t) { t.Remove(0); } && !requires(Table & t) { t.Contains(0); });
  static_assert(
      !requires(Table & t) { t.SetColumn(nullptr, ColumnOptions()); } && !requires(Table & t) { t.DropIndex(0); });
  static_assert(!requires(Table & t) { t.FindColumn(nullptr); });
  static_assert(
      !requires(Batch & b) { b.Put(nullptr, {}); } && !requires(Batch & b) { b.Remove(0); });
  static_assert(
      !requires(Q & q) { q.OrderBy(0); } && !requires(Q & q) { q.After(nullptr); } && !requires(Q & q) { q.Aggregate(0); });
  static_assert(
      !requires(Q & q) { q.GroupBy(0); } && !requires(Q & q) { q.GroupBy("c", nullptr); });
  static_assert(
      !requires(Q & q) { q.Limit(2.5); } && !requires(Q & q) { q.Limit('2'); } && !requires(Q & q) { q.InBatches(0.5); });
  static_assert(
      !requires { C(0); } && !requires { C(nullptr); } && !requires(C & c) { c.Contains(0); });
  static_assert(
      !requires(C & c) { c.BeginsWith('a'); } && !requires(C & c) { c.EndsWith(nullptr); } && !requires(C & c) { c.Matches(0); });
  static_assert(
      !requires(C & c) { c.Search(nullptr); } && !requires(C & c) { c.HasAll(0); } && !requires(C & c) { c == nullptr; });
  static_assert(
      !requires(R & r) { r[0]; } && !requires(R & r) { r[nullptr]; } && !requires(R & r) { r.Get(0); });
  static_assert(
      !requires { V::Untyped(0); } && !requires { V::Untyped(nullptr); });
}
template <class T>
concept TakesNullColumns = requires {
  T{0, 5};
}
|| requires { T{nullptr, 5}; }
|| requires { T{"c", nullptr}; };
static_assert(!TakesNullColumns<Cell>);

TEST(ValueConversionTest, NullsDoNotCompile) {
  RefuseNulls<TableDBM, TableBatch, Query, Column, RowView, Value>();
  RefuseNulls<TableDBM, TableBatch, Query, Column, Row, Value>();
}

// The name of the primary key in statements is no column of a condition, where it would hold for no row.
TEST(ValueConversionTest, ColumnOfTheNameOfTheKeyIsRefused) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->Put("ada", {{"age", 36}}), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Key()"));
  EXPECT_THAT(table->Select().Where(Column("key") == "ada").Keys().status(), refused);
  EXPECT_THAT(table->Select().Where(Column("age") == 36 && !(Column("key") == "bob")).Count().status(), refused);
  EXPECT_THAT(table->Select().Where(Column("key") == "ada").Remove().status(), refused);
  EXPECT_THAT(table->Select().OrderBy("key").Keys().status(), refused);
  EXPECT_THAT(table->Select().Aggregate("key").status(), refused);
  EXPECT_THAT(table->Select().GroupBy("key").status(), refused);
  EXPECT_THAT(table->Select().GroupBy("age", "key").status(), refused);
  EXPECT_THAT(table->Select().Where(Key() == "ada").OrderBy("").Keys(), IsOkAndHolds(testing::ElementsAre("ada")));
  EXPECT_THAT(table->Select(*ParseStatement("select * where key = 'ada' order by key"))->Keys(), IsOkAndHolds(testing::ElementsAre("ada")));
}

TEST(ValueConversionTest, KeepsWhatItIsMadeOf) {
  const std::vector<std::byte> bytes = {std::byte{0}, std::byte{0xff}};
  EXPECT_EQ(Value(bytes).bytes(), std::string_view("\0\xff", 2));
  EXPECT_EQ(Value(std::span<const std::byte>(bytes)).bytes(), std::string_view("\0\xff", 2));
  EXPECT_TRUE(Value(std::optional<int>()).is_null());
  EXPECT_EQ(Value(std::optional<int>(3)).int_value(), 3);
  const std::optional<std::string> text = "a";
  EXPECT_EQ(Value(text).bytes(), "a");
  EXPECT_EQ(Value("a\0b").bytes(), "a");  // a C string
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(Value("a\0b"sv).bytes(), "a\0b"sv);
  const char unterminated[] = {'a', 'b'};
  EXPECT_EQ(Value(unterminated).bytes(), "ab");
  char buffer[8] = "abc";
  EXPECT_EQ(Value(buffer).bytes(), "abc");
  EXPECT_EQ(OwnedValue(buffer).get().bytes(), "abc");
  EXPECT_EQ(OwnedValue(std::string(100, 'x')).get().bytes(), std::string(100, 'x'));
}

TEST(ValueConversionTest, UnsignedIntegersAreExactOrRefused) {
  const auto table = *TableDBM::OpenInMemory();
  const std::uint64_t id = 9007199254740993u, greatest = INT64_MAX, above = greatest + 1, all_bits = UINT64_MAX;
  const std::size_t size = 7;
  ASSERT_THAT(table->Put("k", {{"id", id}, {"greatest", greatest}, {"size", size}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const Row row, table->Get("k"));
  EXPECT_EQ(row["id"].ToText(), "9007199254740993");
  EXPECT_EQ(row["greatest"].ToText(), "9223372036854775807");
  EXPECT_EQ(row["size"].kind(), Kind::kInt);
  EXPECT_THAT(table->Select().Where(Column("id") == id).Count(), IsOkAndHolds(1u));
  EXPECT_THAT(table->Select().Where(Column("id") == id - 1).Count(), IsOkAndHolds(0u));
  for (const std::uint64_t number : {above, all_bits}) {
    const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("exceeds int64"));
    EXPECT_THAT(table->Put("k", {{"id", number}}), is_refused);
    EXPECT_THAT(table->Update("k", {{"id", number}}), is_refused);
    EXPECT_THAT(table->Append("k", {{"id", number}}), is_refused);
    EXPECT_THAT(table->Append("new", {{"id", number}}), is_refused);
    TableBatch batch;
    batch.Put("k", {{"id", number}});
    EXPECT_THAT(table->Write(batch), is_refused);
    EXPECT_THAT(table->Select().Update({{"id", number}}), is_refused);
    EXPECT_THAT(table->SetColumn("d", {.default_value = number}), is_refused);
    EXPECT_THAT(table->Select().Where(Column("id") == number).Count(), is_refused);
    EXPECT_THAT(table->Select().Where(Column("id").In({1, number})).Count(), is_refused);
    EXPECT_THAT(table->Select().OrderBy("id").After("k", number).Count(), is_refused);
  }
  EXPECT_EQ(table->Get("k")->Get("id").ToText(), "9007199254740993");
  EXPECT_THAT(table->Append("k", {{"id", std::numeric_limits<double>::quiet_NaN()}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NaN")));
  EXPECT_THAT(table->Count(), IsOkAndHolds(1u));
}

TEST(ValueConversionTest, DefaultOwnsItsText) {
  TableOptions options;
  options.columns = {{"s", {.default_value = std::string(100, 'x')}}, {"n", {.default_value = 7}}};
  const auto table = *TableDBM::OpenInMemory(options);
  ASSERT_THAT(table->Put("k", {}), IsOk());
  EXPECT_EQ(table->Get("k")->Get("s"), Value(std::string(100, 'x')));
  EXPECT_EQ(table->Get("k")->Get("n"), Value(7));
}

TEST(ValueConversionTest, UntypedTextOfANumberIsStoredAsTheNumber) {
  const auto table = *TableDBM::OpenInMemory();
  ASSERT_THAT(table->SetColumn("s", {.type = ColumnType::kString}), IsOk());
  ASSERT_THAT(table->SetColumn("i", {.type = ColumnType::kInt64}), IsOk());
  for (const char* const text : {"0", "7", "-7", "9223372036854775807", "-9223372036854775808"}) {
    ASSERT_THAT(table->Put("k", {{"x", Value::Untyped(text)}, {"s", Value::Untyped(text)}, {"i", Value::Untyped(text)}}), IsOk());
    ASSERT_OK_AND_ASSIGN(const Row row, table->Get("k"));
    EXPECT_EQ(row["x"].kind(), Kind::kInt) << text;
    EXPECT_EQ(row["x"].ToText(), text);
    EXPECT_EQ(row["s"].kind(), Kind::kBytes) << text;
    EXPECT_EQ(row["i"].kind(), Kind::kInt) << text;
  }
  for (const char* const text : {"0.5", "-0.5", "1e+20", "1e-05", "5e-324", "9223372036854775808", "-0", "1.7976931348623157e+308"}) {
    ASSERT_THAT(table->Put("k", {{"x", Value::Untyped(text)}}), IsOk());
    EXPECT_EQ(table->Get("k")->Get("x").kind(), Kind::kDouble) << text;
    EXPECT_EQ(table->Get("k")->Get("x").ToText(), text);
  }
  for (const char* const text : {"",
                                 "007",
                                 "1.50",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "1e20",
                                 "1e400",
                                 "1e-400",
                                 "inf",
                                 "nan",
                                 "0x10",
                                 "1.",
                                 ".5",
                                 "12a",
                                 "true",
                                 "9223372036854775809",
                                 "100000000000000000000",
                                 "1,5",
                                 "-"}) {
    ASSERT_THAT(table->Put("k", {{"x", Value::Untyped(text)}}), IsOk());
    EXPECT_EQ(table->Get("k")->Get("x").kind(), Kind::kBytes) << text;
    EXPECT_EQ(table->Get("k")->Get("x").ToText(), text);
  }
  TableBatch batch;
  batch.Put("b", {{"x", Value::Untyped("36")}, {"t", "36"}});
  ASSERT_THAT(table->Write(batch), IsOk());
  EXPECT_EQ(table->Get("b")->Get("x").kind(), Kind::kInt);
  EXPECT_EQ(table->Get("b")->Get("t").kind(), Kind::kBytes);
  ASSERT_THAT(table->Append("b", {{"x", Value::Untyped("5")}, {"t", "5"}}), IsOk());
  EXPECT_EQ(table->Get("b")->Get("x"), Value(365));
  EXPECT_EQ(table->Get("b")->Get("t"), Value("365"));
  EXPECT_THAT(table->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
