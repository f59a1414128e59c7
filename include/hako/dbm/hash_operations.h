// The operations that HashDBM and TinyDBM share, over a space for records and the index of the
// records.
//
// A hash DBM class D inherits HashOperations<D, Space> publicly, and its home beside it
// (dbm/database_home.h).
//
// Threads: see dbm/dbm.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/engine_operations.h"
#include "hako/dbm/hash_cursor.h"
#include "hako/hash/bucket_capture.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/file/pending_sets.h"

namespace hako {

// Inherits
//   EngineOperations (dbm/engine_operations.h)
//     Process, ProcessMulti, Prefetch  the primitives of every DBM
//     CheckOpen, CheckIdle, IsClosed   whether the database can be used
template <class D, class Space>
class HashOperations : public EngineOperations<D, Space, hash::BucketIndex<Space>> {
 protected:
  using Index = hash::BucketIndex<Space>;
  using Shared = EngineOperations<D, Space, Index>;
  using typename Shared::WriterState;

 public:
  using Iterator = HashCursor<D, Index, Space>;                    // see dbm/hash_cursor.h
  static constexpr std::uint64_t kKeySizeMax = hako::kKeySizeMax;  // bytes

  // See dbm/dbm.h.
  template <Sink S>
  HAKO_INLINE Status Fetch(StringArg key, S&& sink) {
    if (!this->reads_plainly_) [[unlikely]] {
      if (this->expiry_ != nullptr) return this->FetchLive(key, sink);
      if constexpr (hash::LimitedRecordSpace<Space>) return FetchStored(key, sink);
    }
    return FetchIn<false>(key, sink);
  }

  // Fetches each key, with overlapped reads: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckReads());
    if (this->expiry_ != nullptr) return MultiOperations<D>::FetchMulti(keys, sink, arrived);
    HAKO_RETURN_IF_ERROR(FlushPending());
    return index().FetchMulti(writers_, keys, sink, arrived);
  }
  HAKO_OR_NO_MEMORY

  // Shows all records in an internal order.
  Status ProcessEach(EachRef visitor);
  // ProcessEach in several threads, which call the visitor concurrently.
  Status ProcessEachParallel(unsigned num_threads, EachRef visitor);
  using Shared::ProcessEach, Shared::ProcessEachParallel;  // which refuse other visitors

  // Returns a cursor: see dbm/hash_cursor.h.
  Iterator MakeIterator() { return Iterator(static_cast<D&>(*this), index(), *space_, this->expiry()); }
  // As MakeIterator, for copies of the database: also shows expired records, and values in their
  // stored form.
  Iterator MakeStoredIterator() { return Iterator(static_cast<D&>(*this), index(), *space_, nullptr); }

  // The applied index of the last batch that had one (dbm/write_batch.h); 0 if none had. If several
  // threads write batches, any one of the concurrent batches counts as the last. The file stores
  // the index: after a crash it is that of the last batch whose changes survive. CopyTo copies it.
  std::uint64_t AppliedIndex() const { return this->IsClosed() ? 0 : space_->AppliedIndex(); }

  // Returns the number of records, which is exact while no update runs.
  std::uint64_t Count() const final {
    if (this->IsClosed()) return 0;
    (void)FlushPending();
    return CountFlushed();
  }

 protected:
  friend Iterator;
  friend Shared;
  using Shared::space_;
  using Shared::writers_;

  explicit HashOperations(std::unique_ptr<Space> space) : Shared(std::move(space)) {}
  ~HashOperations() = default;

  // Fetch of a value in its stored form (dbm/expiry.h).
  template <class S>
  HAKO_INLINE Status FetchStored(std::string_view key, S& sink) {
    return FetchIn<true>(key, sink);
  }
  // Fetch from the index. With kNotes it registers the use of the record, if the database has a
  // limit.
  template <bool kNotes, class S>
  HAKO_INLINE Status FetchIn(std::string_view key, S& sink) {
    const std::uint64_t hash = space_->KeyHash(key);
    HAKO_RETURN_IF_ERROR(FlushPending(hash));
    return index().template Fetch<kNotes>(writers_, hash, key, sink);
  }
  Index& index() const { return this->engine_; }
  std::uint64_t CountFlushed() const { return index().Count(this->ForEachWriter()); }

