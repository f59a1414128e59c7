// TurnGate: lets one thread run a command while no other thread runs one.
//
// Each loop thread holds its own lock while it runs commands; other threads take it only in
// RunAlone. RunAlone releases the lock of the calling thread and then takes the locks of all
// threads in ascending order. So it waits for running commands, never for a client.
//
// Threads: only thread i calls Enter(i), Leave(i) and RunAlone(i, ...).
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "hako/sync/mutex.h"

namespace hako::server {

class TurnGate {
 public:
  explicit TurnGate(unsigned num_threads) : locks_(std::make_unique<Lock[]>(num_threads)), num_threads_(num_threads) {}

  // Clang cannot check these: which mutex is locked depends on the thread.
  void Enter(unsigned thread) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    locks_[thread].mutex.AssertNotHeld();
    locks_[thread].mutex.Lock();
  }
  void Leave(unsigned thread) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    locks_[thread].mutex.AssertHeld();
    locks_[thread].mutex.Unlock();
  }
  void AssertEntered(unsigned thread) const { locks_[thread].mutex.AssertHeld(); }
  // Runs `body` while no other thread runs a command.
  // REQUIRES: the thread has entered
  template <class F>
  void RunAlone(unsigned thread, F&& body) {
    AssertEntered(thread);
    if (num_threads_ == 1) return body();
    Leave(thread);
    for (unsigned i = 0; i < num_threads_; ++i) Enter(i);
    const LeaveOthers at_end{*this, thread};  // even if the body throws
    body();
  }

 private:
  struct LeaveOthers {
    TurnGate& gate;
    unsigned thread;
    ~LeaveOthers() {
      for (unsigned i = 0; i < gate.num_threads_; ++i) {
        if (i != thread) gate.Leave(i);
      }
    }
  };
  struct alignas(64) Lock {
    sync::Mutex mutex;
  };
  const std::unique_ptr<Lock[]> locks_;
  const unsigned num_threads_;
};

}  // namespace hako::server
