// Cuts the power under a HashDBM at any moment. Regardless of the unsynced sectors that the device
// wrote, the database opens with exactly the state of the last hard Synchronize (or of the one that
// was running), recovery can itself be interrupted, and the database works from there.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/fault_file.h"
#include "support/random.h"
#include "support/recording_file.h"
#include "support/refilled_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;

// Recovers a database and lists it.
template <class FileT>
StatusOr<Records> RecoverIn(FileT file) {
  HAKO_ASSIGN_OR_RETURN(auto db, HashDBM<Erased<FileT>>::Open(std::move(file)));
  HAKO_RETURN_IF_ERROR(db->Verify());
  Records found;
  HAKO_RETURN_IF_ERROR(db->ProcessEach([&](std::string_view key, std::string_view value) { found.emplace(key, value); }));
  std::string value;
  for (const auto& [key, listed] : found) {
    HAKO_RETURN_IF_ERROR(db->Get(key, &value));
    if (value != listed) return absl::DataLossError("Get and ProcessEach disagree");
  }
  if (db->Count() != found.size()) return absl::DataLossError("Count is wrong");
  HAKO_RETURN_IF_ERROR(db->Set("works", "again"));
  HAKO_RETURN_IF_ERROR(db->Close());
  return found;
}
// As a file of type FileT, on a machine that was booted again.
constexpr std::uint8_t kLastBoot = 255;
template <class FileT>
StatusOr<Records> Recover(const Image& image) {
  static RefilledFile file;
  if constexpr (MappedFile<FileT>) {
    return RecoverIn(BootedMemoryFile(file.With(image), kLastBoot));
  } else {
    return RecoverIn(AnyFile(file.With(image)));
  }
}

// A database on a CrashMemory, with the states that may be recovered.
template <class FileT>
class CrashRun {
 public:
  CrashRun(Image start, Records records, std::uint64_t seed, std::uint8_t boot, Durability durability = Durability::kProcess)
      : random_(seed),
        durability_(durability),
        memory_(std::make_shared<CrashMemory>(std::move(start), boot)),
        allowed_{records},
        before_(records),
        now_(std::move(records)) {
    memory_->on_event = [this] {
      if (random_.OneIn(event_odds_)) CheckCrash();
    };
  }

