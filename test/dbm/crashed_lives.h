// Lives of a process that works on a database with a log, and ends by Close, a kill or a power cut; and crashes
// at any moment of it, of which each is recovered. After a kill the database has the state after one of its
// updates, not before the last one that has returned; after a power cut not before the last one that was made
// durable; without a log that of a checkpoint, or after a kill what the file keeps.
//
// The database and its log lose power at the same moment, each with its own unsynced sectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/dbm/options.h"
#include "hako/dbm/write_batch.h"
#include "support/checked_value.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {

// The applied index counts as a record, above all others.
inline const std::string kAppliedIndexKey = "applied index";

template <class D>
StatusOr<Records> RecordsAndIndexOf(D& db) {
  Records found;
  HAKO_RETURN_IF_ERROR(db.ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); }));
  if (db.Count() != found.size()) return absl::DataLossError("Count is wrong");
  if (db.AppliedIndex() != 0) found.emplace(kAppliedIndexKey, std::to_string(db.AppliedIndex()));
  return found;
}

// Opens what a crash left by open(), and works with it. Returns the records that it found.
template <class F>
StatusOr<Records> RecoverAndWork(const F& open) {
  HAKO_ASSIGN_OR_RETURN(auto db, open());
  HAKO_ASSIGN_OR_RETURN(Records found, RecordsAndIndexOf(*db));
  HAKO_RETURN_IF_ERROR(db->Set("works", "again"));
  HAKO_RETURN_IF_ERROR(db->Verify());
  HAKO_RETURN_IF_ERROR(db->Close());
  HAKO_ASSIGN_OR_RETURN(db, open());
  Records again = found;
  again["works"] = "again";
  HAKO_ASSIGN_OR_RETURN(const Records found_again, RecordsAndIndexOf(*db));
  if (found_again != again) return absl::DataLossError("a later update is lost");
  return found;
}

// Random updates of a database with 60 keys. Before each, the state after it is added to `states`, and those within it if it is not atomic.
class KeyedUpdates {
 public:
  // `some_size`: draws the size of a value.
  KeyedUpdates(Random& random, std::vector<Records>& states, std::size_t (*some_size)(Random&))
      : random_(random), states_(states), some_size_(some_size) {}

  std::string SomeKey() { return NumberedKey(random_.Below(60)); }

