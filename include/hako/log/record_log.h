// The log of a database: updates are appended in the order in which they are made, and are read
// again after a crash.
//
// An update that Append has accepted survives the death of the process if writes to the file do
// (KernelBackedFile, or a write to the kernel's page cache). It survives a power cut once
// WaitDurable of its LSN has returned. Recovery returns a prefix of the log that ends between two
// runs and has at least everything that was durable.
//
// Group commit: the first thread that waits for durability syncs the file, for itself and for all
// updates appended before. The next sync serves the threads that arrive meanwhile; one of them
// makes it. Threads that commit repeatedly would thus form two groups, each waiting for the other's
// sync. Therefore a thread first waits for the threads that the last sync served
// (log/commit_group.h). Before a sync a mark is appended, which stores the LSN up to which the log
// is durable. With marks the reader can tell damage from a torn tail (log/log_reader.h).
//
// With an archive (log/log_archive.h) the log keeps each segment until Archive has stored it, and
// its marks have times: a mark is appended before an update that comes kMarkInterval or more after
// the last mark.
//
// Use: Open, Replay from the position of the first update that is not durable elsewhere, Begin; then
// Append, WaitDurable and Release.
//
// Invariants
//   1. A short run is appended in one hold of tail_mutex_, after the segments that it needs are
//      reserved. A long run is appended in several holds, so that other threads need not wait for
//      it. A run takes effect with its last record: it is in the log as a whole or, after an error,
//      not at all.
//   2. Each byte of a segment is written only once in each use of the segment. So a record that
//      recovery drops can never become valid after a newer one.
//   3. durable_ <= tail_, and both only grow.
//   4. No long run lies across a position that the database stores. When the position is taken,
//      writers are stopped, and runs that are being appended ahead are abandoned and appended
//      again.
//   5. Begin syncs the header of its segment before the first Append. So after another crash the
//      updates that a recovery dropped stay dropped.
//
// After a failed write or sync the log refuses updates, because the state of the device is unknown.
//
// Thread-safe, except Open, Replay, Begin and Close. Locks: sync_mutex_ is not held during a sync;
// tail_mutex_ is taken with no other lock of the log held.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/log_format.h"
#include "hako/log/commit_group.h"
#include "hako/log/log_archive.h"
#include "hako/log/log_reader.h"
#include "hako/log/log_segments.h"
#include "hako/sync/mutex.h"
#include "hako/sync/spin_lock.h"
#include "hako/sync/sticky_status.h"

namespace hako::log {

// Runs of more bytes than this are long.
inline constexpr std::size_t kLongRun = 32 * format::kLogPartMax;

// A long entry that is appended in two steps: see RecordLog::AppendAhead. Its key and value must
// stay valid.
class AheadRun {
 public:
  // Whether the first step is done and the second is not.
  bool is_open() const { return !parts_.empty(); }

 private:
  template <File FileT>
  friend class RecordLog;
  struct Part {
    format::LogRecordHeader header;
    std::string_view key, value;  // the body, back to back
  };
  using Parts = absl::InlinedVector<Part, 1>;
  void Reset() { Parts().swap(parts_); }

  Parts parts_;
  unsigned stream_ = format::kLogStreams;  // kLogStreams = none, because all are in use; nothing is then appended ahead
  std::uint64_t positions_taken_ = 0;      // number of positions taken before it began
};

template <File FileT>
class RecordLog {
 public:
  // Opens the log of this database, or creates one in an empty file. `secret` seeds the checks.
  static StatusOr<std::unique_ptr<RecordLog>> Open(FileT file, const DatabaseId& database, std::uint64_t secret) {
    std::unique_ptr<RecordLog> log(new RecordLog(std::move(file), database, secret));
    sync::MutexLock lock(log->tail_mutex_);
    HAKO_RETURN_IF_ERROR(log->segments_.Load());
    return log;
  }
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  // Calls visit(std::span<const LogEntry>, end) for each run from `from` on: see LogReader::Read.
  // May be called again.
  template <class V>
  Status Replay(Position from, V&& visit) {
    sync::MutexLock lock(tail_mutex_);
    if (segments_.used().empty()) HAKO_RETURN_IF_ERROR(segments_.Follow(from));
    LogReader<FileT> reader(file_, segments_.used(), segments_.NewerSegments(), secret_);
    HAKO_ASSIGN_OR_RETURN(const Lsn end, reader.Read(from.lsn, visit));
    tail_.store(std::max(from.lsn, end), std::memory_order_relaxed);
    return absl::OkStatus();
  }
  // Whether the file has no segment of this log, such as an empty file.
  bool IsEmpty() const {
    sync::MutexLock lock(tail_mutex_);
    return segments_.is_empty();
  }
  // Makes everything that Open has found in the log durable.
  Status Sync() { return file_.Sync(); }
  // The number of segments that Replay has read.
  std::size_t num_segments() const {
    sync::MutexLock lock(tail_mutex_);
    return segments_.used().size();
  }
  // Starts a segment after the end that Replay found. Keeps the updates from the position `keep`
  // on, which a durable superblock names.
  Status Begin(Position keep, ZeroFill fill = ZeroFill::kPages);

