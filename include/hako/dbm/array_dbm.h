// ArrayDBM: records of one width, by number, in a file.
//
//   HAKO_ASSIGN_OR_RETURN(auto db, ArrayDBM<>::Open("temperatures.hka", {.width = 8}));
//   HAKO_RETURN_IF_ERROR(db->Set(1017, reading));
//   HAKO_ASSIGN_OR_RETURN(const std::uint64_t id, db->Append(reading));
//
// Numbers go from 0 to 2^40 - 1. Only pages with records exist, and an absent record in such a page
// takes one bit. So an array may be sparse: a record far from all others costs its page, of 512
// bytes or more, and up to four directory pages. A full page is larger than its records by at most
// 12 % and one bit for each record. All records have the same width; see dbm/array_operations.h for
// shorter values.
//
// Once used, directory pages stay in memory, in addition to ArrayOptions::cache_bytes: 4 KiB for
// each 1024 consecutive pages that have records. If all records are far apart, each record takes 4
// KiB or more.
//
// Pages are found by number (array/page_array.h). They are cached, checked when loaded, and written
// by checkpoints like the pages of a TreeDBM (tree/file/buffer_pool.h).
//
// Durability and the log: as for TreeDBM (dbm/tree_dbm.h), by ArrayOptions::durability. A damaged
// page is refused with DataLoss; see dbm/salvage.h.
//
// Threads: see dbm/dbm.h. Get takes no lock; Set locks one page. Synchronize, CopyTo, Rebuild and Verify run
// beside readers and writers. A visitor runs with its page locked or, if the page does not exist
// yet, while no other page is made.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "hako/array/array_pages.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/array_operations.h"
#include "hako/dbm/common.h"
#include "hako/dbm/options.h"
#include "hako/dbm/pool_home.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/tree/file/buffer_pool.h"

namespace hako {

// An array in a file: see the head of this header.
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
//   ArrayOperations (dbm/array_operations.h), EngineOperations (dbm/engine_operations.h)
//     Get, Set, Contains, Remove, Process, Fetch  one record, by number
//     Append, AppendMulti                         records after the last one
//     SetMulti, GetMulti                          several records
//     FirstId, LastId, Count, width               the whole array
//     CountRange, RemoveRange                     count or remove the records of [from, to)
//     MakeIterator                                a cursor (dbm/array_cursor.h)
//     Snapshot                                    a read-only view of one moment (dbm/snapshot.h)
//     the operations of every ordered DBM, by key
template <File FileT = MemoryMapParallelFile>
class ArrayDBM final : public ArrayOperations<ArrayDBM<FileT>, tree::BufferPool<FileT>>, public PoolHome<FileT> {
  using Space = tree::BufferPool<FileT>;
  using Base = ArrayOperations<ArrayDBM, Space>;
  using Home = PoolHome<FileT>;
  friend Base;
  friend typename Base::Shared;

 public:
  using typename Home::LogFile;

  // Opens the file at `path`, and the log beside it; see Open of a file below. Errors name the
  // path. An Open that fails leaves no new file, and changes nothing that a later Open would
  // notice.
  static StatusOr<std::unique_ptr<ArrayDBM>> Open(const std::string& path, const ArrayOptions& options = {},
                                                  const FileOptions& file_options = {}) requires PathFile<FileT>;
  // Opens the database in `file` without a log, and creates one if the file is empty. Returns
  // InvalidArgument for an option out of range, another type of file, or another width; Unavailable
  // if another holder has the file open; DataLoss if it does not validate.
  static StatusOr<std::unique_ptr<ArrayDBM>> Open(FileT file, const ArrayOptions& options = {}) {
    return Open(std::move(file), LogPlace<LogFile>(), options);
  }
  // As above, with a log, which is an empty file or the log of this database. Returns DataLoss if
  // the log lacks updates.
  static StatusOr<std::unique_ptr<ArrayDBM>> Open(FileT file, LogFile log, const ArrayOptions& options = {}) {
    return Open(std::move(file), LogPlace<LogFile>(std::move(log)), options);
  }
  static StatusOr<std::unique_ptr<ArrayDBM>> Open(FileT file, LogPlace<LogFile> log, const ArrayOptions& options);

