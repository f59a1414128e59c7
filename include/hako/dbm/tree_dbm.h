// TreeDBM: a B+ tree in a file, on the page engine that BabyDBM uses too.
//
// Records are ordered by Compare, whose name is stored in the file; a file of another order is
// refused. Recently used pages are cached in memory, up to TreeOptions::cache_bytes
// (tree/buffer_pool.h). A record of 8 + 8 bytes loaded in order takes about 17 bytes of the file,
// less if Codec compresses pages (base/page_codec.h).
//
// Limits: keys up to kTreeKeySizeMax bytes, values below 4 GiB.
//
// Durability: updates are made in memory. Checkpoints write them to the file: once checkpoint_bytes
// are dirty, at sync_interval, at Synchronize (soft or hard) and at Close. After the death of the
// process or of the machine the file is exactly as of the last checkpoint and opens at once,
// without recovery. With Durability::kPower every update returns after a checkpoint. An update that
// returned an error of the checkpoint was made in memory.
//
// Threads: see dbm/dbm.h. Synchronize, CopyTo, Rebuild and Verify run beside readers and writers;
// checkpoints also run during the other three. A visitor runs with its leaf locked. Values longer
// than a quarter page are copied, read and written with nothing locked, and read again if replaced
// meanwhile; a visitor that only reads such a value sees a copy, with nothing locked. ProcessMulti
// keeps the long values of its keys in memory until it returns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_operations.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/read_only_view.h"
#include "hako/file/replace_file.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"
#include "hako/tree/buffer_pool.h"
#include "hako/tree/checkpointer.h"

namespace hako {

// A B+ tree in a file: see the head of this header.
//
// Inherits
//   TreeOperations (dbm/tree_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEach, ProcessEachParallel, Count             all records
//     MakeIterator                                        a cursor (dbm/tree_cursor.h)
//     CheckOpen, CheckIdle, IsClosed                      whether the database can be used
//   OrderedOperations (dbm/ordered_operations.h)
//     Range, ReverseRange, PrefixRange  records of [from, to) as an input range
//     CountRange, RemoveRange           count or remove the records of [from, to)
//     BulkLoad                          load sorted records into full pages
//     CompareKeys                       the order of keys
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
template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator, PageCodec Codec = NoCodec>
class TreeDBM : public TreeOperations<TreeDBM<FileT, Compare, Codec>, tree::BufferPool<FileT, Codec>, Compare> {
  using Space = tree::BufferPool<FileT, Codec>;
  using Base = TreeOperations<TreeDBM, Space, Compare>;
  friend Base;

 public:
  // Opens the database in `file`, creating one if the file is empty. Options that are fixed at
  // creation are ignored for an existing database. InvalidArgument for an option out of range,
  // another type of file, another comparator or codec; Unavailable if another holder has the file
  // open; DataLoss if it does not validate.
  static StatusOr<std::unique_ptr<TreeDBM>> Open(FileT file, const TreeOptions& options = {});
  static StatusOr<std::unique_ptr<TreeDBM>> Open(const std::string& path, const TreeOptions& options = {},
                                                 const FileOptions& file_options = {}) requires PathFile<FileT> HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(FileT file, FileT::Open(path, FileOptionsFor(options, file_options)));
    auto dbm = Open(std::move(file), options);
    if (dbm.ok()) return dbm;
    return Status(dbm.status().code(), absl::StrCat(path, ": ", dbm.status().message()));
  }
  HAKO_OR_NO_MEMORY

  // Closes the database if the application has not.
  ~TreeDBM() {
    (void)Close();
    if (this->writers_.IsInherited()) (void)space_.release();  // its threads and locks belong to the parent process
  }

  // Makes a checkpoint: two flushes of the device, shared by concurrent callers; writers are
  // stopped for microseconds. Both modes are the same. After a failure updates are refused: see
  // GetHealth.
  Status Synchronize(SyncMode mode);
  // Removes all records, atomically across a crash: a checkpoint has all of it or nothing. Accepted
  // on a full device. Stops writers meanwhile.
  Status Clear();

  // Whether more than half of the file is free. False for files of up to 1 MiB.
  bool ShouldBeRebuilt();
  // Moves pages to the front of the file and truncates it, beside readers and writers. An error
  // leaves the database as usable as before.
  Status Rebuild();
  // Copies the state at the moment of the call into an empty file, beside readers and writers,
  // after a checkpoint if the database is writable. The form with `path` creates or replaces that
  // file, which appears whole and durable or not at all. InvalidArgument if `empty_file` is not
  // empty.
  Status CopyTo(FileT empty_file);
  Status CopyTo(const std::string& path) requires PathFile<FileT>;

  // Reads the whole file and checks its structure as of the moment of the call, beside readers and
  // writers, after a checkpoint if the database is writable. Takes 64 bytes of memory per page, the
  // inner pages, and at most kVerifyBytes more. DataLoss names the damage.
  Status Verify();
  // num_records is current, the sizes are those of the last checkpoint. free_bytes is 0 until the
  // first checkpoint, pin, ShouldBeRebuilt or Inspect since Open, which determine it.
  Stats GetStats();
  // GetStats, GetType, the cache's memory, the file's transfers, and the names of comparator and
  // codec, as pairs of name and text for people to read.
  Inspection Inspect();

