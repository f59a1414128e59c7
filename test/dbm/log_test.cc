// The log of a database: what Open finds after the death of a process, and which files it refuses.
//
// A process is killed here by copying its files as they are in the page cache.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/hooked_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using testing::HasSubstr;

// A kind of database that logs its updates. A copied file of a mapped HashDBM looks like one after a
// power cut.
template <class FileT>
struct Tree {
  using Database = TreeDBM<FileT>;
  static constexpr bool kIsTree = true, kIsInMemory = false;
  static constexpr TreeOptions kOptions = {.page_size = 512};
  template <class F>
  using On = Tree<F>;
};
template <class FileT>
struct Hash {
  using Database = HashDBM<FileT>;
  static constexpr bool kIsTree = false, kIsInMemory = false;
  static constexpr HashOptions kOptions = {.durability = MappedFile<FileT> ? Durability::kPower : Durability::kProcess};
  template <class F>
  using On = Hash<F>;
};

struct Tiny {
  using Database = TinyDBM<>;
  static constexpr bool kIsTree = false, kIsInMemory = true;
  static constexpr TinyOptions kOptions = {};
};
struct Baby {
  using Database = BabyDBM<>;
  static constexpr bool kIsTree = true, kIsInMemory = true;
  static constexpr BabyOptions kOptions = {.page_size = 512};
};

template <class Kind>
class LogTest : public testing::Test {
 protected:
  using Database = typename Kind::Database;
  static constexpr auto kOptions = Kind::kOptions;
  static constexpr bool kIsTree = Kind::kIsTree, kIsInMemory = Kind::kIsInMemory;
  static constexpr bool kReadsItsLog = kIsTree || kIsInMemory;                          // when it is opened read-only
  static constexpr int kSlowness = kOptions.durability == Durability::kPower ? 10 : 1;  // each update is synced

  std::string path() const { return directory_.File("db"); }
  static std::string LogOf(const std::string& path) { return path + "-log"; }
  template <class Options = std::remove_const_t<decltype(kOptions)>>
  auto Open(const std::string& path, const Options& options = kOptions, OpenMode mode = OpenMode::kCreate) {
    return Database::Open(path, options, {.mode = mode});
  }
  static auto With(Durability durability) {
    auto options = kOptions;
    options.durability = durability;
    return options;
  }
  static auto WithLogBytes(std::uint64_t log_bytes) {
    auto options = kOptions;
    options.log_bytes = log_bytes;
    return options;
  }
  // Until the background thread is idle: a file that is copied while it is written is of no one moment.
  static void AwaitIdle(Database& db) {
    for (std::uint64_t epoch = 0; epoch != db.GetStats().epoch; std::this_thread::sleep_for(std::chrono::milliseconds(50)))
      epoch = db.GetStats().epoch;
  }
  // The files as they are now, under another name: of one moment, though a snapshot may replace the first.
  std::string Kill(const std::string& name = "killed") {
    const std::string copy = directory_.File(name);
    for (FileNumber number; number != NumberOf(path());) {
      number = NumberOf(path());
      std::filesystem::copy_file(path(), copy, std::filesystem::copy_options::overwrite_existing);
      if (std::filesystem::exists(LogOf(path())))
        std::filesystem::copy_file(LogOf(path()), LogOf(copy), std::filesystem::copy_options::overwrite_existing);
    }
    return copy;
  }
  TempDir directory_;
};
using Kinds = testing::Types<Tree<MemoryMapParallelFile>, Tree<PositionalParallelFile>, Hash<MemoryMapParallelFile>,
                             Hash<PositionalParallelFile>, Tiny, Baby>;
TYPED_TEST_SUITE(LogTest, Kinds);

