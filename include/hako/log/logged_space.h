// Adds a log of the updates to a space in memory (hash/memory/record_arena.h,
// tree/memory/page_arena.h), for TinyDBM, BabyDBM and MemoryArrayDBM. Without a path the log is
// off.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/log/sync_progress.h"
#include "hako/log/update_log.h"
#include "hako/sync/sticky_status.h"

namespace hako::log {

template <class Space, File LogFile>
class LoggedSpace final : public Space {
 public:
  struct WriterState : Space::WriterState {
    Lsn lsn = 0;  // the LSN after its last update in the log
    AheadRun logged_ahead;
    Status error;  // the error of a call that cannot return one
  };

  // As Space::Create.
  template <class... Args>
  static StatusOr<std::unique_ptr<LoggedSpace>> Create(const Args&... args) {
    return Space::template Create<LoggedSpace>(args...);
  }
  template <class... Args>
  explicit LoggedSpace(Args&&... args) : Space(std::forward<Args>(args)...) {}

  using Log = UpdateLog<LogFile>;
  Log& log() { return log_; }
  const Log& log() const { return log_; }
  SyncProgress& sync_progress() { return progress_; }

  // Waits a while for a snapshot if the log has become long. The caller must hold no lock.
  void PauseIfLogIsLong() {
    if (!needs_pause_.load(std::memory_order_relaxed)) return;
    needs_pause_.store(false, std::memory_order_relaxed);
    log_.PauseIfLong();
  }

  // Call if only a part of an update was made, so that the state is never saved. Opening the
  // database again restores the state before the update or, if the update was logged, the state
  // after it.
  void Poison(const Status& why) {
    damage_.Set(NoMoreWritesError(why));
    if (log_.is_on()) log_.Fail(why);
  }
  Status damage() const { return damage_.Get(); }

 private:
  SyncProgress progress_;
  std::atomic<bool> needs_pause_{false};
  Log log_{progress_, needs_pause_};
  sync::StickyStatus damage_;
};

}  // namespace hako::log
