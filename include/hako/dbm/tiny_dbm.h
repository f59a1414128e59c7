// TinyDBM: a hash table in memory, on the same bucket engine as HashDBM. A record of 8 + 8 bytes
// takes about 30 bytes.
//
// Durability: opened without a path, the database is in memory only, except for the snapshots that
// Save writes. Opened with a path, the database begins with the snapshot there. The state after a
// crash depends on TinyOptions::durability:
//   kNone     exactly the last snapshot, written by a hard Synchronize or Close
//   kProcess  after the death of the process every update; after a power cut all updates up to some
//             point, which is not before the last snapshot or WaitDurable
//   kPower    every update that has returned
// The last two keep a log of the updates since the last snapshot in a file beside it, PATH-log, as
// databases in files do (dbm/tree_dbm.h). kProcess is the default: an open database loses nothing
// if its program dies, at the price of copying each update to the page cache. Snapshots are also
// written by a background thread, beside readers and writers, once the log has
// TinyOptions::log_bytes. With kNone a snapshot is the state of one moment (ProcessState in
// dbm/dbm.h).
//
// A ProcessMulti survives a crash as a whole or not at all. Save writes a temporary file, syncs it and
// renames it over the target, so a crash or an error leaves the old file unchanged. Load refuses a
// snapshot that does not validate and then changes nothing.
//
// Limits: keys below 1 GiB, values below 4 GiB, as much memory as TinyOptions::align_pow allows.
// Exceeding one is an error before anything changes.
//
// As a cache: with TinyOptions::capacity_bytes or capacity_records an update that would exceed the
// limit evicts records that were not used lately (hash/record_limit.h has the policy).
// capacity_bytes includes everything: keys, values, buckets, free space, tables; up to 128 KiB and
// 2 % of it stay unused. The block of a record, which is up to an eighth larger than the record,
// may take a quarter of it, and a batch half of it. Larger ones are OutOfRange, and evict nothing.
// A batch for which no room can be made is refused with ResourceExhausted, possibly after some
// records were evicted. This can happen because the old values of its keys stay until the batch is
// complete, and other threads use records and free blocks.
//
// A record above 4 KiB needs contiguous memory. If there is no such memory, the database empties
// the part of the memory whose records were used least. The part has the size of the record, but at
// least a 64th of the limit or 512 KiB. Small records in it that were used are moved elsewhere, up
// to a quarter of the part. The large values that were set last, up to a quarter of the limit, are
// spared if possible. Writers wait meanwhile, for 10 to 20 ms with records of 100 bytes, and longer
// for larger new records.
//
// With n threads the number of records is below capacity_records by at most a hundredth and 8 n. An
// insertion does not evict the record that it inserts, unless many threads insert at the same time.
// An eviction is a logged removal, so the record stays absent after a crash. If a file has more
// records than the limit, Open evicts some of them and writes a snapshot. Get, Set and Process
// count as uses of a record; iterations do not.
//
// Threads: see dbm/dbm.h.
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_operations.h"
#include "hako/dbm/memory_home.h"
#include "hako/dbm/options.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/hash/bucket_verify.h"
#include "hako/hash/memory/record_arena.h"
#include "hako/log/logged_space.h"

