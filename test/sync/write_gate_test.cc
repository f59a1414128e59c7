// The gate that stops all writers, and the progress of stopped writers.
#include "hako/sync/write_gate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>

#include "gtest/gtest.h"
#include "support/threads.h"

namespace hako::sync {
namespace {

// Visits all slots, as the owner of a gate does.
auto Each(std::span<WriterState> slots) {
  return [slots](auto&& visit) {
    for (WriterState& slot : slots) visit(slot);
  };
}

TEST(WriteGate, ConcurrentWritersStayOutWhileClosed) {
  WriteGate gate;
  WriterState slots[3];
  std::atomic<int> inside = 0, mishaps = 0, writing = 3;
  RunThreads(4, [&](int thread) {
    if (thread == 3) {
      while (writing > 0) gate.RunExclusive(Each(slots), [&] { mishaps += inside != 0; });
      return;
    }
    for (int i = 0; i < 2000; ++i) {
      gate.Pass(slots[thread]);
      ++inside;
      --inside;
      slots[thread].Leave();
    }
    --writing;
  });
  EXPECT_EQ(mishaps, 0);
}

TEST(WriteGate, ConcurrentClosingWaitsForBusyWriters) {
  WriteGate gate;
  WriterState slots[2];
  gate.Pass(slots[1]);
  std::atomic<bool> is_exclusive = false;
  std::thread closer([&] { gate.RunExclusive(Each(slots), [&] { return is_exclusive = true; }); });
  while (!gate.IsClosed() && !is_exclusive) std::this_thread::yield();
  for (int i = 0; i < 200 && !is_exclusive; ++i) std::this_thread::yield();
  EXPECT_FALSE(is_exclusive);
  slots[1].Leave();
  closer.join();
  EXPECT_TRUE(is_exclusive);
}

TEST(WriteGate, ConcurrentRepeatedClosingsDoNotStarveWriters) {
  WriteGate gate;
  WriterState slots[2];
  std::atomic<int> writing = 2, closings = 0, waited_for = 0;
  constexpr int kPasses = 100, kTooMany = 100 * kPasses, kTooManyForOne = 20;
  RunThreads(3, [&](int thread) {
    if (thread == 2) {
      const auto much_longer_than_open = std::chrono::microseconds(300);
      while (writing > 0 && closings < kTooMany) {
        gate.RunExclusive(Each(slots), [&] {
          ++closings;
          const auto start = std::chrono::steady_clock::now();
          while (std::chrono::steady_clock::now() - start < much_longer_than_open) {
          }
        });
      }
      closings = kTooMany;
      return;
    }
    for (int i = 0; i < kPasses; ++i) {
      const int seen = closings;
      for (Backoff backoff; closings == seen && seen != kTooMany;) backoff.Pause();  // so that it is closed when this writer comes
      const int before = closings;
      gate.Pass(slots[thread]);
      slots[thread].Leave();
      waited_for += std::min(closings - before, kTooManyForOne);
    }
    --writing;
  });
  // Each closing lets writers pass that the previous one stopped. A few writers lose the processor
  // just then, for any number of closings.
  EXPECT_LT(waited_for, 10 * kPasses);
}

}  // namespace
}  // namespace hako::sync
