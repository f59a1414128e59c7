// Cuts the power under a TreeDBM with a log, or kills its process, at any moment. The database opens
// with the state after one of its updates: after a kill not before the last one that has returned,
// after a power cut not before the last one that was made durable. A batch is there as a whole or not
// at all, and the applied index is that of the last batch that is there.
//
// The database and its log lose power at the same moment, each with its own unsynced sectors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;
struct Images {
  Image database, log;
};

// The applied index counts as a record, above all others.
const std::string kIndexKey = "applied index";

template <class D>
StatusOr<Records> RecordsOf(D& db) {
  Records found;
  HAKO_RETURN_IF_ERROR(db.ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); }));
  if (db.Count() != found.size()) return absl::DataLossError("Count is wrong");
  if (db.AppliedIndex() != 0) found.emplace(kIndexKey, std::to_string(db.AppliedIndex()));
  return found;
}

// Opens the files that a crash left, and works with them.
StatusOr<Records> Recover(const Images& images, Durability durability) {
  using Database = TreeDBM<MemoryFile>;
  const MemoryFile database = MemoryFile::Of(images.database), log = MemoryFile::Of(images.log);
  const TreeOptions options = {.cache_bytes = 4 << 20, .durability = durability};
  HAKO_ASSIGN_OR_RETURN(auto db, Database::Open(database.Share(), log.Share(), options));
  HAKO_ASSIGN_OR_RETURN(Records found, RecordsOf(*db));
  HAKO_RETURN_IF_ERROR(db->Set("works", "again"));
  HAKO_RETURN_IF_ERROR(db->Verify());
  HAKO_RETURN_IF_ERROR(db->Close());
  HAKO_ASSIGN_OR_RETURN(db, Database::Open(database.Share(), log.Share(), options));
  Records again = found;
  again["works"] = "again";
  HAKO_ASSIGN_OR_RETURN(const Records found_again, RecordsOf(*db));
  if (found_again != again) return absl::DataLossError("a later update is lost");
  return found;
}

template <class FileT>
class Machine {
  using DatabaseFile = FaultFile<FileT>;
  using Database = TreeDBM<DatabaseFile>;

 public:
  explicit Machine(std::uint64_t seed) : random_(seed) { Observe(); }

  // One life of a process, which ends by Close, a kill or a power cut.
  void Live(int count) {
    const Durability durability = random_.OneIn(5) ? Durability::kNone : random_.OneIn(2) ? Durability::kProcess : Durability::kPower;
    const auto plan = std::make_shared<FaultPlan>();
    const TreeOptions options = {.page_size = kPageSizes[random_.Below(std::size(kPageSizes))],
                                 .cache_bytes = 64 << 20,
                                 .durability = durability,
                                 .log_bytes = std::uint64_t{1} << 40};
    if (random_.OneIn(6)) plan->Arm({.call = random_.Between(1, 15), .forever = true});  // dies while it opens it
    auto opened = Database::Open(DatabaseFile(FileT(database_), plan), DatabaseFile(FileT(log_), plan), options);
    if (!opened.ok()) {
      ASSERT_GT(plan->fired_count(), 0u) << opened.status();
      return;
    }
    auto& db = **opened;
    {
      const auto found = RecordsOf(db);
      if (plan->fired_count() > 0) return;
      ASSERT_THAT(found, IsOk());
      ASSERT_TRUE(IsOneOf(*found, states_, acknowledged_)) << "after a kill: " << Difference(states_.back(), *found);
      states_ = {*found};
      acknowledged_ = durable_ = 0;
    }
    for (int i = 0; i < count && plan->fired_count() == 0 && !testing::Test::HasFatalFailure(); ++i) {
      if (i == count - 10 && random_.OneIn(2)) plan->Arm({.call = random_.Between(1, 20), .forever = true});
      ASSERT_NO_FATAL_FAILURE(Operate(db, durability, *plan, static_cast<std::uint64_t>(i)));
      if (random_.OneIn(25)) CheckCrash();
    }
    if (plan->fired_count() == 0 && random_.OneIn(2)) {
      const Status closed = db.Close();
      if (plan->fired_count() > 0) return;
      ASSERT_THAT(closed, IsOk());
      acknowledged_ = durable_ = states_.size() - 1;
      CheckCrash();
      return;
    }
    plan->Arm({.forever = true});  // killed: what it has written is in the page cache
    if (random_.OneIn(2)) CutPower();
  }

  std::uint64_t num_crashes() const { return num_crashes_; }
  std::uint64_t num_beside() const { return num_beside_; }

 private:
  static constexpr unsigned kPageSizes[] = {128, 200, 1024, 8192};