  // Opens, carries out `count` operations and drops the database without closing it.
  void Run(int count) {
    event_odds_ = kUsualOdds;
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory_), {.seed = random_.Next(), .durability = durability_}));
    for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i) {
      ASSERT_THAT(Update(*db, static_cast<std::uint64_t>(i)), IsOk());
      before_ = now_;
      if (durability_ == Durability::kPower) allowed_ = {now_};
      memory_->Observe();
      if (random_.OneIn(12)) CheckCrash();
      if (random_.OneIn(30)) {
        if (now_ != allowed_.back()) allowed_.push_back(now_);
        event_odds_ = kSyncOdds;
        if (random_.OneIn(5)) {
          ASSERT_THAT(db->Rebuild(), IsOk());  // synchronizes too
        } else {
          ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
        }
        event_odds_ = kUsualOdds;
        allowed_ = {now_};
        CheckCrash();
      }
    }
    last_image_ = memory_->Crash(random_);
    event_odds_ = kSyncOdds;
    allowed_.push_back(now_);  // closing synchronizes
    ASSERT_THAT(db->Close(), IsOk());
    allowed_ = {now_};
    CheckCrash();
  }

  // A crash before the database was closed, and the state recovered from it.
  const Image& last_image() const { return last_image_; }
  std::uint64_t num_crashes() const { return num_crashes_; }

 private:
  // A crash is drawn in one of this many events of the file: a mapped file has few, a positional
  // one has one for each write.
  static constexpr std::uint64_t kUsualOdds = MappedFile<FileT> ? 2 : 30;
  static constexpr std::uint64_t kSyncOdds = MappedFile<FileT> ? 2 : 10;

  Status Update(HashDBM<Erased<FileT>>& db, std::uint64_t salt) {
    const std::string key = NumberedKey(random_.Below(60));
    const auto may_be_durable = [this] {
      if (durability_ == Durability::kPower) allowed_.push_back(now_);
    };
    if (random_.OneIn(300)) {
      now_.clear();
      may_be_durable();
      return db.Clear();
    }
    if (random_.OneIn(6)) return UpdateSeveral(db, salt, may_be_durable);
    if (random_.OneIn(4)) {
      const bool exists = now_.erase(key) != 0;
      may_be_durable();
      const Status status = db.Remove(key);
      return !exists && absl::IsNotFound(status) ? absl::OkStatus() : status;
    }
    now_[key] = CheckedValue(key, random_.OneIn(50) ? random_.Below(20'000) : random_.SkewedSize(9), salt);
    may_be_durable();
    return db.Set(key, now_[key]);
  }

  template <class F>
  Status UpdateSeveral(HashDBM<Erased<FileT>>& db, std::uint64_t salt, F&& may_be_durable) {
    std::vector<std::string> keys(random_.OneIn(10) ? 40 : random_.Between(2, 5));
    for (std::string& key : keys) key = NumberedKey(random_.Below(60));
    std::vector<std::string> values;
    for (const std::string& key : keys)
      values.push_back(CheckedValue(key, random_.OneIn(50) ? random_.Below(20'000) : random_.SkewedSize(9), salt));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i % 4 == 1) {
        now_.erase(keys[i]);
      } else {
        now_[keys[i]] = values[i];
      }
    }
    may_be_durable();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    return db.ProcessMulti(views, [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
      return i % 4 == 1 ? Action::Remove() : Action::Set(values[i]);
    });
  }

  void CheckCrash() {
    if (testing::Test::HasFatalFailure()) return;
    ++num_crashes_;
    const Image image = memory_->Crash(random_);
    const auto found = Recover<FileT>(image);
    ASSERT_THAT(found, IsOk());
    ASSERT_TRUE(std::count(allowed_.begin(), allowed_.end(), *found) > 0)
        << "the oldest state allowed differs: " << Difference(allowed_.front(), *found);
    if (random_.OneIn(6)) CheckCrashInRecovery(image, *found);
    if constexpr (MappedFile<FileT>) {  // had only the process died, everything would be there
      static RefilledFile file;
      const auto after_kill = RecoverIn(BootedMemoryFile(file.With(memory_->Live()), memory_->boot()));
      ASSERT_THAT(after_kill, IsOk());
      ASSERT_TRUE(*after_kill == now_ || *after_kill == before_) << "after a process kill: " << Difference(now_, *after_kill);
    }
  }

  // The recovery under the next boot is interrupted too: at its writes and syncs, and at its end.
  void CheckCrashInRecovery(const Image& image, const Records& expected) {
    auto memory = std::make_shared<CrashMemory>(image, memory_->boot() + 1);
    std::vector<Image> images;
    memory->on_event = [&] {
      if (images.size() < 8) images.push_back(memory->Crash(random_));
    };
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory)));
    images.push_back(memory->Crash(random_));
    memory->on_event = [] {};
    db.reset();
    for (const Image& again : images) {
      ++num_crashes_;
      const auto found = Recover<FileT>(again);
      ASSERT_THAT(found, IsOk());
      ASSERT_EQ(Difference(expected, *found), "none") << "after a crash of the recovery";
    }
  }

  Random random_;
  const Durability durability_;
  std::shared_ptr<CrashMemory> memory_;
  std::vector<Records> allowed_;
  Records before_;  // the last update; differs from now_ while one is at work
  Records now_;
  Image last_image_;
  std::uint64_t num_crashes_ = 0;
  std::uint64_t event_odds_ = kSyncOdds;
};

template <class FileT>
class PowerCutTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(PowerCutTest, CrashFiles);

// Chains of lives, each of which begins with the file that the previous crash left, until `usual`
// states were compared.
template <class FileT>
void RunLives(std::uint64_t seed, std::uint64_t usual, Durability durability = Durability::kProcess) {
  SCOPED_TRACE(seed);
  const std::uint64_t wanted = CrashStates(usual);
  std::uint64_t num_crashes = 0;
  for (std::uint64_t chain = 0; num_crashes < wanted; ++chain) {
    SCOPED_TRACE(chain);
    Image image;
    Records records;
    for (std::uint64_t life = 0; life < 2 || (life < 8 && num_crashes < wanted); ++life) {
      CrashRun<FileT> run(image, records, seed + chain * 100 + life, static_cast<std::uint8_t>(life + 1), durability);
      ASSERT_NO_FATAL_FAILURE(run.Run(life == 0 ? 40 : 150));
      num_crashes += run.num_crashes();
      image = run.last_image();
      const auto found = Recover<FileT>(image);
      ASSERT_THAT(found, IsOk());
      records = *found;
    }
  }
  ReportCrashStates(num_crashes);
}

TYPED_TEST(PowerCutTest, RecoversTheLastSynchronizedStateExactly) { RunLives<TypeParam>(TestSeed(), 2000); }

