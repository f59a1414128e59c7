// Crashes of a HashDBM with a log: see crashed_lives.h. A batch is there as a whole or not at all, and the
// applied index is that of the last batch that is there.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dbm/crashed_lives.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;

HashOptions Options(Durability durability) { return {.durability = durability, .log_bytes = std::uint64_t{1} << 40, .reclaim_bytes = 0}; }

template <class FileT>
class Machine : public CrashedLives<Machine<FileT>, HashDBM<Erased<FileT>>> {
  using Database = HashDBM<Erased<FileT>>;
  using Lives = CrashedLives<Machine, Database>;
  friend Lives;
  using Lives::random_, Lives::states_, Lives::files_;

 public:
  using Lives::Lives;
  static constexpr bool kUpdatesBeside = false, kKeepsUpdates = MappedFile<FileT>;

 private:
  bool Choose(Durability durability) {
    keeps_log_ = random_.OneIn(2) && durability != Durability::kNone;
    return durability == Durability::kPower || (durability == Durability::kProcess && (!kKeepsUpdates || keeps_log_));
  }
  StatusOr<std::unique_ptr<Database>> Open(const std::shared_ptr<FaultPlan>& plan, Durability durability) {
    using DatabaseFile = FaultFile<FileT>;
    HashOptions options = Options(durability);
    options.keep_log = keeps_log_;
    return Database::Open(DatabaseFile(FileT(files_.database), plan), DatabaseFile(FileT(files_.log), plan), options);
  }
  static StatusOr<Records> Recover(const CrashMemories& files, Durability durability) {
    return RecoverAndWork([&] { return Database::Open(FileT(files.database), FileT(files.log), Options(durability)); });
  }
  Status Update(Database& db) { return updates_.Update(db); }

  bool keeps_log_ = false;
  KeyedUpdates updates_{random_, states_, SizeForALog};
};

template <class FileT>
class HashLogCrashTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(HashLogCrashTest, CrashFiles);

TYPED_TEST(HashLogCrashTest, LosesNothingBelowItsDurability) { CheckCrashedLives<Machine<TypeParam>>(CrashStates(1800)); }

// The log was never synced, and is long, so that a synchronization follows its replay: a power cut
// then must not find a synchronized state that names a part of the log which the device lacks.
TEST(HashLogReplay, IsFollowedByASynchronizationThatSurvivesAPowerCut) {
  using Database = HashDBM<TestFile>;
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 3; ++round) {
    CrashMemories memories{std::make_shared<CrashMemory>(Image{}, 1), std::make_shared<CrashMemory>(Image{}, 1)};
    const auto open = [](const CrashMemories& of) {
      return Database::Open(PositionalCrashFile(of.database), PositionalCrashFile(of.log), Options(Durability::kProcess));
    };
    CrashMemories killed;
    {
      ASSERT_OK_AND_ASSIGN(auto db, open(memories));
      for (std::uint64_t i = 0; i < 20; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(30'000, 'v')), IsOk());
      killed = {memories.database->Kill(), memories.log->Kill()};
    }
    std::vector<CrashMemories> cuts;
    killed.database->on_event = [&] {
      cuts.push_back(
          {std::make_shared<CrashMemory>(killed.database->Crash(random), 2), std::make_shared<CrashMemory>(killed.log->Crash(random), 2)});
    };
    {
      ASSERT_OK_AND_ASSIGN(auto db, open(killed));
      EXPECT_EQ(db->Count(), 20u);
      killed.database->on_event = [] {};
    }
    EXPECT_GT(cuts.size(), 20u);
    for (const CrashMemories& cut : cuts) {
      ASSERT_OK_AND_ASSIGN(auto db, open(cut));
      ASSERT_THAT(db->Verify(), IsOk());
    }
  }
}

}  // namespace
}  // namespace hako
