// The clock of a database whose records expire: no operation, crash or copy takes it back, so that an
// expired record never returns.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "dbm/damage.h"
#include "dbm/expiry_fixture.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/child_process.h"
#include "support/small_disk.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

using ExpiryFileTest = ExpiryTest;
INSTANTIATE_TEST_SUITE_P(InFiles, ExpiryFileTest, kExpiryFiles);
using ExpirySnapshotTest = ExpiryTest;
INSTANTIATE_TEST_SUITE_P(InFiles, ExpirySnapshotTest, testing::Values(".hks", ".hks?dbm=baby"));

TEST_P(ExpiryFileTest, TimesAndClockSurviveReopening) {
  ASSERT_THAT(db_->Set("soon", "1", {.ttl = 10ms}), IsOk());
  ASSERT_THAT(db_->Set("later", "2", {.ttl = 100ms}), IsOk());
  ASSERT_THAT(db_->Set("ever", "3"), IsOk());
  Reopen();
  EXPECT_THAT(Keys(), ElementsAre("ever", "later", "soon"));
  EXPECT_THAT(db_->GetExpiry("later"), IsOkAndHolds(kStart + 100));
  the_time = kStart + 20;
  EXPECT_THAT(Keys(), ElementsAre("ever", "later"));
  Reopen("expiry=true");  // an old database: the option asks for what there is
  the_time = kStart - 1000;
  EXPECT_THAT(Keys(), ElementsAre("ever", "later")) << "a clock that was set back has revived a record";
  Reopen();
  EXPECT_THAT(Keys(), ElementsAre("ever", "later"));
}

// After a kill, the live state of a mapped file has the clock.
TEST(ExpiryKillTest, AMappedFileKeepsItsClock) {
  constexpr std::uint8_t kBoot = 3;
  the_time = kStart;
  MemoryFile file;
  const HashOptions options{.expiry = true, .clock = &TheTime};
  auto db = HashDBM<MappedTestFile>::Open(BootedMemoryFile(file.Share(), kBoot), options).value();
  ASSERT_THAT(db->Set("key", "value", {.ttl = 10ms}), IsOk());
  the_time = kStart + 10;
  EXPECT_THAT(db->Contains("key"), IsOkAndHolds(false));
  const auto is_noted = [&] {
    const auto image = file.View(0, file.Size());
    MemoryFile killed = MemoryFile::Of(Image(image.begin(), image.end()));
    the_time = kStart - 1000;
    auto next = HashDBM<MappedTestFile>::Open(BootedMemoryFile(killed.Share(), kBoot), {.clock = &TheTime}).value();
    the_time = kStart + 10;
    return !*next->Contains("key");
  };
  bool noted = false;
  for (int i = 0; i < 6000 && !noted; ++i) {
    std::this_thread::sleep_for(10ms);
    noted = is_noted();
  }
  EXPECT_TRUE(noted) << "the record has returned";
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_P(ExpiryFileTest, CloseKeepsTheClockOfAnUnchangedDatabase) {
  ASSERT_THAT(db_->Set("soon", "1", {.ttl = 10ms}), IsOk());
  ASSERT_THAT(db_->Set("ever", "2"), IsOk());
  Reopen();
  the_time = kStart + 20;
  EXPECT_THAT(Keys(), ElementsAre("ever"));
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(db_->Close(), IsOk());
    the_time = kStart + 5;
    db_ = nullptr;
    db_ = Open("mode=write").value();
    EXPECT_THAT(Keys(), ElementsAre("ever")) << "after opening " << i;
  }
}

