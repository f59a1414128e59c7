// LocalLog: makes the effects of commands durable. The database or the table applies the effects at once and
// logs them itself, and Commit waits for that log.
#pragma once

#include <atomic>
#include <cstdint>

#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/sync/raise_to.h"
#include "server/settings.h"

namespace hako::server {

// D is AnyDBM or TableDBM. If the server has no such database, `database` is nullptr, and Position
// and Commit are not called. Thread-safe.
template <class D>
class LocalLog {
 public:
  LocalLog(D* database, const Settings& settings) : database_(database), settings_(settings) {}

  // Returns the position after the last change of the calling thread. A loop thread calls it at
  // the end of a turn that has changed records.
  std::uint64_t Position() {
    const std::uint64_t lsn = database_->LastLsn();
    sync::RaiseTo(last_lsn_, lsn);
    return lsn;
  }
  // Whether Commit waits for a device, and may take long.
  bool Waits() const { return settings_.fsync.load(std::memory_order_relaxed) == Fsync::kAlways; }
  // Waits until all changes before that position are committed. Replies are sent only if it returns OK. After
  // an error the outcome is unknown, and the connections are closed without a reply. Concurrent calls share
  // one sync of the log.
  Status Commit(std::uint64_t lsn) {
    if (Waits()) {
      Status status = database_->WaitDurable(lsn);
      if (status.ok()) sync::RaiseTo(durable_lsn_, lsn);
      return status;
    }
    has_changed_.store(true, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  // One thread calls this once a second.
  Status Tick() {
    if (settings_.fsync == Fsync::kNo || !has_changed_.exchange(false)) return absl::OkStatus();
    const std::uint64_t lsn = last_lsn_;
    Status status = database_->WaitDurable(~std::uint64_t{0});
    if (status.ok()) sync::RaiseTo(durable_lsn_, lsn);
    return status;
  }
  // The positions in the log after the last committed change, and after the last change known to be
  // durable; 0 without a log.
  std::uint64_t last_lsn() const { return last_lsn_; }
  std::uint64_t durable_lsn() const { return durable_lsn_; }

 private:
  D* const database_;
  const Settings& settings_;
  std::atomic<bool> has_changed_{false};
  std::atomic<std::uint64_t> last_lsn_{0}, durable_lsn_{0};
};

}  // namespace hako::server
