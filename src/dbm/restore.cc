#include "hako/dbm/restore.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "hako/dbm/log_summary.h"
#include "hako/log/log_reader.h"

namespace hako::internal {

namespace {

using LogFile = PositionalParallelFile;
using log::Link;
using log::Lsn;

StatusOr<LogFile> OpenForReading(const std::string& path, std::chrono::milliseconds lock_timeout = {}) {
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  reading.lock_timeout = lock_timeout;
  return LogFile::Open(path, reading);
}

// Returns the id of a log with an archive, which is that of its newest segment.
StatusOr<log::DatabaseId> IdOfLog(const std::string& path, const LogFile& file) {
  std::uint64_t newest = 0;
  log::DatabaseId id{};
  for (std::uint32_t i = 0; format::LogSegmentOffset(i + 1) <= file.Size(); ++i) {
    HAKO_ASSIGN_OR_RETURN(const auto start, log::LogSegments<LogFile>::ReadStart(file, i));
    if (!start || start->history.check != CheckOf(*start) || start->header.sequence <= newest) continue;
    newest = start->header.sequence;
    id = start->header.database;
  }
  if (newest == 0) return absl::FailedPreconditionError(absl::StrCat(path, ": not the log of a database with an archive"));
  return id;
}

}  // namespace

StatusOr<LogFile> OpenCopy(const std::string& copy, const std::string& to, const RestoreOptions& options) {
  HAKO_RETURN_IF_ERROR(RefuseExisting(to, kARestore));
  HAKO_RETURN_IF_ERROR(RefuseLogBeside(to));
  return OpenForReading(copy, options.lock_timeout);
}

StatusOr<std::unique_ptr<RestoreSource>> RestoreSource::Open(PositionalParallelFile& copy, const std::string& archive,
                                                             const RestoreOptions& options) HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(const log::NamedLog named, FindNamedLog(copy));
  if (named.IsNone()) return absl::FailedPreconditionError("the copy names no log: it was made of a database that had no log archive");
  auto source = std::make_unique<RestoreSource>();
  HAKO_ASSIGN_OR_RETURN(std::vector<log::ArchivedSegment> segments, log::ListArchive(archive));
  // A directory without segments is an archive if a database has opened it.
  if (segments.empty() && RefuseExisting(absl::StrCat(archive, "/", std::string(format::kArchiveOwner)), "").ok())
    return absl::FailedPreconditionError(absl::StrCat(archive, " is no log archive: it has no segment, and no database has used it"));
  for (log::ArchivedSegment& segment : segments) source->pieces_.push_back({std::move(segment), 0});
  if (!options.log.empty()) HAKO_RETURN_IF_ERROR(source->AddLog(options.log));
  source->report_.copy_lsn = source->report_.lsn = named.from.lsn;
  HAKO_RETURN_IF_ERROR(source->FindFirst(named));
  source->FindRest();
  HAKO_RETURN_IF_ERROR(source->FindPoint(options));
  return source;
}
HAKO_OR_NO_MEMORY

// If the archive has a segment, too, the archive's file is used.
Status RestoreSource::AddLog(const std::string& path) {
  HAKO_ASSIGN_OR_RETURN(LogFile file, OpenForReading(path));
  HAKO_ASSIGN_OR_RETURN(const log::DatabaseId id, IdOfLog(path, file));
  log::LogSegments<LogFile> segments(file, id);
  HAKO_RETURN_IF_ERROR(segments.Load());
  for (const log::Segment& segment : segments.found()) {
    if (At({id, segment.sequence}) == nullptr) pieces_.push_back({{path, id, segment}, segment.offset()});
  }
  return absl::OkStatus();
}

auto RestoreSource::At(const Link& link) const -> const Piece* {
  const auto it = std::ranges::find_if(pieces_, [&link](const Piece& piece) { return piece.of.link() == link; });
  return it == pieces_.end() ? nullptr : &*it;
}

// The log may have several such pieces, of which a recovery has discarded all but the newest.
auto RestoreSource::After(const Link& link) const -> const Piece* {
  const Piece* after = nullptr;
  for (const Piece& piece : pieces_) {
    if (piece.of.segment.before() != link) continue;
    if (after == nullptr || (after->of.segment.limit == 0 && after->of.segment.sequence < piece.of.segment.sequence)) after = &piece;
  }
  return after;
}

auto RestoreSource::PieceOf(const log::Segment& segment) const -> const Piece* {
  const auto it = std::ranges::find_if(chained_, [&segment](const Piece* piece) { return piece->of.segment.sequence == segment.sequence; });
  return it == chained_.end() ? nullptr : *it;
}

// Finds the segment of the copy's state. The copy has some or all of its updates.
Status RestoreSource::FindFirst(const log::NamedLog& named) {
  const Link link = named.link();
  const Lsn lsn = named.from.lsn;
  const Piece* first = At(link);
  if (first == nullptr) {
    first = After(link);
    if (first != nullptr && first->of.segment.first != lsn) first = nullptr;
  }
  if (first != nullptr) {
    const log::Segment& segment = first->of.segment;
    if (lsn < segment.first || lsn > (segment.limit != 0 ? segment.limit : segment.end())) {
      return absl::DataLossError(absl::StrCat(first->of.path, ": segment ", segment.sequence, " begins at LSN ", segment.first,
                                              " and does not have the position of the copy, LSN ", lsn));
    }
    chained_.push_back(first);
    return absl::OkStatus();
  }
  const auto is_of_log = [&link](const Piece& piece) { return piece.of.log == link.log || piece.of.segment.predecessor_log == link.log; };
  const auto is_later = [&link](const Piece& piece) { return piece.of.segment.sequence > link.sequence; };
  if (pieces_.empty()) return absl::OkStatus();
  if (std::ranges::none_of(pieces_, is_of_log)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the archive has no segment of the log that the copy names: it is the archive of another database or branch, or segment ",
        link.sequence, " is not in it yet"));
  }
  if (std::ranges::none_of(pieces_, is_later)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the archive lacks segment ", link.sequence, ", which has LSN ", lsn, " of the copy"));
}