// With Durability::kPower: a crash leaves every acknowledged update, and at most the one that was
// running.
TYPED_TEST(PowerCutTest, DurabilityPowerLosesNoUpdate) { RunLives<TypeParam>(TestSeed(), 1000, Durability::kPower); }

// A crash loses the header of a heap extent but not its records, which must not come back under the
// header of the next extent there.
TYPED_TEST(PowerCutTest, RecordsOfALostExtentDoNotComeBack) { RunLives<TypeParam>(5, 1400); }

// Every sequence of three operations of five kinds on a new database, crashed after each write and
// sync, including those of its creation.
TEST(OsCrashTest, RecoversFromACrashInEverySequenceOfThreeOperations) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int sequence = 0; sequence < 5 * 5 * 5; sequence += 1 + static_cast<int>(random.Below(kSlowdown))) {
    SCOPED_TRACE(sequence);
    RecordingFile file;
    const auto history = file.history();
    // states[i] may be found by a crash after event_counts[i] events, as may states[i - 1] before
    // synced[i] events.
    struct State {
      Records records;
      std::size_t first_event;  // the sync may have taken effect from here
      std::size_t last_event;   // and has from here
    };
    std::vector<State> states = {{{}, 0, 0}};
    Records now;
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<TestFile>::Open(std::move(file), {.seed = random.Next()}));
    for (int rest = sequence, step = 0; step < 3; ++step, rest /= 5) {
      const std::string key = rest % 5 == 0 ? NumberedKey(static_cast<std::uint64_t>(step)) : "key";
      const std::size_t before = history->events().size();
      switch (rest % 5) {
        case 0:
        case 1:
        case 2:
          now[key] = CheckedValue(key, rest % 5 == 2 ? 1000 : 20, static_cast<std::uint64_t>(step));
          ASSERT_THAT(db->Set(key, now[key]), IsOk());
          break;
        case 3:
          ASSERT_EQ(db->Remove(key).ok(), now.erase(key) == 1);
          break;
        default:
          ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
          states.push_back({now, before, history->events().size()});
      }
    }
    const std::size_t before = history->events().size();
    ASSERT_THAT(db->Close(), IsOk());
    states.push_back({now, before, history->events().size()});

    for (std::size_t event = 0; event <= history->events().size(); ++event) {
      for (int draw = 0; draw < 3; ++draw) {
        const Image image = history->CrashImageAt(event, [&](std::uint64_t, std::size_t n) {
          return draw == 0 ? 0 : draw == 1 ? n - 1 : random.Below(n);
        });
        const auto found = Recover<RecordingFile>(image);
        ASSERT_THAT(found, IsOk()) << "event " << event;
        bool allowed = false;
        for (std::size_t i = 0; i < states.size(); ++i) {
          const bool superseded = i + 1 < states.size() && states[i + 1].last_event <= event;
          allowed = allowed || (states[i].first_event <= event && !superseded && *found == states[i].records);
        }
        ASSERT_TRUE(allowed) << "event " << event << " of " << history->events().size() << ", draw " << draw;
      }
    }
  }
}

