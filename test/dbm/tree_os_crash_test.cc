// Cuts the power under a TreeDBM at any moment, also after its process was killed. Regardless of
// the unsynced sectors that the device wrote, the database opens with exactly the state of its last
// checkpoint, or of the one that was running, and works from there.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
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
#include "support/full_size.h"
#include "support/random.h"
#include "support/recording_file.h"
#include "support/refilled_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

using Image = std::vector<std::byte>;

// The content of a database.
struct Contents {
  Records records;
  std::uint8_t metadata = 0;  // the first byte of it
  bool operator==(const Contents&) const = default;
};
std::string Difference(const Contents& expected, const Contents& found) {
  if (expected.metadata != found.metadata) return absl::StrCat("metadata ", found.metadata, ", not ", expected.metadata);
  return hako::Difference(expected.records, found.records);
}

// Verify makes a checkpoint, which is not always wanted.
template <class D>
StatusOr<Contents> ContentsOf(D& db, bool verify = true) {
  if (verify) HAKO_RETURN_IF_ERROR(db.Verify());
  Contents found;
  HAKO_RETURN_IF_ERROR(db.ProcessEach([&](std::string_view key, std::string_view value) { found.records.emplace(key, value); }));
  std::string value;
  for (const auto& [key, listed] : found.records) {
    HAKO_RETURN_IF_ERROR(db.Get(key, &value));
    if (value != listed) return absl::DataLossError("Get and ProcessEach disagree");
  }
  if (db.Count() != found.records.size()) return absl::DataLossError("Count is wrong");
  found.metadata = static_cast<std::uint8_t>(db.GetMetadata()[0]);
  return found;
}

// Opens the file that a crash left, and works with it.
StatusOr<Contents> Recover(const Image& image) {
  static RefilledFile file;
  HAKO_ASSIGN_OR_RETURN(auto db, TreeDBM<MemoryFile>::Open(file.With(image), {.cache_bytes = 4 << 20}));
  HAKO_ASSIGN_OR_RETURN(Contents found, ContentsOf(*db));
  HAKO_RETURN_IF_ERROR(db->Set("works", "again"));
  HAKO_RETURN_IF_ERROR(db->Close());
  return found;
}

// A database on a device that outlives its processes, and the states that may be recovered.
template <class FileT>
class Device {
  using DatabaseFile = FaultFile<FileT>;
  using Database = TreeDBM<Erased<FileT>>;

 public:
  explicit Device(std::uint64_t seed) : random_(seed) {
    memory_->on_event = [this] {
      if (random_.OneIn(event_odds_)) CheckCrash();
    };
  }

  // One life of a process: opens the database, carries out operations, and ends by closing it, by
  // being killed, or by a power cut.
  void Live(int count) {
    const auto plan = std::make_shared<FaultPlan>();
    const auto options = TreeOptions{.page_size = kPageSizes[random_.Below(std::size(kPageSizes))], .cache_bytes = 64 << 20};
    if (random_.OneIn(6)) plan->Arm({.call = random_.Between(1, 12), .forever = true});  // dies while it opens it, or soon after
    auto opened = Database::Open(DatabaseFile(FileT(memory_), plan), options);
    if (!opened.ok()) {
      ASSERT_GT(plan->fired_count(), 0u) << opened.status();
      return;
    }
    auto& db = **opened;
    {
      const auto found = ContentsOf(db, random_.OneIn(2));
      if (plan->fired_count() > 0) return;
      ASSERT_THAT(found, IsOk());
      ASSERT_TRUE(std::count(allowed_.begin(), allowed_.end(), *found) > 0) << Difference(allowed_.back(), *found);
      now_ = *found;  // the last checkpoint of the life before may have been cut short
    }
    for (int i = 0; i < count && plan->fired_count() == 0 && !testing::Test::HasFatalFailure(); ++i) {
      if (i == count - 10 && random_.OneIn(2)) plan->Arm({.call = random_.Between(1, 20), .forever = true});
      ASSERT_NO_FATAL_FAILURE(Operate(db, *plan, static_cast<std::uint64_t>(i)));
      if (random_.OneIn(25)) CheckCrash();
    }
    if (plan->fired_count() != 0) return;  // killed: its writes are in the page cache
    if (random_.OneIn(2)) {
      plan->Arm({.forever = true});
      if (random_.OneIn(2)) CutPower();
      return;
    }
    allowed_.push_back(now_);
    ASSERT_NO_FATAL_FAILURE(Acknowledge(db.Close(), *plan));
    CheckCrash();
  }

  std::uint64_t num_crashes() const { return num_crashes_; }

 private:
  static constexpr unsigned kPageSizes[] = {128, 200, 1024, 8192};

