// Reads the runs of a log from a position on, and finds its end.
//
// A log ends where the next record is not valid, or at the beginning of a short run without its end.
// What follows is a torn tail: updates that were never durable. But a mark after the end that
// names a durable LSN beyond it proves that durable records are damaged. A segment whose end is
// known (Segment::limit) has no torn tail: an invalid record there is always damage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/log_format.h"
#include "hako/log/log_segments.h"

namespace hako::log {

using format::LogEntry;

// The position and time of a run: the LSN after its last record, and the time of the last mark
// before it; 0 = unknown.
struct RunTime {
  Lsn lsn = 0;
  std::uint64_t time = 0;  // in microseconds since 1970
};

// FileT is the File of the log, or a type with ReadSegment(segment, &bytes), which reads the header
// and the records of a segment, and DamageAt(segment, lsn), which returns an error.
template <class FileT>
class LogReader {
 public:
  // `newer` has the segments of the log that the chain does not reach.
  LogReader(const FileT& file, const std::deque<Segment>& chain, std::vector<Segment> newer, std::uint64_t secret)
      : file_(file), chain_(chain), newer_(std::move(newer)), secret_(secret) {}

  // Calls visit(std::span<const LogEntry>, end) for each run from `from` on; no run may lie across
  // `from`. All later runs are at or after `end`: it is the position after this run, or the
  // beginning of a long run that has not yet ended. Returns the end of the log. An error of the
  // visitor ends the reading. Returns DataLoss if durable records are missing or damaged. The
  // visitor may take a RunTime as a third argument.
  template <class V>
  StatusOr<Lsn> Read(Lsn from, V&& visit);
  // After Read: the highest LSN up to which a mark says that the log was durable; 0 if there is no
  // mark.
  Lsn durable() const { return durable_; }
  // The time of the last mark before `from` in the same segment, or the time when that segment
  // began; 0 = unknown.
  std::uint64_t start_time() const { return start_time_; }
  // Whether all records of a segment are valid up to its limit.
  StatusOr<bool> IsWhole(const Segment& segment);

 private:
  struct EntryPlace {
    format::LogOp op;
    std::size_t begin, key_size, end;  // in bytes
  };
  // A run that is being read.
  struct Run {
    Position begin;
    std::string bytes;  // keys and values
    std::vector<EntryPlace> entries;
    bool is_complete = true;  // whether the last entry is complete
  };
  // Returns the record at `at` of the segment in bytes_, or nullptr.
  const format::LogRecordHeader* RecordAt(const Segment& segment, Lsn at, Lsn limit) const;
  // Whether the record is a run of one entry, and no other run is being read.
  bool IsWholeRun(const format::LogRecordHeader& record) const {
    return record.stream == 0 && record.flags == 0 && run_.entries.empty() && streams_.empty() && record.op < format::kLogOps &&
           format::LogOp{record.op.get()} != format::LogOp::kPart && record.key_size <= record.size - sizeof(record);
  }
  // Returns the run that the record belongs to, or nullptr.
  Run* RunOf(const format::LogRecordHeader& record, Position at);
  static bool Take(const format::LogRecordHeader& record, Run* run);
  template <class V>
  static Status Call(V& visit, std::span<const LogEntry> run, Position end, [[maybe_unused]] RunTime when) {
    if constexpr (requires { visit(run, end, when); }) {
      return visit(run, end, when);
    } else {
      return visit(run, end);
    }
  }
  template <class V>
  Status Show(V& visit, const format::LogRecordHeader& last, Position end);
  void FindStartTime(const Segment& segment, Lsn from);
  Status FindMarks(std::size_t segment, Lsn at);
  void FindMarksIn(const Segment& segment, Lsn at, Lsn limit);
  Lsn LimitOf(std::size_t i) const {
    const Lsn end = chain_[i].limit != 0 ? std::min(chain_[i].limit, chain_[i].end()) : chain_[i].end();
    return i + 1 < chain_.size() ? std::min(chain_[i + 1].first, end) : end;
  }
  Status LoadSegment(const Segment& segment) {
    bytes_.resize(format::LogSegmentSize(segment.index));
    if constexpr (requires { file_.ReadSegment(segment, &bytes_); }) {
      return file_.ReadSegment(segment, &bytes_);
    } else {
      return file_.ReadAt(segment.offset(), std::as_writable_bytes(std::span(bytes_)));
    }
  }
  static Status DamageAt(const FileT& file, const Segment& segment, Lsn at) {
    if constexpr (requires { file.DamageAt(segment, at); }) {
      return file.DamageAt(segment, at);
    } else {
      return DataLossError("the log has a record that is damaged", segment.PlaceOf(at));
    }
  }
  // The sizes of a mark, without a time and with one.
  static constexpr std::size_t kOldMark = sizeof(format::LogRecordHeader) + sizeof(format::LogMark::durable);
  static constexpr std::size_t kMark = sizeof(format::LogRecordHeader) + sizeof(format::LogMark);
  static bool IsMark(const format::LogRecordHeader& record) {
    return format::LogOp{record.op.get()} == format::LogOp::kMark && (record.size == kOldMark || record.size == kMark);
  }
  static format::LogMark MarkOf(const format::LogRecordHeader& record) {
    format::LogMark mark{};
    std::memcpy(static_cast<void*>(&mark), &record + 1, record.size - sizeof(record));
    return mark;
  }
  void NoteMark(const format::LogRecordHeader& record) {
    const format::LogMark mark = MarkOf(record);
    durable_ = std::max<Lsn>(durable_, mark.durable);
    time_ = std::max<std::uint64_t>(time_, mark.time);
  }

