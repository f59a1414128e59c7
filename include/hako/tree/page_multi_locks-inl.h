// Definitions of tree/page_tree.h: a writer's access to several leaves.
#pragma once

#include <algorithm>
#include <bit>

#include "hako/base/endian.h"
#include "hako/tree/page_tree.h"

namespace hako::tree {

// The leaves of some keys and ranges. All are locked in key order and stay locked until UnlockAll, so
// that other threads see all of the update or nothing. Pages are loaded before the first lock and
// never while one is held. The first lock passes the gate, so a thread that closes the gate waits
// until this writer leaves.
template <class Space, Comparator Compare>
class PageTree<Space, Compare>::LockedLeaves {
 public:
  LockedLeaves(const LockedLeaves&) = delete;

 protected:
  static constexpr std::size_t kUsualKeys = 16;  // need no allocation
  using Lines = absl::InlinedVector<Line*, kUsualKeys>;

  LockedLeaves(PageTree& tree, WriterState& writer, std::span<const std::string_view> keys, std::span<const Range> ranges,
               bool is_read_only)
      : tree_(tree), writer_(writer), keys_(keys), ranges_(ranges), is_read_only_(is_read_only) {
    SortKeys();
    leaf_of_.resize(keys.size());
    leaves_.reserve(keys.size() + ranges.size());
  }
  ~LockedLeaves() = default;

  // Loads the leaves that are not in memory, then locks all. If there are many leaves or the pool
  // is small, some may be evicted again before all are locked. So after a few tries, or if there
  // are many leaves, the pages are held in memory (HeldPages). An error leaves none locked.
  Status Acquire() {
    bool locked = LockAll();
    if constexpr (!Space::kResident) {
      for (;; locked = LockAll()) {
        const bool is_large = locked && !held_ && tree_.space_.IsLarge(leaves_.size());
        if (locked && !is_large) break;
        if (is_large) UnlockAll(false);
        HAKO_RETURN_IF_ERROR(status_);
        if (!held_ && (is_large || tries_++ >= kTriesMax)) held_.emplace(tree_.space_);
        HAKO_RETURN_IF_ERROR(LoadAll());
      }
    }
    HAKO_DCHECK(locked);
    return absl::OkStatus();
  }
  void UnlockAll(bool changed) {
    for (Line* line : leaves_) tree_.Unlock(line, changed);
    // clear() would free the memory on which the next LockAll() relies.
    leaves_.erase(leaves_.begin(), leaves_.end());
    writer_.Leave();
  }
  void ReleaseHeld(bool changed) {
    if (held_) held_->Release(changed);
    held_.reset();
  }

  // Whether the range begins in this leaf or before it. REQUIRES: no leaf was passed over (unchecked: the callers go from
  // leaf to leaf), so that the first leaf has the begin of a range without has_from
  bool CoversFrom(Line& leaf, const Range& range) const { return !range.has_from || Covers(leaf, range.from); }
  bool Covers(Line& leaf, std::string_view key) const {
    const View page(tree_.memory_, leaf);
    const format::PageTail tail = page.tail();
    return (tail.edges & format::PageTail::kNoHigh) != 0 || Compare::Compare(key, page.high(tail)) < 0;
  }
  // Calls visit(leaf, begin, end) for the slots of the ranges, in ascending order. REQUIRES: the
  // leaves are locked, and not split yet
  template <class F>
  void ForEachInRanges(F&& visit) {
    std::size_t n = 0;
    for (const Range& range : ranges_) {
      while (!CoversFrom(*leaves_[n], range)) ++n;
      for (std::size_t first = n;; ++n) {
        sync::VersionLock(leaves_[n]->version).AssertLocked();
        const View page(tree_.memory_, *leaves_[n]);
        const bool last = IsLastOf(range, page);
        const unsigned begin = n == first && range.has_from ? page.FindByCall(range.from).index : 0;
        const unsigned end = last && range.to ? page.FindByCall(*range.to).index : page.count();
        if (end > begin) visit(*leaves_[n], begin, end);
        if (last) break;
      }
    }
  }

  PageTree& tree_;
  WriterState& writer_;
  const std::span<const std::string_view> keys_;
  const std::span<const Range> ranges_;
  const bool is_read_only_;
  // Indices of keys_ in ascending order of the keys; for equal keys, the lower index comes first.
  // Most keys differ in their heads.
  struct Key {
    std::uint64_t head;
    std::uint32_t index;
  };
  absl::InlinedVector<Key, kUsualKeys> order_;
  Lines leaf_of_;  // by key
  Lines leaves_;   // locked, ascending