  template <class D>
  Status Update(D& db) {
    const std::string key = SomeKey();
    if (random_.OneIn(150)) return Clear(db);
    if constexpr (requires { db.RemoveRange(key, key); }) {
      if (random_.OneIn(30)) return RemoveRange(db, key);
    }
    if (random_.OneIn(10)) return UpdateMany(db);
    if (random_.OneIn(8)) return WriteMany(db);
    if (random_.OneIn(4)) return Remove(db, key);
    return Set(db, key, some_size_(random_));
  }
  template <class D>
  Status Set(D& db, const std::string& key, std::size_t size) {
    Records after = states_.back();
    after[key] = CheckedValue(key, size, ++salt_);
    states_.push_back(after);
    return db.Set(key, after[key]);
  }
  template <class D>
  Status Remove(D& db, const std::string& key) {
    Records after = states_.back();
    const bool is_there = after.erase(key) != 0;
    states_.push_back(after);
    const Status status = db.Remove(key);
    return absl::IsNotFound(status) && !is_there ? absl::OkStatus() : status;
  }
  template <class D>
  Status Clear(D& db) {
    Records after = states_.back();
    std::erase_if(after, [](const auto& record) { return record.first != kAppliedIndexKey; });
    states_.push_back(after);
    return db.Clear();
  }
  // Not atomic: a part of the range may be left, from any key on.
  template <class D>
  Status RemoveRange(D& db, const std::string& key) {
    Records after = states_.back();
    const std::string to = SomeKey();
    for (auto it = after.lower_bound(key); it != after.end() && it->first < to; it = after.erase(it)) states_.push_back(after);
    states_.push_back(after);
    return db.RemoveRange(key, to).status();
  }
  template <class D>
  Status UpdateMany(D& db) {
    Records after = states_.back();
    ++salt_;
    std::vector<std::string> keys;
    for (std::uint64_t n = random_.Between(2, 20); n > 0; --n) keys.push_back(SomeKey());
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const std::string& key : keys) {
      if (random_.OneIn(3))
        after.erase(key);
      else
        after[key] = CheckedValue(key, some_size_(random_), salt_);
    }
    states_.push_back(after);
    return db.ProcessMulti(std::vector<std::string_view>(keys.begin(), keys.end()), [&](std::size_t i, auto) {
      const auto it = after.find(keys[i]);
      return it == after.end() ? Action::Remove() : Action::Set(it->second);
    });
  }
  // A batch, which has ranges if the keys are ordered, and mostly an applied index.
  template <class D>
  Status WriteMany(D& db) {
    Records after = states_.back();
    ++salt_;
    batch_.Clear();
    for (std::uint64_t n = random_.OneIn(8) ? random_.Below(200) : random_.Below(20); n > 0; --n) {
      const std::string key = SomeKey();
      if constexpr (requires { db.RemoveRange(key, key); }) {
        if (random_.OneIn(8)) {
          const std::string to = SomeKey();
          const bool has_end = !random_.OneIn(5);
          batch_.RemoveRange(key, has_end ? std::optional<std::string_view>(to) : std::nullopt);
          if (!has_end || key < to) after.erase(after.lower_bound(key), after.lower_bound(has_end ? to : kAppliedIndexKey));
          continue;
        }
      }
      if (random_.OneIn(3)) {
        batch_.Remove(key);
        after.erase(key);
      } else {
        batch_.Set(key, after[key] = CheckedValue(key, some_size_(random_), salt_));
      }
    }
    if (!random_.OneIn(4)) {
      const std::uint64_t index = random_.Next() | 1;
      batch_.SetAppliedIndex(index);
      after[kAppliedIndexKey] = std::to_string(index);
    }
    states_.push_back(after);
    return db.Write(batch_);
  }

 private:
  Random& random_;
  std::vector<Records>& states_;
  std::size_t (*some_size_)(Random&);
  WriteBatch batch_;
  std::uint64_t salt_ = 0;
};
// Mostly short values, some that begin a segment of the log.
inline std::size_t SizeForALog(Random& random) {
  return random.OneIn(30) ? random.Below(random.OneIn(20) ? 300'000 : 20'000) : random.SkewedSize(9);
}

// A database and its log.
struct CrashMemories {
  std::shared_ptr<CrashMemory> database, log;
};

// A Machine inherits CrashedLives<Machine, D> and has
//   Open(plan, durability)         opens the database on files of files_
//   Recover(files, durability)     opens the files that a crash left, works with them, returns what it found
//   Update(db)                     makes one update. Before, it adds the state after it to states_, and those
//                                  within it if it is not atomic
//   UpdateBeside(db)               the same beside a checkpoint, by the thread that makes it, if kUpdatesBeside
// It may have another kUpdatesBeside, kKeepsUpdates and Choose than this.
template <class Machine, class D>
class CrashedLives {
 public:
  static constexpr bool kUpdatesBeside = true;
  static constexpr bool kKeepsUpdates = false;  // a killed process leaves all updates in the file, without a log

  explicit CrashedLives(std::uint64_t seed) : random_(seed) { Observe(); }

  // One life.
  void Live(int count) {
    LiveOnADevice(count);
    CheckCrashes();
    // The page cache of a mapped file may lack something after a failed sync: the last synchronized state counts.
    if (Machine::kKeepsUpdates && has_failed_) acknowledged_ = durable_;
  }

  std::uint64_t num_crashes() const { return num_crashes_; }
  std::uint64_t num_beside() const { return num_beside_; }

 protected:
  static std::shared_ptr<CrashMemory> MemoryOf(const std::vector<std::byte>& image) { return std::make_shared<CrashMemory>(image, 1); }

