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
// are dirty or log_bytes were logged, at sync_interval, at Synchronize (soft or hard) and at Close.
// The state after a crash depends on TreeOptions::durability:
//   kNone     exactly the last checkpoint
//   kProcess  after the death of the process every update; after a power cut the updates up to one
//             of them, at least those before the last checkpoint or WaitDurable
//   kPower    every update that has returned
// The last two keep a log of the updates since the last checkpoint in a file beside the database,
// PATH-log, which Open replays after a crash and Close removes. While it exists the two files belong
// together: to move, copy or remove the database, do so with both, or after Close. A database whose
// log is missing is refused (DataLoss). An update that returned an error of WaitDurable was made, and
// may not survive.
//
// A damaged page is refused with DataLoss, and so is a file with a damaged superblock. Salvage
// (dbm/salvage.h) writes the undamaged records of such a file into a new database.
//
// A ProcessMulti survives a crash as a whole or not at all. A database opened on a File has a log only
// if it is given one; without it kProcess is as kNone, and kPower makes a checkpoint after each update.
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
#include <mutex>
#include <string>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/log_operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_operations.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/read_only_view.h"
#include "hako/storage/scrub_progress.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"
#include "hako/tree/buffer_pool.h"
#include "hako/tree/checkpointer.h"
#include "hako/tree/lock_order.h"
#include "hako/tree/page_scrub.h"

namespace hako {

// A B+ tree in a file: see the head of this header.
//
// Inherits
//   LogOperations (dbm/log_operations.h), FileOperations (dbm/file_operations.h)
//     Open, CopyTo                                of a path; Open of a file, and of its log
//     LastLsn, WaitDurable                        wait for the durability of many updates
//     Synchronize, GetHealth, IsWritable          durability, and why updates are refused
//     GetType, SetType, GetMetadata, SetMetadata  data of the application in the file
//     Close                                       makes a checkpoint and closes the file
//   TreeOperations (dbm/tree_operations.h), EngineOperations (dbm/engine_operations.h)
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
//     CompareExchangeMulti, Rekey, Write            several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator, PageCodec Codec = NoCodec>
class TreeDBM : public TreeOperations<TreeDBM<FileT, Compare, Codec>, tree::BufferPool<FileT, Codec>, Compare>,
                public LogOperations<TreeDBM<FileT, Compare, Codec>, FileT, TreeOptions> {
  using Space = tree::BufferPool<FileT, Codec>;
  using Base = TreeOperations<TreeDBM, Space, Compare>;
  using Files = LogOperations<TreeDBM, FileT, TreeOptions>;
  friend Base;
  friend typename Base::Shared;
  friend Files;
  friend FileOperations<TreeDBM, FileT, TreeOptions>;

 public:
  // Opens the database in `file`, creating one if the file is empty. Options that are fixed at
  // creation are ignored for an existing database. InvalidArgument for an option out of range,
  // another type of file, another comparator or codec; Unavailable if another holder has the file
  // open; DataLoss if it does not validate.
  static StatusOr<std::unique_ptr<TreeDBM>> Open(FileT file, LogPlace<typename Files::LogFile> log, const TreeOptions& options);
  using Files::Open;

  // Closes the database if the application has not.
  ~TreeDBM();

  // Removes all records, atomically across a crash: a checkpoint has all of it or nothing. Accepted
  // on a full device. Stops writers meanwhile.
  Status Clear();

  // Whether more than half of the file is free. False for files of up to 1 MiB.
  bool ShouldBeRebuilt();
  // Moves pages to the front of the file and truncates it, beside readers and writers. An error
  // leaves the database as usable as before.
  Status Rebuild();
  // Copies the state at the moment of the call into an empty file, beside readers and writers,
  // after a checkpoint if the database is writable. InvalidArgument if `empty_file` is not empty.
  Status CopyTo(FileT empty_file);
  using Files::CopyTo;

  // Reads the whole file and checks its structure as of the moment of the call, beside readers and
  // writers, after a checkpoint if the database is writable. Takes 64 bytes of memory per page, the
  // inner pages, and at most kVerifyBytes more. DataLoss names the damage.
  Status Verify();
  // Checks the next part of the file on its device (file/file.h, DeviceFile): each page, long value
  // and node of the page map as of the last checkpoint, without a checkpoint. Call it from time to
  // time, so that damage is found while there is an undamaged copy elsewhere. Damage is listed, and
  // ends neither the call nor the pass. Checkpoints wait only while the part is chosen; nothing that
  // it reads gets into the cache. FailedPrecondition after a failed write or sync. Calls take turns.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  // num_records is current, the sizes are those of the last checkpoint. free_bytes is 0 until the
  // first checkpoint, pin, ShouldBeRebuilt or Inspect since Open, which determine it.
  Stats GetStats();
  // GetStats, GetType, the cache's memory, the file's transfers, and the names of comparator and
  // codec, as pairs of name and text for people to read.
  Inspection Inspect();

 private:
  using Base::space_;
  using Base::tree;
  using Files::maintenance_mutex_;
  using Files::writable_;

  TreeDBM(std::unique_ptr<Space> space, unsigned page_size, const TreeOptions& options)
      : Base(std::move(space), page_size),
        Files(space_->store().file().IsWritable(), options.durability, false, space_->store().super()),
        refusal_(writable_ ? absl::OkStatus() : ReadOnlyError()) {}

  Status Begin(const TreeOptions& options, bool is_new);

  // ---- for FileOperations ----
  auto& file() const { return space_->store().file(); }
  const sync::StickyStatus& refusal() const { return refusal_; }
  Status MayUpdate() {
    const Status refusal = refusal_.Get();
    if (absl::IsResourceExhausted(refusal) && IsTimeToRetry()) CheckpointSoon();  // there may be space by now
    return refusal;
  }
  // Without a thread no update waits for a checkpoint, and memory for pages may run out.
  void CheckpointSoon() {
    if (!this->WakeBackground().ok()) space_->progress().NoteFailure();
  }
  Status SynchronizeLocked();
  void SynchronizeInBackground();
  Status StoreMetadata() { return this->Synchronize(SyncMode::kHard); }
  void StopThreads();

  // ---- for LogOperations (dbm/tree_log-inl.h) ----
  log::NamedLog LogInFile() const;
  Status NameLog(const log::DatabaseId& id, log::Position from);
  Status MayReplay();
  void RefuseUpdates(const Status& why) { refusal_.Set(why); }
  Status CloseFile();
  Status LogClear(const Status& reserved);

  static constexpr std::uint64_t kVerifyBytes = 8 << 20;
  Status VerifyPinned(const typename tree::PageStore<FileT>::Pinned& pinned);
  StatusOr<typename tree::PageStore<FileT>::Pinned> PinNewest();
  void Unpin();
  void YieldToCheckpoints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mutex_);
  void NoteHealth(const Status& status);  // `status` of the store's last operation
  // While space is lacking, background checkpoints are retried at growing intervals.
  bool IsTimeToRetry() const {
    sync::MutexLock lock(retry_mutex_);
    return std::chrono::steady_clock::now() >= retry_at_;
  }
  Status CountFree();

