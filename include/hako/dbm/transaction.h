// A transaction: reads and updates of several records of a hash table or tree that take effect together, as if at one
// moment, or not at all.
//
//   hako::Transaction transaction(*db);
//   Status moved = transaction.Retry(100, [&]() -> Status {
//     HAKO_RETURN_IF_ERROR(transaction.Increment("alice", -10).status());
//     return transaction.Increment("bob", 10).status();
//   });
//
// It is optimistic: it locks nothing until Commit. Updates are kept in memory, where the reads of the transaction see them
// and no one else does. Commit locks all records and ranges that were read or are written, checks that those that were read
// are unchanged, and makes all updates in one atomic step, as Write makes those of a batch (dbm/write_batch.h). If
// something has changed, it changes nothing and returns Aborted, with the key. So committed transactions, plain updates
// and batches are serializable: the result is that of some order of them, one after the other, which keeps the order of
// calls that do not overlap. Reads are compared by content, so a record that was changed and changed back has
// not changed. The source of the idea is optimistic concurrency control (Kung and Robinson, 1981), validated by value.
//
// Until Commit or Retry has succeeded, the reads may be of different moments: a transaction that only
// reads also ends with Commit, or reads a snapshot (dbm/snapshot.h), which never has to be repeated.
//
// A cursor or range reads the keys that it has passed and the gaps between them. So Commit also finds records that
// others have added there. It locks the pages of the range and reads them again, which takes as long as the scan.
//
// A crash leaves all of a transaction or nothing, durable as a batch would be. Transactions cost nothing to a database and
// to its other users while no Commit runs.
//
// Limits: WriteBatch::kSizeMax records and ranges, and WriteBatch::kBytesMax bytes of keys and values; beyond them a call
// returns OutOfRange. A key or value that is too long for the database is refused by Commit.
//
// A transaction has a name: an update of a temporary one would be lost, and does not compile. Its Retry may be called.
//
// Not thread-safe: each thread uses its own transactions. The database must outlive them. The destructor rolls back.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/array/record_key.h"
#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/integer_arg.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/transaction_records.h"

namespace hako {

template <class D>
class TransactionCursor;

// A moment of a transaction: see Transaction::SetSavepoint.
class Savepoint {
  template <class>
  friend class Transaction;
  Savepoint(const void* transaction, std::uint64_t number, std::uint64_t moment)
      : transaction_(transaction), number_(number), moment_(moment) {}
  const void* transaction_;
  std::uint64_t number_, moment_;
};

// The operations: see the head of this header.
//
// Inherits
//   ReadOperations (dbm/read_operations.h)   Get, GetOr, GetSize, Contains, GetMulti
//   Operations (dbm/operations.h)            Set, Replace, Remove, Append, CompareExchange, Increment, Persist
//   MultiOperations (dbm/multi_operations.h) SetMulti, RemoveMulti, AppendMulti, CompareExchangeMulti, Rekey
// Those that report whether a record exists have read that, and nothing else of it. Set without options reads nothing.
// SetOptions::durability holds for the commit.
template <class D>
class Transaction : public Operations<Transaction<D>> {
  using Records = internal::TransactionRecords;
  using Seen = Records::Seen;
  static_assert(!std::is_base_of_v<OrderedOperations<D, RecordKeyComparator>, D>, "arrays have no transactions, but batches");
  static_assert(
      requires(D & d, const Batch<Action>& batch, std::uint64_t* time) { d.ProcessMulti(batch, time); },
      "hako::Transaction is of a database, as *db: not of a pointer, a snapshot or a key space; for that of a table include "
      "hako/table/table_transaction.h");

 public:
  using Iterator = TransactionCursor<D>;

  explicit Transaction(D& database) : database_(database), records_(OrderOf(database)) {}
  Transaction(const Transaction&) = delete;

