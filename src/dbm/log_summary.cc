#include "hako/dbm/log_summary.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "hako/array/array_pages.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/log_place.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/hash/file/extent_file.h"
#include "hako/log/log_reader.h"
#include "hako/log/update_log.h"
#include "hako/storage/snapshot.h"
#include "hako/storage/superblock_slots.h"
#include "hako/tree/file/page_store.h"

namespace hako {
namespace {

using LogFile = PositionalParallelFile;

template <class Block>
StatusOr<log::NamedLog> NamedBySuperBlock(const LogFile& file, const storage::FileKind& kind, std::uint64_t least) {
  HAKO_ASSIGN_OR_RETURN(const Block super, storage::ReadNewerSlot<Block>(file, kind, least));
  return log::NamedLogOf(super);
}

StatusOr<log::NamedLog> NamedBySnapshot(LogFile& file) {
  storage::SnapshotReader<LogFile> reader(file);
  HAKO_RETURN_IF_ERROR(reader.ForEach([](std::string_view, std::string_view) { return absl::OkStatus(); }));
  const format::SnapshotLog& log = reader.end().log;
  return log::NamedLog{log.id, {log.lsn, log.sequence}, log.secret};
}

}  // namespace

StatusOr<std::array<char, 16>> FindMagic(const LogFile& file) {
  for (const std::uint64_t slot : {std::uint64_t{0}, storage::kSlotDistance}) {
    std::array<char, 16> magic{};
    if (file.Size() < slot + magic.size()) break;
    HAKO_RETURN_IF_ERROR(file.ReadAt(slot, std::as_writable_bytes(std::span(magic))));
    if (magic == format::kHashFileMagic || magic == format::kTreeFileMagic || magic == format::kArrayFileMagic ||
        (slot == 0 && magic == format::kSnapshotMagic))
      return magic;
  }
  return absl::InvalidArgumentError("not a hako database: bad magic at offset 0");
}

StatusOr<log::NamedLog> FindNamedLog(LogFile& file) {
  using Hash = hash::ExtentFile<LogFile>;
  using Tree = tree::PageStore<LogFile>;
  HAKO_ASSIGN_OR_RETURN(const auto magic, FindMagic(file));
  if (magic == format::kHashFileMagic) return NamedBySuperBlock<format::HashSuperBlock>(file, Hash::kKind, format::kFirstExtent);
  if (magic == format::kSnapshotMagic) return NamedBySnapshot(file);
  return NamedBySuperBlock<format::TreeSuperBlock>(file, magic == format::kArrayFileMagic ? array::kArrayFileKind : Tree::kKind,
                                                   format::kTreeFirstUnit * format::kTreeUnit);
}

namespace {

// Whether anything was written after the end of the log.
bool IsWritten(const LogFile& file, const log::Segment& segment, std::uint64_t end) {
  std::array<std::byte, sizeof(format::LogRecordHeader)> bytes{};
  if (end < segment.first || segment.end() - end < bytes.size() || end > segment.end()) return false;
  if (!file.ReadAt(segment.PlaceOf(end), bytes).ok()) return false;
  return std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; });
}

// Reads the log. Returns OK or the damage.
Status ReadLog(LogFile& file, const log::NamedLog& named, LogVisitorRef visit, LogSummary* summary) {
  log::LogSegments<LogFile> segments(file, named.id);
  HAKO_RETURN_IF_ERROR(segments.Load());
  for (const log::Segment& segment : segments.NewerSegments()) summary->segments.push_back({segment});
  HAKO_RETURN_IF_ERROR(segments.Follow(named.from));
  for (LogSummary::Part& part : summary->segments) {
    const auto is_this = [&part](const log::Segment& used) { return used.sequence == part.segment.sequence; };
    part.is_needed = std::ranges::any_of(segments.used(), is_this);
  }
  if (segments.used().empty()) return absl::DataLossError("the log, which has the newest updates, is empty");
  log::LogReader<LogFile> reader(file, segments.used(), segments.NewerSegments(), named.secret);
  const auto count = [&](std::span<const format::LogEntry> run, log::Position end) {
    ++summary->num_runs;
    summary->num_updates += run.size();
    summary->end = std::max(summary->end, end.lsn);
    visit(end.lsn, run);
    return absl::OkStatus();
  };
  const StatusOr<log::Lsn> end = reader.Read(named.from.lsn, count);
  summary->durable = std::max(reader.durable(), named.from.lsn);
  HAKO_RETURN_IF_ERROR(end.status());
  summary->end = *end;
  const auto& used = segments.used();
  const auto last = std::find_if(used.rbegin(), used.rend(), [&](const log::Segment& segment) { return segment.first <= *end; });
  summary->is_torn = last != used.rend() && IsWritten(file, *last, *end);
  return absl::OkStatus();
}

}  // namespace

StatusOr<LogSummary> SummarizeLog(const std::string& path, LogVisitorRef visit, const FileOptions& options) HAKO_TRY {
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  reading.lock_timeout = options.lock_timeout;
  HAKO_ASSIGN_OR_RETURN(LogFile file, LogFile::Open(path, reading));
  const StatusOr<log::NamedLog> named = FindNamedLog(file);
  if (!named.ok()) return Status(named.status().code(), absl::StrCat(path, ": ", named.status().message()));
  LogSummary summary;
  summary.path = LogPathOf(path);
  if (!named->IsNeeded()) return summary;
  summary.id = named->id;
  summary.checkpoint = named->from;
  summary.end = summary.durable = named->from.lsn;
  LogPlace<LogFile> place(path, reading);
  StatusOr<LogFile> log = place.OpenExisting(false);
  if (!log.ok()) {
    summary.damage = log.status();
    return summary;
  }
  summary.bytes = log->Size();
  summary.damage = ReadLog(*log, *named, visit, &summary);
  return summary;
}
HAKO_OR_NO_MEMORY

}  // namespace hako
