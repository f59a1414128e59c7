// The log of a database: what Open finds after the death of a process, and which files it refuses.
//
// A process is killed here by copying its files as they are in the page cache.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/logged_kinds.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/killed_files.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using testing::HasSubstr;

struct Tiny {
  using Database = TinyDBM<>;
  static constexpr bool kIsTree = false, kIsInMemory = true;
  static inline const TinyOptions kOptions = {};
};
struct Baby {
  using Database = BabyDBM<>;
  static constexpr bool kIsTree = true, kIsInMemory = true;
  static inline const BabyOptions kOptions = {.page_size = 512};
};

template <class Kind>
class LogTest : public testing::Test {
 protected:
  using Database = typename Kind::Database;
  static inline const auto& kOptions = Kind::kOptions;
  static constexpr bool kIsTree = Kind::kIsTree, kIsInMemory = Kind::kIsInMemory;
  static constexpr bool kReadsItsLog = kIsTree || kIsInMemory;                          // when it is opened read-only
  static int Slowness() { return kOptions.durability == Durability::kPower ? 10 : 1; }  // each update is synced

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
  // To open a copy of a mapped file that was not closed.
  static auto Dropping() {
    auto options = kOptions;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(kOptions)>, HashOptions>) options.unproven_updates = UnprovenUpdates::kDrop;
    return options;
  }
  static auto WithLogBytes(std::uint64_t log_bytes) {
    auto options = kOptions;
    options.log_bytes = log_bytes;
    return options;
  }
  // The files as they are now, under another name.
  std::string Kill(const std::string& name = "killed") {
    CopyAsKilled(path(), directory_.File(name));
    return directory_.File(name);
  }

  TempDir directory_;
};
using Kinds = testing::Types<LoggedTree<MemoryMapParallelFile>, LoggedTree<PositionalParallelFile>, LoggedHash<MemoryMapParallelFile>,
                             LoggedHash<PositionalParallelFile>, Tiny, Baby>;
TYPED_TEST_SUITE(LogTest, Kinds);

TYPED_TEST(LogTest, HasEveryUpdateAfterAKill) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path()));
  Random random(TestSeed());
  SCOPED_TRACE(TestSeed());
  Records expected;
  for (int i = 0; i < 5000 / this->Slowness(); ++i) {
    const std::string key = NumberedKey(random.Below(1500));
    if (i == 2000 / this->Slowness()) {
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
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill(), this->Dropping()));
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
  ASSERT_OK_AND_ASSIGN(auto again, this->Open(this->directory_.File("again"), this->Dropping()));
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
  EXPECT_LE(std::filesystem::file_size(this->LogOf(this->path())), 16u << 20);
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Count(), 10u);
}

TYPED_TEST(LogTest, ReplaysMoreThanTheCacheHolds) {
  const std::string value(3000, 'v');
  auto small = this->kOptions;
  if constexpr (requires { small.cache_bytes; }) small.cache_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path(), this->WithLogBytes(std::uint64_t{1} << 30)));
  const auto count = static_cast<std::uint64_t>(5000 / this->Slowness());
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_THAT(db->Set(NumberedKey(i * 7919 % count), value), IsOk());
  const std::string killed = this->Kill();
  ASSERT_OK_AND_ASSIGN(auto found, this->Open(killed, small));
  EXPECT_EQ(found->Count(), count);
  EXPECT_THAT(found->Verify(), IsOk());
}

TYPED_TEST(LogTest, TakesUpdatesOfManyThreads) {
  constexpr int kThreads = 4;
  const auto each = static_cast<std::uint64_t>(2000 / this->Slowness());
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(this->path(), this->WithLogBytes(1 << 20)));
  RunThreads(kThreads, [&](int thread) {
    for (std::uint64_t i = 0; i < each; ++i) {
      ASSERT_THAT(db->Set(NumberedKey(i * kThreads + static_cast<std::uint64_t>(thread)), "value"), IsOk());
      ASSERT_THAT(db->Append("shared", "x"), IsOk());
      if (i % 100 == 0) ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
    }
  });
  ASSERT_OK_AND_ASSIGN(auto killed, this->Open(this->Kill()));
  EXPECT_EQ(killed->Count(), kThreads * each + 1);
  EXPECT_EQ(killed->GetSize("shared").value(), kThreads * each);
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

// Without the option a mapped file has no log, and WaitDurable synchronizes the whole file.
TEST(LogOptions, AMappedHashTableKeepsALogForWaitDurable) {
  const TempDir dir;
  for (const bool keep_log : {false, true}) {
    auto db = *HashDBM<>::Open(dir.File(keep_log ? "with" : "without"), {.keep_log = keep_log});
    const std::uint64_t epoch = db->GetStats().epoch;
    for (int i = 0; i < 10; ++i) ASSERT_THAT(db->Set("key" + std::to_string(i), "value"), IsOk());
    EXPECT_EQ(db->LastLsn() > 0, keep_log);
    ASSERT_THAT(db->WaitDurable(db->LastLsn()), IsOk());
    EXPECT_EQ(db->GetStats().epoch > epoch, !keep_log);
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
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
