// The index of a thread, until its end.
#include "hako/sync/thread_slot.h"

#include <latch>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hako::sync {
namespace {

// A thread_local object that asks for the index in its destructor, like one that writes to a
// database there.
struct AsksAtTheEnd {
  unsigned* index = nullptr;
  std::latch* at_end = nullptr;
  std::latch* other_has_one = nullptr;
  ~AsksAtTheEnd() {
    if (index == nullptr) return;
    at_end->count_down();
    other_has_one->wait();
    *index = ThreadIndex();
  }
};
thread_local AsksAtTheEnd asks_at_the_end;

TEST(ThreadIndex, IsKeptWhileThreadLocalDestructorsRun) {
  std::latch at_end(1), other_has_one(1), ended(1);
  unsigned at_first = kMaxThreads, in_destructor = kMaxThreads, others = kMaxThreads;
  std::thread ending([&] {
    asks_at_the_end.at_end = &at_end;  // constructed before the thread has an index, so destroyed after later objects
    asks_at_the_end.other_has_one = &other_has_one;
    asks_at_the_end.index = &in_destructor;
    at_first = ThreadIndex();
  });
  std::thread living([&] {
    at_end.wait();
    others = ThreadIndex();
    other_has_one.count_down();
    ended.wait();
  });
  ending.join();
  ended.count_down();
  living.join();
  EXPECT_EQ(in_destructor, at_first);
  EXPECT_NE(in_destructor, others) << "two living threads have one index";
}

TEST(ThreadIndex, IsFreeWhenTheThreadHasEnded) {
  for (unsigned i = 0; i < 2 * kMaxThreads; ++i) {
    unsigned index = kMaxThreads;
    std::thread([&index] { index = ThreadIndex(); }).join();
    ASSERT_LT(index, 64u) << "thread " << i;
  }
}

TEST(ThreadIndex, IsAvailableAgainOnceAnotherThreadEnds) {
  std::vector<unsigned> claimed;
  for (unsigned index; (index = internal::thread_indexes.Claim()) != kMaxThreads;) claimed.push_back(index);
  std::thread([&claimed] {
    EXPECT_EQ(ThreadIndex(), kMaxThreads);
    const unsigned freed = claimed.back();
    claimed.pop_back();
    internal::thread_indexes.Release(freed);
    EXPECT_EQ(ThreadIndex(), freed);
  }).join();
  for (const unsigned index : claimed) internal::thread_indexes.Release(index);
}

}  // namespace
}  // namespace hako::sync
