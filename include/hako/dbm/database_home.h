// The home of a database: its log, metadata, threads and health, from Open to Close.
//
// The home owns
//   the place of the log, which is the file DATABASE-log beside the database (dbm/log_place.h)
//   the data of the application: type and metadata
//   the mutex that a user of the superblock holds, and the queue of the callers of Synchronize
//   the background thread, which makes checkpoints: at an interval, or when an update wakes it
//   the sweeper, a thread that removes expired records (dbm/expiry.h)
// Open starts the two threads, or the first wake-up does. The interval and the work of the sweeper
// begin once Open has succeeded. Close ends the threads before anything else. The home refers to
// the log itself (log/update_log.h), which is in the space that logs the updates, and to the status
// that says why updates are refused. "Checkpoint" is used as in log/update_log.h.
//
// A database class inherits its home. HashDBM inherits this class, TreeDBM and ArrayDBM inherit
// PoolHome (dbm/pool_home.h), and databases in memory inherit MemoryHome (dbm/memory_home.h). The
// file of a MemoryHome is a snapshot, whose end block serves as the superblock. The home reaches
// the file through its own virtual functions, which these classes override, and the records through
// DatabaseRecords (dbm/database_records.h). An operation on a record calls neither, unless it waits
// until its update is synchronized.
//
// Calls of Synchronize are coalesced: all calls that wait while one of them synchronizes are served
// together by the next synchronization.
//
// Lock order: setter_mutex_; maintenance_mutex_, which is held through the I/O of a checkpoint; the locks of
// the space (include/hako/README.md, 3); innermost metadata_mutex_ or background_mutex_. An update
// that has a bucket or a leaf locked may lock background_mutex_.
//
// Crash order. A new log is durable before a superblock names it; updates are logged from then on.
// Close makes a superblock durable that names no log, and then removes the file of the log.
//
// With an archive (log/log_archive.h) each opening begins a log with another id, which continues the
// LSNs and the sequences of segments. Close archives the log, then makes a superblock durable that
// names the last archived segment (format::kLogEnded), then removes the file. Open does the same with
// the log of a process that has died, after its replay. A database that has an archive can be
// opened for writing only with that archive, or with kNoLogArchive, which ends its history: the
// database then names no log. If an opening with another directory, or with none, fails after such
// a superblock is durable, the superblock stays.
//
// Open for writing examines the log beside the database before it changes anything. It never
// overwrites a log that the file neither names nor has named before (format::LogIdOf).
//
// Threads are started and memory is allocated before a superblock names the new log, so after that
// only calls of the file system can fail in Open. An Open that fails removes the log that it has
// created, unless a failed write or sync leaves it unknown whether a superblock names the log. Such
// a log, or one that a killed process has left, stays until the next Open for writing, which
// continues in it, replaces it or removes it.
//
// Thread-safe, except Open and Close.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/database_records.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/options.h"
#include "hako/dbm/redo_queue.h"
#include "hako/file/file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/log/update_log.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"

namespace hako {

// The options of a database that concern its log.
struct LogOptions {
  // Implicit, from the options of any database. REQUIRES: the options outlive this object
  // (unchecked: a reference does not tell)
  template <class Options>
  LogOptions(const Options& options) : durability(options.durability), log_bytes(options.log_bytes), log_archive(options.log_archive) {}

  // Whether the database is to have an archive.
  bool Archives() const { return !log_archive.empty() && log_archive != kNoLogArchive; }

  const Durability durability;
  const std::uint64_t log_bytes;
  const std::string& log_archive;
};

// See the head of this header. The library compiles the code for its own type of log once
// (src/dbm/database_home.cc).
template <File LogFileT>
class DatabaseHome {
 public:
  // The type of the file of the log.
  using LogFile = LogFileT;