  const FileT& file_;
  const std::deque<Segment>& chain_;
  const std::vector<Segment> newer_;
  const std::uint64_t secret_;
  std::vector<char> bytes_;  // of one segment
  Run run_;                  // the short run that is being read
  std::map<std::uint16_t, Run> streams_;
  Lsn durable_ = 0;  // the highest LSN that a mark names
  std::uint64_t time_ = 0, start_time_ = 0;
};

template <class FileT>
const format::LogRecordHeader* LogReader<FileT>::RecordAt(const Segment& segment, Lsn at, Lsn limit) const {
  if (limit - at < sizeof(format::LogRecordHeader)) return nullptr;
  const char* const bytes = bytes_.data() + format::kLogSegmentHeader + (at - segment.first);
  const auto* const record = reinterpret_cast<const format::LogRecordHeader*>(bytes);
  const std::uint64_t size = record->size;
  if (size < sizeof(*record) || size > sizeof(*record) + format::kLogPartMax || format::LogRecordSpace(size) > limit - at) return nullptr;
  const std::uint64_t secret = segment.secret != 0 ? segment.secret : secret_;
  return record->check == format::LogCheck(bytes, size, at, segment.sequence, secret) ? record : nullptr;
}

// Returns nullptr for a record of a stream whose beginning was not read: it is left over from a run
// without an end.
template <class FileT>
auto LogReader<FileT>::RunOf(const format::LogRecordHeader& record, Position at) -> Run* {
  if (record.stream == 0) return &run_;
  if ((record.flags & record.kStreamBegins) != 0) streams_[record.stream] = {.begin = at, .bytes = {}, .entries = {}};
  const auto it = streams_.find(record.stream);
  return it == streams_.end() ? nullptr : &it->second;
}

// Adds a record to the run. Returns false if the record does not fit there, which happens only in a
// forged log.
template <class FileT>
bool LogReader<FileT>::Take(const format::LogRecordHeader& record, Run* run) {
  const auto op = format::LogOp{record.op.get()};
  if (record.op >= format::kLogOps || (op == format::LogOp::kPart) == run->is_complete) return false;
  if (run->is_complete) run->entries.push_back({op, run->bytes.size(), record.key_size, 0});
  run->bytes.append(reinterpret_cast<const char*>(&record + 1), record.size - sizeof(record));
  EntryPlace& entry = run->entries.back();
  entry.end = run->bytes.size();
  run->is_complete = (record.flags & record.kEntryContinues) == 0;
  return !run->is_complete || entry.key_size <= entry.end - entry.begin;
}

// Shows a run to the visitor, and clears it.
template <class FileT>
template <class V>
Status LogReader<FileT>::Show(V& visit, const format::LogRecordHeader& last, Position end) {
  Run run = std::exchange(last.stream == 0 ? run_ : streams_[last.stream], {});
  streams_.erase(last.stream);
  const RunTime when{end.lsn, time_};
  for (const auto& [stream, other] : streams_) {
    if (other.begin.lsn < end.lsn) end = other.begin;
  }
  std::vector<LogEntry> entries;
  entries.reserve(run.entries.size());
  for (const EntryPlace& place : run.entries) {
    const std::string_view bytes = std::string_view(run.bytes).substr(place.begin, place.end - place.begin);
    entries.push_back({place.op, bytes.substr(0, place.key_size), bytes.substr(place.key_size)});
  }
  return Call(visit, entries, end, when);
}

// In the segment in bytes_.
template <class FileT>
void LogReader<FileT>::FindStartTime(const Segment& segment, Lsn from) {
  start_time_ = segment.time;
  for (Lsn at = segment.first; at < from;) {
    const format::LogRecordHeader* const record = RecordAt(segment, at, from);
    if (record == nullptr) break;
    if (IsMark(*record)) start_time_ = std::max<std::uint64_t>(start_time_, MarkOf(*record).time);
    at += format::LogRecordSpace(record->size);
  }
  time_ = start_time_;
}

template <class FileT>
StatusOr<bool> LogReader<FileT>::IsWhole(const Segment& segment) {
  HAKO_RETURN_IF_ERROR(LoadSegment(segment));
  Lsn at = segment.first;
  while (at < segment.limit) {
    const format::LogRecordHeader* const record = RecordAt(segment, at, segment.limit);
    if (record == nullptr) return false;
    at += format::LogRecordSpace(record->size);
  }
  return true;
}

template <class FileT>
template <class V>
StatusOr<Lsn> LogReader<FileT>::Read(Lsn from, V&& visit) {
  if (chain_.empty() ? from != 0 : chain_[0].first > from || chain_[0].end() < from)
    return absl::DataLossError(absl::StrCat("the log lacks the updates from LSN ", from, " on"));
  Lsn at = from, end = from;  // `end` is the end of the last complete run
  for (std::size_t i = 0; i < chain_.size(); ++i) {
    const Segment& segment = chain_[i];
    const Lsn limit = LimitOf(i);
    HAKO_RETURN_IF_ERROR(LoadSegment(segment));
    if (i == 0 && segment.time != 0) FindStartTime(segment, from);
    while (const format::LogRecordHeader* const record = at < limit ? RecordAt(segment, at, limit) : nullptr) {
      const Lsn next = at + format::LogRecordSpace(record->size);
      if (IsMark(*record)) {
        NoteMark(*record);
      } else if (IsWholeRun(*record)) {
        const std::string_view body(reinterpret_cast<const char*>(record + 1), record->size - sizeof(*record));
        const LogEntry entry{format::LogOp{record->op.get()}, body.substr(0, record->key_size), body.substr(record->key_size)};
        HAKO_RETURN_IF_ERROR(Call(visit, std::span(&entry, 1), {next, segment.sequence}, {next, time_}));
      } else if (Run* const run = RunOf(*record, {at, segment.sequence})) {
        if (!Take(*record, run)) return DataLossError("the log has a record out of place", segment.PlaceOf(at));
        if (run->is_complete && (record->flags & record->kRunContinues) == 0)
          HAKO_RETURN_IF_ERROR(Show(visit, *record, {next, segment.sequence}));
      }
      at = next;
      if (run_.entries.empty()) end = at;
    }
    if (at < limit && segment.limit != 0) return DamageAt(file_, segment, at);
    if (at < limit || i + 1 == chain_.size()) {
      HAKO_RETURN_IF_ERROR(FindMarks(i, at));
      break;
    }
  }
  if (durable_ > end)
    return absl::DataLossError(absl::StrCat("the log is damaged at LSN ", end, ", and its updates up to LSN ", durable_, " were durable"));
  return end;
}

// Looks for marks after the first record that is not valid.
template <class FileT>
Status LogReader<FileT>::FindMarks(std::size_t i, Lsn at) {
  for (;; at = chain_[i].first) {
    FindMarksIn(chain_[i], at, LimitOf(i));
    if (++i == chain_.size()) break;
    HAKO_RETURN_IF_ERROR(LoadSegment(chain_[i]));
  }
  for (const Segment& segment : newer_) {
    HAKO_RETURN_IF_ERROR(LoadSegment(segment));
    FindMarksIn(segment, segment.first, segment.end());
  }
  return absl::OkStatus();
}

// In the segment in bytes_.
template <class FileT>
void LogReader<FileT>::FindMarksIn(const Segment& segment, Lsn at, Lsn limit) {
  using Header = format::LogRecordHeader;
  for (; at < limit && limit - at >= kOldMark; at += 8) {
    const auto* const header = reinterpret_cast<const Header*>(bytes_.data() + format::kLogSegmentHeader + (at - segment.first));
    if (!IsMark(*header)) continue;
    if (const Header* const record = RecordAt(segment, at, limit)) NoteMark(*record);
  }
}

}  // namespace hako::log
