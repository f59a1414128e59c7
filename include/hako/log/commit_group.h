// Lets threads that commit repeatedly share one sync of the log: a thread that is about to sync
// first waits for the threads that the last sync served (log/record_log.h).
//
// 1. It waits at most half as long as the last sync took, and at most 10 ms.
// 2. It does not wait if all of these are already waiting. So a thread that commits alone never
//    waits.
// 3. If some of these do not come, the next 16 syncs do not wait.
//
// Threads: Enter and Leave are thread-safe. Gather, NoteSync and Patience are called by the thread that
// syncs, one at a time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "hako/base/language.h"

namespace hako::log {

class CommitGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // From Enter to Leave the calling thread counts as waiting for a sync.
  void Enter() { num_waiting_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() { num_waiting_.fetch_sub(1, std::memory_order_relaxed); }

  // Call before a sync. Waits for more threads, and returns the time at which the wait ended.
  Clock::time_point Gather() {
    const Clock::time_point begun = Clock::now();
    const Clock::duration patience = Patience();
    if (num_to_skip_ != 0 && num_waiting() < expected_) --num_to_skip_;
    Clock::time_point now = begun;
    while (now - begun < patience && num_waiting() < expected_) {
      sched_yield();
      now = Clock::now();
    }
    if (patience > patience.zero() && now - begun >= patience) num_to_skip_ = kSkipped;
    return now;
  }
  // Call after a sync that took this long. The next Gather waits for the threads that wait now, for
  // this sync or the next one.
  void NoteSync(Clock::duration took) {
    expected_ = num_waiting();
    took_ = took;
  }

  // How long Gather would wait now.
  Clock::duration Patience() const {
    if (num_waiting() >= expected_ || num_to_skip_ != 0) return Clock::duration::zero();
    return std::min<Clock::duration>(took_ / 2, kPatienceMax);
  }

 private:
  static constexpr unsigned kSkipped = 16;
  static constexpr std::chrono::milliseconds kPatienceMax{10};  // a bound, because a sync may take seconds

  unsigned num_waiting() const { return num_waiting_.load(std::memory_order_relaxed); }

  std::atomic<unsigned> num_waiting_{0};
  unsigned expected_ = 0;
  unsigned num_to_skip_ = 0;  // the number of next syncs that do not wait
  Clock::duration took_{0};   // how long the last sync took
};

}  // namespace hako::log
