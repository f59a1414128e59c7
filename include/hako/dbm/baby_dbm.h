// BabyDBM: a B+ tree in memory, on the page engine that TreeDBM uses too.
//
// Records lie in the order of their keys, which Compare decides. Nothing of it survives the process but what Save wrote. Save writes a
// snapshot beside the target, syncs it and renames it, so a crash or an error leaves the old file as it was; Load refuses a snapshot that
// does not validate and then changes nothing. About 18 bytes of memory for a record of 8 + 8 bytes loaded in order, 21 in random order;
// keys are at most kTreeKeySizeMax bytes long.
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

template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator>
class BabyDBM : public TreeOperations<BabyDBM<FileT, Compare>, tree::PageArena, Compare>,
                public MemoryOperations<BabyDBM<FileT, Compare>, FileT> {
  using Space = tree::PageArena;
  using Base = TreeOperations<BabyDBM, Space, Compare>;
  friend Base;

 public:
  static StatusOr<std::unique_ptr<BabyDBM>> Open(const BabyOptions& options = {}) HAKO_TRY {
    if (options.page_size < 128 || options.page_size > 8192)
      return absl::InvalidArgumentError("BabyOptions::page_size must be 128 to 8192");
    if (options.max_bytes < kBytesMin || options.max_bytes > Space::kBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("BabyOptions::max_bytes must be ", kBytesMin, " to ", Space::kBytesMax));
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.max_bytes));
    auto dbm = std::unique_ptr<BabyDBM>(new BabyDBM(std::move(space), options));
    HAKO_RETURN_IF_ERROR(dbm->tree_.Create());
    return dbm;
  }
  HAKO_OR_NO_MEMORY

  ~BabyDBM() { (void)Close(); }

  // Pages and lines go with the space; a value outside of the pages can be found only by way of them. Where Open failed there may be no
  // tree yet, but then no such value either.
  Status Close() {
    if (this->IsClosed()) return absl::OkStatus();
    const Status status = this->CheckOpen();
    typename Space::Deferred deferred(*space_);
    if (status.ok() && space_->long_bytes() != 0) (void)tree_.RemoveAll(deferred);
    this->Seal();
    return status;
  }

  // Proves the structure page by page beside readers and writers, who are stopped only while the records are counted, for less than a
  // millisecond a million.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    HAKO_RETURN_IF_ERROR(this->RunExclusive([&] { return tree_.CheckCount(this->Count()); }));
    return tree_.VerifyBeside();
  }
  HAKO_OR_NO_MEMORY

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
      tree_.ForEachPage([&stats](unsigned level, unsigned size, unsigned live) {
        (level == 0 ? stats.record_bytes : stats.index_bytes) += level == 0 ? live : size;
        stats.num_buckets += level == 0 ? 1 : 0;
      });
      stats.free_bytes = stats.total_bytes - stats.index_bytes - stats.record_bytes;
      return 0;
    });
    return stats;
  }

  Inspection Inspect() HAKO_TRY { return InspectionOf("BabyDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

 private:
  static constexpr std::uint64_t kBytesMin = 1 << 20;
  using Base::space_;
  using Base::tree_;

  BabyDBM(std::unique_ptr<Space> space, const BabyOptions& options) : Base(std::move(space), options.page_size) {}
};

}  // namespace hako

namespace hako {

// The library has these compiled: a program that uses them takes a third of the time to compile.
extern template class BabyDBM<>;
extern template class OrderedOperations<BabyDBM<>, BytewiseComparator>;
extern template class TreeOperations<BabyDBM<>, tree::PageArena, BytewiseComparator>;
extern template class tree::PageTree<tree::PageArena, BytewiseComparator>;

}  // namespace hako