  // For CopyTo of a snapshot (dbm/snapshot.h).
  template <class Fill>
  Status CopyMoment(const std::string& path, std::uint64_t now, Fill&& fill) requires PathFile<FileT> {
    return Home::template CopyBy<ArrayDBM>(path, ArrayOptions{.width = this->width()}, now, fill);
  }

  // Closes the database if the application has not.
  ~ArrayDBM();

  // Returns GetStats, GetType, the cache's memory, the file's transfers and the width, for people
  // to read.
  Inspection Inspect();

  // As TreeDBM::Refresh (dbm/tree_dbm.h).
  StatusOr<std::unique_ptr<ArrayDBM>> Refresh() const HAKO_TRY { return Home::Refreshed(*this, reopen_); }
  HAKO_OR_NO_MEMORY

 private:
  using Base::array;
  using Base::space_;

  ArrayDBM(std::unique_ptr<Space> space, std::unique_ptr<array::ArrayPages> pages, const ArrayOptions& options,
           typename Home::Checkpointed checkpointed)
      : Base(std::move(space), pages->shape()),
        Home(*this, *space_, this->writers_, options.durability, std::move(checkpointed)),
        pages_(std::move(pages)) {
    if (this->SyncsEachUpdate()) this->CallAfterUpdates();
  }

  // Returns the memory that the options allow, or InvalidArgument for an option out of range.
  static StatusOr<tree::PoolLimits> LimitsFor(const ArrayOptions& options);
  static Status NoWidthError();

  // ---- for PoolHome ----
  void DescribeTree(format::TreeSuperBlock& super) const override {
    super.num_records = this->Count();
    super.root = array().root_id();
    super.applied_index = array().applied_index();
  }
  Status RemoveAll(typename Space::Deferred& deferred) override { return Base::RemoveAll(deferred); }
  Status VerifyPinned(const typename Home::Pinned& pinned) override;

  std::unique_ptr<array::ArrayPages> pages_;                     // the space refers to this object
  std::function<StatusOr<std::unique_ptr<ArrayDBM>>()> reopen_;  // of a reader: opens the newest checkpoint
};

}  // namespace hako

#include "hako/dbm/array_dbm-inl.h"

// The templates that make up ArrayDBM<FileT>, beside those of TreeDBM<FileT>, which must be instantiated too.
#define HAKO_ARRAY_DBM_TEMPLATES(KEYWORD, FileT)                                                                                \
  KEYWORD template class ArrayDBM<FileT>;                                                                                       \
  KEYWORD template class ReadOperations<ArrayDBM<FileT>>;                                                                       \
  KEYWORD template class Operations<ArrayDBM<FileT>>;                                                                           \
  KEYWORD template class MultiOperations<ArrayDBM<FileT>>;                                                                      \
  KEYWORD template class OrderedOperations<ArrayDBM<FileT>, RecordKeyComparator>;                                               \
  KEYWORD template class ArrayOperations<ArrayDBM<FileT>, tree::BufferPool<FileT>>;                                             \
  KEYWORD template class EngineOperations<ArrayDBM<FileT>, tree::BufferPool<FileT>, array::PageArray<tree::BufferPool<FileT>>>; \
  KEYWORD template class array::PageArray<tree::BufferPool<FileT>>

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
extern template class tree::BufferPool<MemoryMapParallelFile>;
extern template class tree::Checkpointer<MemoryMapParallelFile>;
extern template class PoolHome<MemoryMapParallelFile>;
HAKO_ARRAY_DBM_TEMPLATES(extern, MemoryMapParallelFile);

}  // namespace hako
