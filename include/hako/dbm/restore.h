// Restore: makes a database with the state after a given update, from an older copy and the archive
// of the log (the option log_archive, log/log_archive.h).
//
//   HAKO_ASSIGN_OR_RETURN(const auto report, Restore<HashDBM<>>("backup.hkh", "archive", "restored.hkh", {.until_lsn = 4711}));
//
// AnyDBM::Restore determines the kind of the file.
//
// The copy was made by CopyTo, by Save of a database in memory, or by copying the file of the
// database while it was closed. It names the segment of the history in which it was made. The copy,
// the archive and the log are only read. The new database has exactly the updates up to the given
// point; a batch is whole or absent. The new file appears whole and durable, or not at all.
//
// The point
//   until_lsn   The last update whose LSN is not above this one. LastLsn returns the LSN of an
//               update after the update.
//   until_time  The last update that was made at this time or before. The time of an update is that
//               of the mark before it (format::LogMark), which is at most 0.1 seconds older, by the
//               wall clock of the machine. So updates of the 0.1 seconds before and after this time
//               may be included or not. If the clock was set back, the time counts as standing
//               still until it catches up.
//   neither     The end of the archive, and of the log if one is given.
//
// A new history begins with the restored database: its file names no log. With log_archive it is
// opened with another, empty directory, so two branches of a history are never mixed.
//
// Errors
//   AlreadyExists       there is a file at `to`
//   FailedPrecondition  beside `to` is a log with updates, which may be that of a lost database: move it, and give its
//                       path as `log`; the copy is not of a database with an archive; or the archive is that of another
//                       database or branch, or has nothing of the log that the copy names, or is
//                       not an archive
//   DataLoss            a segment is missing between the copy and the point, or a record is
//                       damaged; the message names the segment, or file and offset. A power cut may
//                       leave segments of the log without those before them, which looks the same;
//                       Open of the database discards such segments
//   OutOfRange          the point is before the copy, or an LSN is after the end; the message names
//                       the LSN of the copy or the end
//   Unavailable         another process has the copy open
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/copy_range.h"
#include "hako/file/file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/log/log_archive.h"
#include "hako/log/update_log.h"

namespace hako {

template <File FileT>
class ArrayDBM;  // dbm/array_dbm.h

// See the head of this header.
struct RestoreOptions {
  std::optional<std::uint64_t> until_lsn = {};   // LastLsn() after the last update to make
  std::optional<std::uint64_t> until_time = {};  // in microseconds since 1970
  // The file of the log beside a lost database, DATABASE-log, which has the updates that are not yet
  // in the archive; "" = none.
  std::string log = {};
  std::chrono::milliseconds lock_timeout{0};  // for opening the copy
};

// Which state was restored.
struct RestoreReport {
  std::uint64_t copy_lsn = 0;     // the position of the copy
  std::uint64_t lsn = 0;          // the LSN after the last update that was made; copy_lsn if there was none
  std::uint64_t time = 0;         // of that update, in microseconds since 1970; 0 = unknown
  std::uint64_t num_updates = 0;  // number of updates that were made
};

// Restores a database of class D from a copy and an archive to the new file `to`.
template <class D>
StatusOr<RestoreReport> Restore(const std::string& copy, const std::string& archive, const std::string& to,
                                const RestoreOptions& options = {});

namespace internal {

inline constexpr std::string_view kARestore = "a restore";

// The updates between a copy and the point. Not thread-safe.
class RestoreSource final : public UpdateSource {
 public:
  // Finds the segments, and reads and checks all of them up to the point.
  static StatusOr<std::unique_ptr<RestoreSource>> Open(PositionalParallelFile& copy, const std::string& archive,
                                                       const RestoreOptions& options);

  Status ForEach(FunctionRef<Status(std::span<const format::LogEntry>)> redo) override;
  const RestoreReport& report() const { return report_; }
  // Whether an update removes a range of keys, which only ordered databases do.
  bool has_ranges() const { return has_ranges_; }

  // For LogReader.
  Status ReadSegment(const log::Segment& segment, std::vector<char>* bytes) const;
  Status DamageAt(const log::Segment& segment, log::Lsn lsn) const;

 private:
  // A segment in a file of the archive, or in the file of the log.
  struct Piece {
    log::ArchivedSegment of;
    std::uint64_t offset = 0;  // of the segment in its file
  };

