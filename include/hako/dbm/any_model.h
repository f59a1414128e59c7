// The virtual interface of a database of any kind, and its models for each DBM and its snapshots. AnyDBM
// (dbm/any_dbm.h) adds the operations of a DBM; a table (table/table_dbm.h) keeps its records in
// one. A virtual call costs a few nanoseconds more than a direct one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/array/record_key.h"
#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/function_ref.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/write_batch.h"
#include "hako/storage/scrub_progress.h"

namespace hako::internal {

inline Status NoOrderError() { return absl::UnimplementedError("this kind of database is not ordered"); }
inline Status NoSnapshotError() {
  return absl::UnimplementedError(
      "a hash table has no snapshots: its iterators show each record that exists throughout their scan once, with a value that it had "
      "meanwhile; ProcessState and Export show all records as they are at one moment");
}
inline StatusOr<ScrubProgress> NothingToScrub(const Status& checked) {
  HAKO_RETURN_IF_ERROR(checked);
  ScrubProgress nothing;
  nothing.is_complete = true;
  return nothing;
}

// A cursor: see dbm/hash_cursor.h and dbm/tree_cursor.h. Its key and value are read without a virtual call.
class AnyCursor {
 public:
  virtual ~AnyCursor() = default;
  virtual void First() = 0;
  virtual void Jump(std::string_view key) = 0;
  virtual void Next() = 0;
  virtual bool SkipDamage() = 0;
  virtual std::uint64_t expire_at() const = 0;
  virtual const Status& status() const = 0;
  // For ordered databases. In others these move to the end, and status() is Unimplemented.
  virtual void Last() = 0;
  virtual void JumpLower(std::string_view key, bool inclusive) = 0;
  virtual void JumpUpper(std::string_view key, bool inclusive) = 0;
  virtual void Previous() = 0;
  // For trees. In other databases, and in snapshots, the first two are JumpUpper(key, true). The third returns 0 in other
  // databases.
  // REQUIRES: Valid(), for the last two (checked in JumpAhead and CountAbout of TreeCursor)
  virtual void JumpBriefly(std::string_view key) = 0;
  virtual void JumpAhead(std::string_view key) = 0;
  virtual std::uint64_t CountAbout(std::string_view key) = 0;

  // Moves to the end. status() is `why` until the next jump.
  void Refuse(Status why) {
    refused_ = std::move(why);
    valid_ = false;
  }

  bool Valid() const { return valid_; }
  std::string_view key() const {  // REQUIRES: Valid(); until the next move
    HAKO_DCHECK(valid_);
    return key_;
  }
  std::string_view value() const {  // see key
    HAKO_DCHECK(valid_);
    return value_;
  }

 protected:
  template <class Cursor>
  void Show(const Cursor& cursor) {
    valid_ = cursor.Valid();
    if (!valid_) return;
    key_ = cursor.key();
    value_ = cursor.value();
  }

  bool valid_ = false;
  std::string_view key_, value_;
  Status refused_;  // why a move was not made
};

template <class Cursor>
class AnyCursorModel final : public AnyCursor {
  static constexpr bool kIsOrdered = requires(Cursor & cursor) { cursor.Last(); };
  static constexpr bool kCounts = requires(Cursor & cursor, std::string_view key) { cursor.CountAbout(key); };
  static constexpr bool kIsOfTree = requires(Cursor & cursor, std::string_view key) { cursor.JumpBriefly(key); };

 public:
  explicit AnyCursorModel(Cursor cursor) : cursor_(std::move(cursor)) {}
  void First() override {
    Move([](auto& cursor) { cursor.First(); });
  }
  void Jump(std::string_view key) override {
    Move([&](auto& cursor) { cursor.Jump(key); });
  }
  void Next() override {
    if (!valid_) return;
    cursor_.Next();
    Show(cursor_);
  }
  bool SkipDamage() override {
    bool skipped = false;
    if constexpr (requires { cursor_.SkipDamage(); }) skipped = refused_.ok() && cursor_.SkipDamage();
    if (skipped) Show(cursor_);
    return skipped;
  }
  std::uint64_t expire_at() const override {
    if constexpr (requires { cursor_.expire_at(); }) return cursor_.expire_at();
    return Expiry::kNever;
  }
  const Status& status() const override { return refused_.ok() ? cursor_.status() : refused_; }
  void Last() override {
    MoveInOrder([](auto& cursor) { cursor.Last(); });
  }
  void JumpLower(std::string_view key, bool inclusive) override {
    MoveInOrder([&](auto& cursor) { cursor.JumpLower(key, inclusive); });
  }
  void JumpUpper(std::string_view key, bool inclusive) override {
    MoveInOrder([&](auto& cursor) { cursor.JumpUpper(key, inclusive); });
  }
  void Previous() override {
    if (valid_ || !kIsOrdered) MoveInOrder([](auto& cursor) { cursor.Previous(); });
  }
  void JumpBriefly(std::string_view key) override {
    if constexpr (kIsOfTree)
      Move([&](auto& cursor) { cursor.JumpBriefly(key); });
    else
      JumpUpper(key, true);
  }
  void JumpAhead(std::string_view key) override {
    if constexpr (kIsOfTree)
      Move([&](auto& cursor) { cursor.JumpAhead(key); });
    else
      JumpUpper(key, true);
  }
  std::uint64_t CountAbout(std::string_view key) override {
    if constexpr (kCounts) return cursor_.CountAbout(key);
    return 0;
  }

