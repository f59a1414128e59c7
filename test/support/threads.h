// Threads of a test: all start their work at the same moment, and are joined before the call returns.
#pragma once

#include <latch>
#include <thread>
#include <vector>

#include "hako/base/per_byte_copy.h"

namespace hako {

// How much smaller loops are to be under a tool that slows the program down.
#ifdef HAKO_TSAN
inline constexpr int kSlowdown = 10;
#else
inline constexpr int kSlowdown = 1;
#endif

// Runs body(thread_index) in `count` threads.
template <class Body>
void RunThreads(int count, Body body) {
  std::latch start(count);
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index) {
    threads.emplace_back([&, index] {
      start.arrive_and_wait();
      body(index);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hako
