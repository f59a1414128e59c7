// Every DBM under one thread: the operations of operations.h with their edge cases, the forms of a
// visitor, iteration, growth, and values that change their size. For threads see
// concurrent_dbm_conformance.h.
//
// A suite is instantiated with a Surroundings: a default-constructible class that owns what one
// database lives in (a directory, the bytes of a memory file) and provides
//   using Database = ...;
//   StatusOr<std::unique_ptr<Database>> Open(std::uint64_t num_records = 0)   an empty database; num_records is its option of that name
// Every test ends with Verify() and Close().
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {

template <class Surroundings>
class DBMConformance : public testing::Test {
 protected:
  using Database = typename Surroundings::Database;

  void SetUp() override { OpenWith(0); }

  void TearDown() override {
    if (db_ == nullptr) return;
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_THAT(db_->Close(), IsOk());
  }

  void OpenWith(std::uint64_t num_records) {
    auto opened = surroundings_.Open(num_records);
    ASSERT_THAT(opened.status(), IsOk());
    db_ = *std::move(opened);
  }

  // Checks that the database has exactly `records`, by every way of reading.
  void ExpectHolds(const Records& records) {
    EXPECT_EQ(db_->Count(), records.size());
    std::string found;
    for (const auto& [key, value] : records) {
      ASSERT_THAT(db_->Get(key, &found), IsOk()) << testing::PrintToString(key);
      ASSERT_TRUE(found == value) << "key " << testing::PrintToString(key) << ": " << found.size() << " bytes, not " << value.size();
    }
    EXPECT_TRUE(ListByIterator(*db_).records == records);
    EXPECT_TRUE(ListByProcessEach(*db_).records == records);
  }

  void SetAll(std::initializer_list<std::pair<std::string_view, std::string_view>> records) {
    for (const auto& [key, value] : records) ASSERT_THAT(db_->Set(key, value), IsOk());
  }

  Surroundings surroundings_;  // outlives the database
  std::unique_ptr<Database> db_;
};

TYPED_TEST_SUITE_P(DBMConformance);

TYPED_TEST_P(DBMConformance, IsEmptyAtFirst) {
  auto& db = *this->db_;
  this->ExpectHolds({});
  std::string value;
  EXPECT_THAT(db.Get("absent", &value), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Remove("absent"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Replace("absent", "value"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(db.Get("absent", &value).message().empty()) << "a message would cost an allocation";
  auto it = db.MakeIterator();
  EXPECT_FALSE(it.Valid());
  it.Jump("absent");
  EXPECT_FALSE(it.Valid());
  EXPECT_THAT(it.status(), IsOk());
}

TYPED_TEST_P(DBMConformance, GetReturnsTheValueInEveryForm) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", "0123456789"), IsOk());
  std::string value(100, '?');
  const char* const buffer = value.data();
  ASSERT_THAT(db.Get("key", &value), IsOk());
  EXPECT_EQ(value, "0123456789");
  EXPECT_EQ(value.data(), buffer) << "the capacity is reused";
  EXPECT_THAT(db.Get("key"), IsOkAndHolds("0123456789"));

  std::array<char, 12> span{};
  EXPECT_THAT(db.Get("key", std::span<char>(span)), IsOkAndHolds(10u));
  EXPECT_EQ(std::string_view(span.data(), span.size()), std::string_view("0123456789\0\0", 12));
  span.fill('x');
  EXPECT_THAT(db.Get("key", std::span<char>(span).first(10)), IsOkAndHolds(10u));
  EXPECT_EQ(std::string_view(span.data(), span.size()), "0123456789xx");
  span.fill('x');
  EXPECT_THAT(db.Get("key", std::span<char>(span).first(9)), IsOkAndHolds(10u));
  EXPECT_EQ(std::string_view(span.data(), span.size()), "xxxxxxxxxxxx") << "a value that does not fit is not copied in part";

  int calls = 0;
  EXPECT_THAT(db.Get("key",
                     [&](std::string_view shown) {
                       ++calls;
                       EXPECT_EQ(shown, "0123456789");
                     }),
              IsOk());
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(db.GetOr("key", "fallback"), IsOkAndHolds("0123456789"));
  EXPECT_THAT(db.GetSize("key"), IsOkAndHolds(10u));
  EXPECT_THAT(db.Contains("key"), IsOkAndHolds(true));
}

TYPED_TEST_P(DBMConformance, GetOfAbsentKeyInEveryFormReturnsNotFound) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", "value"), IsOk());
  std::array<char, 4> span{};
  EXPECT_THAT(db.Get("kez").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Get("kez", std::span<char>(span)).status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Get("kez", [](std::string_view) { ADD_FAILURE() << "shown an absent record"; }), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.GetOr("kez", "fallback"), IsOkAndHolds("fallback"));
  EXPECT_THAT(db.GetSize("kez").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Contains("kez"), IsOkAndHolds(false));
}

TYPED_TEST_P(DBMConformance, SetOverwritesByDefault) {
  auto& db = *this->db_;
  std::string old = "untouched";
  EXPECT_THAT(db.Set("key", "1", {.overwrite = false, .old_value = &old}), IsOk());
  EXPECT_EQ(old, "untouched");
  EXPECT_THAT(db.Set("key", "22", {.old_value = &old}), IsOk());
  EXPECT_EQ(old, "1");
  EXPECT_THAT(db.Set("key", "333", {.overwrite = false, .old_value = &old}), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(old, "22");
  EXPECT_THAT(db.Set("key", "333", {.overwrite = false}), StatusIs(absl::StatusCode::kAlreadyExists));
  this->ExpectHolds({{"key", "22"}});
  EXPECT_THAT(db.Set("key", "4444"), IsOk());
  EXPECT_THAT(db.Replace("key", "55555"), IsOk());
  this->ExpectHolds({{"key", "55555"}});
}

TYPED_TEST_P(DBMConformance, RemoveReturnsTheOldValue) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  std::string old = "untouched";
  EXPECT_THAT(db.Remove("d", &old), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(old, "untouched");
  EXPECT_THAT(db.Remove("b", &old), IsOk());
  EXPECT_EQ(old, "2");
  EXPECT_THAT(db.Remove("b"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Remove("a"), IsOk());
  this->ExpectHolds({{"c", "3"}});
  EXPECT_THAT(db.Set("b", "again"), IsOk());
  this->ExpectHolds({{"b", "again"}, {"c", "3"}});
}

TYPED_TEST_P(DBMConformance, AppendInsertsTheDelimiter) {
  auto& db = *this->db_;
  EXPECT_THAT(db.Append("list", "one", ","), IsOk());
  EXPECT_THAT(db.Append("list", "two", ","), IsOk());
  EXPECT_THAT(db.Append("list", "", ","), IsOk());
  EXPECT_THAT(db.Append("plain", ""), IsOk());
  EXPECT_THAT(db.Append("plain", "xy"), IsOk());
  EXPECT_THAT(db.Append("plain", "z"), IsOk());
  std::string long_value;
  for (int i = 0; i < 300; ++i) {
    EXPECT_THAT(db.Append("long", "0123456789"), IsOk());
    long_value += "0123456789";
  }
  this->ExpectHolds({{"list", "one,two,"}, {"plain", "xyz"}, {"long", long_value}});
}

TYPED_TEST_P(DBMConformance, CompareExchangeActsOnlyIfTheRecordIsAsExpected) {
  auto& db = *this->db_;
  const std::pair<Expect, const char*> expectations[] = {
      {Expect::Absent(), "absent"}, {Expect::Any(), "any"}, {Expect::Value("same"), "same"}, {Expect::Value(""), "empty"}};
  const std::pair<Action, const char*> desires[] = {{Action::Keep(), "keep"}, {Action::Remove(), "remove"}, {Action::Set("new"), "set"}};
  for (const std::optional<std::string>& before : {std::optional<std::string>(), std::optional<std::string>("same"),
                                                   std::optional<std::string>("other"), std::optional<std::string>("")}) {
    for (const auto& [expected, expected_name] : expectations) {
      for (const auto& [desired, desired_name] : desires) {
        SCOPED_TRACE(testing::Message() << "record " << before.value_or("(absent)") << ", expected " << expected_name << ", "
                                        << desired_name);
        ASSERT_THAT(db.Clear(), IsOk());
        if (before) {
          ASSERT_THAT(db.Set("key", *before), IsOk());
        }
        std::string actual = "of another call";
        bool found = !before.has_value();
        const Status status = db.CompareExchange("key", expected, desired, &actual, &found);
        EXPECT_EQ(found, before.has_value());
        EXPECT_EQ(actual, before.value_or(""));
        const bool holds = expected.Holds(before);
        EXPECT_EQ(status.code(), holds ? absl::StatusCode::kOk : absl::StatusCode::kAborted);
        Records after;
        if (before) after["key"] = *before;
        if (holds && desired.kind() == Action::Kind::kRemove) after.clear();
        if (holds && desired.kind() == Action::Kind::kSet) after["key"] = "new";
        this->ExpectHolds(after);
      }
    }
  }
}

TYPED_TEST_P(DBMConformance, IncrementCountsInEightBigEndianBytes) {
  auto& db = *this->db_;
  EXPECT_THAT(db.Increment("n"), IsOkAndHolds(1));
  EXPECT_THAT(db.Increment("n", 0x0102030405060708 - 1), IsOkAndHolds(0x0102030405060708));
  EXPECT_THAT(db.Get("n"), IsOkAndHolds("\x01\x02\x03\x04\x05\x06\x07\x08"));
  EXPECT_THAT(db.Increment("n", -0x0102030405060708 - 1), IsOkAndHolds(-1));
  EXPECT_THAT(db.Get("n"), IsOkAndHolds(std::string(8, '\xFF')));
  EXPECT_THAT(db.Increment("m", 5, 100), IsOkAndHolds(105));
  EXPECT_THAT(db.Increment("m", 0, 100), IsOkAndHolds(105));
  const std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(db.Increment("high", 0, highest), IsOkAndHolds(highest));
  EXPECT_THAT(db.Increment("high", 1).status(), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(db.Increment("high", 0), IsOkAndHolds(highest));
  EXPECT_THAT(db.Increment("new", 1, highest).status(), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(db.Contains("new"), IsOkAndHolds(false));
  EXPECT_THAT(db.Increment("low", 0, -highest - 1), IsOkAndHolds(-highest - 1));
  EXPECT_THAT(db.Increment("low", -1).status(), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_THAT(db.Set("text", "1234567"), IsOk());
  EXPECT_THAT(db.Increment("text").status(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(db.Get("text"), IsOkAndHolds("1234567"));
}

TYPED_TEST_P(DBMConformance, ProcessCarriesOutTheVisitorsAction) {
  auto& db = *this->db_;
  const auto update = [&](std::string_view key, std::optional<std::string_view> expected, Action action) {
    int calls = 0;
    EXPECT_THAT(db.Process(key,
                           [&](std::optional<std::string_view> value) {
                             ++calls;
                             EXPECT_EQ(value, expected);
                             return action;
                           }),
                IsOk());
    EXPECT_EQ(calls, 1);
  };
  const auto blind = [&](std::string_view key, bool expected, Action action) {
    int calls = 0;
    EXPECT_THAT(db.Process(key,
                           [&](bool exists) {
                             ++calls;
                             EXPECT_EQ(exists, expected);
                             return action;
                           }),
                IsOk());
    EXPECT_EQ(calls, 1);
  };
  const auto read = [&](std::string_view key, std::optional<std::string_view> expected) {
    int calls = 0;
    EXPECT_THAT(db.Process(key,
                           [&](std::optional<std::string_view> value) -> void {
                             ++calls;
                             EXPECT_EQ(value, expected);
                           }),
                IsOk());
    EXPECT_EQ(calls, 1);
  };
  read("k", std::nullopt);
  update("k", std::nullopt, Action::Keep());
  update("k", std::nullopt, Action::Remove());
  blind("k", false, Action::Keep());
  blind("k", false, Action::Remove());
  this->ExpectHolds({});
  update("k", std::nullopt, Action::Set("v1"));
  read("k", "v1");
  update("k", "v1", Action::Keep());
  update("k", "v1", Action::Set("v22"));
  blind("k", true, Action::Set("v3"));
  blind("k", true, Action::Keep());
  this->ExpectHolds({{"k", "v3"}});
  update("k", "v3", Action::Remove());
  this->ExpectHolds({});
  blind("k", false, Action::Set(""));
  update("k", "", Action::Set("v"));
  blind("k", true, Action::Remove());
  read("k", std::nullopt);
}

TYPED_TEST_P(DBMConformance, KeepsEmptyAndBinaryKeysAndValues) {
  using namespace std::string_view_literals;
  auto& db = *this->db_;
  const Records records = {{"", "of the empty key"},
                           {"empty value", ""},
                           {std::string("\0"sv), "one NUL"},
                           {std::string("\0\0"sv), std::string("\0"sv)},
                           {std::string("a\0b"sv), "1"},
                           {std::string("a\0c"sv), "2"},
                           {"a", "3"},
                           {"\xFF\xFF", std::string("\xFF\0\xFF"sv)},
                           {"a\n", "\r\n"}};
  for (const auto& [key, value] : records) ASSERT_THAT(db.Set(key, value), IsOk());
  this->ExpectHolds(records);
  ASSERT_THAT(db.Set("", ""), IsOk());
  EXPECT_THAT(db.Get(""), IsOkAndHolds(""));
  EXPECT_THAT(db.Contains(""), IsOkAndHolds(true));
  for (const auto& [key, value] : records) EXPECT_THAT(db.Remove(key), IsOk());
  this->ExpectHolds({});
}

TYPED_TEST_P(DBMConformance, KeepsEveryCombinationOfSmallSizes) {
  auto& db = *this->db_;
  Records records;
  const auto set = [&](std::size_t key_size, std::size_t value_size) {
    std::string key = CheckedValue("key", key_size, value_size);
    std::string value = CheckedValue(key, value_size);
    ASSERT_THAT(db.Set(key, value), IsOk());
    records[key] = value;
  };
  for (std::size_t key_size = 0; key_size <= 40; ++key_size)
    for (std::size_t value_size = 0; value_size <= 40; ++value_size) set(key_size, value_size);
  for (std::size_t size = 100; size <= 300; ++size) set(8, size), set(size, 8);  // around the steps of size classes and varints
  for (std::size_t around : {1024u, 2048u, 3072u, 4096u, 8192u, 16384u, 32768u, 65536u})
    for (std::size_t size = around - 20; size <= around + 4; ++size) set(16, size);
  this->ExpectHolds(records);
}

TYPED_TEST_P(DBMConformance, KeepsLargeKeysAndValues) {
  auto& db = *this->db_;
  Records records;
  for (const std::size_t key_size : {std::size_t{1}, std::size_t{4096}, std::size_t{64} << 10, std::size_t{1} << 20}) {
    if (key_size > LongestKeyOf<typename TypeParam::Database>()) continue;
    for (const std::size_t value_size : {std::size_t{0}, std::size_t{100} << 10, std::size_t{1} << 20, std::size_t{5} << 20}) {
      const std::string key = CheckedValue("large", key_size, value_size);
      records[key] = CheckedValue(key, value_size, 1);
      ASSERT_THAT(db.Set(key, records[key]), IsOk());
    }
  }
  this->ExpectHolds(records);
  Random random(1);
  for (auto& [key, value] : records) {  // each gets another size, some of them tiny
    value = CheckedValue(key, random.SkewedSize(21), 2);
    ASSERT_THAT(db.Set(key, value), IsOk());
  }
  this->ExpectHolds(records);
  for (const auto& [key, value] : records) ASSERT_THAT(db.Remove(key), IsOk());
  this->ExpectHolds({});
}

TYPED_TEST_P(DBMConformance, RefusesKeysAndValuesBeyondTheLimits) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", "value"), IsOk());
  const std::size_t size = std::size_t{kValueSizeMax} + 1;  // pages of the kernel's one page of zeros: no memory is used
  void* const zeros = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const std::string_view long_value(static_cast<const char*>(zeros), size);
  const std::string_view long_key = long_value.substr(0, LongestKeyOf<typename TypeParam::Database>() + 1);
  ASSERT_THAT(db.Set("key", long_value), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_THAT(db.Set("new", long_value), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_THAT(db.Set("key", long_value, {.overwrite = true}), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(db.Set(long_key, "value"), StatusIs(absl::StatusCode::kOutOfRange));
  std::string value;
  EXPECT_FALSE(db.Get(long_key, &value).ok());
  EXPECT_FALSE(db.Remove(long_key).ok());
  EXPECT_EQ(munmap(zeros, size), 0);
  this->ExpectHolds({{"key", "value"}});
}

TYPED_TEST_P(DBMConformance, GrowsFromDefaultOptions) {
  auto& db = *this->db_;
  constexpr std::uint64_t kRecords = 200'000;
  std::string value(8, '\0');
  const auto expect = [&](std::uint64_t number, std::optional<std::uint64_t> salt) {
    const std::string key = NumberedKey(number);
    const Status status = db.Get(key, &value);
    if (!salt) return status.code() == absl::StatusCode::kNotFound;
    return status.ok() && value == CheckedValue(key, 8, *salt);
  };
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 8, 1)), IsOk());
    if (i % 1000 == 0) {
      ASSERT_TRUE(expect(i / 2, 1)) << i;
    }
  }
  EXPECT_EQ(db.Count(), kRecords);
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_TRUE(expect(i, 1)) << i;
  for (std::uint64_t i = kRecords; i < 2 * kRecords; ++i) ASSERT_TRUE(expect(i, std::nullopt)) << i;
  ASSERT_THAT(db.Verify(), IsOk());
  for (std::uint64_t i = 0; i < kRecords; i += 2) ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
  EXPECT_EQ(db.Count(), kRecords / 2);
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_TRUE(expect(i, i % 2 == 0 ? std::nullopt : std::optional(1))) << i;
  for (std::uint64_t i = 0; i < kRecords; i += 3) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 8, 2)), IsOk());
  std::uint64_t shown = 0;
  EXPECT_THAT(db.ProcessEach([&](std::string_view, std::string_view) { ++shown; }), IsOk());
  EXPECT_EQ(shown, db.Count());
  for (std::uint64_t i = 0; i < kRecords; ++i)
    ASSERT_TRUE(expect(i, i % 3 == 0 ? std::optional(2) : i % 2 == 0 ? std::nullopt : std::optional(1))) << i;
}

TYPED_TEST_P(DBMConformance, HoldsMoreOrFewerRecordsThanExpected) {
  for (const std::uint64_t expected : {1u, 100u, 20'000u}) {
    SCOPED_TRACE(expected);
    TypeParam another;
    auto opened = another.Open(expected);
    ASSERT_THAT(opened.status(), IsOk());
    auto& db = **opened;
    for (int i = 0; i < 5000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), NumberedKey(i + 1)), IsOk());
    for (int i = 0; i < 5000; ++i) ASSERT_THAT(db.Get(NumberedKey(i)), IsOkAndHolds(NumberedKey(i + 1)));
    EXPECT_EQ(db.Count(), 5000u);
    EXPECT_THAT(db.Verify(), IsOk());
    EXPECT_THAT(db.Close(), IsOk());
  }
}

TYPED_TEST_P(DBMConformance, StoresValuesThatGrowAndShrink) {
  auto& db = *this->db_;
  Random random(TestSeed());
  Records records;
  for (int i = 0; i < 30'000; ++i) {
    const std::string key = NumberedKey(random.Below(60));
    records[key] = CheckedValue(key, random.SkewedSize(13), static_cast<std::uint64_t>(i));
    ASSERT_THAT(db.Set(key, records[key]), IsOk());
    if (random.OneIn(4)) {
      const std::string other = NumberedKey(random.Below(60));
      ASSERT_EQ(db.Remove(other).ok(), records.erase(other) == 1);
    }
  }
  this->ExpectHolds(records);
}

TYPED_TEST_P(DBMConformance, ReusesTheSpaceOfReplacedRecords) {
  auto& db = *this->db_;
  std::string value(100, 'x');
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), value), IsOk());
  const std::uint64_t before = db.GetStats().total_bytes;
  constexpr int kRounds = kSlowdown > 1 ? 80 : 200;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 1000; ++i) {
      if (round % 4 == 0) {
        ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
      }
      ASSERT_THAT(db.Set(NumberedKey(i), value), IsOk());
    }
  }
  EXPECT_LE(db.GetStats().total_bytes, before + (std::uint64_t{4} << 20)) << kRounds / 10 << " MB were written over 100 kB";
}

