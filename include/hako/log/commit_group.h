// Lets the threads that commit again and again share one sync of the log: a thread that is about to
// sync first waits for those that the last sync served (log/record_log.h).
//
// 1. It waits at most half as long as the last sync took, and at most 10 ms.
// 2. It does not wait if all of them are waiting, so never where one thread commits alone.
// 3. Once they stay away, the next 16 syncs wait for nobody.
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

  // This thread waits for a sync, until it leaves.
  void Enter() { num_waiting_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() { num_waiting_.fetch_sub(1, std::memory_order_relaxed); }

  // A sync is due: waits for more threads. Returns when that has ended.
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
  // The sync has ended. The threads that wait for it or for the next one are expected again.
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
  static constexpr std::chrono::milliseconds kPatienceMax{10};  // a sync may have taken seconds

  unsigned num_waiting() const { return num_waiting_.load(std::memory_order_relaxed); }

  std::atomic<unsigned> num_waiting_{0};
  unsigned expected_ = 0;
  unsigned num_to_skip_ = 0;  // syncs that wait for nobody
  Clock::duration took_{0};   // the last sync
};

}  // namespace hako::log
