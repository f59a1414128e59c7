// HashDBM: a hash table in a file, on the bucket engine that TinyDBM uses too.
//
// What survives. On a mapped file every acknowledged operation survives the death of the process, at no cost. After a crash of the machine
// the file is exactly as of the last synchronization: a hard Synchronize, Close, or one that the database made by itself. On any other file
// both hold for the last synchronization; so they do on a mapped one that was recovered from a crash on a full device, where the index
// found no place in the file. By option every update is synchronized before it returns, or what has changed at intervals (HashOptions). The
// database synchronizes by itself too where large records that were replaced take much of the file (HashOptions::reclaim_bytes). Nothing is
// ever repaired by dropping records: a file that does not validate is refused with DataLoss. How: hash/record_heap.h, format/stamp.h.
//
// Limits: keys below 1 GiB, values below 4 GiB, files up to 2^(32 + align_pow) bytes (32 GiB by default, 256 GiB with align_pow 6). A limit
// is an error before anything changes. The table grows by itself, a bucket at a time.
//
// With direct I/O, Sets of keys that may be there already are entered in groups (hash/pending_sets.h): such a Set returns when its record
// is written to the file's cache, as any; if what it replaces cannot be read, then who needs to see it gets the error, Synchronize and
// Close too.
//
// Threads: see dbm/dbm.h. CopyTo, Rebuild and Verify run beside readers, writers and Synchronize, one of the three at a time.
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

template <File FileT = MemoryMapParallelFile>
class HashDBM : public Operations<HashDBM<FileT>> {
  using Space = hash::RecordHeap<FileT>;
  using Index = hash::BucketIndex<Space>;
  using WriterState = typename Space::WriterState;

 public:
  using Iterator = HashCursor<HashDBM, Index, Space>;
  friend Iterator;

  // Opens the database in `file`; an empty file is made one. Options that are fixed at creation count only there.
  static StatusOr<std::unique_ptr<HashDBM>> Open(FileT file, const HashOptions& options = {});
  static StatusOr<std::unique_ptr<HashDBM>> Open(const std::string& path, const HashOptions& options = {},
                                                 const FileOptions& file_options = {}) requires PathFile<FileT>;

  ~HashDBM() {
    (void)Close();
    if (writers_.IsInherited()) (void)heap_.release();  // its file and locks are the other process's
  }