// The process that finds it expired is killed a moment later. One expired record of fifty is not removed
// yet, except by the first pass of the background thread.
TEST_P(ExpiryFileTest, AKillDoesNotReviveARecord) {
  ASSERT_THAT(db_->Set("soon", "1", {.expire_at = kStart + 1000}), IsOk());
  for (int i = 0; i < 50; ++i) ASSERT_THAT(db_->Set(absl::StrCat("key", i), "2"), IsOk());
  bool is_absent = false;
  std::uint64_t begin = kStart;
  for (auto moment = 200ms; !is_absent && moment < 10s; moment *= 2) {  // it is 0.1 s, or more on a busy machine
    begin += 100;
    for (const char* const key : {"late", "late with a time"}) (void)db_->Remove(key);
    ASSERT_THAT(db_->Set("first", "3", {.expire_at = begin}), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
    db_ = nullptr;
    the_time = begin;
    ChildProcess child([&](ChildProcess& self) {
      auto db = Open("mode=write");
      if (!db.ok()) return 1;
      for (int i = 0; i < 5000 && (*db)->Count() > 51; ++i) std::this_thread::sleep_for(1ms);  // until the first pass is over
      the_time = kStart + 2000;
      if ((*db)->Contains("soon").value_or(true)) return 2;
      if (!(*db)->Set("late", "4").ok() || !(*db)->Set("late with a time", "4", {.expire_at = kStart + 9000}).ok()) return 3;
      std::this_thread::sleep_for(moment);
      self.Tell();
      self.Wait();
      return 0;
    });
    child.Wait();
    child.Kill();
    db_ = Open("mode=write").value();
    is_absent = !*db_->Contains("soon");
  }
  EXPECT_TRUE(is_absent);
  EXPECT_EQ(Keys().size(), 52u) << "a Set before the kill is lost";
  for (int i = 0; i < 2; ++i) {
    Reopen();
    EXPECT_THAT(db_->Contains("soon"), IsOkAndHolds(false)) << "after Close";
  }
}

TEST_P(ExpiryFileTest, ARestoredDatabaseHasTheClockOfItsHistory) {
  const std::string name = GetParam(), suffix = name.substr(0, name.find('?')), archive = dir_.path() + "/archive";
  std::filesystem::create_directory(archive);
  Reopen(absl::StrCat("log_archive=", archive));
  ASSERT_THAT(db_->Set("gone", "0", {.ttl = 5ms}), IsOk());
  ASSERT_THAT(db_->Set("a", "1", {.ttl = 50ms}), IsOk());
  ASSERT_THAT(db_->CopyTo(dir_.path() + "/copy" + suffix), IsOk());
  ASSERT_THAT(db_->Set("b", "2", {.ttl = 50ms}), IsOk());
  the_time = kStart + 20;
  EXPECT_THAT(Keys(), ElementsAre("a", "b"));
  ASSERT_THAT(db_->Close(), IsOk());
  db_ = nullptr;
  const std::string restored = dir_.path() + "/restored" + suffix;
  ASSERT_THAT(AnyDBM::Restore(dir_.path() + "/copy" + suffix, archive, restored, {}).status(), IsOk());
  AnyOptions options = ParseAnyOptions(restored + (name == suffix ? "" : name.substr(suffix.size()))).value();
  options.clock = &TheTime;
  auto db = AnyDBM::Open(options).value();
  EXPECT_THAT(db->Contains("a"), IsOkAndHolds(true)) << "the restore has read the clock of its own machine";
  EXPECT_THAT(db->Contains("b"), IsOkAndHolds(true));
  EXPECT_THAT(db->Contains("gone"), IsOkAndHolds(false));
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

TEST_P(ExpirySnapshotTest, IdleSynchronizationsAndOpeningsDoNotGrowTheFile) {
  const std::string path = dir_.path() + "/db.hks";
  ASSERT_THAT(db_->Set("soon", "1", {.ttl = 100ms}), IsOk());
  Reopen();
  ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  const auto open_size = std::filesystem::file_size(path);
  for (int i = 0; i < 5; ++i, ++the_time) ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_EQ(std::filesystem::file_size(path), open_size);
  Reopen("mode=read");
  const auto closed_size = std::filesystem::file_size(path);
  for (int i = 0; i < 5; ++i, ++the_time) Reopen("mode=write");
  Reopen("mode=read");
  EXPECT_EQ(std::filesystem::file_size(path), closed_size);
}

TEST(ExpiryFullDeviceTest, AnUnchangedSnapshotIsSynchronizedAndClosed) {
  const SmallDisk disk(64 << 10);
  if (!disk.is_mounted()) GTEST_SKIP() << "cannot mount a small file system";
  the_time = kStart;
  const std::string path = disk.File("db.hks");
  TinyOptions options{.durability = Durability::kNone, .expiry = true, .clock = &TheTime};
  auto db = TinyDBM<>::Open(path, options).value();
  ASSERT_THAT(db->Set("soon", std::string(3850, 'x'), {.ttl = 10ms}), IsOk());  // the snapshot fills a page
  ASSERT_THAT(db->Close(), IsOk());
  db = TinyDBM<>::Open(path, options).value();
  std::ofstream fill(disk.File("fill"));
  while (fill.write(std::string(1000, 'z').data(), 1000).flush()) continue;
  const auto size = std::filesystem::file_size(path);
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  the_time = kStart + 10;
  EXPECT_THAT(db->Contains("soon"), IsOkAndHolds(false));
  EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_EQ(std::filesystem::file_size(path), size);
  the_time = kStart;
  options.clock = &TheTime;
  EXPECT_THAT(TinyDBM<>::Open(path, options).value()->Verify(), IsOk());
}

TEST(ExpiryClockTest, LoadTakesTheClockOfTheSnapshot) {
  the_time = kStart;
  MemoryFile snapshot;
  const auto source = TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value();
  ASSERT_THAT(source->Set("soon", "1", {.ttl = 10ms}), IsOk());
  the_time = kStart + 20;
  EXPECT_THAT(source->Contains("soon"), IsOkAndHolds(false));
  ASSERT_THAT(source->Save(snapshot), IsOk());
  the_time = kStart;
  const auto db = TinyDBM<>::Open({.expiry = true, .clock = &TheTime}).value();
  ASSERT_THAT(db->Load(snapshot), IsOk());
  EXPECT_THAT(db->Contains("soon"), IsOkAndHolds(false));
}

// As after a jump of the system's clock, or in a file from a machine whose clock is ahead.
TEST(ExpiryClockTest, TimeGoesOnWhileTheSystemIsBehind) {
  const std::uint64_t ahead = Expiry(nullptr, 0).Now() + 3'600'000;
  const Expiry expiry(nullptr, ahead);
  const std::uint64_t first = expiry.Now();
  EXPECT_GE(first, ahead);
  std::uint64_t last = first;
  for (int i = 0; i < 1000 && last == first; ++i) {
    std::this_thread::sleep_for(1ms);
    last = expiry.Now();
    ASSERT_GE(last, first);
  }
  EXPECT_GT(last, first);
  EXPECT_LT(last, ahead + 60'000);
}

}  // namespace
}  // namespace hako