// Whether this segment of the log branches off before the end of the last archived one. If so, a
// power cut lost the records before the segment, and no recovery includes it.
bool RestoreSource::IsDiscarded(const Piece& piece, const Piece& last) const {
  if (piece.of.segment.limit != 0) return false;
  const Piece* first = &piece;
  for (const Piece* before = At(first->of.segment.before()); before != nullptr && before->of.segment.limit == 0;) {
    first = before;
    before = At(first->of.segment.before());
  }
  return first->of.segment.before().log == last.of.log && first->of.segment.predecessor <= last.of.segment.sequence;
}

// Extends the chain up to the end, or to the first missing segment.
void RestoreSource::FindRest() {
  while (!chained_.empty()) {
    const Piece& last = *chained_.back();
    const Piece* const next = After(last.of.link());
    if (next != nullptr && (last.of.segment.limit == 0 || next->of.segment.first == last.of.segment.limit)) {
      chained_.push_back(next);
      continue;
    }
    const Piece* later = nullptr;
    for (const Piece& piece : pieces_) {
      if (piece.of.segment.sequence <= last.of.segment.sequence) continue;
      // A power cut may leave any of the last segments of a log in use.
      if (last.of.segment.limit == 0 && piece.of.segment.limit == 0) continue;
      if (IsDiscarded(piece, last)) continue;
      if (later == nullptr || piece.of.segment.sequence < later->of.segment.sequence) later = &piece;
    }
    if (later == nullptr) break;
    const log::Segment& segment = later->of.segment;
    missing_ = segment.predecessor > last.of.segment.sequence
                   ? absl::DataLossError(absl::StrCat("the archive lacks segment ", segment.predecessor, ", between segments ",
                                                      last.of.segment.sequence, " and ", segment.sequence))
                   : absl::FailedPreconditionError(
                         absl::StrCat(later->of.path, ": segment ", segment.sequence, " is of another branch of the history"));
    break;
  }
  for (const Piece* piece : chained_) chain_.push_back(piece->of.segment);
}

Status RestoreSource::FindPoint(const RestoreOptions& options) {
  const Lsn copy = report_.copy_lsn;
  if (options.until_lsn && *options.until_lsn < copy)
    return absl::OutOfRangeError(absl::StrCat("LSN ", *options.until_lsn, " is before the copy, which has LSN ", copy));
  bool is_found = false;
  const auto count = [&](std::span<const format::LogEntry> run, log::Position, log::RunTime when) -> Status {
    is_found = (options.until_lsn && when.lsn > *options.until_lsn) || (options.until_time && when.time > *options.until_time);
    if (is_found) return absl::CancelledError();
    report_.lsn = when.lsn;
    report_.time = when.time;
    report_.num_updates += run.size();
    for (const format::LogEntry& entry : run)
      has_ranges_ = has_ranges_ || entry.op == format::LogOp::kRemoveRange || entry.op == format::LogOp::kRemoveFrom;
    return absl::OkStatus();
  };
  log::LogReader<RestoreSource> reader(*this, chain_, {}, 0);
  const StatusOr<Lsn> end = chain_.empty() ? StatusOr<Lsn>(copy) : reader.Read(copy, count);
  if (!end.ok() && !is_found) return end.status();
  if (options.until_time && *options.until_time < reader.start_time())
    return absl::OutOfRangeError(absl::StrCat("the time is before the copy, which has LSN ", copy));
  if (is_found) return absl::OkStatus();
  if (options.until_lsn && *options.until_lsn <= *end) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(missing_);
  if (!options.until_lsn) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("LSN ", *options.until_lsn, " is behind the end of the archive; the last update has LSN ", report_.lsn));
}

Status RestoreSource::ForEach(FunctionRef<Status(std::span<const format::LogEntry>)> redo) {
  if (report_.num_updates == 0) return absl::OkStatus();
  bool is_done = false;
  const auto redo_until = [&](std::span<const format::LogEntry> run, log::Position, log::RunTime when) -> Status {
    is_done = when.lsn > report_.lsn;
    return is_done ? absl::CancelledError() : redo(run);
  };
  log::LogReader<RestoreSource> reader(*this, chain_, {}, 0);
  const StatusOr<Lsn> end = reader.Read(report_.copy_lsn, redo_until);
  return is_done ? absl::OkStatus() : end.status();
}

Status RestoreSource::ReadSegment(const log::Segment& segment, std::vector<char>* bytes) const {
  const Piece* const piece = PieceOf(segment);
  HAKO_ASSIGN_OR_RETURN(const LogFile file, OpenForReading(piece->of.path));
  const std::uint64_t size = segment.limit == 0 ? bytes->size() : format::kLogSegmentHeader + (segment.limit - segment.first);
  if (size > bytes->size() || piece->offset + size > file.Size())
    return absl::DataLossError(absl::StrCat(piece->of.path, ": segment ", segment.sequence, " is cut off"));
  return file.ReadAt(piece->offset, std::as_writable_bytes(std::span(*bytes).first(size)));
}

Status RestoreSource::DamageAt(const log::Segment& segment, Lsn lsn) const {
  const Piece* const piece = PieceOf(segment);
  const std::uint64_t offset = piece->offset + format::kLogSegmentHeader + (lsn - segment.first);
  return DataLossError(absl::StrCat(piece->of.path, ": the record of LSN ", lsn, " is damaged"), offset);
}

}  // namespace hako::internal
