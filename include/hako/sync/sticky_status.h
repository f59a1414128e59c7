// Why something must not go on: the first of the errors after which it must not, whichever thread met it.
//
// Threads: any. While there is none, the checks cost one load and take no lock.
#pragma once

#include <atomic>
#include <mutex>

#include "hako/base/inline.h"
#include "hako/base/status.h"

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
    std::lock_guard lock(mutex_);
    return status_;
  }
  // Keeps an error that is there already. REQUIRES: it is not OK
  void Set(const Status& status) {
    std::lock_guard lock(mutex_);
    status_.Update(status);
    has_failed_.store(true, std::memory_order_release);
  }
  // Replaces it, for a state that may pass.
  void Assign(const Status& status) {
    std::lock_guard lock(mutex_);
    status_ = status;
    has_failed_.store(!status.ok(), std::memory_order_release);
  }

 private:
  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace hako::sync
