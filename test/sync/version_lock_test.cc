// The lock of a bucket, and how its waiters wait.
#include "hako/sync/version_lock.h"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "support/sanitizers.h"
#include "support/threads.h"

namespace hako::sync {
namespace {

// The number of times that the calling thread has slept; yields are not counted.
long Sleeps() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST(VersionLock, AdvancesTheVersionOnlyWithChangesAndKeepsTheFlag) {
  std::uint32_t word = VersionLock::kFlag;
  VersionLock lock(word);
  const std::uint32_t version = lock.ReadVersion();
  lock.Lock();
  EXPECT_FALSE(lock.IsCurrent(version));
  EXPECT_FALSE(lock.TryLock());
  lock.Unlock(false);
  EXPECT_TRUE(lock.IsCurrent(version));
  ASSERT_TRUE(lock.TryLock());
  lock.Unlock(true);
  EXPECT_EQ(lock.ReadVersion(), version + VersionLock::kStep);
  word = ~VersionLock::kLocked;  // the last version
  lock.Lock();
  lock.Unlock(true);
  EXPECT_EQ(word, 2u) << "wraps, with the flag";
}

// Holders that yield the processor with the lock held, so that every kind of waiting occurs, and
// readers that take no lock.
TEST(VersionLock, ConcurrentHoldersAreExclusiveAndReadersSeeWholeChanges) {
  constexpr int kThreads = 4, kTurns = 20'000 / kSlowdown;
  std::uint32_t word = 0;
  std::uint64_t plain = 0;  // a race here is reported by the sanitizer
  std::atomic<std::uint64_t> left = 0, right = 0;
  std::atomic<int> mishaps = 0;
  RunThreads(kThreads, [&](int thread) {
    VersionLock lock(word);
    for (int i = 0; i < kTurns; ++i) {
      if ((thread + i) % 4 == 0) {
        const std::uint32_t version = lock.ReadVersion();
        if ((version & VersionLock::kLocked) != 0) continue;
        const std::uint64_t a = left.load(std::memory_order_relaxed), b = right.load(std::memory_order_relaxed);
        if (lock.IsCurrent(version)) mishaps += a != b;
        continue;
      }
      lock.Lock();
      ++plain;
      left.store(plain, std::memory_order_relaxed);
      if (i % 1024 == 1) std::this_thread::yield();
      right.store(plain, std::memory_order_relaxed);
      lock.Unlock(true);
    }
  });
  EXPECT_EQ(mishaps, 0);
  EXPECT_EQ(plain, std::uint64_t{kThreads} * kTurns / 4 * 3);
  EXPECT_EQ(word, plain * VersionLock::kStep);
}

// A waiter that never slept could keep a holder of lower priority from running.
TEST(Backoff, SleepsEventually) {
  Backoff backoff;
  const long before = Sleeps();
  while (backoff.count() < Backoff::kSpins + Backoff::kYields + 10) backoff.Pause();
  EXPECT_GT(Sleeps(), before);
}

// Together they wake up no more often than a few would, because the thread that they wait for needs
// the processor.
TEST(VersionLock, ManyWaitersYieldToTheHolder) {
  constexpr int kWaiters = 150;
  std::uint32_t word = 0;
  VersionLock holder(word);
  holder.Lock();
  const auto sleeps = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  std::vector<std::thread> waiters;
  for (int i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&] {
      VersionLock lock(word);
      lock.Lock();
      lock.Unlock(true);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until most of them sleep
  const auto begin = std::chrono::steady_clock::now();
  const long before = sleeps();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const long count = sleeps() - before;
  const double milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  holder.Unlock(true);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_LT(static_cast<double>(count), 150 * milliseconds) << "in " << milliseconds << " ms";
}

}  // namespace
}  // namespace hako::sync
