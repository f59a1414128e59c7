// Requests synchronizations of a database on behalf of its log, and lets writers wait for one.
//
// Thread-safe, except Start, which must be called first.
#pragma once

#include <atomic>
#include <chrono>

#include "hako/base/function_ref.h"
#include "hako/log/checkpoint_requests.h"
#include "hako/sync/mutex.h"

namespace hako::log {

class SyncProgress final : public CheckpointRequests {
 public:
  // `ask` arranges a synchronization and returns true, or returns false if it cannot. It must not
  // wait, because its caller has a bucket or a leaf locked.
  struct Call {
    bool (*ask)(void* context) = nullptr;
    void* context = nullptr;
  };

  void Start(Call call) { call_ = call; }

  // Whether a synchronization was requested since the last call.
  bool TakeAsked() { return is_asked_.load(std::memory_order_relaxed) && is_asked_.exchange(false, std::memory_order_relaxed); }

  // Call when a synchronization has ended.
  void NoteSynced(bool ok) {
    sync::MutexLock lock(mutex_);
    has_failed_.store(!ok, std::memory_order_relaxed);
    synced_.NotifyAll();
  }

  // See CheckpointRequests.
  void Ask() override {
    is_asked_.store(true, std::memory_order_relaxed);
    if (call_.ask == nullptr || !call_.ask(call_.context)) has_failed_.store(true, std::memory_order_relaxed);
  }
  bool has_failed() const override { return has_failed_.load(std::memory_order_relaxed); }
  bool WaitFor(std::chrono::microseconds time, FunctionRef<bool()> done) override {
    Ask();
    const auto deadline = std::chrono::steady_clock::now() + time;
    sync::MutexLock lock(mutex_);
    while (!done()) {
      if (!synced_.WaitUntil(mutex_, deadline)) return done();
    }
    return true;
  }

 private:
  Call call_;
  std::atomic<bool> is_asked_{false}, has_failed_{false};
  sync::Mutex mutex_;
  sync::ConditionVariable synced_;
};

}  // namespace hako::log