  // Makes acknowledged updates durable: two flushes of the device, shared by concurrent callers;
  // writers are stopped for microseconds. Soft: free on a mapped HashDBM, elsewhere the same as
  // hard. After a failure updates are refused: see GetHealth. An error of the log archive is also
  // returned, although the state is then durable.
  Status Synchronize(SyncMode mode);
  // Returns once all updates before this position survive a power cut: one sync of the log, which
  // concurrent callers share. A position after the last update stands for the last update. Without
  // a log: a hard Synchronize. After a failure updates are refused.
  Status WaitDurable(std::uint64_t lsn);

  // Data of the application in the file beside the records: a number for the type of the content,
  // and UserMetadata. Initially zero. The setters are durable when they return.
  std::uint32_t GetType() const {
    sync::MutexLock lock(metadata_mutex_);
    return type_;
  }
  Status SetType(std::uint32_t type) { return ChangeMetadata(&DatabaseHome::type_, type); }
  UserMetadata GetMetadata() const {
    sync::MutexLock lock(metadata_mutex_);
    return metadata_;
  }
  Status SetMetadata(const UserMetadata& metadata) { return ChangeMetadata(&DatabaseHome::metadata_, metadata); }

  // False if the file was opened read-only.
  bool IsWritable() const { return writable_; }
  // OK, or why updates are refused. After a failed write or sync: FailedPrecondition, until the
  // database is opened again. While the device of a TreeDBM is full: ResourceExhausted; removals, and
  // batches whose records together become no larger, are accepted, and all updates again once there is
  // space. Reads go on in both cases. While the log archive cannot be written: why; updates are
  // accepted as long as the log can grow.
  Status GetHealth() const;

  // Synchronizes and closes the file. The destructor calls it if the application has not. Returns
  // the first error; the file is closed in any case.
  // REQUIRES: no other thread uses the database
  Status Close();
  // Closes the database for a caller whose own opening has failed. If Open created the file,
  // removes it; if the file was blank, makes it blank again. The archive of such a database stays
  // empty.
  Status CloseUnkept() {
    is_unkept_ = log_place_.taken_back() != TakeBack::kNothing;
    SetTakeBack(log_place_.taken_back());
    if (is_unkept_) updates_.Unkeep();
    return Close();
  }

 protected:
  using UpdateLog = log::UpdateLog<LogFile>;
  using Log = log::RecordLog<LogFile>;
  using Archive = log::LogArchive<LogFile>;

  // `refusal` says why updates are refused: the database is read-only, a write or sync has failed,
  // or the device is full, which may pass.
  DatabaseHome(DatabaseRecords& records, UpdateLog& updates, sync::StickyStatus& refusal, bool writable, Durability durability,
               const UserMetadata& metadata = {}, std::uint32_t type = 0)
      : writable_(writable),
        records_(records),
        updates_(updates),
        refusal_(refusal),
        durability_(durability),
        metadata_(metadata),
        type_(type) {}
  DatabaseHome(const DatabaseHome&) = delete;
  DatabaseHome& operator=(const DatabaseHome&) = delete;
  ~DatabaseHome() = default;

  // ---- what depends on the file ----

  // Makes a checkpoint, with maintenance_mutex_ held: makes the state of one moment durable, with a
  // superblock that names the log at that moment.
  virtual Status SynchronizeLocked() = 0;
  // The background thread calls this at its interval, or when it is woken.
  virtual void SynchronizeInBackground() = 0;
  // Whether each update survives the death of the process without a synchronization.
  virtual bool SurvivesProcess() const { return false; }
  // Makes type and metadata durable: see Describe.
  virtual Status StoreMetadata() { return Synchronize(SyncMode::kHard); }
  // The database has seen this time; the next superblock stores it.
  virtual void NoteClock(std::uint64_t latest) = 0;
  // An update was refused, with this status.
  virtual void NoteRefused(const Status&) {}