 private:
  template <class F>
  void Move(F move) {
    refused_ = absl::OkStatus();
    move(cursor_);
    Show(cursor_);
  }
  template <class F>
  void MoveInOrder(F move) {
    if constexpr (kIsOrdered) {
      Move(move);
    } else {
      Refuse(NoOrderError());
    }
  }

  Cursor cursor_;
};

// A database. See dbm/dbm.h and dbm/any_dbm.h for each function.
class AnyDatabase {
 public:
  using Keys = std::span<const std::string_view>;
  using MultiSinkRef = FunctionRef<char*(std::size_t, std::size_t)>;
  using ArrivedRef = FunctionRef<void(std::size_t, bool)>;
  using Order = int (*)(std::string_view, std::string_view);

  virtual ~AnyDatabase() = default;
  virtual Status Process(std::string_view key, UpdateRef visitor) = 0;
  virtual Status Process(std::string_view key, BlindUpdateRef visitor) = 0;
  virtual Status Process(std::string_view key, ReadRef visitor) = 0;
  virtual Status Fetch(std::string_view key, SinkRef sink) = 0;
  virtual Status Append(std::string_view key, std::string_view value, std::string_view delimiter) = 0;
  virtual Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown) = 0;
  virtual Status ProcessMulti(Keys keys, MultiReadRef visitor) = 0;
  virtual const Expiry* expiry() const = 0;
  virtual Status SetExpiry(std::string_view key, std::uint64_t expire_at) = 0;
  virtual StatusOr<std::uint64_t> GetExpiry(std::string_view key) = 0;
  virtual StatusOr<std::uint64_t> RemoveExpired() = 0;
  virtual Status Write(const WriteBatch& batch) = 0;
  virtual std::uint64_t AppliedIndex() const = 0;
  virtual Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) = 0;
  virtual void Prefetch(Keys keys) const = 0;
  virtual bool PrefetchReads() const = 0;
  virtual Status ProcessEach(EachRef visitor) = 0;
  virtual Status ProcessEachParallel(unsigned num_threads, EachRef visitor) = 0;
  virtual Status ProcessState(StateRef visitor, const OnDamage& on_damage) = 0;
  virtual std::unique_ptr<AnyCursor> MakeCursor() = 0;
  virtual Order KeyOrder() const = 0;  // nullptr if it is not ordered
  virtual bool HasTransactions() const = 0;
  virtual bool HasPrefixRange() const = 0;  // whether the order is bytewise
  virtual StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) = 0;
  virtual StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) = 0;
  virtual StatusOr<std::unique_ptr<AnyDatabase>> Snapshot() = 0;  // see AnySnapshotModel
  virtual std::uint64_t Count() const = 0;
  virtual Status Clear() = 0;
  virtual Status Synchronize(SyncMode mode) = 0;
  virtual std::uint64_t LastLsn() = 0;
  virtual Status WaitDurable(std::uint64_t lsn) = 0;
  virtual bool ShouldBeRebuilt() = 0;
  virtual Status Rebuild() = 0;
  virtual Status CopyTo(const std::string& path) = 0;
  virtual Status Verify() = 0;
  virtual StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) = 0;
  virtual StatusOr<std::unique_ptr<AnyDatabase>> Refresh() const = 0;  // nullptr if this is the newest
  virtual StatusOr<bool> WaitForCheckpoint(std::chrono::milliseconds timeout) const = 0;
  virtual Stats GetStats() = 0;
  virtual Inspection Inspect() = 0;
  virtual bool IsWritable() const = 0;
  virtual Status GetHealth() const = 0;
  // The address of the DBM or snapshot that has the records: the same for all models of it and of its parts.
  virtual const void* Origin() const = 0;
  // The type of the application in the file; nullopt for a database in memory, which has none.
  virtual std::optional<std::uint32_t> GetType() const = 0;
  // Returns FailedPrecondition after Close, and in a forked child.
  virtual Status CheckOpen() const = 0;
  virtual Status Close() = 0;
  // Closes a database that its opener refuses. Removes a file that was created, and blanks one that was blank.
  virtual Status CloseUnkept() = 0;

  // Copies the value to a string.
  Status FetchTo(std::string_view key, std::string* value) {
    return Fetch(key, [value](std::size_t size) {
      value->resize(size);
      return value->data();
    });
  }
};

