// The archive of the log of a database: a directory that keeps each segment
// (format/archive_format.h) that the log itself no longer needs. Together with a copy of the
// database it restores every later state (dbm/restore.h).
//
// The history in it is continuous: each segment names the one before, across all openings of the
// database. A segment is stored only when all its records are durable in the log and a checkpoint
// has them, so after any crash the database is a continuation of the archive.
//
// One database at a time uses the directory: Lock holds a lock on the file "owner" there, which names the
// database. Add never replaces a segment of another log.
//
// Crash order. A segment is written under another name, synced, renamed, and the directory is synced
// (file/replace_file.h). Only then may the log reuse the segment.
//
// Not thread-safe.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/bytes.h"
#include "hako/base/status.h"
#include "hako/file/copy_range.h"
#include "hako/file/file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/format/archive_format.h"
#include "hako/log/log_segments.h"

namespace hako::log {

// A segment in an archive.
struct ArchivedSegment {
  std::string path;
  DatabaseId log{};
  Segment segment;  // with its limit, and its predecessor in the archive
  Link link() const { return {log, segment.sequence}; }
};

inline std::string ArchiveNameOf(std::uint64_t sequence) {
  return absl::StrCat(absl::Dec(sequence, absl::kZeroPad20), std::string(format::kArchiveSuffix));
}
// Whether a file of this name is a segment.
inline bool IsArchiveName(std::string_view name) {
  constexpr std::size_t kDigits = format::kArchiveDigits;
  return name.size() == kDigits + format::kArchiveSuffix.size() && name.ends_with(format::kArchiveSuffix) &&
         std::ranges::all_of(name.substr(0, kDigits), [](char c) { return c >= '0' && c <= '9'; });
}

// Reads the header of a segment in an archive. Returns DataLoss if it is damaged or too short.
template <PathFile F>
StatusOr<ArchivedSegment> ReadArchived(const std::string& path) {
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  HAKO_ASSIGN_OR_RETURN(const F file, F::Open(path, reading));
  format::ArchiveHeader header;
  const auto damage = [&path](const char* what) { return absl::DataLossError(absl::StrCat(path, ": ", what, " at offset 0")); };
  if (file.Size() < sizeof(header)) return damage("the file is too short for its header");
  HAKO_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic == format::kArchiveMagic && header.version > format::kArchiveVersion && header.check == CheckOf(header))
    return absl::UnimplementedError(absl::StrCat(path, ": archive format ", header.version.get(), " is newer than this library's"));
  if (header.magic != format::kArchiveMagic || header.check != CheckOf(header)) return damage("the header fails its checksum");
  ArchivedSegment found{.path = path, .log = header.log, .segment = {}};
  found.segment = {.index = header.index,
                   .sequence = header.sequence,
                   .predecessor = header.predecessor,
                   .first = header.first_lsn,
                   .limit = header.end_lsn,
                   .predecessor_log = header.predecessor_log,
                   .secret = header.secret,
                   .time = header.time};
  if (file.Size() != format::kLogSegmentHeader + (header.end_lsn - header.first_lsn))
    return absl::DataLossError(absl::StrCat(path, ": the file has ", file.Size(), " bytes, its header says ",
                                            format::kLogSegmentHeader + (header.end_lsn - header.first_lsn)));
  return found;
}

// Reads the headers of all segments in a directory, in the order of their sequences.
template <PathFile F = PositionalParallelFile>
StatusOr<std::vector<ArchivedSegment>> ListArchive(const std::string& directory) {
  HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  std::vector<ArchivedSegment> segments;
  for (const std::string& name : names) {
    if (!IsArchiveName(name)) continue;
    HAKO_ASSIGN_OR_RETURN(ArchivedSegment segment, ReadArchived<F>(absl::StrCat(directory, "/", name)));
    if (ArchiveNameOf(segment.segment.sequence) != name)
      return absl::DataLossError(absl::StrCat(segment.path, ": the file has segment ", segment.segment.sequence, ", not that of its name"));
    segments.push_back(std::move(segment));
  }
  return segments;
}

// FileT is the type of the log's file.
template <File FileT>
class LogArchive {
 public:
  // The type of the files in the archive. They are written once, so they need no map.
  using ArchiveFile =
      std::conditional_t<ReplaceableFile<FileT> && !std::is_same_v<FileT, MemoryMapParallelFile>, FileT, PositionalParallelFile>;

  explicit LogArchive(std::string_view directory) : directory_(CanonicalOf(std::string(directory))) {}

