// MemoryArrayDBM: records of one width, by number, in memory. It is like ArrayDBM (dbm/array_dbm.h)
// with all pages in memory. A record takes its width and a bit, and a few percent.
//
// Durability: as for TinyDBM (dbm/tiny_dbm.h), by MemoryArrayOptions::durability. The keys in a
// snapshot are numbers in decimal, so every database in memory can load it.
//
// Threads: see dbm/dbm.h. Get takes no lock; Set locks one page.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hako/array/record_key.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/array_operations.h"
#include "hako/dbm/common.h"
#include "hako/dbm/memory_home.h"
#include "hako/dbm/options.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/log/logged_space.h"
#include "hako/tree/memory/page_arena.h"

namespace hako {

// An array in memory: see the head of this header. FileT is the type of the files that Save and Load open.
//
// Inherits
//   MemoryHome (dbm/memory_home.h)
//     Save, Load                          snapshots
//     WaitDurable                         wait for the durability of many updates
//     Synchronize, GetHealth, IsWritable  durability, and why updates are refused
//     Close                               writes a snapshot and closes the file, if there is one
//   ArrayOperations (dbm/array_operations.h)
template <File FileT = MemoryMapParallelFile>
class MemoryArrayDBM final : public ArrayOperations<MemoryArrayDBM<FileT>, log::LoggedSpace<tree::PageArena, log::LogFileOf<FileT>>>,
                             public MemoryHome<MemoryArrayDBM<FileT>, FileT, MemoryArrayOptions> {
  using Space = log::LoggedSpace<tree::PageArena, log::LogFileOf<FileT>>;
  using Base = ArrayOperations<MemoryArrayDBM, Space>;
  using Memory = MemoryHome<MemoryArrayDBM, FileT, MemoryArrayOptions>;
  friend Base;
  friend typename Base::Shared;
  friend Memory;

 public:
  // Opens an empty database in memory only. InvalidArgument for an option out of range.
  static StatusOr<std::unique_ptr<MemoryArrayDBM>> Open(const MemoryArrayOptions& options) HAKO_TRY {
    if (options.durability == Durability::kPower)
      return absl::InvalidArgumentError("MemoryArrayOptions::durability kPower requires a path");
    HAKO_ASSIGN_OR_RETURN(auto dbm, Make(options));
    HAKO_RETURN_IF_ERROR(dbm->Begin(options));
    return dbm;
  }
  HAKO_OR_NO_MEMORY
  // Opens the database with the snapshot at `path` and the log beside it: see TinyDBM::Open.
  template <std::convertible_to<std::string> Path>  // no braces: those are options
  static StatusOr<std::unique_ptr<MemoryArrayDBM>> Open(const Path& path, const MemoryArrayOptions& options,
                                                        const FileOptions& file_options = {}) requires ReplaceableFile<FileT> HAKO_TRY {
    return Memory::OpenAt(path, options, file_options,
                          [&](auto place, auto log) { return Make(options, std::move(place), std::move(log), options); });
  }
  HAKO_OR_NO_MEMORY

  // Closes the database if the application has not.
  ~MemoryArrayDBM() {
    (void)this->Close();
    if (this->writers_.IsInherited() && this->AbandonFile()) (void)space_.release();  // the log of the space belongs to the parent process
  }

  // Checks the structure. Stops writers meanwhile, for less than 1 ms per million records of 8
  // bytes. Returns DataLoss, which names the damage.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    return this->RunExclusive([&] { return array().Verify(this->Count()); });
  }
  HAKO_OR_NO_MEMORY

  // Checks whether a record of a snapshot fits into this array. Load calls it before it changes
  // anything.
  Status CheckRecord(std::string_view key, std::string_view value) const {
    HAKO_RETURN_IF_ERROR(RecordKey::Parse(key).status());
    return value.size() <= this->width() ? absl::OkStatus() : TooLargeError("a value of the snapshot", value.size(), this->width());
  }

  // Removes all records. Stops writers meanwhile.
  Status Clear() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckIdle());
    typename Space::Deferred deferred(*space_);
    return this->ClearBy([&](typename Base::WriterState&) { return this->RemoveAll(deferred); });
  }
  HAKO_OR_NO_MEMORY

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    if (!this->CheckIdle().ok()) return stats;
    this->RunExclusive([&] {
      stats.num_records = this->Count();
      (void)array().Verify(stats.num_records, &stats.num_buckets);
      return 0;
    });
    stats.total_bytes = space_->total_bytes();
    stats.index_bytes = std::min(stats.total_bytes, space_->line_bytes());
    stats.record_bytes = std::min(stats.total_bytes - stats.index_bytes, stats.num_buckets * array().shape().units * format::kPageUnit);
    stats.free_bytes = stats.total_bytes - stats.index_bytes - stats.record_bytes;
    this->AddStats(&stats);
    this->AddSnapshotStats(&stats);
    return stats;
  }

  // GetStats as pairs of name and text, for people to read.
  Inspection Inspect() HAKO_TRY { return InspectionOf("MemoryArrayDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

 private:
  using Base::array;
  using Base::space_;

  template <class... Rest>
  MemoryArrayDBM(std::unique_ptr<Space> space, const format::ArrayShape& shape, Rest&&... rest)
      : Base(std::move(space), shape), Memory(*this, space_->log(), std::forward<Rest>(rest)...) {}

  static Status CheckOptions(const MemoryArrayOptions& options) {
    static constexpr std::uint64_t kBytesMin = 1 << 20;
    if (options.width == 0 || options.width > kRecordWidthMax)
      return absl::InvalidArgumentError(absl::StrCat("MemoryArrayOptions::width must be 1 to ", kRecordWidthMax));
    if (options.max_bytes < kBytesMin || options.max_bytes > Space::kBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("MemoryArrayOptions::max_bytes must be ", kBytesMin, " to ", Space::kBytesMax));
    return CheckSharedOptions(options);
  }
  // Makes an empty database; `rest` is for MemoryHome.
  template <class... Rest>
  static StatusOr<std::unique_ptr<MemoryArrayDBM>> Make(const MemoryArrayOptions& options, Rest&&... rest) {
    HAKO_RETURN_IF_ERROR(CheckOptions(options));
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.max_bytes));
    auto dbm = std::unique_ptr<MemoryArrayDBM>(
        new MemoryArrayDBM(std::move(space), format::ArrayShape::For(options.width), std::forward<Rest>(rest)...));
    dbm->array().captures().SetLimit(options.snapshot_bytes);
    HAKO_RETURN_IF_ERROR(dbm->array().Create());
    return dbm;
  }
};

namespace internal {
using ArraySpace = log::LoggedSpace<tree::PageArena, log::LogFileOf<MemoryMapParallelFile>>;
}

// Compiled in the library, where programs would otherwise compile them again.
extern template class MemoryArrayDBM<>;
extern template class ReadOperations<MemoryArrayDBM<>>;
extern template class Operations<MemoryArrayDBM<>>;
extern template class MultiOperations<MemoryArrayDBM<>>;
extern template class OrderedOperations<MemoryArrayDBM<>, RecordKeyComparator>;
extern template class ArrayOperations<MemoryArrayDBM<>, internal::ArraySpace>;
extern template class EngineOperations<MemoryArrayDBM<>, internal::ArraySpace, array::PageArray<internal::ArraySpace>>;
extern template class MemoryHome<MemoryArrayDBM<>, MemoryMapParallelFile, MemoryArrayOptions>;
extern template class array::PageArray<internal::ArraySpace>;

}  // namespace hako
