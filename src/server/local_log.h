// ReplicatedLog: how the effects of commands become durable. LocalLog is its model on one machine: the
// database, or the table, makes the effects at once and logs them itself, and Commit waits for its log.
//
// A model over several machines takes the effects (hako::WriteBatch) of one turn of a loop as one entry,
// proposes it in Position, and applies it where it is committed; Commit then waits for that.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>

#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/sync/raise_to.h"
#include "server/settings.h"

namespace hako::server {

template <class L>
concept ReplicatedLog = requires(L& log) {
  // How far the changes of the calling thread reach. A loop thread calls it at the end of a turn that
  // has changed records.
  { log.Position() } -> std::same_as<std::uint64_t>;
  // Waits until they are committed. The replies are sent only if it returns OK; after an error the
  // effects are unknown, and the connections are closed without a reply. Called by any thread.
  { log.Commit(std::uint64_t{}) } -> std::same_as<Status>;
  // Whether Commit takes long, as it waits for a device.
  { log.Waits() } -> std::same_as<bool>;
  // Called by one thread once a second.
  { log.Tick() } -> std::same_as<Status>;
};

// D: AnyDBM or TableDBM; nullptr if there is none, and then nothing of it changes.
// Threads: any.
template <class D>
class LocalLog {
 public:
  LocalLog(D* database, const Settings& settings) : database_(database), settings_(settings) {}

  std::uint64_t Position() {
    const std::uint64_t lsn = database_->LastLsn();
    sync::RaiseTo(last_lsn_, lsn);
    return lsn;
  }
  bool Waits() const { return settings_.fsync.load(std::memory_order_relaxed) == Fsync::kAlways; }
  // One sync of the log for all up to `lsn`, and for what other threads wait for.
  Status Commit(std::uint64_t lsn) {
    if (Waits()) {
      Status status = database_->WaitDurable(lsn);
      if (status.ok()) sync::RaiseTo(durable_lsn_, lsn);
      return status;
    }
    has_changed_.store(true, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  Status Tick() {
    if (settings_.fsync == Fsync::kNo || !has_changed_.exchange(false)) return absl::OkStatus();
    const std::uint64_t lsn = last_lsn_;
    Status status = database_->WaitDurable(~std::uint64_t{0});
    if (status.ok()) sync::RaiseTo(durable_lsn_, lsn);
    return status;
  }
  // The position in the log behind the last change committed, and behind the last known to be durable;
  // 0 without a log.
  std::uint64_t last_lsn() const { return last_lsn_; }
  std::uint64_t durable_lsn() const { return durable_lsn_; }

 private:
  D* const database_;
  const Settings& settings_;
  std::atomic<bool> has_changed_{false};
  std::atomic<std::uint64_t> last_lsn_{0}, durable_lsn_{0};
};
static_assert(ReplicatedLog<LocalLog<AnyDBM>>);

}  // namespace hako::server
