// Decides how long a thread waits before it syncs the log for all, so that the threads that commit
// again and again share one sync: log/record_log.h.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>

namespace hako::log {

class CommitGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // A sync is due, with this many threads waiting for it. Returns how long to wait for more of them.
  Clock::duration Patience(unsigned num_waiting) {
    if (num_waiting >= expected_) return Clock::duration::zero();
    if (num_to_skip_ == 0) return std::min<Clock::duration>(took_ / 2, kPatienceMax);
    --num_to_skip_;
    return Clock::duration::zero();
  }
  // How many threads to wait for.
  unsigned expected() const { return expected_; }
  // They did not come in time.
  void NoteAbsence() { num_to_skip_ = kSkipped; }
  // A sync has ended, with this many threads waiting for it or for the next one.
  void NoteSync(unsigned num_waiting, Clock::duration took) {
    expected_ = num_waiting;
    took_ = took;
  }

 private:
  static constexpr unsigned kSkipped = 16;
  static constexpr std::chrono::milliseconds kPatienceMax{10};  // a sync may have taken seconds

  unsigned expected_ = 0;
  unsigned num_to_skip_ = 0;  // syncs before which no thread waits
  Clock::duration took_{0};   // the last sync
};

}  // namespace hako::log
