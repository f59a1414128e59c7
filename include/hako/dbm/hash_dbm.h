// HashDBM: a hash table in a file, on the bucket engine that TinyDBM uses too.
//
// Durability
//   process death  A mapped file keeps every acknowledged update, at no cost. Any other file keeps
//                  the last synchronization.
//   machine crash  The file is exactly as of the last synchronization: a hard Synchronize, Close,
//                  or one that the database made by itself (HashOptions::sync_interval,
//                  reclaim_bytes).
//   With Durability::kPower every update is synchronized before it returns. A mapped file recovered
//   on a full device, with no space for its index, behaves as an unmapped one until it is opened
//   again. Recovery never drops records to repair a file: a file that does not validate is refused
//   with DataLoss. See hash/record_heap.h and format/stamp.h.
//
// Limits: keys below 1 GiB, values below 4 GiB, files up to 2^(32 + align_pow) bytes (32 GiB by
// default, 256 GiB with align_pow 6). Exceeding one is an error before anything changes. The table
// grows by itself, one bucket at a time.
//
// Direct I/O: Sets of keys that may exist already are flushed to the index in groups
// (hash/pending_sets.h). Such a Set returns once its record is in the file's cache, as any other.
// If the record that it replaces cannot be read, the operations that depend on the Set return the
// error, as do Synchronize and Close.
//
// Threads: see dbm/dbm.h. CopyTo, Rebuild and Verify run beside readers, writers and Synchronize;
// one of the three runs at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_cursor.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/file_order_scan.h"
#include "hako/hash/pending_sets.h"
#include "hako/hash/record_heap.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/writer_states.h"

namespace hako {

// A hash table in a file: see the head of this header.
//
// Inherits
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
//     CompareExchangeMulti, Rekey                   several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile>
class HashDBM : public Operations<HashDBM<FileT>> {
  using Space = hash::RecordHeap<FileT>;
  using Index = hash::BucketIndex<Space>;
  using WriterState = typename Space::WriterState;

 public:
  using Iterator = HashCursor<HashDBM, Index, Space>;  // see dbm/hash_cursor.h
  friend Iterator;

  // Opens the database in `file`, creating one if the file is empty. Options that are fixed at
  // creation are ignored for an existing database. InvalidArgument for an option out of range or
  // another type of file, Unavailable if another holder has the file open, DataLoss if it does not
  // validate.
  static StatusOr<std::unique_ptr<HashDBM>> Open(FileT file, const HashOptions& options = {});
  static StatusOr<std::unique_ptr<HashDBM>> Open(const std::string& path, const HashOptions& options = {},
                                                 const FileOptions& file_options = {}) requires PathFile<FileT>;

  // Closes the database if the application has not.
  ~HashDBM() {
    (void)Close();
    if (writers_.IsInherited()) (void)heap_.release();  // its file and locks belong to the parent process
  }

