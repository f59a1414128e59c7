// The log of a database on a device that fails, that is full, or that takes long to write: which updates
// are refused, which are there after the death of the process, and who waits.
//
// A process is killed here by copying its files as they are in memory.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/logged_kinds.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/hooked_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {
namespace {

// Opens copies of both files as they are at one moment, though the background thread may write them.
template <class Kind>
auto OpenCopies(const MemoryFile& file, const MemoryFile& log) {
  using Image = std::vector<std::byte>;
  const auto image_of = [](const MemoryFile& of) {
    const auto bytes = of.View(0, of.Size());
    return Image(bytes.begin(), bytes.end());
  };
  Image of_file = image_of(file), of_log = image_of(log);
  while (image_of(file) != of_file || image_of(log) != of_log) of_file = image_of(file), of_log = image_of(log);
  return Kind::template On<MemoryFile>::Database::Open(MemoryFile::Of(of_file), MemoryFile::Of(of_log));
}

template <class Kind>
class LogFaultTest : public testing::Test {
 protected:
  using File = FaultFile<MemoryFile>;
  using Database = typename Kind::Database;
  static inline const auto& kOptions = Kind::kOptions;
  static auto WithPower() {
    auto options = kOptions;
    options.durability = Durability::kPower;
    return options;
  }
  template <class Options = std::remove_const_t<decltype(kOptions)>>
  auto Open(const Options& options = kOptions) {
    return Database::Open(File(file_.Share(), std::make_shared<FaultPlan>()), File(log_.Share(), plan_), options);
  }
  // What a process finds after this one was killed, once the background thread is idle.
  auto OpenKilled(Database& db) {
    for (std::uint64_t epoch = 0; epoch != db.GetStats().epoch; std::this_thread::sleep_for(std::chrono::milliseconds(50)))
      epoch = db.GetStats().epoch;
    return OpenCopies<Kind>(file_, log_);
  }
  MemoryFile file_, log_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
};
using FaultKinds = testing::Types<LoggedTree<FaultFile<MemoryFile>>, LoggedHash<FaultFile<MemoryFile>>>;
TYPED_TEST_SUITE(LogFaultTest, FaultKinds);

TYPED_TEST(LogFaultTest, FailedSyncRefusesUpdatesUntilReopened) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->WithPower()));
  ASSERT_THAT(db->Set("a", "1"), IsOk());
  this->plan_->Arm({.kind = FaultKind::kSync});
  EXPECT_THAT(db->Set("b", "2"), testing::Not(IsOk()));
  EXPECT_THAT(db->Set("c", "3"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->GetHealth(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(db->Get("a").value(), "1");
  EXPECT_THAT(db->Close(), IsOk());  // by a checkpoint, which needs no log
  ASSERT_OK_AND_ASSIGN(db, this->Open());
  EXPECT_EQ(db->Get("a").value(), "1");
  ASSERT_THAT(db->Set("c", "3"), IsOk());
}

// An update that the log has no room for leaves no trace, and a checkpoint makes room.
TYPED_TEST(LogFaultTest, FullDeviceRefusesAnUpdateWithoutATrace) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  this->plan_->Arm({.kind = FaultKind::kResize, .status = absl::ResourceExhaustedError("full"), .forever = true});
  Random random(TestSeed());
  Records expected;
  int num_refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string key = NumberedKey(random.Below(100)), value(random.Below(random.OneIn(10) ? 5000 : 100), 'v');
    Status status;
    Records after = expected;
    if (i % 50 == 49) {
      const std::string other = key + "x";
      const std::string_view keys[] = {key, other};
      after.erase(key);
      after[other] = value;
      status = db->ProcessMulti(keys, [&](std::size_t k, auto) { return k == 0 ? Action::Remove() : Action::Set(value); });
    } else if (i % 5 == 4) {
      after.erase(key);
      status = db->Remove(key);
      if (absl::IsNotFound(status)) continue;
    } else {
      after[key] = value;
      status = db->Set(key, value);
    }
    if (status.ok()) {
      expected = after;
    } else {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
      ++num_refused;
    }
    ASSERT_OK_AND_ASSIGN(const std::string now, db->GetOr(key, "none"));
    ASSERT_EQ(now, expected.count(key) != 0 ? expected[key] : "none");
    if (!status.ok()) ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  }
  EXPECT_GT(num_refused, 3);
  EXPECT_THAT(db->GetHealth(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto killed, this->OpenKilled(*db));
  EXPECT_EQ(ListByIterator(*killed).records, expected);
}

TYPED_TEST(LogFaultTest, ClearOnAFullDeviceIsDurable) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  this->plan_->Arm({.kind = FaultKind::kResize, .status = absl::ResourceExhaustedError("full"), .forever = true});
  for (std::uint64_t i = 0; db->Set(NumberedKey(i), "some value").ok(); ++i) ASSERT_LT(i, 1'000'000u);
  ASSERT_THAT(db->Clear(), IsOk());
  ASSERT_THAT(db->Set("after", "it"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto killed, this->OpenKilled(*db));
  EXPECT_EQ(killed->Count(), 1u);
}

// Every call of opening and closing fails in turn; nothing is lost.
TYPED_TEST(LogFaultTest, FailedOpenAndCloseLoseNothing) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open());
    ASSERT_THAT(db->Set("key", "0"), IsOk());
  }
  std::uint64_t failures = 0;
  for (std::uint64_t call = 1; call < 40; ++call) {
    SCOPED_TRACE(call);
    this->plan_->Arm({.call = call, .forever = true});
    bool is_set = false;
    if (auto db = this->Open(); db.ok()) {
      is_set = (*db)->Set("key", std::to_string(call)).ok();
      (void)(*db)->Close();
    }
    failures += this->plan_->fired_count() != 0 ? 1 : 0;
    this->plan_->Disarm();
    ASSERT_OK_AND_ASSIGN(auto db, this->Open());
    if (is_set) EXPECT_EQ(db->Get("key").value(), std::to_string(call));
    ASSERT_THAT(db->Set("key", "0"), IsOk());
  }
  ReportFailures(failures);
}