  // Makes the updates if nothing that was read has changed; otherwise changes nothing and returns Aborted, whose message
  // names a key that has changed. Ends the transaction in any case; the next call begins another one. Other errors are
  // those of Write (dbm/multi_operations.h). FailedPrecondition in the body of Retry, which commits itself.
  Status Commit(const WriteOptions& options = {}) {
    if (is_in_retry_) return absl::FailedPreconditionError("Commit or Retry in the body of Retry, which commits itself");
    return CommitNow(options);
  }
  // Ends the transaction without a change.
  void Rollback() {
    records_.Clear();
    is_durable_ = is_doomed_ = false;
  }
  // The key that made the last Commit or Retry return Aborted; for a range, its first or last key.
  const std::string& conflict() const { return conflict_; }

  // Calls body(), or body(*this), in a new transaction, and then Commit, up to `num_tries` times until that finds no
  // conflict. Before each further try it waits: see internal::Turn. An error of the body ends the call and rolls back, if
  // the reads of the body still hold; otherwise the body is tried again, because it may have seen a state that never
  // was. An exception of the body propagates.
  template <class Body>
  Status Retry(unsigned num_tries, Body&& body, const WriteOptions& options = {}) {
    static_assert(IsBody<Body>(), "the body takes nothing or hako::Transaction<D>&, and returns hako::Status");
    if (num_tries == 0) return absl::InvalidArgumentError("Retry: no tries");
    if (is_in_retry_) return Commit();
    const RetryEnd end{*this};
    is_in_retry_ = true;
    internal::Turn turn(&database_);
    for (unsigned num_aborted = 0;;) {
      Rollback();
      turn.Await(num_aborted);
      Status status = Call(body);
      if (status.ok()) {
        status = CommitNow(options);
        if (!IsConflict(status)) return status;
      } else {
        Status valid = Settle(false);
        if (!IsConflict(valid)) return status;
        status = std::move(valid);
      }
      if (++num_aborted == num_tries) return status;
    }
  }

  // Returns a moment to which RollbackTo returns: it takes back the updates since, and no read.
  // FailedPrecondition if the moment is of another transaction, or of one that has ended, or was taken back itself.
  Savepoint SetSavepoint() const { return {this, records_.number(), records_.moment()}; }
  Status RollbackTo(const Savepoint& savepoint) {
    const bool is_own = savepoint.transaction_ == this && savepoint.number_ == records_.number();
    if (is_own && records_.UndoTo(savepoint.moment_)) return absl::OkStatus();
    return absl::FailedPreconditionError("RollbackTo: the savepoint is of another transaction or one that has ended, or was taken back");
  }

  // Returns a cursor over the records, with the updates of the transaction. Of an ordered database; AnyDBM returns one whose
  // status is Unimplemented for others.
  Iterator MakeIterator() & requires requires(D& d) { d.MakeIterator().Last(); }
  { return Iterator(*this); }
  // See dbm/ordered_operations.h.
  auto Range(StringArg from, std::optional<StringArg> to = std::nullopt) & {
    return View<true>([from, to](Iterator& it) {
      it.SetBounds(std::nullopt, to);
      it.Jump(from);
      return std::nullopt;
    });
  }
  auto Range() & {
    return View<true>([](Iterator& it) {
      it.First();
      return std::nullopt;
    });
  }
  auto ReverseRange(StringArg from, std::optional<StringArg> to = std::nullopt) & {
    return View<false>([from, to](Iterator& it) {
      it.SetBounds(from, to);
      it.Last();
      return std::nullopt;
    });
  }
  auto ReverseRange() & {
    return View<false>([](Iterator& it) {
      it.Last();
      return std::nullopt;
    });
  }
  auto PrefixRange(StringArg prefix) & requires requires(D& d) { d.PrefixRange(std::string_view()); }
  {
    bool is_bytewise = true;
    if constexpr (requires { database_.IsBytewise(); }) is_bytewise = database_.IsBytewise();
    return View<true>([is_bytewise, prefix](Iterator& it) -> std::optional<std::string> {
      if (!is_bytewise) {
        it.End(absl::UnimplementedError("PrefixRange needs an ordered database whose order is bytewise"));
        return std::nullopt;
      }
      const std::optional<std::string> end = EndOfPrefix(prefix);
      it.SetBounds(std::nullopt, end ? std::optional<StringArg>(*end) : std::nullopt);
      it.Jump(prefix);
      return std::nullopt;
    });
  }
  StatusOr<std::uint64_t> CountRange(StringArg from, std::optional<StringArg> to = std::nullopt) {
    std::uint64_t count = 0;
    auto range = Range(from, to);
    for ([[maybe_unused]] const auto& record : range) ++count;
    HAKO_RETURN_IF_ERROR(range.status());
    return count;
  }

