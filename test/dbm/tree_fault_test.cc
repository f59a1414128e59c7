// Fails each call of a TreeDBM to its device in turn, once or from then on. Reads never return
// wrong data, refused updates have no effect, and the next open finds the state of the last
// successful checkpoint or of a later attempt. If only space was lacking, nothing is lost once
// there is space again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/checked_value.h"
#include "support/crash_states.h"
#include "support/faulty_device.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/small_disk.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Mapped = FaultyMapped;
using Positional = FaultyPositional;

// One run: updates and checkpoints beside a model.
struct Run {
  std::vector<Records> durable = {{}};  // the last state that was made durable, then those that may have been
  Records now;

  template <class How>
  void Do(TreeDBM<typename How::FileType>& db, const std::shared_ptr<FaultPlan>& plan, std::uint64_t seed) {
    Random random(seed);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::string key = NumberedKey(random.Below(40));
      Records after = now;
      Status status;
      const auto checkpoint = [&](auto&& body) {
        durable.push_back(now);
        status = body();
        if (status.ok()) durable = {now};
        const std::string touched = NumberedKey(100);
        const Status update = db.Set(touched, "value");  // a failed checkpoint is reported
        if (!db.GetHealth().ok()) {
          EXPECT_FALSE(update.ok());
        }
        if (update.ok()) after[touched] = now[touched] = "value";
      };
      if (random.OneIn(8)) {
        checkpoint([&] { return db.Synchronize(SyncMode::kHard); });
      } else if (random.OneIn(20)) {
        checkpoint([&] { return db.Rebuild(); });
      } else if (random.OneIn(20)) {
        MemoryFile copy;
        checkpoint([&] { return db.CopyTo(How::Open(copy, plan)); });
        if (status.ok()) {
          EXPECT_EQ(Difference(durable.back(), RecordsOf(copy)), "none") << "a copy";
        }
      } else if (random.OneIn(40)) {
        after.clear();
        status = db.Clear();
      } else if (random.OneIn(3)) {
        after.erase(key);
        status = db.Remove(key);
        if (absl::IsNotFound(status) && now.count(key) == 0) status = absl::OkStatus();
      } else {
        after[key] = CheckedValue(key, random.OneIn(10) ? 5000 : random.Below(60), i);
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
      if (got.ok()) {
        EXPECT_TRUE(now.count(key) != 0 && now.at(key) == value) << key << ", operation " << i << ", " << status;
      } else if (absl::IsNotFound(got)) {
        EXPECT_EQ(now.count(key), 0u) << key << ", operation " << i << ", " << status;
      }
    }
  }

  static Records RecordsOf(const MemoryFile& device) {
    auto db = TreeDBM<MemoryFile>::Open(device.Share());
    EXPECT_THAT(db, IsOk());
    if (!db.ok()) return {};
    EXPECT_THAT((*db)->Verify(), IsOk());
    return ListByIterator(**db).records;
  }
};

// Of how many calls one fails in turn.
constexpr std::uint64_t kStride = kSlowdown > 1 ? 2 * kSlowdown : 1;

// Two lives of a database, the second of which has to read.
template <class How>
void FailEachCall(Fault fault, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const bool only_space = absl::IsResourceExhausted(fault.status);
  for (fault.call = 1 + TestSeed() % kStride; fault.call < 5000; fault.call += kStride) {
    SCOPED_TRACE(fault.call);
    MemoryFile device;
    const auto plan = std::make_shared<FaultPlan>();
    Run run;
    plan->Arm(fault);
    bool created = false;
    for (const std::uint64_t life : {seed, seed + 1}) {
      auto opened = TreeDBM<typename How::FileType>::Open(How::Open(device, plan), {.page_size = 128});
      if (!opened.ok()) {
        EXPECT_GT(plan->fired_count(), 0u) << opened.status();
        break;
      }
      created = true;
      auto& db = **opened;
      Records found;
      if (!db.ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); }).ok()) {
        EXPECT_GT(plan->fired_count(), 0u);
        break;
      }
      EXPECT_TRUE(std::count(run.durable.begin(), run.durable.end(), found) > 0) << Difference(run.durable.front(), found);
      run.now = found;
      run.template Do<How>(db, plan, life);
      if (only_space && plan->fired_count() != 0) {
        plan->Disarm();
        EXPECT_THAT(db.Synchronize(SyncMode::kHard), IsOk()) << "there is space again";
        EXPECT_THAT(db.GetHealth(), IsOk());
        EXPECT_EQ(Difference(run.now, ListByIterator(db).records), "none");
        run.durable = {run.now};
      }
      run.durable.push_back(run.now);
      if (db.Close().ok()) run.durable = {run.now};
    }
    const bool met = plan->fired_count() != 0;
    plan->Disarm();
    auto again = TreeDBM<typename How::FileType>::Open(How::Open(device, plan));
    if (!created && absl::IsDataLoss(again.status())) continue;  // a partial superblock of a database that was never created
    ASSERT_THAT(again, IsOk());
    auto& db = **again;
    EXPECT_THAT(db.Verify(), IsOk());
    const Records found = ListByIterator(db).records;
    EXPECT_TRUE(std::count(run.durable.begin(), run.durable.end(), found) > 0) << Difference(run.durable.front(), found);
    EXPECT_THAT(db.Set("works", "again"), IsOk());
    EXPECT_THAT(db.Close(), IsOk());
    if (!met || testing::Test::HasFailure()) return ReportFailures(fault.call / kStride);
  }
  FAIL() << "the work has no end";
}

