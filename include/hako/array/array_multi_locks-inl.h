// Definitions of array/page_array.h: the leaves of an update of several records and ranges.
#pragma once

#include "hako/array/page_array.h"

namespace hako::array {

// Locks together the leaves of all ids and the existing leaves of all ranges, in ascending order.
// If an id has no leaf, or there are ranges, it then locks structure_mutex_, so that no other
// thread makes a leaf. A leaf of a range that was made after the look-up is only tried. Pages are
// loaded while nothing is locked. If there are many, they are held in memory (Space::HeldPages)
// until all are locked.
template <class Space>
class PageArray<Space>::LockedLeaves {
 protected:
  static constexpr std::size_t kUsual = 16;  // records that need no allocation
  struct Leaf {
    std::uint64_t number;
    Line* line = nullptr;  // locked; nullptr: it does not exist
    bool changes = false, may_be_empty = false;
  };

  LockedLeaves(PageArray& array, WriterState& writer, std::span<const std::uint64_t> ids, std::span<const IdRange> ranges,
               std::size_t range_leaves_max)
      : array_(array), writer_(writer), ids_(ids), ranges_(ranges), range_leaves_max_(range_leaves_max) {
    order_.resize(ids.size());
    for (std::uint32_t i = 0; i < ids.size(); ++i) order_[i] = i;
    const auto is_below = [&](std::uint32_t a, std::uint32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; };
    if (!std::ranges::is_sorted(order_, is_below)) std::ranges::sort(order_, is_below);
    leaf_of_.resize(ids.size());
  }
  LockedLeaves(const LockedLeaves&) = delete;
  ~LockedLeaves() = default;

  Status Acquire() {
    for (unsigned tries = 0;; ++tries) {
      if (tries == 0 || !ranges_.empty()) HAKO_RETURN_IF_ERROR(Collect());
      std::optional<Reached> missing;
      bool is_large = false;
      const bool locked = LockAll(&missing);
      if constexpr (!Space::kResident) is_large = locked && !held_ && array_.space_.IsLarge(leaves_.size());
      if (locked && !is_large) {
        for (const Leaf& leaf : leaves_) array_.CaptureIfAsked(leaf.number, leaf.line);
        return absl::OkStatus();
      }
      UnlockAll(false);
      if (missing) HAKO_RETURN_IF_ERROR(array_.LoadIfEvicted(*missing));
      if (!held_ && (is_large || tries >= kTriesMax)) held_.emplace(array_.space_);
      if (held_) HAKO_RETURN_IF_ERROR(HoldAll());
    }
  }
  void UnlockAll(bool changed) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (std::exchange(has_mutex_, false)) array_.structure_mutex_.Unlock();
    for (Leaf& leaf : leaves_) {
      if (leaf.line != nullptr) array_.Unlock(std::exchange(leaf.line, nullptr), changed && leaf.changes);
    }
    if (std::exchange(is_busy_, false)) writer_.Leave();
  }
  // Call after UnlockAll.
  void ReleaseHeld(bool changed) {
    if (held_) held_->Release(changed);
    held_.reset();
  }
  // Calls body(leaf, begin, end) for the part of each range in each locked leaf.
  template <class F>
  void ForEachInRanges(F&& body) {
    for (const IdRange& range : ranges_) {
      for (auto leaf = std::ranges::lower_bound(leaves_, array_.PlaceOf(range.from).leaf, {}, &Leaf::number);
           leaf != leaves_.end() && array_.FirstIdOf(leaf->number) < range.to; ++leaf) {
        if (leaf->line == nullptr) continue;
        const auto [begin, end] = array_.PartOf(range, leaf->number);
        body(*leaf, begin, end);
      }
    }
  }

  PageArray& array_;
  WriterState& writer_;
  const std::span<const std::uint64_t> ids_;
  const std::span<const IdRange> ranges_;
  const std::size_t range_leaves_max_;
  absl::InlinedVector<std::uint32_t, kUsual> order_;    // of ids_, ascending; of equal ids the first one first
  absl::InlinedVector<std::uint32_t, kUsual> leaf_of_;  // by id
  absl::InlinedVector<Leaf, kUsual> leaves_;            // ascending

 private:
  static constexpr unsigned kTriesMax = 2;  // after these, pages are held until all are locked

