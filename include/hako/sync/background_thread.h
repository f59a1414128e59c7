// A thread that runs a function at intervals, or when woken.
//
// Each interval starts when the previous call ends, so intervals that pass during a call are
// skipped. Waking the thread during a call causes one more call. The destructor waits for a call in
// progress and starts no other.
//
// Wake is thread-safe.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"
#include "hako/sync/start_thread.h"

namespace hako::sync {

class BackgroundThread {
  // A forked child does not have the thread, so it can neither stop the thread nor destroy objects
  // on which the thread may have been waiting. The child leaks the object instead.
  struct Stop {
    void operator()(BackgroundThread* thread) const {
      if (thread->process_ == getpid()) delete thread;
    }
  };

 public:
  using Pointer = std::unique_ptr<BackgroundThread, Stop>;

  // Starts the thread. With an interval of 0 it runs only when woken, until SetInterval.
  // ResourceExhausted if the system has no thread.
  static StatusOr<Pointer> Start(std::chrono::milliseconds interval, std::function<void()> work) {
    Pointer self(new BackgroundThread(interval));
    HAKO_ASSIGN_OR_RETURN(self->thread_, StartThread([self = self.get(), work = std::move(work)](std::stop_token stop) {
                            while (self->Wait(stop)) {
                              HAKO_TRY { work(); }
                              HAKO_CATCH_NO_MEMORY()  // the next call may have more
                            }
                          }));
    return self;
  }

  void Wake() {
    {
      MutexLock lock(mutex_);
      woken_ = true;
    }
    wakes_.NotifyOne();
  }

  // Makes the thread also run at this interval. Needs no memory.
  void SetInterval(std::chrono::milliseconds interval) {
    {
      MutexLock lock(mutex_);
      interval_ = interval;
    }
    wakes_.NotifyOne();
  }

 private:
  explicit BackgroundThread(std::chrono::milliseconds interval) : interval_(interval) {}

  // Waits until the next call is due. Returns false if the thread must stop.
  bool Wait(std::stop_token& stop) {
    MutexLock lock(mutex_);
    for (bool is_due = false; !is_due;) {
      const std::chrono::milliseconds interval = interval_;
      const auto ends = [this, interval] {
        mutex_.AssertHeld();
        return woken_ || interval_ != interval;
      };
      if (interval.count() > 0)
        wakes_.WaitFor(mutex_, stop, std::min<std::chrono::milliseconds>(interval, kLongest), ends);
      else
        wakes_.Wait(mutex_, stop, ends);
      is_due = woken_ || interval_ == interval || stop.stop_requested();
    }
    woken_ = false;
    return !stop.stop_requested();
  }

  static constexpr std::chrono::hours kLongest{24 * 365};  // more would overflow the clock

  const pid_t process_ = getpid();
  Mutex mutex_;
  StoppableCondition wakes_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::milliseconds interval_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // stops before the other members are destroyed
};

}  // namespace hako::sync
