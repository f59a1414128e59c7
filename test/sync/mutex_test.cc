// The annotated mutexes exclude threads as those of the standard library do.
#include "hako/sync/mutex.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hako::sync {
namespace {

struct Counter {
  Mutex mutex;
  ConditionVariable changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(Mutex, ConcurrentIncrementsExcludeEachOther) {
  constexpr int kThreads = 4, kRounds = 5000;
  Counter counter;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < kRounds; ++i) {
        MutexLock lock(counter.mutex);
        ++counter.value;
        MutexUnlock unlocked(counter.mutex);  // held again at the end of the scope
      }
    });
  }
  threads.clear();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, kThreads * kRounds);
}

TEST(Mutex, TryLockFailsWhileAThreadHoldsIt) {
  Mutex mutex;
  mutex.Lock();
  std::jthread([&mutex] {
    const bool locked = mutex.TryLock();
    EXPECT_FALSE(locked);
    if (locked) mutex.Unlock();
  }).join();
  mutex.Unlock();
}

TEST(ConditionVariable, ConcurrentWaiterIsNotified) {
  Counter counter;
  std::jthread waiter([&counter] {
    MutexLock lock(counter.mutex);
    while (counter.value == 0) counter.changed.Wait(counter.mutex);
    ++counter.value;
  });
  {
    MutexLock lock(counter.mutex);
    counter.value = 1;
  }
  counter.changed.NotifyAll();
  waiter.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, 2);
}

TEST(ConditionVariable, WaitUntilEndsAtTheDeadline) {
  Counter counter;
  MutexLock lock(counter.mutex);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  while (counter.changed.WaitUntil(counter.mutex, deadline)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(SharedMutex, ConcurrentReadersShareIt) {
  SharedMutex mutex;
  const SharedLock first(mutex);
  std::jthread([&mutex] {
    mutex.LockShared();
    const SharedLock second(mutex, std::adopt_lock);
  }).join();
}

}  // namespace
}  // namespace hako::sync