template <class How>
void FailEachCall(Fault fault) {
  constexpr std::uint64_t kHistories = kSlowdown > 1 ? 1 : 5;
  for (std::uint64_t i = 0; i < kHistories && !testing::Test::HasFailure(); ++i) FailEachCall<How>(fault, Random::Mix(TestSeed()) + 2 * i);
}

template <class How>
class TreeFaultTest : public testing::Test {};
using Ways = testing::Types<Mapped, Positional>;
TYPED_TEST_SUITE(TreeFaultTest, Ways);

const Status kFull = absl::ResourceExhaustedError("full");

TYPED_TEST(TreeFaultTest, SurvivesEachFailedRead) { FailEachCall<TypeParam>({.kind = FaultKind::kRead}); }
TYPED_TEST(TreeFaultTest, SurvivesEachFailedWrite) { FailEachCall<TypeParam>({.kind = FaultKind::kWrite}); }
TYPED_TEST(TreeFaultTest, SurvivesEachShortWrite) { FailEachCall<TypeParam>({.kind = FaultKind::kWrite, .is_short = true}); }
TYPED_TEST(TreeFaultTest, SurvivesEachFailedSync) { FailEachCall<TypeParam>({.kind = FaultKind::kSync}); }
TYPED_TEST(TreeFaultTest, SurvivesEachFailedClose) { FailEachCall<TypeParam>({.kind = FaultKind::kClose}); }
TYPED_TEST(TreeFaultTest, SurvivesADeviceThatDies) { FailEachCall<TypeParam>({.forever = true}); }
TYPED_TEST(TreeFaultTest, SurvivesADeviceThatBecomesReadOnly) { FailEachCall<TypeParam>({.kind = FaultKind::kWrite, .forever = true}); }
TYPED_TEST(TreeFaultTest, RecoversWhenAResizeLacksSpace) {
  FailEachCall<TypeParam>({.kind = FaultKind::kResize, .status = kFull});
  FailEachCall<TypeParam>({.kind = FaultKind::kResize, .status = kFull, .forever = true});
}
TYPED_TEST(TreeFaultTest, RecoversWhenAWriteLacksSpace) {
  FailEachCall<TypeParam>({.kind = FaultKind::kWrite, .status = kFull});
  FailEachCall<TypeParam>({.kind = FaultKind::kWrite, .status = kFull, .forever = true, .is_short = true});
}