  // After an operation that is a checkpoint: `allowed_` holds its state at the end.
  void Acknowledge(const Status& status, const FaultPlan& plan) {
    if (plan.fired_count() > 0) return;
    ASSERT_THAT(status, IsOk());
    allowed_ = {now_};
  }

  void Operate(Database& db, FaultPlan& plan, std::uint64_t salt) {
    const auto checkpoint = [&](auto&& body) {
      allowed_.push_back(now_);
      event_odds_ = 6;
      const Status status = body();
      event_odds_ = kUsualOdds;
      Acknowledge(status, plan);
    };
    if (random_.OneIn(25)) return checkpoint([&] { return db.Synchronize(random_.OneIn(2) ? SyncMode::kHard : SyncMode::kSoft); });
    if (random_.OneIn(60)) return checkpoint([&] { return db.Rebuild(); });
    if (random_.OneIn(60)) {
      now_.metadata = static_cast<std::uint8_t>(salt);
      return checkpoint([&] { return db.SetMetadata(UserMetadata{std::byte{now_.metadata}}); });
    }
    if (random_.OneIn(80)) return checkpoint([&] { return Copy(db, plan); });
    ASSERT_NO_FATAL_FAILURE(Update(db, plan, salt));
  }

  // A copy is as durable as its source.
  Status Copy(Database& db, const FaultPlan& plan) {
    const auto other = std::make_shared<CrashMemory>(Image{}, 1);
    HAKO_RETURN_IF_ERROR(db.CopyTo(DatabaseFile(FileT(other), std::make_shared<FaultPlan>())));
    if (plan.fired_count() > 0) return absl::OkStatus();
    const auto found = Recover(other->Crash(random_));
    EXPECT_THAT(found, IsOkAndHolds(now_)) << "a copy";
    return found.status();
  }

  void Update(Database& db, const FaultPlan& plan, std::uint64_t salt) {
    const std::string key = NumberedKey(random_.Below(60));
    Contents after = now_;
    Status status;
    if (random_.OneIn(150)) {
      after.records.clear();
      status = db.Clear();
    } else if (random_.OneIn(40)) {
      const std::string to = NumberedKey(random_.Below(60));
      const auto end = after.records.lower_bound(std::max(key, to));
      after.records.erase(after.records.lower_bound(key), end);
      status = db.RemoveRange(key, to).status();
    } else if (random_.OneIn(4)) {
      after.records.erase(key);
      status = db.Remove(key);
      if (absl::IsNotFound(status) && now_.records.count(key) == 0) status = absl::OkStatus();
    } else {
      const std::size_t size = random_.OneIn(30) ? random_.Below(random_.OneIn(20) ? 2'000'000 : 20'000) : random_.SkewedSize(9);
      after.records[key] = CheckedValue(key, size, salt);
      status = db.Set(key, after.records[key]);
    }
    if (plan.fired_count() > 0) return;  // it needed a page, and was killed
    ASSERT_THAT(status, IsOk());
    now_ = after;
  }

  void CheckCrash() {
    if (testing::Test::HasFailure()) return;
    ++num_crashes_;
    const Image image = memory_->Crash(random_);
    const auto found = Recover(image);
    ASSERT_THAT(found, IsOk());
    const auto differences = [&] {
      std::string all;
      for (const Contents& allowed : allowed_) all += Difference(allowed, *found) + "; ";
      return all;
    };
    ASSERT_TRUE(std::count(allowed_.begin(), allowed_.end(), *found) > 0) << "from the states allowed it differs so: " << differences();
    if (random_.OneIn(6)) CheckCrashAgain(image, *found);
  }

  // The first checkpoint after a crash is interrupted too.
  void CheckCrashAgain(const Image& image, const Contents& expected) {
    auto memory = std::make_shared<CrashMemory>(image, 1);
    std::vector<Image> images;
    memory->on_event = [&] {
      if (random_.OneIn(3)) images.push_back(memory->Crash(random_));
    };
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<Erased<FileT>>::Open(FileT(memory)));
    Contents after = expected;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::string key = NumberedKey(random_.Below(60));
      after.records[key] = CheckedValue(key, random_.SkewedSize(12), 1000 + i);
      ASSERT_THAT(db->Set(key, after.records[key]), IsOk());
    }
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    const Image last = memory->Crash(random_);
    memory->on_event = [] {};
    db.reset();
    EXPECT_THAT(Recover(last), IsOkAndHolds(after));
    for (const Image& again : images) {
      ++num_crashes_;
      const auto found = Recover(again);
      ASSERT_THAT(found, IsOk()) << "after a second crash";
      ASSERT_TRUE(*found == expected || *found == after) << "after a second crash: " << Difference(expected, *found);
    }
  }

  // The machine loses power; returns the state that it finds afterwards.
  void CutPower() {
    const Image image = memory_->Crash(random_);
    auto on_event = std::exchange(memory_->on_event, [] {});
    memory_ = std::make_shared<CrashMemory>(image, 1);
    memory_->on_event = std::move(on_event);
  }

  static constexpr std::uint64_t kUsualOdds = 10;
  Random random_;
  std::shared_ptr<CrashMemory> memory_ = std::make_shared<CrashMemory>(Image{}, 1);
  std::vector<Contents> allowed_ = {{}};
  Contents now_;
  std::uint64_t num_crashes_ = 0;
  std::uint64_t event_odds_ = 2;
};

