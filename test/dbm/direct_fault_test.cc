// Fails each system call of databases on real files with direct I/O in turn. Interrupted and
// partial transfers are completed unnoticed. A failure is returned as the error that it is, the
// next open finds the state of the last successful Synchronize or of a later attempt, and no sync
// is retried after a failed one.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/bytes.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/checked_value.h"
#include "support/crash_states.h"
#include "support/failing_calls.h"
#include "support/failing_calls_definitions.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using How = CallFault::How;

// The options of the databases: everything as small as possible.
template <std::uint64_t kCacheBytes>
struct SmallFile {
  static constexpr FileOptions kFile = {.block_size = 512, .cache_bytes = kCacheBytes};
  template <class D, class Options>
  static auto OpenAny(const std::string& path, const Options& options) {
    FileOptions file = kFile;
    file.direct = true;
    auto db = D::Open(path, options, file);
    file.direct = false;
    return absl::IsInvalidArgument(db.status()) ? D::Open(path, options, file) : std::move(db);
  }
};
template <std::uint64_t kCacheBytes>
struct Hash : SmallFile<kCacheBytes> {
  using Database = HashDBM<PositionalParallelFile>;
  static auto Open(const std::string& path) { return Hash::template OpenAny<Database>(path, HashOptions{.seed = 3}); }
};
struct Tree : SmallFile<1> {
  using Database = TreeDBM<PositionalParallelFile>;
  static auto Open(const std::string& path) { return OpenAny<Database>(path, TreeOptions{.page_size = 256, .cache_bytes = 1 << 20}); }
};

// The result of a run over several lives of a database.
struct Story {
  std::vector<Records> durable = {{}};  // the states that may be found: the log has every acknowledged update
  Records now;
  bool update_failed = false;  // or a synchronization
  bool noticed = false;        // that anything failed
  bool created = false;

  void Check(const Status& status, std::string_view what) {
    if (status.ok()) return;
    noticed = true;
    EXPECT_FALSE(status.message().empty()) << what;
    EXPECT_FALSE(absl::IsNotFound(status)) << "a failing device is not an absent key: " << what;
    EXPECT_FALSE(absl::IsDataLoss(status)) << "nor is it damage: " << what << ": " << status;
  }

  template <class D>
  void Synchronize(D& db) {
    const Status status = db.Synchronize(SyncMode::kHard);
    update_failed = update_failed || !status.ok();
    Check(status, "Synchronize");
  }

  template <class D>
  void Work(D& db, std::uint64_t seed) {
    Random random(seed);
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::string key = NumberedKey(random.Below(50));
      if (random.OneIn(12)) {
        Synchronize(db);
      } else if (random.OneIn(30)) {
        Change(db, [&](Records& after) {
          after.clear();
          return db.Clear();
        });
      } else if (random.OneIn(4)) {
        Change(db, [&](Records& after) {
          const bool was_there = after.erase(key) != 0;
          const Status status = db.Remove(key);
          return absl::IsNotFound(status) && !was_there ? absl::OkStatus() : status;
        });
      } else {
        Change(db, [&](Records& after) {
          after[key] = CheckedValue(key, random.OneIn(10) ? random.Below(40'000) : random.Below(2000), i);
          return db.Set(key, after[key]);
        });
      }
      Look(db, NumberedKey(random.Below(50)));
    }
    const std::string names[] = {NumberedKey(3), NumberedKey(30), NumberedKey(13), NumberedKey(47)};
    const std::string_view keys[] = {names[0], names[1], names[2], names[3]};
    Check(db.GetMulti(keys, [&](std::size_t n, std::optional<std::string_view> value) -> void { ExpectRight(names[n], value); }),
          "GetMulti");
  }

  template <class D, class F>
  void Change(D&, F change) {
    Records after = now;
    const Status status = change(after);
    if (status.ok()) now = std::move(after);
    update_failed = update_failed || !status.ok();
    Check(status, "an update");
  }
  template <class D>
  void Look(D& db, const std::string& key) {
    std::string value;
    const Status status = db.Get(key, &value);
    if (status.ok() || absl::IsNotFound(status))
      ExpectRight(key, status.ok() ? std::optional<std::string_view>(value) : std::nullopt);
    else
      Check(status, "Get");
  }
  void ExpectRight(const std::string& key, std::optional<std::string_view> value) {
    const auto it = now.find(key);
    EXPECT_TRUE(value.has_value() == (it != now.end()) && (!value || *value == it->second)) << key;
  }
};

template <class T>
class DirectFaultTest : public testing::Test {
 protected:
  using Database = typename T::Database;
  static constexpr bool kIsTree = std::is_same_v<T, Tree>;
  static FailingCalls& calls() { return FailingCalls::Instance(); }