TYPED_TEST(TreeFaultTest, RefusesUpdatesButReadsAfterAFailedWriteOrSync) {
  for (const FaultKind kind : {FaultKind::kWrite, FaultKind::kSync}) {
    for (const bool in_rebuild : {false, true}) {
      SCOPED_TRACE(testing::Message() << (kind == FaultKind::kSync ? "sync" : "write") << (in_rebuild ? " in Rebuild" : ""));
      MemoryFile device;
      const auto plan = std::make_shared<FaultPlan>();
      ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<typename TypeParam::FileType>::Open(TypeParam::Open(device, plan), {.page_size = 256}));
      for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      for (std::uint64_t i = 0; i < 1500; ++i) ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      EXPECT_THAT(db->GetHealth(), IsOk());
      // Rebuild's first checkpoint writes a superblock, then it moves pages.
      plan->Arm({.kind = kind, .call = in_rebuild && kind == FaultKind::kWrite ? 2u : 1u});
      EXPECT_FALSE((in_rebuild ? db->Rebuild() : db->Synchronize(SyncMode::kHard)).ok());
      ASSERT_EQ(plan->fired_count(), 1u);
      plan->Disarm();
      EXPECT_THAT(db->GetHealth(), StatusIs(absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(db->Set("other", "value"), StatusIs(absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(db->Remove(NumberedKey(1999)), StatusIs(absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(db->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kFailedPrecondition)) << "never tried again";
      EXPECT_THAT(db->SetMetadata({}), StatusIs(absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(db->Get(NumberedKey(1999)), IsOkAndHolds("value"));
      EXPECT_EQ(db->Count(), 500u);
      EXPECT_FALSE(db->Close().ok());
    }
  }
}

TEST(TreeFault, IteratorsStayFailedAfterTheFirstError) {
  MemoryFile device;
  const auto plan = std::make_shared<FaultPlan>();
  const auto open = [&] { return TreeDBM<Positional::FileType>::Open(Positional::Open(device, plan), {.page_size = 512}); };
  {
    ASSERT_OK_AND_ASSIGN(auto db, open());
    for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, open());
  auto it = db->MakeIterator();
  it.First();
  ASSERT_TRUE(it.Valid());
  plan->Arm({.kind = FaultKind::kRead, .forever = true});
  while (it.Valid()) it.Next();
  EXPECT_FALSE(it.status().ok());
  plan->Disarm();
  EXPECT_FALSE(it.Valid());
  EXPECT_FALSE(it.status().ok());
}

// A file in memory that calls back before each write.
class HookedFile : public MemoryFile {
 public:
  using Hook = std::function<void()>;
  HookedFile(MemoryFile file, Hook hook) : MemoryFile(std::move(file)), hook_(std::move(hook)) {}
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in) {
    hook_();
    return MemoryFile::WriteAt(offset, in);
  }

 private:
  Hook hook_;
};

// A checkpoint finds no space while a copy is made. Images of the last checkpoint are not free
// after the copy.
TEST(TreeFault, CopyFreesNothingThatTheLastCheckpointNeeds) {
  using FileType = FaultFile<HookedFile>;
  for (std::uint64_t call = 1, failed = 1; failed != 0; ++call) {
    SCOPED_TRACE(call);
    MemoryFile device, copy;
    const auto plan = std::make_shared<FaultPlan>(), no_plan = std::make_shared<FaultPlan>();
    Records now;
    const auto change = [&](auto& db, std::uint64_t salt) {
      for (std::uint64_t i = 0; i < 3000; ++i) {
        const std::string key = NumberedKey(i);
        now[key] = CheckedValue(key, 100, salt);
        ASSERT_THAT(db.Set(key, now[key]), IsOk());
      }
    };
    Records durable;
    {
      ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<TestFile>::Open(FileType(HookedFile(device.Share(), [] {}), plan), {.page_size = 1024}));
      ASSERT_NO_FATAL_FAILURE(change(*db, 1));
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      durable = now;
      bool tried = false;
      const auto fail_a_checkpoint = [&] {
        if (std::exchange(tried, true)) return;
        ASSERT_NO_FATAL_FAILURE(change(*db, 2));
        plan->Arm({.kind = FaultKind::kWrite, .call = call, .status = kFull, .forever = true});
        const Status status = db->Synchronize(SyncMode::kHard);
        failed = plan->fired_count();
        EXPECT_EQ(status.ok(), failed == 0);
        plan->Disarm();
        if (status.ok()) durable = now;
      };
      const Records before = durable;
      ASSERT_THAT(db->CopyTo(FileType(HookedFile(copy.Share(), fail_a_checkpoint), no_plan)), IsOk());
      ASSERT_TRUE(tried);
      EXPECT_EQ(Difference(before, Run::RecordsOf(copy)), "none");
      plan->Arm({.kind = FaultKind::kSync, .forever = true});
      EXPECT_FALSE(db->Synchronize(SyncMode::kHard).ok());  // has written its pages
    }
    ASSERT_EQ(Difference(durable, Run::RecordsOf(device)), "none");
  }
}

// The first checkpoint searches for free space and fails to read a part of the page map. The next
// one starts the search again.
TEST(TreeFault, RetriesTheSearchForFreeSpace) {
  for (std::uint64_t call = 1, failed = 1; failed != 0; ++call) {
    SCOPED_TRACE(call);
    MemoryFile device;
    const auto plan = std::make_shared<FaultPlan>();
    const auto open = [&] { return TreeDBM<Mapped::FileType>::Open(Mapped::Open(device, plan), {.page_size = 128}); };
    {
      ASSERT_OK_AND_ASSIGN(auto db, open());
      for (std::uint64_t i = 0; i < 6000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "value"), IsOk());
      ASSERT_THAT(db->RemoveRange(NumberedKey(0), NumberedKey(5000)), IsOkAndHolds(5000u));
      ASSERT_THAT(db->Close(), IsOk());
    }
    ASSERT_OK_AND_ASSIGN(auto db, open());
    plan->Arm({.kind = FaultKind::kRead, .call = call});
    const Status status = db->Synchronize(SyncMode::kHard);
    failed = plan->fired_count();
    ASSERT_EQ(status.ok(), failed == 0);
    plan->Disarm();
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "new"), IsOk());
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_EQ(ListByIterator(*db).records.size(), 6000u);
  }
}

template <class FileT>
class TreeFullDiskTest : public testing::Test {};
using RealFiles = testing::Types<MemoryMapParallelFile, PositionalParallelFile>;
TYPED_TEST_SUITE(TreeFullDiskTest, RealFiles);

TYPED_TEST(TreeFullDiskTest, ReadsContinueAndUpdatesResumeWithSpace) {
  SmallDisk disk(8 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  const std::string path = disk.File("db"), ballast = disk.File("ballast");
  std::ofstream(ballast) << std::string(4 << 20, 'b');
  Records now;
  {
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<TypeParam>::Open(path));
    Status status;
    for (std::uint64_t i = 0; i < 100'000 && status.ok(); ++i) {
      const std::string key = NumberedKey(i), value = CheckedValue(key, i % 500 == 0 ? 50'000 : 40, i);
      status = db->Set(key, value);
      if (status.ok()) now[key] = value;
      if (i % 1000 == 0 && status.ok()) status = db->Synchronize(SyncMode::kHard);
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
    // The background thread may just have made room in the log.
    if (const Status again = db->Set("refused", ""); again.ok()) {
      now["refused"] = "";
    } else {
      EXPECT_THAT(again, StatusIs(absl::StatusCode::kResourceExhausted));
    }
    EXPECT_EQ(Difference(now, ListByIterator(*db).records), "none");
    std::filesystem::remove(ballast);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    now["accepted"] = "again";
    ASSERT_THAT(db->Set("accepted", "again"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<TypeParam>::Open(path));
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_EQ(Difference(now, ListByIterator(*db).records), "none");
}

TYPED_TEST(TreeFullDiskTest, BatchIsAcceptedIfItsRecordsBecomeNoLarger) {
  SmallDisk disk(4 << 20);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<TypeParam>::Open(disk.File("db"), {.durability = Durability::kNone}));
  Records now;
  for (std::uint64_t i = 0; i < 1000 && db->GetHealth().ok(); ++i) {
    const std::string key = NumberedKey(i), value = CheckedValue(key, i % 2 == 0 ? 100 : 30'000, i);
    if (db->Set(key, value).ok()) now[key] = value;
    (void)db->Synchronize(SyncMode::kHard);
  }
  ASSERT_THAT(db->GetHealth(), StatusIs(absl::StatusCode::kResourceExhausted));
  // Replaces the records 0 and 1, and adds one.
  const auto write = [&](const std::vector<std::size_t>& sizes, std::size_t num_shown) {
    Records after = now;
    std::vector<std::string> keys, values;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      keys.push_back(i == 2 ? "added" : NumberedKey(i));
      values.push_back(CheckedValue(keys[i], sizes[i], 7));
      after[keys[i]] = values[i];
    }
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto visit = [&](std::size_t i, std::optional<std::string_view>) { return std::optional(Action::Set(values[i])); };
    const Status status = db->ProcessMulti(Batch<Action>{views, visit, num_shown});
    if (status.ok()) now = std::move(after);
    EXPECT_EQ(Difference(now, ListByIterator(*db).records), "none");
    return status;
  };
  for (const std::size_t num_shown : {3, 0}) {
    EXPECT_THAT(write({100, 30'001}, num_shown), StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(write({101, 29'999}, num_shown), IsOk());
    EXPECT_THAT(write({100, 30'000}, num_shown), IsOk());
    EXPECT_THAT(write({100, 30'000, 50}, num_shown), StatusIs(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_THAT(write({100, 29'000, 50}, 1), IsOk());
  EXPECT_THAT(db->Set(NumberedKey(0), "shorter"), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace hako
