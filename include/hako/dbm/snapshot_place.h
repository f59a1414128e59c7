// Where the snapshot of a database in memory lies: in a file that is open, and so locked, from Open
// to Close. A new snapshot replaces the file as a whole (file/replace_file.h).
//
// A snapshot names the log that has the later updates, and has the clock of records that expire
// (dbm/expiry.h). Another end block makes it name another log and clock (format/snapshot_format.h), so
// that Open and Close need not write all records again. Close cuts off the end blocks that name a
// log, so that repeated opening and closing does not make the file grow. It keeps them if the clock
// in the last end block that names no log would revive a record that was reported absent.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/log_place.h"
#include "hako/file/file.h"
#include "hako/file/path.h"
#include "hako/file/replace_file.h"
#include "hako/format/snapshot_format.h"
#include "hako/log/update_log.h"
#include "hako/storage/snapshot.h"

namespace hako {

inline format::SnapshotLog SnapshotLogOf(const log::NamedLog& named) {
  return {named.id, named.from.lsn, named.from.sequence, named.secret};
}

template <File FileT>
class SnapshotPlace {
 public:
  // The database has no file.
  SnapshotPlace() = default;
  // `file` was opened at `path` with these options. `taken_back` applies to the file, and to a file
  // that replaces it, until SetTakeBack (UndoableFile).
  SnapshotPlace(FileT file, const std::string& path, const FileOptions& options, TakeBack taken_back = TakeBack::kNothing)
      : file_(std::move(file)), path_(CanonicalOf(path)), number_(NumberOf(path)), options_(options), taken_back_(taken_back) {}
  void SetTakeBack(TakeBack what) {
    taken_back_ = what;
    if constexpr (UndoableFile<FileT>) {
      if (file_.has_value()) file_->SetTakeBack(what);
    }
  }

  bool is_known() const { return !path_.empty(); }
  bool IsWritable() const { return !file_.has_value() || file_->IsWritable(); }
  // Whether the file has no snapshot yet, or one of an older version, to which no end block can be
  // added.
  bool IsToBeReplaced() const { return id_ == 0; }
  // Whether, after a failure, the file may end differently from end().
  bool end_is_unknown() const { return end_is_unknown_; }
  // The end of the snapshot, and the log that it names.
  const format::SnapshotEnd& end() const { return end_; }
  log::NamedLog log() const { return {end_.log.id, {end_.log.lsn, end_.log.sequence}, end_.log.secret}; }

  // The offset of an end block that is incomplete or damaged; 0 = there is none. If it is only
  // incomplete, the log beside the snapshot is the one that end() names, or has no update yet.
  std::uint64_t incomplete_end() const { return has_incomplete_end_ ? offset_ : 0; }

  // Calls Status visit(key, value) for each record, up to its first error. An empty file has none.
  template <class F>
  Status Load(F&& visit) {
    if (file_->Size() == 0) return absl::OkStatus();
    storage::SnapshotReader<FileT> reader(*file_);
    HAKO_RETURN_IF_ERROR(reader.ForEach(visit));
    end_ = reader.end();
    offset_ = reader.offset();
    unnamed_offset_ = reader.unnamed_offset();
    unnamed_clock_ = reader.unnamed_clock();
    has_incomplete_end_ = reader.has_incomplete_end();
    id_ = reader.version() >= format::kSnapshotPlainVersion ? reader.id() : 0;
    return absl::OkStatus();
  }

