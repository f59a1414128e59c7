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
#include "hako/dbm/any_options.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/storage/salvage_report.h"
#include "hako/storage/scrub_progress.h"

namespace hako {

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
  struct Interface;
  struct CursorInterface;
  template <class D>
  class Model;
  template <class D>
  class CursorModel;

  using Value = std::optional<std::string_view>;
  using Keys = std::span<const std::string_view>;
  using MultiSinkRef = FunctionRef<char*(std::size_t, std::size_t)>;
  using ArrivedRef = FunctionRef<void(std::size_t, bool)>;
  using Order = int (*)(std::string_view, std::string_view);

 public:
  // A cursor over any kind of database. The database must outlive the cursor. Not thread-safe.
  //
  // Inherits CursorOperations (dbm/cursor_operations.h)
  //   Process, Set, Remove, Step  operate on the current record
  //   PassDamage                  report and skip damage
  class Iterator : public CursorOperations<Iterator> {
   public:
    // See dbm/hash_cursor.h and dbm/tree_cursor.h.
    void First();
    void Jump(StringArg key);
    void Next();
    // See dbm/tree_cursor.h. If the database is not IsOrdered, these functions move to the end, and
    // status() is Unimplemented until First or Jump.
    void Last();
    void JumpLower(StringArg key, bool inclusive = false);
    void JumpUpper(StringArg key, bool inclusive = false);
    void Previous();
    // See dbm/hash_cursor.h and dbm/tree_cursor.h.
    bool Valid() const;
    std::string_view key() const;
    std::string_view value() const;
    std::uint64_t expire_at() const;
    const Status& status() const;
    bool SkipDamage();
    // The database of the cursor.
    AnyDBM& database() { return *database_; }

   private:
    friend AnyDBM;
    Iterator(AnyDBM* database, std::unique_ptr<CursorInterface> inside);
    AnyDBM* database_;
    std::unique_ptr<CursorInterface> inside_;  // nullptr if memory ran out
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
  // Makes a database at `to` of the state after an update, from an older copy and the archive of its
  // log: see dbm/restore.h. The content of the copy tells its kind, order and codec; a snapshot counts
  // as one of a BabyDBM if its updates remove ranges of keys, else of a TinyDBM.
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
  explicit AnyDBM(std::unique_ptr<D> db);

  // Neither copyable nor movable. The destructor closes the database if the application has not.
  AnyDBM(const AnyDBM&) = delete;
  AnyDBM& operator=(const AnyDBM&) = delete;
  ~AnyDBM();