TYPED_TEST_P(DBMConformance, ClearDropsEverything) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Clear(), IsOk());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue("clear", static_cast<std::size_t>(i % 200))), IsOk());
    EXPECT_EQ(db.Count(), 3000u);
    ASSERT_THAT(db.Clear(), IsOk());
    this->ExpectHolds({});
    EXPECT_THAT(db.Contains(NumberedKey(1)), IsOkAndHolds(false));
    EXPECT_THAT(db.Verify(), IsOk());
  }
  ASSERT_THAT(db.Clear(), IsOk());
  this->SetAll({{"after", "clear"}});
  this->ExpectHolds({{"after", "clear"}});
}

TYPED_TEST_P(DBMConformance, IteratorKeepsItsOrderAndJumps) {
  auto& db = *this->db_;
  for (int i = 0; i < 2000; ++i)
    ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), static_cast<std::size_t>(i % 50))), IsOk());
  const Listing all = ListByIterator(db);
  EXPECT_EQ(all.order.size(), 2000u);
  EXPECT_EQ(ListByIterator(db).order, all.order);
  auto it = db.MakeIterator();
  for (const std::size_t start : {std::size_t{0}, std::size_t{1}, std::size_t{777}, all.order.size() - 1}) {
    it.Jump(all.order[start]);
    for (std::size_t i = start; i < all.order.size(); ++i, it.Next()) {
      ASSERT_TRUE(it.Valid());
      ASSERT_EQ(it.key(), all.order[i]);
      ASSERT_EQ(it.value(), CheckedValue(it.key(), it.value().size()));
    }
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), IsOk());
  }
  it.First();
  ASSERT_TRUE(it.Valid());
  EXPECT_EQ(it.key(), all.order[0]);
}