  Status AddLog(const std::string& path);
  // After returns the piece that follows this link, At the piece with this link; nullptr if there
  // is none.
  const Piece* After(const log::Link& link) const;
  const Piece* At(const log::Link& link) const;
  const Piece* PieceOf(const log::Segment& segment) const;
  bool IsDiscarded(const Piece& piece, const Piece& last) const;
  Status FindFirst(const log::NamedLog& named);
  void FindRest();
  Status FindPoint(const RestoreOptions& options);

  std::vector<Piece> pieces_;
  std::deque<log::Segment> chain_;
  std::vector<const Piece*> chained_;  // in the order of chain_
  Status missing_;                     // why the chain ends
  RestoreReport report_;
  bool has_ranges_ = false;
};

template <class D>
struct RestoreTarget;
template <File FileT>
struct RestoreTarget<ArrayDBM<FileT>> {
  using Type = FileT;
  static ArrayOptions Options() { return {.durability = Durability::kNone}; }
};
template <File FileT>
struct RestoreTarget<HashDBM<FileT>> {
  using Type = FileT;
  static HashOptions Options() { return {.durability = Durability::kNone, .clock = &Expiry::FirstTime}; }
};
template <File FileT, class Compare, class Codec>
struct RestoreTarget<TreeDBM<FileT, Compare, Codec>> {
  using Type = FileT;
  static TreeOptions Options() { return {.durability = Durability::kNone, .clock = &Expiry::FirstTime, .raw = true}; }
};
template <class FileT>
struct RestoreTarget<TinyDBM<FileT>> {
  using Type = FileT;
  static TinyOptions Options() { return {.durability = Durability::kNone, .clock = &Expiry::FirstTime}; }
};
template <class FileT, class Compare>
struct RestoreTarget<BabyDBM<FileT, Compare>> {
  using Type = FileT;
  static BabyOptions Options() { return {.durability = Durability::kNone, .clock = &Expiry::FirstTime}; }
};

// Opens the copy for reading, unless there is a file at `to`.
StatusOr<PositionalParallelFile> OpenCopy(const std::string& copy, const std::string& to, const RestoreOptions& options);

template <class D>
Status RestoreTo(const PositionalParallelFile& copy, RestoreSource& source, const std::string& to) {
  using Target = RestoreTarget<D>;
  using To = typename Target::Type;
  HAKO_ASSIGN_OR_RETURN(FileReplacement replacement, FileReplacement::Begin(to));
  FileOptions writing;
  writing.mode = OpenMode::kReadWrite;
  HAKO_ASSIGN_OR_RETURN(To file, To::Open(replacement.path(), writing));
  HAKO_RETURN_IF_ERROR(file.Resize(copy.Size()));
  HAKO_RETURN_IF_ERROR(CopyRange(copy, 0, file, 0, copy.Size()));
  LogPlace<log::LogFileOf<To>> updates(source);
  if constexpr (requires { D::Open(std::move(file), std::move(updates), Target::Options()); }) {
    HAKO_ASSIGN_OR_RETURN(const std::unique_ptr<D> db, D::Open(std::move(file), std::move(updates), Target::Options()));
    HAKO_RETURN_IF_ERROR(db->Close());
    HAKO_RETURN_IF_ERROR(RefuseExisting(to, kARestore));  // a file that was created meanwhile
    return replacement.Commit();
  } else {  // the next snapshot replaces the copy
    HAKO_RETURN_IF_ERROR(file.Close());
    const std::string scratch = replacement.path();
    const Status saved = [&]() -> Status {
      HAKO_ASSIGN_OR_RETURN(const std::unique_ptr<D> db, D::Open(scratch, std::move(updates), Target::Options()));
      HAKO_RETURN_IF_ERROR(RefuseExisting(to, kARestore));
      HAKO_RETURN_IF_ERROR(db->Save(to));
      return db->Close();
    }();
    (void)RemoveFile(scratch);
    return saved;
  }
}

template <class D>
StatusOr<RestoreReport> RestoreFrom(PositionalParallelFile& copy, const std::string& archive, const std::string& to,
                                    const RestoreOptions& options) {
  HAKO_ASSIGN_OR_RETURN(const auto source, RestoreSource::Open(copy, archive, options));
  HAKO_RETURN_IF_ERROR(RestoreTo<D>(copy, *source, to));
  return source->report();
}

}  // namespace internal

template <class D>
StatusOr<RestoreReport> Restore(const std::string& copy, const std::string& archive, const std::string& to,
                                const RestoreOptions& options) HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(PositionalParallelFile file, internal::OpenCopy(copy, to, options));
  return internal::RestoreFrom<D>(file, archive, to, options);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
