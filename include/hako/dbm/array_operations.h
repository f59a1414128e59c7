// The operations shared by the two array DBMs: records of one width, by number.
//
// An array DBM class D inherits ArrayOperations<D, Space> publicly, and its home beside it. It has
// two interfaces. One takes numbers. The other is that of every ordered DBM, with numbers in
// decimal as keys (array/record_key.h); any other key is InvalidArgument.
//
// Values. A value shorter than the width is padded with zero bytes, and a longer one is OutOfRange:
// each record has exactly the width. (Tokyo Cabinet's fixed-length database truncates longer values
// and stores the length of shorter ones, which takes a byte or more per record.)
//
// Threads: see dbm/dbm.h. A visitor runs with its leaf locked.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/array/page_array.h"
#include "hako/array/record_key.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/array_cursor.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/engine_operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/snapshot.h"
#include "hako/dbm/state_scan.h"
#include "hako/format/array_format.h"
#include "hako/format/log_format.h"
#include "hako/sync/run_parts.h"

namespace hako {

// A number and the value of its record.
struct NumberedValue {
  RecordId id;
  StringArg value;
};

// Inherits
//   OrderedOperations (dbm/ordered_operations.h)
//     Range, ReverseRange      records of [from, to) as an input range
//     CountRange, RemoveRange  count or remove the records of [from, to)
//     CompareKeys              the order of keys
//   EngineOperations (dbm/engine_operations.h)
//     Process, ProcessMulti, Prefetch   the primitives, by key
//     CheckOpen, CheckIdle, IsClosed    whether the database can be used
template <class D, class Space>
class ArrayOperations : public EngineOperations<D, Space, array::PageArray<Space>>, public OrderedOperations<D, RecordKeyComparator> {
 protected:
  using Array = array::PageArray<Space>;
  using Shared = EngineOperations<D, Space, Array>;
  using Ordered = OrderedOperations<D, RecordKeyComparator>;
  using typename Shared::WriterState;

 public:
  using Iterator = ArrayCursor<D, Array>;                            // see dbm/array_cursor.h
  using Capture = typename Array::Capture;                           // for snapshots
  static constexpr std::uint64_t kKeySizeMax = RecordKey::kSizeMax;  // bytes

  // ---- by number: an integer from 0 to kRecordIdMax, otherwise OutOfRange; characters and doubles
  // do not compile ----

  // The bytes of each record.
  unsigned width() const { return array().width(); }

  // See Process and Fetch in dbm/dbm.h.
  template <Visitor V>
  HAKO_INLINE Status Process(RecordId id, V&& visitor) HAKO_TRY {
    if (id > kRecordIdMax) [[unlikely]]
      return RefuseId(id);
    WriterState* const writer = writers_.Mine();
    if (writer == nullptr) [[unlikely]]
      return writers_.Refusal();
    if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
      return array().template Process<void>(*writer, id, visitor);
    } else {
      if (this->NeedsChecks()) [[unlikely]] {
        if constexpr (std::is_same_v<std::remove_cvref_t<V>, Action>)
          return ProcessByKey(id, Action(visitor));  // a copy, so that the visitor stays in registers
        else if constexpr (UpdateVisitor<std::remove_reference_t<V>>)
          return ProcessByKey(id, UpdateRef(visitor));
        else
          return ProcessByKey(id, BlindUpdateRef(visitor));
      }
      return this->ProcessWithoutTime(*writer, id, visitor);
    }
  }
  HAKO_OR_NO_MEMORY
  template <class V>
  requires(!Visitor<V>) Status Process(RecordId, V&&) { return internal::RefuseVisitor<V>(); }
  template <Sink S>
  HAKO_INLINE Status Fetch(RecordId id, S&& sink) {
    if (id > kRecordIdMax) [[unlikely]]
      return RefuseId(id);
    return array().Fetch(writers_, id, sink);
  }

