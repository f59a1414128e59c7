// Each public call of each database as a reader of its declaration would write it: it compiles, and does what
// its name says. Null pointers and numbers in place of strings do not compile, nor do other numbers than
// integers in place of these; test/consumer/refused.cc has the mistakes whose error must say what is wrong.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/array/record_key.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/search.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transfer.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/positional_parallel_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Value = std::optional<std::string_view>;

const auto kNotFound = StatusIs(absl::StatusCode::kNotFound);
const auto kAborted = StatusIs(absl::StatusCode::kAborted);

// Accepts what a string_view would read through a null pointer, or make of a number.
template <class T>
concept TakesNullPairs = requires {
  T{nullptr, "v"};
}
|| requires { T{"k", nullptr}; }
|| requires { T{"k", 0}; };
static_assert(!TakesNullPairs<KeyValue> && !TakesNullPairs<NumberedValue>);

template <class D>
void RefuseNulls() {
  using Iterator = typename D::Iterator;
  static_assert(
      !requires(D & d) { d.Get(nullptr); } && !requires(D & d) { d.Get(nullptr, std::span<char>()); });
  static_assert(
      !requires(D & d) { d.Get("k", nullptr); } && !requires(D & d) { d.Get("k", 0); });
  static_assert(
      !requires(D & d) { d.GetOr(nullptr, "v"); } && !requires(D & d) { d.GetOr(0, "v"); });
  static_assert(
      !requires(D & d) { d.GetOr("k", nullptr); } && !requires(D & d) { d.GetOr("k", 0); });
  static_assert(
      !requires(D & d) { d.GetSize(nullptr); } && !requires(D & d) { d.GetSize(0); });
  static_assert(
      !requires(D & d) { d.Contains(nullptr); } && !requires(D & d) { d.Persist(0); });
  static_assert(
      !requires(D & d) { d.Set(nullptr, "v"); } && !requires(D & d) { d.Set("k", nullptr); });
  static_assert(
      !requires(D & d) { d.Set("k", 0); } && !requires(D & d) { d.Set("k", 'v'); } && !requires(D & d) { d.Set('k', "v"); });
  static_assert(
      !requires(D & d) { d.Set("k", nullptr, SetOptions()); } && !requires(D & d) { d.Set("k", 0, SetOptions()); });
  static_assert(
      !requires(D & d) { d.Replace(0, "v"); } && !requires(D & d) { d.Replace("k", nullptr); });
  static_assert(
      !requires(D & d) { d.Remove(nullptr); } && !requires(D & d) { d.Remove('k'); });
  static_assert(
      !requires(D & d) { d.Append(nullptr, "v"); } && !requires(D & d) { d.Append("k", 0); });
  static_assert(
      !requires(D & d) { d.Append("k", "v", nullptr); } && !requires(D & d) { d.Append("k", "v", ','); });
  static_assert(!requires(D & d) { d.CompareExchange(0, Expect::Any(), Action::Remove()); });
  static_assert(
      !requires(D & d) { d.Increment(0); } && !requires(D & d) { d.Increment("k", 1.5); });
  static_assert(
      !requires(D & d) { d.Increment("k", 'a'); } && !requires(D & d) { d.Increment("k", 1, true); });
  static_assert(
      !requires(D & d) { d.SetExpiry(0, 1); } && !requires(D & d) { d.SetExpiry("k", 1.5); });
  static_assert(
      !requires(D & d) { d.GetExpiry(nullptr); } && !requires(D & d) { d.GetExpiry(0); });
  static_assert(!requires(D & d) { d.Process(nullptr, Action::Keep()); });
  static_assert(
      !requires(D & d) { d.Rekey("k", nullptr); } && !requires(D & d) { d.Rekey(0, "k"); });
  static_assert(
      !requires(D & d) { d.PushLast(nullptr); } && !requires(D & d) { d.PushLast(0); });
  static_assert(
      !requires(D & d) { Search(d, SearchMode::kBegin, nullptr); } && !requires(D & d) { Search(d, SearchMode::kBegin, 0); });
  static_assert(
      !requires(Iterator & it) { it.Jump(nullptr); } && !requires(Iterator & it) { it.Jump('k'); });
  static_assert(
      !requires(Iterator & it) { it.Set(nullptr); } && !requires(Iterator & it) { it.Set(0); });
}

