// The operations that only ordered DBMs have: key ranges, in both directions. Ranges are half-open:
// [from, to).
//
// An ordered DBM class D inherits OrderedOperations<D, Compare> publicly. It provides CountKeys and
// RemoveKeys, and an iterator that moves both ways: First, Last, Jump, JumpLower, JumpUpper, Next,
// Previous. Jump is LevelDB's Seek, JumpLower(key, true) RocksDB's SeekForPrev.
//
// Threads: as in dbm/dbm.h. A range uses an iterator, so it holds no lock and stops no writer. It
// shows each record as it is when it comes to it (dbm/tree_cursor.h); that of a snapshot
// (dbm/snapshot.h) shows the records of one moment.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/function_ref.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"

namespace hako {

// A DBM whose records are ordered by key, with iterators that move both ways.
template <class D>
concept OrderedDBM = DBM<D> && requires(D& d, typename D::Iterator& it, std::string_view key) {
  it.First();
  it.Last();
  it.Jump(key);
  it.JumpLower(key, true);
  it.JumpUpper(key, true);
  it.Next();
  it.Previous();
  { d.CountRange(key, key) } -> std::same_as<StatusOr<std::uint64_t>>;
  { d.RemoveRange(key, key) } -> std::same_as<StatusOr<std::uint64_t>>;
};

// Records in order, as an input range of pairs of views, which are valid until the next step:
//   for (auto [key, value] : db.Range("a", "b")) ...
// The range ends early if the iterator fails; status() then returns the error. Not thread-safe.
template <class Iterator, bool kForward>
class RangeView : public std::ranges::view_base {
 public:
  using Record = std::pair<std::string_view, std::string_view>;  // key and value

  // Models std::input_iterator.
  class iterator {
   public:
    // As std::input_iterator requires.
    using value_type = Record;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    explicit iterator(RangeView* range) : range_(range) {}
    Record operator*() const { return {range_->it_.key(), range_->it_.value()}; }
    iterator& operator++() {
      range_->Step();
      return *this;
    }
    void operator++(int) { range_->Step(); }
    bool operator==(std::default_sentinel_t) const { return range_->AtEnd(); }

   private:
    RangeView* range_;
  };

  // start(it) moves the iterator to the first record and returns the bound that ends the range, or
  // nullopt.
  RangeView(Iterator it, FunctionRef<std::optional<std::string>(Iterator&)> start, int (*compare)(std::string_view, std::string_view));
  // Movable, not copyable.
  RangeView(RangeView&&) = default;
  RangeView& operator=(RangeView&&) = default;

  // The range from the iterator's record on, and its end.
  iterator begin() { return iterator(this); }
  std::default_sentinel_t end() { return {}; }
  // OK, or the error that ended the range.
  const Status& status() const { return status_.ok() ? it_.status() : status_; }

 private:
  void Step() {
    if constexpr (kForward)
      it_.Next();
    else
      it_.Previous();
  }
  bool AtEnd() const {
    if (!it_.Valid() || !status_.ok()) return true;
    if (!bound_) return false;
    const int order = compare_(it_.key(), *bound_);
    return kForward ? order >= 0 : order < 0;
  }

  Iterator it_;
  std::optional<std::string> bound_;
  Status status_;  // the error of start()
  int (*compare_)(std::string_view, std::string_view);
};

template <class Iterator, bool kForward>
RangeView<Iterator, kForward>::RangeView(Iterator it, FunctionRef<std::optional<std::string>(Iterator&)> start,
                                         int (*compare)(std::string_view, std::string_view))
    : it_(std::move(it)), compare_(compare) {
  HAKO_TRY { bound_ = start(it_); }
  HAKO_CATCH_NO_MEMORY(status_ = NoMemoryError();)
}

// Returns the least key, in bytewise order, above every key that begins with `prefix`; nullopt if
// there is none.
inline std::optional<std::string> EndOfPrefix(StringArg prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (end.empty()) return std::nullopt;
  ++end.back();
  return end;
}

// Those that read, which a snapshot of an ordered DBM has, too.
template <class D, Comparator Compare>
class OrderedReads {
 public:
  // Three-way comparison of keys: negative if `a` orders before `b`, 0 if they are equal.
  static int CompareKeys(std::string_view a, std::string_view b) { return Compare::Compare(a, b); }

