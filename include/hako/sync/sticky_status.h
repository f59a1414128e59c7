// The first error after which an object must not continue. Any thread may set it.
//
// Thread-safe. While there is no error, a check costs one load and takes no lock.
#pragma once

#include <atomic>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako::sync {

class StickyStatus {
 public:
  StickyStatus() = default;
  explicit StickyStatus(const Status& status) { Assign(status); }

  HAKO_INLINE bool IsOk() const { return !has_failed_.load(std::memory_order_acquire); }
  // OK, or the first error that was set.
  Status Get() const {
    if (IsOk()) [[likely]]
      return absl::OkStatus();
    MutexLock lock(mutex_);
    return status_;
  }
  // Sets the status unless an error is set already.
  // REQUIRES: `status` is an error
  void Set(const Status& status) {
    HAKO_DCHECK(!status.ok());
    MutexLock lock(mutex_);
    status_.Update(status);
    has_failed_.store(true, std::memory_order_release);
  }
  // Replaces the status, for an error that may go away.
  void Assign(const Status& status) {
    MutexLock lock(mutex_);
    status_ = status;
    has_failed_.store(!status.ok(), std::memory_order_release);
  }

 private:
  std::atomic<bool> has_failed_{false};
  mutable Mutex mutex_;
  Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hako::sync