  template <Visitor V>
  Status Process(std::string_view key, V&& visitor);
  template <Sink S>
  Status Fetch(std::string_view key, S&& sink);
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor);
  // Fetch of each key, overlapped: sink(index, size), then arrived(index, whether the key is there).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    if (IsClosed()) return writers_.Refusal();
    HAKO_RETURN_IF_ERROR(FlushPending());
    return index_.FetchMulti(writers_, keys, sink, arrived);
  }
  HAKO_OR_NO_MEMORY
  // A hint that these keys are going to be used.
  void Prefetch(std::span<const std::string_view> keys) const {
    if (!IsClosed()) index_.Prefetch(keys);
  }
  // In an order of the index's own; on a file that is not mapped in that of the file, by long reads (hash/file_order_scan.h), unless
  // another such walk is under way. Its visitor may use the database.
  template <class V>
  Status ProcessEach(V&& visitor);
  // ProcessEach in several threads, which call the visitor at the same time.
  template <class V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    HAKO_RETURN_IF_ERROR(FlushPending());
    return index_.ForEachParallel(num_threads, visitor);
  }
  HAKO_OR_NO_MEMORY
  Iterator MakeIterator() { return Iterator(*this, index_, *heap_); }

  std::uint64_t Count() const {
    if (IsClosed()) return 0;
    (void)FlushPending();
    return CountFlushed();
  }
  // Survives a process kill whole: a Clear that was begun is finished by the next Open. Stops writers meanwhile.
  Status Clear();
  // Hard: two flushes of the device, shared by all threads that wait for them; writers are stopped for microseconds. Soft: free on a
  // mapped file that needs none to survive a kill.
  Status Synchronize(SyncMode mode);

  // Whether more than half of the file is free space scattered between records, which Rebuild would bring together.
  bool ShouldBeRebuilt();
  // Moves records together, so that whole extents become free: they are used again at once, and Close, which then also makes the index
  // anew, gives back what it can of the file's end. Beside readers and writers; takes a sixteenth of the file, or 8 MiB, as extra space.
  // On error the database is as good as before.
  Status Rebuild();
  // Synchronizes, and copies that state into an empty file, beside readers and writers; or into a new file at `path`, which appears there
  // whole and synced or not at all. Blocks that become free meanwhile are not used again before the copy is complete.
  Status CopyTo(FileT empty_file);
  Status CopyTo(const std::string& path) requires PathFile<FileT>;

  // Synchronizes, and proves the structure of the whole file beside readers and writers, who are stopped only while the index is looked
  // through (about 2 ms a million records). Of a database that takes no updates: as it is, without a synchronization.
  Status Verify();
  Stats GetStats();
  Inspection Inspect();

  // What the user keeps in the file beside the records: a number that says what kind of data they are, and some bytes; zero at first.
  // Durable when the call returns.
  std::uint32_t GetType() const;
  Status SetType(std::uint32_t type);
  UserMetadata GetMetadata() const;
  Status SetMetadata(const UserMetadata& metadata);
  bool IsWritable() const { return writable_; }
  // OK, or the failed write or sync since which the database refuses updates.
  Status GetHealth() const {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    return heap_->Health();
  }
  // OK, or why the calling thread may not use the database now (sync/writer_states.h).
  Status CheckOpen() const { return writers_.CheckOpen(); }
  Status CheckIdle() const { return writers_.CheckIdle(); }
  bool IsClosed() const { return writers_.IsClosed(); }

  // Syncs, notes free space for the next Open, and closes the file. The destructor calls it where the user did not. No other thread may
  // use the database any more.
  Status Close();

 private:
  HashDBM(std::unique_ptr<Space> heap, const HashOptions& options)
      : heap_(std::move(heap)),
        index_(*heap_),
        writable_(heap_->extents().file().IsWritable()),
        durability_(options.durability),
        notes_updates_(options.durability != Durability::kProcess || options.sync_interval.count() > 0),
        sync_interval_(options.sync_interval),
        metadata_(heap_->extents().super().metadata),
        type_(heap_->extents().super().type) {
    if constexpr (Space::kReadsAhead) {
      if (writable_ && !notes_updates_ && heap_->IsDirect()) pending_ = std::make_unique<hash::PendingSets>();
    }
  }

  auto ForEachWriter() const {
    return [this](auto&& visit) { writers_.ForEach(visit); };
  }
  template <class Body>
  auto RunExclusive(Body&& body) {
    return heap_->gate().RunExclusive(ForEachWriter(), body);
  }
  // Runs `body`, which changes this thread's lists of free blocks without a bucket's lock; GetStats looks at those of all threads.
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

  // ---- Sets that are pending ----
  Status SetLater(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value);
  // All of them; or if there may be one with that hash.
  HAKO_INLINE Status FlushPending() const {
    if constexpr (Space::kReadsAhead) {
      if (pending_ != nullptr && !pending_->IsEmpty()) return EnterPendingSlowly({});
    }
    return absl::OkStatus();
  }
  HAKO_INLINE Status FlushPending(std::uint64_t hash) const {
    if constexpr (Space::kReadsAhead) {
      if (pending_ != nullptr && pending_->MayHold(hash)) return EnterPendingSlowly(hash);
    }
    return absl::OkStatus();
  }
  [[gnu::noinline]] Status EnterPendingSlowly(std::optional<std::uint64_t> hash) const;
  Status FlushLocked(WriterState* writer) const;
  Status EnterUntilNone(std::unique_lock<std::mutex>& lock, std::optional<std::uint64_t> hash) const;
  // Runs `body` with the writers kept out and no Set pending.
  template <class Body>
  Status RunExclusiveFlushed(Body&& body);

  // Process where updates have consequences.
  Status ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(std::optional<std::string_view>)> visitor);
  Status ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(bool)> visitor);
  Status ProcessMultiNoting(WriterState& writer, std::span<const std::string_view> keys,
                            absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor);
  Status NoteUpdate();
  // ---- synchronizing without being told to ----
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
  Status MakeIndexAnew(WriterState& mine);

  std::unique_ptr<Space> heap_;
  mutable Index index_;                         // who only looks may enter what is pending
  std::unique_ptr<hash::PendingSets> pending_;  // in direct I/O
  const bool writable_;
  const Durability durability_;
  const bool notes_updates_;  // each update must be synchronized, or noted for the next time
  const std::chrono::milliseconds sync_interval_;
  mutable sync::WriterStates<WriterState> writers_;
  std::mutex reorganizing_mutex_;  // CopyTo, Rebuild, Verify; before maintenance_mutex_
  std::mutex maintenance_mutex_;   // closing an epoch until what waited for its end is released; SetMetadata
  mutable std::mutex metadata_mutex_;
  UserMetadata metadata_;
  std::uint32_t type_;
  std::atomic<std::uint64_t> sync_calls_{0};  // of Synchronize, that have begun
  std::uint64_t synced_calls_ = 0;            // of these, the first so many are served
  std::atomic<std::uint64_t> synced_at_{0};
  std::atomic<std::uint64_t> own_syncs_{0};
  std::atomic<bool> changed_{false};  // since the background thread looked; only where it works at intervals
  bool rebuilt_ = false;              // Close makes the index anew, as small as it can be
  bool closed_ = false;
  sync::BackgroundThread::Pointer background_;
};

}  // namespace hako

#include "hako/dbm/hash_dbm-inl.h"
#include "hako/dbm/hash_rebuild-inl.h"
#include "hako/dbm/hash_recovery-inl.h"

namespace hako {

// The library has these compiled: a program that uses them takes a third of the time to compile.
extern template class HashDBM<>;
extern template class hash::RecordHeap<MemoryMapParallelFile>;
extern template class hash::BucketIndex<hash::RecordHeap<MemoryMapParallelFile>>;

}  // namespace hako