  // Returns whether the record exists, and reads nothing else of it.
  StatusOr<bool> Contains(StringArg key) HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, Read(key, false));
    return Exists(record);
  }
  HAKO_OR_NO_MEMORY

  // See dbm/dbm.h.
  template <Visitor V>
      Status Process(StringArg key, V&& visitor) & HAKO_TRY {
    using Plain = std::remove_cvref_t<V>;
    if constexpr (std::is_same_v<Plain, Action>) {
      if (visitor.kind() == Action::Kind::kKeep) return absl::OkStatus();
      HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, records_.FindOrAdd(key));
      return Put(record, key, visitor);
    } else {
      constexpr bool kReadsValue = !BlindVisitor<Plain>;
      HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, Read(key, kReadsValue));
      if constexpr (ReadVisitor<Plain>) {
        visitor(ValueOf(record));
      } else {
        const std::uint64_t number = records_.number();
        const Action action = [&] {
          if constexpr (kReadsValue)
            return visitor(ValueOf(record));
          else
            return visitor(Exists(record));
        }();
        if (number != records_.number()) return EndedError();
        if (action.kind() != Action::Kind::kKeep) return Put(record, key, action);
      }
      return absl::OkStatus();
    }
  }
  HAKO_OR_NO_MEMORY
  template <class V>
  requires(!Visitor<V>) Status Process(StringArg, V&&)
  &{ return internal::RefuseVisitor<V>(); }
  template <Sink S>
  Status Fetch(StringArg key, S&& sink) HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, Read(key, true));
    const std::optional<std::string_view> value = ValueOf(record);
    if (!value) return AbsentError();
    if (char* const out = sink(value->size()); out != nullptr && !value->empty()) std::memcpy(out, value->data(), value->size());
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY
  // The visitor is called for one key after the other. If it aborts the call, the updates of the call are taken back.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) & {
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
      const auto keep = [&visitor](std::size_t i, std::optional<std::string_view> value) {
        visitor(i, value);
        return std::optional(Action::Keep());
      };
      return ProcessMulti(keys, MultiUpdateRef(keep));
    } else {
      return ProcessMulti(keys, MultiUpdateRef(visitor));
    }
  }
  template <class V>
  requires(!MultiVisitor<V>) Status ProcessMulti(std::span<const std::string_view>, V&&)
  &{ return internal::RefuseMultiVisitor<V>(); }
  Status ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown = nullptr) & {
    const std::uint64_t begin = records_.moment();
    Status status = CatchNoMemory([&] { return ProcessEachOf(keys, visitor, expiry_shown); });
    if (!status.ok()) records_.UndoTo(begin);
    return status;
  }

  // For Write. Unimplemented if the batch has an applied index.
  Status ProcessMulti(const Batch<Action>& batch) & {
    const std::uint64_t begin = records_.moment();
    Status status = CatchNoMemory([&] { return ProcessBatch(batch); });
    if (!status.ok()) records_.UndoTo(begin);
    return status;
  }
  // Removes the records of [from, to) and returns their number. Unlike that of a database it is atomic, and reads them all.
  StatusOr<std::uint64_t> RemoveRange(StringArg from, std::optional<StringArg> to = std::nullopt) & {
    const std::uint64_t begin = records_.moment();
    std::uint64_t count = 0;
    const Status status = CatchNoMemory([&]() -> Status {
      auto range = Range(from, to);
      for (auto it = range.begin(); it != range.end(); ++it, ++count) {
        HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, records_.FindOrAdd((*it).first));
        HAKO_RETURN_IF_ERROR(records_.Put(record, (*it).first, Action::Remove()));
      }
      return range.status();
    });
    if (status.ok()) return count;
    records_.UndoTo(begin);
    return status;
  }

  // See dbm/engine_operations.h.
  const Expiry* expiry() const { return database_.expiry(); }
  Status SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at) & {
    if (expiry() == nullptr) return Expiry::NoTimesError();
    if (expire_at > Expiry::kTimeMax) return Expiry::OutOfRangeError();
    bool found = false;
    HAKO_RETURN_IF_ERROR(Process(key, [&](std::optional<std::string_view> value) {
      found = value.has_value();
      return found ? Action::Set(*value, expire_at) : Action::Keep();
    }));
    return found ? absl::OkStatus() : AbsentError();
  }
  StatusOr<std::uint64_t> GetExpiry(StringArg key) HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, Read(key, false));
    if (!Exists(record)) return AbsentError();
    return TimeOf(record);
  }
  HAKO_OR_NO_MEMORY

  // For Write.
  Status CheckOpen() const { return absl::OkStatus(); }
  static int CompareKeys(std::string_view a, std::string_view b) requires requires { &D::CompareKeys; }
  { return D::CompareKeys(a, b); }

  // For tables: see table/table_transaction.h.
  D& database() const { return database_; }
  Records::Order order() const { return records_.order(); }
  const Records& Join(std::shared_ptr<internal::TransactionPart> part) { return records_.Join(std::move(part)), records_; }

  // For KeySpace.
  bool IsBytewise() const requires requires(const D& d) { d.IsBytewise(); }
  { return database_.IsBytewise(); }

  // For SetOptions::durability.
  std::uint64_t LastLsn() const { return 0; }
  Status WaitDurable(std::uint64_t) {
    is_durable_ = true;
    return absl::OkStatus();
  }

 private:
  friend class TransactionCursor<D>;
  friend class MultiOperations<Transaction<D>>;
  struct RetryEnd {
    ~RetryEnd() {
      transaction.Rollback();
      transaction.is_in_retry_ = false;
    }
    Transaction& transaction;
  };

  static Records::Order OrderOf([[maybe_unused]] D& database) {
    if constexpr (requires { &D::CompareKeys; })
      return &D::CompareKeys;
    else if constexpr (requires { database.KeyOrder(); })
      return database.KeyOrder();
    else
      return nullptr;
  }
  Records::Order KeyOrder() const { return records_.order(); }
  template <class Body>
  static constexpr bool IsBody() {
    if constexpr (std::is_invocable_v<Body&>)
      return std::is_same_v<std::invoke_result_t<Body&>, Status>;
    else if constexpr (std::is_invocable_v<Body&, Transaction&>)
      return std::is_same_v<std::invoke_result_t<Body&, Transaction&>, Status>;
    return false;
  }
  template <class Body>
  Status Call(Body& body) {
    if constexpr (std::is_invocable_v<Body&>)
      return body();
    else
      return body(*this);
  }
  template <bool kForward, class Start>
  auto View(Start start) {
    return RangeView<Iterator, kForward>(MakeIterator(), FunctionRef<std::optional<std::string>(Iterator&)>(start), KeyOrder());
  }

  Status CommitNow(const WriteOptions& options) {
    const bool is_durable = options.durability == Durability::kPower || is_durable_;
    const bool writes = records_.HasWrites();
    Status status = Settle(writes);
    Rollback();
    return status.ok() && writes && is_durable ? database_.WaitDurable(database_.LastLsn()) : status;
  }
  // Validates and, if `writes`, writes.
  Status Settle(bool writes) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckDatabase());
    if (is_doomed_) return Records::ConflictError(conflict_);
    const auto process = [this](const Batch<Action>& batch, std::uint64_t* expiry_shown) {
      return database_.ProcessMulti(batch, expiry_shown);
    };
    return records_.Commit(writes, process, &conflict_);
  }
  HAKO_OR_NO_MEMORY
  // Whether the status is that of Settle after a conflict. A read of a reader that is cut off returns Aborted, too
  // (file/readers_file.h).
  bool IsConflict(const Status& status) const {
    return absl::IsAborted(status) && (status == Records::ConflictError(conflict_) || status == Records::SchemaConflictError());
  }
  Status CheckDatabase() const {
    if constexpr (requires { database_.HasTransactions(); }) {
      if (!database_.HasTransactions()) return absl::UnimplementedError("this kind of database has no transactions, but batches");
    }
    return absl::OkStatus();
  }
  Status Put(std::uint32_t record, std::string_view key, const Action& action) {
    HAKO_RETURN_IF_ERROR(CheckDatabase());
    if (action.HasTime() && expiry() == nullptr) return Expiry::NoTimesError();
    if (action.kind() == Action::Kind::kSet && action.expire_at() == Expiry::kInvalid) return Expiry::OutOfRangeError();
    const Records::Write& before = records_.at(record).write;
    return records_.Put(record, key, action, before.kind == Action::Kind::kSet && IsPast(before));
  }

  static Status EndedError() { return absl::FailedPreconditionError("a visitor has ended the transaction that has called it"); }
  // From now on the transaction cannot be committed.
  Status ConflictOn(std::string_view key) {
    conflict_.assign(key);
    is_doomed_ = true;
    return Records::ConflictError(key);
  }
  // Makes sure that the record was read, unless it is written: whether it exists, or also its value.
  StatusOr<std::uint32_t> Read(std::string_view key, bool reads_value) {
    HAKO_ASSIGN_OR_RETURN(const std::uint32_t index, records_.FindOrAdd(key));
    Records::Record& record = records_.at(index);
    const bool knows = record.write.kind != Action::Kind::kKeep || record.seen == Seen::kAbsent || record.seen == Seen::kValue ||
                       (record.seen == Seen::kExists && !reads_value);
    if (knows) return index;
    HAKO_RETURN_IF_ERROR(CheckDatabase());
    std::string_view value;
    Status error;
    Status status = database_.Fetch(key, [&](std::size_t size) -> char* {
      if (!reads_value) return nullptr;
      StatusOr<char*> room = CatchNoMemory([&] { return records_.RoomFor(size); });
      error = room.status();
      if (!room.ok()) return nullptr;
      value = {*room, size};
      return *room;
    });
    HAKO_RETURN_IF_ERROR(error);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    if (!status.ok() && record.seen == Seen::kExists) return ConflictOn(key);
    record.seen = !status.ok() ? Seen::kAbsent : reads_value ? Seen::kValue : Seen::kExists;
    record.seen_value = value;
    return index;
  }
  // The record as the transaction sees it. REQUIRES: Read, with the value for ValueOf
  bool Exists(std::uint32_t index) {
    const Records::Record& record = records_.at(index);
    if (record.write.kind == Action::Kind::kKeep) return record.seen != Seen::kAbsent;
    return record.write.kind == Action::Kind::kSet && !IsPast(record.write);
  }
  std::optional<std::string_view> ValueOf(std::uint32_t index) {
    const Records::Record& record = records_.at(index);
    HAKO_DCHECK(record.write.kind != Action::Kind::kKeep || record.seen == Seen::kValue || record.seen == Seen::kAbsent);
    if (!Exists(index)) return std::nullopt;
    return record.write.kind == Action::Kind::kSet ? record.write.value : record.seen_value;
  }
  bool IsPast(const Records::Write& write) const {
    return write.expire_at != Expiry::kNever && write.expire_at != Expiry::kKeep && expiry()->IsPast(write.expire_at);
  }
  // When the record expires. REQUIRES: Exists(index)
  StatusOr<std::uint64_t> TimeOf(std::uint32_t index) {
    HAKO_DCHECK(Exists(index));
    if (expiry() == nullptr) return Expiry::kNever;
    Records::Record& record = records_.at(index);
    if (record.write.kind == Action::Kind::kSet && record.write.expire_at != Expiry::kKeep) return record.write.expire_at;
    if (record.seen == Seen::kAbsent) return Expiry::kNever;
    if (record.seen_time) return *record.seen_time;
    StatusOr<std::uint64_t> time = database_.GetExpiry(record.key);
    if (absl::IsNotFound(time.status())) {
      if (record.seen == Seen::kNothing) {  // it was written without a look
        record.seen = Seen::kAbsent;
        return Expiry::kNever;
      }
      return ConflictOn(record.key);
    }
    HAKO_RETURN_IF_ERROR(time.status());
    if (record.seen == Seen::kNothing) record.seen = Seen::kExists;
    record.seen_time = *time;
    return *time;
  }
  Status ProcessEachOf(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, Read(keys[i], true));
      if (expiry_shown != nullptr) {
        *expiry_shown = Expiry::kNever;
        if (Exists(record)) {
          HAKO_ASSIGN_OR_RETURN(*expiry_shown, TimeOf(record));
        }
      }
      const std::uint64_t number = records_.number();
      const std::optional<Action> action = visitor(i, ValueOf(record));
      if (number != records_.number()) return EndedError();
      if (!action) return MismatchError();
      if (action->kind() != Action::Kind::kKeep) HAKO_RETURN_IF_ERROR(Put(record, keys[i], *action));
    }
    return absl::OkStatus();
  }

  // The visitor is shown the records as they are before the ranges are removed, with its earlier decisions.
  Status ProcessBatch(const Batch<Action>& batch) {
    if (batch.applied_index) return absl::UnimplementedError("a transaction stores no applied index");
    const auto put = [&](std::size_t i, const Action& action) {
      return action.kind() == Action::Kind::kKeep ? absl::OkStatus() : Process(batch.keys[i], action);
    };
    const bool removes = !batch.removed_ranges.empty();
    std::vector<Action> actions;  // which the removal leaves as they are
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      std::optional<std::string_view> value;
      if (i < batch.num_shown) {
        HAKO_ASSIGN_OR_RETURN(const std::uint32_t record, Read(batch.keys[i], true));
        value = ValueOf(record);
      }
      const std::optional<Action> action = batch.visit(i, value);
      if (!action) return MismatchError();
      if (!removes || i < batch.num_shown) HAKO_RETURN_IF_ERROR(put(i, *action));
      if (removes) actions.push_back(*action);
    }
    if constexpr (requires(D & d) { d.MakeIterator().Last(); }) {
      for (const KeyRange& range : batch.removed_ranges) {
        const std::optional<StringArg> to = range.to ? std::optional<StringArg>(*range.to) : std::nullopt;
        HAKO_RETURN_IF_ERROR(RemoveRange(range.from, to).status());
      }
    }
    for (std::size_t i = 0; i < actions.size(); ++i) HAKO_RETURN_IF_ERROR(put(i, actions[i]));
    return absl::OkStatus();
  }

  D& database_;
  Records records_;
  bool is_durable_ = false, is_in_retry_ = false;
  bool is_doomed_ = false;  // a read has found that an earlier one no longer holds
  std::string conflict_;
};