template <class D>
void RefuseNullsInOrder() {
  using Iterator = typename D::Iterator;
  static_assert(
      !requires(D & d) { d.Range(nullptr); } && !requires(D & d) { d.Range(0); } && !requires(D & d) { d.Range(0, "k"); });
  static_assert(
      !requires(D & d) { d.Range("k", nullptr); } && !requires(D & d) { d.Range("k", 0); });
  static_assert(
      !requires(D & d) { d.ReverseRange(0); } && !requires(D & d) { d.ReverseRange("k", nullptr); });
  static_assert(
      !requires(D & d) { d.PrefixRange(0); } && !requires(D & d) { d.PrefixRange('k'); });
  static_assert(
      !requires(D & d) { d.CountRange(0); } && !requires(D & d) { d.CountRange("k", nullptr); });
  static_assert(
      !requires(D & d) { d.RemoveRange(0); } && !requires(D & d) { d.RemoveRange("k", nullptr); });
  static_assert(
      !requires(Iterator & it) { it.JumpLower(nullptr); } && !requires(Iterator & it) { it.JumpUpper('k'); });
}

// Keys that are no numbers.
template <class D>
void RefuseZeros() {
  using Iterator = typename D::Iterator;
  static_assert(
      !requires(D & d) { d.Get(0); } && !requires(D & d) { d.Set(0, "v"); } && !requires(D & d) { d.Remove(0); });
  static_assert(
      !requires(D & d) { d.Contains(0); } && !requires(D & d) { d.Append(0); });
  static_assert(
      !requires(D & d) { d.Process(0, Action::Keep()); } && !requires(Iterator & it) { it.Jump(0); });
}

// Numbers of records are integers.
template <class D>
void RefuseOtherNumbers() {
  using Iterator = typename D::Iterator;
  static_assert(
      !requires(D & d) { d.Get(1.5); } && !requires(D & d) { d.Get('1'); } && !requires(D & d) { d.Get(true); });
  static_assert(
      !requires(D & d) { d.Get(1, nullptr); } && !requires(D & d) { d.Get(1.5, std::span<char>()); });
  static_assert(
      !requires(D & d) { d.Contains(1.5); } && !requires(D & d) { d.Remove(1.5); } && !requires(D & d) { d.Remove('1'); });
  static_assert(
      !requires(D & d) { d.Set(1.5, "v"); } && !requires(D & d) { d.Set('1', "v"); } && !requires(D & d) { d.Set(1, nullptr); });
  static_assert(
      !requires(D & d) { d.Set(0, 0); } && !requires(D & d) { d.Append(nullptr); } && !requires(D & d) { d.Append(0); });
  static_assert(
      !requires(D & d) { d.Process(1.5, Action::Keep()); } && !requires(D & d) { d.Process('1', Action::Keep()); });
  static_assert(
      !requires(D & d) { d.CountRange(0, 1.5); } && !requires(D & d) { d.CountRange(0, "9"); });
  static_assert(
      !requires(D & d) { d.RemoveRange(0, '9'); } && !requires(D & d) { d.RemoveRange(0, nullptr); });
  static_assert(
      !requires(Iterator & it) { it.Jump(1.5); } && !requires(Iterator & it) { it.JumpLower(1.5); });
}

template <class Batch>
void RefuseNullsInBatches() {
  static_assert(
      !requires(Batch & b) { b.Set(0, "v"); } && !requires(Batch & b) { b.Set("k", nullptr); });
  static_assert(
      !requires(Batch & b) { b.Set("k", "v", 1.5); } && !requires(Batch & b) { b.SetAppliedIndex(1.5); });
  static_assert(
      !requires(Batch & b) { b.Remove(nullptr); } && !requires(Batch & b) { b.Remove(0); });
  static_assert(
      !requires(Batch & b) { b.RemoveRange(0); } && !requires(Batch & b) { b.RemoveRange("k", nullptr); });
  static_assert(!requires(Batch & b) { b.Expect(0, Expect::Any()); });
}

template <class ActionT, class ExpectT, class AnyT>
void RefuseNullValues() {
  static_assert(
      !requires { ActionT::Set(nullptr); } && !requires { ActionT::Set(0); } && !requires { ActionT::Set("v", 1.5); });
  static_assert(!requires { ActionT::SetKeepingExpiry(0); });
  static_assert(
      !requires { ExpectT::Value(nullptr); } && !requires { ExpectT::Value(0); });
  static_assert(
      !requires { AnyT::Open(nullptr); } && !requires { AnyT::Open(0); });
}