  // From now on Sets of keys that may exist become pending, if the space reads ahead.
  void UsePendingSets() {
    if constexpr (Space::kReadsAhead) pending_ = std::make_unique<Pending>(*space_, index(), writers_);
  }
  // Flushes all pending Sets. With a hash, does so only if one of them may have that hash.
  template <class... Hash>
  HAKO_INLINE Status FlushPending(Hash... hash) const {
    if constexpr (Space::kReadsAhead) {
      if (pending_ != nullptr) return pending_->Flush(hash...);
    }
    return absl::OkStatus();
  }
  // Runs `body` with writers excluded and no Set pending.
  template <class Body>
  Status RunExclusiveFlushed(Body&& body) {
    if constexpr (Space::kReadsAhead) {
      if (pending_ != nullptr) return pending_->RunFlushed([&] { return this->RunExclusive(body); });
    }
    return this->RunExclusive(body);
  }

  // For EngineOperations.
  template <class ActionT, class V>
  HAKO_INLINE Status ProcessIn(WriterState& writer, std::string_view key, V&& visitor) {
    const std::uint64_t hash = space_->KeyHash(key);
    if constexpr (Space::kReadsAhead && std::is_same_v<std::remove_cvref_t<V>, Action>) {
      if (pending_ != nullptr && visitor.kind() == Action::Kind::kSet && pending_->ShouldWait(hash, key))
        return pending_->Set(writer, hash, key, visitor.value());
    }
    HAKO_RETURN_IF_ERROR(FlushPending(hash));
    if constexpr (IsReference<std::remove_cvref_t<V>>) {
      if ((update::IsLogged(*space_) && !std::is_void_v<ActionT>) || index().IsLimited())
        return index().template ProcessLogged<ActionT>(writer, hash, key, visitor);
    }
    return index().template Process<ActionT>(writer, hash, key, visitor);
  }
  Status ProcessMultiIn(WriterState& writer, const Batch<Action>& batch) {
    if constexpr (Space::kReadsAhead) {
      HAKO_RETURN_IF_ERROR(FlushPending());
      if (pending_ != nullptr) return pending_->ProcessMulti(writer, batch);
    }
    return index().ProcessMulti(writer, batch);
  }

  // For ProcessState.
  hash::BucketCapture<Space> MakeStateScan() { return hash::BucketCapture<Space>(index()); }

  // Removes all records from the index, and retires their blocks.
  // REQUIRES: no writers
  Status RemoveAll(WriterState& mine) {
    this->AssertNoWriters();
    HAKO_RETURN_IF_ERROR(index().RemoveAll([&](std::uint32_t handle) { space_->Retire(mine, handle); }));
    this->ForgetCounts();
    return absl::OkStatus();
  }

 private:
  // Whether V is a visitor by reference. Only such visitors come from updates in a database that
  // calls AfterUpdate, such as one with a log, and from reads in a database with a limit
  // (EngineOperations::Process).
  template <class V>
  static constexpr bool IsReference = std::is_same_v<V, UpdateRef> || std::is_same_v<V, BlindUpdateRef> || std::is_same_v<V, ReadRef>;
  using Pending = hash::PendingSets<Space, Action>;
  std::unique_ptr<Pending> pending_;  // direct I/O only
};

template <class D, class Space>
Status HashOperations<D, Space>::ProcessEach(EachRef visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckReads());
  HAKO_RETURN_IF_ERROR(FlushPending());
  return this->ShowLive(visitor, [this](EachRef shown) { return index().ForEach(shown); });
}
HAKO_OR_NO_MEMORY

template <class D, class Space>
Status HashOperations<D, Space>::ProcessEachParallel(unsigned num_threads, EachRef visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckReads());
  HAKO_RETURN_IF_ERROR(this->CheckThreads(num_threads));
  HAKO_RETURN_IF_ERROR(FlushPending());
  return this->ShowLive(visitor, [&](EachRef shown) { return index().ForEachParallel(num_threads, shown); });
}
HAKO_OR_NO_MEMORY

}  // namespace hako