  std::mutex scrub_mutex_;  // one Scrub at a time; locked before maintenance_mutex_
  tree::PageScrub<FileT> scrub_{space_->store()};
  sync::StickyStatus refusal_;
  mutable sync::Mutex retry_mutex_ ABSL_ACQUIRED_AFTER(tree::kPoolLocks);
  std::chrono::milliseconds retry_delay_ ABSL_GUARDED_BY(retry_mutex_){0};
  std::chrono::steady_clock::time_point retry_at_ ABSL_GUARDED_BY(retry_mutex_);
  tree::Checkpointer<FileT, Codec> checkpointer_ ABSL_GUARDED_BY(maintenance_mutex_){*space_};
  std::shared_ptr<std::atomic<TreeDBM*>> checkpointed_;  // whose checkpoints the buffer pool requests
};

}  // namespace hako

#include "hako/dbm/tree_dbm-inl.h"
#include "hako/dbm/tree_log-inl.h"

// The templates that make up TreeDBM<FileT>, as those of a HashDBM are in dbm/hash_dbm.h.
#define HAKO_TREE_DBM_TEMPLATES(KEYWORD, FileT)                                                                                       \
  KEYWORD template class TreeDBM<FileT>;                                                                                              \
  KEYWORD template class Operations<TreeDBM<FileT>>;                                                                                  \
  KEYWORD template class MultiOperations<TreeDBM<FileT>>;                                                                             \
  KEYWORD template class TreeCursor<TreeDBM<FileT>, tree::PageTree<tree::BufferPool<FileT>, BytewiseComparator>, BytewiseComparator>; \
  KEYWORD template class OrderedOperations<TreeDBM<FileT>, BytewiseComparator>;                                                       \
  KEYWORD template class TreeOperations<TreeDBM<FileT>, tree::BufferPool<FileT>, BytewiseComparator>;                                 \
  KEYWORD template class EngineOperations<TreeDBM<FileT>, tree::BufferPool<FileT>,                                                    \
                                          tree::PageTree<tree::BufferPool<FileT>, BytewiseComparator>>;                               \
  KEYWORD template class tree::PageTree<tree::BufferPool<FileT>, BytewiseComparator>;                                                 \
  KEYWORD template class tree::BufferPool<FileT>;                                                                                     \
  KEYWORD template class tree::Checkpointer<FileT>
#define HAKO_TREE_DBM_PATH_TEMPLATES(KEYWORD, FileT)                         \
  KEYWORD template class FileOperations<TreeDBM<FileT>, FileT, TreeOptions>; \
  KEYWORD template class LogOperations<TreeDBM<FileT>, FileT, TreeOptions>

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
HAKO_TREE_DBM_TEMPLATES(extern, MemoryMapParallelFile);
HAKO_TREE_DBM_PATH_TEMPLATES(extern, MemoryMapParallelFile);

}  // namespace hako
