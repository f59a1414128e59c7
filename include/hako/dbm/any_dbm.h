// AnyDBM: a database whose kind is chosen at run time, by the suffix of its file name or by an
// option (dbm/any_options.h).
//
//   HAKO_ASSIGN_OR_RETURN(auto db, AnyDBM::Open("casket.hkh?num_records=1m"));
//
// It has the operations of every DBM and, if its records are ordered, those of ordered DBMs. Each
// operation costs one virtual call; the class templates pay nothing for it.
//
// The keys of an array are the numbers of its records in decimal (dbm/array_operations.h).
//
// Durability: see the class of the kind (HashDBM, TreeDBM, ArrayDBM, TinyDBM, BabyDBM).
//
// Threads: see dbm/dbm.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hako/base/function_ref.h"
#include "hako/base/integer_arg.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/any_model.h"
#include "hako/dbm/any_options.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/storage/salvage_report.h"
#include "hako/storage/scrub_progress.h"

namespace hako {

namespace internal {
struct AnyAccess;
}  // namespace internal
struct RestoreOptions;  // dbm/restore.h
struct RestoreReport;

// A database of any kind: see the head of this header.
//
// Inherits
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
class AnyDBM : public Operations<AnyDBM> {
  using Database = internal::AnyDatabase;

 public:
  // A cursor over any kind of database. The database must outlive the cursor. Not thread-safe.
  //
  // Inherits CursorOperations (dbm/cursor_operations.h)
  //   Process, Set, Remove, Step  operate on the current record
  //   PassDamage                  report and skip damage
  class Iterator : public CursorOperations<Iterator> {
   public:
    // See dbm/hash_cursor.h and dbm/tree_cursor.h.
    void First() {
      if (inside_ != nullptr) inside_->First();
    }
    void Jump(StringArg key) {
      if (inside_ != nullptr) inside_->Jump(key);
    }
    void Next() {
      if (inside_ != nullptr) inside_->Next();
    }
    // See dbm/tree_cursor.h. If the database is not IsOrdered, these functions move to the end, and
    // status() is Unimplemented until First or Jump.
    void Last() {
      if (inside_ != nullptr) inside_->Last();
    }
    void JumpLower(StringArg key, bool inclusive = false) {
      if (inside_ != nullptr) inside_->JumpLower(key, inclusive);
    }
    void JumpUpper(StringArg key, bool inclusive = false) {
      if (inside_ != nullptr) inside_->JumpUpper(key, inclusive);
    }
    void Previous() {
      if (inside_ != nullptr) inside_->Previous();
    }
    // See dbm/hash_cursor.h and dbm/tree_cursor.h.
    bool Valid() const { return inside_ != nullptr && inside_->Valid(); }
    std::string_view key() const { return inside_->key(); }
    std::string_view value() const { return inside_->value(); }
    std::uint64_t expire_at() const { return inside_->expire_at(); }
    const Status& status() const {
      if (inside_ != nullptr) return inside_->status();
      static const Status no_memory = NoMemoryError();
      return no_memory;
    }
    bool SkipDamage() { return inside_ != nullptr && inside_->SkipDamage(); }
    // The database of the cursor.
    AnyDBM& database() { return *database_; }

   private:
    friend AnyDBM;
    Iterator(AnyDBM* database, std::unique_ptr<internal::AnyCursor> inside) : database_(database), inside_(std::move(inside)) {}
    AnyDBM* database_;
    std::unique_ptr<internal::AnyCursor> inside_;  // nullptr if memory ran out
  };