  // The log that the superblock names.
  virtual log::NamedLog LogInFile() const = 0;
  // Makes all updates so far durable in the file, and a superblock that names this log, to which
  // updates are logged. An error leaves the superblock as it was, unless a write or sync has
  // failed.
  virtual Status NameLog(const log::DatabaseId&, log::Position) { return Checkpoint(); }
  // Call after NameLog or a checkpoint has failed. Returns whether a superblock may name this log,
  // or with `has_ended` its end, in spite of the failure.
  virtual bool MayName(const log::DatabaseId& id, bool has_ended) const = 0;
  // Whether the log may be replayed; called before each run.
  virtual Status MayReplay() = 0;
  // Call before a replay of updates that the file already has.
  virtual void BeginRedoOfAll() {}

  // Makes the file durable, with a superblock that names no log, or the end of the log. The threads
  // of the database have ended.
  virtual Status CloseFile() = 0;
  // Ends the threads of the database.
  virtual void StopThreads();
  virtual Status CloseDevice() = 0;
  // Sets what becomes of the file if it is closed now (UndoableFile).
  virtual void SetTakeBack(TakeBack what) = 0;

  // ---- for Open ----

  // Opens the file at `path`, and the database of class D in it, with its log beside it. Errors name the
  // path. An error leaves no new file, and no change that a later Open would notice. `checked` is
  // an error that is known before the file is opened; it is returned before a truncating mode drops
  // the content.
  template <class D, File FileT, class Options>
  static StatusOr<std::unique_ptr<D>> OpenAt(const std::string& path, const Options& options, const FileOptions& file_options,
                                             Status checked) HAKO_TRY {
    if (checked.ok() && file_options.mode == OpenMode::kTruncate) checked = CheckNewArchive(options);
    if (!checked.ok()) return WithPath(path, checked);
    if constexpr (PathFile<FileT>) {  // clang 14 compiles its caller for other files, too
      StatusOr<FileT> file = FileT::Open(path, FileOptionsFor(options, file_options));
      if (absl::IsUnavailable(file.status()) && file_options.mode == OpenMode::kReadOnly) {
        return absl::UnavailableError(absl::StrCat(file.status().message(),
                                                   ": it cannot be read while it is being written, but its writer can make a copy of it, "
                                                   "to be read (CopyTo)"));
      }
      HAKO_RETURN_IF_ERROR(file.status());
      HAKO_ASSIGN_OR_RETURN(const TakeBack taken_back, TakeBackIfNew(*file));
      StatusOr<std::unique_ptr<D>> dbm = D::Open(*std::move(file), LogPlace<LogFile>(path, file_options, taken_back), options);
      if (!dbm.ok()) return WithPath(path, dbm.status());
      (*dbm)->KeepFiles();
      return dbm;
    }
    return absl::UnimplementedError("the file has no path");
  }
  HAKO_OR_NO_MEMORY
  static Status WithPath(const std::string& path, const Status& status) {
    return Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  // Returns OK if a new database may begin in the archive. Does not change the archive.
  static Status CheckNewArchive(const LogOptions& options) {
    if (!options.Archives()) return absl::OkStatus();
    Archive archive(options.log_archive);
    HAKO_RETURN_IF_ERROR(archive.Lock());
    HAKO_RETURN_IF_ERROR(archive.Load());
    return archive.last().IsNone() ? absl::OkStatus() : NotItsArchiveError(archive, "none");
  }
  // A file that was created or is blank is taken back unless Open ends with KeepFiles. Returns what
  // is taken back.
  template <File FileT>
  static StatusOr<TakeBack> TakeBackIfNew(FileT& file) {
    if constexpr (UndoableFile<FileT>) {
      HAKO_ASSIGN_OR_RETURN(const bool is_blank, storage::HasOnlyZeros(file));
      const TakeBack what = file.WasCreated() ? TakeBack::kFile : is_blank && file.IsWritable() ? TakeBack::kBytes : TakeBack::kNothing;
      file.SetTakeBack(what);
      return what;
    }
    return TakeBack::kNothing;
  }
  void KeepFiles() {
    SetTakeBack(TakeBack::kNothing);
    updates_.Keep();
  }
  // CopyTo of a database of class D into a new file, which replaces the one at `path` and appears
  // whole and durable or not at all. FailedPrecondition if beside it is a log with updates of a
  // database that was not closed.
  template <File FileT, class D>
  Status CopyToPath(D& database, const std::string& path) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(records_.CheckIdle());  // before creating a file
    FileOptions options;
    options.huge_pages = false;  // each would be filled with zeros first, and nobody reads the copy's map
    const auto copy = [&](FileT file) -> Status {
      HAKO_RETURN_IF_ERROR(RefuseLogBeside(path));
      return database.CopyTo(std::move(file));
    };
    if constexpr (PathFile<FileT>) return ReplaceFile<FileT>(path, copy, options);
    return absl::UnimplementedError("the file has no path");
  }
  HAKO_OR_NO_MEMORY
  // The type of a new file. REQUIRES: no other thread uses the database (unchecked: Open has not returned it yet)
  void BeginType(std::uint32_t type) {
    sync::MutexLock lock(metadata_mutex_);
    type_ = type;
  }
  // Replays the updates that the file lacks. With `has_all` the file has them all, but need not be
  // durable yet. Then begins a log if the database `logs` its updates, else makes the file durable
  // without a log.
  Status OpenLog(bool logs, bool has_all, const LogOptions& options);
  // Starts the threads that the database needs: the background thread if there is an interval, the
  // sweeper if records may expire. Call before OpenLog, because the threads need memory.
  Status StartThreads(std::chrono::milliseconds interval);
  // Call at the end of Open, when nothing can fail: lets the threads begin their work.
  void BeginThreads(std::chrono::milliseconds interval) {
    closed_ = false;
    sync::MutexLock lock(background_mutex_);
    if (writable_ && interval.count() > 0) background_->SetInterval(interval);
  }