// ---- long values ----

template <class Kind>
class LongValueLogTest : public testing::Test {};
using HookedKinds = testing::Types<LoggedTree<HookedFile>, LoggedHash<HookedFile>>;
TYPED_TEST_SUITE(LongValueLogTest, HookedKinds);

// While the device takes long to write the log's copy of a value, all records can be read.
TYPED_TEST(LongValueLogTest, ReadersDoNotWaitForTheLog) {
  MemoryFile file, log;
  std::atomic<int> writes_left = -1;
  std::atomic<bool> waits = false, goes_on = false;
  const auto slow = [&](Access access) {
    if (access != Access::kWrite || writes_left < 0 || writes_left-- != 0) return;
    waits = true;
    goes_on.wait(false);
  };
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Database::Open(HookedFile(file.Share(), [](Access) {}), HookedFile(log.Share(), slow)));
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "short"), IsOk());
  for (const bool is_long : {false, true}) {  // the old value
    SCOPED_TRACE(is_long);
    waits = goes_on = false;
    const std::string value(std::size_t{1} << 20, is_long ? 'w' : 'v');
    writes_left = 60;
    std::thread writer([&] { EXPECT_THAT(db->Set(NumberedKey(50), value), IsOk()); });
    while (!waits) std::this_thread::yield();
    auto reads = std::async(std::launch::async, [&] {
      for (std::uint64_t i = 0; i < 100; ++i) EXPECT_THAT(db->Get(NumberedKey(i)), IsOk());
      EXPECT_EQ(db->Get(NumberedKey(50)).value()[0], is_long ? 'v' : 's');
    });
    EXPECT_EQ(reads.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    goes_on = true;
    goes_on.notify_all();
    writer.join();
    reads.get();
    EXPECT_EQ(db->Get(NumberedKey(50)).value(), value);
  }
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto killed, OpenCopies<TypeParam>(file, log));
  EXPECT_EQ(killed->Get(NumberedKey(50)).value(), std::string(std::size_t{1} << 20, 'w'));
  EXPECT_EQ(killed->Count(), 100u);
}

// Threads set and remove long values beside checkpoints; a copy of the files as they are at any
// time has every update that was acknowledged.
TYPED_TEST(LongValueLogTest, AreKeptBesideCheckpoints) {
  MemoryFile file, log;
  const auto none = [](Access) {};
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Database::Open(HookedFile(file.Share(), none), HookedFile(log.Share(), none)));
  std::atomic<int> writers = 3;
  std::array<std::string, 9> expected;  // by key
  RunThreads(4, [&](int thread) {
    if (thread == 3) {
      while (writers != 0) EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      return;
    }
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    for (int i = 0; i < 120; ++i) {
      const std::size_t number = static_cast<std::size_t>(thread) + 3 * random.Below(3);
      std::string value;
      if (!random.OneIn(5)) value.assign(random.OneIn(3) ? 100 : 270'000 + random.Below(600'000), static_cast<char>('a' + i % 26));
      const Status status = value.empty() ? db->Remove(NumberedKey(number)) : db->Set(NumberedKey(number), value);
      EXPECT_TRUE(status.ok() || (value.empty() && absl::IsNotFound(status))) << status;
      expected[number] = value;
    }
    --writers;
  });
  SCOPED_TRACE(TestSeed());
  ASSERT_OK_AND_ASSIGN(auto killed, OpenCopies<TypeParam>(file, log));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const std::string found, killed->GetOr(NumberedKey(i), ""));
    EXPECT_TRUE(found == expected[i]) << i << ": " << found.size() << " bytes, not " << expected[i].size();
  }
  EXPECT_THAT(killed->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