TEST(NaturalCalls, NullsAndOtherNumbersDoNotCompile) {
  RefuseNulls<HashDBM<>>(), RefuseNulls<TreeDBM<>>(), RefuseNulls<ArrayDBM<>>(), RefuseNulls<TinyDBM<>>();
  RefuseNulls<BabyDBM<>>(), RefuseNulls<MemoryArrayDBM<>>(), RefuseNulls<AnyDBM>();
  RefuseNullsInOrder<TreeDBM<>>(), RefuseNullsInOrder<BabyDBM<>>(), RefuseNullsInOrder<AnyDBM>();
  RefuseNullsInOrder<ArrayDBM<>>(), RefuseNullsInOrder<MemoryArrayDBM<>>();
  RefuseZeros<HashDBM<>>(), RefuseZeros<TreeDBM<>>(), RefuseZeros<TinyDBM<>>(), RefuseZeros<BabyDBM<>>(), RefuseZeros<AnyDBM>();
  RefuseOtherNumbers<ArrayDBM<>>(), RefuseOtherNumbers<MemoryArrayDBM<>>();
  RefuseNullsInBatches<WriteBatch>();
  RefuseNullValues<Action, Expect, AnyDBM>();
  static_assert(sizeof(StringArg) == sizeof(std::string_view) && std::is_trivially_copyable_v<StringArg>);
  static_assert(sizeof(RecordId) == sizeof(std::uint64_t) && std::is_trivially_copyable_v<RecordId>);
}

