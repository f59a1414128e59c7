// Parts of an ordered database as databases of their own: a key space (dbm/key_space.h), and the records that a
// transaction (dbm/transaction.h) sees. A table (table/table_dbm.h) keeps its records in one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hako/base/batch.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_model.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/key_space.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/write_batch.h"
#include "hako/storage/scrub_progress.h"

namespace hako::internal {

// The operations on records. `Part` is a Transaction or a KeySpace of an ordered database.
template <class Part>
class AnyPart : public AnyDatabase {
 protected:
  using Cursor = AnyCursorModel<typename Part::Iterator>;

 public:
  Status Process(std::string_view key, UpdateRef visitor) override { return part().Process(key, visitor); }
  Status Process(std::string_view key, BlindUpdateRef visitor) override { return part().Process(key, visitor); }
  Status Process(std::string_view key, ReadRef visitor) override { return part().Process(key, visitor); }
  Status Fetch(std::string_view key, SinkRef sink) override { return part().Fetch(key, sink); }
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter) override {
    return part().Append(key, value, delimiter);
  }
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown) override {
    if constexpr (requires { part().ProcessMulti(batch, expiry_shown); })
      return part().ProcessMulti(batch, expiry_shown);
    else
      return part().ProcessMulti(batch);
  }
  Status ProcessMulti(Keys keys, MultiReadRef visitor) override { return part().ProcessMulti(keys, visitor); }
  const Expiry* expiry() const override { return part().expiry(); }
  Status SetExpiry(std::string_view key, std::uint64_t expire_at) override { return part().SetExpiry(key, expire_at); }
  StatusOr<std::uint64_t> GetExpiry(std::string_view key) override { return part().GetExpiry(key); }
  Status Write(const WriteBatch& batch) override { return part().Write(batch); }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override { return part().FetchMulti(keys, sink, arrived); }
  void Prefetch(Keys) const override {}
  bool PrefetchReads() const override { return false; }
  Status ProcessEach(EachRef visitor) override {
    auto it = part().MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
    return it.status();
  }
  Status ProcessEachParallel(unsigned, EachRef visitor) override { return ProcessEach(visitor); }  // by one thread
  std::unique_ptr<AnyCursor> MakeCursor() override { return std::make_unique<Cursor>(part().MakeIterator()); }
  bool HasTransactions() const override { return true; }
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) override {
    return part().CountRange(from, Bound(to));
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) override {
    return part().RemoveRange(from, Bound(to));
  }
  Status Clear() override { return RemoveRange("", std::nullopt).status(); }
  // Counts the records; 0 if that fails.
  std::uint64_t Count() const override { return part().CountRange("").value_or(0); }
  std::optional<std::uint32_t> GetType() const override { return std::nullopt; }

  // Of the whole database.
  StatusOr<std::uint64_t> RemoveExpired() override { return WholeError(); }
  Status ProcessState(StateRef, const OnDamage&) override { return WholeError(); }
  Status CopyTo(const std::string&) override { return WholeError(); }
  StatusOr<std::unique_ptr<AnyDatabase>> Refresh() const override { return WholeError(); }
  StatusOr<bool> WaitForCheckpoint(std::chrono::milliseconds) const override { return WholeError(); }

 protected:
  static std::optional<StringArg> Bound(std::optional<std::string_view> to) { return to ? std::optional<StringArg>(*to) : std::nullopt; }
  static Status WholeError() {
    return absl::UnimplementedError("this concerns the whole database, of which this is a part: call it there");
  }
  virtual Part& part() const = 0;
};

// A key space. Functions that concern the file are those of the database. `closes`: whether Close closes that, too. After Close the
// records of the space are neither read nor changed.
class AnySpace final : public AnyPart<KeySpace<AnyDBM>> {
  using Base = AnyPart<KeySpace<AnyDBM>>;

 public:
  AnySpace(std::unique_ptr<AnyDBM> database, std::string_view name, bool closes)
      : database_(std::move(database)), space_(*database_, name), closes_(closes) {}

