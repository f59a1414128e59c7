// Processes that write to a TinyDBM or a BabyDBM with a log, and are killed beside its snapshots.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/checked_value.h"
#include "support/crash_child.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

struct Tiny {
  using Database = TinyDBM<>;
  static inline const TinyOptions kOptions = {};
};
struct Baby {
  using Database = BabyDBM<>;
  static inline const BabyOptions kOptions = {.page_size = 512};
};

// Writers have separate keys, and set each to ever higher numbers, one by one and in batches. Snapshots
// are written in the background all the time.
template <class Kind>
void KillWriters(Durability durability, int usual) {
  const int num_rounds = Kills(usual);
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed() + static_cast<std::uint64_t>(durability));
  const TempDir directory;
  const std::string path = directory.File("db");
  auto options = Kind::kOptions;
  options.durability = durability;
  options.log_bytes = 64 << 10;
  constexpr int kWriters = 2;
  constexpr std::uint64_t kKeys = 400;
  const auto key_of = [](int writer, std::uint64_t number) { return std::to_string(writer) + "/" + NumberedKey(number % kKeys); };
  std::uint64_t at[kWriters] = {};  // the first number that is not in the database for certain
  for (int round = 0; round < num_rounds; ++round) {
    CrashChild child([&](CrashProgress& progress) {
      auto db = Kind::Database::Open(path, options);
      if (!db.ok()) return progress.Fail(db.status().ToString());
      progress.ready = true;
      std::vector<std::thread> threads;
      for (int writer = 0; writer < kWriters; ++writer) {
        threads.emplace_back([&, writer] {
          auto& mine = progress.writers[writer];
          mine.acknowledged = at[writer];
          for (std::uint64_t number = at[writer];; ++number) {
            mine.begun = number + 1;
            const std::string value = CheckedValue(key_of(writer, number), number % 50 == 0 ? 20'000 : number % 100, number);
            WriteBatch batch;
            batch.Set(key_of(writer, number), value);
            batch.Set("last" + std::to_string(writer), std::to_string(number));
            if (const Status status = (*db)->Write(batch); !status.ok()) return progress.Fail(status.ToString());
            mine.acknowledged = number + 1;
            if (writer == 0) progress.writers[kWriters].begun = (*db)->GetStats().epoch;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
    child.AwaitReady();
    const std::uint64_t least = random.Between(1, 3);
    for (int i = 0; i < 60'000 && child.progress().writers[kWriters].begun < least; ++i) CrashChild::Pause(1'000);
    CrashChild::Pause(random.Between(0, 20'000));
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    ASSERT_GE(child.progress().writers[kWriters].begun, least);
    ASSERT_OK_AND_ASSIGN(auto db, Kind::Database::Open(path, options));
    ASSERT_THAT(db->Verify(), IsOk());
    for (int writer = 0; writer < kWriters; ++writer) {
      const auto& mine = child.progress().writers[writer];
      const std::uint64_t acknowledged = std::max<std::uint64_t>(mine.acknowledged, at[writer]);
      const std::uint64_t begun = std::max<std::uint64_t>(mine.begun, at[writer]);
      const std::string last = db->GetOr("last" + std::to_string(writer), "").value();
      const std::uint64_t end = last.empty() ? 0 : std::stoull(last) + 1;
      ASSERT_GE(end, acknowledged);
      ASSERT_LE(end, begun);
      for (std::uint64_t number = end - std::min(end, kKeys); number < end; ++number)
        ASSERT_EQ(db->Get(key_of(writer, number)).value(),
                  CheckedValue(key_of(writer, number), number % 50 == 0 ? 20'000 : number % 100, number));
      at[writer] = end;
    }
    ASSERT_THAT(db->Close(), IsOk());
  }
  ReportKills(static_cast<std::uint64_t>(num_rounds));
}

template <class Kind>
class MemoryCrashTest : public testing::Test {};
using Kinds = testing::Types<Tiny, Baby>;
TYPED_TEST_SUITE(MemoryCrashTest, Kinds);

TYPED_TEST(MemoryCrashTest, KilledWritersLoseNoAcknowledgedUpdate) { KillWriters<TypeParam>(Durability::kProcess, 25); }
TYPED_TEST(MemoryCrashTest, KilledWritersOfDurableUpdatesLoseNoAcknowledgedUpdate) { KillWriters<TypeParam>(Durability::kPower, 10); }

}  // namespace
}  // namespace hako
