// Definitions of dbm/database_home.h: synchronization, the threads, and the log, from Open to Close.
#pragma once

#include <algorithm>

#include "hako/base/random_seed.h"
#include "hako/dbm/database_home.h"

namespace hako {

// ---- synchronization ----

template <File LogFileT>
Status DatabaseHome<LogFileT>::Synchronize(SyncMode mode) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(records_.CheckIdle());
  if (!writable_ || (mode == SyncMode::kSoft && SurvivesProcess())) return refusal_.Get();
  const std::uint64_t call = sync_calls_.fetch_add(1, std::memory_order_acq_rel) + 1;
  num_waiting_.fetch_add(1, std::memory_order_relaxed);
  sync::MutexLock lock(maintenance_mutex_);
  num_waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (call > synced_calls_) HAKO_RETURN_IF_ERROR(SynchronizeNow());  // else a synchronization that began after this call has covered it
  return updates_.RetryArchive();
}
HAKO_OR_NO_MEMORY

template <File LogFileT>
Status DatabaseHome<LogFileT>::SynchronizeNow() {
  const std::uint64_t covered = sync_calls_.load(std::memory_order_acquire);
  HAKO_RETURN_IF_ERROR(SynchronizeLocked());
  synced_calls_ = covered;
  return absl::OkStatus();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::WaitDurable(std::uint64_t lsn) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(records_.CheckIdle());
  if (!updates_.is_on()) return Synchronize(SyncMode::kHard);
  Status status = updates_.WaitDurable(lsn);
  if (!status.ok() && !updates_.Health().ok()) refusal_.Set(updates_.Health());
  return status;
}
HAKO_OR_NO_MEMORY

template <File LogFileT>
Status DatabaseHome<LogFileT>::GetHealth() const {
  HAKO_RETURN_IF_ERROR(records_.CheckOpen());
  if (!writable_) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(refusal_.Get());
  return updates_.ArchiveHealth();
}

template <File LogFileT>
template <class T>
Status DatabaseHome<LogFileT>::ChangeMetadata(T DatabaseHome::*field, const T& value) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(records_.CheckIdle());
  HAKO_RETURN_IF_ERROR(MayUpdate());
  const auto exchange = [&](const T& with) {
    sync::MutexLock lock(metadata_mutex_);
    return std::exchange(this->*field, with);
  };
  sync::MutexLock setter_lock(setter_mutex_);
  const T before = exchange(value);
  Status status = StoreMetadata();
  if (!status.ok()) exchange(before);
  return status;
}
HAKO_OR_NO_MEMORY

template <File LogFileT>
void DatabaseHome<LogFileT>::KeepTime() {
  const std::uint64_t reported = records_.expiry()->reported(), time = records_.expiry()->Now();
  NoteClock(time);
  if (reported <= logged_time_ || !updates_.is_on()) return;
  const Le<std::uint64_t> word = time;
  log::Lsn lsn = 0;
  const format::LogEntry entry{format::LogOp::kTime, {}, {reinterpret_cast<const char*>(&word), sizeof(word)}};
  if (updates_.Append(entry, &lsn).ok()) logged_time_ = time;
}

// ---- threads ----