namespace hako {

// A hash table in memory: see the head of this header. FileT is the type of the files that Save and
// Load open.
//
// Inherits
//   HashOperations (dbm/hash_operations.h), EngineOperations (dbm/engine_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEach, ProcessEachParallel, Count             all records
//     ProcessState                                        all records of one moment
//     MakeIterator                                        a cursor (dbm/hash_cursor.h)
//     CheckOpen, CheckIdle, IsClosed                      whether the database can be used
//   MemoryHome (dbm/memory_home.h)
//     Save, Load                          snapshots
//     WaitDurable                         wait for the durability of many updates
//     Synchronize, GetHealth, IsWritable  durability, and why updates are refused
//     Close                               writes a snapshot and closes the file, if there is one
//   Operations (dbm/operations.h)
//     Get, GetOr, GetSize     read a value: into a string or span, in place, or with a fallback
//     Contains                check for a key
//     Set, Replace            store a record; only if it exists
//     Remove                  remove a record
//     CompareExchange         update a record if it is as expected
//     Increment               add to an 8-byte number
//   MultiOperations (dbm/multi_operations.h)
//     GetMulti, SetMulti, RemoveMulti, AppendMulti  many operations in one call
//     CompareExchangeMulti, Rekey, Write            several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile>
class TinyDBM final : public HashOperations<TinyDBM<FileT>, log::LoggedSpace<hash::RecordArena, log::LogFileOf<FileT>>>,
                      public MemoryHome<TinyDBM<FileT>, FileT, TinyOptions> {
  using Space = log::LoggedSpace<hash::RecordArena, log::LogFileOf<FileT>>;
  using Base = HashOperations<TinyDBM, Space>;
  using Memory = MemoryHome<TinyDBM, FileT, TinyOptions>;
  using typename Base::WriterState;
  friend Base;
  friend typename Base::Shared;
  friend Memory;

 public:
  // Opens an empty database in memory only. InvalidArgument for an option out of range.
  static StatusOr<std::unique_ptr<TinyDBM>> Open(const TinyOptions& options = {}) HAKO_TRY {
    if (options.durability == Durability::kPower) return absl::InvalidArgumentError("TinyOptions::durability kPower requires a path");
    HAKO_ASSIGN_OR_RETURN(auto dbm, Make(options));
    HAKO_RETURN_IF_ERROR(dbm->Begin(options));
    return dbm;
  }
  HAKO_OR_NO_MEMORY
  // Opens the database with the snapshot at `path` and the log beside it, or an empty one if there is
  // no file, and holds the file locked. InvalidArgument for an option out of range or another type of
  // file, Unavailable if another holder has the file open, DataLoss if snapshot or log do not validate,
  // or the log is missing. A read-only database makes the updates of the log in memory.
  template <std::convertible_to<std::string> Path>  // no braces: those are options
  static StatusOr<std::unique_ptr<TinyDBM>> Open(const Path& path, const TinyOptions& options = {},
                                                 const FileOptions& file_options = {}) requires ReplaceableFile<FileT> HAKO_TRY {
    return Memory::OpenAt(path, options, file_options,
                          [&](auto place, auto log) { return Make(options, std::move(place), std::move(log), options); });
  }
  HAKO_OR_NO_MEMORY
  // As above, with this log instead of the one beside the snapshot.
  static StatusOr<std::unique_ptr<TinyDBM>> Open(const std::string& path, LogPlace<log::LogFileOf<FileT>> log,
                                                 const TinyOptions& options) requires ReplaceableFile<FileT> HAKO_TRY {
    return Memory::OpenAt(path, options, {}, [&](auto place, auto) { return Make(options, std::move(place), std::move(log), options); });
  }
  HAKO_OR_NO_MEMORY

  // Closes the database if the application has not.
  ~TinyDBM();

  // As Operations::Append, but appends in place if the block has room. A value that grows by small
  // pieces is copied about eight times while its size doubles, so on average an Append takes time
  // proportional to the piece. A database with a path uses Operations::Append, because the log
  // holds whole values.
  Status Append(StringArg key, StringArg value, StringArg delimiter = {}) HAKO_TRY {
    if (this->HasAfterUpdate()) return Operations<TinyDBM>::Append(key, value, delimiter);
    if (key.size() > Base::kKeySizeMax) return this->RefuseKey(key);
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    HAKO_ASSIGN_OR_RETURN(const bool done, index().Extend(*writer, space_->KeyHash(key), key, delimiter, value));
    return done ? absl::OkStatus() : Operations<TinyDBM>::Append(key, value, delimiter);
  }
  HAKO_OR_NO_MEMORY

  // Removes all records. Stops writers meanwhile. Keeps the memory for new records.
  Status Clear() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    const sync::NoHolds no_holds(space_->gate());
    return this->ClearBy([this](WriterState& mine) { return this->RemoveAll(mine); });
  }
  HAKO_OR_NO_MEMORY