  // Draws what else the next life has. Returns whether it has a log.
  bool Choose(Durability durability) { return durability != Durability::kNone; }

  Random random_;
  CrashMemories files_ = {MemoryOf({}), MemoryOf({})};
  std::vector<Records> states_ = {{}};  // after each update, and within those that are not atomic

 private:
  Machine& self() { return static_cast<Machine&>(*this); }
  bool HasFailed() { return has_failed_ = plan_->fired_count() > 0; }

  void LiveOnADevice(int count) {
    durability_ = random_.OneIn(5) ? Durability::kNone : random_.OneIn(2) ? Durability::kProcess : Durability::kPower;
    plan_ = std::make_shared<FaultPlan>();
    logs_ = self().Choose(durability_);
    if (random_.OneIn(6)) plan_->Arm({.call = random_.Between(1, 15), .forever = true});  // dies while it opens it
    CrashMemories left;
    {
      auto opened = self().Open(plan_, durability_);
      if (!opened.ok()) {
        ASSERT_TRUE(HasFailed()) << opened.status();
        return;
      }
      auto& db = **opened;
      {
        const auto found = RecordsAndIndexOf(db);
        if (HasFailed()) return;
        ASSERT_THAT(found, IsOk());
        ASSERT_TRUE(IsOneOf(*found, states_, acknowledged_)) << "after a kill: " << Difference(states_.back(), *found);
        ASSERT_NO_FATAL_FAILURE(CheckCrashes());
        Begin(*found);
      }
      for (int i = 0; i < count && !HasFailed(); ++i) {
        if (i == count - 10 && random_.OneIn(2)) plan_->Arm({.call = random_.Between(1, 20), .forever = true});
        ASSERT_NO_FATAL_FAILURE(Operate(db));
        if (random_.OneIn(25)) TakeCrash();
        ASSERT_NO_FATAL_FAILURE(CheckCrashes());
      }
      if (!HasFailed() && random_.OneIn(2)) {
        const Status closed = db.Close();
        if (HasFailed()) return;
        ASSERT_THAT(closed, IsOk());
        acknowledged_ = durable_ = states_.size() - 1;
        return TakeCrash();
      }
      left = Killed();  // what it has written is in the page cache
      plan_->Arm({.forever = true});
    }
    Continue(left);
    if (random_.OneIn(2)) {
      Continue(PowerCut());
      acknowledged_ = durable_;
    }
  }

  // The state that Open has found. It is durable, unless it is what a killed process left without a log.
  void Begin(const Records& found) {
    if (logs_ || !Machine::kKeepsUpdates) {
      states_ = {found};
      acknowledged_ = durable_ = 0;
      return;
    }
    while (states_.back() != found) states_.pop_back();
    acknowledged_ = states_.size() - 1;
  }

  void Operate(D& db) {
    if (random_.OneIn(30)) return Checkpoint(db);
    Status status;
    bool syncs = durability_ == Durability::kPower;
    if (random_.OneIn(100)) {
      syncs = true;
      status = db.Verify();
    } else if (random_.OneIn(15) && logs_) {
      syncs = true;
      status = db.WaitDurable(db.LastLsn());
    } else {
      status = self().Update(db);
    }
    if (HasFailed()) return;
    ASSERT_THAT(status, IsOk());
    if (logs_ || Machine::kKeepsUpdates || syncs) acknowledged_ = states_.size() - 1;
    if (syncs) durable_ = acknowledged_;
  }
  // With a log, updates are made between its writes and syncs.
  void Checkpoint(D& db) {
    const std::size_t before = states_.size() - 1;
    if constexpr (Machine::kUpdatesBeside) {
      if (logs_)
        update_beside_ = [this, &db] {
          if (HasFailed()) return;
          const Status updated = self().UpdateBeside(db);
          if (HasFailed()) return;
          ASSERT_THAT(updated, IsOk());
          acknowledged_ = states_.size() - 1;
          if (durability_ == Durability::kPower) durable_ = acknowledged_;
          ++num_beside_;
        };
    }
    const Status status = random_.OneIn(5) ? db.Rebuild() : db.Synchronize(SyncMode::kHard);
    update_beside_ = nullptr;
    if (HasFailed()) return;
    ASSERT_THAT(status, IsOk());
    acknowledged_ = std::max(acknowledged_, before);
    durable_ = std::max(durable_, before);
  }

