// The removal of expired records, by the thread of the database and by RemoveExpired.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dbm/expiry_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/expiry_schedule.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/memory_file.h"
#include "support/child_process.h"
#include "support/file_system.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using namespace std::chrono_literals;

INSTANTIATE_TEST_SUITE_P(InFiles, ExpiryTest, kExpiryFiles);
INSTANTIATE_TEST_SUITE_P(InMemory, ExpiryTest, kExpiryMemory);
using ExpiryOpenTest = ExpiryTest;
INSTANTIATE_TEST_SUITE_P(InFiles, ExpiryOpenTest, testing::Values(".hkh", ".hkt", ".hkh?file=pos", ".hkt?file=pos", ".hkh?direct=true"));
using ExpiryDamagedFileTest = ExpiryTest;
INSTANTIATE_TEST_SUITE_P(Kinds, ExpiryDamagedFileTest, testing::Values(".hkh", ".hkt"));

// Waits until the background thread has left `count` records.
template <class D>
bool LeavesRecords(D& db, std::uint64_t count) {
  for (int i = 0; i < 12'000 && db.Count() > count; ++i) std::this_thread::sleep_for(5ms);
  return db.Count() <= count;
}

TEST_P(ExpiryTest, ExpiredRecordsAreRemoved) {
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t time = i % 2 == 0 ? kStart + 1 + static_cast<std::uint64_t>(i) : 0;
    ASSERT_THAT(db_->Set(absl::StrCat("key", i), "value", {.expire_at = time}), IsOk());
  }
  EXPECT_EQ(db_->Count(), 2000u);
  the_time = kStart + 1000;
  ASSERT_THAT(db_->RemoveExpired().status(), IsOk());
  EXPECT_EQ(db_->Count(), 1500u);
  EXPECT_EQ(Keys().size(), 1500u);
  the_time = kStart + 5000;
  for (int i = 0; i < 3000 && db_->Count() > 1000; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_EQ(db_->Count(), 1000u) << "the background thread has not removed them";
}

// A database that was closed is read by its background thread only once a record may have expired.
TEST_P(ExpiryOpenTest, NoPassIsDueBeforeARecordExpires) {
  const auto is_due_at = [this](std::uint64_t time) { return db_->expiry()->schedule().IsDue(time, db_->Count()); };
  ASSERT_THAT(db_->Set("ever", "value"), IsOk());
  for (int i = 0; i < 100; ++i) {  // until the first pass, of the new database, has ended before the Close
    std::this_thread::sleep_for(50ms * (i + 1));
    Reopen("mode=read");  // without the thread
    if (!is_due_at(kStart)) break;
    Reopen();
  }
  EXPECT_FALSE(is_due_at(kStart));
  EXPECT_FALSE(is_due_at(2 * kStart));
  Reopen();
  ASSERT_THAT(db_->Set("later", "value", {.ttl = 100ms}), IsOk());
  ASSERT_THAT(db_->Set("soon", "value", {.ttl = 50ms}), IsOk());
  Reopen("mode=read");
  EXPECT_FALSE(is_due_at(kStart + 49));
  EXPECT_TRUE(is_due_at(kStart + 50));
}

TEST_P(ExpiryOpenTest, RecordsOfAKilledProcessAreRemoved) {
  ASSERT_THAT(db_->Set("ever", "value"), IsOk());
  std::this_thread::sleep_for(200ms);  // so that the file says that no record expires
  ASSERT_THAT(db_->Close(), IsOk());
  db_ = nullptr;
  ChildProcess child([&](ChildProcess& parent) {
    const auto db = Open("mode=write").value();
    for (int i = 0; i < 100; ++i) {
      if (!db->Set(absl::StrCat("key", i), "value", {.ttl = 50ms}).ok()) return 1;
    }
    parent.Tell();
    pause();
    return 0;
  });
  child.Wait();
  ASSERT_EQ(child.Kill(), -1 - SIGKILL);  // it has set all
  the_time = kStart + 50;
  db_ = Open("mode=write").value();
  EXPECT_TRUE(LeavesRecords(*db_, 1));
  EXPECT_EQ(Get("ever"), "value");
}

// The file that the log is applied to says that no record expires.
TEST_P(ExpiryOpenTest, RestoredRecordsAreRemoved) {
  const std::string name = GetParam(), suffix = name.substr(0, name.find('?')), archive = dir_.path() + "/archive";
  const std::string old = dir_.path() + "/old" + suffix, restored = dir_.path() + "/restored" + suffix;
  std::filesystem::create_directory(archive);
  Reopen(absl::StrCat("log_archive=", archive));
  ASSERT_THAT(db_->Set("ever", "value"), IsOk());
  std::this_thread::sleep_for(200ms);
  ASSERT_THAT(db_->Close(), IsOk());
  std::filesystem::copy(dir_.path() + "/db" + suffix, old);
  db_ = Open(absl::StrCat("mode=write,log_archive=", archive)).value();
  for (int i = 0; i < 100; ++i) ASSERT_THAT(db_->Set(absl::StrCat("key", i), "value", {.ttl = 50ms}), IsOk());
  ASSERT_THAT(db_->Close(), IsOk());
  ASSERT_THAT(AnyDBM::Restore(old, archive, restored, {}).status(), IsOk());
  the_time = kStart + 50;
  AnyOptions options = ParseAnyOptions(restored + (name == suffix ? "" : name.substr(suffix.size()))).value();
  options.clock = &TheTime;
  db_ = AnyDBM::Open(options).value();
  EXPECT_EQ(db_->Count(), 101u);
  EXPECT_TRUE(LeavesRecords(*db_, 1));
  EXPECT_THAT(Keys(), testing::ElementsAre("ever"));
}

// Readers and writers see each record until its time and never after it, while expired ones are removed.
TEST_P(ExpiryTest, ThreadsSeeNoExpiredRecord) {
  std::atomic<bool> stops{false};
  std::atomic<int> late{0}, early{0};
  const auto write = [&](int thread) {
    for (std::uint64_t i = 0; !stops; ++i) {
      const std::string key = absl::StrCat(thread, "/", i % 50);
      const std::uint64_t now = the_time, time = now + 1 + i % 7;
      if (!db_->Set(key, absl::StrCat(time), {.expire_at = time}).ok()) ++early;
      const auto found = db_->Get(key);
      if (!found.ok() && the_time < time) ++early;
    }
  };
  const auto read = [&] {
    for (std::uint64_t i = 0; !stops; ++i) {
      const std::uint64_t before = the_time;
      const auto found = db_->Get(absl::StrCat(i % 2, "/", i / 2 % 50));
      std::uint64_t time = 0;
      if (found.ok() && (!absl::SimpleAtoi(*found, &time) || time <= before)) ++late;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(write, i);
  threads.emplace_back(read);
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(1ms);
    ++the_time;
    if (i % 20 == 0) {
      EXPECT_THAT(db_->RemoveExpired().status(), IsOk());
    }
  }
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(late, 0);
  EXPECT_EQ(early, 0);
}

// A database whose background thread has already gone over it, empty.
std::unique_ptr<TinyDBM<>> OpenSwept() {
  auto db = TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value();
  EXPECT_THAT(db->Set("first", "1", {.ttl = 1ms}), IsOk());
  ++the_time;
  EXPECT_TRUE(LeavesRecords(*db, 0));
  return db;
}

TEST(ExpirySweepTest, CountsTheSetsOfDatabasesThatTakeTurns) {
  the_time = kStart;
  const auto a = OpenSwept(), b = OpenSwept();
  for (int i = 0; i < 4000; ++i) {
    ASSERT_THAT((i % 2 == 0 ? a : b)->Set(absl::StrCat("key", i), "value", {.ttl = 1000ms}), IsOk());
  }
  the_time += 10'000;
  EXPECT_TRUE(LeavesRecords(*a, 0)) << a->Count();
  EXPECT_TRUE(LeavesRecords(*b, 0)) << b->Count();
}

TEST(ExpirySweepTest, CountsSetsBetweenThoseOfLongLivedRecords) {
  the_time = kStart;
  for (int phase = 0; phase < 8; ++phase) {
    const auto db = OpenSwept();
    for (int i = 0; i < 800; ++i) {
      ASSERT_THAT(db->Set(absl::StrCat("key", i), "value", {.ttl = i % 8 == 2 * phase % 8 ? 8'000'000'000ms : 1000ms}), IsOk());
    }
    the_time += 10'000;
    ASSERT_TRUE(LeavesRecords(*db, 150)) << db->Count();
  }
}

TEST(ExpirySweepTest, SeesTheRecordsOfLoad) {
  the_time = kStart;
  MemoryFile snapshot;
  const auto source = TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value();
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(source->Set(absl::StrCat("key", i), "value", {.ttl = 1000ms}), IsOk());
  ASSERT_THAT(source->Save(snapshot), IsOk());
  const auto db = OpenSwept();
  ASSERT_THAT(db->Load(snapshot), IsOk());
  ASSERT_EQ(db->Count(), 1000u);
  the_time += 10'000;
  EXPECT_TRUE(LeavesRecords(*db, 0)) << db->Count();
}

// Damages a record, or the page that it is in.
TEST_P(ExpiryDamagedFileTest, DamageDoesNotStopTheRemoval) {
  for (int i = 0; i < 3000; ++i) ASSERT_THAT(db_->Set(absl::StrCat("key", i), absl::StrCat("value", i), {.ttl = 1000ms}), IsOk());
  ASSERT_THAT(db_->Close(), IsOk());
  db_ = nullptr;
  const std::string path = dir_.path() + "/db" + GetParam();
  std::string bytes = ReadWhole(path);
  const std::size_t at = bytes.find("value1777");
  ASSERT_NE(at, bytes.npos);
  bytes[at] = 'X';
  WriteWhole(path, bytes);
  the_time = kStart + 1000;
  db_ = Open("mode=write").value();
  EXPECT_TRUE(LeavesRecords(*db_, 300)) << db_->Count();
  EXPECT_GE(db_->Count(), 1u);
  EXPECT_THAT(db_->RemoveExpired().status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(db_->Verify(), StatusIs(absl::StatusCode::kDataLoss));
  (void)db_->Close();
  db_ = nullptr;
}

}  // namespace
}  // namespace hako