  // Opens the database that `options` or `name` describe. Returns InvalidArgument if the options
  // are wrong or do not name a kind; other errors are those of Open of the kind.
  static StatusOr<std::unique_ptr<AnyDBM>> Open(const AnyOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> Open(StringArg name) {
    HAKO_ASSIGN_OR_RETURN(const AnyOptions options, ParseAnyOptions(name));
    return Open(options);
  }
  // Writes the undamaged records of the damaged hash table, tree or array at `from` into a new database at
  // `to`: see dbm/salvage.h. The content of the file tells its kind, order and codec, or, if both
  // of its superblocks are lost, the suffix of its name. InvalidArgument for a snapshot.
  static StatusOr<SalvageReport> Salvage(const std::string& from, const std::string& to, const FileOptions& options = {});
  // Restores the state after a given update into a new database at `to`, from an older copy and the
  // archive of its log: see dbm/restore.h. The content of the copy tells its kind, order and codec.
  // A snapshot is restored by a BabyDBM if the updates remove ranges of keys, else by a TinyDBM.
  static StatusOr<RestoreReport> Restore(const std::string& copy, const std::string& archive, const std::string& to,
                                         const RestoreOptions& options);
  // Adds a tree of another order or codec to those that Open, Salvage and Restore know: see
  // dbm/any_tree.h. `open` opens such a tree, `salvage` salvages one, `restore` restores one.
  using OpenTree = StatusOr<std::unique_ptr<AnyDBM>> (*)(const AnyOptions& options);
  using SalvageTree = StatusOr<SalvageReport> (*)(const std::string& from, const std::string& to, const FileOptions& options);
  using RestoreTree = StatusOr<RestoreReport> (*)(const std::string& copy, const std::string& archive, const std::string& to,
                                                  const RestoreOptions& options);
  static void AddTree(StringArg order, StringArg codec, OpenTree open, SalvageTree salvage, RestoreTree restore);
  // Wraps an open database.
  template <DBM D>
  explicit AnyDBM(std::unique_ptr<D> db) : inside_(std::unique_ptr<Database>(std::make_unique<internal::AnyModel<D>>(std::move(db)))) {}

  // Neither copyable nor movable. The destructor closes the database if the application has not.
  AnyDBM(const AnyDBM&) = delete;
  AnyDBM& operator=(const AnyDBM&) = delete;
  ~AnyDBM() = default;

  // See dbm/dbm.h, and dbm/multi_operations.h for FetchMulti and Prefetch. Append calls that of the
  // kind (dbm/operations.h, TinyDBM).
  template <Visitor V>
  Status Process(StringArg key, V&& visitor) {
    using Plain = std::remove_reference_t<V>;
    if constexpr (UpdateVisitor<Plain>) {
      return inside_->Process(key, UpdateRef(visitor));
    } else if constexpr (BlindVisitor<Plain>) {
      return inside_->Process(key, BlindUpdateRef(visitor));
    } else {
      return inside_->Process(key, ReadRef(visitor));
    }
  }
  template <class V>
  requires(!Visitor<V>) Status Process(StringArg, V&&) { return internal::RefuseVisitor<V>(); }
  template <Sink S>
  Status Fetch(StringArg key, S&& sink) {
    return inside_->Fetch(key, SinkRef(sink));
  }
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) {
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
      return inside_->ProcessMulti(keys, MultiReadRef(visitor));
    } else {
      return ProcessMulti(keys, MultiUpdateRef(visitor), nullptr);
    }
  }
  template <class V>
  requires(!MultiVisitor<V>) Status ProcessMulti(std::span<const std::string_view>, V&&) { return internal::RefuseMultiVisitor<V>(); }
  Status ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown = nullptr) {
    return inside_->ProcessMulti(Batch<Action>{keys, visitor}, expiry_shown);
  }
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown = nullptr) {
    return inside_->ProcessMulti(batch, expiry_shown);
  }
  Status Append(StringArg key, StringArg value, StringArg delimiter = {}) { return inside_->Append(key, value, delimiter); }
  // See dbm/engine_operations.h.
  const Expiry* expiry() const { return inside_->expiry(); }
  Status SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at) { return inside_->SetExpiry(key, expire_at); }
  StatusOr<std::uint64_t> GetExpiry(StringArg key) { return inside_->GetExpiry(key); }
  StatusOr<std::uint64_t> RemoveExpired() { return inside_->RemoveExpired(); }
  // See dbm/write_batch.h.
  Status Write(const WriteBatch& batch, const WriteOptions& options = {}) {
    HAKO_RETURN_IF_ERROR(inside_->Write(batch));
    return options.durability == Durability::kPower ? WaitDurable(LastLsn()) : absl::OkStatus();
  }
  std::uint64_t AppliedIndex() const { return inside_->AppliedIndex(); }
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) {
    return inside_->FetchMulti(keys, Database::MultiSinkRef(sink), Database::ArrivedRef(arrived));
  }
  void Prefetch(std::span<const std::string_view> keys) const { inside_->Prefetch(keys); }
  bool PrefetchReads() const { return inside_->PrefetchReads(); }
  template <EachVisitor V>
  Status ProcessEach(V&& visitor) {
    return inside_->ProcessEach(EachRef(visitor));
  }
  template <class V>
  requires(!EachVisitor<V>) Status ProcessEach(V&&) { return internal::RefuseEachVisitor<V>(); }
  template <EachVisitor V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor) {
    return inside_->ProcessEachParallel(num_threads, EachRef(visitor));
  }
  template <class V>
  requires(!EachVisitor<V>) Status ProcessEachParallel(unsigned, V&&) { return internal::RefuseEachVisitor<V>(); }
  // See dbm/dbm.h.
  Status ProcessState(StateRef visitor, const OnDamage& on_damage = {}) { return inside_->ProcessState(visitor, on_damage); }
  // If memory runs out, returns an iterator that stays at the end, with ResourceExhausted as its
  // status.
  Iterator MakeIterator() {
    HAKO_TRY { return Iterator(this, inside_->MakeCursor()); }
    HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
    return Iterator(this, nullptr);
#endif
  }
  // Whether records are ordered by key, and iterators move both ways.
  bool IsOrdered() const { return inside_->KeyOrder() != nullptr; }
  // Whether they are, by the bytes of their keys.
  bool IsBytewise() const { return IsOrdered() && inside_->HasPrefixRange(); }
  // Whether it is a hash table or a tree: see dbm/transaction.h.
  bool HasTransactions() const { return inside_->HasTransactions(); }
  // See dbm/ordered_operations.h. If the database is not IsOrdered, Range() shows all records. The
  // other functions then return Unimplemented, or an empty range with that status(). So does
  // PrefixRange if the order is not bytewise.
  RangeView<Iterator, true> Range() {
    const auto start = [](Iterator& it) {
      it.First();
      return std::nullopt;
    };
    return {MakeIterator(), start, inside_->KeyOrder()};
  }
  RangeView<Iterator, true> Range(StringArg from, std::optional<StringArg> to = std::nullopt) {
    const auto start = [from, to](Iterator& it) {
      it.JumpUpper(from, true);
      return std::optional<std::string>(to);
    };
    return {MakeIterator(), start, inside_->KeyOrder()};
  }
  RangeView<Iterator, false> ReverseRange() {
    const auto start = [](Iterator& it) {
      it.Last();
      return std::nullopt;
    };
    return {MakeIterator(), start, inside_->KeyOrder()};
  }
  RangeView<Iterator, false> ReverseRange(StringArg from, std::optional<StringArg> to = std::nullopt) {
    const auto start = [from, to](Iterator& it) {
      to ? it.JumpLower(*to) : it.Last();
      return std::string(from);
    };
    return {MakeIterator(), start, inside_->KeyOrder()};
  }
  RangeView<Iterator, true> PrefixRange(StringArg prefix) {
    const auto start = [this, prefix](Iterator& it) -> std::optional<std::string> {
      it.JumpUpper(prefix, true);
      if (inside_->HasPrefixRange() || !IsOrdered()) return EndOfPrefix(prefix);
      if (it.inside_ != nullptr)
        it.inside_->Refuse(
            absl::UnimplementedError("PrefixRange needs the bytewise order, in which keys of one prefix are neighbours: Search "
                                     "(dbm/search.h) finds them in any order"));
      return std::nullopt;
    };
    return {MakeIterator(), start, inside_->KeyOrder()};
  }
  StatusOr<std::uint64_t> CountRange(StringArg from, std::optional<StringArg> to = std::nullopt) { return inside_->CountRange(from, to); }
  StatusOr<std::uint64_t> RemoveRange(StringArg from, std::optional<StringArg> to = std::nullopt) { return inside_->RemoveRange(from, to); }

  // Returns a read-only view of the database as it is now (dbm/snapshot.h), as an AnyDBM that is open for reading only:
  // its updates return FailedPrecondition, and the snapshot_bytes of its GetStats are the memory that it takes. The
  // database must outlive it. Unimplemented for a hash table, whose iterators show each record that exists throughout
  // their scan once, but not all as they are at one moment; and for a snapshot.
  StatusOr<std::unique_ptr<AnyDBM>> Snapshot() HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(auto snapshot, inside_->Snapshot());
    return std::unique_ptr<AnyDBM>(new AnyDBM(std::move(snapshot)));
  }
  HAKO_OR_NO_MEMORY

  // Returns the number of records, which is exact while no update runs.
  std::uint64_t Count() const { return inside_->Count(); }
  // See dbm/dbm.h. A hard Synchronize of a database in memory saves its snapshot.
  Status Clear() { return inside_->Clear(); }
  Status Synchronize(SyncMode mode) { return inside_->Synchronize(mode); }
  // See TreeDBM. WaitDurable of a database without a log synchronizes it.
  std::uint64_t LastLsn() { return inside_->LastLsn(); }
  Status WaitDurable(std::uint64_t lsn) { return inside_->WaitDurable(lsn); }
  // Compaction of the file: see HashDBM and TreeDBM. A database in memory returns false and OK.
  bool ShouldBeRebuilt() { return inside_->ShouldBeRebuilt(); }
  Status Rebuild() { return inside_->Rebuild(); }
  // Creates or replaces a copy of the database at `path`, beside readers and writers: a file of the
  // same kind, or a snapshot of a database in memory. The copy appears whole and durable or not at
  // all. Returns Unimplemented for a wrapped database whose file type has no path.
  Status CopyTo(const std::string& path) { return inside_->CopyTo(path); }
  // See dbm/dbm.h and the kind's class.
  Status Verify() { return inside_->Verify(); }
  // See HashDBM and TreeDBM. A database in memory, whose snapshot was checked when it was loaded, has
  // nothing to scrub: each call completes a pass over 0 bytes.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {}) { return inside_->Scrub(options); }
  // Of a tree or array that was opened with OpenMode::kReadOnly: see TreeDBM::Refresh (dbm/tree_dbm.h).
  StatusOr<std::unique_ptr<AnyDBM>> Refresh() const HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(auto newer, inside_->Refresh());
    return newer == nullptr ? nullptr : std::unique_ptr<AnyDBM>(new AnyDBM(std::move(newer)));
  }
  HAKO_OR_NO_MEMORY
  // See dbm/pool_home.h.
  StatusOr<bool> WaitForCheckpoint(std::chrono::milliseconds timeout) const { return inside_->WaitForCheckpoint(timeout); }
  Stats GetStats() { return inside_->GetStats(); }
  Inspection Inspect() { return inside_->Inspect(); }
  bool IsWritable() const { return inside_->IsWritable(); }
  Status GetHealth() const { return inside_->GetHealth(); }
  // Closes the database. A database in memory with a path writes its snapshot first. Returns the
  // first error.
  // REQUIRES: no other thread uses the database (checked in WriterStates::Close)
  Status Close() { return inside_->Close(); }

 private:
  friend class MultiOperations<AnyDBM>;
  friend struct internal::AnyAccess;
  template <class D>
  friend class Transaction;
  struct DeleteOwn {
    DeleteOwn(std::default_delete<Database>) {}  // of a database that the AnyDBM owns
    explicit DeleteOwn(bool is_own) : owns(is_own) {}
    void operator()(Database* database) const {
      if (owns) delete database;
    }
    bool owns = true;
  };
  explicit AnyDBM(std::unique_ptr<Database, DeleteOwn> inside) : inside_(std::move(inside)) {}
  Database::Order KeyOrder() const { return inside_->KeyOrder(); }
  // Makes an AnyDBM of the database that open() returns. After open() nothing can fail.
  template <class D, class OpenD>
  static StatusOr<std::unique_ptr<AnyDBM>> Over(OpenD&& open) {
    auto model = std::make_unique<internal::AnyModel<D>>();
    auto& inside = *model;
    std::unique_ptr<AnyDBM> any(new AnyDBM(std::unique_ptr<Database>(std::move(model))));
    HAKO_ASSIGN_OR_RETURN(auto db, open());
    inside.Take(std::move(db));
    return any;
  }
  // The functions of a kind have their own source file, because it compiles the kind. A build may
  // leave kinds out (HAKO_FEW_DATABASES): then src/few_databases.cc has their functions.
  static StatusOr<std::unique_ptr<AnyDBM>> OpenHashFile(const AnyOptions& options);
  static StatusOr<RestoreReport> RestoreHashFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                 const RestoreOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenTreeFile(AnyOptions options);
  static StatusOr<SalvageReport> SalvageTreeFile(const std::string& from, const std::string& to, const FileOptions& options,
                                                 SalvageTree bytewise);
  static StatusOr<RestoreReport> RestoreTreeFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                 const RestoreOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenArrayFile(const AnyOptions& options);
  static StatusOr<SalvageReport> SalvageArrayFile(const std::string& from, const std::string& to, const FileOptions& options);
  static StatusOr<RestoreReport> RestoreArrayFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                  const RestoreOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenPositionalFile(const AnyOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenTinyInMemory(const AnyOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenBabyInMemory(const AnyOptions& options);
  template <class D, class Options>
  static StatusOr<std::unique_ptr<AnyDBM>> OpenInMemory(const AnyOptions& options, Options of_kind);
  static StatusOr<RestoreReport> RestoreSnapshot(const std::string& copy, const std::string& archive, const std::string& to,
                                                 const RestoreOptions& options);
  // Opens the file of the options, mapped or by position as they say.
  template <class Mapped, class Options>
  static StatusOr<std::unique_ptr<AnyDBM>> OpenInFile(const AnyOptions& options, const Options& of_kind) {
    if (options.path.empty())
      return absl::InvalidArgumentError(absl::StrCat("a database of kind ", ToAbsl(options.ResolvedKind()), " needs a file name"));
    if (options.device == "mmap") return Over<Mapped>([&] { return Mapped::Open(options.path, of_kind, options.file); });
    if (options.device == "pos") return OpenPositionalFile(options);
    return absl::InvalidArgumentError(absl::StrCat("unknown file type '", options.device, "'"));
  }
  std::unique_ptr<Database, DeleteOwn> inside_;
};

static_assert(OrderedDBM<AnyDBM>);

// For layers that are built upon a database of any kind.
struct internal::AnyAccess {
  static AnyDatabase& Inside(AnyDBM& db) { return *db.inside_; }
  static std::unique_ptr<AnyDBM> Own(std::unique_ptr<AnyDatabase> inside) {
    return std::unique_ptr<AnyDBM>(new AnyDBM(std::unique_ptr<AnyDatabase, AnyDBM::DeleteOwn>(std::move(inside))));
  }
  // `inside` must outlive it.
  static std::unique_ptr<AnyDBM> Borrow(AnyDatabase& inside) {
    return std::unique_ptr<AnyDBM>(new AnyDBM(std::unique_ptr<AnyDatabase, AnyDBM::DeleteOwn>(&inside, AnyDBM::DeleteOwn(false))));
  }
};

}  // namespace hako