// A cursor over the records of an ordered database as a transaction sees them: with its updates, in key order, both ways.
// All that it passes is read by the transaction. key() and value() are valid until the next move and the end of the
// transaction. After that Next and Previous fail with FailedPrecondition, and a jump begins in the next one. Not thread-safe; the
// transaction must outlive it.
template <class D>
class TransactionCursor {
  using Records = internal::TransactionRecords;
  using Sum = internal::RecordSum;
  using Live = decltype(std::declval<D&>().MakeIterator());

 public:
  // Call MakeIterator of the transaction instead.
  explicit TransactionCursor(Transaction<D>& transaction) : transaction_(&transaction), live_(transaction.database_.MakeIterator()) {}

  // Beyond the keys of [from, to) the cursor is at its end, and reads nothing there.
  // REQUIRES: the cursor has not moved yet
  void SetBounds(std::optional<StringArg> from, std::optional<StringArg> to) {
    HAKO_DCHECK(!has_moved_);
    lower_ = from;
    upper_ = to;
  }
  // Moves to the first or the last record.
  void First() { Seek(std::nullopt, true, true); }
  void Last() { Seek(std::nullopt, true, false); }
  // Moves to the first record at or after `key`.
  void Jump(StringArg key) { JumpUpper(key, true); }
  // Moves to the first record after `key`, or at `key` if inclusive; or to the last one before it, or at it.
  void JumpUpper(StringArg key, bool inclusive = false) { Seek(key, inclusive, true); }
  void JumpLower(StringArg key, bool inclusive = false) { Seek(key, inclusive, false); }
  // Moves to the next or the previous record. Does nothing if the cursor is at no record.
  void Next() { Step(true); }
  void Previous() { Step(false); }