  // ---- for operations on records ----

  Status MayUpdate() {
    const Status refusal = refusal_.Get();
    if (!refusal.ok()) [[unlikely]]
      NoteRefused(refusal);
    return refusal;
  }
  // Removals are accepted while only space is lacking, because they free space.
  Status MayRemove() {
    const Status refusal = MayUpdate();
    return absl::IsResourceExhausted(refusal) ? absl::OkStatus() : refusal;
  }
  // Call after an update of this thread: synchronizes it if every update must be.
  Status AfterUpdate() {
    if (!SyncsEachUpdate()) return absl::OkStatus();
    const std::uint64_t* const lsn = records_.LsnOfThread();
    return WaitDurable(lsn != nullptr ? *lsn : 0);
  }
  bool SyncsEachUpdate() const { return durability_ == Durability::kPower; }
  // Passes the time of records that expire (dbm/expiry.h) to the next superblock. Then, if a record
  // was reported absent since the last call, appends the time to the log. In this order a
  // checkpoint whose log position is after that entry has the time.
  void KeepTime();

  // ---- for checkpoints ----

  Status Checkpoint() {
    sync::MutexLock lock(maintenance_mutex_);
    return SynchronizeLocked();
  }
  // Serves all calls of Synchronize that have begun.
  Status SynchronizeNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mutex_);
  bool IsSynchronizeWaiting() const { return num_waiting_.load(std::memory_order_relaxed) != 0; }
  // Stores type and metadata in `super`.
  template <class SuperBlock>
  void Describe(SuperBlock& super) const {
    sync::MutexLock lock(metadata_mutex_);
    super.metadata = metadata_;
    super.type = type_;
  }
  // Wakes the background thread, which the first call starts, from any thread. ResourceExhausted if
  // the system has none; later calls try again.
  Status WakeBackground();

  DatabaseRecords& records() const { return records_; }

  const bool writable_;
  std::atomic<bool> closed_{true};  // Close writes nothing unless Open has succeeded
  // Held by each user of the superblock: a synchronization, a pin, a step of a rebuild.
  sync::Mutex maintenance_mutex_;
  LogPlace<LogFile> log_place_;

