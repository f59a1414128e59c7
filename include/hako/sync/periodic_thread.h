// A thread that does something at intervals.
//
// It does not wait for an interval that has passed meanwhile: between two calls there is always a whole one. The destructor waits for a
// call that is under way, and begins no other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"

namespace hako::sync {

class PeriodicThread {
 public:
  // ResourceExhausted if the system has no thread to give.
  static StatusOr<std::unique_ptr<PeriodicThread>> Start(std::chrono::milliseconds interval, std::function<void()> work) {
    try {
      return std::unique_ptr<PeriodicThread>(new PeriodicThread(interval, std::move(work)));
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(absl::StrCat("no thread to work at intervals: ", error.what()));
    }
  }

 private:
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> work)
      : thread_([interval, work = std::move(work)](std::stop_token stop) {
          std::mutex mutex;
          std::condition_variable_any wakes;
          std::unique_lock lock(mutex);
          const auto never = [] { return false; };  // only the interval's end or the destructor wakes it
          while (wakes.wait_for(lock, stop, interval, never), !stop.stop_requested()) work();
        }) {}

  std::jthread thread_;
};

}  // namespace hako::sync