template <class FileT>
class TreePowerCutTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(TreePowerCutTest, CrashFiles);

TYPED_TEST(TreePowerCutTest, RestoresExactlyTheLastCheckpoint) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(2000);
  std::uint64_t num_crashes = 0;
  for (std::uint64_t number = 0; num_crashes < wanted; ++number) {
    SCOPED_TRACE(number);
    Device<TypeParam> device(Random::Mix(TestSeed()) + number);
    for (int life = 0; life < 12; ++life) ASSERT_NO_FATAL_FAILURE(device.Live(life == 0 ? 30 : 120)) << "life " << life;
    num_crashes += device.num_crashes();
  }
  ReportCrashStates(num_crashes);
}

// Every sequence of three operations of five kinds on a new database, crashed after each write and
// sync, including those of its creation.
TEST(TreeOsCrashTest, OpensAfterACrashInEverySequenceOfThreeOperations) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int sequence = 0; sequence < 5 * 5 * 5; sequence += FullSize() ? 1 : 1 + static_cast<int>(random.Below(3 * kSlowdown))) {
    SCOPED_TRACE(sequence);
    RecordingFile file;
    const auto history = file.history();
    // A crash may find this state after first_event events, until the next state's last_event.
    struct State {
      Contents contents;
      std::size_t first_event, last_event;
    };
    std::vector<State> states = {{{}, 0, 0}};
    Contents now;
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<TestFile>::Open(std::move(file), {.page_size = 256}));
    const auto checkpoint = [&](auto&& body) {
      const std::size_t before = history->events().size();
      ASSERT_THAT(body(), IsOk());
      states.push_back({now, before, history->events().size()});
    };
    for (int rest = sequence, step = 0; step < 3; ++step, rest /= 5) {
      const std::string key = rest % 5 == 0 ? NumberedKey(static_cast<std::uint64_t>(step)) : "key";
      switch (rest % 5) {
        case 0:
        case 1:
          now.records[key] = CheckedValue(key, rest % 5 == 1 ? 1000 : 20, static_cast<std::uint64_t>(step));
          ASSERT_THAT(db->Set(key, now.records[key]), IsOk());
          break;
        case 2:
          ASSERT_EQ(db->Remove(key).ok(), now.records.erase(key) == 1);
          break;
        case 3:
          checkpoint([&] { return db->Rebuild(); });
          break;
        default:
          checkpoint([&] { return db->Synchronize(SyncMode::kHard); });
      }
    }
    checkpoint([&] { return db->Close(); });

    for (std::size_t event = 0; event <= history->events().size(); ++event) {
      for (int draw = 0; draw < 3; ++draw) {
        const Image image = history->CrashImageAt(event, [&](std::uint64_t, std::size_t n) {
          return draw == 0 ? 0 : draw == 1 ? n - 1 : random.Below(n);
        });
        const auto found = Recover(image);
        ASSERT_THAT(found, IsOk()) << "event " << event << ", draw " << draw;
        bool allowed = false;
        for (std::size_t i = 0; i < states.size(); ++i) {
          const bool superseded = i + 1 < states.size() && states[i + 1].last_event <= event;
          allowed = allowed || (states[i].first_event <= event && !superseded && *found == states[i].contents);
        }
        ASSERT_TRUE(allowed) << "event " << event << " of " << history->events().size() << ", draw " << draw;
      }
    }
  }
}

