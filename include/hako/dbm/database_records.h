// The interface through which the home of a database (dbm/database_home.h) uses the records.
// EngineOperations implements it (dbm/engine_operations.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/format/log_format.h"

namespace hako {

class DatabaseRecords {
 public:
  // Returns OK, or why the database cannot be used. CheckIdle also fails within a visitor.
  virtual Status CheckOpen() const = 0;
  virtual Status CheckIdle() const = 0;
  // The clock of records that expire; nullptr if the database keeps no times.
  virtual const Expiry* expiry() const = 0;
  virtual std::uint64_t Count() const = 0;
  // Sets the fields of snapshots.
  virtual void AddSnapshotStats(Stats* stats) const = 0;

  // Returns where the calling thread keeps the LSN after its last update, so that a thread that
  // appends to the log itself can advance it; nullptr if the thread cannot use the database.
  virtual std::uint64_t* LsnOfThread() = 0;

  // Replays the updates of a run of the log in one step. So a concurrent checkpoint has all of the
  // run or nothing. This matters because the checkpoint may become durable without the rest of the
  // log.
  Status RedoRun(std::span<const format::LogEntry> run) { return run.size() == 1 ? Redo(run.front()) : RedoTogether(run); }
  // Replays a single update.
  virtual Status Redo(const format::LogEntry& entry) = 0;
  // Call before changing these keys: loads their evicted pages.
  virtual void LoadForRedo(std::span<const std::string_view> keys) = 0;
  // Call before changing the next few keys: prefetches their memory.
  virtual void PrefetchForRedo(std::span<const std::string_view> keys) const = 0;

  // Keeps the time and, if enough records have expired, removes them, until `stops` is true. One
  // thread calls this repeatedly. REQUIRES: expiry() != nullptr (checked in SweepInBackground)
  virtual void SweepInBackground(const std::atomic<bool>& stops) = 0;
  // Refuses all operations from now on: the last step of Close.
  // REQUIRES: no other thread of this process uses the database (checked in Seal)
  virtual void Seal() = 0;

 protected:
  ~DatabaseRecords() = default;

  // RedoRun for several updates, or for one that Redo does not support.
  Status RedoTogether(std::span<const format::LogEntry> run);
  // Makes several updates in one step. Keys and ranges are encoded as in the log.
  virtual Status RedoMulti(const Batch<Action>& batch) = 0;
};

}  // namespace hako
