// The operations of the DBMs that may keep a log of their updates (log/update_log.h) in a file beside
// the database, from Open to Close: those in files, and those in memory with a path, whose file is a
// snapshot and has no superblock but its end (dbm/memory_operations.h).
//
// A DBM class D inherits LogOperations<D, FileT, Options> publicly (CRTP) in place of
// FileOperations, which it is, too. D provides what FileOperations asks for, and
//   LogInFile()          the log that the superblock names
//   NameLog(id, from)    makes a superblock durable that names this log, which is that of
//                        space_->log(), and a file that has all updates made so far
//   MayReplay()          whether the log may be replayed; called before each run
//   Redo(writer, entry)  makes an update again; RedoMulti several in one step, as a ProcessMulti
//   CloseFile()          makes the file durable, with a superblock that names the log of
//                        space_->log().id(), which is none
//   LoadForRedo(keys), PrefetchForRedo(keys)  prepare for many Redo, and for the next few of them
//   MayName(id, ended)   after NameLog, or a synchronization, has failed: whether a superblock may name
//                        this log, or its end, all the same
//   BeginRedoOfAll()     before updates are made again that the file has; only where it may have them
//   RefuseUpdates(why)   after a failure of the log
//   space_->log()        the log::UpdateLog
//
// Crash order. A new log is durable before a superblock names it; updates are logged from then on.
// Close makes a superblock durable that names no log, and then removes the file.
//
// With an archive (log/log_archive.h) each opening begins a log with another id, which continues the
// LSNs and the sequences of segments. Close archives the log, then makes a superblock durable that
// names the last archived segment (format::kLogEnded), then removes the file. Open does the same with
// the log of a process that has died, after its replay. A database that has an archive is opened for
// writing with it, or with kNoLogArchive: then it names no log any more, and its history ends.
//
// Open for writing looks at the log beside the database before it changes anything: one that is neither
// named nor a former one of this file (format::LogIdOf) is never overwritten.
//
// Threads: any, except Open and Close.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/file_operations.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/options.h"
#include "hako/dbm/redo_queue.h"
#include "hako/file/file.h"
#include "hako/log/update_log.h"
#include "hako/storage/superblock_slots.h"

namespace hako {

// The operations: see the head of this header.
//
// Inherits FileOperations (dbm/file_operations.h).
template <class D, File FileT, class Options>
class LogOperations : public FileOperations<D, FileT, Options> {
  using Files = FileOperations<D, FileT, Options>;

 public:
  // The type of the file of the log.
  using LogFile = log::LogFileOf<FileT>;

  // Opens the file at `path`, and its log beside it; then as D::Open of a file. Errors name the path. An
  // error leaves no file that was not there, and nothing changed that a later Open would notice.
  static StatusOr<std::unique_ptr<D>> Open(const std::string& path, const Options& options = {},
                                           const FileOptions& file_options = {}) requires PathFile<FileT> HAKO_TRY {
    const auto with_path = [&path](const Status& status) { return Status(status.code(), absl::StrCat(path, ": ", status.message())); };
    if constexpr (requires { D::CheckAccepted(path, options, file_options); }) {
      if (const Status checked = D::CheckAccepted(path, options, file_options); !checked.ok()) return with_path(checked);
    }
    HAKO_ASSIGN_OR_RETURN(FileT file, FileT::Open(path, FileOptionsFor(options, file_options)));
    HAKO_ASSIGN_OR_RETURN(const TakeBack taken_back, TakeBackIfNew(file));
    auto dbm = D::Open(std::move(file), LogPlace<LogFile>(path, file_options, taken_back), options);
    if (!dbm.ok()) return with_path(dbm.status());
    (*dbm)->KeepFiles();
    return dbm;
  }
  HAKO_OR_NO_MEMORY
  // Opens the database in `file`, without a log.
  static StatusOr<std::unique_ptr<D>> Open(FileT file, const Options& options = {}) {
    return D::Open(std::move(file), LogPlace<LogFile>(), options);
  }
  // The same with a log: an empty file, or the log of this database. DataLoss if it lacks updates.
  static StatusOr<std::unique_ptr<D>> Open(FileT file, LogFile log, const Options& options = {}) {
    return D::Open(std::move(file), LogPlace<LogFile>(std::move(log)), options);
  }