  // Call before Begin. Sets whether the log may have a kTime.
  void set_has_times(bool has_times) {
    sync::MutexLock lock(tail_mutex_);
    segments_.set_has_times(has_times);
  }

  // ---- with an archive ----

  // Call instead of Replay for a new log, which continues the history after segment `last`, at this
  // LSN.
  void ContinueHistory(Link last, Lsn lsn) {
    sync::MutexLock lock(tail_mutex_);
    segments_.UseHistory(last, secret_);
    segments_.Hold(0);
    has_archive_ = true;
    tail_.store(lsn, std::memory_order_relaxed);
  }
  // Call after Replay of a log with an archive. Finds the segments that the archive lacks although
  // the database has their updates. Returns FailedPrecondition if the archive does not continue in
  // this log.
  Status FindUnarchived(LogArchive<FileT>& archive);
  // Stores the segments with sequences below `end` that the archive lacks, except the newest one.
  // With kAll also stores the newest one, up to the present end of the log. REQUIRES: they are
  // durable, and one thread calls it at a time (unchecked: a log that was replayed does not know
  // what Sync has covered)
  Status Archive(LogArchive<FileT>& archive, std::uint64_t end);
  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  // Returns the last segment that has records below this position. The position must not be older
  // than the last Release.
  Link LinkAt(Lsn lsn, const LogArchive<FileT>& archive) const;

  // Appends a run, and returns its LSN for WaitDurable. If there is no space, returns
  // ResourceExhausted and appends nothing; later calls may succeed. REQUIRES: entries is not empty
  StatusOr<Lsn> Append(std::span<const LogEntry> entries);
  StatusOr<Lsn> Append(const LogEntry& entry) { return Append(std::span(&entry, 1)); }
  // As Append, for a short entry, if the segment is mapped and has room. Otherwise does nothing and
  // returns false; then call Append.
  HAKO_INLINE bool TryAppend(const LogEntry& entry, Lsn* lsn);
  // Append a long entry in two steps. AppendAhead, called with nothing locked, appends all records
  // except the last. Append appends the last one, with which the entry takes effect. After an
  // error, or if the entry is short, the run is not open and has no effect. Abandon gives up an
  // open run.
  Status AppendAhead(const LogEntry& entry, AheadRun* run);
  Status Append(AheadRun* run, Lsn* lsn);
  void Abandon(AheadRun* run);
  // Reserves space for runs of this many bytes. Returns ResourceExhausted if there is none.
  Status Reserve(std::uint64_t bytes);

  // Makes the segment that this position names durable, even if it is empty.
  Status SyncSegment(Position position);
  // Returns once everything below `lsn` survives a power cut.
  Status WaitDurable(Lsn lsn);

  // The end of the log, and the LSN up to which it is known to survive a power cut.
  Lsn tail() const { return tail_.load(std::memory_order_acquire); }
  Lsn durable() const { return durable_.load(std::memory_order_acquire); }
  // The end of the log.
  Position position() const {
    sync::MutexLock lock(tail_mutex_);
    return Here();
  }
  // Returns the end of the log, as a position that the database may store once the log is durable
  // up to it. Abandons the runs that are being appended ahead.
  // REQUIRES: writers are stopped (unchecked: the log does not know them)
  Position TakePosition() {
    sync::MutexLock lock(tail_mutex_);
    ++positions_taken_;
    return Here();
  }
  // Call when a durable superblock names `keep`: the updates before it are no longer needed.
  void Release(Position keep) {
    sync::MutexLock lock(tail_mutex_);
    segments_.Release(keep);
  }
  std::uint64_t file_bytes() const {
    sync::MutexLock lock(tail_mutex_);
    return segments_.file_bytes();
  }
  // Returns the size in bytes that the file can grow to.
  std::uint64_t capacity() const {
    if constexpr (requires { file_.SizeMax(); }) return file_.SizeMax();
    return ~std::uint64_t{0};
  }
  Status Health() const { return failure_.Get(); }
  Status Close() { return file_.Close(); }
  // A database needs the file from now on, or may; or it does not, and Close removes a file that was created.
  void Keep() {
    if constexpr (UndoableFile<FileT>) file_.SetTakeBack(TakeBack::kNothing);
  }
  void Unkeep() {
    if constexpr (UndoableFile<FileT>) file_.SetTakeBack(file_.WasCreated() ? TakeBack::kFile : TakeBack::kNothing);
  }

