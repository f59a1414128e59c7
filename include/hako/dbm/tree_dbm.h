// TreeDBM: a B+ tree in a file, on the same page engine as BabyDBM.
//
// Records are ordered by Compare. The file stores its name, and Open refuses a file of another
// order. Recently used pages are cached in memory, up to TreeOptions::cache_bytes
// (tree/file/buffer_pool.h). A record of 8 + 8 bytes that is loaded in order takes about 17 bytes of the
// file, or less if Codec compresses pages (base/page_codec.h).
//
// Limits: keys up to kTreeKeySizeMax bytes, values below 4 GiB.
//
// Durability: updates are made in memory. Checkpoints write them to the file: once checkpoint_bytes
// are dirty or log_bytes were logged, at sync_interval, at Synchronize (soft or hard) and at Close.
// The state after a crash depends on TreeOptions::durability:
//   kNone     exactly the last checkpoint
//   kProcess  after the death of the process every update; after a power cut all updates up to some
//             point, which is not before the last checkpoint or WaitDurable
//   kPower    every update that has returned
// The last two keep a log of the updates since the last checkpoint in a file beside the database,
// PATH-log, which Open replays after a crash and Close removes. While it exists the two files
// belong together: move, copy or remove both, or do so after Close. A database whose log is missing
// is refused (DataLoss). If WaitDurable fails for an update, the update was made, but may not
// survive a crash.
//
// A damaged page is refused with DataLoss, and so is a file with a damaged superblock. Salvage
// (dbm/salvage.h) writes the undamaged records of such a file into a new database.
//
// A ProcessMulti survives a crash as a whole or not at all. A database opened on a File has a log
// only if Open is given one. Without a log kProcess is the same as kNone, and kPower makes a
// checkpoint after each update.
//
// Other processes: while one writes the file, any number may read it, each by an Open of the path with
// OpenMode::kReadOnly. Such a database shows one checkpoint, and Refresh returns one of a newer checkpoint.
//
// Threads: see dbm/dbm.h. Synchronize, CopyTo, Rebuild and Verify run beside readers and writers;
// checkpoints also run during the other three. A visitor runs with its leaf locked. Values longer
// than a quarter page are copied, read and written with nothing locked. If a read overlaps the
// replacement of such a value, it is repeated. A visitor that only reads such a value sees a copy,
// with nothing locked. ProcessMulti keeps the long values of its keys in memory until it returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/pool_home.h"
#include "hako/dbm/tree_operations.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/tree/file/buffer_pool.h"

namespace hako {

// A B+ tree in a file: see the head of this header.
//
// Inherits
//   PoolHome (dbm/pool_home.h)
//     Clear, CopyTo, Rebuild, ShouldBeRebuilt     the whole database
//     Verify, Scrub, GetStats                     checks, and figures
//   DatabaseHome (dbm/database_home.h)
//     Synchronize, WaitDurable                    durability, of many updates at once
//     GetHealth, IsWritable                       why updates are refused
//     GetType, SetType, GetMetadata, SetMetadata  data of the application in the file
//     Close                                       makes a checkpoint and closes the file
//   TreeOperations (dbm/tree_operations.h), EngineOperations (dbm/engine_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEach, ProcessEachParallel, Count             all records
//     ProcessState                                        all records of one moment
//     MakeIterator                                        a cursor (dbm/tree_cursor.h)
//     Snapshot                                            a read-only view of one moment (dbm/snapshot.h)
//     LastLsn                                             where the thread's last update is in the log
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
//   ReadOperations (dbm/read_operations.h), MultiOperations (dbm/multi_operations.h)
//     GetMulti, SetMulti, RemoveMulti, AppendMulti  many operations in one call
//     CompareExchangeMulti, Rekey, Write            several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator, PageCodec Codec = NoCodec>
class TreeDBM final : public TreeOperations<TreeDBM<FileT, Compare, Codec>, tree::BufferPool<FileT, Codec>, Compare>,
                      public PoolHome<FileT, Codec> {
  using Space = tree::BufferPool<FileT, Codec>;
  using Base = TreeOperations<TreeDBM, Space, Compare>;
  using Home = PoolHome<FileT, Codec>;
  friend Base;
  friend typename Base::Shared;

 public:
  using typename Home::LogFile;

  // Opens the file at `path`, and the log beside it; see Open of a file below. Errors name the
  // path. An Open that fails leaves no new file, and changes nothing that a later Open would
  // notice.
  static StatusOr<std::unique_ptr<TreeDBM>> Open(const std::string& path, const TreeOptions& options = {},
                                                 const FileOptions& file_options = {}) requires PathFile<FileT>;
  // Opens the database in `file` without a log, and creates one if the file is empty. Options that
  // are fixed at creation are ignored for an existing database. Returns InvalidArgument for an
  // option out of range, another type of file, another comparator or codec; Unavailable if another
  // holder has the file open; DataLoss if the file does not validate.
  static StatusOr<std::unique_ptr<TreeDBM>> Open(FileT file, const TreeOptions& options = {}) {
    return Open(std::move(file), LogPlace<LogFile>(), options);
  }
  // As above, with a log, which is an empty file or the log of this database. Returns DataLoss if
  // the log lacks updates.
  static StatusOr<std::unique_ptr<TreeDBM>> Open(FileT file, LogFile log, const TreeOptions& options = {}) {
    return Open(std::move(file), LogPlace<LogFile>(std::move(log)), options);
  }
  static StatusOr<std::unique_ptr<TreeDBM>> Open(FileT file, LogPlace<LogFile> log, const TreeOptions& options);

  // For CopyTo of a snapshot (dbm/snapshot.h).
  template <class Fill>
  Status CopyMoment(const std::string& path, std::uint64_t now, Fill&& fill) requires PathFile<FileT> {
    return Home::template CopyBy<TreeDBM>(path, TreeOptions(), now, fill);
  }

  // Closes the database if the application has not.
  ~TreeDBM();

  // As PoolHome::Verify; also checks that each value has its time if records may expire.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(Home::Verify());
    return this->VerifyTimes();
  }
  HAKO_OR_NO_MEMORY
  // GetStats, GetType, the cache's memory, the file's transfers, and the names of comparator and
  // codec, as pairs of name and text for people to read.
  Inspection Inspect();