  // Whether the cursor is at a record.
  bool Valid() const { return is_valid_; }
  // The current record. REQUIRES: Valid()
  std::string_view key() const {
    HAKO_DCHECK(Valid());
    return key_;
  }
  std::string_view value() const {
    HAKO_DCHECK(Valid());
    return value_;
  }
  // OK at the end; otherwise the error that stopped the cursor.
  const Status& status() const { return has_moved_ ? status_ : internal::UnmovedError(); }

 private:
  friend class Transaction<D>;
  Records& records() { return transaction_->records_; }

  void Seek(std::optional<std::string_view> from, bool inclusive, bool upwards) HAKO_TRY {
    is_valid_ = false;
    has_moved_ = true;
    number_ = records().number();
    status_ = transaction_->CheckDatabase();
    if (status_.ok() && records().order() == nullptr) status_ = absl::UnimplementedError("this kind of database is not ordered");
    if (!status_.ok()) return;
    if (upwards && lower_ && (!from || records().Compare(*from, *lower_) < 0)) {
      from = *lower_;
      inclusive = true;
    } else if (!upwards && upper_ && (!from || records().Compare(*from, *upper_) >= 0)) {
      from = *upper_;
      inclusive = false;
    }
    std::string own;
    if (from) own.assign(*from);  // the key may be a view of the current record
    if (from && inclusive && !upwards && !IsBeyondEnd(own, false)) {
      // The record there is read by itself, so that the range ends before it.
      const StatusOr<std::uint32_t> record = transaction_->Read(own, true);
      if (!record.ok()) return End(record.status());
      if (!Begin(own, false, false)) return;
      const std::optional<std::string_view> value = transaction_->ValueOf(*record);
      if (!value) return Advance();
      // The spelling of the key is that of the database's record.
      MoveLive(std::string_view(own), true, false);
      if (!live_.Valid() && !live_.status().ok()) return End(live_.status());
      const bool is_live = live_.Valid() && records().Compare(live_.key(), own) == 0;
      const bool is_own = records().at(*record).write.kind != Action::Kind::kKeep;
      if (!is_live && !is_own) return End(transaction_->ConflictOn(own));
      if (Status status = records().SetLast(run_, own); !status.ok()) return End(std::move(status));
      if (is_live) live_place_ = LivePlace::kPassed;
      return Show(KeyOf(is_live, is_own ? &records().at(*record) : nullptr), *value);
    }
    if (Begin(from ? std::optional<std::string_view>(own) : std::nullopt, inclusive, upwards)) Advance();
  }
  HAKO_CATCH_NO_MEMORY(End(NoMemoryError());)

