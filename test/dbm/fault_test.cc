// Fails each call to the device in turn, once or from then on. Reads never return wrong data,
// refused updates have no effect, and the next open finds the state of the last successful
// Synchronize or of a later attempt.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/checked_value.h"
#include "support/crash_states.h"
#include "support/faulty_device.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using Mapped = FaultyMapped;
using Positional = FaultyPositional;

// One run: updates and synchronizations beside a model.
struct Run {
  std::vector<Records> durable = {{}};  // the last state that was synchronized, then those that may have been
  Records now;

  template <class D>
  void Do(D& db, std::uint64_t seed) {
    Random random(seed);
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::string key = NumberedKey(random.Below(15));
      Records after = now;
      Status status;
      if (random.OneIn(10)) {
        durable.push_back(now);
        status = db.Synchronize(SyncMode::kHard);
        if (status.ok()) durable = {now};
      } else if (random.OneIn(30)) {
        durable.push_back(now);
        status = db.Rebuild();
        if (status.ok()) durable = {now};
      } else if (random.OneIn(6)) {  // several atomically
        const std::string names[] = {NumberedKey(random.Below(15)), key, NumberedKey(15 + random.Below(5))};
        const std::string values[] = {CheckedValue(names[0], random.Below(300), i), "", CheckedValue(names[2], random.Below(300), i)};
        for (const int n : {0, 1, 2}) after[names[n]] = values[n];
        after.erase(key);
        const std::string_view keys[] = {names[0], names[1], names[2]};
        status = db.ProcessMulti(
            keys, [&](std::size_t n, std::optional<std::string_view>) { return n == 1 ? Action::Remove() : Action::Set(values[n]); });
      } else if (random.OneIn(3)) {
        after.erase(key);
        status = db.Remove(key);
        if (absl::IsNotFound(status)) status = absl::OkStatus();
      } else {
        after[key] = CheckedValue(key, random.Below(300), i);
        status = db.Set(key, after[key]);
      }
      if (status.ok()) {
        now = after;
      } else {
        EXPECT_FALSE(status.message().empty()) << status;
        EXPECT_FALSE(absl::IsNotFound(status)) << "a failing device is not an absent key";
      }
      std::string value;  // reads return correct values
      const Status got = db.Get(key, &value);
      const auto is = [&](const Records& records) { return records.count(key) != 0 && records.at(key) == value; };
      if (got.ok()) {
        EXPECT_TRUE(is(now)) << key << ", operation " << i << ", " << status;
      } else if (absl::IsNotFound(got)) {
        EXPECT_EQ(now.count(key), 0u) << key << ", operation " << i << ", " << status;
      }
    }
  }
};