  // The position in the log behind the last update of the calling thread; 0 without a log.
  std::uint64_t LastLsn() {
    const auto* const writer = self().writers_.Mine();
    return writer != nullptr ? writer->lsn : 0;
  }
  // Returns once all updates before this position survive a power cut: one sync of the log, which
  // concurrent callers share. A position behind the last update means that one. Without a log: a hard
  // Synchronize. After a failure updates are refused.
  Status WaitDurable(std::uint64_t lsn) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    if (!updates().is_on()) return this->Synchronize(SyncMode::kHard);
    Status status = updates().WaitDurable(lsn);
    if (!status.ok() && !updates().Health().ok()) self().RefuseUpdates(updates().Health());
    return status;
  }
  HAKO_OR_NO_MEMORY

  // Closes the database, for a caller whose own opening fails after it: if Open has created it, its file
  // is removed, and if it was blank, it is so again.
  Status CloseUnkept() {
    if constexpr (UndoableFile<FileT>) self().file().SetTakeBack(log_place_.taken_back());
    return this->Close();
  }

 protected:
  using Log = log::RecordLog<LogFile>;
  friend Files;
  using Files::Files;
  using Files::maintenance_mutex_;
  using Files::writable_;

  // Whether the database is to have an archive.
  static bool Archives(const Options& options) { return !options.log_archive.empty() && options.log_archive != kNoLogArchive; }
  // A file that is new, created or blank, is taken back unless Open calls KeepFiles at its end. Returns
  // what is taken back of it.
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
    if constexpr (UndoableFile<FileT>) self().file().SetTakeBack(TakeBack::kNothing);
    updates().Keep();
  }

  // Makes the updates again that the file lacks, unless it has_all: then it need not be durable yet.
  // Then, if the database `logs` its updates, begins a log, else makes the file durable without one.
  Status OpenLog(bool logs, bool has_all, const Options& options);
  // For FileOperations.
  Status CloseWritable();
  Status ArchiveHealth() const { return static_cast<const D&>(*this).space_->log().ArchiveHealth(); }
  Status RetryArchive() {
    this->maintenance_mutex_.AssertHeld();
    return updates().RetryArchive();
  }

  // Notes the time of records that expire (dbm/expiry.h): for the next superblock, then, if a record has
  // been reported absent since, in the log. So a checkpoint that has a position behind the entry has the
  // time. For EngineOperations.
  void KeepTime() {
    const std::uint64_t reported = self().expiry()->reported(), time = self().expiry()->Now();
    self().NoteClock(time);
    if (reported <= logged_time_ || !updates().is_on()) return;
    const Le<std::uint64_t> word = time;
    log::Lsn lsn = 0;
    if (updates().Append(format::LogEntry{format::LogOp::kTime, {}, {reinterpret_cast<const char*>(&word), sizeof(word)}}, &lsn).ok())
      logged_time_ = time;
  }

  // Makes the updates of a run in one step, as they were made. A checkpoint that runs meanwhile may
  // become durable while the rest of the log does not, so it has all of the run or nothing.
  template <class WriterState>
  Status RedoTogether(WriterState& writer, std::span<const format::LogEntry> run);

  LogPlace<LogFile> log_place_;

 private:
  // Of the log of a killed process.
  Status RedoTime(std::span<const format::LogEntry> run);
  void RequestPass();

  D& self() { return static_cast<D&>(*this); }
  auto& updates() { return self().space_->log(); }

  Status Checkpoint() {
    sync::MutexLock lock(maintenance_mutex_);
    return self().SynchronizeLocked();
  }
  log::ZeroFill ZeroFill() const { return this->SyncsEachUpdate() ? log::ZeroFill::kPages : log::ZeroFill::kBlocks; }
  using Archive = log::LogArchive<LogFile>;
  Status CheckBeside(const log::NamedLog& named, bool has_all, bool may_end) const;
  StatusOr<std::unique_ptr<Archive>> OpenArchive(const Options& options, const log::NamedLog& named);
  Status ContinueHistory(const log::NamedLog& named, std::unique_ptr<Log> left, std::unique_ptr<Archive> archive, std::uint64_t log_bytes);
  // The next superblock names the end of the history: this segment, up to this LSN.
  void NoteEnd(const log::Link& last, log::Lsn lsn) {
    updates().Name(last.log, last.IsNone() ? log::Position{} : log::EndedPosition(last, lsn));
  }
  Status Begin(std::unique_ptr<Log>& log, std::uint64_t log_bytes);
  Status StartNew(std::uint64_t log_bytes, const log::Link* last, log::Lsn lsn);
  // `last`: the end of the history that the log continues; nullptr = none.
  StatusOr<std::unique_ptr<Log>> CreateLog(const log::Link* last, log::Lsn lsn);
  // The log that the superblock named, if it exists.
  std::unique_ptr<Log> FindUnread(const log::NamedLog& named) {
    StatusOr<LogFile> file = log_place_.OpenExisting(true);
    auto log = file.ok() ? Log::Open(*std::move(file), named.id, named.secret) : StatusOr<std::unique_ptr<Log>>(file.status());
    return log.ok() ? *std::move(log) : nullptr;
  }
  StatusOr<std::unique_ptr<Log>> Replay(const log::NamedLog& named, bool has_all);
  template <class WriterState>
  Status RedoRun(WriterState& writer, std::span<const format::LogEntry> run) {
    return run.size() == 1 ? self().Redo(writer, run.front()) : RedoTogether(writer, run);
  }
  template <class WriterState>
  Status RedoQueued(WriterState& writer, RedoQueue* queue);
  Status MakeRestored(UpdateSource& source);

  std::uint64_t logged_time_ = 0;  // of KeepTime
};