// A process is killed at each call to the device in turn, and the power fails before the next one's
// first checkpoint completes: the last writes of the first process may be in the page cache only.
TEST(TreeOsCrashTest, DoesNotRelyOnACheckpointThatTheDeviceMayLack) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (std::uint64_t call = 1;; ++call) {
    SCOPED_TRACE(call);
    const auto memory = std::make_shared<CrashMemory>(Image{}, 1);
    const auto plan = std::make_shared<FaultPlan>();
    const auto open = [&] { return TreeDBM<TestFile>::Open(FaultFile(PositionalCrashFile(memory), plan), {.page_size = 256}); };
    std::vector<Contents> states(1);
    const auto change = [&](auto& db, std::uint64_t salt) {
      Contents state = states.back();
      for (std::uint64_t i = 0; i < 20; ++i) {
        const std::string key = NumberedKey(random.Below(30));
        state.records[key] = CheckedValue(key, 30, salt);
        ASSERT_THAT(db.Set(key, state.records[key]), IsOk());
      }
      states.push_back(state);
    };
    {
      ASSERT_OK_AND_ASSIGN(auto db, open());
      ASSERT_NO_FATAL_FAILURE(change(*db, 1));
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      ASSERT_NO_FATAL_FAILURE(change(*db, 2));
      states.erase(states.begin());
      plan->Arm({.call = call, .forever = true});
      if (db->Synchronize(SyncMode::kHard).ok()) break;
    }
    plan->Disarm();
    std::vector<Image> images;
    memory->on_event = [&] { std::generate_n(std::back_inserter(images), 20, [&] { return memory->Crash(random); }); };
    ASSERT_OK_AND_ASSIGN(auto db, open());
    ASSERT_OK_AND_ASSIGN(const Contents found_now, ContentsOf(*db, false));
    ASSERT_TRUE(std::count(states.begin(), states.end(), found_now) > 0) << Difference(states.front(), found_now);
    const std::vector<Contents> before = states;
    states = {found_now};
    ASSERT_NO_FATAL_FAILURE(change(*db, 3));
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    memory->on_event = [] {};
    for (const Image& image : images) {
      const auto found = Recover(image);
      ASSERT_THAT(found, IsOk());
      ASSERT_TRUE(std::count(before.begin(), before.end(), *found) > 0 || *found == states.back());
    }
  }
}

// Fails each sync in turn, after which the kernel takes unwritten pages for clean. The database is
// reopened with the same page cache, and updates that it acknowledges then are durable.
TYPED_TEST(TreePowerCutTest, DoesNotRelyOnDataOfAFailedSync) {
  SCOPED_TRACE(TestSeed());
  for (int failing = 1;; ++failing) {
    SCOPED_TRACE(failing);
    Random random(TestSeed() + static_cast<std::uint64_t>(failing));
    const auto memory = std::make_shared<CrashMemory>(Image{}, 1);
    Contents now;
    std::vector<Contents> allowed = {now};
    const auto work = [&](auto& db, std::uint64_t salt) -> Status {
      for (std::uint64_t i = 0; i < 40; ++i) {
        const std::string key = NumberedKey(random.Below(30));
        if (random.OneIn(4)) {
          (void)db.Remove(key);
          now.records.erase(key);
        } else {
          now.records[key] = CheckedValue(key, random.SkewedSize(11), salt + i);
          HAKO_RETURN_IF_ERROR(db.Set(key, now.records[key]));
        }
      }
      allowed.push_back(now);
      HAKO_RETURN_IF_ERROR(db.Synchronize(SyncMode::kHard));
      allowed = {now};
      return absl::OkStatus();
    };
    {
      ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<Erased<TypeParam>>::Open(TypeParam(memory), {.page_size = 256}));
      ASSERT_THAT(work(*db, 0), IsOk());
      memory->FailSync(failing);
      Status status = work(*db, 1000);
      for (std::uint64_t i = 0; i < 3 && status.ok(); ++i) status = work(*db, 2000 * i);
      const Status closed = db->Close();
      EXPECT_NE(closed.ok(), memory->HasFailed());
      if (!memory->HasFailed()) break;
    }
    std::vector<Image> images;
    memory->on_event = [&] { images.push_back(memory->Crash(random)); };
    ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<Erased<TypeParam>>::Open(TypeParam(memory)));
    const auto found_now = ContentsOf(*db);
    ASSERT_THAT(found_now, IsOk());
    now = *found_now;
    EXPECT_TRUE(std::count(allowed.begin(), allowed.end(), now) > 0) << Difference(allowed.front(), now);
    const std::vector<Contents> before = allowed;
    ASSERT_THAT(work(*db, 10'000), IsOk());
    const Contents after = now;
    memory->on_event = [] {};
    for (const Image& image : images) {
      const auto found = Recover(image);
      ASSERT_THAT(found, IsOk());
      EXPECT_TRUE(std::count(before.begin(), before.end(), *found) > 0 || *found == after) << Difference(after, *found);
    }
    for (int draw = 0; draw < 10; ++draw) EXPECT_THAT(Recover(memory->Crash(random)), IsOkAndHolds(after));
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace hako
