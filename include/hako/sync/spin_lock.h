// A lock for a few instructions, where a mutex would cost more than the work that it protects. It
// has the annotations of sync/mutex.h, and MutexLock can hold it.
#pragma once

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/sync/version_lock.h"

namespace hako::sync {

class ABSL_LOCKABLE SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;

  HAKO_INLINE void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (IsSingleThreaded()) return held_.store(true, std::memory_order_relaxed);
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      LockSlowly();
  }
  // REQUIRES: the calling thread holds the lock; a debug build checks only that some thread does
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() { HAKO_DCHECK(held_.load(std::memory_order_relaxed)); }
  HAKO_INLINE void Unlock() ABSL_UNLOCK_FUNCTION() { held_.store(false, std::memory_order_release); }
  // Lets threads that wait for the lock take it first. A thread that takes the lock repeatedly
  // calls this, because other threads would otherwise hardly ever find the lock free.
  // REQUIRES: not held by this thread (unchecked: the lock has no owner)
  void LetOthersPass() const {
    constexpr unsigned kMost = Backoff::kSpins + Backoff::kYields + 4;
    for (Backoff backoff; waiting_.load(std::memory_order_relaxed) != 0 && backoff.count() < kMost;) backoff.Pause();
  }

 private:
  [[gnu::noinline]] void LockSlowly() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    for (Backoff backoff; held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire);) backoff.Pause();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::atomic<bool> held_{false};
  std::atomic<unsigned> waiting_{0};  // threads in LockSlowly
};

}  // namespace hako::sync
