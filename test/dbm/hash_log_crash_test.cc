// Cuts the power under a HashDBM with a log, or kills its process, at any moment. The database opens
// with the state after one of its updates: after a kill not before the last one that has returned,
// after a power cut not before the last one that was made durable. A batch is there as a whole or not
// at all, and the applied index is that of the last batch that is there.
//
// The database and its log lose power at the same moment, each with its own unsynced sectors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/crashed_lives.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_file.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;
struct Memories {
  std::shared_ptr<CrashMemory> database, log;
};

HashOptions Options(Durability durability) { return {.durability = durability, .log_bytes = std::uint64_t{1} << 40, .reclaim_bytes = 0}; }

// Opens what a crash left, and works with it.
template <class FileT>
StatusOr<Records> Recover(const Memories& left, Durability durability) {
  using Database = HashDBM<Erased<FileT>>;
  const HashOptions options = Options(durability);
  return RecoverAndWork([&] { return Database::Open(FileT(left.database), FileT(left.log), options); });
}

template <class FileT>
class Machine {
  using DatabaseFile = FaultFile<FileT>;
  using Database = HashDBM<Erased<FileT>>;

 public:
  explicit Machine(std::uint64_t seed) : random_(seed) { Observe(); }

  // One life of a process, which ends by Close, a kill or a power cut.
  void Live(int count) {
    bool fails = false;
    LiveOnADevice(count, &fails);
    // The page cache of a mapped file may lack something after a failed sync: the last synchronized state counts.
    if (!kIsPositional && fails) acknowledged_ = durable_;
    crashes_.clear();
  }

  void LiveOnADevice(int count, bool* fails) {
    const Durability durability = random_.OneIn(5) ? Durability::kNone : random_.OneIn(2) ? Durability::kProcess : Durability::kPower;
    const auto plan = plan_ = std::make_shared<FaultPlan>();
    HashOptions options = Options(durability);
    options.keep_log = random_.OneIn(2) && durability != Durability::kNone;
    const bool logs = durability == Durability::kPower || (durability == Durability::kProcess && (kIsPositional || options.keep_log));
    if (random_.OneIn(6)) plan->Arm({.call = random_.Between(1, 15), .forever = true});  // dies while it opens it
    Memories left;
    {
      auto opened = Database::Open(DatabaseFile(FileT(database_), plan), DatabaseFile(FileT(log_), plan), options);
      if (!opened.ok()) {
        *fails = true;
        ASSERT_GT(plan->fired_count(), 0u) << opened.status();
        return;
      }
      auto& db = **opened;
      {
        const auto found = RecordsAndIndexOf(db);
        if ((*fails = plan->fired_count() > 0)) return;
        ASSERT_THAT(found, IsOk());
        ASSERT_TRUE(IsOneOf(*found, states_, acknowledged_)) << "after a kill: " << Difference(states_.back(), *found);
        ASSERT_NO_FATAL_FAILURE(CheckCrashes());
        Begin(*found, logs);
      }
      for (int i = 0; i < count && plan->fired_count() == 0 && !testing::Test::HasFatalFailure(); ++i) {
        if (i == count - 10 && random_.OneIn(2)) plan->Arm({.call = random_.Between(1, 20), .forever = true});
        ASSERT_NO_FATAL_FAILURE(Operate(db, durability, logs, *plan));
        if (random_.OneIn(25)) TakeCrash();
        ASSERT_NO_FATAL_FAILURE(CheckCrashes());
      }
      if (plan->fired_count() == 0 && random_.OneIn(2)) {
        const Status closed = db.Close();
        if ((*fails = plan->fired_count() > 0)) return;
        ASSERT_THAT(closed, IsOk());
        acknowledged_ = durable_ = states_.size() - 1;
        TakeCrash();
        CheckCrashes();
        return;
      }
      *fails = plan->fired_count() > 0;
      left = {database_->Kill(), log_->Kill()};  // what it has written is in the page cache
      plan->Arm({.forever = true});
    }
    Continue(left);
    if (random_.OneIn(2)) {
      Continue(PowerCut());
      acknowledged_ = durable_;
    }
  }

  // The state that Open has found. It is durable, unless it is what a killed process left in a mapped file.
  void Begin(const Records& found, bool logs) {
    if (kIsPositional || logs) {
      states_ = {found};
      acknowledged_ = durable_ = 0;
      return;
    }
    while (states_.back() != found) states_.pop_back();
    acknowledged_ = states_.size() - 1;
  }
  std::uint64_t num_crashes() const { return num_crashes_; }

 private:
  // A mapped file has every update after a kill, without a log.
  static constexpr bool kIsPositional = !MappedFile<FileT>;

