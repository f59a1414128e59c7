// A thread that does something at intervals.
//
// It does not wait for an interval that has passed meanwhile: between two calls there is always a whole one. The destructor waits for a
// call that is under way, and begins no other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace hako::sync {

class PeriodicThread {
 public:
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> work)
      : thread_([interval, work = std::move(work)](std::stop_token stop) {
          std::mutex mutex;
          std::condition_variable_any wakes;
          std::unique_lock lock(mutex);
          const auto never = [] { return false; };  // only the interval's end or the destructor wakes it
          while (wakes.wait_for(lock, stop, interval, never), !stop.stop_requested()) work();
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace hako::sync