TYPED_TEST_P(DBMConformance, SupportsManyIteratorsAtOnce) {
  auto& db = *this->db_;
  for (int i = 0; i < 100; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  const Listing all = ListByIterator(db);
  std::vector<decltype(db.MakeIterator())> iterators;
  for (int i = 0; i < 100; ++i) iterators.push_back(db.MakeIterator());
  for (std::size_t i = 0; i < iterators.size(); ++i) iterators[i].Jump(all.order[i]);
  for (std::size_t step = 0; step < 100; ++step) {
    for (std::size_t i = 0; i < iterators.size(); ++i) {
      ASSERT_EQ(iterators[i].Valid(), i + step < all.order.size());
      if (!iterators[i].Valid()) continue;
      ASSERT_EQ(iterators[i].key(), all.order[i + step]);
      iterators[i].Next();
    }
  }
}

TYPED_TEST_P(DBMConformance, IteratorContinuesWhileRecordsChange) {
  auto& db = *this->db_;
  constexpr int kRecords = kSlowdown > 1 ? 1500 : 5000;
  for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 20, 1)), IsOk());
  std::set<std::string> shown;
  int grown = 0;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    const std::string key(it.key());
    ASSERT_TRUE(shown.insert(key).second) << "shown twice: " << key;
    ASSERT_TRUE(SaltOf(key, it.value())) << key;
    if (shown.size() > 2u * kRecords) continue;
    for (int i = 0; i < 4; ++i, ++grown)
      ASSERT_THAT(db.Set("new" + NumberedKey(grown), CheckedValue("new" + NumberedKey(grown), 20, 2)), IsOk());
    ASSERT_THAT(db.Set(key, CheckedValue(key, shown.size() % 300, 3)), IsOk());
  }
  EXPECT_THAT(it.status(), IsOk());
  for (int i = 0; i < kRecords; ++i) EXPECT_EQ(shown.count(NumberedKey(i)), 1u) << i;
  EXPECT_EQ(db.Count(), static_cast<std::uint64_t>(kRecords + grown));
}

