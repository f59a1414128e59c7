// How far the checkpoints of a buffer pool have come, for the threads that wait for memory.
//
// Thread-safe. Checkpoints run one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "hako/base/function_ref.h"
#include "hako/log/checkpoint_requests.h"
#include "hako/sync/mutex.h"
#include "hako/tree/lock_order.h"

namespace hako::tree {

class CheckpointProgress final : public log::CheckpointRequests {
 public:
  // `ask` is called, from any thread, when a checkpoint is due.
  explicit CheckpointProgress(std::function<void()> ask) : ask_(std::move(ask)) {}
  CheckpointProgress(const CheckpointProgress&) = delete;
  CheckpointProgress& operator=(const CheckpointProgress&) = delete;

  void Ask() override { ask_(); }

  void Begin() { is_running_.store(true, std::memory_order_relaxed); }
  // The checkpoint no longer needs page locks.
  void BeginWriting() { is_writing_.store(true, std::memory_order_relaxed); }
  // The checkpoint has made pages evictable.
  void NoteSaved() {
    sync::MutexLock lock(mutex_);
    num_saves_.fetch_add(1, std::memory_order_relaxed);
    saved_.NotifyAll();
  }
  void End(bool ok) {
    is_running_.store(false, std::memory_order_relaxed);
    is_writing_.store(false, std::memory_order_relaxed);
    has_failed_.store(!ok, std::memory_order_relaxed);
    NoteSaved();
  }

  // A checkpoint could not be started.
  void NoteFailure() { has_failed_.store(true, std::memory_order_relaxed); }

  bool is_running() const { return is_running_.load(std::memory_order_relaxed); }
  bool is_writing() const { return is_writing_.load(std::memory_order_relaxed); }
  // Whether the last checkpoint has failed. Then there may be no disk space for a long time, and
  // no thread waits for the next one.
  bool has_failed() const override { return has_failed_.load(std::memory_order_relaxed); }
  // How often a checkpoint has made pages evictable, or ended.
  std::uint64_t num_saves() const { return num_saves_.load(std::memory_order_relaxed); }

  // Waits until done() is true or the time has passed. Checks done() whenever num_saves changes.
  // Asks for a checkpoint if none is running. Returns done().
  bool WaitFor(std::chrono::microseconds time, FunctionRef<bool()> done) override {
    const auto deadline = std::chrono::steady_clock::now() + time;
    sync::MutexLock lock(mutex_);
    if (!is_running()) ask_();
    while (!done()) {
      if (!saved_.WaitUntil(mutex_, deadline)) return done();
    }
    return true;
  }
  // Waits until num_saves is no longer `seen`. Gives up after a while, because the checkpoint may
  // be waiting for a lock of the caller.
  void WaitForSave(std::uint64_t seen) {
    if (!has_failed()) WaitFor(std::chrono::seconds(1), [this, seen] { return num_saves() != seen; });
  }

 private:
  const std::function<void()> ask_;
  std::atomic<bool> is_running_{false}, is_writing_{false}, has_failed_{false};
  std::atomic<std::uint64_t> num_saves_{0};
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks);
  sync::ConditionVariable saved_;
};

}  // namespace hako::tree
