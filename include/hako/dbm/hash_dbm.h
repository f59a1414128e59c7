// HashDBM: a hash table in a file, on the same bucket engine as TinyDBM.
//
// Durability: the state after a crash depends on HashOptions::durability, and on the type of the
// file.
//   kNone     After the death of the process a mapped file has every update. Otherwise the file has
//             exactly the state of the last synchronization: by a hard Synchronize, by Close, or by
//             the database itself (HashOptions::sync_interval, reclaim_bytes).
//   kProcess  After the death of the process every update survives: a mapped file without
//             HashOptions::keep_log keeps it at no cost, and any other file logs it. After a power
//             cut a mapped file without a log has the state of the last synchronization. Any other
//             file has all updates up to some point, which is not before the last synchronization
//             or WaitDurable.
//   kPower    Every update that has returned survives, because it is in the log.
// The log is a file beside the database, PATH-log, which Open replays after a crash and Close
// removes. While it exists the two files belong together: move, copy or remove both, or do so after
// Close. A database whose log is missing is refused (DataLoss). A database that lacks updates of
// its log cannot be opened read-only, because Open must write them first (FailedPrecondition). A
// database opened on a File has a log only if Open is given one. Without a log kProcess is the same
// as kNone, and kPower synchronizes each update.
//
// Open accepts the updates that a killed process has left in a mapped file if it can prove that
// none was lost. It cannot prove this for a copy of the file, or after the file system was mounted
// again in the same boot. Then Open returns FailedPrecondition, unless
// HashOptions::unproven_updates says to accept or to drop the updates: see "Durability" in
// dbm/README.md.
//
// If a mapped file is recovered on a full device that has no space for its index, updates until the
// next Open survive only as with kNone on an unmapped file. Recovery never drops records to repair
// a file: a file that does not validate is refused with DataLoss. See hash/file/record_heap.h and
// format/stamp.h. Salvage (dbm/salvage.h) writes the undamaged records of such a file into a new
// database.
//
// Limits: keys below 1 GiB, values below 4 GiB, files up to 2^(32 + align_pow) bytes (32 GiB by
// default, 256 GiB with align_pow 6). Exceeding one is an error before anything changes. The table
// grows by itself, one bucket at a time.
//
// Direct I/O: Sets of keys that may exist already are flushed to the index in groups
// (hash/file/pending_sets.h). Like any other, such a Set returns once its record is in the file's cache.
// If the record that it replaces cannot be read, the operations that depend on the Set return the
// error, as do Synchronize and Close.
//
// Threads: see dbm/dbm.h. CopyTo, Rebuild and Verify run beside readers, writers and Synchronize;
// one of the three runs at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/database_home.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_operations.h"
#include "hako/dbm/options.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/hash/bucket_verify.h"
#include "hako/hash/file/file_order_scan.h"
#include "hako/hash/file/heap_scrub.h"
#include "hako/hash/file/record_heap.h"
#include "hako/storage/scrub_progress.h"

namespace hako {

// A hash table in a file: see the head of this header.
//
// Inherits
//   HashOperations (dbm/hash_operations.h), EngineOperations (dbm/engine_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEachParallel, Count                          all records
//     ProcessState                                        all records of one moment
//     MakeIterator                                        a cursor (dbm/hash_cursor.h)
//     LastLsn                                             where the thread's last update is in the log
//     CheckOpen, CheckIdle, IsClosed                      whether the database can be used
//   DatabaseHome (dbm/database_home.h)
//     Synchronize, WaitDurable                            durability, of many updates at once
//     GetHealth, IsWritable                               why updates are refused
//     GetType, SetType, GetMetadata, SetMetadata          data of the application in the file
//     Close                                               synchronizes and closes the file
//   Operations (dbm/operations.h)
//     Get, GetOr, GetSize     read a value: into a string or span, in place, or with a fallback
//     Contains                check for a key
//     Set, Replace            store a record; only if it exists
//     Remove                  remove a record
//     Append                  append to a value
//     CompareExchange         update a record if it is as expected
//     Increment               add to an 8-byte number
//   MultiOperations (dbm/multi_operations.h)
//     GetMulti, SetMulti, RemoveMulti, AppendMulti  many operations in one call
//     CompareExchangeMulti, Rekey, Write            several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile>
class HashDBM final : public HashOperations<HashDBM<FileT>, hash::RecordHeap<FileT>>, public DatabaseHome<log::LogFileOf<FileT>> {
  using Space = hash::RecordHeap<FileT>;
  using Base = HashOperations<HashDBM, Space>;
  using Home = DatabaseHome<log::LogFileOf<FileT>>;
  using typename Base::Index;
  using typename Base::WriterState;
  friend Base;
  friend typename Base::Shared;

