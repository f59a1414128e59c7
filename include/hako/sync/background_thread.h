// A thread that runs a function at intervals, or when woken.
//
// Each interval starts when the previous call ends, so intervals missed during a call are not made
// up. Waking the thread during a call causes one more call. The destructor waits for a call in
// progress and starts no other.
//
// Thread-safe: Wake.
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
  // A forked child does not have the thread, so it can neither stop it nor destroy objects that the
  // thread may have been waiting for. The child leaks the object instead.
  struct Stop {
    void operator()(BackgroundThread* thread) const {
      if (thread->process_ == getpid()) delete thread;
    }
  };

 public:
  using Pointer = std::unique_ptr<BackgroundThread, Stop>;

  // Starts the thread. With an interval of 0 it runs only when woken. Returns ResourceExhausted if
  // the system has no thread.
  static StatusOr<Pointer> Start(std::chrono::milliseconds interval, std::function<void()> work) {
    interval = std::min<std::chrono::milliseconds>(interval, std::chrono::hours(24 * 365));  // more would overflow the clock
    Pointer self(new BackgroundThread);
    HAKO_ASSIGN_OR_RETURN(self->thread_, StartThread([self = self.get(), interval, work = std::move(work)](std::stop_token stop) {
                            while (self->Wait(stop, interval)) {
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

 private:
  BackgroundThread() = default;

  // Waits until the next call is due. Returns false if the thread must stop.
  bool Wait(std::stop_token& stop, std::chrono::milliseconds interval) {
    MutexLock lock(mutex_);
    const auto is_woken = [this] {
      mutex_.AssertHeld();
      return woken_;
    };
    if (interval.count() > 0)
      wakes_.WaitFor(mutex_, stop, interval, is_woken);
    else
      wakes_.Wait(mutex_, stop, is_woken);
    woken_ = false;
    return !stop.stop_requested();
  }

  const pid_t process_ = getpid();
  Mutex mutex_;
  StoppableCondition wakes_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // stops before the other members are destroyed
};

}  // namespace hako::sync
