// AnyDBM: a database whose kind is chosen at run time, by the ending of its file name or by an option (dbm/any_options.h).
//
//   HAKO_ASSIGN_OR_RETURN(auto db, AnyDBM::Open("casket.hkh?num_records=1m"));
//
// It does what every DBM does, and where there is an order what ordered DBMs do beyond that, at the price of a virtual call an operation;
// the class templates pay nothing for it. A database in memory that has a path (TinyDBM, BabyDBM) is loaded from the snapshot there by Open
// and saved to it by a hard Synchronize and by Close; meanwhile it keeps the file locked, as a database in a file does. What happens
// between two saves does not survive the process.
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

#include "absl/functional/function_ref.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/any_options.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"

namespace hako {

class AnyDBM : public Operations<AnyDBM> {
  struct Interface;
  struct CursorInterface;
  template <class D>
  class Model;
  template <class D>
  class SnapshotModel;
  template <class D>
  class CursorModel;

  using Value = std::optional<std::string_view>;
  using Keys = std::span<const std::string_view>;
  using Update = absl::FunctionRef<Action(Value)>;
  using BlindUpdate = absl::FunctionRef<Action(bool)>;
  using Look = absl::FunctionRef<void(Value)>;
  using Copy = absl::FunctionRef<char*(std::size_t)>;
  using Each = absl::FunctionRef<void(std::string_view, std::string_view)>;
  using MultiUpdate = absl::FunctionRef<std::optional<Action>(std::size_t, Value)>;
  using MultiLook = absl::FunctionRef<void(std::size_t, Value)>;
  using MultiCopy = absl::FunctionRef<char*(std::size_t, std::size_t)>;
  using Arrived = absl::FunctionRef<void(std::size_t, bool)>;
  using Order = int (*)(std::string_view, std::string_view);

 public:
  // A cursor of any kind; the database must outlive it.
  class Iterator : public CursorOperations<Iterator> {
   public:
    void First();
    void Jump(std::string_view key);
    void Next();
    // As dbm/tree_cursor.h has them. Where the database is not IsOrdered, they lead to the end, and status() is Unimplemented until First
    // or Jump.
    void Last();
    void JumpLower(std::string_view key, bool inclusive = false);
    void JumpUpper(std::string_view key, bool inclusive = false);
    void Previous();
    bool Valid() const;
    std::string_view key() const;
    std::string_view value() const;
    const Status& status() const;
    bool SkipDamage();
    AnyDBM& database() { return *database_; }

   private:
    friend AnyDBM;
    Iterator(AnyDBM* database, std::unique_ptr<CursorInterface> inside);
    AnyDBM* database_;
    std::unique_ptr<CursorInterface> inside_;  // null: there was no memory for it
  };

  static StatusOr<std::unique_ptr<AnyDBM>> Open(const AnyOptions& options);
  static StatusOr<std::unique_ptr<AnyDBM>> Open(std::string_view name) {
    HAKO_ASSIGN_OR_RETURN(const AnyOptions options, ParseAnyOptions(name));
    return Open(options);
  }
  // Makes Open take trees of another order or codec: see dbm/any_tree.h.
  using OpenTree = StatusOr<std::unique_ptr<AnyDBM>> (*)(const AnyOptions& options);
  static void AddTree(std::string_view order, std::string_view codec, OpenTree open);
  // Takes over a database that is open.
  template <DBM D>
  explicit AnyDBM(std::unique_ptr<D> db);

  AnyDBM(const AnyDBM&) = delete;
  AnyDBM& operator=(const AnyDBM&) = delete;
  ~AnyDBM();

  template <Visitor V>
  Status Process(std::string_view key, V&& visitor);
  template <Sink S>
  Status Fetch(std::string_view key, S&& sink);
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor);
  Status Append(std::string_view key, std::string_view value, std::string_view delimiter = {});
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived);
  void Prefetch(std::span<const std::string_view> keys) const;
  template <class V>
  Status ProcessEach(V&& visitor);
  template <class V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor);
  // Where memory runs out, an iterator that stays at the end, with ResourceExhausted as its status.
  Iterator MakeIterator();
  // Whether records come in the order of their keys, and iterators move both ways.
  bool IsOrdered() const;
  // As dbm/ordered_operations.h has them. Where the database is not IsOrdered, Range() shows all records, and the others are
  // Unimplemented: so is status() of a range, which is empty then. PrefixRange REQUIRES: the order of bytes.
  RangeView<Iterator, true> Range();
  RangeView<Iterator, true> Range(std::string_view from, std::optional<std::string_view> to = std::nullopt);
  RangeView<Iterator, false> ReverseRange();
  RangeView<Iterator, false> ReverseRange(std::string_view from, std::optional<std::string_view> to = std::nullopt);
  RangeView<Iterator, true> PrefixRange(std::string_view prefix);
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to = std::nullopt);
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to = std::nullopt);

  std::uint64_t Count() const;
  Status Clear();
  Status Synchronize(SyncMode mode);
  // Databases that need no rebuilding are always as good as rebuilt.
  bool ShouldBeRebuilt();
  Status Rebuild();
  // A copy at `path`, beside readers and writers; it appears there whole and synced or not at all. Unimplemented where the kind has no
  // file.
  Status CopyTo(const std::string& path);
  Status Verify();
  Stats GetStats();
  Inspection Inspect();
  bool IsWritable() const;
  Status GetHealth() const;
  Status Close();

 private:
  explicit AnyDBM(std::unique_ptr<Interface> inside);
  template <class D>
  static StatusOr<std::unique_ptr<AnyDBM>> OpenInMemory(StatusOr<std::unique_ptr<D>> db, const AnyOptions& options);
  static Status NoOrderError();
  std::unique_ptr<Interface> inside_;
};

}  // namespace hako

#include "hako/dbm/any_dbm-inl.h"

namespace hako {
static_assert(OrderedDBM<AnyDBM>);
}  // namespace hako
