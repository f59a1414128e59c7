// The segments of a log file (format/log_format.h): which are in use, in what order, and which can
// be written again.
//
// Invariants
//   1. `used_` is the chain from the oldest segment that is needed to the newest, each the
//      predecessor of the next, in ascending order of LSNs and of sequences. Follow finds the chain
//      from its oldest segment, which is durable. Any later segment may be missing after a power
//      cut.
//   2. Every segment of the file is in `used_` or in `free_`, or is being filled: it is in `unfilled_`, or
//      between TakeUnfilled and Return.
//   3. The sequence of a new segment is above that of every segment in the file, including those
//      that a recovery discarded.
//
// With an archive (log/log_archive.h) Release keeps the segments that the archive lacks.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/file.h"
#include "hako/format/log_format.h"

namespace hako::log {

// A position in a log (format/log_format.h).
using Lsn = std::uint64_t;

// The position from which a database lacks the updates: an LSN, and the sequence of the segment
// that contains it or ends there.
struct Position {
  Lsn lsn = 0;
  std::uint64_t sequence = 1;
  // Whether this position is the end of a history: see format::kLogEnded.
  bool HasEnded() const { return (sequence & format::kLogEnded) != 0; }
  friend bool operator==(const Position&, const Position&) = default;
};

// Identifies the database that a log belongs to.
using DatabaseId = format::LogId;

// Names a segment of the history of a database by its log and its sequence. Zeros = none.
struct Link {
  DatabaseId log{};
  std::uint64_t sequence = 0;
  bool IsNone() const { return log == DatabaseId{}; }
  friend bool operator==(const Link&, const Link&) = default;
};

// The size of the writes that fill new segments with zeros. With pages the sync of a short update
// writes one or two pages. Blocks fill a segment in a third of the time, and suit a log with few
// syncs.
enum class ZeroFill : std::size_t { kPages = 4096, kBlocks = 32 << 10 };

// A segment that is being filled: the file has its space, and zeros up to `at`.
struct Unfilled {
  std::uint32_t index;
  std::uint64_t at;  // an offset in the file
  std::uint64_t rest() const { return format::LogSegmentOffset(index + 1) - at; }
};

struct Segment {
  std::uint32_t index = 0;
  std::uint64_t sequence = 0, predecessor = 0;
  Lsn first = 0;  // LSN of the first record
  Lsn limit = 0;  // LSN at which its records end; if it is known, all of them are valid. 0 = unknown
  // For a log with an archive: see format::LogSegmentHistory.
  DatabaseId predecessor_log{};
  std::uint64_t secret = 0;  // 0 = the secret of the log
  std::uint64_t time = 0;

  Link before() const { return {predecessor_log, predecessor}; }

  std::uint64_t offset() const { return format::LogSegmentOffset(index); }
  // capacity is the number of bytes for records, end the LSN at which a full segment ends.
  std::uint64_t capacity() const { return format::LogSegmentSize(index) - format::kLogSegmentHeader; }
  Lsn end() const { return first + capacity(); }
  std::uint64_t PlaceOf(Lsn lsn) const { return offset() + format::kLogSegmentHeader + (lsn - first); }
};

template <File FileT>
class LogSegments {
 public:
  LogSegments(FileT& file, const DatabaseId& database) : file_(file), database_(database) {}

