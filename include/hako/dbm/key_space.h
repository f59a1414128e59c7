// Named key spaces of one database: each has its own keys, and all share its file, log, limits and transactions.
//
//   hako::KeySpace users(*db, "users"), orders(*db, "orders");
//   Status stored = users.Set("ada", "1815-12-10");
//   for (auto [name, born] : users.Range("a", "b")) ...
//
// The record of a key in a space is that of the name, a zero byte and the key in the database, so another space has no key
// in common with it, and the keys of a space are neighbours in key order. The database has all records: what concerns the
// whole file, as CopyTo, Verify or Count, is asked there.
//
// A space of a transaction (dbm/transaction.h) or a snapshot (dbm/snapshot.h) has its reads, and its updates:
//
//   hako::Transaction transaction(*db);
//   hako::KeySpace own_users(transaction, "users"), own_orders(transaction, "orders");
//
// In a WriteBatch, Key names the record of a space, so that one batch covers several.
//
// Ranges, cursors and RemoveRange need an ordered database whose order is bytewise. AnyDBM returns Unimplemented for others.
// Where an order takes keys of different bytes for equal, the names must differ in it, too. A name that is empty or has a
// zero byte makes each call return InvalidArgument.
//
// Threads, durability and errors: as of the database, transaction or snapshot, which must outlive the space. A space has no
// state but its name, so there may be any number of one name. Updates need a named KeySpace object.
#pragma once

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

#include "absl/container/inlined_vector.h"
#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/comparator.h"
#include "hako/base/integer_arg.h"
#include "hako/base/key_value.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/cursor_operations.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"

namespace hako {

// A cursor over the records of a space, in key order, both ways. Not thread-safe; see KeySpace.
template <class D>
class KeySpaceCursor {
  using Inside = decltype(std::declval<D&>().MakeIterator());

 public:
  // Call MakeIterator of the space instead. `refused`: why every move fails, or OK.
  KeySpaceCursor(Inside inside, std::string prefix, std::string end, Status refused)
      : inside_(std::move(inside)), prefix_(std::move(prefix)), end_(std::move(end)), refused_(std::move(refused)) {
    if constexpr (requires { inside_.SetBounds(prefix_, end_); }) {
      if (refused_.ok()) inside_.SetBounds(prefix_, end_);
    }
  }

  // Moves to the first or the last record.
  void First() {
    Move([this] { inside_.JumpUpper(prefix_, true); });
  }
  void Last() {
    Move([this] { inside_.JumpLower(end_, false); });
  }
  // Moves to the first record at or after `key`.
  void Jump(StringArg key) { JumpUpper(key, true); }
  // Moves to the first record after `key`, or at `key` if inclusive; or to the last one before it, or at it.
  void JumpUpper(StringArg key, bool inclusive = false) {
    Move([&] { inside_.JumpUpper(Join(key), inclusive); });
  }
  void JumpLower(StringArg key, bool inclusive = false) {
    Move([&] { inside_.JumpLower(Join(key), inclusive); });
  }
  // Moves to the next or the previous record. Does nothing if the cursor is at no record.
  void Next() {
    if (Valid()) Move([this] { inside_.Next(); });
  }
  void Previous() {
    if (Valid()) Move([this] { inside_.Previous(); });
  }

  // Whether the cursor is at a record.
  bool Valid() const { return is_valid_; }
  // The current record. REQUIRES: Valid()
  std::string_view key() const {
    HAKO_DCHECK(Valid());
    return inside_.key().substr(prefix_.size());
  }
  std::string_view value() const {
    HAKO_DCHECK(Valid());
    return inside_.value();
  }
  // OK at the end; otherwise the error that stopped the cursor.
  const Status& status() const { return !refused_.ok() ? refused_ : !error_.ok() ? error_ : inside_.status(); }

 private:
  std::string Join(std::string_view key) const { return std::string(prefix_).append(key); }
  template <class F>
  void Move(F&& move) HAKO_TRY {
    is_valid_ = false;
    error_ = absl::OkStatus();
    if (!refused_.ok()) return;
    move();
    is_valid_ = inside_.Valid() && inside_.key().substr(0, prefix_.size()) == prefix_;
  }
  HAKO_CATCH_NO_MEMORY(error_ = NoMemoryError();)

