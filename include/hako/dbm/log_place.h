// Where the log of a database lies: in a file beside the database, DATABASE-log, or in one that the
// application has opened.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/path.h"
#include "hako/format/log_format.h"

namespace hako {

// Returns the absolute path of the log of the database at `path`, which may be a symbolic link to it.
std::string LogPathOf(const std::string& path);
// The file at a path: its device and inode; zeros if there is none.
using FileNumber = std::pair<std::uint64_t, std::uint64_t>;
FileNumber NumberOf(const std::string& path);
// Gives the log at `path` the permissions, owner and group of its database.
Status TakePermissionsOfDatabase(const std::string& path);

// Returns FailedPrecondition if the log beside `path` has updates. The database of that log was not
// closed, or was moved or lost. A new file at `path` could not be opened beside the log
// (LogPlace::RefuseOther), and replacing the database would lose these updates.
Status RefuseLogBeside(const std::string& path);

// Updates that a database makes when it is opened, in place of those of a log (dbm/restore.h).
class UpdateSource {
 public:
  // Calls redo for each run, in order, up to its first error.
  virtual Status ForEach(FunctionRef<Status(std::span<const format::LogEntry>)> redo) = 0;

 protected:
  ~UpdateSource() = default;
};

// The suffix of a log: its path is the path of the database followed by this.
inline constexpr std::string_view kLogEnding = "-log";

// Where the log of a database is: a file, a path, nowhere, or an UpdateSource in its place.
template <File LogFile>
class LogPlace {
 public:
  // The database has no log.
  LogPlace() = default;
  explicit LogPlace(LogFile file) : file_(std::move(file)) {}
  // The log is beside the existing database at this path, and is opened with `options`.
  // `taken_back`: what becomes of the database if the opening fails.
  LogPlace(const std::string& database, const FileOptions& options, TakeBack taken_back = TakeBack::kNothing)
      : path_(LogPathOf(database)), taken_back_(taken_back) {
    may_be_in_use_ = options.beside_readers && options.mode == OpenMode::kReadOnly;
    if (!may_be_in_use_) options_.lock_timeout = options.lock_timeout;
    drops_others_ = options.mode == OpenMode::kTruncate;
    options_.huge_pages = false;
  }

  // The log of the database is not needed: `source`, which must outlive Open, has the later updates.
  explicit LogPlace(UpdateSource& source) : source_(&source) {}

  // The updates in place of a log; nullptr = none.
  UpdateSource* source() const { return source_; }
  // Not kNothing for a new database: its log is then new, too, and is taken back with it
  // (UndoableFile).
  TakeBack taken_back() const { return taken_back_; }
  // Whether there is a file or a path.
  bool is_known() const { return file_.has_value() || !path_.empty(); }

  // Whether the database is opened as a reader beside a writer, which has the log locked.
  bool may_be_in_use() const { return may_be_in_use_; }