 public:
  using typename Home::LogFile;

  // Opens the file at `path`, and the log beside it; see Open of a file below. Errors name the
  // path. An Open that fails leaves no new file, and changes nothing that a later Open would
  // notice.
  static StatusOr<std::unique_ptr<HashDBM>> Open(const std::string& path, const HashOptions& options = {},
                                                 const FileOptions& file_options = {}) requires PathFile<FileT>;
  // Opens the database in `file` without a log, and creates one if the file is empty. Options that
  // are fixed at creation are ignored for an existing database. Returns InvalidArgument for an
  // option out of range or another type of file, Unavailable if another holder has the file open,
  // DataLoss if the file does not validate.
  static StatusOr<std::unique_ptr<HashDBM>> Open(FileT file, const HashOptions& options = {}) {
    return Open(std::move(file), LogPlace<LogFile>(), options);
  }
  // As above, with a log, which is an empty file or the log of this database. Returns DataLoss if
  // the log lacks updates.
  static StatusOr<std::unique_ptr<HashDBM>> Open(FileT file, LogFile log, const HashOptions& options = {}) {
    return Open(std::move(file), LogPlace<LogFile>(std::move(log)), options);
  }
  static StatusOr<std::unique_ptr<HashDBM>> Open(FileT file, LogPlace<LogFile> log, const HashOptions& options);

  // Closes the database if the application has not.
  ~HashDBM();

  // Shows all records in an internal order. Scans an unmapped file in file order by long reads
  // (hash/file/file_order_scan.h), unless another such scan is running.
  Status ProcessEach(EachRef visitor);
  using Base::ProcessEach;  // which refuses other visitors
  // Removes all records. Stops writers meanwhile. Atomic across a process kill: the next Open
  // completes a Clear that had begun. The applied index is unchanged.
  Status Clear();

  // Whether more than half of the file is free space scattered between records, which Rebuild would
  // compact. False for files of up to 1 MiB.
  bool ShouldBeRebuilt();
  // Compacts the file beside readers and writers: moves records so that whole extents become free
  // and reusable. Close then truncates the file, and on a mapped file rebuilds the index. Takes a
  // sixteenth of the file, at least 8 MiB, of extra space. A file in which no whole extent can be
  // emptied is not changed. An error leaves the database as usable as before.
  Status Rebuild();
  // Synchronizes, and copies the synchronized state into an empty file, beside readers and writers.
  // A read-only database copies the records that it shows. Blocks freed meanwhile are not reused
  // before the copy is complete. InvalidArgument if `empty_file` is not empty, DataLoss if records
  // are damaged.
  Status CopyTo(FileT empty_file);
  // CopyTo into a new file, which replaces the one at `path` and appears whole and durable or not at all.
  Status CopyTo(const std::string& path) requires PathFile<FileT> { return this->template CopyToPath<FileT>(*this, path); }

