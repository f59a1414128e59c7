// Salvage: writes the undamaged records of a damaged HashDBM, TreeDBM or ArrayDBM into a new database.
//
//   HAKO_ASSIGN_OR_RETURN(const SalvageReport report, Salvage<HashDBM<>>("casket.hkh", "rescued.hkh"));
//
// AnyDBM::Salvage determines the kind of the file. Both refuse a table (FailedPrecondition), whose
// records depend on each other: use TableDBM::Salvage (table/table_dbm.h).
//
// The damaged file is opened for reading and never written. It may be one that Open refuses: one
// with a damaged superblock, index or page map, or one that was cut. Unreadable blocks of the
// device count as damaged. Every record of the new database has passed its checksum; one damaged
// record of a hash table costs that record only, one damaged page of a tree or an array the records
// of that page. The report lists the damage (storage/salvage_report.h).
//
// Which state is salvaged
//   HashDBM   the last synchronized state. If the file is the one that a killed process had mapped, in
//             the same boot: all of its updates, except unfinished ones (hash/file/heap_salvage.h). If
//             such a file is a copy, or its live state is damaged, later updates are left out,
//             unless the log has them, and a note says so.
//   TreeDBM   the last checkpoint (tree/file/page_salvage.h).
//   ArrayDBM  the last checkpoint (array/array_salvage.h).
//   All       then the updates of the log, PATH-log, as far as it can be read. Each update sets or
//             removes whole values, so its result is right even if records were lost. If the log
//             was not applied, or not to its end, a note in the report says why.
// In a hash table that was not closed, only stamps, which have no check, tell live records from
// dead ones. So damage to the stamp of a dead record may bring the record back. If the live record
// of its key exists, too, neither is taken.
//
// If one superblock is lost, the other one is used, which may be older by one synchronization or
// checkpoint; a note says so. A superblock with one damaged byte is restored. If both are lost
// nothing can be salvaged: they hold the secret of all checksums, without which valid bytes cannot
// be told from garbage.
//
// The new database appears whole and durable, or not at all. Errors: AlreadyExists if there is a
// file at `to`; FailedPrecondition if a log with updates is beside it; InvalidArgument if `from`
// has another kind, order or codec, or is not a database; Unavailable if another process has it
// open; DataLoss if both superblocks are lost; ResourceExhausted if space or memory runs out.
// Salvage takes memory for the longest record, for the report, whose keys are bounded
// (SalvageReport::kKeyBytesMax, kRangeBytesMax), and as hash/file/heap_salvage.h, tree/file/page_salvage.h
// and array/array_salvage.h say.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/hash.h"
#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/log/record_log.h"
#include "hako/storage/salvage_report.h"

namespace hako {

// Salvages the database in the file at `from` into a new file at `to`. D is the class of both. Uses
// only lock_timeout of `options`, for both files.
template <class D>
StatusOr<SalvageReport> Salvage(const std::string& from, const std::string& to, const FileOptions& options = {});

// As Salvage, from an open file, and its log if there is one, into an empty file.
template <class D, File From, File To>
StatusOr<SalvageReport> SalvageInto(const From& from, LogPlace<From> log, To empty_file);

namespace internal {

// Reads the damaged database, and opens the new one: see dbm/hash_salvage-inl.h,
// dbm/tree_salvage-inl.h, dbm/array_salvage-inl.h.
//   Target              the type of its file
//   Open(file, report)  finds the state; Create(empty file) opens a new D with its properties
//   clock()             the clock of the state (dbm/expiry.h); 0 = its records do not expire
//   Run(take)           calls take(key, value), or take(key, value, stray), for each record
//   num_expected()      number of records in the state, nullopt = unknown
//   applied_index()     the applied index of the state
//   NeedsLog()          whether super() names a log whose updates come after the state
template <class D, File From>
class SalvageSource;

// Splits a value of the damaged database, which keeps times if the new one does. Returns nullopt if
// it lacks the stored form.
template <class D>
std::optional<Expiry::Record> LiveFormOf(const D& db, std::string_view stored) {
  return db.expiry() != nullptr ? Expiry::Split(stored) : Expiry::Record{stored, Expiry::kNever};
}

// Writes records into the new database. If damage has changed a stamp, a hash table may show two
// records of one key; then neither is known to be the right one.
template <class D>
class SalvageWriter {
 public:
  SalvageWriter(D& db, SalvageReport& report) : db_(db), report_(report) {}