template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::OpenLog(bool logs, bool has_all, const Options& options) {
  if (UpdateSource* const source = log_place_.source(); source != nullptr) return MakeRestored(*source);
  const log::NamedLog named = self().LogInFile();
  const bool archives = Archives(options) && writable_;
  if (writable_) HAKO_RETURN_IF_ERROR(CheckBeside(named, has_all, !options.log_archive.empty()));
  std::unique_ptr<Archive> archive;
  if (archives) {
    HAKO_ASSIGN_OR_RETURN(archive, OpenArchive(options, named));
  }
  if (!named.IsNone()) updates().Name(named.id, named.from);
  logs = logs && log_place_.is_known();
  std::unique_ptr<Log> log;
  // With an archive the log is replayed although the file has_all: it may have an update more, which its
  // writer did not complete, and the file is to agree with the archive.
  if (named.IsNeeded() && (!has_all || archives)) {
    HAKO_ASSIGN_OR_RETURN(log, Replay(named, has_all));
  }
  if (!writable_) return log != nullptr ? log->Close() : absl::OkStatus();
  if (archives) return ContinueHistory(named, std::move(log), std::move(archive), options.log_bytes);
  if (logs && log != nullptr) {
    const Status begun = Begin(log, options.log_bytes);
    if (!absl::IsResourceExhausted(begun)) return begun;
  }
  updates().Name({}, {});
  // A log that is not needed or not wanted any more, or has no space, is replaced by a checkpoint. One that
  // has ended has no file, so the new log takes its place in one step.
  if (named.IsNeeded() || (named.HasEnded() && !logs)) {
    HAKO_RETURN_IF_ERROR(Checkpoint());
    if (log == nullptr && !logs) log = FindUnread(named);
    if (log != nullptr) {
      HAKO_RETURN_IF_ERROR(log->Close());
      HAKO_RETURN_IF_ERROR(log_place_.Remove());
    }
  }
  return logs ? StartNew(options.log_bytes, nullptr, 0) : absl::OkStatus();
}