  // Copies the record into *value, reusing its capacity. NotFound leaves *value unspecified.
  HAKO_INLINE Status Get(RecordId id, std::string* value) {
    internal::StringSink sink{value};
    Status status = Fetch(id, sink);
    if (!sink.has_room) [[unlikely]]
      return NoMemoryError();
    return status;
  }
  // Returns a copy of the record. NotFound if absent.
  StatusOr<std::string> Get(RecordId id);
  // Copies the record into `out` if it fits, and returns its size, the width, either way.
  HAKO_INLINE StatusOr<std::size_t> Get(RecordId id, std::span<char> out) {
    internal::SpanSink sink{out};
    HAKO_RETURN_IF_ERROR(Fetch(id, sink));
    return sink.size;
  }
  StatusOr<std::size_t> Get(RecordId id, std::string& out) = delete;  // see dbm/operations.h
  Status Get(RecordId id, std::nullptr_t) = delete;
  // Returns whether there is a record.
  StatusOr<bool> Contains(RecordId id);
  // Stores the record, replacing an existing one.
  HAKO_INLINE Status Set(RecordId id, StringArg value) { return Process(id, Action::Set(value)); }
  // Set with options. AlreadyExists if the record is kept (SetOptions::overwrite).
  Status Set(RecordId id, StringArg value, const SetOptions& options) { return Shared::Set(RecordKey(id).view(), value, options); }
  // Removes the record. NotFound if absent.
  Status Remove(RecordId id);
  // Stores a record after the last one and returns its number. OutOfRange if the last record has
  // number kRecordIdMax. The first Append after a removal of the last record stops writers for a
  // moment.
  StatusOr<std::uint64_t> Append(StringArg value);
  // Appends each value. Returns the first number; the others follow it, unless another thread appends
  // or sets a record there meanwhile. An error ends the call; earlier records stay.
  StatusOr<std::uint64_t> AppendMulti(std::span<const std::string_view> values);
  // Stores each record. An error ends the call; earlier records stay set.
  Status SetMulti(std::span<const NumberedValue> records);
  // Shows the value of each record, or nullopt, to visitor(index, value), in order.
  template <MultiReadVisitor V>
  Status GetMulti(std::span<const std::uint64_t> ids, V&& visitor);
  template <std::invocable<std::size_t, std::optional<std::string_view>> V>
  requires(!MultiReadVisitor<V>) Status GetMulti(std::span<const std::uint64_t>, V&&) { return internal::RefuseMultiReadVisitor<V>(); }
  // The number of the first or last record. NotFound if there is none.
  StatusOr<std::uint64_t> FirstId() { return IdFrom(0, true); }
  StatusOr<std::uint64_t> LastId() { return IdFrom(kRecordIdMax, false); }
  // Returns the number of records in [from, to), or removes them and returns their number. The bounds may be
  // above kRecordIdMax, but not negative (OutOfRange).
  StatusOr<std::uint64_t> CountRange(RecordId from, RecordId to);
  StatusOr<std::uint64_t> RemoveRange(RecordId from, RecordId to);

  // ---- by key ----

  using Ordered::CountRange, Ordered::RemoveRange;
  using Shared::AppendMulti, Shared::GetMulti, Shared::SetMulti;
  using Shared::Get, Shared::Set, Shared::Remove, Shared::Contains, Shared::Append, Shared::Process;

