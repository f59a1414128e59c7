// Definitions of log/record_log.h.
#pragma once

#include "hako/log/record_log.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::log {

template <File FileT>
Status RecordLog<FileT>::Begin(Position keep, ZeroFill fill) HAKO_TRY {
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  {
    sync::MutexLock lock(tail_mutex_);
    segments_.set_fill(fill);
    // The predecessor is the last segment with records. An empty segment of an earlier opening is
    // skipped, so that many openings without an update need no more space.
    std::uint64_t predecessor = segments_.first_predecessor();
    if (!segments_.used().empty()) {
      const Segment& last = SegmentAt(tail);
      const bool skips = last.first == tail && last.sequence != segments_.used().front().sequence && last.sequence != keep.sequence;
      predecessor = skips ? last.predecessor : last.sequence;
    }
    HAKO_RETURN_IF_ERROR(StartSegment(tail, predecessor));
    if (Status status = segments_.KeepOneFree(); !status.ok() && !absl::IsResourceExhausted(status)) return status;
    HAKO_RETURN_IF_ERROR(file_.Sync());
    segments_.DropAfter(predecessor);
    segments_.Release(keep);
  }
  durable_.store(tail, std::memory_order_release);
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// Cuts an entry into records.
template <File FileT>
void RecordLog<FileT>::Cut(const LogEntry& entry, bool run_continues, Parts* parts) {
  std::string_view key = entry.key, value = entry.value;
  format::LogOp op = entry.op;
  do {
    Part part;
    if (op != format::LogOp::kPart) {
      part.key = key.substr(0, format::kLogPartMax);
      part.value = value.substr(0, format::kLogPartMax - part.key.size());
      key.remove_prefix(part.key.size());
      value.remove_prefix(part.value.size());
    } else {
      std::string_view& rest = key.empty() ? value : key;
      part.value = rest.substr(0, format::kLogPartMax);
      rest.remove_prefix(part.value.size());
    }
    const bool goes_on = !key.empty() || !value.empty();
    part.header.size = static_cast<std::uint32_t>(sizeof(part.header) + part.key.size() + part.value.size());
    part.header.op = static_cast<std::uint8_t>(op);
    part.header.flags = static_cast<std::uint8_t>((goes_on ? format::LogRecordHeader::kEntryContinues : 0) |
                                                  (run_continues ? format::LogRecordHeader::kRunContinues : 0));
    part.header.key_size = op == format::LogOp::kPart ? 0 : static_cast<std::uint32_t>(entry.key.size());
    parts->push_back(part);
    op = format::LogOp::kPart;
  } while (!key.empty() || !value.empty());
}

template <File FileT>
Status RecordLog<FileT>::StartSegment(Lsn first, std::uint64_t predecessor) {
  HAKO_RETURN_IF_ERROR(segments_.Start(first, predecessor));
  const Segment& segment = segments_.used().back();
  segment_end_ = segment.end();
  step_ = segment.capacity() / kFillSteps;
  SetStepEnd(first + segment.capacity() / 2);
  segment_sequence_ = segment.sequence;
  if constexpr (MappedFile<FileT>) {
    char* const begin = reinterpret_cast<char*>(file_.MutableView(segment.PlaceOf(first), segment.capacity()).data());
    segment_base_ = begin - first;
  }
  return absl::OkStatus();
}

template <File FileT>
HAKO_INLINE void RecordLog<FileT>::Make(const format::LogRecordHeader& header, std::string_view key, std::string_view value, Lsn lsn,
                                        std::uint64_t sequence, std::uint64_t secret, char* out) {
  std::memcpy(out, &header, sizeof(header));
  char* const body = out + sizeof(header);
  if (!key.empty()) sync::CopyBytes(body, key.data(), key.size());
  if (!value.empty()) sync::CopyBytes(body + key.size(), value.data(), value.size());
  const Le<std::uint32_t> check = format::LogCheck(out, header.size, lsn, sequence, secret);
  std::memcpy(out, &check, sizeof(check));
}

template <File FileT>
HAKO_INLINE bool RecordLog<FileT>::TryAppend(const LogEntry& entry, Lsn* lsn) {
  if constexpr (MappedFile<FileT>) {
    const std::size_t size = entry.key.size() + entry.value.size();
    if (size > format::kLogPartMax) [[unlikely]]
      return false;
    format::LogRecordHeader header{};
    header.size = static_cast<std::uint32_t>(sizeof(header) + size);
    header.op = static_cast<std::uint8_t>(entry.op);
    header.key_size = static_cast<std::uint32_t>(entry.key.size());
    const std::uint64_t space = format::LogRecordSpace(header.size);
    sync::MutexLock lock(tail_mutex_);
    const Lsn tail = tail_.load(std::memory_order_relaxed);
    if (tail + space > quick_end_) [[unlikely]] {
      if (!has_archive_ || tail + space > step_end_ || MarkIsDue()) return false;
    }
    if (!failure_.IsOk()) [[unlikely]]
      return false;
    Make(header, entry.key, entry.value, tail, segment_sequence_, secret_, segment_base_ + tail);
    tail_.store(tail + space, std::memory_order_release);
    *lsn = tail + space;
    return true;
  }
  return false;
}

template <File FileT>
Status RecordLog<FileT>::Write(const format::LogRecordHeader& header, std::string_view key, std::string_view value) {
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  HAKO_DCHECK(tail + format::LogRecordSpace(header.size) <= segment_end_);
  if constexpr (MappedFile<FileT>) {
    Make(header, key, value, tail, segment_sequence_, secret_, segment_base_ + tail);
  } else {
    absl::InlinedVector<char, 256> bytes(header.size);
    Make(header, key, value, tail, segment_sequence_, secret_, bytes.data());
    HAKO_RETURN_IF_ERROR(file_.WriteAt(segments_.used().back().PlaceOf(tail), std::as_bytes(std::span(bytes))));
  }
  tail_.store(tail + format::LogRecordSpace(header.size), std::memory_order_release);
  return absl::OkStatus();
}

template <File FileT>
StatusOr<Lsn> RecordLog<FileT>::Append(std::span<const LogEntry> entries) HAKO_TRY {
  HAKO_DCHECK(!entries.empty());
  Parts parts;
  parts.reserve(entries.size());
  for (const LogEntry& entry : entries) Cut(entry, &entry != &entries.back(), &parts);
  if (parts.size() > kPartsAtOnce) {
    AheadRun run;
    run.parts_ = std::move(parts);
    HAKO_RETURN_IF_ERROR(PutAhead(&run));
    Lsn lsn = 0;
    HAKO_RETURN_IF_ERROR(Append(&run, &lsn));
    return lsn;
  }
  sync::MutexLock lock(tail_mutex_);
  HAKO_RETURN_IF_ERROR(AppendParts(std::span(parts)));
  return tail_.load(std::memory_order_relaxed);
}
HAKO_OR_NO_MEMORY

// Tries to make room for this many bytes before the lock is taken, so that no segment is filled
// with zeros under the lock.
template <File FileT>
void RecordLog<FileT>::PrepareRoom(std::uint64_t bytes) {
  StatusOr<Unfilled> segment = Unfilled();
  ZeroFill fill;
  {
    sync::MutexLock lock(tail_mutex_);
    if (tail_.load(std::memory_order_relaxed) + bytes <= segment_end_ || segments_.has_free()) return;
    segment = segments_.TakeUnfilled();
    fill = segments_.fill();
  }
  if (!segment.ok()) return;  // AppendParts reports the error, if it still occurs
  (void)LogSegments<FileT>::Fill(file_, fill, segment->rest(), &*segment);
  sync::MutexLock lock(tail_mutex_);
  segments_.Return(*segment);
}

// While the second half of a segment is written, each step also fills a step of the next segment,
// so no short update waits until a whole segment is filled. An error is reported when the space is
// needed.
template <File FileT>
void RecordLog<FileT>::FillAhead() {
  static constexpr std::uint64_t kBytes = format::kLogSegmentMax / (kFillSteps / 2);
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  const std::uint64_t steps = (tail - step_end_) / step_ + 1;
  const bool goes_on =
      !segments_.has_free() && CatchNoMemory([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return segments_.FillSome(steps * kBytes); }).ok();
  SetStepEnd(goes_on ? tail + step_ : segment_end_);
}

// Gives the run a stream number, if one is free.
template <File FileT>
void RecordLog<FileT>::BeginStream(AheadRun* run) {
  run->stream_ = static_cast<unsigned>(std::countr_zero(free_streams_));
  run->positions_taken_ = positions_taken_;
  const bool has_stream = run->stream_ < format::kLogStreams;
  if (has_stream) free_streams_ &= ~(std::uint64_t{1} << run->stream_);
  for (Part& part : run->parts_) part.header.stream = static_cast<std::uint16_t>(has_stream ? run->stream_ + 1 : 0);
  constexpr unsigned kBegins = format::LogRecordHeader::kStreamBegins;
  format::LogRecordHeader& first = run->parts_[0].header;
  first.flags = static_cast<std::uint8_t>((first.flags & ~kBegins) | (has_stream ? kBegins : 0));
}

template <File FileT>
void RecordLog<FileT>::EndStream(AheadRun* run) {
  if (run->stream_ < format::kLogStreams) free_streams_ |= std::uint64_t{1} << run->stream_;
  run->stream_ = format::kLogStreams;
}

// Appends all parts except the last; other threads may append between them. Returns false if a
// position was taken meanwhile. After false or an error, the log has a run without an end, which
// has no effect.
template <File FileT>
StatusOr<bool> RecordLog<FileT>::TryPutAhead(AheadRun* run) {
  const std::span<Part> parts = std::span(run->parts_).first(run->parts_.size() - 1);
  for (std::size_t at = 0, n = 0; at < parts.size(); at += n) {
    if (at != 0) tail_mutex_.LetOthersPass();
    HAKO_TRY { PrepareRoom(kPartsAtOnce * (sizeof(format::LogRecordHeader) + format::kLogPartMax)); }
    HAKO_CATCH_NO_MEMORY()  // AppendParts reports it
    sync::MutexLock lock(tail_mutex_);
    if (at == 0) BeginStream(run);
    if (run->stream_ == format::kLogStreams) return true;
    n = std::min(parts.size() - at, kPartsAtOnce);
    const bool is_given_up = IsGivenUp(*run);
    Status status;
    HAKO_TRY { status = is_given_up ? absl::OkStatus() : AppendParts(parts.subspan(at, n)); }
    HAKO_CATCH_NO_MEMORY(status = NoMemoryError();)
    if (is_given_up || !status.ok()) EndStream(run);
    HAKO_RETURN_IF_ERROR(status);
    if (is_given_up) return false;
  }
  return true;
}

template <File FileT>
Status RecordLog<FileT>::PutAhead(AheadRun* run) {
  static constexpr int kTries = 4;  // after these, Append appends the whole entry
  for (int i = 0; i < kTries; ++i) {
    const StatusOr<bool> is_put = TryPutAhead(run);
    if (!is_put.ok()) run->Reset();
    if (!is_put.ok() || *is_put) return is_put.status();
  }
  return absl::OkStatus();
}

template <File FileT>
Status RecordLog<FileT>::AppendAhead(const LogEntry& entry, AheadRun* run) HAKO_TRY {
  run->Reset();
  HAKO_TRY { Cut(entry, false, &run->parts_); }
  HAKO_CATCH_NO_MEMORY(run->Reset(); return NoMemoryError();)
  if (run->parts_.size() > kPartsAtOnce) return PutAhead(run);
  run->Reset();
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// Without a stream number the whole run is appended in one hold of the mutex.
template <File FileT>
Status RecordLog<FileT>::Append(AheadRun* run, Lsn* lsn) {
  for (;;) {
    {
      sync::MutexLock lock(tail_mutex_);
      const bool has_stream = run->stream_ < format::kLogStreams;
      if (!IsGivenUp(*run)) {
        Status status;
        HAKO_TRY { status = AppendParts(has_stream ? std::span(run->parts_).last(1) : std::span(run->parts_)); }
        HAKO_CATCH_NO_MEMORY(status = NoMemoryError();)
        *lsn = tail_.load(std::memory_order_relaxed);
        EndStream(run);
        run->Reset();
        return status;
      }
      EndStream(run);
    }
    HAKO_RETURN_IF_ERROR(PutAhead(run));
  }
}

template <File FileT>
void RecordLog<FileT>::Abandon(AheadRun* run) {
  sync::MutexLock lock(tail_mutex_);
  EndStream(run);
  run->Reset();
}

template <File FileT>
Status RecordLog<FileT>::Reserve(std::uint64_t bytes) HAKO_TRY {
  sync::MutexLock lock(tail_mutex_);
  HAKO_RETURN_IF_ERROR(failure_.Get());
  return tail_.load(std::memory_order_relaxed) + bytes > segment_end_ ? segments_.Reserve(bytes) : absl::OkStatus();
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status RecordLog<FileT>::AppendParts(std::span<Part> parts) {
  HAKO_RETURN_IF_ERROR(failure_.Get());
  const bool is_due = MarkIsDue();
  std::uint64_t bytes = is_due ? kMarkSpace : 0;
  for (const Part& part : parts) bytes += format::LogRecordSpace(part.header.size);
  if (tail_.load(std::memory_order_relaxed) + bytes > segment_end_) HAKO_RETURN_IF_ERROR(segments_.Reserve(bytes));
  if (is_due) {
    marked_at_ = CoarseWallClock();
    const format::LogMark mark{durable_.load(std::memory_order_relaxed), marked_at_};
    Part part = MarkPart(mark, true);
    if (Status status = Put(part); !status.ok()) return Fail(status);
  }
  for (Part& part : parts) {
    if (Status status = Put(part); !status.ok()) return Fail(status);
  }
  if (tail_.load(std::memory_order_relaxed) > step_end_) FillAhead();
  return absl::OkStatus();
}

template <File FileT>
Status RecordLog<FileT>::Put(Part& part) {
  const Lsn tail = tail_.load(std::memory_order_relaxed);
  const std::uint64_t space = format::LogRecordSpace(part.header.size);
  if (tail + space > segment_end_) HAKO_RETURN_IF_ERROR(StartSegment(tail, segment_sequence_));
  return Write(part.header, part.key, part.value);
}

// A mark that became invalid could not prove damage.
template <File FileT>
auto RecordLog<FileT>::MarkPart(const format::LogMark& mark, bool has_time) -> Part {
  Part part{};
  part.value = {reinterpret_cast<const char*>(&mark), has_time ? sizeof(mark) : sizeof(mark.durable)};
  part.header.size = static_cast<std::uint32_t>(sizeof(part.header) + part.value.size());
  part.header.op = static_cast<std::uint8_t>(format::LogOp::kMark);
  return part;
}

template <File FileT>
Status RecordLog<FileT>::SyncSegment(Position position) {
  Segment segment;
  {
    sync::MutexLock lock(tail_mutex_);
    // Look for the sequence instead of the LSN, because a segment ends at the LSN at which the next
    // one begins.
    const auto& used = segments_.used();
    segment = *std::find_if(used.begin(), used.end() - 1, [&](const Segment& s) { return s.sequence >= position.sequence; });
  }
  const Status status = SyncPart(file_, segment.offset(), format::kLogSegmentHeader);
  return status.ok() ? status : Fail(status);
}

template <File FileT>
StatusOr<Lsn> RecordLog<FileT>::SyncTail() {
  format::LogMark mark{durable_.load(std::memory_order_relaxed), 0};
  Lsn tail;
  {
    sync::MutexLock lock(tail_mutex_);
    if (has_archive_) mark.time = marked_at_ = std::max(marked_at_, CoarseWallClock());
    Part part = MarkPart(mark, has_archive_);
    Status status = AppendParts(std::span(&part, 1));
    if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
    tail = tail_.load(std::memory_order_relaxed);
  }
  if (Status status = file_.Sync(); !status.ok()) return Fail(status);
  return tail;
}

template <File FileT>
Status RecordLog<FileT>::WaitDurable(Lsn lsn) HAKO_TRY {
  if (durable() >= lsn) return absl::OkStatus();
  sync::MutexLock lock(sync_mutex_);
  group_.Enter();
  Status status;
  while (status.ok() && durable_.load(std::memory_order_relaxed) < lsn) {
    status = failure_.Get();
    if (!status.ok()) break;
    if (is_syncing_)
      synced_.Wait(sync_mutex_);
    else
      status = SyncForAll();
  }
  group_.Leave();
  return status;
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status RecordLog<FileT>::SyncForAll() {
  CommitGroup::Clock::time_point begun;
  StatusOr<Lsn> synced = Lsn{0};
  is_syncing_ = true;
  {
    sync::MutexUnlock unlocked(sync_mutex_);
    begun = group_.Gather();
    HAKO_TRY { synced = SyncTail(); }
    HAKO_CATCH_NO_MEMORY(synced = NoMemoryError();)
  }
  is_syncing_ = false;
  synced_.NotifyAll();
  group_.NoteSync(CommitGroup::Clock::now() - begun);
  HAKO_DCHECK(!synced.ok() || *synced <= tail());  // invariant 3
  if (synced.ok()) durable_.store(*synced, std::memory_order_release);
  return synced.status();
}

}  // namespace hako::log