// Whether the database may be opened for writing beside what lies there. `may_end`: with its archive, or
// to end its history. The replay reports another log in place of one that it needs.
template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::CheckBeside(const log::NamedLog& named, bool has_all, bool may_end) const {
  const auto is_mine = [&named](const log::DatabaseId& id) { return id == named.id || format::IsLogIdOf(id, named.owner); };
  HAKO_ASSIGN_OR_RETURN(const auto found, log_place_.Look(is_mine));
  if (!named.IsNeeded() || has_all) HAKO_RETURN_IF_ERROR(log_place_.RefuseOther(found));
  const bool has_archive = (named.HasEnded() && !named.IsOfCopy()) || (named.IsNeeded() && found.has_history);
  if (!has_archive || may_end) return absl::OkStatus();
  const std::string last = named.HasEnded() ? absl::StrCat(", whose last segment is ", log::ArchiveNameOf(named.link().sequence)) : "";
  return absl::FailedPreconditionError(absl::StrCat("the database has a log archive", last,
                                                    ", and was opened for writing without it: name its "
                                                    "directory by log_archive, or end its history by log_archive=",
                                                    ToAbsl(kNoLogArchive)));
}

// Goes on in a log that was replayed. ResourceExhausted, with the log left there, if it has no space.
template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::Begin(std::unique_ptr<Log>& log, std::uint64_t log_bytes) {
  // Or many crashes would fill the device. A checkpoint of a long log takes long.
  static constexpr std::size_t kManySegments = 4;
  static constexpr std::uint64_t kShortLog = 8 << 20;
  const std::size_t more = log->num_segments() - std::min(log->num_segments(), kManySegments);
  const bool is_short = log->position().lsn - self().LogInFile().from.lsn <= kShortLog;
  if (more > (is_short ? 0 : 2 * log_bytes / format::kLogSegmentMax)) {
    if (Status status = Checkpoint(); !status.ok() && !absl::IsResourceExhausted(status)) return status;
  }
  const log::Position from = self().LogInFile().from;
  log->set_has_times(self().expiry() != nullptr);
  HAKO_RETURN_IF_ERROR(log->Begin(from, ZeroFill()));
  updates().Start(std::move(log), log_bytes, from);
  return absl::OkStatus();
}

template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::StartNew(std::uint64_t log_bytes, const log::Link* last, log::Lsn lsn) {
  HAKO_ASSIGN_OR_RETURN(auto log, CreateLog(last, lsn));
  const log::Position begin = log->position();
  const Status named = self().NameLog(updates().id(), begin);
  if (!named.ok() && !self().MayName(updates().id(), false)) return named;
  if (log_place_.taken_back() == TakeBack::kNothing) log->Keep();
  HAKO_RETURN_IF_ERROR(named);
  updates().Start(std::move(log), log_bytes, begin);
  return absl::OkStatus();
}

// Opens the archive, which must be empty or end where the history of the database does. With a log
// that was not closed FindUnarchived compares them.
template <class D, File FileT, class Options>
auto LogOperations<D, FileT, Options>::OpenArchive(const Options& options, const log::NamedLog& named)
    -> StatusOr<std::unique_ptr<Archive>> {
  if (options.durability == Durability::kNone)
    return absl::InvalidArgumentError("log_archive requires a log, which Durability::kNone does without");
  if (!log_place_.is_known()) return absl::InvalidArgumentError("log_archive requires a log, and the database has no path");
  auto archive = std::make_unique<Archive>(options.log_archive);
  HAKO_RETURN_IF_ERROR(archive->Lock(log_place_.database()));
  HAKO_RETURN_IF_ERROR(archive->Load());
  if (named.IsNeeded()) return archive;
  const log::Link last = named.link();
  if (archive->last().IsNone()) {
    archive->set_last(last);
  } else if (!archive->EndsAt(last, named.from.lsn)) {
    const std::string place = archive->last() == last ? absl::StrCat("LSN ", named.from.lsn, ", within it")
                              : last.sequence == 0    ? "none"
                                                      : absl::StrCat("segment ", last.sequence);
    return absl::FailedPreconditionError(absl::StrCat("the log archive ", archive->directory(), " ends with segment ",
                                                      archive->last().sequence, ", and the history of the database with ", place,
                                                      ": it is the archive of another database, or this one is an older copy, or its "
                                                      "history has ended; use an empty directory"));
  }
  return archive;
}

