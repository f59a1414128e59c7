// What the ordered DBMs do beside the operations of every DBM: ranges of keys, in both directions.
//
// An ordered DBM class D inherits OrderedOperations<D, Compare> publicly and provides CountKeys and RemoveKeys of a tree::Range, and an
// iterator that moves both ways: First, Last, Jump, JumpLower, JumpUpper, Next, Previous. A range is [from, to): `to` is not a part of it.
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
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"

namespace hako {

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

// Records in order, as an input range of pairs of views that are valid until the next step:
//   for (auto [key, value] : db.Range("a", "b")) ...
// It ends early if the iterator fails: status() then says why.
template <class Iterator, bool kForward>
class RangeView : public std::ranges::view_base {
 public:
  using Record = std::pair<std::string_view, std::string_view>;

  class iterator {
   public:
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

  // start(it) moves the iterator to the first record and returns the bound, if there is one, at which the range ends.
  template <class Start>
  RangeView(Iterator it, Start start, int (*compare)(std::string_view, std::string_view)) : it_(std::move(it)), compare_(compare) {
    HAKO_TRY { bound_ = start(it_); }
    HAKO_CATCH_NO_MEMORY(status_ = NoMemoryError();)
  }
  RangeView(RangeView&&) = default;
  RangeView& operator=(RangeView&&) = default;

  iterator begin() { return iterator(this); }
  std::default_sentinel_t end() { return {}; }
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
  Status status_;  // of the beginning
  int (*compare_)(std::string_view, std::string_view);
};

// In bytewise order, the least key above all that begin with `prefix`; none if there is none.
inline std::optional<std::string> EndOfPrefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (end.empty()) return std::nullopt;
  ++end.back();
  return end;
}

template <class D, Comparator Compare>
class OrderedOperations {
 public:
  // The order of keys: below 0 if `a` comes before `b`, 0 if they are equal.
  static int CompareKeys(std::string_view a, std::string_view b) { return Compare::Compare(a, b); }

  // The records of [from, to), in order; without bounds, of all keys from there on. The database must outlive the view.
  auto Range(std::string_view from, std::optional<std::string_view> to = std::nullopt) {
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
  // The same records, the last first.
  auto ReverseRange(std::string_view from, std::optional<std::string_view> to = std::nullopt) {
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
  // The records whose keys begin with `prefix`, in order.
  auto PrefixRange(std::string_view prefix) requires BytewiseOrder<Compare> {
    return View<true>([prefix](auto& it) {
      it.Jump(prefix);
      return EndOfPrefix(prefix);
    });
  }

  // How many records lie in [from, to). Not one moment's number if the database changes meanwhile.
  StatusOr<std::uint64_t> CountRange(std::string_view from, std::optional<std::string_view> to = std::nullopt) {
    if (to && Compare::Compare(from, *to) >= 0) return std::uint64_t{0};
    return self().CountKeys(from, to);
  }

  // Removes the records of [from, to); how many they were. Not one step to other threads.
  StatusOr<std::uint64_t> RemoveRange(std::string_view from, std::optional<std::string_view> to = std::nullopt) {
    if (to && Compare::Compare(from, *to) >= 0) return std::uint64_t{0};
    return self().RemoveKeys(from, to);
  }

  // Sets records whose keys rise, which leaves full pages: next(&key, &value) gives one after the other and returns false at the end.
  // InvalidArgument if a key is not above the one before; those before are in the database then.
  template <class Next>
  Status BulkLoad(Next&& next) HAKO_TRY {
    std::string before;
    std::string_view key, value;
    for (bool first = true; next(&key, &value); first = false) {
      if (!first && Compare::Compare(before, key) >= 0) return absl::InvalidArgumentError("BulkLoad: the keys do not rise");
      HAKO_RETURN_IF_ERROR(self().Set(key, value));
      before.assign(key);
    }
    return absl::OkStatus();
  }
  HAKO_OR_NO_MEMORY

 private:
  D& self() { return static_cast<D&>(*this); }
  template <bool kForward, class Start>
  auto View(Start start) {
    return RangeView<typename D::Iterator, kForward>(self().MakeIterator(), start, &Compare::Compare);
  }
};

}  // namespace hako
