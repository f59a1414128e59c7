// Records that expire, by the classes themselves: forms of calls that AnyDBM does not have, and the
// stored form of values.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "dbm/expiry_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/salvage.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using namespace std::chrono_literals;

// The forms that AnyDBM does not use.
template <class D>
void TestTyped(D& db) {
  ASSERT_THAT(db.Set("key", "value", {.ttl = 10ms}), IsOk());
  std::string value;
  EXPECT_THAT(db.Get("key", &value), IsOk());
  EXPECT_EQ(value, "value");
  char bytes[3];
  EXPECT_THAT(db.Get("key", std::span(bytes)), IsOkAndHolds(5u));
  EXPECT_THAT(db.Increment("number"), IsOkAndHolds(1));
  EXPECT_THAT(db.Process("key", [](std::optional<std::string_view> found) { return found ? Action::Remove() : Action::Keep(); }), IsOk());
  EXPECT_THAT(db.Get("key", &value), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Set("key", "value", {.ttl = 10ms}), IsOk());
  the_time = kStart + 10;
  EXPECT_THAT(db.Get("key", &value), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Get("key", std::span(bytes)).status(), StatusIs(absl::StatusCode::kNotFound));
  bool found = true;
  EXPECT_THAT(db.Process("key", [&](std::optional<std::string_view> seen) { found = seen.has_value(); }), IsOk());
  EXPECT_FALSE(found);
  EXPECT_THAT(db.Verify(), IsOk());
}

TEST(ExpiryTypedTest, TinyDBM) {
  the_time = kStart;
  auto db = TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value();
  TestTyped(*db);
}
TEST(ExpiryTypedTest, TreeDBM) {
  the_time = kStart;
  const TempDir dir;
  auto db = TreeDBM<>::Open(dir.path() + "/db.hkt", {.expiry = true, .clock = &TheTime}).value();
  TestTyped(*db);
}

TEST(ExpiryTypedTest, AnUntypedActionIsCheckedToo) {
  the_time = kStart;
  const auto plain = TinyDBM<>::Open().value();
  EXPECT_THAT(plain->Process("key", Action::Set("1", kStart + 1)), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(plain->Process("key", [](bool) { return Action::Set("1", kStart + 1); }), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(plain->Process("key", Action::SetKeepingExpiry("1")), IsOk());
  EXPECT_EQ(plain->Count(), 1u);
  EXPECT_THAT(plain->Verify(), IsOk());
}

// The cursor does not go on to other records, as which this damage stands.
TEST(ExpiryTypedTest, JumpToAnExpiredRecordEndsThere) {
  the_time = kStart;
  const auto db = TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value();
  ASSERT_THAT(db->Set("key", "value", {.ttl = 10ms}), IsOk());
  for (int i = 0; i < 100; ++i) ASSERT_THAT(db->SetStored(absl::StrCat("other", i), "without a tail"), IsOk());
  the_time = kStart + 10;
  auto it = db->MakeIterator();
  it.Jump("key");
  EXPECT_FALSE(it.Valid());
  EXPECT_THAT(it.status(), IsOk());
}

TEST(ExpiryTypedTest, SetStoredIsRefusedAsOtherUpdatesAre) {
  const TempDir dir;
  const std::string path = dir.path() + "/db.hks";
  {
    const auto db = TinyDBM<>::Open(path, {.expiry = true}).value();
    ASSERT_THAT(db->Close(), IsOk());
  }
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  const auto db = TinyDBM<>::Open(path, {}, reading).value();
  EXPECT_THAT(db->SetStored("key", std::string_view("value\0", 6)), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(db->Count(), 0u);
}

// Two records of a key that differ in their times only: none of them is known to be the right one.
TEST(ExpirySalvageTest, RecordsThatDifferInTheirTimesAreLeftOut) {
  const auto db = TinyDBM<>::Open({.expiry = true, .clock = &Expiry::FirstTime}).value();
  SalvageReport report;
  internal::SalvageWriter<TinyDBM<>> writer(*db, report);
  StoredValues values;
  for (const std::uint64_t time : {kStart, kStart + 1}) EXPECT_THAT(writer.Take("key", values.Add("value", time), false), IsOk());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(writer.Take("other", values.Add("value", kStart), false), IsOk());
  EXPECT_TRUE(writer.HasDoubts());
  EXPECT_THAT(db->Contains("key"), IsOkAndHolds(false));
  EXPECT_THAT(db->GetExpiry("other"), IsOkAndHolds(kStart));
}

// As damage that no checksum notices leaves it: a superblock that says that the records have times.
TEST(ExpiryDamageTest, VerifyFindsAValueWithoutItsTime) {
  auto db = TinyDBM<>::Open({.expiry = true}).value();
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  ASSERT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->SetStored("other", "without a tail"), IsOk());
  EXPECT_THAT(db->Verify(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(db->Get("other").status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(db->Get("key"), IsOkAndHolds("value"));
  EXPECT_THAT(db->Append("other", "more"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(db->Remove("other"), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(ExpiryFormTest, SplitsWhatItJoins) {
  for (const std::uint64_t time : {std::uint64_t{0}, std::uint64_t{1}, kStart, Expiry::kTimeMax}) {
    for (const std::size_t size : {0u, 1u, 7u, 8u, 100u}) {
      const std::string value(size, 'v');
      StoredValues values;
      const auto record = Expiry::Split(values.Add(value, time));
      ASSERT_TRUE(record);
      EXPECT_EQ(record->value, value);
      EXPECT_EQ(record->time, time);
    }
  }
}

TEST(ExpiryFormTest, RefusesOtherBytes) {
  using namespace std::string_view_literals;
  for (const std::string_view stored :
       {""sv, "\1"sv, "abcdef\1"sv, "\2"sv, "abc"sv, "\0\0\0\0\0\0\0\1"sv, "\xff\xff\xff\xff\xff\xff\xff\1"sv})
    EXPECT_FALSE(Expiry::Split(stored)) << stored.size();
}

}  // namespace
}  // namespace hako