  Inside inside_;
  std::string prefix_, end_;  // the keys of the space in the database: [prefix_, end_)
  Status refused_, error_;    // why every move fails; why the last one has failed
  bool is_valid_ = false;
};

// The operations of a space: see the head of this header.
//
// Inherits
//   Operations (dbm/operations.h)                one record
//   MultiOperations (dbm/multi_operations.h)     several records; Write of a batch whose keys are those of the space
//   OrderedOperations (dbm/ordered_operations.h) ranges
template <class D>
class KeySpace : public Operations<KeySpace<D>>, public OrderedOperations<KeySpace<D>, BytewiseComparator> {
 public:
  using Iterator = KeySpaceCursor<D>;

  KeySpace(D& database, StringArg name) : database_(database), prefix_(std::string_view(name)) {
    is_named_ = !prefix_.empty() && prefix_.find('\0') == prefix_.npos;
    prefix_.push_back('\0');
    end_ = prefix_;
    end_.back() = '\1';
  }

  D& database() const { return database_; }
  std::string_view name() const { return std::string_view(prefix_).substr(0, prefix_.size() - 1); }
  // Returns the key of the record in the database.
  std::string Key(StringArg key) const { return std::string(prefix_).append(std::string_view(key)); }

  // See dbm/dbm.h.
  template <Visitor V>
  Status Process(StringArg key, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    return database_.Process(Joined(prefix_, key), visitor);
  }
  HAKO_OR_NO_MEMORY
  template <class V>
  requires(!Visitor<V>) Status Process(StringArg, V&&) { return internal::RefuseVisitor<V>(); }
  template <Sink S>
  Status Fetch(StringArg key, S&& sink) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    return database_.Fetch(Joined(prefix_, key), sink);
  }
  HAKO_OR_NO_MEMORY
  // See dbm/multi_operations.h.
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    const JoinedKeys joined(prefix_, keys);
    return database_.FetchMulti(joined.keys(), sink, arrived);
  }
  HAKO_OR_NO_MEMORY
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    const JoinedKeys joined(prefix_, keys);
    return database_.ProcessMulti(joined.keys(), visitor);
  }
  HAKO_OR_NO_MEMORY
  template <class V>
  requires(!MultiVisitor<V>) Status ProcessMulti(std::span<const std::string_view>, V&&) { return internal::RefuseMultiVisitor<V>(); }
  Status ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    const JoinedKeys joined(prefix_, keys);
    return database_.ProcessMulti(joined.keys(), visitor, expiry_shown);
  }
  HAKO_OR_NO_MEMORY
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown = nullptr) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    if (!batch.removed_ranges.empty() || !batch.shown_ranges.empty()) HAKO_RETURN_IF_ERROR(CheckOrder());
    const JoinedKeys joined(prefix_, batch.keys);
    std::vector<std::string> bounds;
    bounds.reserve(2 * (batch.removed_ranges.size() + batch.shown_ranges.size()));  // views of them stay valid
    const auto join = [&](std::span<const KeyRange> of) {
      std::vector<KeyRange> ranges;
      for (const KeyRange& range : of) {
        bounds.push_back(range.has_from ? Key(range.from) : prefix_);
        bounds.push_back(range.to ? Key(*range.to) : end_);
        ranges.push_back({bounds[bounds.size() - 2], bounds.back()});
      }
      return ranges;
    };
    const std::vector<KeyRange> removed = join(batch.removed_ranges), shown = join(batch.shown_ranges);
    const auto show = [&](std::string_view key, std::string_view value) { (*batch.show)(key.substr(prefix_.size()), value); };
    const EachRef shows(show);
    Batch<Action> inside = batch;
    inside.keys = joined.keys();
    inside.removed_ranges = removed;
    inside.shown_ranges = shown;
    if (batch.show != nullptr) inside.show = &shows;
    if constexpr (requires { database_.ProcessMulti(inside, expiry_shown); })
      return database_.ProcessMulti(inside, expiry_shown);
    else
      return database_.ProcessMulti(inside);
  }
  HAKO_OR_NO_MEMORY

  // Shows all records of the space. In a hash table it passes all records of the database.
  template <EachVisitor V>
  Status ProcessEach(V&& visitor) {
    HAKO_RETURN_IF_ERROR(CheckName());
    if constexpr (kIsOrdered) {
      if (CheckOrder().ok()) {
        Iterator it = MakeIterator();
        for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
        return it.status();
      }
    }
    return database_.ProcessEach([&](std::string_view key, std::string_view value) {
      if (key.substr(0, prefix_.size()) == prefix_) visitor(key.substr(prefix_.size()), value);
    });
  }
  template <class V>
  requires(!EachVisitor<V>) Status ProcessEach(V&&) { return internal::RefuseEachVisitor<V>(); }
  // Returns a cursor. A hash table has none.
  Iterator MakeIterator() {
    static_assert(kIsOrdered, "ranges and cursors of a space need an ordered database whose order is bytewise");
    HAKO_TRY {
      Status refused = CheckName();
      if (refused.ok()) refused = CheckOrder();
      return Iterator(database_.MakeIterator(), prefix_, end_, std::move(refused));
    }
    HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
    return Iterator(database_.MakeIterator(), {}, {}, NoMemoryError());
#endif
  }

  // For OrderedOperations.
  StatusOr<std::uint64_t> CountKeys(std::string_view from, std::optional<std::string_view> to) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOrder());
    return database_.CountRange(Key(from), to ? Key(*to) : end_);
  }
  HAKO_OR_NO_MEMORY
  StatusOr<std::uint64_t> RemoveKeys(std::string_view from, std::optional<std::string_view> to) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOrder());
    return database_.RemoveRange(Key(from), to ? Key(*to) : end_);
  }
  HAKO_OR_NO_MEMORY
  Status CheckReads() const { return CheckName(); }
  Status CheckIdle() const { return CheckName(); }
  Status CheckOpen() const { return CheckName(); }

  // See dbm/engine_operations.h.
  const Expiry* expiry() const { return database_.expiry(); }
  Status SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    return database_.SetExpiry(Key(key), expire_at);
  }
  HAKO_OR_NO_MEMORY
  StatusOr<std::uint64_t> GetExpiry(StringArg key) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckName());
    return database_.GetExpiry(Key(key));
  }
  HAKO_OR_NO_MEMORY
  std::uint64_t LastLsn() { return database_.LastLsn(); }
  Status WaitDurable(std::uint64_t lsn) { return database_.WaitDurable(lsn); }

 private:
  static constexpr bool kIsOrdered = requires(D & d) { d.PrefixRange(std::string_view()); };

  // A key of the space, as the database has it: on the stack if it is short.
  class Joined {
   public:
    Joined(std::string_view prefix, std::string_view key) : size_(prefix.size() + key.size()) {
      if (size_ > sizeof(usual_)) longer_.resize(size_);
      char* const out = size_ > sizeof(usual_) ? longer_.data() : usual_;
      std::memcpy(out, prefix.data(), prefix.size());
      if (!key.empty()) std::memcpy(out + prefix.size(), key.data(), key.size());
    }
    Joined(const Joined&) = delete;
    operator StringArg() const { return std::string_view(size_ > sizeof(usual_) ? longer_.data() : usual_, size_); }

   private:
    std::size_t size_;
    char usual_[256];
    std::string longer_;
  };
  class JoinedKeys {
   public:
    JoinedKeys(std::string_view prefix, std::span<const std::string_view> keys) {
      std::size_t size = 0;
      for (const std::string_view key : keys) size += prefix.size() + key.size();
      bytes_.reserve(size);  // views of it stay valid
      for (const std::string_view key : keys) {
        const std::size_t begin = bytes_.size();
        bytes_.append(prefix).append(key);
        keys_.push_back(std::string_view(bytes_).substr(begin));
      }
    }
    JoinedKeys(const JoinedKeys&) = delete;
    std::span<const std::string_view> keys() const { return keys_; }

   private:
    std::string bytes_;
    absl::InlinedVector<std::string_view, 16> keys_;
  };

  Status CheckName() const {
    if (is_named_) return absl::OkStatus();
    return absl::InvalidArgumentError("the name of a key space is empty or has a zero byte");
  }
  Status CheckOrder() const {
    bool is_bytewise = kIsOrdered;
    if constexpr (requires { database_.IsBytewise(); }) is_bytewise = database_.IsBytewise();
    if (is_bytewise) return absl::OkStatus();
    return absl::UnimplementedError("ranges of a key space need an ordered database whose order is bytewise");
  }

  D& database_;
  std::string prefix_, end_;  // its keys in the database: [prefix_, end_)
  bool is_named_;
};

}  // namespace hako