 private:
  // Only one setter runs at a time, so that a setter that fails and restores the old value does not
  // undo another one.
  template <class T>
  Status ChangeMetadata(T DatabaseHome::*field, const T& value);
  Status CloseWritable();
  // Does nothing if the thread runs: a checkpoint during a replay, or an update, may have started
  // it.
  Status StartBackground() ABSL_EXCLUSIVE_LOCKS_REQUIRED(background_mutex_);

  // ---- the log: dbm/database_home-inl.h ----
  log::ZeroFill ZeroFill() const { return SyncsEachUpdate() ? log::ZeroFill::kPages : log::ZeroFill::kBlocks; }
  Status CheckBeside(const log::NamedLog& named, bool has_all, bool may_end) const;
  static Status NotItsArchiveError(const Archive& archive, const std::string& place) {
    return absl::FailedPreconditionError(absl::StrCat("the log archive ", archive.directory(), " ends with segment ",
                                                      archive.last().sequence, ", and the history of the database with ", place,
                                                      ": it is the archive of another database, or this one is an older copy, or its "
                                                      "history has ended; use an empty directory"));
  }
  StatusOr<std::unique_ptr<Archive>> OpenArchive(const LogOptions& options, const log::NamedLog& named);
  static Status ContinueIn(Archive& archive, const log::NamedLog& named);
  Status ContinueHistory(const log::NamedLog& named, std::unique_ptr<Log> left, std::unique_ptr<Archive> archive, std::uint64_t log_bytes);
  // The next superblock will name this segment, up to this LSN, as the end of the history.
  void NoteEnd(const log::Link& last, log::Lsn lsn) {
    updates_.Name(last.log, last.IsNone() ? log::Position{} : log::EndedPosition(last, lsn));
  }
  Status Begin(std::unique_ptr<Log>& log, std::uint64_t log_bytes);
  Status StartNew(std::uint64_t log_bytes, const log::Link* last, log::Lsn lsn);
  // `last` is the end of the history that the log continues; nullptr = none.
  StatusOr<std::unique_ptr<Log>> CreateLog(const log::Link* last, log::Lsn lsn);

  // ---- replay of updates: dbm/database_replay-inl.h ----
  StatusOr<std::unique_ptr<Log>> Replay(const log::NamedLog& named, bool has_all);
  Status MakeRestored(UpdateSource& source);
  void RequestPass();
  Status RedoTime(std::span<const format::LogEntry> run);
  Status RedoQueued(RedoQueue* queue);

  static constexpr std::chrono::milliseconds kSweepInterval{100};

  DatabaseRecords& records_;
  UpdateLog& updates_;
  sync::StickyStatus& refusal_;
  const Durability durability_;
  bool is_unkept_ = false;  // whether Close takes the database back
  std::atomic<bool> stops_sweeper_{false};
  sync::BackgroundThread::Pointer sweeper_;
  sync::Mutex background_mutex_;
  sync::BackgroundThread::Pointer background_;
  bool stops_threads_ ABSL_GUARDED_BY(background_mutex_) = false;
  sync::Mutex setter_mutex_ ABSL_ACQUIRED_BEFORE(maintenance_mutex_);
  mutable sync::Mutex metadata_mutex_ ABSL_ACQUIRED_AFTER(maintenance_mutex_);
  UserMetadata metadata_ ABSL_GUARDED_BY(metadata_mutex_);
  std::uint32_t type_ ABSL_GUARDED_BY(metadata_mutex_);
  std::atomic<std::uint64_t> sync_calls_{0};                            // calls of Synchronize that have begun
  std::uint64_t synced_calls_ ABSL_GUARDED_BY(maintenance_mutex_) = 0;  // number of the last call already served
  std::atomic<int> num_waiting_{0};                                     // callers that wait for maintenance_mutex_
  std::uint64_t logged_time_ = 0;                                       // the last time that KeepTime logged
};

}  // namespace hako

#include "hako/dbm/database_home-inl.h"
#include "hako/dbm/database_replay-inl.h"

namespace hako {

// Compiled in the library, where programs would otherwise compile it again.
extern template class DatabaseHome<MemoryMapParallelFile>;

}  // namespace hako
