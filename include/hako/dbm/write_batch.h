// WriteBatch: updates that Write (dbm/multi_operations.h) makes in one atomic step.
//
//   WriteBatch batch;
//   batch.Expect("seat 17", Expect::Absent());
//   batch.Set("seat 17", "Ada");
//   batch.Remove("waiting/Ada");
//   batch.SetAppliedIndex(4711);
//   Status written = db.Write(batch);
//
// All conditions are compared with the state before the batch; if one fails, Write returns Aborted.
// Otherwise the operations take effect in order: the last one on a key counts, and RemoveRange also
// removes records that earlier operations of the batch have set.
//
// The applied index is a number that the database stores for the application, such as the index of
// the last applied entry of a replicated log. A batch that has one replaces it in the same atomic
// step: after a crash AppliedIndex() is that of the last batch whose changes survive. A snapshot
// (dbm/memory_home.h) stores it, and Load restores it. Nothing else changes it. Where several
// threads write batches, the last one to take effect decides.
//
// A batch copies keys and values into one buffer, which Clear keeps for the next batch. An
// operation that does not fit is not added and leaves an error in status(), which Write returns. So
// an incomplete batch is never written.
//
// Thread-compatible: several threads may write the same batch while none changes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/batch.h"
#include "hako/base/integer_arg.h"
#include "hako/base/key_value.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"

namespace hako {

namespace internal {
class BatchCall;
}

// Updates that are made together: see the head of this header.
class WriteBatch {
 public:
  // Limits of one batch: the number of operations and conditions, and the bytes of their keys and
  // values. While a batch is written, the memory for pages grows beyond cache_bytes by the pages
  // that it changes, and the log grows by the bytes of the batch. Opening the database after a
  // crash reads that part of the log at once.
  static constexpr std::size_t kSizeMax = std::size_t{1} << 20;
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  // Stores a record, replacing an existing value. The record expires at `expire_at`, in
  // milliseconds since 1970, or never (dbm/expiry.h). Write returns FailedPrecondition if the
  // database keeps no times.
  void Set(StringArg key, StringArg value) { Add(&operations_, Kind::kSet, key, value); }
  void Set(StringArg key, StringArg value, IntegerArg<std::uint64_t> expire_at);
  // Removes a record, if there is one.
  void Remove(StringArg key) { Add(&operations_, Kind::kRemove, key, {}); }
  // Removes the records of [from, to), or all from `from` on if there is no `to`. Only for ordered
  // databases.
  void RemoveRange(StringArg from, std::optional<StringArg> to = std::nullopt) {
    Add(&ranges_, to ? Kind::kRemoveRange : Kind::kRemoveFrom, from, to.value_or(std::string_view()));
  }
  // Adds a condition on the record as it is before the batch. Copies the value of the condition.
  void Expect(StringArg key, const hako::Expect& expected);
  // Makes Write store this number as the applied index. The last call counts.
  void SetAppliedIndex(IntegerArg<std::uint64_t> index) { applied_index_ = index; }

  // Removes all operations and conditions, the applied index and the error. Keeps the memory.
  void Clear();

  // The number of operations and conditions, and the bytes of their keys and values.
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return bytes_.size(); }
  // Whether the batch has no operation, condition or applied index.
  bool IsEmpty() const { return size() == 0 && !applied_index_; }
  // Returns OK, or why an operation could not be added: OutOfRange beyond a limit,
  // ResourceExhausted if memory ran out.
  const Status& status() const { return status_; }

 private:
  friend class internal::BatchCall;
  enum class Kind : std::uint8_t { kSet, kRemove, kRemoveRange, kRemoveFrom, kAbsent, kAny, kValue };
  struct Operation {
    std::uint32_t begin, key_size, value_size;  // key and value in bytes_, back to back
    std::uint32_t before;                       // number of operations_ before this entry
    Kind kind;
  };
  using Operations = std::vector<Operation>;

  void Add(Operations* to, Kind kind, std::string_view key, std::string_view value);
  std::uint64_t TimeOf(std::size_t operation) const { return operation < times_.size() ? times_[operation] : Expiry::kNever; }
  std::string_view KeyOf(const Operation& operation) const { return {bytes_.data() + operation.begin, operation.key_size}; }
  std::string_view ValueOf(const Operation& operation) const {
    return {bytes_.data() + operation.begin + operation.key_size, operation.value_size};
  }

  std::size_t size_ = 0;
  std::string bytes_;
  Operations operations_;  // Set and Remove
  Operations ranges_, conditions_;
  std::optional<std::uint64_t> applied_index_;
  std::vector<std::uint64_t> times_;  // when the records of operations_ expire; operations past its end set records that never expire
  Status status_;
};

namespace internal {

// Presents a WriteBatch as the Batch of one ProcessMulti: the keys of the conditions, then those of
// the operations. ProcessMulti removes ranges before the operations take effect, so an operation
// that a later range would undo becomes a Remove.
class BatchCall {
 public:
  // Returns a negative number if the first key is below the second.
  using Order = int (*)(std::string_view, std::string_view);

  explicit BatchCall(const WriteBatch& batch) : batch_(batch) {}
  // Whether the batch is one update of one record.
  bool IsSingle() const { return batch_.operations_.size() == 1 && batch_.size() == 1 && !batch_.applied_index_ && batch_.status_.ok(); }

  // Whether an operation sets a record that expires.
  bool HasTimes() const { return !batch_.times_.empty(); }

  // `order` is the order of the database's keys; nullptr if it is not ordered.
  Status Prepare(Order order);
  std::span<const std::string_view> keys() const { return keys_; }
  // REQUIRES: the database keeps times, or !HasTimes() (checked in MultiOperations::Write)
  Batch<Action> batch() const { return {keys_, MultiUpdateRef(*this), batch_.conditions_.size(), ranges_, batch_.applied_index_, true}; }
  // The visitor.
  std::optional<Action> operator()(std::size_t i, std::optional<std::string_view> value) const {
    const std::size_t num_conditions = batch_.conditions_.size();
    if (i < num_conditions) return Holds(batch_.conditions_[i], value) ? std::optional(Action::Keep()) : std::nullopt;
    const WriteBatch::Operation& operation = batch_.operations_[i - num_conditions];
    const bool sets = operation.kind == WriteBatch::Kind::kSet && (is_removed_.empty() || !is_removed_[i - num_conditions]);
    return sets ? Action::Set(batch_.ValueOf(operation), batch_.TimeOf(i - num_conditions)) : Action::Remove();
  }

 private:
  bool Holds(const WriteBatch::Operation& condition, std::optional<std::string_view> value) const;
  void JoinRanges(Order order);
  void FindRemoved(Order order);

  const WriteBatch& batch_;
  absl::InlinedVector<std::string_view, 16> keys_;
  std::vector<KeyRange> ranges_;  // ascending and disjoint
  std::vector<bool> is_removed_;  // for each operation, whether a later range removes its key; empty = none does
};

}  // namespace internal

}  // namespace hako