TYPED_TEST_P(DBMConformance, IteratorSkipsRemovedRecords) {
  auto& db = *this->db_;
  for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  std::set<std::string> shown;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {  // removes the shown record, and another that it may show next
    const std::string key(it.key());
    ASSERT_TRUE(shown.insert(key).second) << "shown twice: " << key;
    const std::string partner = NumberedKey(2999 - std::stoull(key));
    const bool is_first = shown.count(partner) == 0;
    EXPECT_EQ(db.Remove(key).ok(), is_first);
    EXPECT_EQ(db.Remove(partner).ok(), is_first);
    EXPECT_EQ(it.key(), key) << "the iterator keeps what it showed";
    EXPECT_EQ(it.value(), "value");
  }
  EXPECT_LT(shown.size(), 2000u) << "records that were removed long ago are shown";
  EXPECT_THAT(it.status(), IsOk());
  this->ExpectHolds({});
  it.First();
  EXPECT_FALSE(it.Valid());
}

TYPED_TEST_P(DBMConformance, IteratorEndsAfterClear) {
  auto& db = *this->db_;
  for (int i = 0; i < 3000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  auto it = db.MakeIterator();
  it.First();
  ASSERT_TRUE(it.Valid());
  it.Next();
  ASSERT_THAT(db.Clear(), IsOk());
  ASSERT_THAT(db.Set("after", "clear"), IsOk());
  int steps = 0;
  for (; it.Valid() && steps < 10'000; it.Next()) ++steps;
  EXPECT_LT(steps, 10'000);
}

TYPED_TEST_P(DBMConformance, StatsFollowTheRecords) {
  auto& db = *this->db_;
  for (int i = 0; i < 10'000; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue("stats", 100)), IsOk());
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());  // some count only records in the file
  const Stats full = db.GetStats();
  EXPECT_EQ(full.num_records, 10'000u);
  EXPECT_GE(full.record_bytes, 10'000u * 108);
  EXPECT_GE(full.total_bytes, full.record_bytes + full.index_bytes);
  EXPECT_GT(full.index_bytes, 0u);
  EXPECT_GT(full.num_buckets, 0u);
  for (int i = 0; i < 5000; ++i) ASSERT_THAT(db.Remove(NumberedKey(i)), IsOk());
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  const Stats half = db.GetStats();
  EXPECT_EQ(half.num_records, 5000u);
  EXPECT_GE(half.record_bytes, 5000u * 108);
  EXPECT_LT(half.record_bytes, full.record_bytes);
}

TYPED_TEST_P(DBMConformance, InspectNamesEachPropertyOnce) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Set("key", "value"), IsOk());
  const Inspection inspection = db.Inspect();
  EXPECT_FALSE(inspection.empty());
  std::set<std::string> names;
  for (const auto& [name, text] : inspection) {
    EXPECT_FALSE(name.empty());
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TYPED_TEST_P(DBMConformance, SynchronizeChangesNothing) {
  auto& db = *this->db_;
  Records records;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(i * round % 97));
      records[key] = CheckedValue(key, static_cast<std::size_t>(round * 7), 1);
      ASSERT_THAT(db.Set(key, records[key]), IsOk());
    }
    const std::string victim = NumberedKey(static_cast<std::uint64_t>(round));
    ASSERT_EQ(db.Remove(victim).ok(), records.erase(victim) == 1);
    ASSERT_THAT(db.Synchronize(round % 3 == 0 ? SyncMode::kSoft : SyncMode::kHard), IsOk());
  }
  this->ExpectHolds(records);
}

REGISTER_TYPED_TEST_SUITE_P(DBMConformance, IsEmptyAtFirst, GetReturnsTheValueInEveryForm, GetOfAbsentKeyInEveryFormReturnsNotFound,
                            SetOverwritesByDefault, RemoveReturnsTheOldValue, AppendInsertsTheDelimiter,
                            CompareExchangeActsOnlyIfTheRecordIsAsExpected, IncrementCountsInEightBigEndianBytes,
                            ProcessCarriesOutTheVisitorsAction, KeepsEmptyAndBinaryKeysAndValues, KeepsEveryCombinationOfSmallSizes,
                            KeepsLargeKeysAndValues, RefusesKeysAndValuesBeyondTheLimits, GrowsFromDefaultOptions,
                            HoldsMoreOrFewerRecordsThanExpected, StoresValuesThatGrowAndShrink, ReusesTheSpaceOfReplacedRecords,
                            ClearDropsEverything, IteratorKeepsItsOrderAndJumps, SupportsManyIteratorsAtOnce,
                            IteratorContinuesWhileRecordsChange, IteratorSkipsRemovedRecords, IteratorEndsAfterClear, StatsFollowTheRecords,
                            InspectNamesEachPropertyOnce, SynchronizeChangesNothing);

}  // namespace hako