  // Synchronizes and checks the structure of the whole file beside readers and writers. Writers are
  // stopped only while the index is scanned (about 2 ms per million records). A database that
  // refuses updates is checked without a synchronization. DataLoss names the damage.
  Status Verify();
  // Checks the next part of the file on its device (file/file.h, DeviceFile): each record that the
  // index names, the headers of its extents, the superblocks. Call it from time to time, so that
  // damage is found while there is an undamaged copy elsewhere. Damage is listed, and ends neither the
  // call nor the pass. Runs beside readers and writers, and holds no lock while the device reads,
  // except that of one bucket to make sure that a record is damaged. Takes up to 13 MiB. Only one
  // call runs at a time; others wait.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  // Moves the clock of a copy forward to that of the original (dbm/expiry.h).
  void NoteClock(std::uint64_t latest) override { space_->extents().NoteClock(latest); }
  // Stops writers for a moment.
  Stats GetStats();
  // GetStats and GetType as pairs of name and text, for people to read.
  Inspection Inspect();

 private:
  using Base::CountFlushed;
  using Base::ForEachWriter;
  using Base::index;
  using Base::RunExclusive;
  using Base::RunExclusiveFlushed;
  using Base::space_;
  using Base::writers_;
  using Home::maintenance_mutex_;
  using Home::writable_;

  HashDBM(std::unique_ptr<Space> space, const HashOptions& options)
      : Base(std::move(space)),
        Home(*this, space_->log(), space_->refusal(), space_->extents().file().IsWritable(), options.durability,
             space_->extents().super().metadata, space_->extents().super().type) {
    if (this->SyncsEachUpdate() || options.sync_interval.count() > 0) this->CallAfterUpdates();
  }

  // Runs `body` as a busy writer: it changes this thread's lists of free blocks, which GetStats
  // reads, without holding a bucket's lock.
  template <class Body>
  void AsWriter(WriterState& mine, Body&& body) {
    space_->gate().Pass(mine);
    const sync::LeaveAtEnd leave(mine);
    body();
  }
  auto InStepsOf(WriterState& mine) {
    return [this, &mine](auto&& step) { this->AsWriter(mine, step); };
  }

  // ---- for EngineOperations ----
  HAKO_INLINE bool AcceptsUpdates() const { return space_->AcceptsWrites(); }
  Status AfterUpdate();
  Status Redo(const format::LogEntry& entry) override;
  Status RedoMulti(const Batch<Action>& batch) override;
  template <class F>
  Status RedoWithSpace(F&& redo);

  // ---- for DatabaseHome ----
  bool SurvivesProcess() const override { return !space_->index_is_in_memory() || space_->log().is_on(); }
  Status SynchronizeLocked() override;
  void SynchronizeInBackground() override;
  Status StoreMetadata() override;
  log::NamedLog LogInFile() const override { return space_->extents().LogInFile(); }
  Status NameLog(const log::DatabaseId& id, log::Position from) override;
  bool MayName(const log::DatabaseId& id, bool has_ended) const override {
    return LogInFile().id == id && LogInFile().HasEnded() == has_ended;
  }
  // Until the end of the replay a kill is recovered like a power cut.
  void BeginRedoOfAll() override { space_->extents().WithdrawLiveState(); }
  Status MayReplay() override;
  Status CloseFile() override;
  Status CloseDevice() override { return space_->extents().file().Close(); }
  void SetTakeBack(TakeBack what) override {
    if constexpr (UndoableFile<FileT>) space_->extents().file().SetTakeBack(what);
  }

