// Kills several processes in turn, with no Close or Synchronize in between, and cuts the power at
// any moment. The database opens with exactly the last synchronized state and works from there,
// through another power cut too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "support/checked_value.h"
#include "support/crash_memory.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

// The states that the file may have.
struct Expected {
  Records now, before;           // before: `now` without the update that is at work, if one is
  std::vector<Records> durable;  // what may be found after a power cut

  bool MayBeFound(const Records& found) const { return std::count(durable.begin(), durable.end(), found) > 0; }
};

template <class FileT>
class KillChain {
 public:
  explicit KillChain(std::uint64_t seed) : random_(seed), memory_(std::make_shared<CrashMemory>(CrashMemory::Image{}, 1)) {
    expected_.durable = {{}};
  }

  // Opens the file of the previous process, works, and is killed at rest or inside a
  // synchronization.
  void Live() {
    std::vector<std::pair<std::shared_ptr<CrashMemory>, Expected>> deaths;
    const auto memory = memory_;
    memory->on_event = [&] {
      if (random_.OneIn(4)) CutPower(*memory);
      if (random_.OneIn(4)) deaths.emplace_back(memory->Kill(), expected_);
    };
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory), {.seed = 7}));
    const Records found = ListByIterator(*db).records;
    ASSERT_EQ(db->AppliedIndex(), AppliedIn(found));
    if constexpr (MappedFile<FileT>) {
      ASSERT_TRUE(found == expected_.now || found == expected_.before) << Difference(expected_.now, found);
    } else {
      ASSERT_TRUE(expected_.MayBeFound(found)) << Difference(expected_.durable.back(), found);
      expected_.durable = {found};
    }
    expected_.now = expected_.before = found;
    const std::uint64_t count = random_.Below(12);
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(Update(*db));
      memory->Observe();
      if (random_.OneIn(8)) CutPower(*memory);
      if (testing::Test::HasFatalFailure()) return;
    }
    if (random_.OneIn(3)) {
      deaths.emplace_back(memory->Kill(), expected_);
    } else if (random_.OneIn(3)) {
      deaths.clear();
      expected_.durable.push_back(expected_.now);
      (void)db->Synchronize(SyncMode::kHard);  // and dies inside it, if it got that far
    }
    if (deaths.empty()) deaths.emplace_back(memory->Kill(), expected_);
    memory->on_event = [] {};
    std::tie(memory_, expected_) = deaths[random_.Below(deaths.size())];
    CutPower(*memory_);
  }

  std::uint64_t num_power_cuts() const { return num_power_cuts_; }

 private:
  void Update(HashDBM<Erased<FileT>>& db) {
    const std::string key = NumberedKey(random_.Below(6));
    expected_.before = expected_.now;
    if (random_.OneIn(10)) {
      if (!expected_.MayBeFound(expected_.now)) expected_.durable.push_back(expected_.now);
      ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
      expected_.durable = {expected_.now};
    } else if (random_.OneIn(3)) {
      expected_.now.erase(key);
      (void)db.Remove(key);
    } else if (random_.OneIn(3)) {
      ASSERT_NO_FATAL_FAILURE(UpdateSeveral(db));
    } else {
      expected_.now[key] = CheckedValue(key, random_.SkewedSize(9), ++salt_);
      ASSERT_THAT(db.Set(key, expected_.now[key]), IsOk());
    }
    expected_.before = expected_.now;
  }

  // A batch of some keys with an applied index, which a record repeats.
  void UpdateSeveral(HashDBM<Erased<FileT>>& db) {
    std::vector<std::string> keys = {"applied"};
    for (std::uint64_t i = random_.Below(7); i > 0; --i) keys.push_back(NumberedKey(random_.Below(6)));
    std::vector<std::string> values;
    for (const std::string& key : keys) values.push_back(CheckedValue(key, random_.SkewedSize(9), ++salt_));
    const std::uint64_t applied_index = ++salt_;
    values[0] = std::to_string(applied_index);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i % 3 == 2) {
        expected_.now.erase(keys[i]);
      } else {
        expected_.now[keys[i]] = values[i];
      }
    }
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto visit = [&](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
      return i % 3 == 2 ? Action::Remove() : Action::Set(values[i]);
    };
    ASSERT_THAT(db.ProcessMulti(Batch<Action>{.keys = views, .visit = visit, .applied_index = applied_index}), IsOk());
  }
  // The applied index that a state has.
  static std::uint64_t AppliedIn(const Records& records) {
    const auto it = records.find("applied");
    return it == records.end() ? 0 : std::stoull(it->second);
  }

  // Draws what the device holds, opens it on a machine that was booted again, changes it, and cuts
  // the power again.
  void CutPower(CrashMemory& memory) {
    if (testing::Test::HasFatalFailure()) return;
    ++num_power_cuts_;
    auto again = std::make_shared<CrashMemory>(memory.Crash(random_), 2);
    Records synced;
    {
      auto db = HashDBM<Erased<FileT>>::Open(FileT(again), {.seed = 7});
      ASSERT_THAT(db, IsOk());
      if (random_.OneIn(2)) {
        ASSERT_THAT((*db)->Verify(), IsOk());  // synchronizes too
      }
      synced = ListByIterator(**db).records;
      ASSERT_TRUE(expected_.MayBeFound(synced)) << Difference(expected_.durable.back(), synced);
      ASSERT_EQ((*db)->AppliedIndex(), AppliedIn(synced));
      for (std::uint64_t i = 0; i < 3; ++i) ASSERT_THAT((*db)->Set(NumberedKey(random_.Below(6)), "after the power cut"), IsOk());
      again = random_.OneIn(2) ? std::make_shared<CrashMemory>(again->Crash(random_), 3) : again->Kill();
    }
    if (!MappedFile<FileT> || again->boot() == 3) {
      ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(again), {.seed = 7}));
      ASSERT_THAT(db->Verify(), IsOk());
      ASSERT_EQ(Difference(synced, ListByIterator(*db).records), "none") << "after the second crash";
      ASSERT_EQ(db->AppliedIndex(), AppliedIn(synced));
    }
  }

  Random random_;
  std::shared_ptr<CrashMemory> memory_;
  Expected expected_;
  std::uint64_t salt_ = 0;
  std::uint64_t num_power_cuts_ = 0;
};

