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
#include <span>
#include <string_view>
#include <type_traits>

#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_cursor.h"
#include "hako/dbm/memory_operations.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/record_arena.h"
#include "hako/sync/writer_states.h"

namespace hako {

// A hash table in memory: see the head of this header. FileT is the type of the files that Save and Load open.
//
// Inherits
//   MemoryOperations (dbm/memory_operations.h)
//     Save, Load              snapshots
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
//     CompareExchangeMulti, Rekey                   several records in one atomic step
//     ProcessFirst, PopFirst, PushLast              the first record; a record keyed by the time
//     Export                                        copy all records to another database
template <File FileT = MemoryMapParallelFile>
class TinyDBM : public Operations<TinyDBM<FileT>>, public MemoryOperations<TinyDBM<FileT>, FileT> {
  using Space = hash::RecordArena;
  using Index = hash::BucketIndex<Space>;

 public:
  using Iterator = HashCursor<TinyDBM, Index, Space>;              // see dbm/hash_cursor.h
  static constexpr std::uint64_t kKeySizeMax = hako::kKeySizeMax;  // bytes

  // Opens an empty database. InvalidArgument if align_pow is out of range.
  static StatusOr<std::unique_ptr<TinyDBM>> Open(const TinyOptions& options = {}) HAKO_TRY {
    if (options.align_pow < 2 || options.align_pow > 6) return absl::InvalidArgumentError("TinyOptions::align_pow must be 2 to 6");
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.align_pow, options.seed != 0 ? options.seed : RandomSeed()));
    auto dbm = std::unique_ptr<TinyDBM>(new TinyDBM(std::move(space)));
    HAKO_RETURN_IF_ERROR(dbm->index_.Create(options.num_records));
    return dbm;
  }
  HAKO_OR_NO_MEMORY

  // See dbm/dbm.h.
  template <Visitor V>
  Status Process(std::string_view key, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    Space::WriterState* writer = writers_.Mine();
    if (writer == nullptr) [[unlikely]]
      return writers_.Refusal();
    const std::uint64_t hash = space_->KeyHash(key);
    if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
      return index_.template Process<void>(*writer, hash, key, visitor);
    } else {
      return index_.template Process<Action>(*writer, hash, key, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // See dbm/dbm.h.
  template <Sink S>
  HAKO_INLINE Status Fetch(std::string_view key, S&& sink) {
    return index_.Fetch(writers_, space_->KeyHash(key), key, sink);
  }

  // See dbm/dbm.h.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) HAKO_TRY {
    for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    Space::WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
      return index_.template ProcessMulti<Action>(*writer, keys, KeepAll(visitor));
    } else {
      return index_.template ProcessMulti<Action>(*writer, keys, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // Fetches each key, with overlapped reads: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    if (writers_.IsClosed()) return writers_.Refusal();
    return index_.FetchMulti(writers_, keys, sink, arrived);
  }
  HAKO_OR_NO_MEMORY
  // A hint that these keys will be used.
  void Prefetch(std::span<const std::string_view> keys) const {
    if (!IsClosed()) index_.Prefetch(keys);
  }

  // Operations::Append, but in place where the block has room. A value that grows by small pieces
  // is copied about eight times while its size doubles, so on average an Append costs time
  // proportional to its piece.
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter = {}) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    Space::WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    HAKO_ASSIGN_OR_RETURN(const bool done, index_.Extend(*writer, space_->KeyHash(key), key, delimiter, value));
    return done ? absl::OkStatus() : Operations<TinyDBM>::Append(key, value, delimiter);
  }
  HAKO_OR_NO_MEMORY

  // Shows all records in an internal order.
  template <class V>
  Status ProcessEach(V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(writers_.CheckOpen());
    return index_.ForEach(visitor);
  }
  HAKO_OR_NO_MEMORY
  // ProcessEach in several threads, which call the visitor concurrently.
  template <class V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(writers_.CheckOpen());
    return index_.ForEachParallel(num_threads, visitor);
  }
  HAKO_OR_NO_MEMORY

  // Returns a cursor: see dbm/hash_cursor.h.
  Iterator MakeIterator() { return Iterator(*this, index_, *space_); }

  // The number of records; exact while no update runs.
  std::uint64_t Count() const { return writers_.IsClosed() ? 0 : index_.Count(ForEachWriter()); }

  // Removes all records. Stops writers meanwhile. The memory is kept for new records.
  Status Clear() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    Space::WriterState* mine = writers_.Mine();
    if (mine == nullptr) return writers_.Refusal();
    const sync::NoHolds no_holds(space_->gate());
    return RunExclusive([&] { return RemoveAllRecords(*mine); });
  }
  HAKO_OR_NO_MEMORY

  // Checks the structure of the table beside readers and writers. Writers are stopped only while
  // the entries are counted (about 2 ms per million records). DataLoss names the damage.
  Status Verify() HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    Space::WriterState* mine = writers_.Mine();
    if (mine == nullptr) return writers_.Refusal();
    HAKO_RETURN_IF_ERROR(RunExclusive([&] { return index_.VerifyLines(Count(), [](std::uint32_t, std::uint32_t) {}); }));
    return index_.VerifyRecords(*mine);
  }
  HAKO_OR_NO_MEMORY

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    if (writers_.Mine() == nullptr) return stats;
    stats.num_records = Count();
    stats.total_bytes = space_->total_bytes();
    stats.index_bytes = space_->index_bytes();
    stats.free_bytes = RunExclusive([this] { return space_->FreeBytes(ForEachWriter()); });
    stats.record_bytes = stats.total_bytes - stats.index_bytes - stats.free_bytes;
    stats.num_buckets = index_.num_lines();
    stats.num_overflow = index_.lines().num_overflow();
    return stats;
  }

  // GetStats as pairs of name and text, for people to read.
  Inspection Inspect() HAKO_TRY { return InspectionOf("TinyDBM", GetStats()); }
  HAKO_CATCH_NO_MEMORY(return {};)

  // OK, or FailedPrecondition if the database is closed or inherited by a fork. CheckIdle also
  // fails within a visitor of this database (sync/writer_states.h).
  Status CheckOpen() const { return writers_.CheckOpen(); }
  Status CheckIdle() const { return writers_.CheckIdle(); }
  // Whether Close was called.
  bool IsClosed() const { return writers_.IsClosed(); }
  // Closes the database; the memory is freed with the object. Saves nothing.
  // REQUIRES: no other thread uses the database
  Status Close() {
    if (writers_.IsClosed()) return absl::OkStatus();
    const Status status = writers_.CheckOpen();
    writers_.Close();
    index_.Seal();
    return status;
  }

 private:
  explicit TinyDBM(std::unique_ptr<Space> space) : space_(std::move(space)), index_(*space_) {}

  auto ForEachWriter() const {
    return [this](auto&& visit) { writers_.ForEach(visit); };
  }
  template <class Body>
  auto RunExclusive(Body&& body) {
    return space_->gate().RunExclusive(ForEachWriter(), body);
  }

  Status RemoveAllRecords(Space::WriterState& mine) {
    HAKO_RETURN_IF_ERROR(index_.RemoveAll([&](std::uint32_t handle) { space_->Retire(mine, handle); }));
    writers_.ForEach([](Space::WriterState& writer) { writer.pending_count.store(0, std::memory_order_relaxed); });
    return absl::OkStatus();
  }

  std::unique_ptr<Space> space_;
  Index index_;
  mutable sync::WriterStates<Space::WriterState> writers_;
};

}  // namespace hako

namespace hako {

// Instantiated in the library: programs that use them compile in a third of the time.
extern template class TinyDBM<>;
extern template class hash::BucketIndex<hash::RecordArena>;

}  // namespace hako
