// The log of the updates of a database (log/record_log.h): what its file lacks since its last
// checkpoint. "Checkpoint" is here what makes a state of the file durable: a checkpoint of a TreeDBM, a
// synchronization of a HashDBM, a snapshot of a database in memory.
//
// An update is appended before its first change, while its leaves or buckets are locked, so the log
// has the updates of each key in their order. A checkpoint names the end of the log at the moment at
// which it stops the writers (the superblock has it); opening the database makes the later updates
// again. A checkpoint is requested when the log since the last one exceeds its limit, or finds no
// space, as a checkpoint frees the space of older updates.
//
// Pacing: with twice the limit in the log, updates wait for a checkpoint. A long value that is
// appended ahead waits before it is, for a time in proportion to its size. Another update waits up
// to 20 ms after it was made, and its wait does not count the bytes of those values: 100 bytes need not
// wait because others write gigabytes.
//
// With an archive (log/log_archive.h) a checkpoint stores the segments before its position there,
// before they are used again. If that fails the log keeps them, and the next checkpoint tries again:
// nothing else fails, and updates go on as long as the log can grow.
//
// Thread-safe: Append and WaitDurable. Start, Stop and the replay: while no other thread uses the
// database. The checkpoint calls the rest.
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

// The file type of the log of a database in a FileT. What is appended must be in the kernel's page
// cache at once.
template <File FileT>
using LogFileOf = std::conditional_t<PathFile<FileT> && !KernelBackedFile<FileT>, MemoryMapParallelFile, FileT>;

// The log that a superblock names, zeros = none; where the updates begin that the file lacks; and what
// seeds the checks.
struct NamedLog {
  DatabaseId id{};
  Position from;
  std::uint64_t secret = 0;
  std::uint64_t owner = 0;  // identifies the file (format::LogIdOf)

  bool IsNone() const { return id == DatabaseId{}; }
  // The database was closed, or is a copy: the log is in an archive, and no file of it is needed.
  bool HasEnded() const { return from.HasEnded(); }
  // Whether the history goes on elsewhere, as the file is a copy of an open database.
  bool IsOfCopy() const { return HasEnded() && (from.sequence & format::kLogOfCopy) != 0; }
  // Whether the file of the log has updates that the database lacks, or may have.
  bool IsNeeded() const { return !IsNone() && !HasEnded(); }
  Link link() const { return IsNone() ? Link{} : Link{id, from.sequence & ~(format::kLogEnded | format::kLogOfCopy)}; }
};
// The log that a superblock names.
template <class Block>
NamedLog NamedLogOf(const Block& super) {
  std::uint64_t owner = super.secret;
  if constexpr (requires { super.file_id; }) owner ^= super.file_id;
  return {super.log_id, {super.log_lsn, super.log_sequence}, super.secret, owner};
}
// How a database names a log that has ended with this segment.
inline Position EndedPosition(Link last, Lsn lsn) { return {lsn, last.sequence | format::kLogEnded}; }
inline Position CopiedPosition(Position ended) { return {ended.lsn, ended.sequence | format::kLogOfCopy}; }

template <File FileT>
class UpdateLog {
 public:
  using Log = RecordLog<FileT>;

  // `needs_pause` is set while a writer should call PauseIfLong.
  UpdateLog(CheckpointRequests& requests, std::atomic<bool>& needs_pause) : requests_(requests), needs_pause_(needs_pause) {}
  UpdateLog(const UpdateLog&) = delete;
  UpdateLog& operator=(const UpdateLog&) = delete;

  // Whether updates are logged.
  HAKO_INLINE bool is_on() const { return log_ != nullptr; }
  // Appends a run, and sets *lsn to the LSN behind it. An error leaves the log as it was.
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
  // The same for a short entry. False: nothing was done; Append may do it, or has the error.
  HAKO_INLINE bool TryAppend(const format::LogEntry& entry, Lsn* lsn) {
    if (!refusal_.IsOk() || !log_->TryAppend(entry, lsn)) [[unlikely]]
      return false;
    if (*lsn >= ask_at_.load(std::memory_order_relaxed)) [[unlikely]]
      (void)Appended(absl::OkStatus(), *lsn);
    return true;
  }
  // Append a long entry in two steps, the first with nothing locked: RecordLog::AppendAhead. If the
  // run is not open then, the entry is appended by one of the functions above, which report errors.
  // The first may wait for a checkpoint.
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
  // Returns once everything below `lsn` survives a power cut; an LSN behind the end means the end.
  Status WaitDurable(Lsn lsn) { return log_->WaitDurable(std::min(lsn, log_->tail())); }
  // Makes sure that a short update can be appended.
  Status Reserve() { return log_->Reserve(kShort); }
  // Refuses all updates until the next checkpoint has begun, as the log lacks one, or permanently if
  // it has one that the database lacks.
  void RefuseUntilCheckpoint(const Status& why) { refusal_.Set(why); }
  void Fail(const Status& why) {
    failure_.Set(NoMoreWritesError(why));
    refusal_.Set(failure_.Get());
    requests_.Ask();
  }
  // OK, or why the log can never be used again.
  Status Health() const {
    const Status failure = failure_.Get();
    return failure.ok() && is_on() ? log_->Health() : failure;
  }