  Status Take(std::string_view key, std::string_view value, bool is_stray) {
    if (!doubtful_.empty() && doubtful_.contains(Hash64(key, seed_))) return absl::OkStatus();
    const std::optional<Expiry::Record> record = LiveFormOf(db_, value);
    if (!record) {
      report_.Add(SalvageReport::Kind::kRecord, 0, 0, key);
      return absl::OkStatus();
    }
    const Status status = db_.Set(key, record->value, {.overwrite = false, .old_value = &before_, .expire_at = record->time});
    if (!absl::IsAlreadyExists(status)) return status;
    if (is_stray) return absl::OkStatus();
    if (before_ == record->value) {
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t time, db_.GetExpiry(key));
      if (time == record->time) return absl::OkStatus();
    }
    doubtful_.insert(Hash64(key, seed_));
    report_.Add(SalvageReport::Kind::kRecord, 0, 0, key);
    return db_.Remove(key);
  }
  bool HasDoubts() const { return !doubtful_.empty(); }

 private:
  D& db_;
  SalvageReport& report_;
  std::string before_;
  const std::uint64_t seed_ = RandomSeed();
  std::unordered_set<std::uint64_t> doubtful_;  // hashes of keys, because keys may be long
};

// The state of the new database apart from its records.
struct SalvagedState {
  std::uint64_t applied_index = 0, clock = 0;
};

// Converts the keys of a logged update to keys of the database, whose bytes are stored in `keys`.
// Returns nullopt if the update does not fit the database.
template <class D>
std::optional<format::LogEntry> ByKey(const D&, const format::LogEntry& logged, std::array<RecordKey, 2>*) {
  return logged;
}
template <File FileT>
std::optional<format::LogEntry> ByKey(const ArrayDBM<FileT>& db, const format::LogEntry& logged, std::array<RecordKey, 2>* keys) {
  const bool is_range = logged.op == format::LogOp::kRemoveRange;
  if (!is_range && logged.op != format::LogOp::kSet && logged.op != format::LogOp::kRemove) return logged;
  const auto first = array::LogKey::Parse(logged.key), to = is_range ? array::LogKey::Parse(logged.value) : std::nullopt;
  if (!first || *first > kRecordIdMax || is_range != to.has_value() || (!is_range && logged.value.size() > db.width())) return std::nullopt;
  format::LogEntry entry = logged;
  entry.key = ((*keys)[0] = RecordKey(*first)).view();
  if (is_range) entry.value = ((*keys)[1] = RecordKey(*to)).view();
  if (is_range && *to > kRecordIdMax) entry.op = format::LogOp::kRemoveFrom;
  return entry;
}

// Makes an update of a log in the new database.
template <class D>
Status RedoInto(D& db, const format::LogEntry& logged, SalvagedState* state) {
  const auto foreign = [] { return absl::DataLossError("the log has a record that does not belong there"); };
  std::array<RecordKey, 2> keys;
  const std::optional<format::LogEntry> by_key = ByKey(db, logged, &keys);
  if (!by_key) return foreign();
  const format::LogEntry& entry = *by_key;
  switch (entry.op) {
    case format::LogOp::kSet: {
      const std::optional<Expiry::Record> record = LiveFormOf(db, entry.value);
      return record ? db.Set(entry.key, record->value, {.expire_at = record->time}) : Expiry::MalformedError();
    }
    case format::LogOp::kRemove: {
      const Status removed = db.Remove(entry.key);
      return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
    }
    case format::LogOp::kClear:
      return db.Clear();
    case format::LogOp::kRemoveRange:
    case format::LogOp::kRemoveFrom:
      if constexpr (requires { db.RemoveRange(entry.key); }) {
        const bool is_bounded = entry.op == format::LogOp::kRemoveRange;
        return db.RemoveRange(entry.key, is_bounded ? std::optional(entry.value) : std::nullopt).status();
      } else {
        return foreign();
      }
    case format::LogOp::kAppliedIndex: {
      Le<std::uint64_t> index = 0;
      if (entry.value.size() != sizeof(index)) return foreign();
      std::memcpy(static_cast<void*>(&index), entry.value.data(), sizeof(index));
      state->applied_index = index;
      return absl::OkStatus();
    }
    case format::LogOp::kTime: {
      const std::optional<std::uint64_t> time = format::TimeIn(entry);
      if (!time || db.expiry() == nullptr) return foreign();
      state->clock = std::max(state->clock, std::min(*time, Expiry::kTimeMax));
      return absl::OkStatus();
    }
    default:
      return foreign();
  }
}

// Makes the updates of the log in the new database, as far as they can be read. Returns only errors
// of the new database.
template <class D, File LogFile>
Status SalvageLog(LogPlace<LogFile>& place, const log::NamedLog& named, D& db, SalvageReport& report, SalvagedState* state) {
  Status failed;
  const auto redo = [&](std::span<const format::LogEntry> run, log::Position) -> Status {
    for (const format::LogEntry& entry : run) {
      const Status made = RedoInto(db, entry, state);
      if (!made.ok() && !absl::IsDataLoss(made)) failed = made;
      HAKO_RETURN_IF_ERROR(made);
      ++report.num_updates;
    }
    return absl::OkStatus();
  };
  const Status read = [&]() -> Status {
    HAKO_ASSIGN_OR_RETURN(LogFile file, place.OpenExisting(false));
    HAKO_ASSIGN_OR_RETURN(const auto log, log::RecordLog<LogFile>::Open(std::move(file), named.id, named.secret));
    if (log->IsEmpty()) return absl::DataLossError("the log, which has the newest updates, is empty");
    return log->Replay(named.from, redo);
  }();
  if (!failed.ok() || absl::IsResourceExhausted(read)) return failed.ok() ? read : failed;
  if (!read.ok()) {
    report.notes.push_back(absl::StrCat("the log was applied up to its update ", report.num_updates, " only: ", read.message()));
  }
  return absl::OkStatus();
}

// Salvages into a new database, which stays open. With `is_table` the file must be a table, whose
// records table/salvage_table.h repairs; otherwise it must not be a table.
template <class D, File From, File To>
StatusOr<std::unique_ptr<D>> SalvageOpen(const From& from, LogPlace<From>& log_place, To empty_file, bool is_table, SalvageReport& report) {
  using Source = SalvageSource<D, From>;
  if (empty_file.Size() != 0) return absl::InvalidArgumentError("Salvage: the target file is not empty");
  HAKO_ASSIGN_OR_RETURN(auto source, Source::Open(from, report));
  if constexpr (requires { Source::kMayBeTable; }) {
    if (is_table && source.super().type != kTableType) return absl::InvalidArgumentError("the file is a plain tree, not a table");
    if (!is_table && source.super().type == kTableType)
      return absl::FailedPreconditionError("the file is a table: TableDBM::Salvage (table/table_dbm.h) and `hako salvage` salvage it");
  }
  HAKO_ASSIGN_OR_RETURN(std::unique_ptr<D> db, source.Create(std::move(empty_file)));
  SalvageWriter<D> writer(*db, report);
  HAKO_RETURN_IF_ERROR(source.Run(
      [&writer](std::string_view key, std::string_view value, bool is_stray = false) { return writer.Take(key, value, is_stray); }));
  report.num_records = db->Count();
  const std::optional<std::uint64_t> expected = source.num_expected();
  if (expected) report.num_lost = *expected - std::min(*expected, report.num_records);
  if (expected && report.num_records > *expected)
    report.notes.push_back(absl::StrCat(report.num_records - *expected, " more records were found than there were: some had been removed"));
  if (writer.HasDoubts()) report.notes.emplace_back("keys with two records, of which one had been replaced, were left out");

  SalvagedState state{source.applied_index(), source.clock()};
  if (source.NeedsLog()) {
    HAKO_RETURN_IF_ERROR(SalvageLog(log_place, log::NamedLogOf(source.super()), *db, report, &state));
  }
  if (state.applied_index != 0) {
    WriteBatch batch;
    batch.SetAppliedIndex(state.applied_index);
    HAKO_RETURN_IF_ERROR(db->Write(batch));
  }
  if (db->expiry() != nullptr) db->NoteClock(state.clock);
  HAKO_RETURN_IF_ERROR(db->SetType(source.super().type));
  HAKO_RETURN_IF_ERROR(db->SetMetadata(source.super().metadata));
  return db;
}

// Salvages the file at `from` into a new one at `to`: salvage(file, log place, empty file) returns the report.
// The damaged file is read by position, because an unreadable block of a map would end the process.
template <class D, class SalvageT>
StatusOr<SalvageReport> SalvageFile(const std::string& from, const std::string& to, const FileOptions& options, SalvageT&& salvage) {
  using To = typename SalvageSource<D, PositionalParallelFile>::Target;
  HAKO_RETURN_IF_ERROR(RefuseExisting(to, "a salvage"));
  HAKO_RETURN_IF_ERROR(RefuseLogBeside(to));
  FileOptions reading;
  reading.mode = OpenMode::kReadOnly;
  reading.lock_timeout = options.lock_timeout;
  HAKO_ASSIGN_OR_RETURN(const PositionalParallelFile file, PositionalParallelFile::Open(from, reading));
  std::optional<SalvageReport> report;
  const Status salvaged = ReplaceFile<To>(to, [&](To empty_file) -> Status {
    StatusOr<SalvageReport> result = salvage(file, LogPlace<PositionalParallelFile>(from, reading), std::move(empty_file));
    if (absl::IsDataLoss(result.status()) || absl::IsInvalidArgument(result.status()) || absl::IsFailedPrecondition(result.status()))
      return Status(result.status().code(), absl::StrCat(from, ": ", result.status().message()));
    HAKO_RETURN_IF_ERROR(result.status());
    report = *std::move(result);
    return RefuseExisting(to, "a salvage");  // a file that was created meanwhile
  });
  HAKO_RETURN_IF_ERROR(salvaged);
  return *std::move(report);
}

}  // namespace internal

template <class D, File From, File To>
StatusOr<SalvageReport> SalvageInto(const From& from, LogPlace<From> log_place, To empty_file) HAKO_TRY {
  SalvageReport report;
  HAKO_ASSIGN_OR_RETURN(const std::unique_ptr<D> db, internal::SalvageOpen<D>(from, log_place, std::move(empty_file), false, report));
  HAKO_RETURN_IF_ERROR(db->Close());
  return report;
}
HAKO_OR_NO_MEMORY

template <class D>
StatusOr<SalvageReport> Salvage(const std::string& from, const std::string& to, const FileOptions& options) HAKO_TRY {
  return internal::SalvageFile<D>(from, to, options, [](const auto& file, auto log, auto empty_file) {
    return SalvageInto<D>(file, std::move(log), std::move(empty_file));
  });
}
HAKO_OR_NO_MEMORY

}  // namespace hako

#include "hako/dbm/array_salvage-inl.h"
#include "hako/dbm/hash_salvage-inl.h"
#include "hako/dbm/tree_salvage-inl.h"