  void TearDown() override {
    calls().Disarm();
    calls().RefuseRings(false);
  }

  // Runs two lives of a database in a separate thread, whose ring is created, or refused, again. If
  // `dies`, writes fail from some point before the second Close.
  Story RunWith(const CallFault& fault, bool has_rings, bool dies = false) {
    Story run;
    std::filesystem::remove(path_);
    calls().RefuseRings(!has_rings);
    calls().Arm(fault);
    std::thread([&] {
      for (const std::uint64_t life : {1, 2}) {
        auto opened = T::Open(path_);
        run.Check(opened.status(), "Open");
        if (!opened.ok()) return;
        run.created = true;
        Database& db = **opened;
        run.Work(db, life);
        if (fault.how == How::kFails) ExpectHealthAfter(fault, run, db);
        if (dies && life == 2) Die();
        run.durable = {run.now};
        run.Check(db.Close(), "Close");
        if (run.noticed) return;
      }
    }).join();
    counted_ = calls().counted(), fired_ = calls().fired(), fired_writes_ = calls().fired_writes();
    EXPECT_EQ(calls().syncs_after_failure(), 0u) << "a sync was tried again";
    calls().Disarm();
    return run;
  }

  void Die() {
    EXPECT_EQ(calls().syncs_after_failure(), 0u) << "a sync was tried again";
    calls().Arm({.forever = true, .reads = false});
  }

  // After a failed write or sync no update is accepted, regardless of the operation that it failed
  // for: it may have been an eviction by a read.
  void ExpectHealthAfter(const CallFault& fault, const Story& run, Database& db) {
    const bool is_write = !fault.reads && !fault.lengthens;
    if (!is_write || !run.noticed || calls().fired_writes() == 0) return;
    if (kIsTree && (fault.error == ENOSPC || !run.update_failed)) return;  // it recovers when there is space
    EXPECT_FALSE(db.Set("refused", "value").ok());
    EXPECT_FALSE(db.Remove(NumberedKey(7)).ok());
    EXPECT_FALSE(db.Synchronize(SyncMode::kHard).ok());
    EXPECT_FALSE(db.GetHealth().ok());
  }

  // Checks the state that is found once nothing fails.
  void ExpectFinds(const Story& run) {
    auto opened = T::Open(path_);
    if (!run.created && absl::IsDataLoss(opened.status())) return;  // a partial superblock of a database that was never created
    ASSERT_THAT(opened, IsOk());
    Database& db = **opened;
    EXPECT_THAT(db.Verify(), IsOk());
    const Records found = ListByIterator(db).records;
    EXPECT_TRUE(std::count(run.durable.begin(), run.durable.end(), found) > 0) << Difference(run.durable.front(), found);
    EXPECT_THAT(db.Set("works", "again"), IsOk());
    EXPECT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(db.Verify(), IsOk());
    EXPECT_THAT(db.Close(), IsOk());
  }

