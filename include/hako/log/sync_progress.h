// Asks for synchronizations of a database on behalf of its log, and lets writers wait for one.
//
// Thread-safe, except Start, which is called before all else.
#pragma once

#include <atomic>
#include <chrono>
#include <utility>

#include "hako/sync/mutex.h"

namespace hako::log {

class SyncProgress {
 public:
  // `ask` arranges a synchronization and returns true, or returns false. Its caller has a bucket or
  // a leaf locked, so it must not wait.
  struct Call {
    bool (*ask)(void* context) = nullptr;
    void* context = nullptr;
  };

  void Start(Call call) { call_ = call; }

  // A synchronization is due.
  void Ask() {
    is_asked_.store(true, std::memory_order_relaxed);
    if (call_.ask == nullptr || !call_.ask(call_.context)) has_failed_.store(true, std::memory_order_relaxed);
  }
  // Whether one was due since the last call.
  bool TakeAsked() { return is_asked_.load(std::memory_order_relaxed) && is_asked_.exchange(false, std::memory_order_relaxed); }

  // One has ended.
  void NoteSynced(bool ok) {
    sync::MutexLock lock(mutex_);
    has_failed_.store(!ok, std::memory_order_relaxed);
    synced_.NotifyAll();
  }
  // Whether the last one failed, or could not be started: no thread waits for the next one.
  bool has_failed() const { return has_failed_.load(std::memory_order_relaxed); }

  // Waits until done() is true, which it can become when one ends, or until the time has passed.
  template <class F>
  void WaitFor(std::chrono::microseconds time, F&& done) {
    Ask();
    const auto deadline = std::chrono::steady_clock::now() + time;
    sync::MutexLock lock(mutex_);
    while (!done()) {
      if (!synced_.WaitUntil(mutex_, deadline)) return;
    }
  }

 private:
  Call call_;
  std::atomic<bool> is_asked_{false}, has_failed_{false};
  sync::Mutex mutex_;
  sync::ConditionVariable synced_;
};

}  // namespace hako::log
