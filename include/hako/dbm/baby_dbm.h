// BabyDBM: a B+ tree in memory, on the same page engine as TreeDBM. Records are ordered by Compare.
// A record of 8 + 8 bytes takes about 18 bytes if loaded in order, 21 in random order.
//
// Durability: as for TinyDBM (dbm/tiny_dbm.h), by BabyOptions::durability.
//
// Limits: keys up to kTreeKeySizeMax bytes, values below 4 GiB, memory up to
// BabyOptions::max_bytes.
//
// As a cache: with BabyOptions::capacity_bytes or capacity_records an update that would exceed the limit
// evicts records that were not used lately, as in a TinyDBM (tree/page_limit.h has the policy, and where the
// memory goes). capacity_bytes includes everything: keys, values, pages, free space, tables,
// threads. A value may take a quarter of it, and a batch half; larger ones are OutOfRange, and
// evict nothing. A batch that leaves too few records to be evicted may be refused with
// ResourceExhausted. With n threads evictions leave at least capacity_records - 64 n records, or
// half of capacity_records if that is more. A batch may have half of capacity_records. An update
// does not evict the record that it changes. As in a TinyDBM, evicted records stay absent after a
// crash, and a file with more records than the limit can be opened.
//
// Threads: see dbm/dbm.h. A visitor runs with its leaf locked.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/memory_home.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_operations.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/log/logged_space.h"
#include "hako/tree/memory/page_arena.h"

namespace hako {

// A B+ tree in memory: see the head of this header. FileT is the type of the files that Save and
// Load open.
//
// Inherits
//   MemoryHome (dbm/memory_home.h)
//     Save, Load                          snapshots
//     WaitDurable                         wait for the durability of many updates
//     Synchronize, GetHealth, IsWritable  durability, and why updates are refused
//     Close                               writes a snapshot and closes the file, if there is one
//   TreeOperations (dbm/tree_operations.h), EngineOperations (dbm/engine_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEach, ProcessEachParallel, Count             all records
//     ProcessState                                        all records of one moment
//     MakeIterator                                        a cursor (dbm/tree_cursor.h)
//     Snapshot                                            a read-only view of one moment (dbm/snapshot.h)
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
template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator>
class BabyDBM final : public TreeOperations<BabyDBM<FileT, Compare>, log::LoggedSpace<tree::PageArena, log::LogFileOf<FileT>>, Compare>,
                      public MemoryHome<BabyDBM<FileT, Compare>, FileT, BabyOptions> {
  using Space = log::LoggedSpace<tree::PageArena, log::LogFileOf<FileT>>;
  using Base = TreeOperations<BabyDBM, Space, Compare>;
  using Memory = MemoryHome<BabyDBM, FileT, BabyOptions>;
  friend Base;
  friend typename Base::Shared;
  friend Memory;

 public:
  // Opens an empty database in memory only. InvalidArgument for an option out of range.
  static StatusOr<std::unique_ptr<BabyDBM>> Open(const BabyOptions& options = {}) HAKO_TRY {
    if (options.durability == Durability::kPower) return absl::InvalidArgumentError("BabyOptions::durability kPower requires a path");
    HAKO_ASSIGN_OR_RETURN(auto dbm, Make(options));
    HAKO_RETURN_IF_ERROR(dbm->Begin(options));
    return dbm;
  }
  HAKO_OR_NO_MEMORY
  // Opens the database with the snapshot at `path` and the log beside it: see TinyDBM::Open. A
  // snapshot may come from a database of another order; a log that must be read may not.
  template <std::convertible_to<std::string> Path>  // no braces: those are options
  static StatusOr<std::unique_ptr<BabyDBM>> Open(const Path& path, const BabyOptions& options = {},
                                                 const FileOptions& file_options = {}) requires ReplaceableFile<FileT> HAKO_TRY {
    return Memory::OpenAt(path, options, file_options,
                          [&](auto place, auto log) { return Make(options, std::move(place), std::move(log), options); });
  }
  HAKO_OR_NO_MEMORY
  // As above, with this log instead of the one beside the snapshot.
  static StatusOr<std::unique_ptr<BabyDBM>> Open(const std::string& path, LogPlace<log::LogFileOf<FileT>> log,
                                                 const BabyOptions& options) requires ReplaceableFile<FileT> HAKO_TRY {
    return Memory::OpenAt(path, options, {}, [&](auto place, auto) { return Make(options, std::move(place), std::move(log), options); });
  }
  HAKO_OR_NO_MEMORY

  // Closes the database if the application has not.
  ~BabyDBM();

  // Checks the structure page by page beside readers and writers. Writers are stopped only while
  // the records are counted (less than 1 ms per million records). DataLoss names the damage.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    HAKO_RETURN_IF_ERROR(this->RunExclusive([&] { return tree().CheckCount(this->Count()); }));
    HAKO_RETURN_IF_ERROR(tree().VerifyBeside());
    return this->VerifyTimes();
  }
  HAKO_OR_NO_MEMORY