  bool HasKey(std::string_view key) const {
    const std::uint64_t head = HeadOf(key);
    const auto is_below = [&](const Key& a) { return a.head != head ? a.head < head : Compare::Compare(keys_[a.index], key) < 0; };
    const auto found = std::partition_point(order_.begin(), order_.end(), is_below);
    return found != order_.end() && found->head == head && Compare::Compare(keys_[found->index], key) == 0;
  }
  bool IsSame(const Key& a, const Key& b) const { return a.head == b.head && Compare::Compare(keys_[a.index], keys_[b.index]) == 0; }

 private:
  static constexpr unsigned kTriesMax = 2;  // after these, pages are held until all are locked
  static constexpr std::size_t kFewKeys = 3;

  static std::uint64_t HeadOf(std::string_view key) {
    if constexpr (View::kBytewise) {
      if (key.size() >= sizeof(std::uint64_t)) return LoadBigEndian(key.data());
      char bytes[sizeof(std::uint64_t)] = {};
      key.copy(bytes, key.size());
      return LoadBigEndian(bytes);
    } else {
      return std::bit_cast<std::uint32_t>(View::HeadOf(key, 0)) ^ 0x80000000u;
    }
  }
  void SortKeys() {
    order_.resize(keys_.size());
    for (std::uint32_t i = 0; i < keys_.size(); ++i) order_[i] = {HeadOf(keys_[i]), i};
    const auto is_below = [this](const Key& a, const Key& b) {
      if (a.head != b.head) return a.head < b.head;
      const int order = Compare::Compare(keys_[a.index], keys_[b.index]);
      return order != 0 ? order < 0 : a.index < b.index;
    };
    if (!std::ranges::is_sorted(order_, is_below)) std::ranges::sort(order_, is_below);
  }

  // Waits only for threads that have locked one of the leaves. If a leaf is not in memory or cannot
  // be read, returns false, with none locked and the writer state not busy.
  bool LockAll() {
    if (keys_.empty() && ranges_.empty()) return tree_.space_.gate().Pass(writer_), true;
    std::size_t k = 0, r = 0;
    std::optional<std::string_view> high;  // high fence of the last leaf, if a range continues past it
    Group group;
    while (high || k < order_.size() || r < ranges_.size()) {
      const bool is_key = !high && k < order_.size() &&
                          (r == ranges_.size() || (ranges_[r].has_from && Compare::Compare(keys_[order_[k].index], ranges_[r].from) < 0));
      if (leaves_.size() == leaves_.capacity()) leaves_.reserve(2 * leaves_.size());
      Line* leaf = is_key && !leaves_.empty() ? LockAhead(&group, k) : nullptr;  // the first lock passes the gate
      if (leaf == nullptr) leaf = high || is_key ? Lock(high ? *high : keys_[order_[k].index]) : LockFrom(ranges_[r]);
      if (leaf == nullptr) return UnlockAll(false), false;
      leaves_.push_back(leaf);
      if (!is_read_only_) tree_.captures_.CaptureIfAsked(*leaf);
      const View page(tree_.memory_, *leaf);
      const std::size_t first = k;
      for (k = EndOf(page, k); auto& key : std::span(order_).subspan(first, k - first)) leaf_of_[key.index] = leaf;
      group.is_worth_it = k - first < kFewKeys;
      high.reset();
      for (; r < ranges_.size() && CoversFrom(*leaf, ranges_[r]); ++r) {
        if (IsLastOf(ranges_[r], page)) continue;
        high = page.high(page.tail());
        break;
      }
    }
    return true;
  }
  // Returns the end of the keys, from order_[k] on, that belong to this leaf.
  std::size_t EndOf(const View& leaf, std::size_t k) const {
    const format::PageTail tail = leaf.tail();
    if ((tail.edges & format::PageTail::kNoHigh) != 0) return order_.size();
    const std::string_view high = leaf.high(tail);
    const std::uint64_t head = HeadOf(high);
    while (k < order_.size() && (order_[k].head < head || (order_[k].head == head && Compare::Compare(keys_[order_[k].index], high) < 0)))
      ++k;
    return k;
  }
  // If most leaves have few of the keys, a group of keys is looked up together, so that the
  // accesses to memory overlap.
  struct Group {
    std::size_t begin = 0, end = 0;  // of order_
    bool is_worth_it = false;        // for the next group
    Reached leaves[kPrefetchGroup];
  };
  // Locks the leaf of the key order_[k] if the look-up of its group has found the leaf and the leaf
  // has not changed since.
  Line* LockAhead(Group* group, std::size_t k) {
    if (k >= group->end) {
      if (!group->is_worth_it) return nullptr;
      group->begin = k;
      group->end = k + std::min(order_.size() - k, kPrefetchGroup);
      std::array<std::string_view, kPrefetchGroup> keys;
      for (std::size_t i = k; i < group->end; ++i) keys[i - k] = keys_[order_[i].index];
      tree_.DescendTogether(std::span(keys).first(group->end - k), group->leaves);
    }
    const Reached& leaf = group->leaves[k - group->begin];
    return leaf.line != nullptr && sync::VersionLock(leaf.line->version).LockIf(leaf.version) ? leaf.line : nullptr;
  }
  // Returns nullptr if the leaf is not in memory or there was an error.
  Line* Lock(std::string_view key) {
    if (leaves_.empty() && !is_read_only_) {
      Line* const leaf = tree_.LockLeafByCall(writer_, key);
      if (leaf == nullptr) status_ = update::ErrorOf(writer_);
      return leaf;
    }
    if (leaves_.empty()) tree_.space_.gate().Pass(writer_);  // LockLeafByCall would capture the leaf
    return LockReached([&](Reached* leaf) { return tree_.DescendTo(0, key, leaf); });
  }
  // Locks the leaf in which the range begins. See Lock.
  Line* LockFrom(const Range& range) {
    if (range.has_from) return Lock(range.from);
    if (leaves_.empty()) tree_.space_.gate().Pass(writer_);
    return LockReached([&](Reached* leaf) { return tree_.DescendToFirst(leaf); });
  }
  template <class F>
  Line* LockReached(F&& descend) {
    for (sync::Backoff backoff;; backoff.Pause()) {
      Reached leaf;
      if (descend(&leaf)) {
        if (sync::VersionLock(leaf.line->version).LockIf(leaf.version)) return leaf.line;
      } else if constexpr (!Space::kResident) {
        if (leaf.line != nullptr && tree_.space_.IsEvicted(tree_.IdOf(*leaf.line))) return nullptr;
      }
    }
  }