  // Data of the application in the file beside the records: a number for the type of the content,
  // and UserMetadata. Initially zero. The setters make a checkpoint, so they are durable when they
  // return.
  std::uint32_t GetType() const {
    sync::MutexLock lock(metadata_mutex_);
    return type_;
  }
  Status SetType(std::uint32_t type) {
    return ChangeMetadata([&] {
      metadata_mutex_.AssertHeld();
      type_ = type;
    });
  }
  UserMetadata GetMetadata() const {
    sync::MutexLock lock(metadata_mutex_);
    return metadata_;
  }
  Status SetMetadata(const UserMetadata& metadata) {
    return ChangeMetadata([&] {
      metadata_mutex_.AssertHeld();
      metadata_ = metadata;
    });
  }

  // False if the file was opened read-only.
  bool IsWritable() const { return writable_; }
  // OK, or why updates are refused. After a failed write or sync: FailedPrecondition, until the
  // database is opened again. While the device is full: ResourceExhausted; removals are accepted,
  // and all updates again once there is space. Reads go on in both cases.
  Status GetHealth() const {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    return writable_ ? refusal_.Get() : absl::OkStatus();
  }

  // Makes a checkpoint if anything has changed, and closes the file. The destructor calls it if the
  // application has not. Returns the first error; the file is closed in any case.
  // REQUIRES: no other thread uses the database
  Status Close();

 private:
  using Base::space_;
  using Base::tree_;

  TreeDBM(std::unique_ptr<Space> space, unsigned page_size, const TreeOptions& options)
      : Base(std::move(space), page_size),
        writable_(space_->store().file().IsWritable()),
        durability_(options.durability),
        metadata_(space_->store().super().metadata),
        type_(space_->store().super().type),
        refusal_(writable_ ? absl::OkStatus() : ReadOnlyError()) {}

  HAKO_INLINE Status MayUpdate() const {
    if (!refusal_.IsOk()) [[unlikely]]
      return RefuseUpdate();
    return absl::OkStatus();
  }
  // Removals are accepted while only space is lacking, because they free space.
  Status MayRemove() const {
    const Status may = MayUpdate();
    return absl::IsResourceExhausted(may) ? absl::OkStatus() : may;
  }
  HAKO_INLINE bool SyncsEachUpdate() const { return durability_ == Durability::kPower; }
  Status AfterUpdate() { return Synchronize(SyncMode::kHard); }
  [[gnu::cold]] Status RefuseUpdate() const {
    const Status refusal = refusal_.Get();
    if (absl::IsResourceExhausted(refusal) && IsTimeToRetry()) background_->Wake();  // there may be space by now
    return refusal;
  }
  static constexpr std::uint64_t kVerifyBytes = 8 << 20;
  Status CheckpointLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mutex_);
  Status VerifyPinned(const typename tree::PageStore<FileT>::Pinned& pinned);
  StatusOr<typename tree::PageStore<FileT>::Pinned> PinNewest();
  void Unpin();
  void YieldToCheckpoints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mutex_);
  void NoteHealth(const Status& status);  // `status` of the store's last operation
  // While space is lacking, background checkpoints are retried at growing intervals.
  bool IsTimeToRetry() const {
    sync::MutexLock lock(metadata_mutex_);
    return std::chrono::steady_clock::now() >= retry_at_;
  }
  Status CountFree();
  template <class F>
  Status ChangeMetadata(F&& change);

  const bool writable_;
  const Durability durability_;
  // Held by the store's one user: a checkpoint, a step of Rebuild, Pin or Unpin.
  sync::Mutex maintenance_mutex_ ABSL_ACQUIRED_BEFORE(tree::kMaintenanceLocks);
  mutable sync::Mutex metadata_mutex_ ABSL_ACQUIRED_AFTER(tree::kPoolLocks);
  UserMetadata metadata_ ABSL_GUARDED_BY(metadata_mutex_);
  std::uint32_t type_ ABSL_GUARDED_BY(metadata_mutex_);
  sync::StickyStatus refusal_;  // why updates are refused: opened read-only, a failure, or a full device, which may pass
  std::chrono::milliseconds retry_delay_ ABSL_GUARDED_BY(metadata_mutex_){0};
  std::chrono::steady_clock::time_point retry_at_ ABSL_GUARDED_BY(metadata_mutex_);
  tree::Checkpointer<FileT, Codec> checkpointer_ ABSL_GUARDED_BY(maintenance_mutex_){*space_};
  std::atomic<std::uint64_t> sync_calls_{0};                            // calls of Synchronize that have begun
  std::atomic<int> num_waiting_{0};                                     // callers that wait for maintenance_mutex_
  std::uint64_t synced_calls_ ABSL_GUARDED_BY(maintenance_mutex_) = 0;  // number of the last call already served
  bool closed_ = true;
  std::shared_ptr<std::atomic<sync::BackgroundThread*>> waker_;  // the thread that the buffer pool wakes
  sync::BackgroundThread::Pointer background_;
};

}  // namespace hako

#include "hako/dbm/tree_dbm-inl.h"

namespace hako {

// Instantiated in the library: programs that use them compile in a third of the time. PageTree is
// left out: compiled in the program, a Set of an existing key takes 10 to 20 % less time.
extern template class TreeDBM<>;
extern template class OrderedOperations<TreeDBM<>, BytewiseComparator>;
extern template class TreeOperations<TreeDBM<>, tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>;
extern template class tree::BufferPool<MemoryMapParallelFile>;
extern template class tree::Checkpointer<MemoryMapParallelFile>;

}  // namespace hako