  // The primitives: see dbm/dbm.h.
  template <Visitor V>
  Status Process(std::string_view key, V&& visitor);
  template <Sink S>
  Status Fetch(std::string_view key, S&& sink);
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor);
  // Fetches each key, with overlapped reads: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    if (IsClosed()) return writers_.Refusal();
    HAKO_RETURN_IF_ERROR(FlushPending());
    return index_.FetchMulti(writers_, keys, sink, arrived);
  }
  HAKO_OR_NO_MEMORY
  // A hint that these keys will be used.
  void Prefetch(std::span<const std::string_view> keys) const {
    if (!IsClosed()) index_.Prefetch(keys);
  }
  // Shows all records in an internal order. An unmapped file is scanned in file order by long reads
  // (hash/file_order_scan.h), unless another such scan is running.
  template <class V>
  Status ProcessEach(V&& visitor);
  // ProcessEach in several threads, which call the visitor concurrently.
  template <class V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    HAKO_RETURN_IF_ERROR(FlushPending());
    return index_.ForEachParallel(num_threads, visitor);
  }
  HAKO_OR_NO_MEMORY
  // Returns a cursor: see dbm/hash_cursor.h.
  Iterator MakeIterator() { return Iterator(*this, index_, *heap_); }

  // The number of records; exact while no update runs.
  std::uint64_t Count() const {
    if (IsClosed()) return 0;
    (void)FlushPending();
    return CountFlushed();
  }
  // Removes all records. Stops writers meanwhile. Atomic across a process kill: the next Open
  // completes a Clear that had begun.
  Status Clear();
  // Hard: two flushes of the device, shared by concurrent callers; writers are stopped for
  // microseconds. Soft: free on a mapped file (see Durability above), elsewhere the same as hard.
  // After a failure the database refuses updates: see GetHealth.
  Status Synchronize(SyncMode mode);

  // Whether more than half of the file is free space scattered between records, which Rebuild would
  // compact. False for files of up to 1 MiB.
  bool ShouldBeRebuilt();
  // Compacts the file beside readers and writers: moves records so that whole extents become free
  // and reusable. Close then truncates the file, and on a mapped file rebuilds the index. Takes a
  // sixteenth of the file, at least 8 MiB, of extra space. An error leaves the database as usable
  // as before.
  Status Rebuild();
  // Synchronizes and copies that state into an empty file, beside readers and writers. A read-only
  // database copies the records that it shows. The form with `path` creates or replaces that file,
  // which appears whole and durable or not at all. Blocks freed meanwhile are not reused before the
  // copy is complete. InvalidArgument if `empty_file` is not empty, DataLoss if records are
  // damaged.
  Status CopyTo(FileT empty_file);
  Status CopyTo(const std::string& path) requires PathFile<FileT>;

  // Synchronizes and checks the structure of the whole file beside readers and writers. Writers are
  // stopped only while the index is scanned (about 2 ms per million records). A database that takes
  // no updates is checked without a synchronization. DataLoss names the damage.
  Status Verify();
  // Stops writers for a moment.
  Stats GetStats();
  // GetStats and GetType as pairs of name and text, for people to read.
  Inspection Inspect();

  // Data of the application in the file beside the records: a number for the type of the content,
  // and UserMetadata. Initially zero. The setters are durable when they return.
  std::uint32_t GetType() const;
  Status SetType(std::uint32_t type);
  UserMetadata GetMetadata() const;
  Status SetMetadata(const UserMetadata& metadata);
  // False if the file was opened read-only.
  bool IsWritable() const { return writable_; }
  // OK, or the failed write or sync after which the database refuses updates. Reads go on. Opening
  // the file again recovers the last synchronized state.
  Status GetHealth() const {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    return heap_->Health();
  }
  // OK, or FailedPrecondition if the database is closed or inherited by a fork. CheckIdle also
  // fails within a visitor of this database (sync/writer_states.h).
  Status CheckOpen() const { return writers_.CheckOpen(); }
  Status CheckIdle() const { return writers_.CheckIdle(); }
  // Whether Close was called.
  bool IsClosed() const { return writers_.IsClosed(); }

  // Synchronizes, stores the free space for the next Open, and closes the file. The destructor
  // calls it if the application has not. Returns the first error; the file is closed in any case.
  // REQUIRES: no other thread uses the database
  Status Close();

 private:
  HashDBM(std::unique_ptr<Space> heap, const HashOptions& options)
      : heap_(std::move(heap)),
        index_(*heap_),
        writable_(heap_->extents().file().IsWritable()),
        durability_(options.durability),
        tracks_updates_(options.durability != Durability::kProcess || options.sync_interval.count() > 0),
        sync_interval_(options.sync_interval),
        metadata_(heap_->extents().super().metadata),
        type_(heap_->extents().super().type) {
    if constexpr (Space::kReadsAhead) {
      if (writable_ && !tracks_updates_ && heap_->IsDirect()) pending_ = std::make_unique<hash::PendingSets>();
    }
  }

  auto ForEachWriter() const {
    return [this](auto&& visit) { writers_.ForEach(visit); };
  }
  template <class Body>
  auto RunExclusive(Body&& body) {
    return heap_->gate().RunExclusive(ForEachWriter(), body);
  }
  // Runs `body`, which changes this thread's lists of free blocks without holding a bucket's lock.
  // GetStats reads the lists of all threads.
  template <class Body>
  void AsWriter(WriterState& mine, Body&& body) {
    heap_->gate().Pass(mine);
    const sync::LeaveAtEnd leave(mine);
    body();
  }
  auto InStepsOf(WriterState& mine) {
    return [this, &mine](auto&& step) { this->AsWriter(mine, step); };
  }
  std::uint64_t CountFlushed() const { return index_.Count(ForEachWriter()); }

  // ---- pending Sets ----
  Status SetLater(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value);
  // Flushes all pending Sets, or, with a hash, all if one of them may have that hash.
  HAKO_INLINE Status FlushPending() const {
    if constexpr (Space::kReadsAhead) {
      if (pending_ != nullptr && !pending_->IsEmpty()) return FlushPendingSlowly({});
    }
    return absl::OkStatus();
  }
  HAKO_INLINE Status FlushPending(std::uint64_t hash) const {
    if constexpr (Space::kReadsAhead) {
      if (pending_ != nullptr && pending_->MayHold(hash)) return FlushPendingSlowly(hash);
    }
    return absl::OkStatus();
  }
  [[gnu::noinline]] Status FlushPendingSlowly(std::optional<std::uint64_t> hash) const;
  Status FlushLocked(WriterState* writer) const;
  Status FlushUntilNone(std::unique_lock<std::mutex>& lock, std::optional<std::uint64_t> hash) const;
  // Runs index_.ProcessMulti at a moment when no Set of these keys is pending.
  template <class V>
  Status ProcessMultiFlushed(WriterState& writer, std::span<const std::string_view> keys, V&& visitor);
  // Runs `body` with writers excluded and no Set pending.
  template <class Body>
  Status RunExclusiveFlushed(Body&& body);

  // Process for databases that synchronize, or count, each update.
  Status ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(std::optional<std::string_view>)> visitor);
  Status ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(bool)> visitor);
  Status ProcessMultiDurably(WriterState& writer, std::span<const std::string_view> keys,
                             absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor);
  Status AfterUpdate();
  // ---- background synchronization ----
  Status StartBackground();
  void SynchronizeInBackground();
  bool ReclaimSoon();
  template <class F>
  Status ChangeSuperBlock(F&& change);

  Status Recover(WriterState& mine, const HashOptions& options);
  StatusOr<bool> FindIndex();
  Status AdoptIndex(WriterState& mine, std::uint64_t num_lines);
  Status RecoverByScan(WriterState& mine);
  Status SynchronizeLocked(WriterState& mine);
  struct NothingAtEnd {
    Status operator()(std::uint64_t) const { return absl::OkStatus(); }
  };
  template <class Writers, class AtEnd = NothingAtEnd>
  Status SynchronizeSlots(WriterState& mine, Writers&& for_each_writer, AtEnd&& at_end = {});
  Status RefreshSomeStamps(WriterState& mine);
  template <class AtEnd, class Body>
  Status WithPinnedState(WriterState& mine, AtEnd&& at_end, Body&& body);
  Status FinishCopy(HashDBM& copy, std::uint64_t num_records);
  Status VerifyEntry(const typename Space::ScannedRecord& record) const;
  Status VerifyDiffer(WriterState& mine, std::uint32_t a, std::uint32_t b) const;
  Status FindDamage(std::uint64_t live, std::uint64_t count) const;
  Status RemoveAllRecords(WriterState& mine);
  Status CloseWritable();
  template <class Body>
  Status WithMover(WriterState& mine, Body&& body);
  template <class F>
  Status ForEachHeapExtent(F&& visit);
  Status MoveDown(WriterState& mine, WriterState& mover, std::uint64_t batch);
  Status Evacuate(WriterState& mine, WriterState& mover, std::vector<hash::Extent>& victims);
  Status MoveLong(WriterState& mine, WriterState& mover, std::uint32_t handle);
  Status RebuildIndex(WriterState& mine);

  std::unique_ptr<Space> heap_;
  mutable Index index_;                         // mutable because reads may flush pending Sets
  std::unique_ptr<hash::PendingSets> pending_;  // direct I/O only
  const bool writable_;
  const Durability durability_;
  const bool tracks_updates_;  // each update must be synchronized, or marked for the background thread
  const std::chrono::milliseconds sync_interval_;
  mutable sync::WriterStates<WriterState> writers_;
  std::mutex reorganizing_mutex_;  // of CopyTo, Rebuild, Verify; locked before maintenance_mutex_
  std::mutex maintenance_mutex_;   // held from closing an epoch until the blocks that waited for it are released; SetMetadata
  mutable std::mutex metadata_mutex_;
  UserMetadata metadata_;
  std::uint32_t type_;
  std::atomic<std::uint64_t> sync_calls_{0};  // calls of Synchronize that have begun
  std::uint64_t synced_calls_ = 0;            // number of the last call already served
  std::atomic<std::uint64_t> synced_at_{0};
  std::atomic<std::uint64_t> own_syncs_{0};
  std::atomic<bool> changed_{false};  // since the background thread checked; only if tracks_updates_
  bool rebuilt_ = false;              // Close rebuilds the index in its least size
  bool closed_ = false;
  sync::BackgroundThread::Pointer background_;
};

}  // namespace hako

#include "hako/dbm/hash_dbm-inl.h"
#include "hako/dbm/hash_rebuild-inl.h"
#include "hako/dbm/hash_recovery-inl.h"

namespace hako {

// Instantiated in the library: programs that use them compile in a third of the time.
extern template class HashDBM<>;
extern template class hash::RecordHeap<MemoryMapParallelFile>;
extern template class hash::BucketIndex<hash::RecordHeap<MemoryMapParallelFile>>;

}  // namespace hako