// A machine crash during Clear. The recovered database must not complete that Clear, even if its
// process is killed.
TEST(OsCrashTest, ForgetsAClearInterruptedByACrash) {
  const auto before = std::make_shared<CrashMemory>(Image{}, 1);
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MappedTestFile>::Open(MappedCrashFile(before)));
  ASSERT_THAT(db->Set("old", "value"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  Image image = before->Live();
  auto* live = reinterpret_cast<format::LiveState*>(image.data() + format::kLiveStateOffset);
  live->clearing = format::kClearing;

  const auto after = std::make_shared<CrashMemory>(image, 2);
  ASSERT_OK_AND_ASSIGN(auto recovered, HashDBM<MappedTestFile>::Open(MappedCrashFile(after)));
  ASSERT_THAT(recovered->Set("new", "value"), IsOk());
  EXPECT_THAT(RecoverIn(BootedMemoryFile(MemoryFile::Of(after->Live()), 2)), IsOkAndHolds(Records{{"new", "value"}, {"old", "value"}}));
}

// The device is full when the database is recovered, so its index is in memory and lost with the
// process.
TEST(OsCrashTest, OpensAfterTheDeathOfAProcessThatRecoveredOnAFullDevice) {
  const auto before = std::make_shared<CrashMemory>(Image{}, 1);
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MappedTestFile>::Open(MappedCrashFile(before)));
  ASSERT_THAT(db->Set("old", "value"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());

  const auto after = std::make_shared<CrashMemory>(before->Live(), 2);
  const auto plan = std::make_shared<FaultPlan>();
  plan->Arm({.kind = FaultKind::kResize, .status = absl::ResourceExhaustedError("full"), .forever = true});
  ASSERT_OK_AND_ASSIGN(auto recovered, HashDBM<MappedTestFile>::Open(FaultFile(MappedCrashFile(after), plan)));
  ASSERT_GT(plan->fired_count(), 0u);
  ASSERT_THAT(recovered->Set("new", "value"), IsOk());
  EXPECT_THAT(RecoverIn(BootedMemoryFile(MemoryFile::Of(after->Live()), 2)), IsOkAndHolds(Records{{"old", "value"}}));
  ASSERT_THAT(recovered->Synchronize(SyncMode::kSoft), IsOk());
  EXPECT_THAT(RecoverIn(BootedMemoryFile(MemoryFile::Of(after->Live()), 2)), IsOkAndHolds(Records{{"new", "value"}, {"old", "value"}}));
}

// Epochs wrap. Blocks that an earlier process retired are not taken for those of a later epoch, nor
// is space allocated twice.
template <class FileT>
void LiveLong(bool was_killed) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  auto memory = std::make_shared<CrashMemory>(Image{}, 1);
  Records now;
  const auto set = [&](auto& db, const std::string& key, std::size_t size, std::uint64_t salt) {
    now[key] = CheckedValue(key, size, salt);
    ASSERT_THAT(db.Set(key, now[key]), IsOk());
  };
  {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory), {.seed = 3}));
    for (std::uint64_t i = 0; i < 3000; ++i) set(*db, NumberedKey(i), 100, 0);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    for (std::uint64_t i = 0; i < 3000; i += 4) set(*db, NumberedKey(i), 200, 1);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    for (std::uint64_t i = 0; i < 3000; i += 2) set(*db, NumberedKey(i), 200, 2);  // retires young ones and others
    if (was_killed) memory = std::make_shared<CrashMemory>(memory->Live(), 1);
  }
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory)));
  constexpr std::uint64_t kHalf = format::kOtherPeriod / 2;
  for (std::uint64_t i = 0; i < format::kOtherPeriod + 10; ++i) {
    set(*db, NumberedKey(0), 100, i);
    if (i > kHalf && i < kHalf + 100) set(*db, NumberedKey(i), 100, i);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    if (i % kHalf != 100 && i + 20 < format::kOtherPeriod) continue;
    const auto found = Recover<FileT>(memory->Crash(random));
    ASSERT_THAT(found, IsOk()) << "after " << i;
    ASSERT_EQ(Difference(now, *found), "none");
  }
  for (std::uint64_t i = 0; i < 5000; ++i) set(*db, NumberedKey(i), 100, 3);
  ASSERT_THAT(db->Verify(), IsOk());
  EXPECT_EQ(Difference(now, ListByIterator(*db).records), "none");
}
TYPED_TEST(PowerCutTest, EpochsWrapOverWhatAnEarlierProcessLeft) { LiveLong<TypeParam>(false); }
TEST(OsCrashTest, EpochsWrapOverWhatAKilledProcessLeft) { LiveLong<MappedCrashFile>(true); }

// Many short lives, each of one or two epochs: records of the first are not taken for those of a
// later epoch when epochs wrap.
template <class FileT>
void LiveManyTimes(bool each_is_killed) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  auto memory = std::make_shared<CrashMemory>(Image{}, 1);
  Records now, synced;
  for (std::uint64_t life = 0; life < format::kOtherPeriod / 2 + 100; ++life) {
    if (each_is_killed) memory = std::make_shared<CrashMemory>(memory->Live(), 1);
    auto db = HashDBM<Erased<FileT>>::Open(FileT(memory), {.seed = 3});
    ASSERT_THAT(db, IsOk()) << "life " << life;
    for (std::uint64_t i = 0; i < (life == 0 ? 400 : 1); ++i) {
      const std::string key = life == 0 ? NumberedKey(i) : "key";
      now[key] = CheckedValue(key, 20, life);
      ASSERT_THAT((*db)->Set(key, now[key]), IsOk());
    }
    if (each_is_killed) {
      ASSERT_THAT((*db)->Synchronize(SyncMode::kHard), IsOk());
      synced = now;
    }
    if (life % 100 == 99) {
      const auto found = Recover<FileT>(memory->Crash(random));
      ASSERT_THAT(found, IsOk()) << "life " << life;
      EXPECT_EQ(Difference(synced, *found), "none") << "life " << life;
    }
    if (!each_is_killed) {
      ASSERT_THAT((*db)->Close(), IsOk());
      synced = now;
    }
  }
}
TYPED_TEST(PowerCutTest, EpochsWrapOverManyProcesses) { LiveManyTimes<TypeParam>(false); }
TEST(OsCrashTest, EpochsWrapOverManyKilledProcesses) { LiveManyTimes<MappedCrashFile>(true); }

