// A lock that is held for a few instructions as a rule, where a mutex would cost more than the work
// that it protects. Annotated as those of sync/mutex.h; MutexLock holds it.
#pragma once

#include <atomic>

#include "absl/base/thread_annotations.h"
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
  HAKO_INLINE void Unlock() ABSL_UNLOCK_FUNCTION() { held_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void LockSlowly() {
    for (Backoff backoff; held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire);) backoff.Pause();
  }

  std::atomic<bool> held_{false};
};

}  // namespace hako::sync