  void Operate(Database& db, Durability durability, const FaultPlan& plan, std::uint64_t salt) {
    Status status;
    bool syncs = durability == Durability::kPower;
    if (random_.OneIn(30)) return Synchronize(db, durability, plan);
    if (random_.OneIn(60)) {
      syncs = true;
      status = random_.OneIn(3) ? db.Rebuild() : random_.OneIn(3) ? db.Verify() : db.Synchronize(SyncMode::kHard);
    } else if (random_.OneIn(15) && durability != Durability::kNone) {
      syncs = true;
      status = db.WaitDurable(db.LastLsn());
    } else {
      status = Update(db, salt);
    }
    if (plan.fired_count() > 0) return;
    ASSERT_THAT(status, IsOk());
    if (durability != Durability::kNone || syncs) acknowledged_ = states_.size() - 1;
    if (syncs) durable_ = acknowledged_;
  }

  // With a log, updates are made between the writes and syncs of the checkpoint.
  void Synchronize(Database& db, Durability durability, const FaultPlan& plan) {
    const std::size_t before = states_.size() - 1;
    if (durability != Durability::kNone) {
      update_beside_ = [&, durability] {
        if (plan.fired_count() > 0) return;
        const std::string key = NumberedKey(random_.Below(60));
        Records after = states_.back();
        const std::size_t size = random_.OneIn(3) ? random_.Below(20'000) : random_.SkewedSize(9);  // some begin a segment of the log
        after[key] = CheckedValue(key, size, 1000 + states_.size());
        states_.push_back(after);
        const Status status = db.Set(key, after[key]);
        if (plan.fired_count() > 0) return;
        ASSERT_THAT(status, IsOk());
        acknowledged_ = states_.size() - 1;
        if (durability == Durability::kPower) durable_ = acknowledged_;
        ++num_beside_;
      };
    }
    const Status status = db.Synchronize(SyncMode::kHard);
    update_beside_ = nullptr;
    if (plan.fired_count() > 0) return;
    ASSERT_THAT(status, IsOk());
    acknowledged_ = std::max(acknowledged_, before);
    durable_ = std::max(durable_, before);
  }

  Status Update(Database& db, std::uint64_t salt) {
    Records after = states_.back();
    const std::string key = NumberedKey(random_.Below(60));
    if (random_.OneIn(150)) {
      std::erase_if(after, [](const auto& record) { return record.first != kIndexKey; });
      states_.push_back(after);
      return db.Clear();
    }
    if (random_.OneIn(30)) {  // not atomic: a part of the range may be left, from any key on
      const std::string to = NumberedKey(random_.Below(60));
      for (auto it = after.lower_bound(key); it != after.end() && it->first < to; it = after.erase(it)) states_.push_back(after);
      states_.push_back(after);
      return db.RemoveRange(key, to).status();
    }
    if (random_.OneIn(10)) return UpdateMany(db, salt);
    if (random_.OneIn(8)) return WriteMany(db, salt);
    if (random_.OneIn(4)) {
      const bool is_there = after.erase(key) != 0;
      states_.push_back(after);
      const Status status = db.Remove(key);
      return absl::IsNotFound(status) && !is_there ? absl::OkStatus() : status;
    }
    after[key] = CheckedValue(key, SomeSize(), salt);
    states_.push_back(after);
    return db.Set(key, states_.back()[key]);
  }

  Status UpdateMany(Database& db, std::uint64_t salt) {
    Records after = states_.back();
    std::vector<std::string> keys;
    for (std::uint64_t n = random_.Between(2, 20); n > 0; --n) keys.push_back(NumberedKey(random_.Below(60)));
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const std::string& key : keys) {
      if (random_.OneIn(3))
        after.erase(key);
      else
        after[key] = CheckedValue(key, SomeSize(), salt);
    }
    states_.push_back(after);
    return db.ProcessMulti(std::vector<std::string_view>(keys.begin(), keys.end()), [&](std::size_t i, auto) {
      const auto it = after.find(keys[i]);
      return it == after.end() ? Action::Remove() : Action::Set(it->second);
    });
  }

  Status WriteMany(Database& db, std::uint64_t salt) {
    Records after = states_.back();
    batch_.Clear();
    for (std::uint64_t n = random_.OneIn(8) ? random_.Below(200) : random_.Below(20); n > 0; --n) {
      const std::string key = NumberedKey(random_.Below(60));
      if (random_.OneIn(8)) {
        const std::string to = NumberedKey(random_.Below(60));
        const bool has_end = !random_.OneIn(5);
        batch_.RemoveRange(key, has_end ? std::optional<std::string_view>(to) : std::nullopt);
        if (!has_end || key < to) after.erase(after.lower_bound(key), after.lower_bound(has_end ? to : kIndexKey));
      } else if (random_.OneIn(3)) {
        batch_.Remove(key);
        after.erase(key);
      } else {
        batch_.Set(key, after[key] = CheckedValue(key, SomeSize(), salt));
      }
    }
    if (!random_.OneIn(4)) {
      const std::uint64_t index = random_.Next() | 1;
      batch_.SetAppliedIndex(index);
      after[kIndexKey] = std::to_string(index);
    }
    states_.push_back(after);
    return db.Write(batch_);
  }

  std::size_t SomeSize() { return random_.OneIn(30) ? random_.Below(random_.OneIn(20) ? 300'000 : 20'000) : random_.SkewedSize(9); }

