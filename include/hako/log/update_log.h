// The log of a database (log/record_log.h): the updates since the last checkpoint of its file. A
// "checkpoint" here is whatever makes a state of the file durable: a checkpoint of a TreeDBM or an
// ArrayDBM, a synchronization of a HashDBM, a snapshot of a database in memory.
//
// An update is appended before its first change, while its leaves or buckets are locked, so the log
// has the updates of each key in their order. A checkpoint stops the writers for a moment, and its
// superblock names the end of the log at that moment. Opening the database replays the later
// updates. A checkpoint frees the space of older updates. The log requests a checkpoint when it has
// grown by its limit since the last one, or finds no space.
//
// Pacing: once the log has twice its limit, updates wait for a checkpoint. A long value that is
// appended ahead waits first, for a time in proportion to its size. Any other update waits up to 20
// ms after it was made. The bytes of values that were appended ahead do not count for this, so that
// an update of 100 bytes does not wait because other threads write gigabytes.
//
// With an archive (log/log_archive.h) a checkpoint archives the segments before its position before
// they are reused. If that fails, the log keeps them and the next checkpoint tries again. Updates
// continue as long as the log can grow.
//
// Append and WaitDurable are thread-safe. Start, Stop and the replay require that no other thread
// uses the database. Only the thread that makes a checkpoint calls the other functions.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/log_format.h"
#include "hako/log/checkpoint_requests.h"
#include "hako/log/log_archive.h"
#include "hako/log/record_log.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"

namespace hako::log {

// The file type of the log of a database in a FileT. Appended updates must reach the kernel's page
// cache at once.
template <File FileT>
using LogFileOf = std::conditional_t<PathFile<FileT> && !KernelBackedFile<FileT>, MemoryMapParallelFile, FileT>;

// How a superblock names a log: the log's id (zeros = none), the position from which the file lacks
// the updates, and the secret of the log's checks.
struct NamedLog {
  DatabaseId id{};
  Position from;
  std::uint64_t secret = 0;
  std::uint64_t owner = 0;  // identifies the file (format::LogIdOf)

  bool IsNone() const { return id == DatabaseId{}; }
  // Whether the database was closed, or is a copy: the log is in an archive, and its file is not
  // needed.
  bool HasEnded() const { return from.HasEnded(); }
  // Whether the file is a copy of an open database, whose history continues in the original.
  bool IsOfCopy() const { return HasEnded() && (from.sequence & format::kLogOfCopy) != 0; }
  // Whether the file of the log may have updates that the database lacks.
  bool IsNeeded() const { return !IsNone() && !HasEnded(); }
  Link link() const { return IsNone() ? Link{} : Link{id, from.sequence & ~(format::kLogEnded | format::kLogOfCopy)}; }
};
// Returns the log that a superblock names.
template <class Block>
NamedLog NamedLogOf(const Block& super) {
  std::uint64_t owner = super.secret;
  if constexpr (requires { super.file_id; }) owner ^= super.file_id;
  return {super.log_id, {super.log_lsn, super.log_sequence}, super.secret, owner};
}
// Returns the position by which a database names a log that has ended with this segment.
inline Position EndedPosition(Link last, Lsn lsn) { return {lsn, last.sequence | format::kLogEnded}; }
inline Position CopiedPosition(Position ended) { return {ended.lsn, ended.sequence | format::kLogOfCopy}; }

template <File FileT>
class UpdateLog {
 public:
  using Log = RecordLog<FileT>;