template <File LogFileT>
Status DatabaseHome<LogFileT>::StartBackground() {
  if (background_ != nullptr) return absl::OkStatus();
  const auto work = [this] { SynchronizeInBackground(); };
  HAKO_ASSIGN_OR_RETURN(background_, sync::BackgroundThread::Start(std::chrono::milliseconds{0}, work));
  return absl::OkStatus();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::WakeBackground() {
  sync::MutexLock lock(background_mutex_);
  if (stops_threads_) return absl::OkStatus();
  const auto start = [this] {
    background_mutex_.AssertHeld();
    return StartBackground();
  };
  HAKO_RETURN_IF_ERROR(CatchNoMemory(start));
  background_->Wake();
  return absl::OkStatus();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::StartThreads(std::chrono::milliseconds interval) {
  if (!writable_) return absl::OkStatus();
  if (interval.count() > 0) {
    sync::MutexLock lock(background_mutex_);
    HAKO_RETURN_IF_ERROR(StartBackground());
  }
  if (records_.expiry() == nullptr || records_.expiry()->IsOfCopy()) return absl::OkStatus();
  const auto work = [this] {
    if (!closed_) records_.SweepInBackground(stops_sweeper_);
  };
  HAKO_ASSIGN_OR_RETURN(sweeper_, sync::BackgroundThread::Start(kSweepInterval, work));
  return absl::OkStatus();
}

template <File LogFileT>
void DatabaseHome<LogFileT>::StopThreads() {
  stops_sweeper_ = true;
  sweeper_ = nullptr;
  sync::BackgroundThread::Pointer stopping;
  sync::MutexLock lock(background_mutex_);
  stops_threads_ = true;
  stopping.swap(background_);  // joined after the mutex is unlocked
}

// ---- Close ----

template <File LogFileT>
Status DatabaseHome<LogFileT>::Close() {
  if (closed_.exchange(true)) return absl::OkStatus();
  if (Status inherited = records_.CheckOpen(); !inherited.ok()) {
    records_.Seal();
    return inherited;
  }
  StopThreads();
  Status status = writable_ ? CatchNoMemory([this] { return CloseWritable(); }) : absl::OkStatus();
  records_.Seal();
  status.Update(CloseDevice());
  return status;
}

// If the archive cannot be written, the database still names its log, and the file of the log
// stays.
template <File LogFileT>
Status DatabaseHome<LogFileT>::CloseWritable() {
  Status archived;
  bool keeps_log = false;
  if (updates_.is_on() && updates_.archive() != nullptr && !is_unkept_) {
    archived = updates_.WaitDurable(~log::Lsn{0});
    if (archived.ok()) {
      archived = updates_.ArchiveAll();
      keeps_log = !archived.ok();
    }
  }
  const std::unique_ptr<Log> log = updates_.Stop();
  if (log != nullptr && updates_.archive() != nullptr && archived.ok()) {
    NoteEnd(updates_.archive()->last(), log->tail());
  } else if (!keeps_log && !updates_.position().HasEnded()) {
    updates_.set_id({});
  }
  Status status = CloseFile();
  if (updates_.archive() != nullptr) updates_.archive()->Unlock();
  if (log == nullptr) return status;
  status.Update(log->Close());
  if (status.ok() && !keeps_log) status = log_place_.Remove();
  return status.ok() ? archived : status;
}

// ---- the log that Open begins ----

template <File LogFileT>
Status DatabaseHome<LogFileT>::OpenLog(bool logs, bool has_all, const LogOptions& options) {
  if (UpdateSource* const source = log_place_.source(); source != nullptr) return MakeRestored(*source);
  const log::NamedLog named = LogInFile();
  const bool archives = options.Archives() && writable_;
  if (writable_) HAKO_RETURN_IF_ERROR(CheckBeside(named, has_all, !options.log_archive.empty()));
  std::unique_ptr<Archive> archive;
  if (archives) {
    HAKO_ASSIGN_OR_RETURN(archive, OpenArchive(options, named));
  }
  if (!named.IsNone()) updates_.Name(named.id, named.from);
  logs = logs && log_place_.is_known();
  std::unique_ptr<Log> log;
  // With an archive the log is replayed even if the file has_all. The log may have one more update,
  // which its writer did not complete, and the file must agree with the archive.
  if (named.IsNeeded() && (!has_all || archives)) {
    StatusOr<std::unique_ptr<Log>> replayed = Replay(named, has_all);
    // A reader beside a writer shows the checkpoint.
    if (absl::IsUnavailable(replayed.status()) && log_place_.may_be_in_use()) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(log, std::move(replayed));
  }
  if (!writable_) return log != nullptr ? log->Close() : absl::OkStatus();
  if (archives) return ContinueHistory(named, std::move(log), std::move(archive), options.log_bytes);
  if (logs && log != nullptr) {
    const Status begun = Begin(log, options.log_bytes);
    if (!absl::IsResourceExhausted(begun)) return begun;
  }
  updates_.Name({}, {});
  // A checkpoint replaces a log that is no longer needed or wanted, or that has no space. A log
  // that has ended has no file, so a new log replaces it in one step.
  if (named.IsNeeded() || (named.HasEnded() && !logs)) {
    HAKO_RETURN_IF_ERROR(Checkpoint());
    if (log != nullptr) {
      HAKO_RETURN_IF_ERROR(log->Close());
      HAKO_RETURN_IF_ERROR(log_place_.Remove());
    }
  }
  if (logs) return StartNew(options.log_bytes, nullptr, 0);
  log_place_.RemoveUnneeded();
  return absl::OkStatus();
}

// Returns OK if the database may be opened for writing, given the log that is beside it. `may_end`:
// it is opened with its archive, or to end its history. If the database needs its log and another
// one is in the place, the replay reports that.
template <File LogFileT>
Status DatabaseHome<LogFileT>::CheckBeside(const log::NamedLog& named, bool has_all, bool may_end) const {
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

// Continues in a log that was replayed. If the log has no space, returns ResourceExhausted and
// leaves the log in place.
template <File LogFileT>
Status DatabaseHome<LogFileT>::Begin(std::unique_ptr<Log>& log, std::uint64_t log_bytes) {
  // Without a checkpoint after some openings, many crashes would fill the device. A long log is
  // allowed more segments, because its checkpoint takes long.
  static constexpr std::size_t kManySegments = 4;
  static constexpr std::uint64_t kShortLog = 8 << 20;
  const std::size_t more = log->num_segments() - std::min(log->num_segments(), kManySegments);
  const bool is_short = log->position().lsn - LogInFile().from.lsn <= kShortLog;
  if (more > (is_short ? 0 : 2 * log_bytes / format::kLogSegmentMax)) {
    if (Status status = Checkpoint(); !status.ok() && !absl::IsResourceExhausted(status)) return status;
  }
  const log::Position from = LogInFile().from;
  log->set_has_times(records_.expiry() != nullptr);
  HAKO_RETURN_IF_ERROR(log->Begin(from, ZeroFill()));
  updates_.Start(std::move(log), log_bytes, from);
  return absl::OkStatus();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::StartNew(std::uint64_t log_bytes, const log::Link* last, log::Lsn lsn) {
  HAKO_ASSIGN_OR_RETURN(auto log, CreateLog(last, lsn));
  const log::Position begin = log->position();
  const Status named = NameLog(updates_.id(), begin);
  const bool is_kept = (named.ok() || MayName(updates_.id(), false)) && log_place_.taken_back() == TakeBack::kNothing;
  if (is_kept) log->Keep();
  if (is_kept && updates_.archive() != nullptr) updates_.archive()->Keep();
  HAKO_RETURN_IF_ERROR(named);
  updates_.Start(std::move(log), log_bytes, begin);
  return absl::OkStatus();
}

// Opens the archive, which must be empty or end where the history of the database ends. If the log
// was not closed, FindUnarchived compares the log with the archive.
template <File LogFileT>
auto DatabaseHome<LogFileT>::OpenArchive(const LogOptions& options, const log::NamedLog& named) -> StatusOr<std::unique_ptr<Archive>> {
  if (!log_place_.is_known()) return absl::InvalidArgumentError("log_archive requires a log, and the database has no path");
  auto archive = std::make_unique<Archive>(options.log_archive);
  HAKO_RETURN_IF_ERROR(archive->Lock());
  HAKO_RETURN_IF_ERROR(archive->Load());
  if (!named.IsNeeded()) HAKO_RETURN_IF_ERROR(ContinueIn(*archive, named));
  HAKO_RETURN_IF_ERROR(archive->NameOwner(log_place_.database()));
  return archive;
}

// Returns OK if the archive ends where the history of the database ends. The database has no log to
// compare.
template <File LogFileT>
Status DatabaseHome<LogFileT>::ContinueIn(Archive& archive, const log::NamedLog& named) {
  const log::Link last = named.link();
  if (archive.last().IsNone()) {
    archive.set_last(last);
  } else if (!archive.EndsAt(last, named.from.lsn)) {
    const std::string place = archive.last() == last ? absl::StrCat("LSN ", named.from.lsn, ", within it")
                              : last.sequence == 0   ? "none"
                                                     : absl::StrCat("segment ", last.sequence);
    return NotItsArchiveError(archive, place);
  }
  return absl::OkStatus();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::ContinueHistory(const log::NamedLog& named, std::unique_ptr<Log> left, std::unique_ptr<Archive> archive,
                                               std::uint64_t log_bytes) {
  log::Lsn lsn = named.HasEnded() ? named.from.lsn : 0;
  if (left != nullptr) {
    HAKO_RETURN_IF_ERROR(left->FindUnarchived(*archive));
    if (const Status archived = left->Archive(*archive, Log::kAll); !archived.ok()) {  // the next checkpoint tries again
      updates_.set_archive(std::move(archive));
      updates_.NoteArchiveFailure(archived);
      const Status begun = CatchNoMemory([&] { return Begin(left, log_bytes); });
      begun.ok() ? updates_.archive()->Keep() : updates_.archive()->TakeBack();
      return begun;
    }
    lsn = left->tail();
    NoteEnd(archive->last(), lsn);
    const Status ended = CatchNoMemory([&] { return Checkpoint(); });
    ended.ok() || MayName(updates_.id(), true) ? archive->Keep() : archive->TakeBack();
    HAKO_RETURN_IF_ERROR(ended);
    HAKO_RETURN_IF_ERROR(left->Close());
    HAKO_RETURN_IF_ERROR(log_place_.Remove());
  }
  const log::Link last = archive->last();
  updates_.set_archive(std::move(archive));
  return StartNew(log_bytes, &last, lsn);
}

// Creates a log with a new id. The superblock does not name it yet.
template <File LogFileT>
auto DatabaseHome<LogFileT>::CreateLog(const log::Link* last, log::Lsn lsn) -> StatusOr<std::unique_ptr<Log>> {
  const log::DatabaseId id = format::LogIdOf(RandomSeed(), LogInFile().owner);
  HAKO_ASSIGN_OR_RETURN(LogFile file, log_place_.Create());
  HAKO_ASSIGN_OR_RETURN(auto log, Log::Open(std::move(file), id, LogInFile().secret));
  if (last != nullptr) log->ContinueHistory(*last, lsn);
  log->set_has_times(records_.expiry() != nullptr);
  HAKO_RETURN_IF_ERROR(log->Begin({}, ZeroFill()));
  updates_.Name(id, log->position());
  return log;
}

}  // namespace hako
