// What the home of a database (dbm/database_home.h) asks of the records: the operations of the engines
// implement it (dbm/engine_operations.h).
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
  // OK, or why the database cannot be used. CheckIdle also fails within a visitor.
  virtual Status CheckOpen() const = 0;
  virtual Status CheckIdle() const = 0;
  // The times and the clock of the records; nullptr if the database keeps none.
  virtual const Expiry* expiry() const = 0;
  virtual std::uint64_t Count() const = 0;

  // The position in the log behind the last update of the calling thread, for a thread that adds to the
  // log itself; nullptr if the thread cannot use the database.
  virtual std::uint64_t* LsnOfThread() = 0;

  // Makes the updates of a run of the log again, in one step, as they were made. A checkpoint that runs
  // meanwhile may become durable while the rest of the log does not, so it has all of the run or nothing.
  Status RedoRun(std::span<const format::LogEntry> run) { return run.size() == 1 ? Redo(run.front()) : RedoTogether(run); }
  // Makes a single update again.
  virtual Status Redo(const format::LogEntry& entry) = 0;
  // Before this thread changes these keys: loads their evicted pages.
  virtual void LoadForRedo(std::span<const std::string_view> keys) = 0;
  // Before it changes the next few of them: prefetches their memory.
  virtual void PrefetchForRedo(std::span<const std::string_view> keys) const = 0;

  // Keeps the time, and removes the expired records if there are enough, until `stops`; called again and
  // again by one thread. REQUIRES: expiry() != nullptr (checked in SweepInBackground)
  virtual void SweepInBackground(const std::atomic<bool>& stops) = 0;
  // Refuses all operations from now on: the last step of Close.
  // REQUIRES: no other thread of this process uses the database (checked in Seal)
  virtual void Seal() = 0;

 protected:
  ~DatabaseRecords() = default;

  // RedoRun of several updates, or of one that Redo does not know.
  Status RedoTogether(std::span<const format::LogEntry> run);
  // Makes several updates in one step. Keys and ranges are those of the log.
  virtual Status RedoMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, const MultiExtras& extras) = 0;
};

}  // namespace hako