  void Step(bool upwards) HAKO_TRY {
    if (!is_valid_) return;
    if (number_ != records().number()) return End(absl::FailedPreconditionError("the transaction of the cursor has ended"));
    if (upwards != records().run(run_).is_upwards) {
      const std::string from(key_);
      if (!Begin(from, false, upwards)) return;
    }
    Advance();
  }
  HAKO_CATCH_NO_MEMORY(End(NoMemoryError());)

  bool Begin(std::optional<std::string_view> from, bool inclusive, bool upwards) {
    const StatusOr<std::size_t> run = records().AddRun(upwards, from, inclusive);
    if (!run.ok()) return End(run.status()), false;
    run_ = *run;
    live_place_ = LivePlace::kUnknown;
    return true;
  }

  // Moves to the next record in the direction of the run.
  void Advance() {
    is_valid_ = false;
    const auto& begin = records().run(run_);
    const bool upwards = begin.is_upwards;
    for (;;) {
      const auto& at = records().run(run_);
      const std::optional<std::string_view> from = at.last ? std::optional<std::string_view>(*at.last) : at.from;
      const bool inclusive = !at.last && at.is_inclusive;
      MoveLive(from, inclusive, upwards);
      if (!live_.Valid() && !live_.status().ok()) return End(live_.status());
      const Records::Record* const own = records().NextWritten(from, inclusive, upwards);
      Records::Run& run = records().run(run_);
      if (!live_.Valid() && own == nullptr) return Finish();
      int order = own == nullptr ? -1 : !live_.Valid() ? 1 : records().Compare(live_.key(), own->key);
      if (!upwards && own != nullptr && live_.Valid()) order = -order;
      const bool is_live = order <= 0, is_own = order >= 0;
      const std::string_view key = is_live ? live_.key() : own->key;
      if (IsBeyondEnd(key, upwards)) return Finish();
      const Sum sum = is_live ? Sum::Of(live_.key(), live_.value()) : Sum();
      if (Status status = records().SetLast(run_, key); !status.ok()) return End(std::move(status));
      run.before.Add(run.at);
      run.at = sum;
      if (is_live) live_place_ = LivePlace::kPassed;
      if (!is_own) return Show(live_.key(), live_.value());
      if (own->write.kind == Action::Kind::kSet && !transaction_->IsPast(own->write)) return Show(KeyOf(is_live, own), own->write.value);
    }
  }
  bool IsBeyondEnd(std::string_view key, bool upwards) {
    if (upwards) return upper_ && records().Compare(key, *upper_) >= 0;
    return lower_ && records().Compare(key, *lower_) < 0;
  }
  void Finish() { End(records().SetEnd(run_, records().run(run_).is_upwards ? upper_ : lower_)); }
  // The key of the current record, as it is spelled after the commit.
  std::string_view KeyOf(bool is_live, const Records::Record* own) const {
    return is_live && !(own != nullptr && own->write.renews) ? live_.key() : own->write.key;
  }
  // Moves the database's iterator to its next record from `from` on.
  void MoveLive(std::optional<std::string_view> from, bool inclusive, bool upwards) {
    if (live_place_ == LivePlace::kNext) return;
    if (live_place_ == LivePlace::kPassed) {
      upwards ? live_.Next() : live_.Previous();
    } else if (!from) {
      upwards ? live_.First() : live_.Last();
    } else {
      upwards ? live_.JumpUpper(*from, inclusive) : live_.JumpLower(*from, inclusive);
    }
    live_place_ = LivePlace::kNext;
  }
  void Show(std::string_view key, std::string_view value) {
    key_ = key;
    value_ = value;
    is_valid_ = true;
  }
  void End(Status status) {
    has_moved_ = true;
    is_valid_ = false;
    status_ = std::move(status);
  }

  // The database's iterator is anywhere; at the record that was passed last; or at the next one.
  enum class LivePlace { kUnknown, kPassed, kNext };

  Transaction<D>* transaction_;
  Live live_;
  LivePlace live_place_ = LivePlace::kUnknown;
  std::optional<std::string> lower_, upper_;  // the bounds
  std::uint64_t number_ = 0;                  // of the transaction
  std::size_t run_ = 0;
  bool is_valid_ = false, has_moved_ = false;
  std::string_view key_, value_;
  Status status_;
};

}  // namespace hako
