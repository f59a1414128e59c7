// A thread that does something at intervals, or when it is woken.
//
// It does not make up for an interval that has passed meanwhile: between two calls there is always a whole one, unless it is woken. Waking
// it while it is at work makes it work once more. The destructor waits for a call that is under way, and begins no other.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/sync/start_thread.h"

namespace hako::sync {

class BackgroundThread {
  // A child that was forked lacks the thread: it can neither stop it nor destroy what the thread may have been waiting for.
  struct Stop {
    void operator()(BackgroundThread* thread) const {
      if (thread->process_ == getpid()) delete thread;
    }
  };

 public:
  using Pointer = std::unique_ptr<BackgroundThread, Stop>;

  // An interval of 0 is none. ResourceExhausted if the system has no thread to give.
  static StatusOr<Pointer> Start(std::chrono::milliseconds interval, std::function<void()> work) {
    Pointer self(new BackgroundThread);
    HAKO_ASSIGN_OR_RETURN(self->thread_, StartThread([self = self.get(), interval, work = std::move(work)](std::stop_token stop) {
                            while (self->Wait(stop, interval)) {
                              HAKO_TRY { work(); }
                              HAKO_CATCH_NO_MEMORY()  // the next time may have more
                            }
                          }));
    return self;
  }

  void Wake() {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    wakes_.notify_one();
  }

 private:
  BackgroundThread() = default;

  // False when it is to stop.
  bool Wait(std::stop_token& stop, std::chrono::milliseconds interval) {
    std::unique_lock lock(mutex_);
    const auto is_woken = [this] { return woken_; };
    if (interval.count() > 0)
      wakes_.wait_for(lock, stop, interval, is_woken);
    else
      wakes_.wait(lock, stop, is_woken);
    woken_ = false;
    return !stop.stop_requested();
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  bool woken_ = false;
  std::jthread thread_;  // stops before the rest goes
};

}  // namespace hako::sync