  static Status CheckOptions(const HashOptions& options);
  static Status CheckAccepted(const std::string& path, const HashOptions& options, FileOptions file_options);
  bool ReclaimSoon();
  Status Recover(WriterState& mine, const HashOptions& options);
  Status CompleteIntents(WriterState& mine);
  StatusOr<bool> FindIndex();
  Status AdoptIndex(WriterState& mine, std::uint64_t num_lines);
  Status RecoverByScan(WriterState& mine);
  struct NothingAtEnd {
    Status operator()(std::uint64_t) const { return absl::OkStatus(); }
  };
  template <class Writers, class AtEnd = NothingAtEnd>
  Status SynchronizeSlots(WriterState& mine, Writers&& for_each_writer, AtEnd&& at_end = {});
  Status RefreshSomeStamps(WriterState& mine);
  template <class AtEnd, class Body>
  Status WithPinnedState(WriterState& mine, AtEnd&& at_end, Body&& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reorganizing_mutex_);
  Status FinishCopy(HashDBM& copy, std::uint64_t num_records, std::uint64_t applied_index, const log::NamedLog& named);
  Status AddLong(typename Space::LongRecord& record);
  Status VerifyEntry(const typename Space::ScannedRecord& record) const;
  Status VerifyDiffer(WriterState& mine, std::uint32_t a, std::uint32_t b) const;
  Status FindDamage(std::uint64_t live, std::uint64_t count) const;
  void ScrubSuperBlocks(ScrubProgress* progress);
  Status RemoveAllRecords(WriterState& mine);
  template <class Body>
  Status WithMover(WriterState& mine, Body&& body);
  template <class F>
  Status ForEachHeapExtent(F&& visit);
  Status MoveDown(WriterState& mine, WriterState& mover, std::uint64_t batch);
  Status Evacuate(WriterState& mine, WriterState& mover, std::vector<hash::Extent>& victims);
  Status MoveLong(WriterState& mine, WriterState& mover, std::uint32_t handle);
  Status RebuildIndex(WriterState& mine);

  sync::Mutex scrub_mutex_ ABSL_ACQUIRED_BEFORE(maintenance_mutex_);  // one Scrub at a time
  hash::HeapScrub<Index, Space> scrub_ ABSL_GUARDED_BY(scrub_mutex_){index(), *space_};
  sync::Mutex reorganizing_mutex_ ABSL_ACQUIRED_BEFORE(maintenance_mutex_);  // held by CopyTo, Rebuild and Verify
  std::atomic<std::uint64_t> synced_at_{0};
  std::atomic<std::uint64_t> own_syncs_{0};
  std::atomic<bool> changed_{false};  // whether an update came since the background thread last checked; set only if HasAfterUpdate()
  bool rebuilt_ = false;              // whether Close must rebuild the index in its smallest size
};

}  // namespace hako

#include "hako/dbm/hash_dbm-inl.h"
#include "hako/dbm/hash_rebuild-inl.h"
#include "hako/dbm/hash_recovery-inl.h"
#include "hako/dbm/hash_verify-inl.h"

// The templates that make up HashDBM<FileT>. Declares them if KEYWORD is extern, compiles them if
// it is empty. Use it in namespace hako. A program with its own file type can declare them in a
// header and compile them in one source. RECORDS is hash::MappedRecords if it is a MappedFile, else
// hash::PositionalRecords.
#define HAKO_HASH_DBM_TEMPLATES(KEYWORD, FileT, RECORDS)                                                                        \
  KEYWORD template class HashDBM<FileT>;                                                                                        \
  KEYWORD template class ReadOperations<HashDBM<FileT>>;                                                                        \
  KEYWORD template class Operations<HashDBM<FileT>>;                                                                            \
  KEYWORD template class MultiOperations<HashDBM<FileT>>;                                                                       \
  KEYWORD template class HashCursor<HashDBM<FileT>, hash::BucketIndex<hash::RecordHeap<FileT>>, hash::RecordHeap<FileT>>;       \
  KEYWORD template class HashOperations<HashDBM<FileT>, hash::RecordHeap<FileT>>;                                               \
  KEYWORD template class EngineOperations<HashDBM<FileT>, hash::RecordHeap<FileT>, hash::BucketIndex<hash::RecordHeap<FileT>>>; \
  KEYWORD template class hash::HeapFile<FileT>;                                                                                 \
  KEYWORD template class hash::HeapIndex<FileT>;                                                                                \
  KEYWORD template class RECORDS<FileT>;                                                                                        \
  KEYWORD template class hash::RecordHeap<FileT>;                                                                               \
  KEYWORD template class hash::BucketIndex<hash::RecordHeap<FileT>>

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
HAKO_HASH_DBM_TEMPLATES(extern, MemoryMapParallelFile, hash::MappedRecords);

}  // namespace hako
