// Records that expire, in each kind of database: the time of a record, and its absence from that
// instant on. The clock is in expiry_clock_test.cc, the removal of records in expiry_sweep_test.cc.
#include "hako/dbm/expiry.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dbm/expiry_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_options.h"
#include "hako/dbm/transfer.h"
#include "hako/dbm/write_batch.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

INSTANTIATE_TEST_SUITE_P(InFiles, ExpiryTest, kExpiryFiles);
INSTANTIATE_TEST_SUITE_P(InMemory, ExpiryTest, kExpiryMemory);

TEST_P(ExpiryTest, ARecordIsAbsentFromItsTimeOn) {
  ASSERT_THAT(db_->Set("short", "1", {.ttl = 10ms}), IsOk());
  ASSERT_THAT(db_->Set("at", "2", {.expire_at = kStart + 20}), IsOk());
  ASSERT_THAT(db_->Set("ever", "3"), IsOk());
  const std::string_view keys[] = {"at", "ever", "none", "short"};
  const auto all = [&] {
    std::vector<std::string> found;
    EXPECT_THAT(db_->GetMulti(keys,
                              [&](std::size_t i, std::optional<std::string_view> value) {
                                if (value) found.push_back(absl::StrCat(ToAbsl(keys[i]), "=", ToAbsl(*value)));
                              }),
                IsOk());
    return found;
  };
  the_time = kStart + 9;
  EXPECT_THAT(Get("short"), Optional(std::string("1")));
  EXPECT_THAT(all(), ElementsAre("at=2", "ever=3", "short=1"));
  the_time = kStart + 10;
  EXPECT_EQ(Get("short"), std::nullopt);
  EXPECT_THAT(db_->Contains("short"), IsOkAndHolds(false));
  EXPECT_THAT(db_->GetSize("short").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->GetOr("short", "fallback"), IsOkAndHolds("fallback"));
  EXPECT_THAT(db_->Get("short", [](std::string_view) { FAIL(); }), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->Replace("short", "9"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->Remove("short"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->GetExpiry("short").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->SetExpiry("short", kStart + 99), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->Persist("short"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db_->CompareExchange("short", Expect::Any(), Action::Set("x")), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(all(), ElementsAre("at=2", "ever=3"));
  EXPECT_THAT(Keys(), ElementsAre("at", "ever"));
  auto it = db_->MakeIterator();
  it.Jump("short");
  EXPECT_TRUE(!it.Valid() || it.key() != "short");
  std::atomic<int> shown{0};
  EXPECT_THAT(db_->ProcessEach([&](std::string_view, std::string_view) { ++shown; }), IsOk());
  EXPECT_THAT(db_->ProcessEachParallel(2, [&](std::string_view, std::string_view) { ++shown; }), IsOk());
  EXPECT_EQ(shown, 4);
  if (db_->IsOrdered()) {
    EXPECT_THAT(db_->CountRange(""), IsOkAndHolds(2u));
    EXPECT_THAT(db_->CountRange("b"), IsOkAndHolds(1u));
    std::vector<std::string> reversed;
    for (const auto& [key, value] : db_->ReverseRange()) reversed.emplace_back(key);
    EXPECT_THAT(reversed, ElementsAre("ever", "at"));
  }
  EXPECT_THAT(db_->Set("short", "again", {.overwrite = false}), IsOk());
  EXPECT_THAT(Get("short"), Optional(std::string("again")));
  the_time = kStart + 20;
  EXPECT_THAT(Keys(), ElementsAre("ever", "short"));
}

TEST_P(ExpiryTest, AnUpdateKeepsOrReplacesTheTime) {
  const auto set = [&] { ASSERT_THAT(db_->Set("key", "a", {.expire_at = kStart + 50}), IsOk()); };
  set();
  EXPECT_THAT(db_->Append("key", "b", ","), IsOk());
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(kStart + 50));
  EXPECT_THAT(db_->Set("key", "c", {.keep_expiry = true}), IsOk());
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(kStart + 50));
  std::string old;
  EXPECT_THAT(db_->Set("key", "d", {.old_value = &old}), IsOk());
  EXPECT_EQ(old, "c");
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(0u));
  EXPECT_THAT(db_->SetExpiry("key", kStart + 60), IsOk());
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(kStart + 60));
  EXPECT_THAT(Get("key"), Optional(std::string("d")));
  EXPECT_THAT(db_->Persist("key"), IsOk());
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(0u));
  EXPECT_THAT(db_->SetExpiry("key", kStart), IsOk());  // has passed
  EXPECT_EQ(Get("key"), std::nullopt);
  EXPECT_THAT(db_->Set("key", "e", {.expire_at = 7}), IsOk());
  EXPECT_EQ(Get("key"), std::nullopt);
  set();
  EXPECT_THAT(db_->Rekey("key", "moved"), IsOk());
  EXPECT_THAT(db_->GetExpiry("moved"), IsOkAndHolds(kStart + 50));
  EXPECT_THAT(db_->Rekey("moved", "copy", {.copying = true}), IsOk());
  EXPECT_THAT(db_->GetExpiry("copy"), IsOkAndHolds(kStart + 50));
  EXPECT_THAT(db_->Increment("number", 5), IsOkAndHolds(5));
  EXPECT_THAT(db_->SetExpiry("number", kStart + 70), IsOk());
  EXPECT_THAT(db_->Increment("number", 5), IsOkAndHolds(10));
  EXPECT_THAT(db_->GetExpiry("number"), IsOkAndHolds(kStart + 70));
  the_time = kStart + 70;
  EXPECT_THAT(db_->Increment("number", 5), IsOkAndHolds(5));
  EXPECT_THAT(db_->GetExpiry("number"), IsOkAndHolds(0u));
  EXPECT_THAT(Keys(), ElementsAre("number"));
}