// Of every database. Keys are numbers and values have 8 bytes, as an array wants them.
template <class D>
void UseRecords(D& db) {
  const std::string one = "1-------", two = "2-------", three = "3-------";
  EXPECT_THAT(db.Set("1", one), IsOk());
  EXPECT_THAT(db.Set(std::string("2"), two.c_str()), IsOk());
  EXPECT_THAT(db.Set("1", three, {.overwrite = false}), StatusIs(absl::StatusCode::kAlreadyExists));
  std::string old;
  EXPECT_THAT(db.Set("1", three, {.old_value = &old}), IsOk());
  EXPECT_EQ(old, one);
  EXPECT_THAT(db.Get("1"), IsOkAndHolds(three));
  EXPECT_THAT(db.Get("1", &old), IsOk());
  std::array<char, 16> buffer;
  EXPECT_THAT(db.Get("1", std::span<char>(buffer)), IsOkAndHolds(8u));
  std::vector<char> bytes(16);
  EXPECT_THAT(db.Get("1", bytes), IsOkAndHolds(8u));
  std::string seen;
  EXPECT_THAT(db.Get("1", [&](std::string_view value) { seen = value; }), IsOk());
  EXPECT_EQ(seen, three);
  EXPECT_THAT(db.GetOr("9", "none"), IsOkAndHolds("none"));
  EXPECT_THAT(db.GetSize("1"), IsOkAndHolds(8u));
  EXPECT_THAT(db.Contains("9"), IsOkAndHolds(false));
  EXPECT_THAT(db.Replace("9", one), kNotFound);
  EXPECT_THAT(db.Remove("9"), kNotFound);
  EXPECT_THAT(db.Remove("2", &old), IsOk());
  EXPECT_EQ(old, two);
  EXPECT_THAT(db.Set({"21", 1}, {two.data(), two.size()}), IsOk());
  EXPECT_THAT(db.Remove("2", nullptr), IsOk());
  const char array[16] = "2", *const pointer = array;
  const std::optional<std::string> optional = "2";
  EXPECT_THAT(db.Set(array, two), IsOk());
  EXPECT_THAT(db.Get(pointer), IsOkAndHolds(two));
  EXPECT_THAT(db.Get(*optional), IsOkAndHolds(two));
  EXPECT_THAT(db.Remove(std::string_view(*optional)), IsOk());
  EXPECT_THAT(db.CompareExchange("1", Expect::Value(three), Action::Set(one)), IsOk());
  EXPECT_THAT(db.CompareExchange("1", Expect::Value(three), Action::Remove()), kAborted);
  bool found = false;
  EXPECT_THAT(db.CompareExchange("1", Expect::Absent(), Action::Remove(), &old, &found), kAborted);
  EXPECT_TRUE(found);
  EXPECT_EQ(old, one);
  EXPECT_THAT(db.Increment("5", 3), IsOkAndHolds(3));
  EXPECT_THAT(db.Increment("5"), IsOkAndHolds(4));
  EXPECT_THAT(db.Remove("5"), IsOk());

  // Visitors.
  EXPECT_THAT(db.Process("1", [&](Value value) { seen = *value; }), IsOk());
  EXPECT_THAT(db.Process("1", [&](Value) { return Action::Set(two); }), IsOk());
  EXPECT_THAT(db.Process("1", [&](bool exists) { return exists ? Action::Keep() : Action::Set(two); }), IsOk());
  EXPECT_THAT(db.Process("1", [&](auto value) -> Action { return value ? Action::Set(one) : Action::Keep(); }), IsOk());
  EXPECT_THAT(db.Process("3", Action::Set(three)), IsOk());
  EXPECT_THAT(db.Get("1"), IsOkAndHolds(one));

  // Several records.
  const std::vector<std::string_view> keys = {"1", "3", "9"};
  int missing = 0;
  EXPECT_THAT(db.GetMulti(keys, [&](std::size_t, Value value) { missing += value ? 0 : 1; }), IsOk());
  EXPECT_EQ(missing, 1);
  std::vector<std::optional<std::string>> values(3);
  EXPECT_THAT(db.GetMulti(keys, values), IsOk());
  EXPECT_EQ(values[1], three);
  EXPECT_EQ(values[2], std::nullopt);
  EXPECT_THAT(db.SetMulti(std::vector<KeyValue>{{"10", one}, {"11", two}}), IsOk());
  EXPECT_THAT(db.RemoveMulti(std::vector<std::string_view>{"10", "99"}), kNotFound);
  EXPECT_THAT(db.ProcessMulti(keys,
                              [](std::size_t i, Value) -> std::optional<Action> {
                                if (i == 2) return std::nullopt;
                                return Action::Remove();
                              }),
              kAborted);
  EXPECT_THAT(db.ProcessMulti(keys, [](std::size_t, Value) { return Action::Keep(); }), IsOk());
  EXPECT_THAT(
      db.CompareExchangeMulti(std::vector<Exchange>{{"1", Expect::Any(), Action::Set(one)}, {"9", Expect::Absent(), Action::Keep()}}),
      IsOk());
  EXPECT_THAT(db.Rekey("11", "12"), IsOk());
  EXPECT_THAT(db.Rekey("12", "13", {.copying = true}), IsOk());
  WriteBatch batch;
  batch.Remove("12");
  batch.Remove("13");
  batch.Expect("1", Expect::Value(one));
  EXPECT_THAT(db.Write(batch), IsOk());
  EXPECT_EQ(db.Count(), 2u);

  // All records.
  int count = 0;
  EXPECT_THAT(db.ProcessEach([&](std::string_view, std::string_view) { ++count; }), IsOk());
  EXPECT_THAT(db.ProcessEach([&](auto key, auto value) { count += static_cast<int>(key.size() + value.size()) * 0; }), IsOk());
  EXPECT_EQ(count, 2);
  EXPECT_THAT(db.ProcessEachParallel(2, [](std::string_view, std::string_view) {}), IsOk());
  EXPECT_THAT(db.ProcessEachParallel(static_cast<unsigned>(-1), [](std::string_view, std::string_view) {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("threads")));
  EXPECT_THAT(db.ProcessFirst([&](std::string_view key, std::string_view) { seen = key; }), IsOk());
  std::vector<std::string> shown;
  auto it = db.MakeIterator();
  for (; it.Valid(); it.Next()) shown.emplace_back(it.key());  // without First
  EXPECT_THAT(it.status(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("First")));
  it.Next();
  EXPECT_FALSE(it.Valid());
  for (it.First(); it.Valid(); it.Next()) shown.emplace_back(it.key());
  EXPECT_THAT(shown, testing::UnorderedElementsAre("1", "3"));
  it.Next();
  EXPECT_FALSE(it.Valid());
  EXPECT_THAT(it.status(), IsOk());
  it.Jump("3");
  EXPECT_THAT(it.Set(two), IsOk());
  EXPECT_THAT(it.Process([](Value) { return Action::Keep(); }), IsOk());
  EXPECT_THAT(it.Remove(), IsOk());
  EXPECT_THAT(db.Get("3"), kNotFound);
  EXPECT_THAT(Search(db, SearchMode::kBegin, "1"), IsOkAndHolds(ElementsAre("1")));
  std::ostringstream out;
  EXPECT_THAT(Export(db, SinkOf(out)).status(), IsOk());
  std::istringstream in(out.str());
  EXPECT_EQ(Import(db, SourceOf(in)).num_records, 1u);
  ASSERT_OK_AND_ASSIGN(const auto target, TinyDBM<>::Open());
  EXPECT_THAT(db.Export(*target), IsOk());
  EXPECT_EQ(target->Count(), 1u);
  std::string key;
  EXPECT_THAT(db.PopFirst(&key), IsOk());
  EXPECT_EQ(key, "1");

  // Times: a database that keeps none refuses them.
  EXPECT_THAT(db.Set("1", one, {.ttl = std::chrono::minutes(1)}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db.SetExpiry("1", 1), StatusIs(absl::StatusCode::kFailedPrecondition));

  EXPECT_THAT(db.Verify(), IsOk());
  EXPECT_THAT(db.Clear(), IsOk());
  EXPECT_EQ(db.Count(), 0u);
  EXPECT_EQ(db.GetStats().num_records, 0u);
  EXPECT_FALSE(db.Inspect().empty());
  EXPECT_THAT(db.GetHealth(), IsOk());
  EXPECT_TRUE(db.IsWritable());
}

template <class D>
void UseTexts(D& db) {
  EXPECT_THAT(db.Append("log", "a"), IsOk());
  EXPECT_THAT(db.Append("log", "b", ","), IsOk());
  EXPECT_THAT(db.Get("log"), IsOkAndHolds("a,b"));
  EXPECT_THAT(db.AppendMulti(std::vector<KeyValue>{{"log", "c"}, {"new", "d"}}, ","), IsOk());
  EXPECT_THAT(db.Get("log"), IsOkAndHolds("a,b,c"));
  EXPECT_THAT(db.Set("", ""), IsOk());
  EXPECT_THAT(db.Get(""), IsOkAndHolds(""));
  EXPECT_THAT(db.Get(std::string_view()), IsOkAndHolds(""));
  EXPECT_THAT(db.Set("a", {}), IsOk());
  EXPECT_THAT(db.Get("a"), IsOkAndHolds(""));
  EXPECT_THAT(db.Set("a", "1\0002"), IsOk());  // a C string
  EXPECT_THAT(db.Get("a"), IsOkAndHolds("1"));
  EXPECT_THAT(db.Set("a", {"1\0002", 3}), IsOk());
  EXPECT_THAT(db.Get("a"), IsOkAndHolds(std::string("1\0002", 3)));
  EXPECT_THAT(db.PushLast("at the end"), IsOk());
  EXPECT_THAT(db.Clear(), IsOk());
}

template <class Range>
std::vector<std::string> KeysOf(Range range) {
  std::vector<std::string> keys;
  for (auto [key, value] : range) keys.emplace_back(key);
  EXPECT_THAT(range.status(), IsOk());
  return keys;
}

template <class D>
void UseOrder(D& db) {
  for (const std::string_view key : {"11", "12", "13", "14"}) ASSERT_THAT(db.Set(key, "v"), IsOk());
  EXPECT_THAT(KeysOf(db.Range()), ElementsAre("11", "12", "13", "14"));
  EXPECT_THAT(KeysOf(db.Range("12")), ElementsAre("12", "13", "14"));
  EXPECT_THAT(KeysOf(db.Range("12", "14")), ElementsAre("12", "13"));
  EXPECT_THAT(KeysOf(db.Range("14", "12")), ElementsAre());
  EXPECT_THAT(KeysOf(db.Range(std::string("1") + "2", std::string("14"))), ElementsAre("12", "13"));
  EXPECT_THAT(KeysOf(db.Range("12", std::optional<std::string>("14"))), ElementsAre("12", "13"));
  EXPECT_THAT(KeysOf(db.Range("12", std::nullopt)), ElementsAre("12", "13", "14"));
  EXPECT_THAT(KeysOf(db.Range({}, "12")), ElementsAre("11"));
  EXPECT_THAT(KeysOf(db.ReverseRange()), ElementsAre("14", "13", "12", "11"));
  EXPECT_THAT(KeysOf(db.ReverseRange("12", "14")), ElementsAre("13", "12"));
  EXPECT_THAT(db.CountRange("12", "14"), IsOkAndHolds(2u));
  auto it = db.MakeIterator();
  it.Last();
  EXPECT_EQ(it.key(), "14");
  it.JumpLower("12");
  EXPECT_EQ(it.key(), "11");
  it.JumpUpper("12");
  EXPECT_EQ(it.key(), "13");
  it.Previous();
  EXPECT_EQ(it.key(), "12");
  WriteBatch batch;
  batch.RemoveRange("11", "13");
  EXPECT_THAT(db.Write(batch), IsOk());
  EXPECT_THAT(db.RemoveRange("13"), IsOkAndHolds(2u));
  EXPECT_EQ(db.Count(), 0u);
}

template <class D>
void UseNumbers(D& db) {
  EXPECT_THAT(db.Set(7, "seven"), IsOk());
  const int id = 8;
  EXPECT_THAT(db.Set(id, "eight"), IsOk());
  EXPECT_THAT(db.Set(7, "other", {.overwrite = false}), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(db.Get(7), IsOkAndHolds(std::string("seven\0\0\0", 8)));
  std::string value;
  EXPECT_THAT(db.Get(0, &value), kNotFound);
  EXPECT_THAT(db.Contains(0), IsOkAndHolds(false));
  EXPECT_THAT(db.Append("nine"), IsOkAndHolds(9u));
  EXPECT_THAT(db.AppendMulti(std::vector<std::string_view>{"ten", "eleven"}), IsOkAndHolds(10u));
  EXPECT_THAT(db.SetMulti(std::vector<NumberedValue>{{1, "one"}, {2, "two"}}), IsOk());
  EXPECT_THAT(db.Process(1, [](Value value) { return value ? Action::Remove() : Action::Keep(); }), IsOk());
  int found = 0;
  EXPECT_THAT(db.GetMulti(std::vector<std::uint64_t>{1, 2}, [&](std::size_t, Value seen) { found += seen ? 1 : 0; }), IsOk());
  EXPECT_EQ(found, 1);
  EXPECT_THAT(db.FirstId(), IsOkAndHolds(2u));
  EXPECT_THAT(db.LastId(), IsOkAndHolds(11u));
  EXPECT_THAT(db.CountRange(7, 10), IsOkAndHolds(3u));
  EXPECT_THAT(db.RemoveRange(7, 10), IsOkAndHolds(3u));
  EXPECT_THAT(db.Remove(2), IsOk());
  for (const int number : {-1, -5}) {
    const auto refused = StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("(-"));
    EXPECT_THAT(db.Set(number, "none"), refused);
    EXPECT_THAT(db.Get(number).status(), refused);
    EXPECT_THAT(db.Get(number, &value), refused);
    EXPECT_THAT(db.Contains(number).status(), refused);
    EXPECT_THAT(db.Remove(number), refused);
    EXPECT_THAT(db.Process(number, Action::Remove()), refused);
    EXPECT_THAT(db.SetMulti(std::vector<NumberedValue>{{number, "none"}}), refused);
    EXPECT_THAT(db.CountRange(0, number).status(), refused);
    EXPECT_THAT(db.RemoveRange(0, number).status(), refused);
    EXPECT_THAT(db.RemoveRange(number, 9).status(), refused);
    auto it = db.MakeIterator();
    it.Jump(number);
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), refused);
    it.JumpLower(number, true);
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), refused);
    it.Last();
    EXPECT_EQ(it.id(), 11u);
  }
  EXPECT_THAT(db.Contains(std::size_t{10}), IsOkAndHolds(true));
  EXPECT_THAT(db.Contains(10L), IsOkAndHolds(true));
  EXPECT_THAT(db.Contains(short{10}), IsOkAndHolds(true));
  EXPECT_THAT(db.Set(10, "more than 8 bytes"), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(db.width(), 8u);
  auto it = db.MakeIterator();
  it.Jump(10);
  EXPECT_EQ(it.id(), 10u);
  EXPECT_THAT(db.Clear(), IsOk());
}