template <class How>
void FailEachCall(Fault fault, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  using FaultyDBM = HashDBM<typename How::FileType>;
  for (fault.call = 1 + TestSeed() % kSlowdown; fault.call < 5000; fault.call += kSlowdown) {
    SCOPED_TRACE(fault.call);
    MemoryFile device;
    const auto plan = std::make_shared<FaultPlan>();
    Run run;
    plan->Arm(fault);
    auto first = FaultyDBM::Open(How::Open(device, plan), {.seed = 3});
    if (first.ok()) {
      auto& db = *first;
      run.Do(*db, seed);
      run.durable.push_back(run.now);
      if (db->Close().ok()) run.durable = {run.now};
    }
    const bool met = plan->fired_count() != 0;
    plan->Disarm();
    auto second = FaultyDBM::Open(How::Open(device, plan));
    if (!first.ok() && absl::IsDataLoss(second.status())) continue;  // a partial superblock of a database that was never created
    ASSERT_THAT(second, IsOk());
    auto& db = *second;
    EXPECT_THAT(db->Verify(), IsOk());
    const Records found = ListByIterator(*db).records;
    EXPECT_TRUE(std::count(run.durable.begin(), run.durable.end(), found) > 0) << Difference(run.durable.front(), found);
    EXPECT_THAT(db->Set("works", "again"), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
    if (!met || testing::Test::HasFailure()) return ReportFailures(fault.call / kSlowdown);
  }
  FAIL() << "the work has no end";
}

template <class How>
void FailEachCall(Fault fault) {
  constexpr std::uint64_t kHistories = kSlowdown > 1 ? 1 : 7;
  for (std::uint64_t i = 0; i < kHistories && !testing::Test::HasFailure(); ++i) FailEachCall<How>(fault, Random::Mix(TestSeed()) + i);
}

template <class How>
class FaultTest : public testing::Test {};
using Ways = testing::Types<Mapped, Positional>;
TYPED_TEST_SUITE(FaultTest, Ways);

TYPED_TEST(FaultTest, SurvivesEachFailedRead) { FailEachCall<TypeParam>({.kind = FaultKind::kRead}); }
TYPED_TEST(FaultTest, SurvivesEachFailedWrite) { FailEachCall<TypeParam>({.kind = FaultKind::kWrite}); }
TYPED_TEST(FaultTest, SurvivesEachShortWrite) { FailEachCall<TypeParam>({.kind = FaultKind::kWrite, .is_short = true}); }
TYPED_TEST(FaultTest, SurvivesEachFailedResize) {
  FailEachCall<TypeParam>({.kind = FaultKind::kResize, .status = absl::ResourceExhaustedError("full")});
}
TYPED_TEST(FaultTest, SurvivesEachFailedSync) { FailEachCall<TypeParam>({.kind = FaultKind::kSync}); }
TYPED_TEST(FaultTest, SurvivesADeviceThatDies) { FailEachCall<TypeParam>({.forever = true}); }

TEST(HashFault, IteratorsStayFailedAfterTheFirstError) {
  MemoryFile device;
  const auto plan = std::make_shared<FaultPlan>();
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Positional::FileType>::Open(Positional::Open(device, plan)));
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
  auto it = db->MakeIterator();
  it.First();
  ASSERT_TRUE(it.Valid());
  plan->Arm({.kind = FaultKind::kRead, .forever = true});
  while (it.Valid()) it.Next();
  const Status failed = it.status();
  EXPECT_FALSE(failed.ok());
  plan->Disarm();
  EXPECT_FALSE(it.Valid());
  EXPECT_EQ(it.status(), failed);
  EXPECT_EQ(it.Set("value"), failed);
  EXPECT_EQ(it.Remove(), failed);
  it.First();
  EXPECT_TRUE(it.Valid()) << "restarted";
  EXPECT_THAT(it.status(), IsOk());
}

TYPED_TEST(FaultTest, RefusesWritesButReadsAfterAFailedSync) {
  MemoryFile device;
  const auto plan = std::make_shared<FaultPlan>();
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<typename TypeParam::FileType>::Open(TypeParam::Open(device, plan)));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  plan->Arm({.kind = FaultKind::kSync});
  EXPECT_THAT(db->GetHealth(), IsOk());
  EXPECT_FALSE(db->Synchronize(SyncMode::kHard).ok());
  EXPECT_FALSE(db->GetHealth().ok());
  plan->Disarm();
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kFailedPrecondition)) << "a failed sync is never retried";
  EXPECT_THAT(db->Set("other", "value"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Remove("key"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Get("key"), IsOkAndHolds("value"));
  (void)db->Close();
}

// Close stamps the free blocks of one size class, which depends on the epoch, before it writes
// anything else.
TEST(HashFault, CloseReportsThatItsFirstWriteFailed) {
  for (int more_epochs = 0; more_epochs < 256; ++more_epochs) {
    MemoryFile device;
    const auto plan = std::make_shared<FaultPlan>();
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Positional::FileType>::Open(Positional::Open(device, plan)));
    for (const char* value : {"before", "after"}) {
      ASSERT_THAT(db->Set("key", value), IsOk());
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    }
    for (int epoch = 0; epoch < more_epochs; ++epoch) ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    plan->Arm({.kind = FaultKind::kWrite});
    EXPECT_FALSE(db->Close().ok()) << "after " << more_epochs << " epochs";
  }
}

}  // namespace
}  // namespace hako