  // Reads the header of a segment. Returns nullopt if the header is invalid.
  static StatusOr<std::optional<format::LogSegmentStart>> ReadStart(const FileT& file, std::uint32_t index) {
    format::LogSegmentStart start;
    HAKO_RETURN_IF_ERROR(file.ReadAt(format::LogSegmentOffset(index), std::as_writable_bytes(std::span(&start, 1))));
    const format::LogSegmentHeader& header = start.header;
    const bool is_valid = header.magic == format::kLogMagic && header.check == CheckOf(header) && header.index == index;
    return is_valid ? std::optional(start) : std::nullopt;
  }
  // Reads the headers. Returns InvalidArgument if the file is the log of another database, and
  // DataLoss if a header names a later segment as its predecessor, so that no chain is a cycle.
  Status Load();
  // Finds the chain that begins at `from`. Returns DataLoss if that segment is missing.
  Status Follow(Position from);
  // Extends the chain backwards by segments of this log with sequences above `after`, which the
  // archive lacks. is_whole(segment) returns whether a segment still has all its records.
  template <class F>
  void FollowBack(std::uint64_t after, F&& is_whole);
  // For a log with an archive: new segments have a LogSegmentHistory, and the first one follows
  // `last`.
  void UseHistory(Link last, std::uint64_t secret) {
    history_ = last;
    secret_ = secret;
    last_sequence_ = std::max(last_sequence_, last.sequence);
  }
  // Whether later segments may have a kTime.
  void set_has_times(bool has_times) { has_times_ = has_times; }
  // From now on Release drops no segment with a sequence of `keep` or above.
  void Hold(std::uint64_t keep) { held_ = keep; }
  std::uint64_t held() const { return held_; }
  // The predecessor of the first segment.
  std::uint64_t first_predecessor() const { return history_.sequence; }
  const std::vector<Segment>& found() const { return found_; }
  // The segments of this log that are newer than the chain.
  std::vector<Segment> NewerSegments() const {
    std::vector<Segment> newer;
    for (const Segment& segment : found_) {
      if (used_.empty() || segment.sequence > used_.back().sequence) newer.push_back(segment);
    }
    return newer;
  }
  bool is_empty() const { return found_.empty() && used_.empty(); }
  // Drops the segments before this position from the chain.
  void Release(Position keep) {
    while (used_.size() > 1 && used_.front().sequence < std::min(keep.sequence, held_)) PopOldest();
  }
  // Appends a new segment to the chain, as the successor of `predecessor` (0 = none), and writes
  // its header. Takes a free segment, or makes the file longer. Returns ResourceExhausted, and
  // changes nothing, if there is no space.
  Status Start(Lsn first, std::uint64_t predecessor);
  // Makes sure that there is a free segment, so that the log can continue if the device becomes
  // full.
  Status KeepOneFree() { return free_.empty() ? FillSome(~std::uint64_t{0}) : absl::OkStatus(); }
  // Makes sure that Start finds free segments with room for this many bytes.
  Status Reserve(std::uint64_t bytes);

  bool has_free() const { return !free_.empty(); }
  // Takes the next segment to fill: one that was filled in part, or a new one at the end of the
  // file.
  StatusOr<Unfilled> TakeUnfilled();
  // Fills the next `bytes` of the segment, or the rest of it. Takes long, and may run beside all
  // other functions.
  static Status Fill(FileT& file, ZeroFill fill, std::uint64_t bytes, Unfilled* segment);
  // Gives back a segment of TakeUnfilled: as a free one if it is filled, else as the next one to
  // fill.
  void Return(const Unfilled& segment);
  // Fills `bytes` of the next segment to fill.
  Status FillSome(std::uint64_t bytes);
  ZeroFill fill() const { return fill_; }
  void set_fill(ZeroFill fill) { fill_ = fill; }

  const std::deque<Segment>& used() const { return used_; }
  // Drops the segments between the one with this sequence and the newest, which a recovery has
  // discarded.
  void DropAfter(std::uint64_t sequence) {
    const Segment newest = used_.back();
    used_.pop_back();
    while (!used_.empty() && used_.back().sequence > sequence) {
      free_.push_back(used_.back().index);
      used_.pop_back();
    }
    used_.push_back(newest);
  }
  std::uint64_t file_bytes() const { return format::LogSegmentOffset(num_segments_); }

 private:
  void PopOldest() {
    free_.push_back(used_.front().index);
    used_.pop_front();
  }
  static Segment SegmentOf(const format::LogSegmentStart& start) {
    const format::LogSegmentHeader& header = start.header;
    Segment segment{.index = header.index, .sequence = header.sequence, .predecessor = header.predecessor, .first = header.first_lsn};
    if (start.history.check != CheckOf(start)) return segment;
    segment.predecessor_log = start.history.predecessor_log;
    segment.secret = start.history.secret;
    segment.time = start.history.time;
    return segment;
  }