template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::ContinueHistory(const log::NamedLog& named, std::unique_ptr<Log> left,
                                                         std::unique_ptr<Archive> archive, std::uint64_t log_bytes) {
  log::Lsn lsn = named.HasEnded() ? named.from.lsn : 0;
  if (left != nullptr) {
    HAKO_RETURN_IF_ERROR(left->FindUnarchived(*archive));
    if (const Status archived = left->Archive(*archive, Log::kAll); !archived.ok()) {  // the next checkpoint tries again
      updates().set_archive(std::move(archive));
      updates().NoteArchiveFailure(archived);
      const Status begun = CatchNoMemory([&] { return Begin(left, log_bytes); });
      begun.ok() ? updates().archive()->Keep() : updates().archive()->TakeBack();
      return begun;
    }
    lsn = left->tail();
    NoteEnd(archive->last(), lsn);
    const Status ended = CatchNoMemory([&] { return Checkpoint(); });
    if (!ended.ok() && !self().MayName(updates().id(), true)) archive->TakeBack();
    HAKO_RETURN_IF_ERROR(ended);
    HAKO_RETURN_IF_ERROR(left->Close());
    HAKO_RETURN_IF_ERROR(log_place_.Remove());
  }
  const log::Link last = archive->last();
  archive->Keep();
  updates().set_archive(std::move(archive));
  return StartNew(log_bytes, &last, lsn);
}

// If the archive cannot be written, the database still names its log, which stays there.
template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::CloseWritable() {
  Status archived;
  bool keeps_log = false;
  if (updates().is_on() && updates().archive() != nullptr) {
    archived = updates().WaitDurable(~log::Lsn{0});
    if (archived.ok()) {
      archived = updates().ArchiveAll();
      keeps_log = !archived.ok();
    }
  }
  const std::unique_ptr<Log> log = updates().Stop();
  if (log != nullptr && updates().archive() != nullptr && archived.ok()) {
    NoteEnd(updates().archive()->last(), log->tail());
  } else if (!keeps_log && !updates().position().HasEnded()) {
    updates().set_id({});
  }
  Status status = self().CloseFile();
  if (updates().archive() != nullptr) updates().archive()->Unlock();
  if (log == nullptr) return status;
  status.Update(log->Close());
  if (status.ok() && !keeps_log) status = log_place_.Remove();
  return status.ok() ? archived : status;
}

// Creates a log of a new id, which the superblock does not name yet.
template <class D, File FileT, class Options>
auto LogOperations<D, FileT, Options>::CreateLog(const log::Link* last, log::Lsn lsn) -> StatusOr<std::unique_ptr<Log>> {
  const log::DatabaseId id = format::LogIdOf(RandomSeed(), self().LogInFile().owner);
  HAKO_ASSIGN_OR_RETURN(LogFile file, log_place_.Create());
  HAKO_ASSIGN_OR_RETURN(auto log, Log::Open(std::move(file), id, self().LogInFile().secret));
  if (last != nullptr) log->ContinueHistory(*last, lsn);
  log->set_has_times(self().expiry() != nullptr);
  HAKO_RETURN_IF_ERROR(log->Begin({}, ZeroFill()));
  updates().Name(id, log->position());
  return log;
}

}  // namespace hako

#include "hako/dbm/log_replay-inl.h"
