// Cuts the power under a TinyDBM or BabyDBM with a path, or kills its process, at any moment: between
// and within updates, and within the snapshots that it writes beside them and their renames. The
// database opens with the state after one of its updates: with a log after a kill not before the last
// one that has returned, after a power cut not before the last one that was made durable; without a log
// exactly with the last snapshot. A batch is there as a whole or not at all, and the applied index is
// that of the last batch found. RemoveRange is not atomic: some of its first removals may be found.
//
// The snapshot, the log and their directory lose power at the same moment, each with what it has not
// synced.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/crashed_lives.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "support/checked_value.h"
#include "support/crash_directory.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Memories = CrashDirectory::Memories;

struct Tiny {
  using Database = TinyDBM<DirectoryCrashFile>;
  using Options = TinyOptions;
  static Options With(Durability durability) { return {.seed = 1, .durability = durability, .log_bytes = std::uint64_t{1} << 40}; }
};
struct Baby {
  using Database = BabyDBM<DirectoryCrashFile>;
  using Options = BabyOptions;
  static Options With(Durability durability) { return {.page_size = 256, .durability = durability, .log_bytes = std::uint64_t{1} << 40}; }
};

// Opens what a crash left, and works with it.
template <class Kind>
StatusOr<Records> Recover(const Memories& left, Durability durability) {
  const CrashDirectory::Visit visit;
  TempDir directory;
  CrashDirectory::Instance().Put(directory.path(), left);
  return RecoverAndWork([&] { return Kind::Database::Open(directory.File("db"), Kind::With(durability)); });
}

template <class Kind>
class Machine {
  using Database = typename Kind::Database;

 public:
  Machine(std::uint64_t seed, bool has_long_values) : random_(seed), has_long_values_(has_long_values) {
    directory_.on_event = [this](CrashDirectory::Place place) { OnEvent(place); };
  }
  ~Machine() { directory_.Clear(); }