  // ---- for opening, checkpoints and closing ----

  // The database names this log from the next checkpoint on; zeros = none.
  void set_id(const DatabaseId& id) { id_ = id; }
  const DatabaseId& id() const { return id_; }
  // The end of the log, or how far it was replayed.
  Position position() const {
    if (is_on()) return log_->position();
    sync::MutexLock lock(replay_mutex_);
    return replayed_;
  }
  void NoteReplayed(Position position) {
    sync::MutexLock lock(replay_mutex_);
    replayed_ = position;
  }
  // The same, from this position on.
  void Name(const DatabaseId& id, Position from) {
    set_id(id);
    NoteReplayed(from);
  }
  // Stores the segments of the log in this archive.
  void set_archive(std::unique_ptr<LogArchive<FileT>> archive) { archive_ = std::move(archive); }
  LogArchive<FileT>* archive() const { return archive_.get(); }
  // OK, or why the archive lacks segments that it should have.
  Status ArchiveHealth() const { return archive_failure_.Get(); }
  // Stores the segments that the last checkpoint has, after a failure.
  // REQUIRES: no checkpoint runs (unchecked: the caller holds the mutex of its database)
  Status RetryArchive() {
    if (!archive_failure_.IsOk() && is_on()) ArchiveBefore(checkpoint_sequence_);
    return ArchiveHealth();
  }
  void NoteArchiveFailure(const Status& why) { archive_failure_.Assign(why); }
  // How a copy of the state at this position names the log: zeros without an archive.
  // REQUIRES: no checkpoint runs (unchecked: the log does not know them)
  NamedLog NameForCopy(Position at) const {
    if (is_on() && archive_ == nullptr) return {};
    if (!is_on()) return at.HasEnded() ? NamedLog{id_, CopiedPosition(at), 0} : NamedLog{};
    Link link = log_->LinkAt(at.lsn, *archive_);
    if (link.IsNone()) link = {id_, at.sequence};  // before the first update of the history
    return {link.log, CopiedPosition(EndedPosition(link, at.lsn)), 0};
  }
  // Before Close, once the log is durable: stores all of it. Then the database is to name the end of
  // the history, archive()->last(). REQUIRES: is_on, and no update is made any more
  Status ArchiveAll() {
    HAKO_DCHECK(is_on() && archive_ != nullptr);
    return log_->Archive(*archive_, Log::kAll);
  }

  // Logs updates from now on. `limit`: bytes of log between two checkpoints.
  void Start(std::unique_ptr<Log> log, std::uint64_t limit, Position checkpoint) {
    log_ = std::move(log);
    limit_ = std::min(std::max(limit, kLimitMin), log_->capacity() / 8);
    NoteCheckpoint(checkpoint);
  }
  // With nothing locked: waits a while for a checkpoint if the log has twice its limit.
  void PauseIfLong() {
    const auto is_short = [this] { return !IsLong() || requests_.has_failed(); };
    if (is_on() && !is_short()) requests_.WaitFor(kPause, is_short);
  }
  // The database was opened: see RecordLog::Keep.
  void Keep() {
    if (is_on()) log_->Keep();
  }
  std::unique_ptr<Log> Stop() {
    NoteReplayed(position());
    return std::move(log_);
  }
  // A checkpoint begins, with all writers stopped. Returns the position() for it to name.
  Position BeginCheckpoint() {
    if (failure_.IsOk()) refusal_.Assign(absl::OkStatus());
    ahead_before_position_.store(ahead_bytes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return TakePosition();
  }
  // For a copy with all writers stopped: returns the position() of its state.
  Position TakePosition() { return is_on() ? log_->TakePosition() : position(); }
  // Before a superblock names `position`: makes its segment durable. A log that has failed is not
  // needed after the checkpoint.
  Status PrepareCheckpoint(Position position) {
    if (!is_on() || !Health().ok()) return absl::OkStatus();
    if (archive_ != nullptr) HAKO_RETURN_IF_ERROR(log_->WaitDurable(position.lsn));  // it is to be archived
    return log_->SyncSegment(position);
  }
  // A checkpoint has everything before `position`.
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
  // Whether updates that are not appended ahead fill the log. Those that are may be counted a little
  // before they are in the log.
  bool IsLong() const {
    const std::uint64_t bytes = BytesSinceCheckpoint();
    return bytes - std::min(bytes, AheadBytes()) >= 2 * limit_;
  }
  // After a failure, or once a checkpoint is due.
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
  Position replayed_ ABSL_GUARDED_BY(replay_mutex_);  // while updates are not logged
  std::atomic<Lsn> checkpoint_{0};                    // the last checkpoint has all before it
  std::atomic<Lsn> ask_at_{0};                        // a checkpoint is requested when the log gets there
  // Appended ahead: in all, when the last checkpoint began, and before the last one that has ended.
  std::atomic<std::uint64_t> ahead_bytes_{0}, ahead_before_position_{0}, ahead_before_checkpoint_{0};
  sync::StickyStatus refusal_, failure_;
  std::unique_ptr<LogArchive<FileT>> archive_;  // nullptr: none
  std::uint64_t checkpoint_sequence_ = 0;       // of the position of the last checkpoint
  sync::StickyStatus archive_failure_;
};

}  // namespace hako::log
