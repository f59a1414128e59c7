// BabyDBM: a B+ tree in memory, on the page engine that TreeDBM uses too. Records are ordered by
// Compare. A record of 8 + 8 bytes takes about 18 bytes if loaded in order, 21 in random order.
//
// Durability: only snapshots written by Save survive the process. Save writes a temporary file,
// syncs it and renames it over the target, so a crash or an error leaves the old file unchanged.
// Load refuses a snapshot that does not validate and then changes nothing.
//
// Limits: keys up to kTreeKeySizeMax bytes, values below 4 GiB, memory up to
// BabyOptions::max_bytes.
//
// Threads: see dbm/dbm.h. A visitor runs with its leaf locked.
#pragma once

#include <memory>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/memory_operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_operations.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/tree/page_arena.h"

namespace hako {

// A B+ tree in memory: see the head of this header. FileT is the type of the files that Save and
// Load open.
//
// Inherits
//   MemoryOperations (dbm/memory_operations.h)
//     Save, Load                          snapshots
//     Synchronize, IsWritable, GetHealth  for every DBM; there is no file
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
template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator>
class BabyDBM : public TreeOperations<BabyDBM<FileT, Compare>, tree::PageArena, Compare>,
                public MemoryOperations<BabyDBM<FileT, Compare>, FileT> {
  using Space = tree::PageArena;
  using Base = TreeOperations<BabyDBM, Space, Compare>;
  friend Base;
  friend typename Base::Shared;

 public:
  // Opens an empty database. InvalidArgument for an option out of range.
  static StatusOr<std::unique_ptr<BabyDBM>> Open(const BabyOptions& options = {}) HAKO_TRY {
    if (options.page_size < 128 || options.page_size > 8192)
      return absl::InvalidArgumentError("BabyOptions::page_size must be 128 to 8192");
    if (options.max_bytes < kBytesMin || options.max_bytes > Space::kBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("BabyOptions::max_bytes must be ", kBytesMin, " to ", Space::kBytesMax));
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.max_bytes));
    auto dbm = std::unique_ptr<BabyDBM>(new BabyDBM(std::move(space), options));
    HAKO_RETURN_IF_ERROR(dbm->tree().Create());
    return dbm;
  }
  HAKO_OR_NO_MEMORY

  // Closes the database if the application has not.
  ~BabyDBM() { (void)Close(); }

  // Closes the database and frees its values stored out of line, which only the pages lead to; the
  // pages are freed with the object. Saves nothing. If Open failed there may be no tree, and then
  // there are no such values either.
  // REQUIRES: no other thread uses the database
  Status Close() {
    if (this->IsClosed()) return absl::OkStatus();
    const Status status = this->CheckOpen();
    typename Space::Deferred deferred(*space_);
    if (status.ok() && space_->long_bytes() != 0) (void)tree().RemoveAll(deferred);
    this->Seal();
    return status;
  }

  // Checks the structure page by page beside readers and writers. Writers are stopped only while
  // the records are counted (less than 1 ms per million records). DataLoss names the damage.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    HAKO_RETURN_IF_ERROR(this->RunExclusive([&] { return tree().CheckCount(this->Count()); }));
    return tree().VerifyBeside();
  }
  HAKO_OR_NO_MEMORY

  // Removes all records. Stops writers meanwhile.
  Status Clear() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    typename Space::Deferred deferred(*space_);
    return this->RunExclusive([&] { return this->RemoveAll(deferred); });
  }
  HAKO_OR_NO_MEMORY

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    if (!this->CheckIdle().ok()) return stats;
    this->RunExclusive([&] {
      stats.num_records = this->Count();
      stats.total_bytes = space_->total_bytes();
      stats.index_bytes = space_->line_bytes();
      stats.record_bytes = space_->long_bytes();
      tree().ForEachPage([&stats](unsigned level, unsigned size, unsigned live) {
        (level == 0 ? stats.record_bytes : stats.index_bytes) += level == 0 ? live : size;
        stats.num_buckets += level == 0 ? 1 : 0;
      });
      stats.free_bytes = stats.total_bytes - stats.index_bytes - stats.record_bytes;
      return 0;
    });
    return stats;
  }

  // GetStats as pairs of name and text, for people to read.
  Inspection Inspect() HAKO_TRY { return InspectionOf("BabyDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

 private:
  static constexpr std::uint64_t kBytesMin = 1 << 20;
  using Base::space_;
  using Base::tree;

  BabyDBM(std::unique_ptr<Space> space, const BabyOptions& options) : Base(std::move(space), options.page_size) {}
};

}  // namespace hako

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
extern template class BabyDBM<>;
extern template class Operations<BabyDBM<>>;
extern template class MultiOperations<BabyDBM<>>;
extern template class TreeCursor<BabyDBM<>, tree::PageTree<tree::PageArena, BytewiseComparator>, BytewiseComparator>;
extern template class OrderedOperations<BabyDBM<>, BytewiseComparator>;
extern template class TreeOperations<BabyDBM<>, tree::PageArena, BytewiseComparator>;
extern template class EngineOperations<BabyDBM<>, tree::PageArena, tree::PageTree<tree::PageArena, BytewiseComparator>>;
extern template class tree::PageTree<tree::PageArena, BytewiseComparator>;

}  // namespace hako