  // One life of a process, which ends by Close, a kill or a power cut.
  void Live(int count) {
    durability_ = random_.OneIn(4) ? Durability::kNone : random_.OneIn(2) ? Durability::kProcess : Durability::kPower;
    TempDir place;
    directory_.Put(place.path(), files_);
    directory_.Observe(place.path());
    const auto opened = Database::Open(place.File("db"), Kind::With(durability_));
    ASSERT_THAT(opened, IsOk());
    db_ = opened->get();
    const auto found = RecordsAndIndexOf(*db_);
    ASSERT_THAT(found, IsOk());
    ASSERT_GT(std::count(allowed_.begin(), allowed_.end(), *found), 0) << Difference(states_.back(), *found);
    ASSERT_NO_FATAL_FAILURE(CheckCrashes());
    states_ = {*found};
    acknowledged_ = durable_ = 0;
    is_logged_ = logs();
    if (has_long_values_) {
      ASSERT_NO_FATAL_FAILURE(StoreLongValues());
    }
    for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i) {
      ASSERT_NO_FATAL_FAILURE(Operate());
      if (random_.OneIn(25)) TakeCrash();
      ASSERT_NO_FATAL_FAILURE(CheckCrashes());
    }
    if (random_.OneIn(2)) {
      ASSERT_THAT(db_->Close(), IsOk());
      acknowledged_ = durable_ = states_.size() - 1;
      TakeCrash();
      ASSERT_NO_FATAL_FAILURE(CheckCrashes());
    }
    const bool is_cut = random_.OneIn(2);
    files_ = is_cut ? directory_.Crash(random_, 2) : directory_.Kill();
    if (is_cut) acknowledged_ = durable_;
    const auto first = states_.begin() + static_cast<std::ptrdiff_t>(acknowledged_);
    allowed_.assign(first, logs() ? states_.end() : first + 1);
    const auto on_event = std::exchange(directory_.on_event, nullptr);
    (void)(*opened)->Close();  // of the dead process
    directory_.on_event = on_event;
    crashes_.clear();
  }
  std::uint64_t num_crashes() const { return num_crashes_; }
  std::uint64_t num_beside() const { return num_beside_; }

 private:
  bool logs() const { return durability_ != Durability::kNone; }

  void Operate() {
    if (random_.OneIn(20)) return Synchronize();
    if (random_.OneIn(15) && logs()) {
      const std::size_t before = states_.size() - 1;
      ASSERT_THAT(db_->WaitDurable(db_->LastLsn()), IsOk());
      durable_ = std::max(durable_, before);
      return;
    }
    ASSERT_NO_FATAL_FAILURE(UpdateOnce());
  }
  void UpdateOnce() {
    ASSERT_THAT(Update(), IsOk());
    NoteUpdate();
  }
  void NoteUpdate() {
    if (logs()) acknowledged_ = states_.size() - 1;
    if (durability_ == Durability::kPower) durable_ = acknowledged_;
  }

  // Two values so long that a snapshot is written in two blocks, with updates between them.
  void StoreLongValues() {
    for (const std::uint64_t number : {20u, 40u}) {
      ASSERT_THAT(updates_.Set(*db_, NumberedKey(number) + "long", 530'000), IsOk());
      NoteUpdate();
    }
  }

  // With a log, updates are made within it, before, after and while it shows the records. Some find the
  // device full, which loses nothing.
  void Synchronize() {
    const std::size_t before = states_.size() - 1;
    const bool is_full = random_.OneIn(4);
    directory_.is_full = is_full;
    updates_beside_ = logs();
    const Status status = db_->Synchronize(SyncMode::kHard);
    updates_beside_ = directory_.is_full = false;
    if (!status.ok()) {
      ASSERT_TRUE(is_full) << status;
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
      ASSERT_THAT(db_->GetHealth(), IsOk());
      return;
    }
    durable_ = std::max(durable_, before);
    acknowledged_ = std::max(acknowledged_, before);
  }

  Status Update() {
    const std::string key = updates_.SomeKey();
    if (random_.OneIn(150)) return updates_.Clear(*db_);
    if (random_.OneIn(6)) return updates_.WriteMany(*db_);
    if constexpr (requires { db_->RemoveRange(key, key); }) {
      if (random_.OneIn(20)) return updates_.RemoveRange(*db_, key);
    }
    if (random_.OneIn(4)) return updates_.Remove(*db_, key);
    Records after = states_.back();
    if (random_.OneIn(4)) {
      after[key] += "more";
      states_.push_back(after);
      return db_->Append(key, "more");
    }
    if (const std::string other = key + "x"; random_.OneIn(8) && after.contains(key) && !after.contains(other)) {
      after[other] = after[key];
      after.erase(key);
      states_.push_back(after);
      return db_->Rekey(key, other);
    }
    return updates_.Set(*db_, key, SomeSize(random_));
  }
  // A few values are so long that a snapshot is written in several blocks.
  static std::size_t SomeSize(Random& random) {
    return random.OneIn(50) ? random.Below(random.OneIn(4) ? 900'000 : 20'000) : random.SkewedSize(9);
  }

  // Without a log, a crash leaves the last snapshot, or the one that is being written.
  bool IsAllowed(const Records& found, std::size_t first, std::size_t last) const {
    if (!is_logged_) return found == states_[first] || found == states_[last];
    const auto begin = states_.begin();
    return std::count(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last) + 1, found) > 0;
  }

  // What a crash at this moment leaves, to be opened once the operation is over.
  struct Crash {
    Memories left;
    bool is_kill;
    std::size_t first, last;  // of states_, that may be found
  };
  void TakeCrash() {
    const bool is_kill = random_.OneIn(4);
    crashes_.push_back(
        {is_kill ? directory_.Kill() : directory_.Crash(random_, 2), is_kill, is_kill ? acknowledged_ : durable_, states_.size() - 1});
  }
  void CheckCrashes() {
    const auto on_event = std::exchange(directory_.on_event, nullptr);
    for (const Crash& crash : std::exchange(crashes_, {})) {
      if (testing::Test::HasFailure()) break;
      ++num_crashes_;
      const auto found = Recover<Kind>(crash.left, random_.OneIn(3) ? Durability::kNone : Durability::kProcess);
      EXPECT_THAT(found, IsOk()) << (crash.is_kill ? "after a kill" : "after a power cut");
      if (!found.ok()) break;
      EXPECT_TRUE(IsAllowed(*found, crash.first, crash.last))
          << (crash.is_kill ? "after a kill: " : "after a power cut: ") << Difference(states_.back(), *found);
    }
    directory_.on_event = on_event;
    if (testing::Test::HasFailure()) FAIL();
  }

  // Before each write and sync of a file or directory. Only in those of the database can updates be made.
  void OnEvent(CrashDirectory::Place place) {
    if (random_.OneIn(10)) TakeCrash();
    if (place != CrashDirectory::Place::kDatabase || !std::exchange(updates_beside_, false)) return;
    for (std::uint64_t n = random_.Below(4); n > 0 && !testing::Test::HasFailure(); --n) {
      UpdateOnce();
      ++num_beside_;
    }
    updates_beside_ = true;
  }

  CrashDirectory& directory_ = CrashDirectory::Instance();
  Random random_;
  const bool has_long_values_;
  Durability durability_ = Durability::kProcess;
  Database* db_ = nullptr;
  bool updates_beside_ = false;
  bool is_logged_ = false;  // states_
  std::vector<Crash> crashes_;
  Memories files_;
  std::vector<Records> allowed_ = {{}};  // states that the next life may find
  std::vector<Records> states_ = {{}};   // after each update, and each removal of a RemoveRange
  KeyedUpdates updates_{random_, states_, SomeSize};
  // The first of states_ that a kill, or a power cut, may leave.
  std::size_t acknowledged_ = 0, durable_ = 0;
  std::uint64_t num_crashes_ = 0, num_beside_ = 0;
};