  // Checks the structure of the table beside readers and writers. Writers are stopped only while
  // the entries are counted (about 2 ms per million records). DataLoss names the damage.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    WriterState* mine = writers_.Mine();
    if (mine == nullptr) return writers_.Refusal();
    HAKO_RETURN_IF_ERROR(
        this->RunExclusive([&] { return hash::VerifyLines(index().lines(), this->Count(), [](std::uint32_t, std::uint32_t) {}); }));
    HAKO_RETURN_IF_ERROR(hash::VerifyRecords(index(), *mine));
    return this->VerifyTimes();
  }
  HAKO_OR_NO_MEMORY

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    if (writers_.Mine() == nullptr) return stats;
    stats.num_records = this->Count();
    stats.total_bytes = space_->total_bytes();
    stats.index_bytes = space_->index_bytes();
    stats.free_bytes = this->RunExclusive([this] { return space_->FreeBytes(this->ForEachWriter()); });
    stats.record_bytes = stats.total_bytes - stats.index_bytes - stats.free_bytes;
    stats.num_buckets = index().num_lines();
    stats.num_overflow = index().lines().num_overflow();
    this->AddEvictionStats(&stats);
    this->AddStats(&stats);
    return stats;
  }

  // GetStats as pairs of name and text, for people to read.
  Inspection Inspect() HAKO_TRY { return InspectionOf("TinyDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

 private:
  using Base::index;
  using Base::space_;
  using Base::writers_;

  template <class... Rest>
  explicit TinyDBM(std::unique_ptr<Space> space, Rest&&... rest)
      : Base(std::move(space)), Memory(*this, space_->log(), std::forward<Rest>(rest)...) {}

  static Status CheckOptions(const TinyOptions& options) {
    if (options.align_pow < 2 || options.align_pow > 6) return absl::InvalidArgumentError("TinyOptions::align_pow must be 2 to 6");
    HAKO_RETURN_IF_ERROR((Capacity{options.capacity_bytes, options.capacity_records}.Check("TinyOptions")));
    return CheckSharedOptions(options);
  }
  // Makes an empty database; `rest` is for MemoryHome.
  template <class... Rest>
  static StatusOr<std::unique_ptr<TinyDBM>> Make(const TinyOptions& options, Rest&&... rest) {
    HAKO_RETURN_IF_ERROR(CheckOptions(options));
    const Capacity capacity{options.capacity_bytes, options.capacity_records};
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.align_pow, options.seed != 0 ? options.seed : RandomSeed(), capacity));
    auto dbm = std::unique_ptr<TinyDBM>(new TinyDBM(std::move(space), std::forward<Rest>(rest)...));
    if (capacity.IsLimited()) {
      dbm->reads_plainly_ = false;
      dbm->CallAfterUpdates();  // so that updates do not take the fast path of the index
      dbm->space_->limit()->SetWriters(
          {dbm.get(), [](void* self, hash::RecordLimit::WriterVisitor visit) { static_cast<TinyDBM*>(self)->writers_.ForEach(visit); }});
    }
    // At most an eighth of the memory is for buckets, which may stay empty.
    const std::uint64_t most = capacity.bytes != 0 ? capacity.bytes / 64 : options.num_records;
    HAKO_RETURN_IF_ERROR(dbm->index().Create(std::min(options.num_records, most)));
    return dbm;
  }

  // ---- see DatabaseRecords ----
  Status Redo(const format::LogEntry& entry) override {
    switch (entry.op) {
      case format::LogOp::kSet:
      case format::LogOp::kRemove: {
        const Action action = entry.op == format::LogOp::kSet ? Action::Set(entry.value) : Action::Remove();
        return this->template ProcessUnchecked<Action>(entry.key, BlindUpdateRef(action));
      }
      case format::LogOp::kClear:
        if (WriterState* const mine = writers_.Mine()) return this->RunExclusive([&] { return this->RemoveAll(*mine); });
        return writers_.Refusal();
      default:
        return this->RedoTogether(std::span(&entry, 1));
    }
  }
  Status RedoMulti(const Batch<Action>& batch) override {
    if (!batch.removed_ranges.empty()) return absl::DataLossError("the log of a hash table has a range");
    WriterState* const mine = writers_.Mine();
    return mine != nullptr ? this->ProcessMultiIn(*mine, batch) : writers_.Refusal();
  }
};

template <File FileT>
TinyDBM<FileT>::~TinyDBM() {
  (void)this->Close();
  if (writers_.IsInherited() && this->AbandonFile()) (void)space_.release();  // the log of the space belongs to the parent process
}

namespace internal {
using TinySpace = log::LoggedSpace<hash::RecordArena, log::LogFileOf<MemoryMapParallelFile>>;
}

// Compiled in the library, where programs would otherwise compile them again.
extern template class TinyDBM<>;
extern template class ReadOperations<TinyDBM<>>;
extern template class Operations<TinyDBM<>>;
extern template class MultiOperations<TinyDBM<>>;
extern template class HashCursor<TinyDBM<>, hash::BucketIndex<internal::TinySpace>, internal::TinySpace>;
extern template class HashOperations<TinyDBM<>, internal::TinySpace>;
extern template class EngineOperations<TinyDBM<>, internal::TinySpace, hash::BucketIndex<internal::TinySpace>>;
extern template class MemoryHome<TinyDBM<>, MemoryMapParallelFile, TinyOptions>;
extern template class hash::BucketIndex<internal::TinySpace>;

}  // namespace hako