  Status Process(std::string_view key, UpdateRef visitor) override {
    return IfOpen([&] { return Base::Process(key, visitor); });
  }
  Status Process(std::string_view key, BlindUpdateRef visitor) override {
    return IfOpen([&] { return Base::Process(key, visitor); });
  }
  Status Process(std::string_view key, ReadRef visitor) override {
    return IfOpen([&] { return Base::Process(key, visitor); });
  }
  Status Fetch(std::string_view key, SinkRef sink) override {
    return IfOpen([&] { return Base::Fetch(key, sink); });
  }
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown) override {
    return IfOpen([&] { return Base::ProcessMulti(batch, expiry_shown); });
  }
  Status ProcessMulti(Keys keys, MultiReadRef visitor) override {
    return IfOpen([&] { return Base::ProcessMulti(keys, visitor); });
  }
  Status FetchMulti(Keys keys, MultiSinkRef sink, ArrivedRef arrived) override {
    return IfOpen([&] { return Base::FetchMulti(keys, sink, arrived); });
  }
  Status Write(const WriteBatch& batch) override {
    return IfOpen([&] { return Base::Write(batch); });
  }
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to) override {
    return IfOpen([&] { return Base::CountRange(from, to); });
  }
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to) override {
    return IfOpen([&] { return Base::RemoveRange(from, to); });
  }
  std::unique_ptr<AnyCursor> MakeCursor() override {
    if (!is_closed_) return Base::MakeCursor();
    return std::make_unique<Cursor>(KeySpaceCursor<AnyDBM>(database_->MakeIterator(), {}, {}, CheckOpen()));
  }
  Order KeyOrder() const override { return inside().KeyOrder(); }
  bool HasPrefixRange() const override { return inside().HasPrefixRange(); }
  std::uint64_t AppliedIndex() const override { return inside().AppliedIndex(); }
  StatusOr<std::unique_ptr<AnyDatabase>> Snapshot() override {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    HAKO_ASSIGN_OR_RETURN(auto snapshot, inside().Snapshot());
    return std::unique_ptr<AnyDatabase>(std::make_unique<AnySpace>(AnyAccess::Own(std::move(snapshot)), space_.name(), true));
  }
  Status Synchronize(SyncMode mode) override { return inside().Synchronize(mode); }
  std::uint64_t LastLsn() override { return inside().LastLsn(); }
  Status WaitDurable(std::uint64_t lsn) override { return inside().WaitDurable(lsn); }
  bool ShouldBeRebuilt() override { return inside().ShouldBeRebuilt(); }
  Status Rebuild() override { return inside().Rebuild(); }
  Status Verify() override { return inside().Verify(); }
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options) override { return inside().Scrub(options); }
  Stats GetStats() override { return inside().GetStats(); }
  Inspection Inspect() override { return inside().Inspect(); }
  bool IsWritable() const override { return inside().IsWritable(); }
  Status GetHealth() const override { return inside().GetHealth(); }
  const void* Origin() const override { return inside().Origin(); }
  Status CheckOpen() const override {
    return is_closed_ ? absl::FailedPreconditionError("the table in the key space is closed") : inside().CheckOpen();
  }
  Status Close() override {
    is_closed_ = true;
    return closes_ ? inside().Close() : absl::OkStatus();
  }
  Status CloseUnkept() override { return Close(); }

 private:
  AnyDatabase& inside() const { return AnyAccess::Inside(*database_); }
  KeySpace<AnyDBM>& part() const override { return space_; }
  template <class F>
  std::invoke_result_t<F&> IfOpen(F&& function) const {
    if (is_closed_) return CheckOpen();
    return function();
  }

  std::unique_ptr<AnyDBM> database_;
  mutable KeySpace<AnyDBM> space_;
  const bool closes_;
  bool is_closed_ = false;
};

// The records that a transaction sees, which must outlive it. It has no functions but those on records.
template <class D>
class AnyTransaction final : public AnyPart<Transaction<D>> {
  using Base = AnyPart<Transaction<D>>;
  using Base::WholeError;

 public:
  explicit AnyTransaction(Transaction<D>& transaction) : transaction_(transaction) {}

  typename Base::Order KeyOrder() const override { return transaction_.order(); }
  bool HasPrefixRange() const override { return true; }
  std::uint64_t AppliedIndex() const override { return 0; }
  StatusOr<std::unique_ptr<AnyDatabase>> Snapshot() override { return WholeError(); }
  Status Synchronize(SyncMode) override { return WholeError(); }
  std::uint64_t LastLsn() override { return 0; }
  Status WaitDurable(std::uint64_t) override { return WholeError(); }
  bool ShouldBeRebuilt() override { return false; }
  Status Rebuild() override { return WholeError(); }
  Status Verify() override { return WholeError(); }
  StatusOr<ScrubProgress> Scrub(const ScrubOptions&) override { return WholeError(); }
  Stats GetStats() override { return {}; }
  Inspection Inspect() override { return {{"class", "Transaction"}}; }
  bool IsWritable() const override { return true; }
  Status GetHealth() const override { return absl::OkStatus(); }
  const void* Origin() const override { return OriginOf(transaction_.database()); }
  Status CheckOpen() const override { return absl::OkStatus(); }
  Status Close() override { return absl::OkStatus(); }
  Status CloseUnkept() override { return absl::OkStatus(); }

  // The address of the DBM that has the records of a database.
  static const void* OriginOf(D& database) {
    if constexpr (std::is_same_v<D, AnyDBM>)
      return AnyAccess::Inside(database).Origin();
    else
      return &database;
  }

 private:
  Transaction<D>& part() const override { return transaction_; }

  Transaction<D>& transaction_;
};

// A database that the application keeps open, as one of any kind.
template <class D>
std::unique_ptr<AnyDBM> BorrowDatabase(D& database) {
  if constexpr (std::is_same_v<D, AnyDBM>)
    return AnyAccess::Borrow(AnyAccess::Inside(database));
  else
    return AnyAccess::Own(std::make_unique<AnyBorrowedModel<D>>(database));
}

}  // namespace hako::internal