TYPED_TEST(LogTest, HasEveryUpdateAfterAKill) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  Random random(TestSeed());
  SCOPED_TRACE(TestSeed());
  Records expected;
  for (int i = 0; i < 5000 / this->kSlowness; ++i) {
    const std::string key = NumberedKey(random.Below(1500));
    if (i == 2000 / this->kSlowness) {
      ASSERT_THAT(db->Clear(), IsOk());
      expected.clear();
    } else if (i % 1000 == 999 && this->kIsTree) {
      if constexpr (TestFixture::kIsTree) ASSERT_THAT(db->RemoveRange(NumberedKey(300), NumberedKey(700)), IsOk());
      expected.erase(expected.lower_bound(NumberedKey(300)), expected.lower_bound(NumberedKey(700)));
    } else if (i % 5 == 4) {
      EXPECT_EQ(db->Remove(key).ok(), expected.erase(key) == 1);
    } else if (i % 7 == 6) {
      ASSERT_THAT(db->Append(key, "more"), IsOk());
      expected[key] += "more";
    } else {
      expected[key] = std::string(random.OneIn(50) ? random.Below(100'000) : random.Below(40), static_cast<char>('a' + i % 26));
      ASSERT_THAT(db->Set(key, expected[key]), IsOk());
    }
  }
  if constexpr (TestFixture::kIsTree) {
    ASSERT_THAT(db->RemoveRange(NumberedKey(1400)), IsOk());
    expected.erase(expected.lower_bound(NumberedKey(1400)), expected.end());
  }
  const std::string killed = this->Kill();
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kReadWrite}) {
    if (!this->kReadsItsLog && mode == OpenMode::kReadOnly) continue;
    ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed, this->kOptions, mode));
    EXPECT_EQ(ListByIterator(*found).records, expected);
    EXPECT_EQ(found->Count(), expected.size());
    EXPECT_THAT(found->Verify(), IsOk());
    ASSERT_THAT(found->Close(), IsOk());
  }
  EXPECT_FALSE(std::filesystem::exists(this->LogOf(killed)));
}

TYPED_TEST(LogTest, IsNotThereAfterCloseNorWithoutDurability) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
    EXPECT_TRUE(std::filesystem::exists(this->LogOf(this->path())));
    ASSERT_THAT(db->Set("key", "value"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_FALSE(std::filesystem::exists(this->LogOf(this->path())));
  }
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path(), this->With(Durability::kNone)));
  EXPECT_FALSE(std::filesystem::exists(this->LogOf(this->path())));
  ASSERT_THAT(db->Set("key", "other"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Get("key").value(), "value");
}

// A log that is needed is read even if the database is opened without one, which then drops it.
TYPED_TEST(LogTest, IsDroppedAfterACheckpoint) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  const std::string killed = this->Kill();
  {
    ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed, this->With(Durability::kNone)));
    EXPECT_FALSE(std::filesystem::exists(this->LogOf(killed)));
    EXPECT_EQ(found->Get("key").value(), "value");
    std::filesystem::copy_file(killed, this->directory_.File("again"));
  }
  ASSERT_OK_AND_ASSIGN(auto again, this->Open(this->directory_.File("again")));
  EXPECT_EQ(again->Get("key").value(), "value");
}