TEST_P(ExpiryTest, ABatchSetsTimesAndSeesLiveRecordsOnly) {
  ASSERT_THAT(db_->Set("old", "1", {.ttl = 5ms}), IsOk());
  ASSERT_THAT(db_->Set("kept", "1", {.ttl = 50ms}), IsOk());
  the_time = kStart + 5;
  WriteBatch batch;
  batch.Expect("old", Expect::Absent());
  batch.Expect("kept", Expect::Value("1"));
  batch.Set("a", "2", kStart + 30);
  batch.Set("b", "3");
  batch.Set("c", "4", kStart + 5);  // has passed
  batch.Remove("kept");
  ASSERT_THAT(db_->Write(batch), IsOk());
  EXPECT_THAT(Keys(), ElementsAre("a", "b"));
  EXPECT_THAT(db_->GetExpiry("a"), IsOkAndHolds(kStart + 30));
  EXPECT_THAT(db_->GetExpiry("b"), IsOkAndHolds(0u));
  const Exchange exchanges[] = {{"a", Expect::Value("2"), Action::Set("5", kStart + 40)},
                                {"b", Expect::Any(), Action::SetKeepingExpiry("6")}};
  EXPECT_THAT(db_->CompareExchangeMulti(exchanges), IsOk());
  EXPECT_THAT(db_->GetExpiry("a"), IsOkAndHolds(kStart + 40));
  EXPECT_THAT(Get("b"), Optional(std::string("6")));
  the_time = kStart + 40;
  EXPECT_THAT(db_->CompareExchangeMulti(exchanges), StatusIs(absl::StatusCode::kAborted));
  batch.Clear();
  batch.Set("a", "2", Expiry::kTimeMax + 1);
  EXPECT_THAT(db_->Write(batch), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(ExpiryTest, LongAndEmptyValuesHaveTimes) {
  const std::string longer(100'000, 'x'), longest(3 << 20, 'y');
  for (const std::string& value : {std::string(), std::string("1234567"), std::string(127, 'a'), std::string(128, 'b'), longer, longest}) {
    const std::string key = absl::StrCat("key", value.size());
    ASSERT_THAT(db_->Set(key, value, {.ttl = 10ms}), IsOk());
    ASSERT_THAT(db_->Set(absl::StrCat(key, "-"), value), IsOk());
    EXPECT_TRUE(Get(key) == std::optional(value));
    EXPECT_THAT(db_->GetSize(key), IsOkAndHolds(value.size()));
    EXPECT_TRUE(Get(absl::StrCat(key, "-")) == std::optional(value));
  }
  std::size_t bytes = 0;
  auto it = db_->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    bytes += it.value().size();
    EXPECT_EQ(it.expire_at(), it.key().back() == '-' ? 0 : kStart + 10);
  }
  EXPECT_EQ(bytes, 2 * (7 + 127 + 128 + longer.size() + longest.size()));
  the_time = kStart + 10;
  EXPECT_EQ(Keys().size(), 6u);
  EXPECT_THAT(db_->RemoveExpired(), IsOkAndHolds(testing::Le(6u)));  // the background thread may have removed some
}

TEST_P(ExpiryTest, ADatabaseWithoutTheOptionRefusesTimes) {
  if (HasFile()) {
    ASSERT_THAT(db_->Close(), IsOk());
    db_ = nullptr;
    ASSERT_THAT(Open("mode=truncate").status(), IsOk());
    EXPECT_THAT(Open("expiry=true").status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  db_ = Open("").value();
  EXPECT_THAT(db_->Set("key", "1", {.ttl = 1ms}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db_->Set("key", "1", {.keep_expiry = true}), IsOk());
  EXPECT_THAT(db_->SetExpiry("key", kStart + 1), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db_->Persist("key"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(0u));
  EXPECT_THAT(db_->RemoveExpired(), IsOkAndHolds(0u));
  WriteBatch batch;
  batch.Set("key", "2", kStart + 1);
  EXPECT_THAT(db_->Write(batch), StatusIs(absl::StatusCode::kFailedPrecondition));
  for (const std::uint64_t time : {kStart + 1, ~std::uint64_t{0}}) {
    const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
    const auto set = [&](std::optional<std::string_view>) { return Action::Set("2", time); };
    EXPECT_THAT(db_->CompareExchange("key", Expect::Any(), Action::Set("2", time)), refused);
    EXPECT_THAT(db_->Process("key", Action::Set("2", time)), refused);
    EXPECT_THAT(db_->Process("key", set), refused);
    const Exchange exchanges[] = {{"a", Expect::Absent(), Action::Set("2")}, {"key", Expect::Any(), Action::Set("2", time)}};
    EXPECT_THAT(db_->CompareExchangeMulti(exchanges), refused);
    EXPECT_THAT(Keys(), ElementsAre("key"));
  }
  EXPECT_THAT(Get("key"), Optional(std::string("1")));
}

TEST_P(ExpiryTest, WrongOptionsAreRefused) {
  using Options = SetOptions;
  for (const Options& options : {Options{.ttl = -1ms}, Options{.ttl = 0ms}, Options{.ttl = 0ms, .keep_expiry = true},
                                 Options{.ttl = 1ms, .expire_at = 5}, Options{.expire_at = Expiry::kTimeMax + 1},
                                 Options{.ttl = std::chrono::milliseconds(Expiry::kTimeMax)}, Options{.ttl = 1ms, .keep_expiry = true}}) {
    EXPECT_THAT(db_->Set("key", "value", options), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(db_->SetExpiry("key", Expiry::kTimeMax + 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Keys(), IsEmpty());
  EXPECT_THAT(db_->Set("key", "value", {.expire_at = Expiry::kTimeMax}), IsOk());
  EXPECT_THAT(db_->GetExpiry("key"), IsOkAndHolds(Expiry::kTimeMax));
}

// A time that cannot be stored is refused, and nothing changes.
TEST_P(ExpiryTest, ActionsWithATimeOutOfRangeAreRefused) {
  ASSERT_THAT(db_->Set("old", "1"), IsOk());
  for (const std::uint64_t time : {Expiry::kTimeMax + 1, Expiry::kKeep, Expiry::kKeep + 1, ~std::uint64_t{0}}) {
    const auto refused = StatusIs(absl::StatusCode::kInvalidArgument);
    const auto set = [&](std::optional<std::string_view>) { return Action::Set("2", time); };
    const auto set_blindly = [&](bool) { return Action::Set("2", time); };
    EXPECT_THAT(db_->CompareExchange("new", Expect::Absent(), Action::Set("2", time)), refused);
    EXPECT_THAT(db_->Process("new", Action::Set("2", time)), refused);
    EXPECT_THAT(db_->Process("old", set), refused);
    EXPECT_THAT(db_->Process("old", set_blindly), refused);
    const Exchange exchanges[] = {{"a", Expect::Absent(), Action::Set("2")}, {"old", Expect::Any(), Action::Set("2", time)}};
    EXPECT_THAT(db_->CompareExchangeMulti(exchanges), refused);
    EXPECT_THAT(Keys(), ElementsAre("old"));
    EXPECT_THAT(Get("old"), Optional(std::string("1")));
  }
}

TEST_P(ExpiryTest, RemoveRangeCountsLiveRecords) {
  if (!db_->IsOrdered()) return;
  for (int i = 0; i < 300; ++i) ASSERT_THAT(db_->Set(absl::StrCat("key", i), "value", {.ttl = i < 3 ? 5ms : 50ms}), IsOk());
  the_time = kStart + 5;
  EXPECT_THAT(db_->RemoveRange("key0", "key3"), IsOkAndHolds(220u));
  EXPECT_THAT(db_->RemoveRange(""), IsOkAndHolds(77u));
  EXPECT_EQ(db_->Count(), 0u);
}

TEST_P(ExpiryTest, CopiesKeepTheTimes) {
  ASSERT_THAT(db_->Set("gone", "0", {.ttl = 5ms}), IsOk());
  for (int i = 0; i < 300; ++i)
    ASSERT_THAT(db_->Set(absl::StrCat("key", i), std::string(static_cast<std::size_t>(i), 'v'), {.ttl = 50ms}), IsOk());
  ASSERT_THAT(db_->Set("long", std::string(50'000, 'l'), {.ttl = 50ms}), IsOk());
  ASSERT_THAT(db_->Set("ever", "1"), IsOk());
  the_time = kStart + 6;
  const std::string copy = dir_.path() + "/copy" + (db_->IsOrdered() ? ".hkt" : ".hkh");
  AnyOptions options = ParseAnyOptions(copy + "?expiry=true").value();
  options.clock = &TheTime;
  {
    auto target = AnyDBM::Open(options).value();
    ASSERT_THAT(db_->Export(*target), IsOk());
    EXPECT_THAT(target->GetExpiry("key7"), IsOkAndHolds(kStart + 50));
    EXPECT_EQ(target->Count(), 302u);
    EXPECT_THAT(target->Close(), IsOk());
  }
  if (!HasFile()) return;
  const std::string name = GetParam(), suffix = name.substr(0, name.find('?'));
  ASSERT_THAT(db_->CopyTo(dir_.path() + "/hot" + suffix), IsOk());
  options = ParseAnyOptions(absl::StrCat(dir_.path(), "/hot", name)).value();
  options.clock = &TheTime;
  the_time = kStart;
  auto hot = AnyDBM::Open(options).value();
  EXPECT_THAT(hot->GetExpiry("key7"), IsOkAndHolds(kStart + 50));
  EXPECT_THAT(hot->GetExpiry("ever"), IsOkAndHolds(0u));
  EXPECT_THAT(hot->GetSize("long"), IsOkAndHolds(50'000u));
  EXPECT_THAT(hot->Contains("gone"), IsOkAndHolds(false)) << "the copy does not have the clock";
  EXPECT_THAT(hot->Verify(), IsOk());
  EXPECT_THAT(hot->Close(), IsOk());
  if (suffix == ".hks") return;
  ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(db_->Close(), IsOk());
  db_ = nullptr;
  const std::string saved = dir_.path() + "/saved" + suffix;
  ASSERT_THAT(AnyDBM::Salvage(dir_.path() + "/db" + suffix, saved).status(), IsOk());
  options.path = saved;
  auto salvaged = AnyDBM::Open(options).value();
  EXPECT_THAT(salvaged->GetExpiry("key7"), IsOkAndHolds(kStart + 50));
  EXPECT_THAT(salvaged->Contains("gone"), IsOkAndHolds(false));
  EXPECT_THAT(salvaged->GetSize("long"), IsOkAndHolds(50'000u));
  EXPECT_THAT(salvaged->Close(), IsOk());
}

TEST_P(ExpiryTest, TextHasTheTimes) {
  ASSERT_THAT(db_->Set("soon", "1\t", {.ttl = 10ms}), IsOk());
  ASSERT_THAT(db_->Set("ever", "2"), IsOk());
  for (const TransferOptions& options :
       {TransferOptions{.format = TextFormat::kJsonLines}, TransferOptions{.format = TextFormat::kTsv, .tsv = {.times = true}}}) {
    std::stringstream text;
    EXPECT_EQ(Export(*db_, SinkOf(text), options).num_times_lost, 0u);
    AnyOptions copy = ParseAnyOptions("?dbm=tiny,expiry=true").value();
    copy.clock = &TheTime;
    const auto other = AnyDBM::Open(copy).value();
    EXPECT_THAT(Import(*other, SourceOf(text), options).status(), IsOk());
    EXPECT_THAT(other->GetExpiry("soon"), IsOkAndHolds(kStart + 10));
    EXPECT_THAT(other->GetExpiry("ever"), IsOkAndHolds(0u));
    EXPECT_THAT(other->Get("soon"), IsOkAndHolds("1\t"));
    const auto plain = AnyDBM::Open("?dbm=tiny").value();
    std::stringstream again(text.str());
    EXPECT_THAT(Import(*plain, SourceOf(again), options).database, StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  for (const TransferOptions& options : {TransferOptions{.format = TextFormat::kTsv}, TransferOptions{.format = TextFormat::kDump}}) {
    std::stringstream text;
    EXPECT_EQ(Export(*db_, SinkOf(text), options).num_times_lost, 1u);
  }
  for (const char* const wrong : {"key\tvalue\n", "key\tnever\tvalue\n", "key\t0\tvalue\n", "key\t-5\tvalue\n", "key\t5 \tvalue\n"}) {
    std::stringstream text(wrong);
    EXPECT_THAT(Import(*db_, SourceOf(text), {.tsv = {.times = true}}).text, StatusIs(absl::StatusCode::kInvalidArgument)) << wrong;
  }
}

}  // namespace
}  // namespace hako