// A snapshot of an ordered database (dbm/snapshot.h) as a database that is open for reading only. The database D must
// outlive it. Its Verify reads all records, and its GetStats has only the number of records and the memory that the
// snapshot takes.
template <class D>
class AnySnapshotModel final : public AnyDatabase {
  using View = std::remove_reference_t<decltype(**std::declval<D&>().Snapshot())>;
  using Cursor = AnyCursorModel<typename View::Iterator>;

 public:
  explicit AnySnapshotModel(std::unique_ptr<View> view) : view_(std::move(view)) {}
  Status Process(std::string_view, UpdateRef) override { return NoUpdatesError(); }
  Status Process(std::string_view, BlindUpdateRef) override { return NoUpdatesError(); }
  Status Process(std::string_view key, ReadRef visitor) override { return view_->Process(key, visitor); }
  Status Fetch(std::string_view key, SinkRef sink) override { return view_->Fetch(key, sink); }
  Status Append(std::string_view, std::string_view, std::string_view) override { return NoUpdatesError(); }
  Status ProcessMulti(const Batch<Action>&, std::uint64_t*) override { return NoUpdatesError(); }
  Status ProcessMulti(Keys keys, MultiReadRef visitor) override { return view_->GetMulti(keys, visitor); }
  const Expiry* expiry() const override { return view_->database().expiry(); }
  Status SetExpiry(std::string_view, std::uint64_t) override { return NoUpdatesError(); }
  StatusOr<std::uint64_t> GetExpiry(std::string_view key) override { return view_->GetExpiry(key); }
  StatusOr<std::uint64_t> RemoveExpired() override { return NoUpdatesError(); }
  Status Write(const WriteBatch&) override { return NoUpdatesError(); }
  std::uint64_t AppliedIndex() const override { return view_->AppliedIndex(); }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override { return view_->FetchMulti(keys, sink, arrived); }
  void Prefetch(Keys) const override {}
  bool PrefetchReads() const override { return false; }
  Status ProcessEach(EachRef visitor) override { return view_->ProcessEach(visitor); }
  Status ProcessEachParallel(unsigned, EachRef visitor) override { return view_->ProcessEach(visitor); }  // by one thread
  Status ProcessState(StateRef visitor, const OnDamage& on_damage) override { return view_->ProcessState(visitor, on_damage); }
  std::unique_ptr<AnyCursor> MakeCursor() override { return std::make_unique<Cursor>(view_->MakeIterator()); }
  Order KeyOrder() const override { return &View::CompareKeys; }
  bool HasTransactions() const override { return false; }
  bool HasPrefixRange() const override {
    return requires(View & view) { view.PrefixRange(std::string_view()); };
  }
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) override {
    return view_->CountRange(from, to);
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view, std::optional<std::string_view>) override { return NoUpdatesError(); }
  StatusOr<std::unique_ptr<AnyDatabase>> Refresh() const override {
    return absl::UnimplementedError("a snapshot stays at its moment: take another one");
  }
  StatusOr<bool> WaitForCheckpoint(std::chrono::milliseconds) const override {
    return absl::UnimplementedError("a snapshot stays at its moment: take another one");
  }
  StatusOr<std::unique_ptr<AnyDatabase>> Snapshot() override { return absl::UnimplementedError("a snapshot has no snapshots"); }
  std::uint64_t Count() const override { return view_->Count(); }
  Status Clear() override { return NoUpdatesError(); }
  Status Synchronize(SyncMode) override { return view_->CheckReads(); }
  std::uint64_t LastLsn() override { return 0; }
  Status WaitDurable(std::uint64_t) override { return view_->CheckReads(); }
  bool ShouldBeRebuilt() override { return false; }
  Status Rebuild() override { return NoUpdatesError(); }
  Status CopyTo(const std::string& path) override {
    if constexpr (requires { view_->CopyTo(path); })
      return view_->CopyTo(path);
    else if constexpr (requires { view_->Save(path); })
      return view_->Save(path);
    else
      return absl::UnimplementedError("this kind of database cannot be copied to a path");
  }
  Status Verify() override {
    return view_->ProcessEach([](std::string_view, std::string_view) {});
  }
  StatusOr<ScrubProgress> Scrub(const ScrubOptions&) override { return NothingToScrub(view_->CheckReads()); }
  Stats GetStats() override {
    Stats stats;
    stats.num_records = view_->Count();
    stats.num_snapshots = 1;
    stats.snapshot_bytes = view_->bytes();
    return stats;
  }
  Inspection Inspect() override { return {{"class", "SnapshotView"}, {"num_records", absl::StrCat(view_->Count())}}; }
  bool IsWritable() const override { return false; }
  Status GetHealth() const override { return view_->CheckReads(); }
  const void* Origin() const override { return view_.get(); }
  std::optional<std::uint32_t> GetType() const override {
    if constexpr (requires(const D& db) { db.GetType(); }) return view_->database().GetType();
    return std::nullopt;
  }
  Status CheckOpen() const override { return view_->CheckReads(); }
  Status Close() override { return view_->Close(); }
  Status CloseUnkept() override { return view_->Close(); }

 private:
  static Status NoUpdatesError() { return absl::FailedPreconditionError("a snapshot takes no updates"); }

  const std::unique_ptr<View> view_;
};