TYPED_TEST(LogTest, IsRefusedIfMissingEmptyForeignOrDamaged) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
  ASSERT_THAT(db->Set("key", "newer"), IsOk());
  ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
  const std::string killed = this->Kill();
  const std::string log = this->LogOf(killed), kept = this->directory_.File("kept");
  std::filesystem::rename(log, kept);
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kCreate}) {
    EXPECT_THAT(this->Open(killed, this->kOptions, mode), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the log is missing")));
    EXPECT_FALSE(std::filesystem::exists(log));
  }
  { ASSERT_THAT(MemoryMapParallelFile::Open(log), IsOk()); }
  EXPECT_THAT(this->Open(killed), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty")));
  {
    ASSERT_OK_AND_ASSIGN(auto other, this->Open(this->directory_.File("other")));
    ASSERT_THAT(other->Set("key", "other"), IsOk());
    std::filesystem::copy_file(this->LogOf(this->directory_.File("other")), log, std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_THAT(this->Open(killed), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another database")));
  std::filesystem::copy_file(kept, log, std::filesystem::copy_options::overwrite_existing);
  {
    ASSERT_OK_AND_ASSIGN(auto file, MemoryMapParallelFile::Open(log));
    file.MutableView(format::kLogSegmentHeader + 20, 1)[0] ^= std::byte{1};
  }
  EXPECT_THAT(this->Open(killed), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
  std::filesystem::copy_file(kept, log, std::filesystem::copy_options::overwrite_existing);
  ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed));
  EXPECT_EQ(found->Get("key").value(), "newer");
}

// The log of an earlier use of the database, which nothing needs.
TYPED_TEST(LogTest, DropsAStaleOne) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "old"), IsOk());
  std::filesystem::copy_file(this->LogOf(this->path()), this->directory_.File("stale"));
  ASSERT_THAT(db->Set("key", "new"), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  std::filesystem::copy_file(this->directory_.File("stale"), this->LogOf(this->path()));
  ASSERT_OK_AND_ASSIGN(db, this->Open(this->path()));
  EXPECT_EQ(db->Get("key").value(), "new");
  ASSERT_THAT(db->Set("key", "newer"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Get("key").value(), "newer");
}

// Updates of few pages never make a checkpoint due.
TYPED_TEST(LogTest, CausesCheckpointsThatFreeItsSpace) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path(), this->WithLogBytes(1 << 20)));
  const std::string value(1000, 'v');
  std::uint64_t i = 0;
  for (std::uint64_t checkpoints = 0; checkpoints < 5; ++checkpoints) {
    const std::uint64_t before = db->GetStats().epoch, first = i;
    while (db->GetStats().epoch == before) {
      ASSERT_THAT(db->Set(NumberedKey(++i % 10), value), IsOk());
      if (i - first > 2000) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ASSERT_LT(i - first, 20'000u);
    }
  }
  this->AwaitIdle(*db);
  EXPECT_LE(std::filesystem::file_size(this->LogOf(this->path())), 16u << 20);
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Count(), 10u);
}

TYPED_TEST(LogTest, ReplaysMoreThanTheCacheHolds) {
  const std::string value(3000, 'v');
  auto small = this->kOptions;
  if constexpr (requires { small.cache_bytes; }) small.cache_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path(), this->WithLogBytes(std::uint64_t{1} << 30)));
  constexpr std::uint64_t kCount = 5000 / TestFixture::kSlowness;
  for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_THAT(db->Set(NumberedKey(i * 7919 % kCount), value), IsOk());
  const std::string killed = this->Kill();
  ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed, small));
  EXPECT_EQ(found->Count(), kCount);
  EXPECT_THAT(found->Verify(), IsOk());
}

TYPED_TEST(LogTest, TakesUpdatesOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kEach = 2000 / TestFixture::kSlowness;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path(), this->WithLogBytes(1 << 20)));
  RunThreads(kThreads, [&](int thread) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      ASSERT_THAT(db->Set(NumberedKey(i * kThreads + static_cast<std::uint64_t>(thread)), "value"), IsOk());
      ASSERT_THAT(db->Append("shared", "x"), IsOk());
      if (i % 100 == 0) ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
    }
  });
  this->AwaitIdle(*db);
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Count(), kThreads * kEach + 1);
  EXPECT_EQ(killed->GetSize("shared").value(), kThreads * kEach);
}