template <class D>
void UseFile(D& db, const std::string& copy) {
  EXPECT_THAT(db.Set("1", "v"), IsOk());
  EXPECT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db.WaitDurable(db.LastLsn()), IsOk());
  EXPECT_THAT(db.CopyTo(copy), IsOk());
  EXPECT_THAT(db.Rebuild(), IsOk());
  EXPECT_THAT(db.Scrub().status(), IsOk());
  EXPECT_THAT(db.SetType(5), IsOk());
  EXPECT_EQ(db.GetType(), 5u);
  EXPECT_THAT(db.SetMetadata({std::byte{1}}), IsOk());
  EXPECT_EQ(db.GetMetadata()[0], std::byte{1});
  EXPECT_THAT(db.Close(), IsOk());
}

TEST(NaturalCalls, OfAHashDBM) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(directory.File("db")));
  UseRecords(*db);
  UseTexts(*db);
  UseFile(*db, directory.File("copy"));
}

TEST(NaturalCalls, OfATreeDBM) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(directory.File("db"), {.page_size = 256}));
  UseRecords(*db);
  UseTexts(*db);
  UseOrder(*db);
  EXPECT_THAT(db->BulkLoad([i = 0](std::string_view* key, std::string_view* value) mutable { return *key = *value = "bulk", i++ == 0; }),
              IsOk());
  EXPECT_THAT(KeysOf(db->PrefixRange("bu")), ElementsAre("bulk"));
  UseFile(*db, directory.File("copy"));
}