  void CheckCrash() {
    if (testing::Test::HasFailure()) return;
    const bool is_kill = random_.OneIn(4);
    ++num_crashes_;
    const Images images = is_kill ? Images{database_->Live(), log_->Live()} : Images{database_->Crash(random_), log_->Crash(random_)};
    const auto found = Recover(images, random_.OneIn(3) ? Durability::kNone : Durability::kProcess);
    ASSERT_THAT(found, IsOk()) << (is_kill ? "after a kill" : "after a power cut");
    ASSERT_TRUE(IsOneOf(*found, states_, is_kill ? acknowledged_ : durable_))
        << (is_kill ? "after a kill: " : "after a power cut: ") << Difference(states_.back(), *found);
  }

  // Crashes within an operation: at its writes and syncs.
  void Observe() {
    log_->on_event = [this] {
      if (random_.OneIn(10)) CheckCrash();
    };
    database_->on_event = [this] {
      if (random_.OneIn(10)) CheckCrash();
      const auto update = std::exchange(update_beside_, nullptr);
      for (std::uint64_t n = update ? random_.Below(4) : 0; n > 0; --n) update();
      update_beside_ = update;
    };
  }
  void CutPower() {
    const Images images{database_->Crash(random_), log_->Crash(random_)};
    database_->on_event = log_->on_event = [] {};
    database_ = std::make_shared<CrashMemory>(images.database, 1);
    log_ = std::make_shared<CrashMemory>(images.log, 1);
    Observe();
    acknowledged_ = durable_;
  }

  Random random_;
  WriteBatch batch_;
  std::shared_ptr<CrashMemory> database_ = std::make_shared<CrashMemory>(Image{}, 1);
  std::shared_ptr<CrashMemory> log_ = std::make_shared<CrashMemory>(Image{}, 1);
  std::vector<Records> states_ = {{}};  // after each update, and within those that are not atomic
  // The first of states_ that a kill, or a power cut, may leave.
  std::size_t acknowledged_ = 0, durable_ = 0;
  std::uint64_t num_crashes_ = 0, num_beside_ = 0;
  std::function<void()> update_beside_;
};

template <class FileT>
class TreeLogCrashTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(TreeLogCrashTest, CrashFiles);

TYPED_TEST(TreeLogCrashTest, LosesNothingBelowItsDurability) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(3000) / kSlowdown;
  std::uint64_t num_crashes = 0, num_beside = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Machine<TypeParam> machine(Random::Mix(TestSeed()) + number);
    for (int life = 0; life < 12; ++life) ASSERT_NO_FATAL_FAILURE(machine.Live(life == 0 ? 30 : 120)) << "life " << life;
    num_crashes += machine.num_crashes();
    num_beside += machine.num_beside();
  }
  EXPECT_GE(num_beside, num_crashes / 30);
  ReportCrashStates(num_crashes);
}

// The replay of a batch that is larger than the cache, with checkpoints meanwhile. The log was written by
// a process that was killed, and is not durable: a power cut leaves the batch as a whole or not at all.
TYPED_TEST(TreeLogCrashTest, ReplaysABatchInOneStepBesideCheckpoints) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  constexpr std::uint64_t kRecords = 1500;
  std::size_t num_whole = 0, num_crashes = 0;
  for (int round = 0; round < 4; ++round) {
    const auto database = std::make_shared<CrashMemory>(Image{}, 1), log = std::make_shared<CrashMemory>(Image{}, 1);
    const TreeOptions options = {.page_size = 1024, .cache_bytes = 1 << 20, .checkpoint_bytes = 64 << 10};
    using Database = TreeDBM<FaultFile<TypeParam>>;
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
      ASSERT_OK_AND_ASSIGN(auto db, Database::Open({TypeParam(database), plan}, {TypeParam(log), plan}, calm));
      ASSERT_THAT(db->Write(fill(1)), IsOk());
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      ASSERT_THAT(db->Write(fill(2)), IsOk());
      plan->Arm({.forever = true});  // killed
    }
    std::mutex mutex;
    std::vector<Images> crashes;
    {
      const auto crash = [&] {
        const std::lock_guard lock(mutex);
        if (crashes.size() < 40) crashes.push_back({database->Crash(random), log->Crash(random)});
      };
      const auto plan = std::make_shared<FaultPlan>();
      ASSERT_OK_AND_ASSIGN(auto db, [&] {
        database->on_event = log->on_event = crash;
        return Database::Open({TypeParam(database), plan}, {TypeParam(log), plan}, options);
      }());
      database->on_event = log->on_event = [] {};
      EXPECT_EQ(db->AppliedIndex(), 2u);
      ASSERT_THAT(db->Close(), IsOk());
    }
    for (const Images& images : crashes) {
      const auto found = Recover(images, Durability::kProcess);
      ASSERT_THAT(found, IsOk());
      const std::string index = found->at(kIndexKey);
      ASSERT_EQ(found->size(), kRecords + 1);
      for (const auto& [key, value] : *found) {
        if (key != kIndexKey) {
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