  // See dbm/dbm.h.
  template <Sink S>
  Status Fetch(StringArg key, S&& sink) HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t id, IdOf(key));
    return array().Fetch(writers_, id, sink);
  }
  HAKO_OR_NO_MEMORY
  // Fetches each key: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(const Ids ids, IdsOf(keys));
    return array().FetchMulti(writers_, ids, sink, arrived);
  }
  HAKO_OR_NO_MEMORY
  // See dbm/operations.h. InvalidArgument unless records have 8 bytes, the size of the number.
  StatusOr<std::int64_t> Increment(StringArg key, IntegerArg<std::int64_t> delta = 1, IntegerArg<std::int64_t> initial = 0) {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    if (width() != sizeof(std::int64_t))
      return absl::InvalidArgumentError(absl::StrCat("Increment needs records of 8 bytes; those of this array have ", width()));
    return Shared::Increment(key, delta, initial);
  }
  // Shows all records in order, with nothing locked.
  Status ProcessEach(EachRef visitor);
  // ProcessEach in several threads, which call the visitor concurrently, each for one range of numbers.
  Status ProcessEachParallel(unsigned num_threads, EachRef visitor);
  using Shared::ProcessEach, Shared::ProcessEachParallel;  // which refuse other visitors
  // A hint that these keys will be used.
  void Prefetch(std::span<const std::string_view> keys) const;
  // Returns a cursor: see dbm/array_cursor.h.
  Iterator MakeIterator() { return Iterator(static_cast<D&>(*this), array()); }
  // As MakeIterator, because records do not expire.
  Iterator MakeStoredIterator() { return MakeIterator(); }
  // Returns a read-only view of the database as it is now: see dbm/snapshot.h.
  StatusOr<std::unique_ptr<SnapshotView<D, RecordKeyComparator>>> Snapshot() {
    return SnapshotView<D, RecordKeyComparator>::Take(static_cast<D&>(*this));
  }
  // See dbm/write_batch.h. Write returns OutOfRange if the records of the removed ranges are on
  // more than array::kRangeLeavesMax pages.
  std::uint64_t AppliedIndex() const { return this->IsClosed() ? 0 : array().applied_index(); }
  // The number of records; exact while no update runs.
  std::uint64_t Count() const final { return this->IsClosed() ? 0 : array().Count(this->ForEachWriter()); }
  // Implement CountRange and RemoveRange by key.
  StatusOr<std::uint64_t> CountKeys(std::string_view from, std::optional<std::string_view> to);
  StatusOr<std::uint64_t> RemoveKeys(std::string_view from, std::optional<std::string_view> to);

 protected:
  friend Shared;
  using Shared::space_;
  using Shared::writers_;

  ArrayOperations(std::unique_ptr<Space> space, const format::ArrayShape& shape) : Shared(std::move(space), shape) {}
  ~ArrayOperations() = default;

  Array& array() const { return this->engine_; }

  // For EngineOperations.
  template <class S>
  Status FetchStored(std::string_view key, S& sink) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t id, IdOf(key));
    return array().Fetch(writers_, id, sink);
  }
  template <class ActionT, class V>
  HAKO_INLINE Status ProcessIn(WriterState& writer, std::string_view key, V&& visitor) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t id, IdOf(key));
    return array().template Process<ActionT>(writer, id, visitor);
  }
  template <class ActionT, class V>
  HAKO_INLINE Status ProcessIn(WriterState& writer, std::uint64_t id, V&& visitor) {
    return array().template Process<ActionT>(writer, id, visitor);
  }
  Status ProcessMultiIn(WriterState& writer, const Batch<Action>& batch) {
    HAKO_DCHECK(batch.shown_ranges.empty());
    HAKO_ASSIGN_OR_RETURN(const Ids ids, IdsOf(batch.keys));
    HAKO_ASSIGN_OR_RETURN(const std::vector<array::IdRange> ranges, RangesOf(batch.removed_ranges));
    return array().ProcessMulti(writer, IdBatchOf(batch, ids, ranges));
  }
  // For ProcessState.
  RangeStateScan<Iterator, Capture> MakeStateScan() { return RangeStateScan<Iterator, Capture>(MakeStoredIterator()); }
  // REQUIRES: no writers
  Status RemoveAll(typename Space::Deferred&) {
    this->AssertNoWriters();
    HAKO_RETURN_IF_ERROR(array().RemoveAll());
    this->ForgetCounts();
    return absl::OkStatus();
  }

  // See DatabaseRecords. Keys are those of the log (array::LogKey).
  Status Redo(const format::LogEntry& entry) final;
  Status RedoMulti(const Batch<Action>& batch) final;
  void LoadForRedo(std::span<const std::string_view> keys) final;
  void PrefetchForRedo(std::span<const std::string_view> keys) const final;

 private:
  using Ids = absl::InlinedVector<std::uint64_t, 16>;
  D& self() { return static_cast<D&>(*this); }

  [[gnu::cold, gnu::noinline]] Status RefuseId(std::uint64_t id) const {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    return RecordIdError(id);
  }
  StatusOr<std::uint64_t> IdOf(std::string_view key) const {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    return RecordKey::Parse(key);
  }
  // Returns the number that a bound of a range spells. The empty key is below all others.
  StatusOr<std::uint64_t> BoundOf(std::string_view key) const { return key.empty() ? StatusOr<std::uint64_t>(0) : IdOf(key); }
  StatusOr<array::IdRange> RangeOf(std::string_view from, std::optional<std::string_view> to) const;
  StatusOr<std::vector<array::IdRange>> RangesOf(std::span<const KeyRange> ranges) const;
  static StatusOr<std::vector<array::IdRange>> LoggedRangesOf(std::span<const KeyRange> ranges);
  StatusOr<Ids> IdsOf(std::span<const std::string_view> keys) const;
  static array::IdBatch<Action> IdBatchOf(const Batch<Action>& batch, std::span<const std::uint64_t> ids,
                                          std::span<const array::IdRange> ranges) {
    return {ids, batch.visit, batch.num_shown, ranges, batch.applied_index};
  }
  static StatusOr<Ids> LoggedIdsOf(std::span<const std::string_view> keys);
  // Process if updates are refused, or are followed by AfterUpdate.
  [[gnu::cold, gnu::noinline]] Status ProcessByKey(std::uint64_t id, UpdateRef visitor) {
    return Shared::Process(RecordKey(id).view(), visitor);
  }
  [[gnu::cold, gnu::noinline]] Status ProcessByKey(std::uint64_t id, Action action) {
    return Shared::Process(RecordKey(id).view(), BlindUpdateRef(action));
  }
  [[gnu::cold, gnu::noinline]] Status ProcessByKey(std::uint64_t id, BlindUpdateRef visitor) {
    return Shared::Process(RecordKey(id).view(), visitor);
  }
  StatusOr<std::uint64_t> IdFrom(std::uint64_t from, bool upwards);
};

}  // namespace hako

#include "hako/dbm/array_operations-inl.h"
