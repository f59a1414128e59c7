// Crashes of a TreeDBM with a log: see crashed_lives.h. A batch is there as a whole or not at all, and the
// applied index is that of the last batch that is there.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/crashed_lives.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/checked_value.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/random.h"
#include "support/refilled_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;
struct CrashImages {
  Image database, log;
};

// Opens the files that a crash left, and works with them.
StatusOr<Records> RecoverTree(const CrashImages& images, Durability durability) {
  using Database = TreeDBM<MemoryFile>;
  static RefilledFile refilled, refilled_log;
  const MemoryFile database = refilled.With(images.database), log = refilled_log.With(images.log);
  const TreeOptions options = {.cache_bytes = 4 << 20, .durability = durability};
  return RecoverAndWork([&] { return Database::Open(database.Share(), log.Share(), options); });
}

template <class FileT>
class Machine : public CrashedLives<Machine<FileT>, TreeDBM<Erased<FileT>>> {
  using Database = TreeDBM<Erased<FileT>>;
  using Lives = CrashedLives<Machine, Database>;
  friend Lives;
  using Lives::random_, Lives::states_;

 public:
  using Lives::Lives;

 private:
  static constexpr unsigned kPageSizes[] = {128, 200, 1024, 8192};

  StatusOr<std::unique_ptr<Database>> Open(const std::shared_ptr<FaultPlan>& plan, Durability durability) {
    using DatabaseFile = FaultFile<FileT>;
    const TreeOptions options = {.page_size = kPageSizes[random_.Below(std::size(kPageSizes))],
                                 .cache_bytes = 64 << 20,
                                 .durability = durability,
                                 .log_bytes = std::uint64_t{1} << 40};
    return Database::Open(DatabaseFile(FileT(this->files_.database), plan), DatabaseFile(FileT(this->files_.log), plan), options);
  }
  static StatusOr<Records> Recover(const CrashMemories& files, Durability durability) {
    return RecoverTree({files.database->Live(), files.log->Live()}, durability);
  }

  Status UpdateBeside(Database& db) {
    const std::string key = updates_.SomeKey();
    return updates_.Set(db, key, random_.OneIn(3) ? random_.Below(20'000) : random_.SkewedSize(9));  // some begin a segment of the log
  }
  Status Update(Database& db) { return updates_.Update(db); }

  KeyedUpdates updates_{random_, states_, SizeForALog};
};

template <class FileT>
class TreeLogCrashTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(TreeLogCrashTest, CrashFiles);

TYPED_TEST(TreeLogCrashTest, LosesNothingBelowItsDurability) { CheckCrashedLives<Machine<TypeParam>>(CrashStates(1800)); }

// The replay of a batch that is larger than the cache, with checkpoints meanwhile. The log was written by
// a process that was killed, and is not durable: a power cut leaves the batch as a whole or not at all.
TYPED_TEST(TreeLogCrashTest, ReplaysABatchInOneStepBesideCheckpoints) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  constexpr std::uint64_t kRecords = 1500;
  std::size_t num_whole = 0, num_crashes = 0;
  for (int round = 0; round < (kSlowdown > 1 ? 2 : 4); ++round) {
    const auto database = std::make_shared<CrashMemory>(Image{}, 1), log = std::make_shared<CrashMemory>(Image{}, 1);
    const TreeOptions options = {.page_size = 1024, .cache_bytes = 1 << 20, .checkpoint_bytes = 64 << 10};
    using File = FaultFile<TypeParam>;
    using Database = TreeDBM<Erased<TypeParam>>;
    const auto fill = [&](std::uint64_t number) {
      WriteBatch batch;
      if (number == 2) batch.RemoveRange("", NumberedKey(kRecords / 2));
      for (std::uint64_t i = 0; i < kRecords; ++i) {
        const std::string key = NumberedKey(i);
        batch.Set(key, CheckedValue(key, 500 + number, number));
      }
      batch.SetAppliedIndex(number);
      return batch;
    };
    {
      const auto plan = std::make_shared<FaultPlan>();
      TreeOptions calm = options;
      calm.cache_bytes = calm.checkpoint_bytes = 64 << 20;
      ASSERT_OK_AND_ASSIGN(auto db, Database::Open(File(TypeParam(database), plan), File(TypeParam(log), plan), calm));
      ASSERT_THAT(db->Write(fill(1)), IsOk());
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      ASSERT_THAT(db->Write(fill(2)), IsOk());
      plan->Arm({.forever = true});  // killed
    }
    std::mutex mutex;
    std::vector<CrashImages> crashes;
    {
      const auto crash = [&] {
        const std::lock_guard lock(mutex);
        if (crashes.size() < 40) crashes.push_back({database->Crash(random), log->Crash(random)});
      };
      const auto plan = std::make_shared<FaultPlan>();
      ASSERT_OK_AND_ASSIGN(auto db, [&] {
        database->on_event = log->on_event = crash;
        return Database::Open(File(TypeParam(database), plan), File(TypeParam(log), plan), options);
      }());
      EXPECT_EQ(db->AppliedIndex(), 2u);
      ASSERT_THAT(db->Close(), IsOk());  // until then there may be a checkpoint at work
      database->on_event = log->on_event = [] {};
    }
    for (const CrashImages& images : crashes) {
      const auto found = RecoverTree(images, Durability::kProcess);
      ASSERT_THAT(found, IsOk());
      const std::string index = found->at(kAppliedIndexKey);
      ASSERT_EQ(found->size(), kRecords + 1);
      for (const auto& [key, value] : *found) {
        if (key != kAppliedIndexKey) {
          ASSERT_EQ(std::to_string(SaltOf(key, value).value_or(0)), index) << key;
        }
      }
      ++num_crashes;
      num_whole += index == "2" ? 1u : 0u;
    }
  }
  EXPECT_GE(num_crashes, 8u);
  EXPECT_LT(num_whole, num_crashes) << "the log survives only now and then";
}

}  // namespace
}  // namespace hako