  // Returns the records of [from, to) in order; all records from `from` on if there is no `to`; all
  // records if there are no arguments. The database must outlive the range.
  auto Range(StringArg from, std::optional<StringArg> to = std::nullopt) {
    return View<true>([from, to](auto& it) {
      it.Jump(from);
      return std::optional<std::string>(to);
    });
  }
  auto Range() {
    return View<true>([](auto& it) {
      it.First();
      return std::nullopt;
    });
  }
  // Returns the same records in reverse order.
  auto ReverseRange(StringArg from, std::optional<StringArg> to = std::nullopt) {
    return View<false>([from, to](auto& it) {
      to ? it.JumpLower(*to, false) : it.Last();
      return std::string(from);
    });
  }
  auto ReverseRange() {
    return View<false>([](auto& it) {
      it.Last();
      return std::nullopt;
    });
  }
  // Returns the records whose keys begin with `prefix`, in order.
  auto PrefixRange(StringArg prefix) requires BytewiseOrder<Compare> {
    return View<true>([prefix](auto& it) {
      it.Jump(prefix);
      return EndOfPrefix(prefix);
    });
  }

  // Returns the number of records in [from, to). Under concurrent updates it is not the number at
  // one moment.
  StatusOr<std::uint64_t> CountRange(StringArg from, std::optional<StringArg> to = std::nullopt) {
    HAKO_RETURN_IF_ERROR(self().CheckReads());
    if (to && Compare::Compare(from, *to) >= 0) return std::uint64_t{0};
    return self().CountKeys(from, to);
  }

 protected:
  // Counts the records that the iterator shows, for CountKeys.
  StatusOr<std::uint64_t> CountShown(std::string_view from, std::optional<std::string_view> to) {
    std::uint64_t count = 0;
    auto it = self().MakeIterator();
    for (it.Jump(from); it.Valid() && !(to && Compare::Compare(it.key(), *to) >= 0); it.Next()) ++count;
    HAKO_RETURN_IF_ERROR(it.status());
    return count;
  }

 private:
  D& self() { return static_cast<D&>(*this); }
  template <bool kForward, class Start>
  auto View(Start start) {
    using Iterator = typename D::Iterator;
    return RangeView<Iterator, kForward>(self().MakeIterator(), FunctionRef<std::optional<std::string>(Iterator&)>(start),
                                         &Compare::Compare);
  }
};

// The operations: see the head of this header.
template <class D, Comparator Compare>
class OrderedOperations : public OrderedReads<D, Compare> {
 public:
  // Removes the records of [from, to) and returns their number. Not atomic: other threads, and a
  // crash, may see a part of it. If records expire, the number is that of the live ones at the
  // beginning.
  StatusOr<std::uint64_t> RemoveRange(StringArg from, std::optional<StringArg> to = std::nullopt) {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    if (to && Compare::Compare(from, *to) >= 0) return std::uint64_t{0};
    return self().RemoveKeys(from, to);
  }

  // Sets records in ascending order of keys, which fills pages completely. next(&key, &value)
  // supplies the records and returns false at the end. InvalidArgument if a key is not above the
  // previous one. After an error the earlier records stay in the database.
  template <class Next>
  Status BulkLoad(Next&& next) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckOpen());
    std::string before;
    std::string_view key, value;
    for (bool first = true; next(&key, &value); first = false) {
      if (!first && Compare::Compare(before, key) >= 0) return absl::InvalidArgumentError("BulkLoad: the keys are not in ascending order");
      HAKO_RETURN_IF_ERROR(self().Set(key, value));
      before.assign(key);
    }
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY

 private:
  D& self() { return static_cast<D&>(*this); }
};

}  // namespace hako
