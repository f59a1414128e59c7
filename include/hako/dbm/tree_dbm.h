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
#include "hako/dbm/pool_operations.h"
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
//   PoolOperations (dbm/pool_operations.h)
//     Clear, CopyTo, Rebuild, ShouldBeRebuilt     the whole database
//     Verify, Scrub, GetStats                     checks, and figures
//   LogOperations (dbm/log_operations.h), FileOperations (dbm/file_operations.h)
//     Open, CopyTo                                of a path; Open of a file, and of its log
//     LastLsn, WaitDurable                        wait for the durability of many updates
//     Synchronize, GetHealth, IsWritable          durability, and why updates are refused
//     GetType, SetType, GetMetadata, SetMetadata  data of the application in the file
//     Close                                       makes a checkpoint and closes the file
//   TreeOperations (dbm/tree_operations.h), EngineOperations (dbm/engine_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEach, ProcessEachParallel, Count             all records
//     ProcessState                                        all records of one moment
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
                public PoolOperations<TreeDBM<FileT, Compare, Codec>, FileT, Codec, TreeOptions> {
  using Space = tree::BufferPool<FileT, Codec>;
  using Base = TreeOperations<TreeDBM, Space, Compare>;
  using Pool = PoolOperations<TreeDBM, FileT, Codec, TreeOptions>;
  using Files = LogOperations<TreeDBM, FileT, TreeOptions>;
  friend Base;
  friend typename Base::Shared;
  friend Pool;
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

  // GetStats, GetType, the cache's memory, the file's transfers, and the names of comparator and
  // codec, as pairs of name and text for people to read.
  Inspection Inspect();

 private:
  using Base::space_;
  using Base::tree;

  TreeDBM(std::unique_ptr<Space> space, unsigned page_size, const TreeOptions& options, typename Pool::Checkpointed checkpointed)
      : Base(std::move(space), page_size), Pool(*space_, options, std::move(checkpointed)) {}

  // ---- for PoolOperations ----
  auto& engine() const { return tree(); }
  Status VerifyPinned(const typename tree::PageStore<FileT>::Pinned& pinned);
};

}  // namespace hako

#include "hako/dbm/tree_dbm-inl.h"

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
  KEYWORD template class tree::Checkpointer<FileT>;                                                                                   \
  KEYWORD template class PoolOperations<TreeDBM<FileT>, FileT, NoCodec, TreeOptions>
#define HAKO_TREE_DBM_PATH_TEMPLATES(KEYWORD, FileT)                         \
  KEYWORD template class FileOperations<TreeDBM<FileT>, FileT, TreeOptions>; \
  KEYWORD template class LogOperations<TreeDBM<FileT>, FileT, TreeOptions>

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
HAKO_TREE_DBM_TEMPLATES(extern, MemoryMapParallelFile);
HAKO_TREE_DBM_PATH_TEMPLATES(extern, MemoryMapParallelFile);

}  // namespace hako
