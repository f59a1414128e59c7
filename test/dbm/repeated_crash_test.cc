// An application, or its own log, carries out the same operations again after each power cut, so the
// same bytes are written to the same places. What one crash has left of a record and what the next
// one has left must not make a whole record of a state that did not have it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
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

using Image = CrashMemory::Image;

template <class FileT>
class RepeatedCrashTest : public testing::Test {
 protected:
  // The synchronized database to begin with, which has dead records too.
  void Create(std::uint64_t seed) {
    random_ = Random(seed);
    auto memory = std::make_shared<CrashMemory>(Image{}, 1);
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory), {.seed = seed}));
    for (std::uint64_t i = 0; i < 30; ++i) Set(*db, i);
    for (std::uint64_t i = 0; i < 30; i += 3) ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
    synced_ = ListByIterator(*db).records;
    ASSERT_THAT(db->Close(), IsOk());
    image_ = memory->Live();
  }

  // Opens it after a crash of the machine, repeats the operations, and crashes at any moment, perhaps
  // after kills of some processes that repeat them too.
  void LiveOnce() {
    ++num_crashes_;
    auto memory = std::make_shared<CrashMemory>(image_, static_cast<std::uint8_t>(2 + num_crashes_ % 200));
    std::vector<Image> crashes;
    for (std::uint64_t kills = random_.OneIn(3) ? random_.Below(4) : 0;; --kills) {
      memory->on_event = [&] {
        if (random_.OneIn(4)) crashes.push_back(memory->Crash(random_));
      };
      ASSERT_OK_AND_ASSIGN(auto db, HashDBM<Erased<FileT>>::Open(FileT(memory)));
      if (memory->boot() != killed_boot_) {
        ASSERT_EQ(Difference(synced_, ListByIterator(*db).records), "none");
      }
      killed_boot_ = memory->boot();
      memory->Observe();
      for (std::uint64_t i = 100; i < 120; ++i) {
        ASSERT_NO_FATAL_FAILURE(Set(*db, i));
        memory->Observe();
      }
      crashes.push_back(memory->Crash(random_));
      memory->on_event = [] {};
      if (kills == 0) break;
      memory = memory->Kill();
    }
    image_ = crashes[random_.OneIn(2) ? crashes.size() - 1 : random_.Below(crashes.size())];
  }

  std::uint64_t num_crashes() const { return num_crashes_; }

 private:
  static void Set(HashDBM<Erased<FileT>>& db, std::uint64_t i) {
    const std::string key = NumberedKey(i);
    ASSERT_THAT(db.Set(key, CheckedValue(key, 40 + i * 37 % 1200, i)), IsOk());
  }

  Random random_{0};
  Records synced_;
  Image image_;
  std::uint64_t num_crashes_ = 0;
  int killed_boot_ = 0;
};
using CrashFiles = testing::Types<MappedCrashFile, PositionalCrashFile>;
TYPED_TEST_SUITE(RepeatedCrashTest, CrashFiles);

TYPED_TEST(RepeatedCrashTest, TheSameRecordsWrittenAfterEachCrashStayOutOfTheSynchronizedState) {
  SCOPED_TRACE(TestSeed());
  const std::uint64_t wanted = CrashStates(1000);
  for (std::uint64_t seed = TestSeed(); this->num_crashes() < wanted; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(this->Create(seed));
    for (int life = 0; life < 40; ++life) ASSERT_NO_FATAL_FAILURE(this->LiveOnce());
  }
  ReportCrashStates(this->num_crashes());
}

}  // namespace
}  // namespace hako
