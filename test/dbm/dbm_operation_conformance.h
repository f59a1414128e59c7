// The tests of DBMConformance of the operations of operations.h, with their edge cases and the forms of a
// visitor. Of dbm_conformance.h.
#pragma once

#include "dbm/dbm_conformance_fixture.h"

namespace hako {

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

}  // namespace hako
