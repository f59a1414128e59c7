// How a log requests checkpoints of its database, and how writers wait for one. log/update_log.h
// defines "checkpoint".
//
// Thread-safe.
#pragma once

#include <chrono>

#include "hako/base/function_ref.h"

namespace hako::log {

class CheckpointRequests {
 public:
  // Requests a checkpoint. The caller may have a bucket or a leaf locked, so this never waits.
  virtual void Ask() = 0;
  // Whether the last checkpoint failed or could not be started. If so, no thread waits for the next
  // one.
  virtual bool has_failed() const = 0;
  // Requests a checkpoint unless one is running. Waits until done() is true or the time has passed;
  // done() can become true when a checkpoint ends. Returns done().
  virtual bool WaitFor(std::chrono::microseconds time, FunctionRef<bool()> done) = 0;

 protected:
  ~CheckpointRequests() = default;
};

}  // namespace hako::log