  // Repeats the run with the fault at some of its calls, chosen at random, and calls expect(run).
  template <class F>
  void ForCalls(CallFault fault, bool dies, F expect) {
    SCOPED_TRACE(TestSeed());
    CallFault none = fault;
    none.call = ~std::uint64_t{0};
    ASSERT_FALSE(RunWith(none, true).noticed);
    const std::uint64_t total = counted_, runs = std::max(1, 16 / kSlowdown),
                        step = FullSize() ? 1 : std::max<std::uint64_t>(1, total / runs);
    ASSERT_GT(total, 0u);
    std::uint64_t number = 0, fired = 0;
    for (fault.call = 1 + TestSeed() % step; fault.call <= total; fault.call += step, ++number) {
      SCOPED_TRACE(testing::Message() << "call " << fault.call << " of " << total);
      const Story run = RunWith(fault, number % 2 == 0, dies && number / 2 % 2 == 0);
      fired += fired_ != 0;
      expect(run);
      ExpectFinds(run);
      if (testing::Test::HasFailure()) return;
    }
    ReportFailures(fired);
    EXPECT_GE(fired * 2, number) << "with or without a ring there are hardly fewer calls";
  }
  void ExpectUnnoticed(CallFault fault) {
    ForCalls(fault, false, [](const Story& run) { EXPECT_FALSE(run.noticed); });
    for (const bool has_rings : {false, true}) {
      fault.call = 1;
      fault.every_other = true;
      const Story run = RunWith(fault, has_rings);
      EXPECT_GT(fired_, 20u);
      EXPECT_FALSE(run.noticed);
      ExpectFinds(run);
    }
  }
  void ExpectSurvives(const CallFault& fault, bool dies = false) {
    const bool only_syncs = fault.syncs && !fault.reads && !fault.writes && !fault.lengthens;
    ForCalls(fault, dies, [&](const Story& run) {
      if (fired_ != 0 && (only_syncs || fault.forever)) {
        EXPECT_TRUE(run.noticed) << "a failure is reported";
      }
    });
  }

  TempDir directory_;
  const std::string path_ = directory_.File("db");
  std::uint64_t counted_ = 0, fired_ = 0, fired_writes_ = 0;
};

using Ways = testing::Types<Hash<1>, Hash<0>, Tree>;
TYPED_TEST_SUITE(DirectFaultTest, Ways);

TYPED_TEST(DirectFaultTest, RetriesInterruptedCalls) { this->ExpectUnnoticed({.how = How::kInterrupted}); }
TYPED_TEST(DirectFaultTest, CompletesPartialTransfers) { this->ExpectUnnoticed({.how = How::kPartial}); }
TYPED_TEST(DirectFaultTest, SurvivesEachFailedRead) {
  this->ExpectSurvives({.writes = false, .syncs = false, .lengthens = false});
  this->ExpectSurvives({.writes = false, .syncs = false, .lengthens = false}, true);
}
TYPED_TEST(DirectFaultTest, SurvivesEachFailedWriteOrSync) { this->ExpectSurvives({.reads = false, .lengthens = false}); }
TYPED_TEST(DirectFaultTest, SurvivesEachFailedSync) { this->ExpectSurvives({.reads = false, .writes = false, .lengthens = false}); }
TYPED_TEST(DirectFaultTest, SurvivesEachWriteThatLacksSpace) {
  this->ExpectSurvives({.error = ENOSPC, .reads = false, .syncs = false, .lengthens = false});
}
TYPED_TEST(DirectFaultTest, SurvivesAFullDeviceWhenTheFileGrows) {
  this->ExpectSurvives({.error = ENOSPC, .reads = false, .writes = false, .syncs = false});
}
TYPED_TEST(DirectFaultTest, SurvivesADeviceThatDies) { this->ExpectSurvives({.forever = true}); }

TEST(FailingCalls, AffectTheFilesOfTheLibrary) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto file, PositionalParallelFile::Open(directory.File("file")));
  auto& calls = FailingCalls::Instance();
  const std::string text = "text";
  calls.Arm({.forever = true});
  EXPECT_FALSE(file.Resize(100).ok());
  EXPECT_GE(calls.fired_writes(), 1u);
  calls.Disarm();
  EXPECT_THAT(file.Resize(100), IsOk());
  calls.Arm({.call = 2});
  EXPECT_THAT(file.WriteAt(0, AsBytes(text)), IsOk());
  EXPECT_FALSE(file.WriteAt(0, AsBytes(text)).ok());
  calls.Arm({});
  EXPECT_FALSE(file.Sync().ok());
  EXPECT_FALSE(file.Sync().ok());
  EXPECT_EQ(calls.syncs_after_failure(), 0u);
  calls.Disarm();
}

}  // namespace
}  // namespace hako