// Writing the updates of a killed process to the device may take seconds: opening leaves that to the
// next synchronization.
TEST(OsCrashTest, OpeningAfterAKillSyncsTheSuperblocksOnly) {
  auto memory = std::make_shared<CrashMemory>(CrashMemory::Image{}, 1);
  {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MappedTestFile>::Open(MappedCrashFile(memory), {.seed = 3}));
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    for (int i = 0; i < 200; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(500, 'v')), IsOk());
    memory = memory->Kill();
  }
  const std::size_t left = memory->NumUnsynced();
  ASSERT_GT(left, 200u);
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MappedTestFile>::Open(MappedCrashFile(memory), {}));
  EXPECT_EQ(db->Count(), 200u);
  EXPECT_GT(memory->NumUnsynced(), left - 2 * storage::kSlotDistance / CrashMemory::kSectorSize);
  EXPECT_THAT(db->Verify(), IsOk());
}

// Fails each sync in turn, after which the kernel takes unwritten pages for clean. The database is
// reopened with the same page cache, and updates that it acknowledges then are durable.
TYPED_TEST(PowerCutTest, DoesNotRelyOnDataOfAFailedSync) {
  SCOPED_TRACE(TestSeed());
  for (int failing = 1;; ++failing) {
    SCOPED_TRACE(failing);
    Random random(TestSeed() + static_cast<std::uint64_t>(failing));
    const auto memory = std::make_shared<CrashMemory>(Image{}, 1);
    Records now;
    std::vector<Records> allowed = {now};
    const auto work = [&](auto& db, std::uint64_t salt) -> Status {
      for (std::uint64_t i = 0; i < 40; ++i) {
        const std::string key = NumberedKey(random.Below(30));
        if (random.OneIn(4)) {
          (void)db.Remove(key);
          now.erase(key);
        } else {
          now[key] = CheckedValue(key, random.SkewedSize(11), salt + i);
          HAKO_RETURN_IF_ERROR(db.Set(key, now[key]));
        }
      }
      allowed.push_back(now);
      HAKO_RETURN_IF_ERROR(db.Synchronize(SyncMode::kHard));
      allowed = {now};
      return absl::OkStatus();
    };
    {
      ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<TypeParam>>::Open(TypeParam(memory), {.seed = 3}));
      ASSERT_THAT(work(*db, 0), IsOk());
      memory->FailSync(failing);
      (void)work(*db, 1000);
      if (now.emplace("one more", "").second) (void)db->Set("one more", "");
      const Status described = db->SetMetadata(UserMetadata{std::byte{1}});
      EXPECT_EQ(db->GetMetadata()[0] == std::byte{1}, described.ok());
      if (!described.ok()) {
        EXPECT_THAT(db->Synchronize(SyncMode::kHard), StatusIs(absl::StatusCode::kFailedPrecondition));
      }
      allowed.push_back(now);
      const Status closed = db->Close();
      EXPECT_NE(closed.ok(), memory->HasFailed());
      if (!memory->HasFailed()) break;
    }
    const auto images = std::make_shared<std::vector<Image>>();
    memory->on_event = [&] { images->push_back(memory->Crash(random)); };
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<TypeParam>>::Open(TypeParam(memory)));
    ASSERT_THAT(db->Verify(), IsOk());
    now = ListByIterator(*db).records;
    EXPECT_TRUE(std::count(allowed.begin(), allowed.end(), now) > 0) << Difference(allowed.front(), now);
    for (const Image& image : *images) {
      const auto found = Recover<TypeParam>(image);
      ASSERT_THAT(found, IsOk());
      EXPECT_TRUE(std::count(allowed.begin(), allowed.end(), *found) > 0) << Difference(allowed.front(), *found);
    }
    memory->on_event = [] {};
    ASSERT_THAT(work(*db, 2000), IsOk());
    for (int draw = 0; draw < 10; ++draw) {
      const auto found = Recover<TypeParam>(memory->Crash(random));
      ASSERT_THAT(found, IsOk());
      EXPECT_EQ(Difference(now, *found), "none");
    }
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace hako