  // Removes all records. Stops writers meanwhile.
  Status Clear() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    typename Space::Deferred deferred(*space_);  // ends after writers are admitted again
    return this->ClearBy([&](typename Base::WriterState&) { return this->RemoveAll(deferred); });
  }
  HAKO_OR_NO_MEMORY

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    if (!this->CheckIdle().ok()) return stats;
    this->RunExclusive([&] {
      stats.num_records = this->Count();
      stats.total_bytes = space_->total_bytes();
      stats.index_bytes = space_->table_bytes();
      stats.record_bytes = space_->long_bytes();
      tree().ForEachPage([&stats](unsigned level, unsigned size, unsigned live) {
        (level == 0 ? stats.record_bytes : stats.index_bytes) += level == 0 ? live : size;
        stats.num_buckets += level == 0 ? 1 : 0;
      });
      stats.free_bytes = stats.total_bytes - stats.index_bytes - stats.record_bytes;
      return 0;
    });
    this->AddEvictionStats(&stats);
    this->AddSnapshotStats(&stats);
    this->AddStats(&stats);
    return stats;
  }

  // GetStats as pairs of name and text, for people to read.
  Inspection Inspect() HAKO_TRY { return InspectionOf("BabyDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

 private:
  static constexpr std::uint64_t kBytesMin = 1 << 20;
  using Base::space_;
  using Base::tree;

  template <class... Rest>
  BabyDBM(std::unique_ptr<Space> space, unsigned page_size, Rest&&... rest)
      : Base(std::move(space), page_size), Memory(*this, space_->log(), std::forward<Rest>(rest)...) {}

  static Status CheckOptions(const BabyOptions& options) {
    if (options.page_size < 128 || options.page_size > 8192)
      return absl::InvalidArgumentError("BabyOptions::page_size must be 128 to 8192");
    if (options.max_bytes < kBytesMin || options.max_bytes > Space::kBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("BabyOptions::max_bytes must be ", kBytesMin, " to ", Space::kBytesMax));
    HAKO_RETURN_IF_ERROR((Capacity{options.capacity_bytes, options.capacity_records}.Check("BabyOptions")));
    return CheckSharedOptions(options);
  }
  // Makes an empty database; `rest` is for MemoryHome.
  template <class... Rest>
  static StatusOr<std::unique_ptr<BabyDBM>> Make(const BabyOptions& options, Rest&&... rest) {
    HAKO_RETURN_IF_ERROR(CheckOptions(options));
    const Capacity capacity{options.capacity_bytes, options.capacity_records};
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.max_bytes, storage::Arena::kSmallUsual, std::uint64_t{0}, capacity));
    auto dbm = std::unique_ptr<BabyDBM>(new BabyDBM(std::move(space), options.page_size, std::forward<Rest>(rest)...));
    dbm->tree().captures().SetLimit(options.snapshot_bytes);
    HAKO_RETURN_IF_ERROR(dbm->tree().Create());
    if (capacity.IsLimited()) {
      dbm->reads_plainly_ = false;
      dbm->CallAfterUpdates();  // so that visitors of updates are passed by reference
    }
    return dbm;
  }

  // See DatabaseRecords. Frees the values stored out of line, which only the pages name; the pages
  // are freed with the object. If Open failed there may be no tree, and then there are no such
  // values. If memory runs out, the values leak.
  void Seal() override {
    typename Space::Deferred deferred(*space_);
    if (this->CheckOpen().ok() && space_->long_bytes() != 0)
      (void)CatchNoMemory([&] { return this->RunExclusive([&] { return tree().RemoveAll(deferred); }); });
    Base::Seal();
  }
};

template <File FileT, Comparator Compare>
BabyDBM<FileT, Compare>::~BabyDBM() {
  (void)this->Close();
  if (!this->IsClosed()) Seal();                                                    // Open has failed
  if (this->writers_.IsInherited() && this->AbandonFile()) (void)space_.release();  // the log of the space belongs to the parent process
}

namespace internal {
using BabySpace = log::LoggedSpace<tree::PageArena, log::LogFileOf<MemoryMapParallelFile>>;
}

// Compiled in the library, where programs would otherwise compile them again.
extern template class BabyDBM<>;
extern template class ReadOperations<BabyDBM<>>;
extern template class Operations<BabyDBM<>>;
extern template class MultiOperations<BabyDBM<>>;
extern template class TreeCursor<BabyDBM<>, tree::PageTree<internal::BabySpace, BytewiseComparator>, BytewiseComparator>;
extern template class OrderedOperations<BabyDBM<>, BytewiseComparator>;
extern template class TreeOperations<BabyDBM<>, internal::BabySpace, BytewiseComparator>;
extern template class EngineOperations<BabyDBM<>, internal::BabySpace, tree::PageTree<internal::BabySpace, BytewiseComparator>>;
extern template class MemoryHome<BabyDBM<>, MemoryMapParallelFile, BabyOptions>;
extern template class tree::PageTree<internal::BabySpace, BytewiseComparator>;

}  // namespace hako