  // See dbm/dbm.h, and dbm/multi_operations.h for FetchMulti and Prefetch. Append is that of the
  // kind (dbm/operations.h, TinyDBM).
  template <Visitor V>
  Status Process(StringArg key, V&& visitor);
  template <class V>
  requires(!Visitor<V>) Status Process(StringArg, V&&) { return internal::RefuseVisitor<V>(); }
  template <Sink S>
  Status Fetch(StringArg key, S&& sink);
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor);
  template <class V>
  requires(!MultiVisitor<V>) Status ProcessMulti(std::span<const std::string_view>, V&&) { return internal::RefuseMultiVisitor<V>(); }
  Status ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown = nullptr);
  Status Append(StringArg key, StringArg value, StringArg delimiter = {});
  // See dbm/engine_operations.h.
  const Expiry* expiry() const;
  Status SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at);
  StatusOr<std::uint64_t> GetExpiry(StringArg key);
  StatusOr<std::uint64_t> RemoveExpired();
  // See dbm/write_batch.h.
  Status Write(const WriteBatch& batch, const WriteOptions& options = {});
  std::uint64_t AppliedIndex() const;
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived);
  void Prefetch(std::span<const std::string_view> keys) const;
  bool PrefetchReads() const;
  template <EachVisitor V>
  Status ProcessEach(V&& visitor);
  template <class V>
  requires(!EachVisitor<V>) Status ProcessEach(V&&) { return internal::RefuseEachVisitor<V>(); }
  template <EachVisitor V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor);
  template <class V>
  requires(!EachVisitor<V>) Status ProcessEachParallel(unsigned, V&&) { return internal::RefuseEachVisitor<V>(); }
  // See dbm/dbm.h.
  Status ProcessState(StateRef visitor, const OnDamage& on_damage = {});
  // If memory runs out, returns an iterator that stays at the end, with ResourceExhausted as its
  // status.
  Iterator MakeIterator();
  // Whether records are ordered by key, and iterators move both ways.
  bool IsOrdered() const;
  // See dbm/ordered_operations.h. If the database is not IsOrdered, Range() shows all records. The
  // other functions then return Unimplemented, or an empty range with that status(). So does
  // PrefixRange if the order is not bytewise.
  RangeView<Iterator, true> Range();
  RangeView<Iterator, true> Range(StringArg from, std::optional<StringArg> to = std::nullopt);
  RangeView<Iterator, false> ReverseRange();
  RangeView<Iterator, false> ReverseRange(StringArg from, std::optional<StringArg> to = std::nullopt);
  RangeView<Iterator, true> PrefixRange(StringArg prefix);
  StatusOr<std::uint64_t> CountRange(StringArg from, std::optional<StringArg> to = std::nullopt);
  StatusOr<std::uint64_t> RemoveRange(StringArg from, std::optional<StringArg> to = std::nullopt);

  // Returns the number of records, which is exact while no update runs.
  std::uint64_t Count() const;
  // See dbm/dbm.h. A hard Synchronize of a database in memory saves its snapshot.
  Status Clear();
  Status Synchronize(SyncMode mode);
  // See TreeDBM. WaitDurable of a database without a log synchronizes it.
  std::uint64_t LastLsn();
  Status WaitDurable(std::uint64_t lsn);
  // Compact the file: see HashDBM and TreeDBM. For databases in memory they return false and OK.
  bool ShouldBeRebuilt();
  Status Rebuild();
  // Creates or replaces a copy of the database at `path`, beside readers and writers: a file of the
  // same kind, or a snapshot of a database in memory. The copy appears whole and durable or not at
  // all. Returns Unimplemented for a wrapped database whose file type has no path.
  Status CopyTo(const std::string& path);
  // See dbm/dbm.h and the kind's class.
  Status Verify();
  // See HashDBM and TreeDBM. A database in memory, whose snapshot was checked when it was loaded, has
  // nothing to scrub: each call completes a pass over 0 bytes.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  Stats GetStats();
  Inspection Inspect();
  bool IsWritable() const;
  Status GetHealth() const;
  // Closes the database. A database in memory with a path writes its snapshot first. Returns the
  // first error.
  // REQUIRES: no other thread uses the database (checked in WriterStates::Close)
  Status Close();

 private:
  friend class MultiOperations<AnyDBM>;
  explicit AnyDBM(std::unique_ptr<Interface> inside);
  Order KeyOrder() const;  // nullptr if it is not ordered
  // Makes an AnyDBM of the database that open() returns. After open() nothing can fail.
  template <class D, class OpenD>
  static StatusOr<std::unique_ptr<AnyDBM>> Over(OpenD&& open);
  // Each is in its own source file, because each compiles two kinds of database.
  static StatusOr<std::unique_ptr<AnyDBM>> OpenHashFile(const AnyOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenTreeFile(AnyOptions options);
  static StatusOr<SalvageReport> SalvageTreeFile(const std::string& from, const std::string& to, const FileOptions& options);
  static StatusOr<RestoreReport> RestoreTreeFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                 const RestoreOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenArrayFile(const AnyOptions& options);
  static StatusOr<SalvageReport> SalvageArrayFile(const std::string& from, const std::string& to, const FileOptions& options);
  static StatusOr<RestoreReport> RestoreArrayFile(const std::string& copy, const std::string& archive, const std::string& to,
                                                  const RestoreOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenTinyInMemory(const AnyOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> OpenBabyInMemory(const AnyOptions& options);
  template <class D, class Options>
  static StatusOr<std::unique_ptr<AnyDBM>> OpenInMemory(const AnyOptions& options, Options of_kind);
  // Opens the file of the options, mapped or by position as they say.
  template <class Mapped, class Positional, class Options>
  static StatusOr<std::unique_ptr<AnyDBM>> OpenInFile(const AnyOptions& options, const Options& of_kind);
  static Status NoOrderError();
  std::unique_ptr<Interface> inside_;
};

}  // namespace hako

#include "hako/dbm/any_dbm-inl.h"

namespace hako {
static_assert(OrderedDBM<AnyDBM>);
}  // namespace hako