  // The log sets `needs_pause` while writers should call PauseIfLong.
  UpdateLog(CheckpointRequests& requests, std::atomic<bool>& needs_pause) : requests_(requests), needs_pause_(needs_pause) {}
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  // Whether updates are logged.
  HAKO_INLINE bool is_on() const { return log_ != nullptr; }
  // Appends a run, and sets *lsn to the LSN after it. On an error the log is unchanged.
  // REQUIRES: is_on, and run is not empty
  Status Append(std::span<const format::LogEntry> run, Lsn* lsn) {
    HAKO_DCHECK(is_on() && !run.empty());
    HAKO_RETURN_IF_ERROR(refusal_.Get());
    StatusOr<Lsn> appended = log_->Append(run);
    if (appended.ok()) *lsn = *appended;
    return Appended(appended.status(), *lsn);
  }
  Status Append(const format::LogEntry& entry, Lsn* lsn) {
    return TryAppend(entry, lsn) ? absl::OkStatus() : Append(std::span(&entry, 1), lsn);
  }
  // As Append, for a short entry. Returns false if it has done nothing; then call Append.
  HAKO_INLINE bool TryAppend(const format::LogEntry& entry, Lsn* lsn) {
    if (!refusal_.IsOk() || !log_->TryAppend(entry, lsn)) [[unlikely]]
      return false;
    if (*lsn >= ask_at_.load(std::memory_order_relaxed)) [[unlikely]]
      (void)Appended(absl::OkStatus(), *lsn);
    return true;
  }
  // Append a long entry in two steps (RecordLog::AppendAhead). AppendAhead is called with nothing
  // locked, and may wait for a checkpoint. If the run is not open after it, the caller appends the
  // entry by one of the functions above, which report errors.
  void AppendAhead(const format::LogEntry& entry, AheadRun* run) {
    const std::uint64_t bytes = entry.key.size() + entry.value.size();
    if (bytes <= kLongRun || !refusal_.IsOk()) return;
    const auto may_go_on = [this] { return BytesSinceCheckpoint() < 2 * limit_ || requests_.has_failed(); };
    if (!may_go_on()) requests_.WaitFor(kPause * (bytes / kAheadPerPause), may_go_on);
    ahead_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    (void)log_->AppendAhead(entry, run);
  }
  Status Append(AheadRun* run, Lsn* lsn) {
    if (!refusal_.IsOk()) return refusal_.Get();
    const Status status = log_->Append(run, lsn);
    return Appended(status, *lsn);
  }
  void Abandon(AheadRun* run) { log_->Abandon(run); }
  // Returns once everything below `lsn` survives a power cut. An LSN beyond the end of the log
  // stands for the end.
  Status WaitDurable(Lsn lsn) { return log_->WaitDurable(std::min(lsn, log_->tail())); }
  // Reserves space for a short update.
  Status Reserve() { return log_->Reserve(kShort); }
  // Refuses all updates until the next checkpoint has begun: the database has an update that the
  // log lacks. Poison refuses them permanently: the log has an update that the database lacks.
  void RefuseUntilCheckpoint(const Status& why) { refusal_.Set(why); }
  void Fail(const Status& why) {
    failure_.Set(NoMoreWritesError(why));
    refusal_.Set(failure_.Get());
    requests_.Ask();
  }
  // Returns OK, or why the log can never be used again.
  Status Health() const {
    const Status failure = failure_.Get();
    return failure.ok() && is_on() ? log_->Health() : failure;
  }

  // ---- for opening, checkpoints and closing ----

  // Sets the id under which the next checkpoint names this log; zeros = none.
  void set_id(const DatabaseId& id) { id_ = id; }
  const DatabaseId& id() const { return id_; }
  // The end of the log or, before Start, the position up to which it was replayed.
  Position position() const {
    if (is_on()) return log_->position();
    sync::MutexLock lock(replay_mutex_);
    return replayed_;
  }
  void NoteReplayed(Position position) {
    sync::MutexLock lock(replay_mutex_);
    replayed_ = position;
  }
  // Sets the id, and the position from which updates are needed.
  void Name(const DatabaseId& id, Position from) {
    set_id(id);
    NoteReplayed(from);
  }
  // Sets the archive that stores the segments of the log.
  void set_archive(std::unique_ptr<LogArchive<FileT>> archive) { archive_ = std::move(archive); }
  LogArchive<FileT>* archive() const { return archive_.get(); }
  // Returns OK, or why the archive lacks segments that it should have.
  Status ArchiveHealth() const { return archive_failure_.Get(); }
  // Tries again to archive the segments before the last checkpoint, after a failure.
  // REQUIRES: no checkpoint runs (unchecked: the caller holds the mutex of its database)
  Status RetryArchive() {
    if (!archive_failure_.IsOk() && is_on()) ArchiveBefore(checkpoint_sequence_);
    return ArchiveHealth();
  }
  void NoteArchiveFailure(const Status& why) { archive_failure_.Assign(why); }
  // Returns how a copy of the state at this position names the log; zeros without an archive.
  // REQUIRES: no checkpoint runs (unchecked: the log does not know them)
  NamedLog NameForCopy(Position at) const {
    if (is_on() && archive_ == nullptr) return {};
    if (!is_on()) return at.HasEnded() ? NamedLog{id_, CopiedPosition(at), 0} : NamedLog{};
    Link link = log_->LinkAt(at.lsn, *archive_);
    if (link.IsNone()) link = {id_, at.sequence};  // before the first update of the history
    return {link.log, CopiedPosition(EndedPosition(link, at.lsn)), 0};
  }
  // Call before Close, once the log is durable. Archives the whole log. The database must then name
  // the end of the history, archive()->last(). REQUIRES: is_on, and no more updates are made
  Status ArchiveAll() {
    HAKO_DCHECK(is_on() && archive_ != nullptr);
    return log_->Archive(*archive_, Log::kAll);
  }