  void Operate(Database& db, Durability durability, bool logs, const FaultPlan& plan) {
    Status status;
    bool syncs = durability == Durability::kPower;
    if (random_.OneIn(30)) {
      syncs = true;
      status = random_.OneIn(3) ? db.Rebuild() : random_.OneIn(3) ? db.Verify() : db.Synchronize(SyncMode::kHard);
    } else if (random_.OneIn(15) && logs) {
      syncs = true;
      status = db.WaitDurable(db.LastLsn());
    } else {
      status = updates_.Update(db);
    }
    if (plan.fired_count() > 0) return;
    ASSERT_THAT(status, IsOk());
    if (logs || !kIsPositional || syncs) acknowledged_ = states_.size() - 1;
    if (syncs) durable_ = acknowledged_;
  }

  // What a crash at this moment leaves, to be opened once the operation is over.
  struct Crash {
    Memories left;
    bool is_kill;
    std::size_t first;  // of states_, that may be found
  };
  void TakeCrash() {
    const bool is_kill = random_.OneIn(4);
    const bool is_doubtful = !kIsPositional && plan_->fired_count() > 0;  // the page cache, as in Live
    crashes_.push_back(
        {is_kill ? Memories{database_->Kill(), log_->Kill()} : PowerCut(), is_kill, is_kill && !is_doubtful ? acknowledged_ : durable_});
  }
  void CheckCrashes() {
    for (const Crash& crash : std::exchange(crashes_, {})) {
      if (testing::Test::HasFailure()) return;
      ++num_crashes_;
      const auto found = Recover<FileT>(crash.left, random_.OneIn(3) ? Durability::kNone : Durability::kProcess);
      ASSERT_THAT(found, IsOk()) << (crash.is_kill ? "after a kill" : "after a power cut");
      ASSERT_TRUE(IsOneOf(*found, states_, crash.first))
          << (crash.is_kill ? "after a kill: " : "after a power cut: ") << Difference(states_.back(), *found);
    }
  }

  // Crashes within an operation: at its writes and syncs.
  void Observe() {
    database_->on_event = log_->on_event = [this] {
      if (random_.OneIn(10)) TakeCrash();
    };
  }
  Memories PowerCut() {
    ++boot_;
    return {std::make_shared<CrashMemory>(database_->Crash(random_), boot_), std::make_shared<CrashMemory>(log_->Crash(random_), boot_)};
  }
  void Continue(const Memories& left) {
    database_->on_event = log_->on_event = [] {};
    database_ = left.database;
    log_ = left.log;
    Observe();
  }

  Random random_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();  // of the life that is being lived
  std::vector<Crash> crashes_;
  std::uint8_t boot_ = 1;
  std::shared_ptr<CrashMemory> database_ = std::make_shared<CrashMemory>(Image{}, 1);
  std::shared_ptr<CrashMemory> log_ = std::make_shared<CrashMemory>(Image{}, 1);
  std::vector<Records> states_ = {{}};  // after each update, and within those that are not atomic
  KeyedUpdates updates_{random_, states_, SizeForALog};
  // The first of states_ that a kill, or a power cut, may leave.
  std::size_t acknowledged_ = 0, durable_ = 0;
  std::uint64_t num_crashes_ = 0;
};

template <class FileT>
class HashLogCrashTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(HashLogCrashTest, CrashFiles);

TYPED_TEST(HashLogCrashTest, LosesNothingBelowItsDurability) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(1800);
  std::uint64_t num_crashes = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Machine<TypeParam> machine(Random::Mix(TestSeed()) + number);
    for (int life = 0; life < 4 || (life < 12 && machine.num_crashes() < wanted); ++life)
      ASSERT_NO_FATAL_FAILURE(machine.Live(life == 0 ? 30 : 120)) << "life " << life;
    num_crashes += machine.num_crashes();
  }
  ReportCrashStates(num_crashes);
}

// The log was never synced, and is long, so that a synchronization follows its replay: a power cut
// then must not find a synchronized state that names a part of the log which the device lacks.
TEST(HashLogReplay, IsFollowedByASynchronizationThatSurvivesAPowerCut) {
  using Database = HashDBM<TestFile>;
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 3; ++round) {
    Memories memories{std::make_shared<CrashMemory>(Image{}, 1), std::make_shared<CrashMemory>(Image{}, 1)};
    const auto open = [](const Memories& of) {
      return Database::Open(PositionalCrashFile(of.database), PositionalCrashFile(of.log), Options(Durability::kProcess));
    };
    Memories killed;
    {
      ASSERT_OK_AND_ASSIGN(auto db, open(memories));
      for (std::uint64_t i = 0; i < 20; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(30'000, 'v')), IsOk());
      killed = {memories.database->Kill(), memories.log->Kill()};
    }
    std::vector<Memories> cuts;
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
    for (const Memories& cut : cuts) {
      ASSERT_OK_AND_ASSIGN(auto db, open(cut));
      ASSERT_THAT(db->Verify(), IsOk());
    }
  }
}

}  // namespace
}  // namespace hako
