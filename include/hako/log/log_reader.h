// Reads the runs of a log from a position on, and finds its end.
//
// A log ends where the next record is not valid, or at the beginning of a run without its end. That
// is a torn tail, of updates that were never durable, unless a mark says otherwise: a mark that lies
// behind the end and names a durable LSN beyond it proves that durable records are damaged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/log_format.h"
#include "hako/log/log_segments.h"

namespace hako::log {

// One update. kRemoveRange has its end in `value`.
struct LogEntry {
  format::LogOp op;
  std::string_view key, value;
};

template <File FileT>
class LogReader {
 public:
  LogReader(const FileT& file, const std::deque<Segment>& chain, std::uint64_t secret) : file_(file), chain_(chain), secret_(secret) {}

  // Calls visit(std::span<const LogEntry>) for each run from `from` on, which must be the beginning
  // of a run, and returns the end of the log. An error of the visitor ends the reading. DataLoss if
  // durable records are missing or damaged.
  template <class V>
  StatusOr<Lsn> Read(Lsn from, V&& visit);

 private:
  struct EntryPlace {
    format::LogOp op;
    std::size_t begin, key_size, end;  // in run_
  };
  // The record at `at` of the segment in bytes_, or nullptr.
  const format::LogRecordHeader* RecordAt(const Segment& segment, Lsn at, Lsn limit) const;
  bool Take(const format::LogRecordHeader& record);
  template <class V>
  Status Show(V& visit);
  Status CheckDurable(std::size_t segment, Lsn at);
  Lsn LimitOf(std::size_t i) const {
    const Lsn end = chain_[i].end();
    return i + 1 < chain_.size() ? std::min(chain_[i + 1].first, end) : end;
  }
  Status LoadSegment(const Segment& segment) {
    bytes_.resize(format::LogSegmentSize(segment.index));
    return file_.ReadAt(segment.offset(), std::as_writable_bytes(std::span(bytes_)));
  }
  void NoteMark(const format::LogRecordHeader& record) {
    Le<std::uint64_t> lsn;
    std::memcpy(&lsn, &record + 1, sizeof(lsn));
    durable_ = std::max<Lsn>(durable_, lsn);
  }

  const FileT& file_;
  const std::deque<Segment>& chain_;
  const std::uint64_t secret_;
  std::vector<char> bytes_;  // of one segment
  std::string run_;          // keys and values of the run that is being read
  std::vector<EntryPlace> entries_;
  bool is_complete_ = true;  // the last entry
  Lsn durable_ = 0;          // the highest LSN that a mark names
};

template <File FileT>
const format::LogRecordHeader* LogReader<FileT>::RecordAt(const Segment& segment, Lsn at, Lsn limit) const {
  if (limit - at < sizeof(format::LogRecordHeader)) return nullptr;
  const char* const bytes = bytes_.data() + format::kLogSegmentHeader + (at - segment.first);
  const auto* const record = reinterpret_cast<const format::LogRecordHeader*>(bytes);
  const std::uint64_t size = record->size;
  if (size < sizeof(*record) || size > sizeof(*record) + format::kLogPartMax || format::LogRecordSpace(size) > limit - at) return nullptr;
  const std::string_view body(bytes + sizeof(*record), size - sizeof(*record));
  const std::size_t key_size = std::min<std::size_t>(record->key_size, body.size());
  const std::uint64_t digest = format::LogDigest(*record, body.substr(0, key_size), body.substr(key_size), secret_);
  return record->check == format::LogCheck(digest, at, segment.sequence) ? record : nullptr;
}

// Adds a record to the run. False if it does not fit there, which only a forged log shows.
template <File FileT>
bool LogReader<FileT>::Take(const format::LogRecordHeader& record) {
  const auto op = format::LogOp{record.op.get()};
  if (record.op >= format::kLogOps || (op == format::LogOp::kPart) == is_complete_) return false;
  if (is_complete_) entries_.push_back({op, run_.size(), record.key_size, 0});
  run_.append(reinterpret_cast<const char*>(&record + 1), record.size - sizeof(record));
  entries_.back().end = run_.size();
  is_complete_ = (record.flags & record.kEntryContinues) == 0;
  return !is_complete_ || entries_.back().key_size <= run_.size() - entries_.back().begin;
}

template <File FileT>
template <class V>
Status LogReader<FileT>::Show(V& visit) {
  std::vector<LogEntry> run;
  run.reserve(entries_.size());
  for (const EntryPlace& place : entries_) {
    const std::string_view bytes = std::string_view(run_).substr(place.begin, place.end - place.begin);
    run.push_back({place.op, bytes.substr(0, place.key_size), bytes.substr(place.key_size)});
  }
  Status status = visit(std::span<const LogEntry>(run));
  entries_.clear();
  run_.clear();
  return status;
}

template <File FileT>
template <class V>
StatusOr<Lsn> LogReader<FileT>::Read(Lsn from, V&& visit) {
  std::size_t i = 0;
  while (i + 1 < chain_.size() && chain_[i + 1].first <= from) ++i;
  if (chain_.empty() ? from != 0 : chain_[i].first > from)
    return absl::DataLossError(absl::StrCat("the log lacks the updates from LSN ", from, " on"));
  Lsn at = from, end = from;  // `end` is that of the last complete run
  for (; i < chain_.size(); ++i) {
    const Segment& segment = chain_[i];
    const Lsn limit = LimitOf(i);
    if (at > limit) break;  // `from` is durable in the database, and its segment was not in the log
    HAKO_RETURN_IF_ERROR(LoadSegment(segment));
    while (const format::LogRecordHeader* const record = at < limit ? RecordAt(segment, at, limit) : nullptr) {
      const Lsn next = at + format::LogRecordSpace(record->size);
      if (format::LogOp{record->op.get()} == format::LogOp::kMark && record->size == sizeof(*record) + sizeof(Lsn)) {
        NoteMark(*record);
      } else {
        if (!Take(*record)) return DataLossError("the log has a record out of place", segment.PlaceOf(at));
        if (is_complete_ && (record->flags & record->kRunContinues) == 0) HAKO_RETURN_IF_ERROR(Show(visit));
      }
      at = next;
      if (entries_.empty()) end = at;
    }
    if (at < limit || i + 1 == chain_.size()) {
      HAKO_RETURN_IF_ERROR(CheckDurable(i, at));
      break;
    }
  }
  if (durable_ > end)
    return absl::DataLossError(absl::StrCat("the log is damaged at LSN ", end, ", and its updates up to LSN ", durable_, " were durable"));
  return end;
}

// Looks for marks behind the first record that is not valid.
template <File FileT>
Status LogReader<FileT>::CheckDurable(std::size_t i, Lsn at) {
  for (;; at = chain_[i].first) {
    const Segment& segment = chain_[i];
    for (const Lsn limit = LimitOf(i); at < limit; at += 8) {
      if (limit - at < sizeof(format::LogRecordHeader) + sizeof(Lsn)) break;
      const auto* const header =
          reinterpret_cast<const format::LogRecordHeader*>(bytes_.data() + format::kLogSegmentHeader + (at - segment.first));
      if (header->size != sizeof(*header) + sizeof(Lsn) || format::LogOp{header->op.get()} != format::LogOp::kMark) continue;
      if (const format::LogRecordHeader* const record = RecordAt(segment, at, limit)) NoteMark(*record);
    }
    if (++i == chain_.size()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(LoadSegment(chain_[i]));
  }
}

}  // namespace hako::log