  // What a crash at this moment leaves, to be opened once the operation is over.
  struct Crash {
    CrashMemories left;
    bool is_kill;
    std::size_t first, last;  // of states_, that may be found
  };
  void TakeCrash() {
    const bool is_kill = random_.OneIn(4);
    const bool is_doubtful = Machine::kKeepsUpdates && plan_->fired_count() > 0;  // the page cache, as in Live
    crashes_.push_back({is_kill ? Killed() : PowerCut(), is_kill, is_kill && !is_doubtful ? acknowledged_ : durable_, states_.size()});
  }
  void CheckCrashes() {
    for (const Crash& crash : std::exchange(crashes_, {})) {
      if (testing::Test::HasFailure()) return;
      ++num_crashes_;
      const char* const what = crash.is_kill ? "after a kill" : "after a power cut";
      const auto found = Machine::Recover(crash.left, random_.OneIn(3) ? Durability::kNone : Durability::kProcess);
      ASSERT_THAT(found, IsOk()) << what;
      ASSERT_TRUE(IsOneOf(*found, {states_.begin(), states_.begin() + static_cast<std::ptrdiff_t>(crash.last)}, crash.first))
          << what << ": " << Difference(states_[crash.last - 1], *found);
    }
  }

  CrashMemories Killed() const { return {files_.database->Kill(), files_.log->Kill()}; }
  CrashMemories PowerCut() {
    ++boot_;
    const auto crash = [this](CrashMemory& memory) { return std::make_shared<CrashMemory>(memory.Crash(random_), boot_); };
    auto database = crash(*files_.database);
    return {std::move(database), crash(*files_.log)};
  }
  void Continue(const CrashMemories& left) {
    files_.database->on_event = files_.log->on_event = [] {};
    files_ = left;
    Observe();
  }
  // Crashes within an operation: at its writes and syncs.
  void Observe() {
    files_.log->on_event = [this] {
      if (random_.OneIn(10)) TakeCrash();
    };
    files_.database->on_event = [this] {
      if (random_.OneIn(10)) TakeCrash();
      const auto update = std::exchange(update_beside_, nullptr);
      for (std::uint64_t n = update ? random_.Below(4) : 0; n > 0; --n) update();
      update_beside_ = update;
    };
  }

  std::uint8_t boot_ = 1;
  std::vector<Crash> crashes_;
  // Of the life that is being lived.
  Durability durability_ = Durability::kNone;
  std::shared_ptr<FaultPlan> plan_;
  bool logs_ = false, has_failed_ = false;
  // The first of states_ that a kill, or a power cut, may leave.
  std::size_t acknowledged_ = 0, durable_ = 0;
  std::uint64_t num_crashes_ = 0, num_beside_ = 0;
  std::function<void()> update_beside_;
};

// Lives of several machines, until so many crashes were checked.
template <class Machine>
void CheckCrashedLives(std::uint64_t wanted) {
  SCOPED_TRACE(TestSeed());
  std::uint64_t num_crashes = 0, num_beside = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Machine machine(Random::Mix(TestSeed()) + number);
    for (int life = 0; life < 4 || (life < 12 && machine.num_crashes() < wanted); ++life)
      ASSERT_NO_FATAL_FAILURE(machine.Live(life == 0 ? 30 : 120)) << "life " << life;
    num_crashes += machine.num_crashes();
    num_beside += machine.num_beside();
  }
  if (Machine::kUpdatesBeside) EXPECT_GE(num_beside, num_crashes / 30);
  ReportCrashStates(num_crashes);
}

}  // namespace hako
