// TinyDBM: a hash table in memory, on the bucket engine that HashDBM uses too. A record of 8 + 8
// bytes takes about 30 bytes.
//
// Durability: only snapshots written by Save survive the process. Save writes a temporary file,
// syncs it and renames it over the target, so a crash or an error leaves the old file unchanged.
// Load refuses a snapshot that does not validate and then changes nothing.
//
// Limits: keys below 1 GiB, values below 4 GiB, memory up to TinyOptions::align_pow allows.
// Exceeding one is an error before anything changes.
//
// Threads: see dbm/dbm.h.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_operations.h"
#include "hako/dbm/memory_operations.h"
#include "hako/dbm/options.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/hash/record_arena.h"

namespace hako {

// A hash table in memory: see the head of this header. FileT is the type of the files that Save and
// Load open.
//
// Inherits
//   HashOperations (dbm/hash_operations.h), EngineOperations (dbm/engine_operations.h)
//     Process, Fetch, ProcessMulti, FetchMulti, Prefetch  the primitives
//     ProcessEach, ProcessEachParallel, Count             all records
//     MakeIterator                                        a cursor (dbm/hash_cursor.h)
//     CheckOpen, CheckIdle, IsClosed                      whether the database can be used
//   MemoryOperations (dbm/memory_operations.h)
//     Save, Load                          snapshots
//     Synchronize, IsWritable, GetHealth  for every DBM; there is no file
//   Operations (dbm/operations.h)
//     Get, GetOr, GetSize     read a value: into a string or span, in place, or with a fallback
//     Contains                check for a key
//     Set, Replace            store a record; only if it exists
//     Remove                  remove a record
//     CompareExchange         update a record if it is as expected
//     Increment               add to an 8-byte number
//   MultiOperations (dbm/multi_operations.h)
//     GetMulti, SetMulti, RemoveMulti, AppendMulti  many operations in one call
//     CompareExchangeMulti, Rekey, Write            several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile>
class TinyDBM : public HashOperations<TinyDBM<FileT>, hash::RecordArena>, public MemoryOperations<TinyDBM<FileT>, FileT> {
  using Space = hash::RecordArena;
  using Base = HashOperations<TinyDBM, Space>;
  friend Base;
  friend typename Base::Shared;

 public:
  // Opens an empty database. InvalidArgument if align_pow is out of range.
  static StatusOr<std::unique_ptr<TinyDBM>> Open(const TinyOptions& options = {}) HAKO_TRY {
    if (options.align_pow < 2 || options.align_pow > 6) return absl::InvalidArgumentError("TinyOptions::align_pow must be 2 to 6");
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.align_pow, options.seed != 0 ? options.seed : RandomSeed()));
    auto dbm = std::unique_ptr<TinyDBM>(new TinyDBM(std::move(space)));
    HAKO_RETURN_IF_ERROR(dbm->index().Create(options.num_records));
    return dbm;
  }
  HAKO_OR_NO_MEMORY

  // Operations::Append, but in place where the block has room. A value that grows by small pieces
  // is copied about eight times while its size doubles, so on average an Append costs time
  // proportional to its piece.
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter = {}) HAKO_TRY {
    if (key.size() > Base::kKeySizeMax) return this->RefuseKey(key);
    Space::WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    HAKO_ASSIGN_OR_RETURN(const bool done, index().Extend(*writer, space_->KeyHash(key), key, delimiter, value));
    return done ? absl::OkStatus() : Operations<TinyDBM>::Append(key, value, delimiter);
  }
  HAKO_OR_NO_MEMORY

  // Removes all records. Stops writers meanwhile. The memory is kept for new records.
  Status Clear() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    Space::WriterState* mine = writers_.Mine();
    if (mine == nullptr) return writers_.Refusal();
    const sync::NoHolds no_holds(space_->gate());
    return this->RunExclusive([&] { return this->RemoveAll(*mine); });
  }
  HAKO_OR_NO_MEMORY

  // Checks the structure of the table beside readers and writers. Writers are stopped only while
  // the entries are counted (about 2 ms per million records). DataLoss names the damage.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    Space::WriterState* mine = writers_.Mine();
    if (mine == nullptr) return writers_.Refusal();
    HAKO_RETURN_IF_ERROR(this->RunExclusive([&] { return index().VerifyLines(this->Count(), [](std::uint32_t, std::uint32_t) {}); }));
    return index().VerifyRecords(*mine);
  }
  HAKO_OR_NO_MEMORY

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    if (writers_.Mine() == nullptr) return stats;
    stats.num_records = this->Count();
    stats.total_bytes = space_->total_bytes();
    stats.index_bytes = space_->index_bytes();
    stats.free_bytes = this->RunExclusive([this] { return space_->FreeBytes(this->ForEachWriter()); });
    stats.record_bytes = stats.total_bytes - stats.index_bytes - stats.free_bytes;
    stats.num_buckets = index().num_lines();
    stats.num_overflow = index().lines().num_overflow();
    return stats;
  }

  // GetStats as pairs of name and text, for people to read.
  Inspection Inspect() HAKO_TRY { return InspectionOf("TinyDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

  // Closes the database; the memory is freed with the object. Saves nothing.
  // REQUIRES: no other thread uses the database
  Status Close() {
    if (this->IsClosed()) return absl::OkStatus();
    const Status status = this->CheckOpen();
    this->Seal();
    return status;
  }

 private:
  using Base::index;
  using Base::space_;
  using Base::writers_;

  explicit TinyDBM(std::unique_ptr<Space> space) : Base(std::move(space)) {}
};

}  // namespace hako

namespace hako {

// Compiled in the library, where programs would otherwise compile them again.
extern template class TinyDBM<>;
extern template class Operations<TinyDBM<>>;
extern template class MultiOperations<TinyDBM<>>;
extern template class HashCursor<TinyDBM<>, hash::BucketIndex<hash::RecordArena>, hash::RecordArena>;
extern template class HashOperations<TinyDBM<>, hash::RecordArena>;
extern template class EngineOperations<TinyDBM<>, hash::RecordArena, hash::BucketIndex<hash::RecordArena>>;
extern template class hash::BucketIndex<hash::RecordArena>;

}  // namespace hako