// A database of the DBM D.
template <class D>
class AnyModel : public AnyDatabase {
  using Cursor = AnyCursorModel<decltype(std::declval<D&>().MakeIterator())>;
  static constexpr bool kHasLog = requires { typename D::LogFile; };

 public:
  explicit AnyModel(std::unique_ptr<D> db = nullptr) : db_(std::move(db)) {}
  void Take(std::unique_ptr<D> db) { db_ = std::move(db); }
  Status Process(std::string_view key, UpdateRef visitor) override { return db_->Process(key, visitor); }
  Status Process(std::string_view key, BlindUpdateRef visitor) override { return db_->Process(key, visitor); }
  Status Process(std::string_view key, ReadRef visitor) override { return db_->Process(key, visitor); }
  Status Fetch(std::string_view key, SinkRef sink) override { return db_->Fetch(key, sink); }
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter) override {
    return db_->Append(key, value, delimiter);
  }
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown) override { return db_->ProcessMulti(batch, expiry_shown); }
  Status ProcessMulti(Keys keys, MultiReadRef visitor) override { return db_->ProcessMulti(keys, visitor); }
  const Expiry* expiry() const override { return db_->expiry(); }
  Status SetExpiry(std::string_view key, std::uint64_t expire_at) override { return db_->SetExpiry(key, expire_at); }
  StatusOr<std::uint64_t> GetExpiry(std::string_view key) override { return db_->GetExpiry(key); }
  StatusOr<std::uint64_t> RemoveExpired() override { return db_->RemoveExpired(); }
  Status Write(const WriteBatch& batch) override { return db_->Write(batch); }
  std::uint64_t AppliedIndex() const override { return db_->AppliedIndex(); }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override { return db_->FetchMulti(keys, sink, arrived); }
  void Prefetch(Keys keys) const override { db_->Prefetch(keys); }
  bool PrefetchReads() const override { return db_->PrefetchReads(); }
  Status ProcessEach(EachRef visitor) override { return db_->ProcessEach(visitor); }
  Status ProcessEachParallel(unsigned num_threads, EachRef visitor) override { return db_->ProcessEachParallel(num_threads, visitor); }
  Status ProcessState(StateRef visitor, const OnDamage& on_damage) override { return db_->ProcessState(visitor, on_damage); }
  std::unique_ptr<AnyCursor> MakeCursor() override { return std::make_unique<Cursor>(db_->MakeIterator()); }
  Order KeyOrder() const override {
    if constexpr (requires { &D::CompareKeys; }) return &D::CompareKeys;
    return nullptr;
  }
  bool HasTransactions() const override { return !std::is_base_of_v<OrderedOperations<D, RecordKeyComparator>, D>; }
  bool HasPrefixRange() const override {
    return requires(D & db) { db.PrefixRange(std::string_view()); };
  }
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) override {
    if constexpr (OrderedDBM<D>) return db_->CountRange(from, to);
    HAKO_RETURN_IF_ERROR(db_->CheckIdle());
    return NoOrderError();
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) override {
    if constexpr (OrderedDBM<D>) return db_->RemoveRange(from, to);
    HAKO_RETURN_IF_ERROR(db_->CheckIdle());
    return NoOrderError();
  }
  StatusOr<std::unique_ptr<AnyDatabase>> Snapshot() override {
    HAKO_RETURN_IF_ERROR(db_->CheckIdle());
    if constexpr (requires { db_->Snapshot(); }) {
      HAKO_ASSIGN_OR_RETURN(auto view, db_->Snapshot());
      return std::unique_ptr<AnyDatabase>(std::make_unique<AnySnapshotModel<D>>(std::move(view)));
    }
    return NoSnapshotError();
  }
  std::uint64_t Count() const override { return db_->Count(); }
  Status Clear() override { return db_->Clear(); }
  Status Synchronize(SyncMode mode) override { return db_->Synchronize(mode); }
  std::uint64_t LastLsn() override {
    if constexpr (kHasLog) return db_->LastLsn();
    return 0;
  }
  Status WaitDurable(std::uint64_t lsn) override {
    if constexpr (kHasLog) return db_->WaitDurable(lsn);
    return Synchronize(SyncMode::kHard);
  }
  bool ShouldBeRebuilt() override {
    if constexpr (requires { db_->ShouldBeRebuilt(); }) return db_->ShouldBeRebuilt();
    return false;
  }
  Status Rebuild() override {
    if constexpr (requires { db_->Rebuild(); }) return db_->Rebuild();
    return db_->CheckIdle();
  }
  Status CopyTo(const std::string& path) override {
    if constexpr (requires { db_->CopyTo(path); }) return db_->CopyTo(path);
    if constexpr (requires { db_->Save(path); }) return db_->Save(path);
    HAKO_RETURN_IF_ERROR(db_->CheckIdle());
    return absl::UnimplementedError("this kind of database cannot be copied to a path");
  }
  Status Verify() override { return db_->Verify(); }
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) override {
    if constexpr (requires { db_->Scrub(options); }) return db_->Scrub(options);
    return NothingToScrub(db_->CheckIdle());
  }
  StatusOr<std::unique_ptr<AnyDatabase>> Refresh() const override {
    if constexpr (requires { db_->Refresh(); }) {
      HAKO_ASSIGN_OR_RETURN(auto newer, db_->Refresh());
      return newer == nullptr ? nullptr : std::make_unique<AnyModel>(std::move(newer));
    } else {
      HAKO_RETURN_IF_ERROR(db_->CheckOpen());
      return absl::FailedPreconditionError("Refresh: only readers of trees and arrays in files have newer checkpoints");
    }
  }
  StatusOr<bool> WaitForCheckpoint(std::chrono::milliseconds timeout) const override {
    if constexpr (requires { db_->WaitForCheckpoint(timeout); }) {
      return db_->WaitForCheckpoint(timeout);
    } else {
      HAKO_RETURN_IF_ERROR(db_->CheckOpen());
      return absl::FailedPreconditionError("WaitForCheckpoint: only readers of trees and arrays in files have newer checkpoints");
    }
  }
  Stats GetStats() override { return db_->GetStats(); }
  Inspection Inspect() override { return db_->Inspect(); }
  bool IsWritable() const override { return db_->IsWritable(); }
  Status GetHealth() const override { return db_->GetHealth(); }
  const void* Origin() const override { return db_.get(); }
  std::optional<std::uint32_t> GetType() const override {
    if constexpr (requires { db_->GetType(); }) return db_->GetType();
    return std::nullopt;
  }
  Status CheckOpen() const override { return db_->CheckOpen(); }
  Status Close() override { return db_->Close(); }
  Status CloseUnkept() override {
    if constexpr (requires { db_->CloseUnkept(); }) return db_->CloseUnkept();
    return db_->Close();
  }

 protected:
  std::unique_ptr<D> db_;
};

// As AnyModel, of a database that another one owns.
template <class D>
class AnyBorrowedModel final : public AnyModel<D> {
 public:
  explicit AnyBorrowedModel(D& database) : AnyModel<D>(std::unique_ptr<D>(&database)) {}
  ~AnyBorrowedModel() override { (void)this->db_.release(); }
};

}  // namespace hako::internal