  // Opens the log that the database needs. DataLoss if there is none.
  StatusOr<LogFile> OpenExisting(bool writable) {
    StatusOr<LogFile> file = TakeFile(writable ? OpenMode::kReadWrite : OpenMode::kReadOnly);
    if (absl::IsNotFound(file.status()))
      return absl::DataLossError(
          absl::StrCat("the log is missing, which has the newest updates: ", path_.empty() ? "no file given" : path_));
    return file;
  }
  // Makes the file of the log durable, if there is one.
  Status Sync() {
    if (file_.has_value()) return file_->Sync();
    StatusOr<LogFile> file = TakeFile(OpenMode::kReadWrite);
    if (absl::IsNotFound(file.status())) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(file.status());
    HAKO_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  }
  // Whether the file in the place is the log of another database and has been in use: its first
  // segment has a record.
  StatusOr<bool> HasUpdatesOfOther(const std::array<std::byte, 16>& database) const {
    if constexpr (PathFile<LogFile>) {
      FileOptions options = options_;
      options.mode = OpenMode::kReadOnly;
      StatusOr<LogFile> file = LogFile::Open(path_, options);
      if (absl::IsNotFound(file.status())) return false;
      HAKO_RETURN_IF_ERROR(file.status());
      std::array<std::byte, format::kLogSegmentHeader + sizeof(format::LogRecordHeader)> begin{};
      if (file->Size() >= begin.size()) HAKO_RETURN_IF_ERROR(file->ReadAt(0, begin));
      HAKO_RETURN_IF_ERROR(file->Close());
      format::LogSegmentHeader header;
      std::memcpy(static_cast<void*>(&header), begin.data(), sizeof(header));
      if (header.check == CheckOf(header) && header.database == database) return false;
      const auto record = std::span(begin).subspan(format::kLogSegmentHeader);
      return std::ranges::any_of(record, [](std::byte byte) { return byte != std::byte{0}; });
    }
    return false;
  }
  // What Look finds in the place of the log.
  struct Found {
    bool has_history = false;  // a log of this database, whose newest segment belongs to a history with an archive
    bool is_other = false;     // another log, with updates, or the log of a database whose file is missing
  };
  // is_mine(id): whether the database has, or had, the log of this id.
  template <class IsMine>
  StatusOr<Found> Look(IsMine&& is_mine) const {
    if (file_.has_value()) return LookInto(*file_, is_mine);
    if constexpr (PathFile<LogFile>) {
      if (path_.empty()) return Found{};
      FileOptions options = options_;
      options.mode = OpenMode::kReadOnly;
      StatusOr<LogFile> file = LogFile::Open(path_, options);
      if (absl::IsNotFound(file.status())) return Found{};
      HAKO_RETURN_IF_ERROR(file.status());
      return LookInto(*file, is_mine);
    }
    return Found{};
  }
  // Returns FailedPrecondition if the log there belongs to another database: it may have the newest
  // updates of a database that was moved or lost. If Open has just created the file of the database,
  // even a log without updates tells that a file was there: the file is made durable before its log,
  // and removed after it. If the database is opened with kTruncate, removes that log instead.
  Status RefuseOther(const Found& found) const {
    if (!found.is_other) return absl::OkStatus();
    if (drops_others_ && !path_.empty()) return RemoveFile(path_);
    if (IsNew()) {
      return absl::FailedPreconditionError(
          absl::StrCat("there is no file ", database(), ", but its log, ", path_,
                       ": no empty database is created in its place. If the file was moved, move it back, or the log with it; if it was "
                       "lost, restore a copy of it; else remove the log"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        path_.empty() ? "the log" : path_,
        " is the log of another database, or of a file that was here before, and may have its newest updates: it is not overwritten. If "
        "that file was moved, move the log too, to its name followed by -log; if it was lost, restore a copy of it; else remove the log"));
  }
  // The path of the database; "" if it is not known.
  std::string database() const { return path_.substr(0, path_.size() - std::min(path_.size(), kLogEnding.size())); }

  // Creates an empty log. Drops an existing one, which no database needs; InvalidArgument if the
  // file there is not a log. A file that was created is taken back unless kept (RecordLog::Keep).
  StatusOr<LogFile> Create() {
    StatusOr<LogFile> file = TakeFile(OpenMode::kCreate);
    if (!file.ok()) {
      return Status(file.status().code(),
                    absl::StrCat("cannot create the log, which only Durability::kNone does without: ", file.status().message()));
    }
    if constexpr (UndoableFile<LogFile>) {
      if (!path_.empty() && file->WasCreated()) file->SetTakeBack(TakeBack::kFile);
    }
    if (file->Size() != 0) {
      HAKO_RETURN_IF_ERROR(CheckIsLog(*file));
      HAKO_RETURN_IF_ERROR(file->Resize(0));
    }
    if (!path_.empty()) HAKO_RETURN_IF_ERROR(TakePermissionsOfDatabase(path_));
    return file;
  }
  // Removes the log, which the database no longer needs, unless another file has taken its place.
  // REQUIRES: it is closed (unchecked: another object has it)
  Status Remove() { return path_.empty() || number_ == FileNumber{} || NumberOf(path_) != number_ ? absl::OkStatus() : RemoveFile(path_); }
  // Removes a log that a failed or killed opening has left, and that no database needs
  // (RefuseOther). A file that is not a log, or cannot be opened or removed, stays.
  void RemoveUnneeded() {
    if (path_.empty()) return;
    StatusOr<LogFile> file = TakeFile(OpenMode::kReadWrite);
    if (file.ok() && CheckIsLog(*file).ok() && file->Close().ok()) (void)Remove();
  }

 private:
  // Whether Open has created the file of the database, which was absent.
  bool IsNew() const { return taken_back_ == TakeBack::kFile; }
  template <class IsMine>
  StatusOr<Found> LookInto(const LogFile& file, IsMine&& is_mine) const {
    Found found;
    std::uint64_t newest = 0;
    std::array<std::byte, format::kLogSegmentHeader + sizeof(format::LogRecordHeader)> begin;
    for (std::uint32_t i = 0; format::LogSegmentOffset(i + 1) <= file.Size(); ++i) {
      HAKO_RETURN_IF_ERROR(file.ReadAt(format::LogSegmentOffset(i), begin));
      format::LogSegmentStart start;
      std::memcpy(static_cast<void*>(&start), begin.data(), sizeof(start));
      if (start.header.magic != format::kLogMagic || start.header.check != CheckOf(start.header)) continue;
      const auto record = std::span(begin).subspan(format::kLogSegmentHeader);
      if (!is_mine(start.header.database)) {
        found.is_other = found.is_other || IsNew() || std::ranges::any_of(record, [](std::byte byte) { return byte != std::byte{0}; });
      } else if (start.header.sequence > newest) {
        newest = start.header.sequence;
        found.has_history = start.history.check == CheckOf(start);
      }
    }
    return found;
  }
  // Returns OK if the file begins like a log, or with zeros only, like a log that was not
  // completed.
  Status CheckIsLog(const LogFile& file) const {
    std::array<char, sizeof(format::kLogMagic)> begin{};
    const std::size_t size = std::min<std::uint64_t>(file.Size(), begin.size());
    HAKO_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(begin).first(size))));
    if (begin == format::kLogMagic || begin == decltype(begin){}) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the file in place of the log is none: ", path_));
  }
  StatusOr<LogFile> TakeFile(OpenMode mode) {
    if (file_.has_value()) {
      LogFile file = std::move(*file_);
      file_.reset();
      return file;
    }
    if constexpr (PathFile<LogFile>) {
      options_.mode = mode;
      if (!path_.empty()) {
        auto file = LogFile::Open(path_, options_);
        if (file.ok()) number_ = NumberOf(path_);
        return file;
      }
    }
    return absl::NotFoundError("no log");
  }

  UpdateSource* source_ = nullptr;
  bool drops_others_ = false;
  bool may_be_in_use_ = false;
  std::optional<LogFile> file_;
  std::string path_;  // empty: file_ is the log, or there is none
  TakeBack taken_back_ = TakeBack::kNothing;
  FileNumber number_;  // of the log that was opened
  FileOptions options_;
};

}  // namespace hako