  FileT& file_;
  const DatabaseId database_;
  ZeroFill fill_ = ZeroFill::kPages;
  std::uint32_t num_segments_ = 0;
  std::uint64_t last_sequence_ = 0;
  std::deque<Segment> used_;
  std::vector<std::uint32_t> free_;
  std::vector<Unfilled> unfilled_;  // more than one only if two threads grow the log at once
  std::vector<Segment> found_;      // what Load has found, in ascending order of sequences
  Link history_;                    // the last segment of the log before this one
  std::uint64_t secret_ = 0;        // 0 = without an archive
  bool has_times_ = false;
  std::uint64_t held_ = ~std::uint64_t{0};
};

template <File FileT>
Status LogSegments<FileT>::Load() {
  bool has_foreign = false;
  while (format::LogSegmentOffset(num_segments_ + 1) <= file_.Size()) {
    HAKO_ASSIGN_OR_RETURN(const auto start, ReadStart(file_, num_segments_));
    if (start) {
      const format::LogSegmentHeader& header = start->header;
      if (header.version > format::kLogVersion)
        return absl::UnimplementedError(
            absl::StrCat("log format ", header.version.get(), " is newer than the newest this library knows, ", format::kLogVersion));
      if (header.database == database_) {
        if (header.predecessor >= header.sequence)
          return DataLossError("a segment of the log names a later one as its predecessor", format::LogSegmentOffset(num_segments_));
        found_.push_back(SegmentOf(*start));
        last_sequence_ = std::max<std::uint64_t>(last_sequence_, header.sequence);
      } else {
        has_foreign = true;
      }
    }
    ++num_segments_;
  }
  if (found_.empty() && has_foreign) return absl::InvalidArgumentError("the log belongs to another database");
  std::ranges::sort(found_, {}, &Segment::sequence);
  for (std::uint32_t i = num_segments_; i-- > 0;) free_.push_back(i);
  return absl::OkStatus();
}

template <File FileT>
Status LogSegments<FileT>::Follow(Position from) {
  const auto find = [this](const auto& matches) -> const Segment* {
    const auto it = std::find_if(found_.rbegin(), found_.rend(), matches);
    return it == found_.rend() ? nullptr : &*it;
  };
  const Segment* next = find([&](const Segment& segment) { return segment.sequence == from.sequence; });
  // A log that began twice may have lost its first segment in a power cut, so any segment that
  // begins at LSN 0 is accepted.
  if (next == nullptr && from.lsn == 0) next = find([](const Segment& segment) { return segment.first == 0; });
  if (next == nullptr && (from.lsn != 0 || !found_.empty()))
    return absl::DataLossError(absl::StrCat("the log lacks the updates from LSN ", from.lsn, " on"));
  while (next != nullptr) {
    used_.push_back(*next);
    std::erase(free_, next->index);
    const Segment before = *next;
    next = find([&before](const Segment& segment) {
      return segment.predecessor == before.sequence && segment.first >= before.first && segment.first <= before.end();
    });
  }
  return absl::OkStatus();
}

// A segment before the chain ends where the next one begins.
template <File FileT>
template <class F>
void LogSegments<FileT>::FollowBack(std::uint64_t after, F&& is_whole) {
  while (!used_.empty() && used_.front().predecessor > after && used_.front().predecessor_log == database_) {
    const Segment next = used_.front();
    const auto before = std::ranges::find(found_, next.predecessor, &Segment::sequence);
    if (before == found_.end() || before->first > next.first || next.first > before->end()) return;
    Segment whole = *before;
    whole.limit = next.first;
    if (!is_whole(whole)) return;
    used_.push_front(*before);
    std::erase(free_, before->index);
  }
}

template <File FileT>
StatusOr<Unfilled> LogSegments<FileT>::TakeUnfilled() {
  if (!unfilled_.empty()) {
    const Unfilled segment = unfilled_.back();
    unfilled_.pop_back();
    return segment;
  }
  free_.reserve(num_segments_ + 1);  // Return must not fail
  unfilled_.reserve(num_segments_ + 1);
  const std::uint64_t end = format::LogSegmentOffset(num_segments_ + 1);
  if (file_.Size() < end) HAKO_RETURN_IF_ERROR(file_.Resize(end));
  const std::uint32_t index = num_segments_++;
  return Unfilled{index, format::LogSegmentOffset(index)};
}

// Writes zeros instead of only allocating space, because a sync after a write into space that was
// never written would also write the file system's journal. The size of the writes matters because
// some file systems cache and write back units of the size of the first write.
template <File FileT>
Status LogSegments<FileT>::Fill(FileT& file, ZeroFill fill, std::uint64_t bytes, Unfilled* segment) {
  static constexpr std::array<std::byte, static_cast<std::size_t>(ZeroFill::kBlocks)> kZeros{};
  const std::uint64_t begin = segment->at, end = begin + std::min(bytes, segment->rest());
  while (segment->at < end) {
    const std::size_t block = std::min<std::size_t>(static_cast<std::size_t>(fill), end - segment->at);
    HAKO_RETURN_IF_ERROR(file.WriteAt(segment->at, std::span(kZeros).first(block)));
    segment->at += block;
  }
  if constexpr (requires { file.Prefault(begin, std::size_t{0}); }) file.Prefault(begin, end - begin);
  return absl::OkStatus();
}

template <File FileT>
void LogSegments<FileT>::Return(const Unfilled& segment) {
  if (segment.rest() == 0)
    free_.push_back(segment.index);
  else
    unfilled_.push_back(segment);
}

template <File FileT>
Status LogSegments<FileT>::FillSome(std::uint64_t bytes) {
  HAKO_ASSIGN_OR_RETURN(Unfilled segment, TakeUnfilled());
  const Status status = Fill(file_, fill_, bytes, &segment);
  Return(segment);
  return status;
}

// At its end each segment may waste up to the size of the largest part of an entry.
template <File FileT>
Status LogSegments<FileT>::Reserve(std::uint64_t bytes) {
  const auto room = [](std::uint32_t index) {
    return format::LogSegmentSize(index) - format::kLogSegmentHeader - sizeof(format::LogRecordHeader) - format::kLogPartMax;
  };
  std::uint64_t reserved = 0;
  for (const std::uint32_t index : free_) reserved += room(index);
  while (reserved < bytes) {
    HAKO_RETURN_IF_ERROR(FillSome(~std::uint64_t{0}));
    reserved += room(free_.back());
  }
  return absl::OkStatus();
}

template <File FileT>
Status LogSegments<FileT>::Start(Lsn first, std::uint64_t predecessor) {
  HAKO_RETURN_IF_ERROR(KeepOneFree());
  format::LogSegmentStart start{};
  start.header = {.magic = format::kLogMagic,
                  .version = has_times_ ? format::kLogVersion : format::kLogPlainVersion,
                  .index = free_.back(),
                  .database = database_,
                  .sequence = last_sequence_ + 1,
                  .predecessor = predecessor,
                  .first_lsn = first,
                  .check = 0};
  start.header.check = CheckOf(start.header);
  if (secret_ != 0) {
    start.history = {.predecessor_log = used_.empty() ? history_.log : database_, .secret = secret_, .time = WallClock(), .check = 0};
    start.history.check = CheckOf(start);
  }
  const Segment segment = SegmentOf(start);
  used_.push_back(segment);
  if (Status status = file_.WriteAt(segment.offset(), std::as_bytes(std::span(&start, 1))); !status.ok()) {
    used_.pop_back();
    return status;
  }
  free_.pop_back();
  ++last_sequence_;
  return absl::OkStatus();
}

}  // namespace hako::log
