// The home (dbm/database_home.h) of the databases in memory, TinyDBM, BabyDBM and MemoryArrayDBM, and their
// snapshots (storage/snapshot.h).
//
// Such a class D inherits MemoryHome<D, FileT, Options> publicly (CRTP, because Save and Load scan
// and set the records of D). A snapshot does not depend on the kind of database: each class loads a
// snapshot of the others.
//
// Opened with a path, the database begins with the snapshot there, and Synchronize and Close write
// the next one. With a log a snapshot is a checkpoint: it names the position in the log from which
// Open replays the updates.
//
// Crash order of a snapshot beside writers. P is a position in the log, E a later one.
//   1. P and the applied index are read while the writers are stopped for a moment. The records
//      have all updates before P, and the log has all later ones.
//   2. The scan runs beside writers. It shows every record that is not changed between P and E, the
//      end of the scan; a record that is changed in that time may be shown in any of its states or
//      not at all. Replaying the log from P to E, in order, brings all changed records to their
//      state at E, because each entry holds a whole value or removes a record.
//   3. The log is durable up to E before the new snapshot replaces the old one. So no crash leaves
//      a snapshot without the updates that complete it.
//   4. The new snapshot is durable, then renamed over the old one, then its directory is synced. Until
//      then the old snapshot counts, and the log still has all updates since.
//   5. Only then are the segments of the log before P used again.
// Open makes the snapshot that it finds durable before it logs an update or replaces a log: a
// killed process may have left the end of the snapshot, or its name, only in the page cache.
// Without a log, or if the log has failed, the snapshot is the state of one moment. The files of
// Save always are (EngineOperations::ProcessState).
//
// If a snapshot fails, the old one and the log stay, and the database continues. The next snapshot
// may succeed.
//
// Threads: any thread may call Save and Load. Load consists of many updates, and other threads may
// see each of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/dbm/database_home.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/options.h"
#include "hako/dbm/snapshot_place.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/file.h"
#include "hako/file/replace_file.h"
#include "hako/storage/snapshot.h"
#include "hako/sync/sticky_status.h"

namespace hako {

// The operations: see the head of this header.
//
// Inherits DatabaseHome (dbm/database_home.h), of which only the operations named here are public.
template <class D, File FileT, class Options>
class MemoryHome : protected DatabaseHome<log::LogFileOf<FileT>> {
  using Home = DatabaseHome<log::LogFileOf<FileT>>;

 public:
  // The type of the file of the log.
  using typename Home::LogFile;

  // Empties `file`, of any type, writes all records as of one moment to it, and syncs it. Writers
  // are stopped only for that moment: see EngineOperations::ProcessState. With a log archive a
  // restore can start from the file (dbm/restore.h). An error leaves the content of the file
  // unspecified.
  template <File F>
  Status Save(F& file) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    format::SnapshotEnd end;
    if (NamesHistory()) return SaveNaming(file, &end);
    return SaveState(file, &end, [] {}).status();
  }
  HAKO_OR_NO_MEMORY
  // Creates or replaces the file at `path` atomically and durably (file/replace_file.h). An error
  // leaves it unchanged. Unavailable for the file of an open database, including this one;
  // FailedPrecondition if beside the file is a log with updates of a database that was not closed.
  Status Save(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    return ReplaceFile<FileT>(path, [this, &path](FileT& file) -> Status {
      HAKO_RETURN_IF_ERROR(RefuseLogBeside(path));
      return Save(file);
    });
  }
  HAKO_OR_NO_MEMORY

  // For Save of a view of one moment (dbm/snapshot.h), at which the clock showed `now`: saves the records in their stored
  // form that show(add) adds.
  template <class Show>
  Status SaveMoment(const std::string& path, std::uint64_t applied_index, std::uint64_t now, Show&& show) requires PathFile<FileT> {
    return ReplaceFile<FileT>(path, [&](FileT& file) -> Status {
      HAKO_RETURN_IF_ERROR(RefuseLogBeside(path));
      format::SnapshotEnd end;
      end.applied_index = applied_index;
      end.clock = HasClock() ? std::max<std::uint64_t>(now, 1) : 0;
      return storage::SaveSnapshot(file, HasClock(), &end, show).status();
    });
  }