  // Looks up the leaves. Call with nothing locked.
  Status Collect() {
    leaves_.clear();
    for (const std::uint32_t i : order_) {
      const std::uint64_t leaf = array_.PlaceOf(ids_[i]).leaf;
      if (leaves_.empty() || leaves_.back().number != leaf) leaves_.push_back({leaf});
    }
    const std::size_t num_others = leaves_.size();
    for (const IdRange& range : ranges_) {
      const std::uint64_t last = array_.PlaceOf(range.to - 1).leaf;
      for (std::uint64_t leaf = array_.PlaceOf(range.from).leaf; leaf <= last; ++leaf) {
        std::optional<std::uint64_t> next;
        std::uint64_t damaged;
        unsigned level;
        HAKO_RETURN_IF_ERROR(array_.NextLeaf(leaf, true, &next, &damaged, &level));
        if (!next || *next > last) break;
        leaves_.push_back({leaf = *next});
        if (leaves_.size() - num_others > range_leaves_max_) return TooManyLeaves();
      }
    }
    SortLeaves();
    return absl::OkStatus();
  }
  [[gnu::cold]] Status TooManyLeaves() const {
    return absl::OutOfRangeError(absl::StrCat("a batch that removes ranges: their records are on more than ", range_leaves_max_,
                                              " pages, which is the limit; RemoveRange has none"));
  }
  void SortLeaves() {
    if (!ranges_.empty()) {
      std::ranges::sort(leaves_, {}, &Leaf::number);
      const auto is_same = [](const Leaf& a, const Leaf& b) { return a.number == b.number; };
      leaves_.erase(std::unique(leaves_.begin(), leaves_.end(), is_same), leaves_.end());
    }
    std::uint32_t at = 0;
    for (const std::uint32_t i : order_) {
      while (leaves_[at].number != array_.PlaceOf(ids_[i]).leaf) ++at;
      leaf_of_[i] = at;
    }
  }

  // Returns false if a page must be loaded, and sets *missing to it, or if another thread has made
  // a leaf since Collect.
  bool LockAll(std::optional<Reached>* missing) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    array_.space_.gate().Pass(writer_);
    is_busy_ = true;
    bool are_there = true;
    for (Leaf& leaf : leaves_) {
      if (!LockOne(&leaf, missing)) return false;
      are_there = are_there && leaf.line != nullptr;
    }
    if (are_there && ranges_.empty()) return true;
    array_.structure_mutex_.Lock();
    has_mutex_ = true;
    const bool are_all = std::ranges::all_of(leaves_, [&](const Leaf& leaf) {
      Reached reached;
      if (leaf.line != nullptr) return true;
      const Way way = array_.Find(leaf.number, &reached);
      if (way == Way::kBlocked && array_.IsEvicted(reached)) *missing = reached;
      return way == Way::kAbsent;
    });
    return are_all && (ranges_.empty() || LockNew(missing));
  }
  bool LockOne(Leaf* leaf, std::optional<Reached>* missing) {
    for (sync::Backoff backoff;; backoff.Pause()) {
      Reached reached;
      const Way way = array_.Find(leaf->number, &reached);
      if (way == Way::kAbsent) return true;
      if (way == Way::kBlocked && array_.IsEvicted(reached)) return *missing = reached, false;
      if (way == Way::kLeaf && Lock(reached.line->version).LockIf(reached.version)) return leaf->line = reached.line, true;
    }
  }
  // Locks the leaves of the ranges that were made since Collect. Call with structure_mutex_ held.
  bool LockNew(std::optional<Reached>* missing) {
    const std::size_t known = leaves_.size();
    for (const IdRange& range : ranges_) {
      const std::uint64_t last = array_.PlaceOf(range.to - 1).leaf;
      for (std::uint64_t leaf = array_.PlaceOf(range.from).leaf; leaf <= last; ++leaf) {
        Reached reached;
        Way way;
        do way = array_.TryNextLeaf(&leaf, true, &reached);
        while (way == Way::kRaced);
        if (way == Way::kAbsent || (way == Way::kLeaf && leaf > last)) break;
        if (way == Way::kLeaf && IsLocked(leaf, known)) continue;
        if (way == Way::kLeaf) way = array_.Find(leaf, &reached);
        if (way == Way::kLeaf && Lock(reached.line->version).LockIf(reached.version)) {
          leaves_.push_back({leaf, reached.line});
          continue;
        }
        if (array_.IsEvicted(reached)) *missing = reached;
        return false;
      }
    }
    if (leaves_.size() != known) SortLeaves();
    return true;
  }
  // Whether the leaf is locked already: it is one of the first `known` leaves, or the last leaf of
  // the range before, which this range shares.
  bool IsLocked(std::uint64_t leaf, std::size_t known) const {
    const auto begin = leaves_.begin(), end = begin + static_cast<std::ptrdiff_t>(known);
    const auto found = std::ranges::lower_bound(begin, end, leaf, {}, &Leaf::number);
    return (found != end && found->number == leaf) || (leaves_.size() > known && leaves_.back().number == leaf);
  }
  // Loads the leaves and keeps them in memory until ReleaseHeld. Call with nothing locked.
  Status HoldAll() {
    held_->MakeRoomFor(leaves_.size());
    for (const Leaf& leaf : leaves_) {
      for (sync::Backoff backoff;; backoff.Pause()) {
        Reached reached;
        const Way way = array_.Find(leaf.number, &reached);
        if (way == Way::kAbsent) break;
        if (way == Way::kRaced) continue;
        if (reached.level == 0 && !array_.IsEvicted(reached) && held_->Add(array_.IdOf(*reached.line))) break;
        HAKO_RETURN_IF_ERROR(array_.LoadIfEvicted(reached));
      }
    }
    held_->MakeRoomFor(0);
    return absl::OkStatus();
  }

  bool is_busy_ = false, has_mutex_ = false;
  std::optional<typename Space::HeldPages> held_;
};

}  // namespace hako::array