// A tree has the updates of its log in memory then; a hash table has to write them.
TYPED_TEST(LogTest, ReadOnlyDatabaseWithNewerUpdatesIsNotCopied) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  const std::string killed = this->Kill();
  if constexpr (TestFixture::kIsInMemory) {
    ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed, this->kOptions, OpenMode::kReadOnly));
    ASSERT_THAT(found->Save(this->directory_.File("copy")), IsOk());  // all of it is in memory
    ASSERT_OK_AND_ASSIGN(auto copy, this->Open(this->directory_.File("copy")));
    EXPECT_EQ(copy->Get("key").value(), "value");
    return;
  } else if (!this->kIsTree) {
    EXPECT_THAT(this->Open(killed, this->kOptions, OpenMode::kReadOnly), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("log")));
    EXPECT_TRUE(std::filesystem::exists(this->LogOf(killed)));
    return;
  }
  ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed, this->kOptions, OpenMode::kReadOnly));
  if constexpr (!TestFixture::kIsInMemory)
    EXPECT_THAT(found->CopyTo(this->directory_.File("copy")), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("log")));
  ASSERT_THAT(found->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::exists(this->LogOf(killed)));
}

// A copy needs no log, though its source has one.
TYPED_TEST(LogTest, CopyIsComplete) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  if constexpr (TestFixture::kIsInMemory)
    ASSERT_THAT(db->Save(this->directory_.File("copy")), IsOk());
  else
    ASSERT_THAT(db->CopyTo(this->directory_.File("copy")), IsOk());
  ASSERT_OK_AND_ASSIGN(auto copy, this->Open(this->directory_.File("copy")));
  EXPECT_EQ(copy->Get("key").value(), "value");
}

TYPED_TEST(LogTest, HasThePermissionsOfTheDatabase) {
  ASSERT_THAT(this->Open(this->path()), IsOk());
  using std::filesystem::perms;
  for (const perms mode : {perms::owner_read | perms::owner_write, perms::owner_read | perms::owner_write | perms::group_read}) {
    std::filesystem::permissions(this->path(), mode);
    ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
    EXPECT_EQ(std::filesystem::status(this->LogOf(this->path())).permissions(), mode);
  }
}

TYPED_TEST(LogTest, NeverReplacesAnotherFile) {
  const std::string log = this->LogOf(this->path());
  std::ofstream(log) << "a diary";
  EXPECT_THAT(this->Open(this->path()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(log)));
  EXPECT_EQ(std::filesystem::file_size(log), 7u);
  EXPECT_THAT(this->Open(this->path(), this->With(Durability::kNone)), IsOk());
  EXPECT_EQ(std::filesystem::file_size(log), 7u);
}

// A database that was moved away while it was open, and a new one in its place.
TYPED_TEST(LogTest, IsNotRemovedIfItIsThatOfANewDatabase) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "old"), IsOk());
  const std::string moved = this->directory_.File("moved");
  std::filesystem::rename(this->path(), moved);
  std::filesystem::rename(this->LogOf(this->path()), this->LogOf(moved));
  ASSERT_OK_AND_ASSIGN(auto other, this->Open(this->path()));
  ASSERT_THAT(other->Set("key", "new"), IsOk());
  if (this->kIsInMemory)
    ASSERT_THAT(db->Close(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("moved or replaced")));  // the log has all of it
  else
    ASSERT_THAT(db->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::exists(this->LogOf(this->path())));
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Get("key").value(), "new");
  std::filesystem::remove(this->LogOf(this->path()));
  EXPECT_THAT(other->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, this->Open(moved));
  EXPECT_EQ(db->Get("key").value(), "old");
}

// Each opening after a crash begins a segment.
TYPED_TEST(LogTest, StaysSmallThroughManyCrashes) {
  for (const int updates : {0, 1}) {
    std::filesystem::remove(this->path());
    std::filesystem::remove(this->LogOf(this->path()));
    for (int crash = 0; crash < 40; ++crash) {
      const std::string killed = this->directory_.File("killed");
      ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
      EXPECT_EQ(db->Count(), static_cast<std::uint64_t>(updates * crash));
      for (int i = 0; i < updates; ++i) ASSERT_THAT(db->Set(NumberedKey(static_cast<std::uint64_t>(crash)), "value"), IsOk());
      this->Kill();
      ASSERT_THAT(db->Close(), IsOk());
      std::filesystem::rename(killed, this->path());
      std::filesystem::rename(this->LogOf(killed), this->LogOf(this->path()));
      ASSERT_LE(std::filesystem::file_size(this->LogOf(this->path())), 4u << 20) << "after crash " << crash;
    }
  }
}