TEST(NaturalCalls, OfAnArrayDBM) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(directory.File("db"), {.width = 8}));
  UseRecords(*db);
  UseOrder(*db);
  UseNumbers(*db);
  UseFile(*db, directory.File("copy"));
}

TEST(NaturalCalls, OfATinyDBM) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  UseRecords(*db);
  UseTexts(*db);
  EXPECT_THAT(db->Close(), IsOk());
}

TEST(NaturalCalls, OfABabyDBM) {
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = 256}));
  UseRecords(*db);
  UseTexts(*db);
  UseOrder(*db);
  EXPECT_THAT(db->Close(), IsOk());
}

TEST(NaturalCalls, OfAMemoryArrayDBM) {
  ASSERT_OK_AND_ASSIGN(auto db, MemoryArrayDBM<>::Open({.width = 8}));
  UseRecords(*db);
  UseOrder(*db);
  UseNumbers(*db);
  EXPECT_THAT(db->Close(), IsOk());
}

TEST(NaturalCalls, OfAnAnyDBM) {
  TempDir directory;
  for (const char* const name : {"a.hkh", "a.hkt", "a.hka?width=8", "a.hks", "b.hks?dbm=baby"}) {
    ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(directory.File(name)));
    UseRecords(*db);
    if (db->IsOrdered()) UseOrder(*db);
    EXPECT_THAT(db->Close(), IsOk());
  }
}

