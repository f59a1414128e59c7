// What the ordered DBMs do beside the operations of every DBM: ranges of keys, in both directions.
//
// An ordered DBM class D inherits OrderedOperations<D, Compare> publicly and provides CountKeys and RemoveKeys of an index::Range, and an
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

  // `in_range(key)` tells whether the walk, which starts where `it` is at begin(), goes on.
  template <class Start>
  RangeView(Iterator it, Start start, std::optional<std::string> bound, int (*compare)(std::string_view, std::string_view))
      : it_(std::move(it)), bound_(std::move(bound)), compare_(compare) {
    start(it_);
  }
  RangeView(RangeView&&) = default;
  RangeView& operator=(RangeView&&) = default;

  iterator begin() { return iterator(this); }
  std::default_sentinel_t end() { return {}; }
  const Status& status() const { return it_.status(); }

 private:
  void Step() {
    if constexpr (kForward)
      it_.Next();
    else
      it_.Previous();
  }
  bool AtEnd() const {
    if (!it_.Valid()) return true;
    if (!bound_) return false;
    const int order = compare_(it_.key(), *bound_);
    return kForward ? order >= 0 : order < 0;
  }

  Iterator it_;
  std::optional<std::string> bound_;
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
    using View = RangeView<typename D::Iterator, true>;
    return View(
        self().MakeIterator(), [from](auto& it) { it.Jump(from); }, Owned(to), &Compare::Compare);
  }
  auto Range() {
    using View = RangeView<typename D::Iterator, true>;
    return View(
        self().MakeIterator(), [](auto& it) { it.First(); }, std::nullopt, &Compare::Compare);
  }
  // The same records, the last first.
  auto ReverseRange(std::string_view from, std::optional<std::string_view> to = std::nullopt) {
    using View = RangeView<typename D::Iterator, false>;
    return View(
        self().MakeIterator(), [to](auto& it) { to ? it.JumpLower(*to, false) : it.Last(); }, std::string(from), &Compare::Compare);
  }
  auto ReverseRange() {
    using View = RangeView<typename D::Iterator, false>;
    return View(
        self().MakeIterator(), [](auto& it) { it.Last(); }, std::nullopt, &Compare::Compare);
  }
  // The records whose keys begin with `prefix`, in order.
  auto PrefixRange(std::string_view prefix) requires BytewiseOrder<Compare> {
    const std::optional<std::string> end = EndOfPrefix(prefix);
    return Range(prefix, end ? std::optional<std::string_view>(*end) : std::nullopt);
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
  Status BulkLoad(Next&& next) {
    std::string before;
    std::string_view key, value;
    for (bool first = true; next(&key, &value); first = false) {
      if (!first && Compare::Compare(before, key) >= 0) return absl::InvalidArgumentError("BulkLoad: the keys do not rise");
      HAKO_RETURN_IF_ERROR(self().Set(key, value));
      before.assign(key);
    }
    return absl::OkStatus();
  }

 private:
  D& self() { return static_cast<D&>(*this); }
  static std::optional<std::string> Owned(std::optional<std::string_view> bound) {
    return bound ? std::optional<std::string>(*bound) : std::nullopt;
  }
};

}  // namespace hako
