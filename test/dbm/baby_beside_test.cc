// Verify of a BabyDBM beside other threads: they are not stopped, and their changes are not
// reported as damage.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/baby_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

thread_local std::atomic<bool>* is_stopped = nullptr;  // by the first comparison of the thread that sets it
std::atomic<bool> is_released{false}, has_given_up{false};

// The order of bytes; a comparison of a thread that has set `is_stopped` waits until it is
// released.
struct StoppingComparator {
  static constexpr std::string_view kName = "stopping";
  static int Compare(std::string_view a, std::string_view b) {
    if (is_stopped != nullptr) {
      *is_stopped = true;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!is_released && !has_given_up) {
        has_given_up = std::chrono::steady_clock::now() > deadline;
        std::this_thread::yield();
      }
    }
    return a.compare(b);
  }
};

TEST(BabyVerify, DoesNotStopWriters) {
  constexpr int kRecords = 1000;
  ASSERT_OK_AND_ASSIGN(auto db, (BabyDBM<MemoryMapParallelFile, StoppingComparator>::Open()));
  for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "before"), IsOk());
  std::atomic<bool> verifies{false};
  std::thread verifier([&] {
    is_stopped = &verifies;
    EXPECT_THAT(db->Verify(), IsOk());
  });
  while (!verifies) std::this_thread::yield();
  for (int i = 0; i < kRecords; ++i) EXPECT_THAT(i % 3 == 0 ? db->Remove(NumberedKey(i)) : db->Set(NumberedKey(i), "after"), IsOk());
  is_released = true;
  verifier.join();
  EXPECT_FALSE(has_given_up) << "an update waited for Verify";
  EXPECT_THAT(db->Verify(), IsOk());
}

// Pages are split and merged meanwhile, and the tree grows and shrinks in height.
TEST(BabyVerify, ConcurrentUpdatesAreNotReportedAsDamage) {
  SCOPED_TRACE(TestSeed());
  ASSERT_OK_AND_ASSIGN(auto db, BabyDBM<>::Open({.page_size = 128}));
  std::atomic<int> num_done{0};
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < 2; ++t) {
    writers.emplace_back([&, t] {
      Random random(TestSeed() + t);
      for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < 20'000 / kSlowdown; ++i) {
          const std::string key = std::string(random.Below(5) == 0 ? 100 : 0, 'k') + NumberedKey(random.Below(5000));
          const Status status = random.Below(10) < (round % 2 == 0 ? 9u : 1u) ? db->Set(key, key) : db->Remove(key);
          EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
        }
      }
      ++num_done;
    });
  }
  while (num_done < 2) EXPECT_THAT(db->Verify(), IsOk());
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(db->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
