#include "hako/sync/background_thread.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace hako::sync {
namespace {

constexpr std::chrono::milliseconds kOnlyWhenWoken{0};

TEST(BackgroundThread, ConcurrentWakeDuringACallCausesOneMoreCall) {
  std::atomic<int> calls = 0;
  std::promise<void> first, second;
  std::promise<void> may_end;
  const auto work = [&] {
    const int call = ++calls;
    if (call == 1) {
      first.set_value();
      may_end.get_future().wait();
    }
    if (call == 2) second.set_value();
  };
  ASSERT_OK_AND_ASSIGN(auto thread, BackgroundThread::Start(kOnlyWhenWoken, work));
  thread->Wake();
  first.get_future().wait();
  thread->Wake();
  thread->Wake();
  may_end.set_value();
  second.get_future().wait();
  thread = nullptr;
  EXPECT_EQ(calls, 2);
}

TEST(BackgroundThread, ConcurrentCallsFollowEachInterval) {
  std::atomic<int> calls = 0;
  std::promise<void> third;
  const auto work = [&] {
    if (++calls == 3) third.set_value();
  };
  ASSERT_OK_AND_ASSIGN(const auto thread, BackgroundThread::Start(std::chrono::milliseconds{1}, work));
  third.get_future().wait();
}

TEST(BackgroundThread, ConcurrentDestructorWaitsForTheCall) {
  std::promise<void> begun;
  std::atomic<bool> has_ended = false;
  const auto work = [&] {
    begun.set_value();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    has_ended = true;
  };
  ASSERT_OK_AND_ASSIGN(auto thread, BackgroundThread::Start(kOnlyWhenWoken, work));
  thread->Wake();
  begun.get_future().wait();
  thread = nullptr;
  EXPECT_TRUE(has_ended);
}

// A wait of that long overflows the clock.
TEST(BackgroundThread, LongestIntervalIsNotOver) {
  std::atomic<int> calls = 0;
  ASSERT_OK_AND_ASSIGN(auto thread, BackgroundThread::Start(std::chrono::milliseconds::max(), [&] { ++calls; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(calls, 0);
}

TEST(BackgroundThread, MakesNoCallUnlessWoken) {
  std::atomic<int> calls = 0;
  ASSERT_OK_AND_ASSIGN(auto thread, BackgroundThread::Start(kOnlyWhenWoken, [&] { ++calls; }));
  thread = nullptr;
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace hako::sync