  // Finds the last segment. Returns an error if the directory cannot be read or that segment is
  // damaged.
  Status Load() {
    HAKO_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory_));
    const auto last = std::find_if(names.rbegin(), names.rend(), [](const std::string& name) { return IsArchiveName(name); });
    if (last == names.rend()) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(const ArchivedSegment segment, ReadArchived<ArchiveFile>(absl::StrCat(directory_, "/", *last)));
    last_ = segment.link();
    end_ = segment.segment.limit;
    return absl::OkStatus();
  }
  // Keeps other databases from using the directory until Unlock. Returns FailedPrecondition, which
  // names the other database, if one uses it.
  Status Lock() {
    const std::string path = absl::StrCat(directory_, "/", std::string(format::kArchiveOwner));
    FileOptions options;
    options.mode = OpenMode::kCreate;
    StatusOr<PositionalParallelFile> file = PositionalParallelFile::Open(path, options);
    if (absl::IsUnavailable(file.status())) {
      std::string owner;
      std::ifstream in(path);
      std::getline(in, owner);
      return absl::FailedPreconditionError(absl::StrCat("the log archive ", directory_, " is used by the database ", owner,
                                                        ", which is open; each database needs a directory for itself"));
    }
    if (!file.ok()) return Status(file.status().code(), absl::StrCat("the log archive ", directory_, ": ", file.status().message()));
    owner_.emplace(*std::move(file));
    Unkeep();  // until Keep
    return absl::OkStatus();
  }
  // Stores the path of the database for the message of Lock. REQUIRES: Lock has returned OK
  // (unchecked: one caller)
  Status NameOwner(const std::string& database) {
    const std::string line = database + "\n";
    HAKO_RETURN_IF_ERROR(owner_->Resize(line.size()));
    return owner_->WriteAt(0, AsBytes(line));
  }
  void Unlock() {
    if (owner_) (void)owner_->Close();
    owner_.reset();
  }
  const std::string& directory() const { return directory_; }
  // The last segment of the history, whose file may have been moved elsewhere. IsNone() if there is
  // none yet.
  const Link& last() const { return last_; }
  // Whether Load has found that the archive ends at this position.
  bool EndsAt(const Link& last, Lsn end) const { return last_ == last && end_ == end; }
  void set_last(const Link& last) { last_ = last; }

  // Stores a segment of a log, with its records up to `end`, as the successor of last(). On an
  // error the archive is unchanged.
  Status Add(const FileT& file, const DatabaseId& log, const Segment& segment, Lsn end) {
    format::ArchiveHeader header{.magic = format::kArchiveMagic,
                                 .version = format::kArchiveVersion,
                                 .index = segment.index,
                                 .log = log,
                                 .predecessor_log = last_.log,
                                 .sequence = segment.sequence,
                                 .predecessor = last_.sequence,
                                 .first_lsn = segment.first,
                                 .end_lsn = end,
                                 .secret = segment.secret,
                                 .time = segment.time,
                                 .check = 0};
    header.check = CheckOf(header);
    if (!is_kept_) added_.reserve(added_.size() + 1);
    const auto write = [&](ArchiveFile& to) { return Write(file, segment, header, to); };
    std::string path = PathOf(segment.sequence);
    Status status = RefuseOther(path, log, segment);
    if (status.ok()) status = ReplaceFile<ArchiveFile>(path, write);
    if (!status.ok()) {
      return Status(status.code(), absl::StrCat("the log archive ", directory_, " could not be written: ", status.message(),
                                                "; the log keeps what it lacks"));
    }
    last_ = {log, segment.sequence};
    if (!is_kept_) added_.push_back(std::move(path));
    return absl::OkStatus();
  }
  // Removes the segments that a failed Open has added; the log still has them. Has no effect after
  // Keep. Needs no memory.
  void TakeBack() {
    for (const std::string& path : added_) (void)unlink(path.c_str());
    added_.clear();
  }
  void Keep() {
    is_kept_ = true;
    added_ = {};
    if (owner_) owner_->SetTakeBack(hako::TakeBack::kNothing);
  }
  // The database is taken back: makes Unlock remove the file "owner" if Lock has created it.
  void Unkeep() {
    if (owner_ && owner_->WasCreated()) owner_->SetTakeBack(hako::TakeBack::kFile);
  }

 private:
  // Refuses to replace a file of another log. A file of an earlier attempt, or one with less of the
  // same segment, may be replaced.
  static Status RefuseOther(const std::string& path, const DatabaseId& log, const Segment& segment) {
    const StatusOr<ArchivedSegment> found = ReadArchived<ArchiveFile>(path);
    if (absl::IsNotFound(found.status())) return absl::OkStatus();
    if (found.ok() && found->log == log && found->segment.first == segment.first) return absl::OkStatus();
    if (!found.ok() && absl::IsFailedPrecondition(found.status())) return found.status();  // the directory is gone
    return absl::FailedPreconditionError(absl::StrCat(path, " is there already, and not of this database",
                                                      found.ok() ? "" : absl::StrCat(" (", found.status().message(), ")"),
                                                      "; it is not replaced: move it elsewhere"));
  }
  std::string PathOf(std::uint64_t sequence) const { return absl::StrCat(directory_, "/", ArchiveNameOf(sequence)); }
  static Status Write(const FileT& file, const Segment& segment, const format::ArchiveHeader& header, ArchiveFile& to) {
    const std::uint64_t bytes = header.end_lsn - segment.first;
    HAKO_RETURN_IF_ERROR(to.Resize(format::kLogSegmentHeader + bytes));
    HAKO_RETURN_IF_ERROR(to.WriteAt(0, std::as_bytes(std::span(&header, 1))));
    return CopyRange(file, segment.PlaceOf(segment.first), to, format::kLogSegmentHeader, bytes);
  }

  std::string directory_;
  Link last_;
  Lsn end_ = 0;                                  // the end of the segment that Load has found
  std::optional<PositionalParallelFile> owner_;  // locked
  bool is_kept_ = false;
  std::vector<std::string> added_;  // until Keep: paths
};

}  // namespace hako::log