  // Makes the snapshot that Load has found durable, if there is one: the process that wrote it may
  // have died before its sync, or the sync may have failed. After a failed sync another sync alone
  // is not enough, because the kernel may treat unwritten pages as clean. So the last end block is
  // written again. REQUIRES: IsWritable
  Status MakeDurable() {
    HAKO_DCHECK(IsWritable());
    std::array<std::byte, sizeof(format::SnapshotBlockHeader) + sizeof(format::SnapshotEnd)> bytes;
    const auto last = std::span(bytes).first(std::min<std::uint64_t>(offset_, bytes.size()));
    if (last.empty()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(file_->ReadAt(offset_ - last.size(), last));
    HAKO_RETURN_IF_ERROR(file_->WriteAt(offset_ - last.size(), last));
    return file_->Sync();
  }

  // Replaces the file by the snapshot that save(FileT&, SnapshotEnd*) writes; save returns the id
  // of the snapshot. An error leaves the old snapshot, or the new one if only its durability is
  // unknown.
  template <class Save>
  Status Replace(Save&& save) {
    if constexpr (ReplaceableFile<FileT>) {
      if (NumberOf(path_) != number_) {
        return absl::FailedPreconditionError(
            absl::StrCat(path_, " was moved or replaced while the database was open; its snapshot is not written over another file"));
      }
      format::SnapshotEnd end;
      std::uint64_t id = 0, size = 0;
      const auto write = [&](FileT& file) -> Status {
        HAKO_ASSIGN_OR_RETURN(id, save(file, &end));
        size = file.Size();
        return absl::OkStatus();
      };
      const Status replaced = CatchNoMemory([&] { return ReplaceFile<FileT>(path_, write, options_, &*file_); });
      const FileNumber before = std::exchange(number_, NumberOf(path_));
      SetTakeBack(taken_back_);
      id_ = 0;
      end_is_unknown_ = number_ != before;
      HAKO_RETURN_IF_ERROR(replaced);
      end_is_unknown_ = false;
      end_ = end;
      id_ = id;
      offset_ = size;
      unnamed_offset_ = end.log.id == format::SnapshotLog().id ? size : 0;
      unnamed_clock_ = end.clock;
      return absl::OkStatus();
    }
    return absl::UnimplementedError("this type of file cannot be replaced");
  }

  // Makes the snapshot name this log, durably, with a clock of at least `reported`. An end block
  // that it adds has `clock`. If there is no space, the snapshot stays as it is, or, if it is to
  // name no log, may get an older clock.
  // REQUIRES: !IsToBeReplaced(), and the clock is 0 if and only if that of end() is
  Status NameLog(const format::SnapshotLog& log, std::uint64_t clock, std::uint64_t reported) {
    HAKO_DCHECK(!IsToBeReplaced() && (clock == 0) == (end_.clock == 0));
    storage::SnapshotWriter<FileT> writer(*file_, id_, offset_);  // made first, because nothing after this may need memory
    const std::uint64_t id = std::exchange(id_, 0);
    end_is_unknown_ = true;  // stays true if there is an error
    const bool may_cut = log.id == format::SnapshotLog().id && unnamed_offset_ != 0;
    format::SnapshotEnd end = end_;
    end.log = log;
    end.clock = clock;
    bool cuts = may_cut && reported <= unnamed_clock_;
    if (!cuts) {
      const bool ends_here = file_->Size() == offset_;
      const Status added = writer.AddEnd(end);
      if (!added.ok() && !may_cut && ends_here && file_->Size() == offset_) {  // there is no room: nothing was written
        id_ = id;
        end_is_unknown_ = false;
        return added;
      }
      if (absl::IsResourceExhausted(added)) {
        HAKO_RETURN_IF_ERROR(file_->Resize(offset_));
        if (!may_cut) {
          id_ = id;
          end_is_unknown_ = false;
          return added;
        }
        cuts = true;
      } else {
        HAKO_RETURN_IF_ERROR(added);
        offset_ = writer.offset();
        if (log.id == format::SnapshotLog().id) {
          unnamed_offset_ = offset_;
          unnamed_clock_ = clock;
        }
      }
    }
    if (cuts) {
      HAKO_RETURN_IF_ERROR(file_->Resize(unnamed_offset_));
      offset_ = unnamed_offset_;
      end.clock = unnamed_clock_;
    }
    HAKO_RETURN_IF_ERROR(file_->Sync());
    end_ = end;
    id_ = id;
    end_is_unknown_ = false;
    return absl::OkStatus();
  }

  Status Close() { return file_.has_value() ? file_->Close() : absl::OkStatus(); }
  // Call in a forked child: the file and its lock belong to the parent process.
  void Abandon() {
    if (file_.has_value()) new FileT(*std::move(file_));  // never destroyed
  }

 private:
  std::optional<FileT> file_;
  std::string path_;   // canonical: neither a later chdir nor another link leads elsewhere
  FileNumber number_;  // of the file at path_
  FileOptions options_;
  TakeBack taken_back_ = TakeBack::kNothing;
  std::uint64_t id_ = 0;  // of the snapshot; 0: it is to be replaced
  format::SnapshotEnd end_;
  bool has_incomplete_end_ = false, end_is_unknown_ = false;
  std::uint64_t offset_ = 0;          // of the next end block
  std::uint64_t unnamed_offset_ = 0;  // after the last end block that names no log; 0 = there is none
  std::uint64_t unnamed_clock_ = 0;   // in that end block
};

}  // namespace hako