  // Logs updates from now on. `limit` is the number of bytes of log between two checkpoints.
  void Start(std::unique_ptr<Log> log, std::uint64_t limit, Position checkpoint) {
    log_ = std::move(log);
    limit_ = std::min(std::max(limit, kLimitMin), log_->capacity() / 8);
    NoteCheckpoint(checkpoint);
  }
  // Waits a while for a checkpoint if the log has twice its limit. The caller must hold no lock.
  void PauseIfLong() {
    const auto is_short = [this] { return !IsLong() || requests_.has_failed(); };
    if (is_on() && !is_short()) requests_.WaitFor(kPause, is_short);
  }
  // The database was opened: its log and its archived segments stay.
  void Keep() {
    if (is_on()) log_->Keep();
    if (archive_ != nullptr) archive_->Keep();
  }
  // The database is taken back after Keep, and its log with it.
  void Unkeep() {
    if (is_on()) log_->Unkeep();
    if (archive_ != nullptr) archive_->Unkeep();
  }
  std::unique_ptr<Log> Stop() {
    NoteReplayed(position());
    return std::move(log_);
  }
  // Begins a checkpoint, with all writers stopped. Returns the position() that the checkpoint must
  // name.
  Position BeginCheckpoint() {
    if (failure_.IsOk()) refusal_.Assign(absl::OkStatus());
    ahead_before_position_.store(ahead_bytes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return TakePosition();
  }
  // Returns the position() of the state that a copy is about to take, with all writers stopped.
  Position TakePosition() { return is_on() ? log_->TakePosition() : position(); }
  // Call before a superblock names `position`: makes its segment durable. A log that has failed
  // need not be durable, because the checkpoint makes it unnecessary.
  Status PrepareCheckpoint(Position position) {
    if (!is_on() || !Health().ok()) return absl::OkStatus();
    if (archive_ != nullptr) HAKO_RETURN_IF_ERROR(log_->WaitDurable(position.lsn));  // because it will be archived
    return log_->SyncSegment(position);
  }
  // Call when a durable checkpoint has everything before `position`.
  void NoteCheckpoint(Position position) {
    if (!is_on()) return;
    checkpoint_sequence_ = position.sequence;
    ArchiveBefore(position.sequence);
    log_->Release(position);
    checkpoint_.store(position.lsn, std::memory_order_release);
    ahead_before_checkpoint_.store(ahead_before_position_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    ask_at_.store(position.lsn + limit_, std::memory_order_relaxed);
  }
  std::uint64_t file_bytes() const { return is_on() ? log_->file_bytes() : 0; }

 private:
  static constexpr std::uint64_t kShort = 64, kLimitMin = 64 << 10, kAheadPerPause = 64 << 10;
  static constexpr std::chrono::milliseconds kPause{20};

  void ArchiveBefore(std::uint64_t sequence) {
    if (archive_ != nullptr) archive_failure_.Assign(log_->Archive(*archive_, sequence));
  }
  std::uint64_t BytesSinceCheckpoint() const {
    const Lsn from = checkpoint_.load(std::memory_order_acquire);
    return log_->tail() - from;
  }
  std::uint64_t AheadBytes() const {
    return ahead_bytes_.load(std::memory_order_relaxed) - ahead_before_checkpoint_.load(std::memory_order_relaxed);
  }
  // Whether the log is long, not counting bytes that were appended ahead. These may be counted
  // slightly before they are in the log.
  bool IsLong() const {
    const std::uint64_t bytes = BytesSinceCheckpoint();
    return bytes - std::min(bytes, AheadBytes()) >= 2 * limit_;
  }
  // The rare path of Append: handles a failure, or requests a checkpoint that is due.
  Status Appended(const Status& status, Lsn lsn) {
    if (status.ok() && lsn < ask_at_.load(std::memory_order_relaxed)) return status;
    requests_.Ask();
    if (!status.ok()) return status;
    if (IsLong())
      needs_pause_.store(true, std::memory_order_relaxed);
    else
      ask_at_.store(checkpoint_.load(std::memory_order_relaxed) + AheadBytes() + 2 * limit_, std::memory_order_relaxed);
    return status;
  }

  CheckpointRequests& requests_;
  std::atomic<bool>& needs_pause_;
  std::unique_ptr<Log> log_;  // nullptr: updates are not logged
  DatabaseId id_{};
  std::uint64_t limit_ = 0;
  mutable sync::Mutex replay_mutex_;
  Position replayed_ ABSL_GUARDED_BY(replay_mutex_);  // the position while updates are not logged
  std::atomic<Lsn> checkpoint_{0};                    // the last checkpoint has everything before this LSN
  std::atomic<Lsn> ask_at_{0};                        // the log requests a checkpoint at this LSN
  // Bytes appended ahead: in total; in total when the last checkpoint began; and the total before
  // the last checkpoint that has ended.
  std::atomic<std::uint64_t> ahead_bytes_{0}, ahead_before_position_{0}, ahead_before_checkpoint_{0};
  sync::StickyStatus refusal_, failure_;
  std::unique_ptr<LogArchive<FileT>> archive_;  // nullptr: none
  std::uint64_t checkpoint_sequence_ = 0;       // the sequence in the position of the last checkpoint
  sync::StickyStatus archive_failure_;
};

}  // namespace hako::log
