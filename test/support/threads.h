// Threads of a test, which start at the same moment and are joined before the call returns.
#pragma once

#include <latch>
#include <thread>
#include <vector>

namespace hako {

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