// What an option refers to may end with the expression, except what its function refers to.
TEST(NaturalCalls, OfOptions) {
  TempDir directory;
  std::filesystem::create_directory(directory.File("archive"));
  TreeOptions tree;
  tree.log_archive = directory.File("") + "archive";  // a temporary
  ASSERT_OK_AND_ASSIGN(auto archived, TreeDBM<>::Open(directory.File("db"), tree));
  EXPECT_THAT(archived->Set("1", "v"), IsOk());
  EXPECT_THAT(archived->Close(), IsOk());
  EXPECT_FALSE(std::filesystem::is_empty(directory.File("archive")));

  std::size_t evicted = 0;
  const std::string tag = "a string that is longer than any buffer within an object";
  const auto fill = [](auto& db) {
    for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(std::to_string(i), "value"), IsOk());
  };
  ASSERT_OK_AND_ASSIGN(auto tiny,
                       TinyDBM<>::Open({.capacity_records = 1000, .on_eviction = [&evicted, tag](std::string_view, std::string_view) {
                                          evicted += tag == "a string that is longer than any buffer within an object" ? 1 : 0;
                                        }}));
  fill(*tiny);
  EXPECT_EQ(evicted, tiny->GetStats().evictions);
  EXPECT_GE(evicted, 1900u);
  evicted = 0;
  ASSERT_OK_AND_ASSIGN(auto baby,
                       BabyDBM<>::Open({.capacity_records = 1000, .on_eviction = [&evicted, tag](std::string_view, std::string_view) {
                                          evicted += tag.size() > 20 ? 1 : 0;
                                        }}));
  fill(*baby);
  EXPECT_EQ(evicted, baby->GetStats().evictions);
  EXPECT_GE(evicted, 1900u);
}

