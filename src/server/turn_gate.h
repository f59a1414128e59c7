// TurnGate: lets one thread run a command while no other thread runs one.
//
// Each loop thread holds its own lock while it runs commands; other threads take that lock only in RunAlone.
// RunAlone releases the lock of the calling thread and then takes those of all threads in ascending order. So it
// waits for running commands, never for a client.
//
// Threads: only thread i calls Enter(i), Leave(i) and RunAlone(i, ...).
#pragma once

#include <memory>
#include <mutex>

namespace hako::server {

class TurnGate {
 public:
  explicit TurnGate(unsigned num_threads) : locks_(std::make_unique<Lock[]>(num_threads)), num_threads_(num_threads) {}

  void Enter(unsigned thread) { locks_[thread].mutex.lock(); }
  void Leave(unsigned thread) { locks_[thread].mutex.unlock(); }
  // Runs `body` while no other thread runs a command.
  // REQUIRES: the thread has entered
  template <class F>
  void RunAlone(unsigned thread, F&& body) {
    if (num_threads_ == 1) return body();
    Leave(thread);
    for (unsigned i = 0; i < num_threads_; ++i) Enter(i);
    const LeaveOthers at_end{*this, thread};  // also if the body throws
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
    std::mutex mutex;
  };
  const std::unique_ptr<Lock[]> locks_;
  const unsigned num_threads_;
};

}  // namespace hako::server