template <class Kind>
class MemoryLogCrashTest : public testing::Test {};
using Kinds = testing::Types<Tiny, Baby>;
TYPED_TEST_SUITE(MemoryLogCrashTest, Kinds);

TYPED_TEST(MemoryLogCrashTest, LosesNothingBelowItsDurability) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(500);
  std::uint64_t num_crashes = 0, num_beside = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Machine<TypeParam> machine(Random::Mix(TestSeed()) + number, number % 3 == 0);
    for (int life = 0; life < 8; ++life) ASSERT_NO_FATAL_FAILURE(machine.Live(life == 0 ? 30 : 80)) << "life " << life;
    num_crashes += machine.num_crashes();
    num_beside += machine.num_beside();
  }
  EXPECT_GE(num_beside, num_crashes / 10);
  ReportCrashStates(num_crashes);
}

// A process is killed at any moment from Open to Close, and the power is cut while the next one opens the
// database, or after it has made an update durable. What the killed one has left without a sync, such as the
// end of its snapshot or the name of a new one, the next one makes durable before it relies on it.
TYPED_TEST(MemoryLogCrashTest, LosesNothingOfTheProcessAfterAKilledOne) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  CrashDirectory& files = CrashDirectory::Instance();
  const std::uint64_t cuts_per_kill = std::max<std::uint64_t>(CrashStates(500) / 100, 1);
  std::uint64_t num_cuts = 0;
  for (const Durability before : {Durability::kNone, Durability::kPower}) {
    bool is_killed = true;
    for (std::uint64_t kill_at = 1; is_killed && !testing::Test::HasFailure(); ++kill_at) {
      SCOPED_TRACE(testing::Message() << "killed at event " << kill_at << ", before at level " << static_cast<int>(before));
      CrashDirectory::Killed killed;
      Records expected, maybe;  // what has returned, and what has begun
      {
        const TempDir directory;
        files.Put(directory.path(), {});
        files.Observe(directory.path());
        const auto open = [&](Durability durability) {
          return TypeParam::Database::Open(directory.File("db"), TypeParam::With(durability));
        };
        ASSERT_OK_AND_ASSIGN(auto db, open(before));
        ASSERT_THAT(db->Set("0", "a"), IsOk());
        ASSERT_THAT(db->Close(), IsOk());
        Records made = {{"0", "a"}}, begun = made;
        std::uint64_t events = 0;
        files.on_event = [&](CrashDirectory::Place) {
          if (++events != kill_at) return;
          killed = files.KillWithNames();
          expected = made;
          maybe = begun;
        };
        ASSERT_OK_AND_ASSIGN(db, open(Durability::kPower));
        begun.emplace("1", "b");
        ASSERT_THAT(db->Set("1", "b"), IsOk());
        made = begun;
        ASSERT_THAT(db->Close(), IsOk());
        files.on_event = nullptr;
        is_killed = events >= kill_at;
        files.Clear();
      }
      if (!is_killed) break;
      struct Cut {
        Memories left;
        Records least;
      };
      std::vector<Cut> cuts;
      {
        const TempDir directory;
        files.PutAndObserve(directory.path(), killed);
        const auto cut = [&](std::uint64_t count) {
          for (; count > 0; --count) cuts.push_back({files.Crash(random, 2), expected});
        };
        files.on_event = [&](CrashDirectory::Place) {
          if (kSlowdown == 1 || random.OneIn(3)) cut(1);
        };
        ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Database::Open(directory.File("db"), TypeParam::With(Durability::kPower)));
        ASSERT_OK_AND_ASSIGN(expected, RecordsAndIndexOf(*db));
        ASSERT_TRUE(expected == maybe || !maybe.contains("1") || !expected.contains("1"));
        ASSERT_THAT(db->Set("2", "c"), IsOk());
        expected["2"] = "c";
        cut(cuts_per_kill);
        files.on_event = nullptr;
        ASSERT_THAT(db->Close(), IsOk());
        files.Clear();
      }
      for (const Cut& of : cuts) {
        ++num_cuts;
        const auto found = Recover<TypeParam>(of.left, Durability::kPower);
        ASSERT_THAT(found, IsOk());
        for (const auto& [key, value] : of.least) EXPECT_THAT(*found, testing::Contains(testing::Pair(key, value)));
      }
      files.Clear();
    }
  }
  ReportCrashStates(num_cuts);
}

}  // namespace
}  // namespace hako
