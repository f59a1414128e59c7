// The first of the errors after which something must not go on, whoever met it.
//
// Threads: any. Get takes no lock until there is one.
#pragma once

#include <atomic>
#include <mutex>

#include "hako/base/status.h"

namespace hako::sync {

class FirstFailure {
 public:
  bool IsSet() const { return has_failed_.load(std::memory_order_acquire); }
  // OK, or the first error that was set.
  Status Get() const {
    if (!IsSet()) [[likely]]
      return absl::OkStatus();
    std::lock_guard lock(mutex_);
    return status_;
  }
  // REQUIRES: it is not OK
  void Set(const Status& status) {
    std::lock_guard lock(mutex_);
    status_.Update(status);
    has_failed_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> has_failed_{false};
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace hako::sync