 private:
  using Part = AheadRun::Part;
  using Parts = AheadRun::Parts;
  static constexpr std::uint64_t kMarkInterval = 100'000;  // in microseconds
  static constexpr std::size_t kMarkSpace = format::LogRecordSpace(sizeof(format::LogRecordHeader) + sizeof(format::LogMark));
  static constexpr std::uint64_t kFillSteps = 64;  // steps in a segment; the next segment is filled during the second half of them
  static constexpr std::size_t kPartsAtOnce = kLongRun / format::kLogPartMax;  // in one hold of tail_mutex_

  RecordLog(FileT file, const DatabaseId& database, std::uint64_t secret)
      : file_(std::move(file)), database_(database), secret_(secret), segments_(file_, database) {}

  // The newest segment that begins at or before `lsn`.
  const Segment& SegmentAt(Lsn lsn) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_) {
    const auto& used = segments_.used();
    std::size_t i = used.size() - 1;
    while (i > 0 && used[i].first > lsn) --i;
    return used[i];
  }
  Position Here() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_) {
    const Lsn tail = tail_.load(std::memory_order_relaxed);
    return {tail, segments_.used().empty() ? Position().sequence : SegmentAt(tail).sequence};
  }
  // Writes the record at the tail, and its check. REQUIRES: it fits in the segment
  Status Write(const format::LogRecordHeader& header, std::string_view key, std::string_view value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  // Makes the record of this LSN and sequence at `out`.
  HAKO_INLINE static void Make(const format::LogRecordHeader& header, std::string_view key, std::string_view value, Lsn lsn,
                               std::uint64_t sequence, std::uint64_t secret, char* out);
  static Part MarkPart(const format::LogMark& mark, bool has_time);
  // Whether the next update needs a mark before it, to record the time.
  bool MarkIsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_) {
    return has_archive_ && CoarseWallClock() >= marked_at_ + kMarkInterval;
  }
  Status StartSegment(Lsn first, std::uint64_t predecessor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  static void Cut(const LogEntry& entry, bool run_continues, Parts* parts);
  Status AppendParts(std::span<Part> parts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  void PrepareRoom(std::uint64_t bytes);
  void FillAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  void SetStepEnd(Lsn end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_) {
    step_end_ = std::min(end, segment_end_);
    quick_end_ = has_archive_ ? 0 : step_end_;
  }
  void BeginStream(AheadRun* run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  void EndStream(AheadRun* run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  bool IsGivenUp(const AheadRun& run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_) { return run.positions_taken_ != positions_taken_; }
  StatusOr<bool> TryPutAhead(AheadRun* run);
  Status PutAhead(AheadRun* run);
  Status Put(Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tail_mutex_);
  Status Fail(const Status& status) {
    failure_.Set(NoMoreWritesError(status));
    return status;
  }
  // Appends a mark and syncs everything before it. Returns the LSN up to which the log is then
  // durable.
  StatusOr<Lsn> SyncTail();
  // Calls SyncTail as the one thread that syncs, and wakes the others.
  Status SyncForAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mutex_);

  FileT file_;
  const DatabaseId database_;
  const std::uint64_t secret_;
  mutable sync::SpinLock tail_mutex_;  // held for longer only when a segment begins
  LogSegments<FileT> segments_ ABSL_GUARDED_BY(tail_mutex_);
  std::atomic<Lsn> tail_{0};  // changes only with tail_mutex_ held
  std::uint64_t free_streams_ ABSL_GUARDED_BY(tail_mutex_) = ~std::uint64_t{0};
  std::uint64_t positions_taken_ ABSL_GUARDED_BY(tail_mutex_) = 0;
  // Of the newest segment: its end, its sequence, and the address in the map that LSN 0 would have.
  Lsn segment_end_ ABSL_GUARDED_BY(tail_mutex_) = 0;
  Lsn step_end_ ABSL_GUARDED_BY(tail_mutex_) = 0;   // the LSN at which FillAhead is called next; at most segment_end_
  Lsn step_ ABSL_GUARDED_BY(tail_mutex_) = 0;       // bytes between two calls of FillAhead
  Lsn quick_end_ ABSL_GUARDED_BY(tail_mutex_) = 0;  // TryAppend may append up to here without a mark; 0 with an archive
  std::uint64_t segment_sequence_ ABSL_GUARDED_BY(tail_mutex_) = 0;
  char* segment_base_ ABSL_GUARDED_BY(tail_mutex_) = nullptr;
  bool has_archive_ ABSL_GUARDED_BY(tail_mutex_) = false;
  std::uint64_t marked_at_ ABSL_GUARDED_BY(tail_mutex_) = 0;  // the time of the last mark

  sync::Mutex sync_mutex_;
  sync::ConditionVariable synced_;
  bool is_syncing_ ABSL_GUARDED_BY(sync_mutex_) = false;
  CommitGroup group_;            // the threads in WaitDurable
  std::atomic<Lsn> durable_{0};  // changes only with sync_mutex_ held
  sync::StickyStatus failure_;
};

}  // namespace hako::log

#include "hako/log/record_archive-inl.h"
#include "hako/log/record_log-inl.h"