TYPED_TEST(LogTest, WaitDurableBehindTheEndWaitsForTheEnd) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  EXPECT_THAT(db->WaitDurable(db->LastLsn() + 1), IsOk());
  EXPECT_THAT(db->WaitDurable(~std::uint64_t{0}), IsOk());
  EXPECT_LE(std::filesystem::file_size(this->LogOf(this->path())), 64u << 10);
}

TYPED_TEST(LogTest, LiesBesideTheFileThatALinkLeadsTo) {
  std::filesystem::create_directory(this->directory_.File("real"));
  const std::string real = this->directory_.File("real") + "/db", link = this->directory_.File("link");
  std::filesystem::create_symlink(real, link);
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(link));
  EXPECT_TRUE(std::filesystem::exists(this->LogOf(real)));
  EXPECT_FALSE(std::filesystem::exists(this->LogOf(link)));
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(this->LogOf(real)));
}

// ---- failures of the device of the log ----

template <class Kind>
class LogFaultTest : public testing::Test {
 protected:
  using File = FaultFile<MemoryFile>;
  using Database = typename Kind::Database;
  static constexpr auto kOptions = Kind::kOptions;
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
    using Found = typename Kind::template On<MemoryFile>::Database;
    return Found::Open(MemoryFile::Of(file_.View(0, file_.Size())), MemoryFile::Of(log_.View(0, log_.Size())));
  }
  MemoryFile file_, log_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
};
using FaultKinds = testing::Types<Tree<FaultFile<MemoryFile>>, Hash<FaultFile<MemoryFile>>>;
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
using HookedKinds = testing::Types<Tree<HookedFile>, Hash<HookedFile>>;
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
    EXPECT_EQ(reads.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    goes_on = true;
    goes_on.notify_all();
    writer.join();
    reads.get();
    EXPECT_EQ(db->Get(NumberedKey(50)).value(), value);
  }
  EXPECT_THAT(db->Verify(), IsOk());
  using Killed = typename TypeParam::template On<MemoryFile>::Database;
  ASSERT_OK_AND_ASSIGN(auto killed, Killed::Open(MemoryFile::Of(file.View(0, file.Size())), MemoryFile::Of(log.View(0, log.Size()))));
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
  using Killed = typename TypeParam::template On<MemoryFile>::Database;
  ASSERT_OK_AND_ASSIGN(auto killed, Killed::Open(MemoryFile::Of(file.View(0, file.Size())), MemoryFile::Of(log.View(0, log.Size()))));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const std::string found, killed->GetOr(NumberedKey(i), ""));
    EXPECT_TRUE(found == expected[i]) << i << ": " << found.size() << " bytes, not " << expected[i].size();
  }
  EXPECT_THAT(killed->Verify(), IsOk());
}

TEST(LogOptions, AnyDBMTakesTheDurability) {
  TempDir directory;
  for (const std::string durability : {"none", "process", "power"}) {
    for (const std::string kind : {".hkt", ".hkh", ".hkh?file=pos,"}) {
      const bool is_mapped_hash = kind == ".hkh";
      const std::string path = directory.File(durability + kind.substr(0, 4)), options = kind.size() > 4 ? kind.substr(4) : "?";
      ASSERT_OK_AND_ASSIGN(auto db, AnyDBM::Open(path + options + "durability=" + durability));
      ASSERT_THAT(db->Set("key", "value"), IsOk());
      const bool logs = durability == "power" || (durability == "process" && !is_mapped_hash);
      EXPECT_EQ(std::filesystem::exists(path + "-log"), logs) << path << options;
      EXPECT_EQ(db->LastLsn() != 0, logs);
      EXPECT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
    }
  }
}

}  // namespace
}  // namespace hako