template <class FileT>
class KillChainTest : public testing::Test {};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(KillChainTest, CrashFiles);

TYPED_TEST(KillChainTest, PowerCutAfterSeveralKillsLeavesTheLastSynchronizedState) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(1000);
  std::uint64_t power_cuts = 0;
  for (std::uint64_t seed = TestSeed(); power_cuts < wanted; ++seed) {
    SCOPED_TRACE(seed);
    KillChain<TypeParam> chain(seed);
    for (int life = 0; life < 8; ++life) ASSERT_NO_FATAL_FAILURE(chain.Live());
    power_cuts += chain.num_power_cuts();
  }
  ReportCrashStates(power_cuts);
}

// The process that creates the file is killed before its first synchronization completes, or that
// fails. Until the next process has synchronized, the device may hold any part of the writes of both.
TYPED_TEST(KillChainTest, OpensEmptyIfTheCreationWasNotSynchronized) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  std::vector<std::shared_ptr<CrashMemory>> deaths;
  for (const bool fails : {false, true}) {
    const auto created = std::make_shared<CrashMemory>(CrashMemory::Image{}, 1);
    created->on_event = [&] { deaths.push_back(created->Kill()); };
    if (fails) created->FailSync(1);
    ASSERT_EQ(HashDBM<Erased<TypeParam>>::Open(TypeParam(created), {.seed = 7}).ok(), !fails);
    deaths.push_back(created->Kill());
  }
  std::uint64_t power_cuts = 0;
  for (const auto& death : deaths) {
    death->on_event = [&] {
      for (int draw = 0; draw < 30 / kSlowdown; ++draw, ++power_cuts) {
        const auto found = std::make_shared<CrashMemory>(death->Crash(random), 2);
        ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<TypeParam>>::Open(TypeParam(found), {.seed = 7}));
        ASSERT_EQ(db->Count(), 0u);
      }
    };
    ASSERT_THAT(HashDBM<Erased<TypeParam>>::Open(TypeParam(death), {.seed = 7}), IsOk());
  }
  ReportCrashStates(power_cuts);
}

}  // namespace
}  // namespace hako