  // Replaces all records, and the applied index, by those of a snapshot. The clock of records that
  // expire is set to at least that of the snapshot (dbm/expiry.h). Changes nothing and returns
  // DataLoss if the snapshot does not validate, OutOfRange if it has a key longer than
  // D::kKeySizeMax, or FailedPrecondition if the log beside it has later updates. A later failure,
  // such as a lack of memory, leaves the database empty. Load is not atomic: a crash may leave a
  // part of its updates.
  template <File F>
  Status Load(F& file) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    std::uint64_t applied_index = 0;
    HAKO_RETURN_IF_ERROR(storage::LoadSnapshot(file, self(), &applied_index));
    return SetAppliedIndex(applied_index);
  }
  HAKO_OR_NO_MEMORY
  Status Load(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    std::uint64_t applied_index = 0;
    HAKO_RETURN_IF_ERROR(storage::LoadSnapshot<FileT>(path, self(), &applied_index));
    return SetAppliedIndex(applied_index);
  }
  HAKO_OR_NO_MEMORY

  // Makes acknowledged updates durable. Hard: writes a snapshot if anything has changed since the
  // last one. Soft: does nothing with a log, else the same as hard. Does nothing without a path.
  using Home::Synchronize;
  // See DatabaseHome. Far cheaper than Synchronize.
  using Home::WaitDurable;
  // See DatabaseHome. Without a path they return OK and true.
  using Home::GetHealth, Home::IsWritable;
  // Writes a last snapshot if anything has changed, and removes the log. Returns the first error.
  // REQUIRES: no other thread uses the database (checked in Seal)
  using Home::Close;

 protected:
  // The first constructor is for a database without a path, the second for one whose file is at
  // `place`. `updates` is the log of space_.
  MemoryHome(DatabaseRecords& records, typename Home::UpdateLog& updates) : Home(records, updates, refusal_, true, Durability::kNone) {}
  MemoryHome(DatabaseRecords& records, typename Home::UpdateLog& updates, SnapshotPlace<FileT> place, LogPlace<LogFile> log,
             const Options& options)
      : Home(records, updates, refusal_, place.IsWritable(), options.durability),
        place_(std::move(place)),
        refusal_(this->writable_ ? absl::OkStatus() : ReadOnlyError()) {
    this->log_place_ = std::move(log);
  }
  ~MemoryHome() = default;

  // D::Open of a path: make(SnapshotPlace, LogPlace) returns the database, which is empty.
  template <class Make>
  static StatusOr<std::unique_ptr<D>> OpenAt(const std::string& path, const Options& options, FileOptions file_options, Make&& make) {
    file_options.beside_readers = false;        // a snapshot is replaced as a whole
    Status checked = D::CheckOptions(options);  // before the content may be dropped
    if (checked.ok() && file_options.mode == OpenMode::kTruncate) checked = Home::CheckNewArchive(options);
    if (!checked.ok()) return Home::WithPath(path, checked);
    HAKO_ASSIGN_OR_RETURN(FileT file, FileT::Open(path, file_options));
    HAKO_ASSIGN_OR_RETURN(const TakeBack taken_back, Home::TakeBackIfNew(file));
    StatusOr<std::unique_ptr<D>> dbm =
        make(SnapshotPlace<FileT>(std::move(file), path, file_options, taken_back), LogPlace<LogFile>(path, file_options, taken_back));
    const Status opened = dbm.ok() ? CatchNoMemory([&] { return (*dbm)->BeginAt(options); }) : dbm.status();
    if (opened.ok()) (*dbm)->KeepFiles();
    if (opened.ok()) return dbm;
    return Home::WithPath(path, opened);
  }
  // Call at the end of D::Open without a path.
  Status Begin(const Options& options) {
    if (LogOptions(options).Archives())
      return absl::InvalidArgumentError("the option log_archive requires a path: without one there is no log");
    HAKO_RETURN_IF_ERROR(BeginTimes(options, Expiry::FirstClock(options)));
    self().ShowEvictions(EvictionVisitorOf(options));
    HAKO_RETURN_IF_ERROR(this->StartThreads(kNoInterval));
    this->BeginThreads(kNoInterval);
    return absl::OkStatus();
  }

  // Clear of D: remove() removes all records, with the writers stopped.
  template <class Remove>
  Status ClearBy(Remove&& remove);
  void AddStats(Stats* stats) const {
    stats->epoch = num_snapshots_.load(std::memory_order_relaxed);
    stats->synced_at = synced_at_.load(std::memory_order_relaxed);
  }
  // Call in the destructor of D in a forked child: leaves the file to the parent. Returns whether
  // there is a file.
  bool AbandonFile() {
    place_.Abandon();
    return place_.is_known();
  }

  // ---- for EngineOperations: with a path, all updates are checked, and followed by AfterUpdate ----
  static constexpr bool AcceptsUpdates() { return true; }
  Status AfterUpdate() {
    if (!changed_.load(std::memory_order_relaxed)) changed_.store(true);
    self().space_->PauseIfLogIsLong();
    return Home::AfterUpdate();
  }

 private:
  // ---- for DatabaseHome ----
  bool SurvivesProcess() const final { return self().space_->log().is_on(); }
  Status SynchronizeLocked() final;
  void SynchronizeInBackground() final;
  void NoteClock(std::uint64_t) final {}
  log::NamedLog LogInFile() const final { return {place_.end().log.id, place_.log().from, secret_, secret_}; }
  // Records may have been evicted since the last snapshot, before updates were logged. So the
  // snapshot that names the log must be written without them.
  Status NameLog(const log::DatabaseId&, log::Position) final {
    sync::MutexLock lock(this->maintenance_mutex_);
    if (self().NumEvictions() != saved_evictions_) changed_ = true;
    return SynchronizeLocked();
  }
  bool MayName(const log::DatabaseId& id, bool has_ended) const final {
    return (place_.end().log.id == id && place_.end().log.HasEnded() == has_ended) || place_.end_is_unknown();
  }
  Status MayReplay() final {
    changed_ = true;
    return absl::OkStatus();
  }
  Status CloseFile() final {
    sync::MutexLock lock(this->maintenance_mutex_);
    return SynchronizeLocked();
  }
  Status CloseDevice() final { return place_.Close(); }
  void SetTakeBack(TakeBack what) final { place_.SetTakeBack(what); }

  // Whether a copy can name its position in a history: the database has an archive, or was opened
  // read-only.
  bool NamesHistory() const {
    const auto& updates = self().space_->log();
    return updates.archive() != nullptr || updates.position().HasEnded();
  }
  // Writes the state of one moment, at which it calls note() with the writers stopped. Starts over
  // if all records are removed meanwhile.
  template <File F, class Note>
  StatusOr<std::uint64_t> SaveState(F& file, format::SnapshotEnd* end, Note&& note) {
    const auto note_all = [&] {
      end->applied_index = self().AppliedIndex();
      end->clock = Clock();
      note();
    };
    const auto show = [&](auto&& add) { return self().ProcessStoredState(note_all, add); };
    for (;;) {
      StatusOr<std::uint64_t> saved = storage::SaveSnapshot(file, HasClock(), end, show);
      if (!absl::IsAborted(saved.status())) return saved;
    }
  }
  // As SaveState; the file also names its position in the history. Holds the mutex so that no
  // snapshot changes the history meanwhile.
  template <File F>
  Status SaveNaming(F& file, format::SnapshotEnd* end) {
    sync::MutexLock lock(this->maintenance_mutex_);
    const auto name = [&] {
      auto& updates = self().space_->log();
      end->log = SnapshotLogOf(updates.NameForCopy(updates.TakePosition()));
    };
    return SaveState(file, end, name).status();
  }

  static constexpr std::chrono::seconds kRetryDelay{1};  // between failed snapshots in the background
  static constexpr std::chrono::milliseconds kNoInterval{0};

  D& self() { return static_cast<D&>(*this); }
  const D& self() const { return static_cast<const D&>(*this); }

  Status SetAppliedIndex(std::uint64_t index) {
    WriteBatch batch;
    batch.SetAppliedIndex(index);
    return self().Write(batch);
  }
  Status BeginTimes(const Options& options, std::uint64_t clock) {
    HAKO_RETURN_IF_ERROR(self().KeepTimes(options, clock));
    if (self().expiry() != nullptr) self().CallAfterUpdates();
    return absl::OkStatus();
  }
  static OwnedFunction<void(std::string_view, std::string_view)> EvictionVisitorOf(const Options& options) {
    if constexpr (requires { options.on_eviction; }) return options.on_eviction;
    return nullptr;
  }
  // For SnapshotEnd.
  bool HasClock() const { return self().expiry() != nullptr; }
  std::uint64_t Clock() const { return HasClock() ? std::max<std::uint64_t>(self().expiry()->Now(), 1) : 0; }
  Status BeginAt(const Options& options);
  Status SaveEvictions();
  Status WriteSnapshot(bool names_log);
  bool SynchronizeSoon() { return !this->closed_ && !self().writers_.IsInherited() && this->WakeBackground().ok(); }

  SnapshotPlace<FileT> place_;  // maintenance_mutex_ is held
  std::uint64_t secret_ = 0;    // of the log
  sync::StickyStatus refusal_;
  std::atomic<bool> changed_{false};   // since the last snapshot began
  std::uint64_t saved_evictions_ = 0;  // before it; maintenance_mutex_ is held
  std::atomic<std::uint64_t> num_snapshots_{0}, synced_at_{0};
  std::chrono::steady_clock::time_point retry_at_;  // of the background thread
};

}  // namespace hako

#include "hako/dbm/memory_snapshot-inl.h"
