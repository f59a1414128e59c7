// Committer: waits for the logs in place of a loop thread, which meanwhile serves other clients.
//
// Runs one commit at a time, from Begin to End.
//
// Threads: the loop's thread calls Begin, is_running, HasEnded and End. on_end runs in the committer's
// thread with its mutex held, so End returns after on_end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "hako/base/status.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "server/command.h"

namespace hako::server {

// The positions in the logs after the changes of a thread; nullopt = no change.
struct Changes {
  std::optional<std::uint64_t> records, rows;

  explicit operator bool() const { return records || rows; }
};

// Returns the changes of the thread since the last call.
inline Changes TakeChanges(CommandThread& thread) {
  Changes changes;
  if (thread.keys.TakeChanged()) changes.records = thread.server.log.Position();
  if (std::exchange(thread.has_changed_rows, false)) changes.rows = thread.server.table_log.Position();
  return changes;
}

// Commits both logs, even if one of them fails. Thread-safe.
inline Status Commit(ServerState& server, const Changes& changes) try {
  Status status;
  if (changes.records) status = server.log.Commit(*changes.records);
  if (changes.rows) status.Update(server.table_log.Commit(*changes.rows));
  return status;
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("");
}

class Committer {
 public:
  Committer(ServerState* server, std::function<void()> on_end) : server_(*server), on_end_(std::move(on_end)) {}
  Committer(const Committer&) = delete;

  // Begins a commit. Returns false, and begins nothing, if a thread cannot be started.
  bool Begin(const Changes& changes) {
    if (thread_ == nullptr && !StartThread()) return false;
    {
      sync::MutexLock lock(mutex_);
      changes_ = changes;
      has_ended_ = false;
    }
    is_running_ = true;
    thread_->Wake();
    return true;
  }
  // Whether a commit was begun, and End was not called since.
  bool is_running() const { return is_running_; }
  // Whether End would return at once.
  bool HasEnded() {
    sync::MutexLock lock(mutex_);
    return is_running_ && has_ended_;
  }
  // Waits for the commit, and returns its status.
  Status End() {
    sync::MutexLock lock(mutex_);
    while (!has_ended_) ended_.Wait(mutex_);
    is_running_ = false;
    return std::move(status_);
  }

 private:
  bool StartThread() try {
    auto started = sync::BackgroundThread::Start(std::chrono::milliseconds(0), [this] { Run(); });
    if (started.ok()) thread_ = std::move(*started);
    return started.ok();
  } catch (const std::bad_alloc&) {
    return false;
  }
  void Run() {
    Changes changes;
    {
      sync::MutexLock lock(mutex_);
      changes = changes_;
    }
    Status status = Commit(server_, changes);
    sync::MutexLock lock(mutex_);
    status_ = std::move(status);
    has_ended_ = true;
    ended_.NotifyAll();
    on_end_();
  }

  ServerState& server_;
  const std::function<void()> on_end_;
  bool is_running_ = false;
  sync::Mutex mutex_;
  sync::ConditionVariable ended_;
  Changes changes_ ABSL_GUARDED_BY(mutex_);
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = true;
  Status status_ ABSL_GUARDED_BY(mutex_);
  sync::BackgroundThread::Pointer thread_;  // started by the first Begin; joined before other members are destroyed
};

}  // namespace hako::server