TEST(NaturalCalls, OfOptionsThatHaveNoEffect) {
  TempDir directory;
  const std::string path = directory.File("db");
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(HashDBM<>::Open(path, {.log_bytes = 1}).status(), refused);
  EXPECT_THAT(HashDBM<>::Open(path, {.sync_interval = std::chrono::milliseconds(-1)}).status(), refused);
  EXPECT_THAT(HashDBM<>::Open(path, {.durability = Durability::kNone, .keep_log = true}).status(), refused);
  EXPECT_THAT(HashDBM<>::Open(path, {}, {.direct = true}).status(), refused);
  EXPECT_THAT(HashDBM<>::Open(path, {}, {.sync = true}).status(), refused);
  EXPECT_THAT(TreeDBM<>::Open(path, {.log_bytes = 1}).status(), refused);
  EXPECT_THAT(TreeDBM<>::Open(path, {.sync_interval = std::chrono::milliseconds(-1)}).status(), refused);
  EXPECT_THAT(ArrayDBM<>::Open(path, {.width = 8, .log_bytes = 1}).status(), refused);
  EXPECT_THAT(TinyDBM<>::Open({.log_bytes = 1}).status(), refused);
  EXPECT_THAT(BabyDBM<>::Open({.log_bytes = 1}).status(), refused);
  EXPECT_THAT(MemoryArrayDBM<>::Open({.width = 8, .log_bytes = 1}).status(), refused);
  // A log archive of a database that has no log.
  EXPECT_THAT(TinyDBM<>::Open({.log_archive = directory.path()}).status(), refused);
  EXPECT_THAT(BabyDBM<>::Open({.log_archive = directory.path()}).status(), refused);
  EXPECT_THAT(MemoryArrayDBM<>::Open({.width = 8, .log_archive = directory.path()}).status(), refused);
  EXPECT_THAT(AnyDBM::Open("?dbm=baby,log_archive=" + directory.path()).status(), refused);
  EXPECT_THAT(PositionalParallelFile::Open(path, {.block_size = 4096}).status(), refused);
  EXPECT_THAT(PositionalParallelFile::Open(path, {.padding = true}).status(), refused);
}

// A size of -1 is a mistake where it is not a limit that is never reached.
TEST(NaturalCalls, OfNegativeOptions) {
  TempDir directory;
  const std::string path = directory.File("db");
  const auto refused = [](const char* name) {
    return StatusIs(absl::StatusCode::kInvalidArgument, testing::AllOf(HasSubstr(name), HasSubstr("negative")));
  };
  const std::uint64_t negative = static_cast<std::uint64_t>(-1);
  HashOptions hash;
  hash.num_records = negative;
  EXPECT_THAT(HashDBM<>::Open(path, hash).status(), refused("num_records"));
  hash = {.min_read_size = negative};
  EXPECT_THAT(HashDBM<PositionalParallelFile>::Open(path, hash).status(), refused("min_read_size"));
  EXPECT_THAT(TinyDBM<>::Open({.num_records = negative}).status(), refused("num_records"));
  EXPECT_THAT(TreeDBM<>::Open(path, {.cache_bytes = negative}).status(), refused("cache_bytes"));
  EXPECT_THAT(ArrayDBM<>::Open(path, {.width = 8, .cache_bytes = negative}).status(), refused("cache_bytes"));
  EXPECT_THAT(HashDBM<>::Open(path, {}, {.lock_timeout = std::chrono::seconds(-1)}).status(), refused("lock_timeout"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Load of a snapshot that the array cannot take says which file and which record, and keeps the records.
TEST(NaturalCalls, OfLoadIntoAnArray) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto texts, TinyDBM<>::Open());
  EXPECT_THAT(texts->Set("1", "12345678"), IsOk());
  EXPECT_THAT(texts->Save(directory.File("numbers")), IsOk());
  EXPECT_THAT(texts->Set("2", "123456789"), IsOk());
  EXPECT_THAT(texts->Save(directory.File("long")), IsOk());
  EXPECT_THAT(texts->Remove("2"), IsOk());
  EXPECT_THAT(texts->Set("name", "Ada"), IsOk());
  EXPECT_THAT(texts->Save(directory.File("names")), IsOk());
  ASSERT_OK_AND_ASSIGN(auto db, MemoryArrayDBM<>::Open({.width = 8}));
  EXPECT_THAT(db->Set(7, "kept"), IsOk());
  EXPECT_THAT(db->Load(directory.File("names")),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::AllOf(HasSubstr("'name'"), HasSubstr(directory.File("names")))));
  EXPECT_THAT(db->Load(directory.File("long")), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("9 bytes")));
  EXPECT_EQ(db->Count(), 1u);
  EXPECT_THAT(db->Contains(7), IsOkAndHolds(true));
  EXPECT_THAT(db->Load(directory.File("numbers")), IsOk());
  EXPECT_THAT(db->Get(1), IsOkAndHolds("12345678"));
}

}  // namespace
}  // namespace hako