  // Of a database that was opened by its path with OpenMode::kReadOnly: opens the newest checkpoint, as another
  // database with an empty cache, and returns it; nullptr if this one is the newest. This one, its cursors and
  // snapshots go on to show the older checkpoint until it is closed, so any threads may use it meanwhile. A
  // reader whose reads return Aborted was cut off (TreeOptions::reader_bytes), and goes on here.
  // FailedPrecondition if it was opened in another way. The other errors are those of Open.
  StatusOr<std::unique_ptr<TreeDBM>> Refresh() const HAKO_TRY { return Home::Refreshed(*this, reopen_); }
  HAKO_OR_NO_MEMORY

 private:
  using Base::space_;
  using Base::tree;

  TreeDBM(std::unique_ptr<Space> space, unsigned page_size, const TreeOptions& options, typename Home::Checkpointed checkpointed)
      : Base(std::move(space), page_size), Home(*this, *space_, this->writers_, options.durability, std::move(checkpointed)) {
    if (this->SyncsEachUpdate()) this->CallAfterUpdates();
  }

  // Returns the memory that the options allow, or InvalidArgument for an option out of range.
  static StatusOr<tree::PoolLimits> LimitsFor(const TreeOptions& options);

  // ---- for PoolHome ----
  void DescribeTree(format::TreeSuperBlock& super) const override {
    super.num_records = this->Count();
    super.root = tree().root_id();
    super.applied_index = tree().applied_index();
  }
  Status RemoveAll(typename Space::Deferred& deferred) override { return Base::RemoveAll(deferred); }
  Status VerifyPinned(const typename Home::Pinned& pinned) override;

  std::function<StatusOr<std::unique_ptr<TreeDBM>>()> reopen_;  // of a reader: opens the newest checkpoint
};

}  // namespace hako

#include "hako/dbm/tree_dbm-inl.h"

// The templates that make up TreeDBM<FileT>: see HAKO_HASH_DBM_TEMPLATES in dbm/hash_dbm.h.
#define HAKO_TREE_DBM_TEMPLATES(KEYWORD, FileT)                                                                                       \
  KEYWORD template class TreeDBM<FileT>;                                                                                              \
  KEYWORD template class ReadOperations<TreeDBM<FileT>>;                                                                              \
  KEYWORD template class Operations<TreeDBM<FileT>>;                                                                                  \
  KEYWORD template class MultiOperations<TreeDBM<FileT>>;                                                                             \
  KEYWORD template class TreeCursor<TreeDBM<FileT>, tree::PageTree<tree::BufferPool<FileT>, BytewiseComparator>, BytewiseComparator>; \
  KEYWORD template class OrderedOperations<TreeDBM<FileT>, BytewiseComparator>;                                                       \
  KEYWORD template class TreeOperations<TreeDBM<FileT>, tree::BufferPool<FileT>, BytewiseComparator>;                                 \
  KEYWORD template class EngineOperations<TreeDBM<FileT>, tree::BufferPool<FileT>,                                                    \
                                          tree::PageTree<tree::BufferPool<FileT>, BytewiseComparator>>;                               \
  KEYWORD template class tree::PageTree<tree::BufferPool<FileT>, BytewiseComparator>;                                                 \
  KEYWORD template class tree::BufferPool<FileT>;                                                                                     \
  KEYWORD template class tree::Checkpointer<FileT>;                                                                                   \
  KEYWORD template class PoolHome<FileT>

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
HAKO_TREE_DBM_TEMPLATES(extern, MemoryMapParallelFile);

}  // namespace hako