  // Loads the leaves that are not in memory, while nothing is locked.
  Status LoadAll() {
    std::array<std::string_view, kPrefetchGroup> group;
    Reached leaves[kPrefetchGroup];
    for (std::size_t from = 0, n = 0; from < order_.size(); from += n) {
      n = std::min(order_.size() - from, kPrefetchGroup);
      for (std::size_t i = 0; i < n; ++i) group[i] = keys_[order_[from + i].index];
      if constexpr (!Space::kResident) {
        EvictedLeaves evicted;
        tree_.DescendTogether(std::span(group).first(n), leaves, &evicted);
        const auto end = std::unique(evicted.ids.begin(), evicted.ids.begin() + static_cast<std::ptrdiff_t>(evicted.count));
        const std::span<const std::uint32_t> ids(evicted.ids.begin(), end);
        if (held_) held_->MakeRoomFor(ids.size());
        if (ids.size() > 1) tree_.space_.LoadPages(ids, 0, false);
        for (std::size_t i = 0; i < n; ++i) HAKO_RETURN_IF_ERROR(Load(group[i]));
      }
    }
    for (const Range& range : ranges_) HAKO_RETURN_IF_ERROR(LoadRange(range));
    return absl::OkStatus();
  }
  Status Load(std::string_view key) {
    return LoadReached([&](Reached* leaf) { return tree_.DescendTo(0, key, leaf); });
  }
  template <class F>
  Status LoadReached([[maybe_unused]] F&& descend) {
    if constexpr (!Space::kResident) {
      for (sync::Backoff backoff;; backoff.Pause()) {
        Reached leaf;
        const bool reached = descend(&leaf);
        if (leaf.line == nullptr || (!reached && leaf.level != 0 && !tree_.space_.IsEvicted(tree_.IdOf(*leaf.line)))) continue;
        if (!tree_.space_.IsEvicted(tree_.IdOf(*leaf.line)) && (!held_ || held_->Add(tree_.IdOf(*leaf.line)))) return absl::OkStatus();
        HAKO_RETURN_IF_ERROR(tree_.LoadIfEvicted(leaf));
      }
    }
    return absl::OkStatus();
  }
  Status LoadRange(const Range& range) {
    if constexpr (!Space::kResident) {
      Copy copy;
      std::string from(range.from);
      for (bool is_first = true;; is_first = false) {
        const bool is_from_least = is_first && !range.has_from;
        if (held_) held_->MakeRoomFor(1);
        HAKO_RETURN_IF_ERROR(tree_.ReadLeaf(is_from_least ? Seek::kFirst : Seek::kAt, from, &copy, !is_first));  // reads ahead
        HAKO_RETURN_IF_ERROR(is_from_least ? LoadReached([&](Reached* leaf) { return tree_.DescendToFirst(leaf); }) : Load(from));
        const View page = copy.view();
        if (IsLastOf(range, page)) break;
        from.assign(page.high(page.tail()));
      }
    }
    return absl::OkStatus();
  }

  Status status_;
  unsigned tries_ = 0;
  std::optional<typename Space::HeldPages> held_;
};

}  // namespace hako::tree
