// TurnGate: lets one thread run alone between the commands of all others.
//
// Each loop thread holds its own lock while it runs commands; no other thread takes that lock unless it
// runs alone. RunAlone releases the lock of its own thread, then takes those of all threads in ascending
// order, so it waits for running commands, never for a client.
//
// Threads: Enter, Leave and RunAlone of a number by one thread.
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
