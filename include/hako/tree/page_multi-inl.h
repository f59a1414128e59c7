// Definitions of tree/page_tree.h: updates of several keys and ranges that are atomic for other
// threads.
#pragma once

#include <algorithm>
#include <map>

#include "hako/tree/page_multi_locks-inl.h"
#include "hako/tree/page_tree.h"
#include "hako/update/decisions.h"
#include "hako/update/logging.h"

namespace hako::tree {

// A writer's update of several leaves. Before the first change, the visitor decides on all keys,
// and all steps that can fail are made; the last of these appends the whole update to the log, as
// one run. When a leaf is split, both halves stay locked. Long values are read before the first
// lock and never while one is held, except for a capture (sync/captured_ranges.h): if the locked
// leaves name long values that the visitor needs and that were not read, all leaves are unlocked,
// the values read, and the leaves locked again.
template <class Space, Comparator Compare>
template <class ActionT>
class PageTree<Space, Compare>::MultiGuard : private LockedLeaves {
  using Leaves = LockedLeaves;
  using Leaves::keys_;
  using Leaves::leaf_of_;
  using Leaves::leaves_;
  using Leaves::order_;
  using Leaves::ranges_;
  using Leaves::tree_;
  using Leaves::writer_;

 public:
  MultiGuard(PageTree& tree, WriterState& writer, const Batch<ActionT>& batch)
      : Leaves(tree, writer, batch.keys, batch.shown_ranges.empty() ? batch.removed_ranges : batch.shown_ranges, batch.is_read_only),
        batch_(batch),
        decisions_(batch.keys.size()) {
    HAKO_DCHECK(AreAscending(ranges_));
    HAKO_DCHECK(batch.shown_ranges.empty() || batch.removed_ranges.empty());
    sparse_.reserve(batch.keys.size());
  }
  ~MultiGuard() {
    for (const Decision& decision : decisions_) {  // long values that no cell names
      if (decision.stored.place != 0) tree_.space_.FreeLong(decision.stored, deferred_);
    }
    for (Line* line : halves_) tree_.Unlock(line, changed_);
    this->UnlockAll(changed_);
    this->ReleaseHeld(changed_);
    deferred_.Finish();  // before the thread pauses, because other threads may wait for its values
    tree_.EndWrite(writer_, changed_);
    for (const std::size_t i : sparse_) {
      LeafGuard guard(tree_, writer_, tree_.LockLeafByCall(writer_, keys_[i]));
      if (guard.line == nullptr || !tree_.shape_.IsSparse(*guard.line)) continue;
      guard.changed = true;
      tree_.shape_.Merge(writer_, std::exchange(guard.line, nullptr), keys_[i]);
    }
    HAKO_TRY {
      for (const Range& range : ranges_) MergeIn(range);
    }
    HAKO_CATCH_NO_MEMORY()  // the leaves stay sparse
  }

  // Whether no range is empty and each ends before the next one begins.
  static bool AreAscending(std::span<const Range> ranges) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (!ranges[i].has_from && i == 0) continue;
      if (!ranges[i].has_from) return false;
      if (ranges[i].to && Compare::Compare(ranges[i].from, *ranges[i].to) >= 0) return false;
      if (i != 0 && (!ranges[i - 1].to || Compare::Compare(*ranges[i - 1].to, ranges[i].from) > 0)) return false;
    }
    return true;
  }
  // Decides on each key, in the order of the caller, then makes the changes.
  Status Run() {
    HAKO_RETURN_IF_ERROR(AcquireWithLongValues());
    HAKO_RETURN_IF_ERROR(ShowRanges());
    HAKO_RETURN_IF_ERROR(Decide());
    HAKO_RETURN_IF_ERROR(Prepare());
    HAKO_RETURN_IF_ERROR(Log());
    RemoveRanges();
    Status applied = CatchNoMemory([&] { return Apply(); });
    EndReservation();
    if (!applied.ok()) update::RefuseUpdates(tree_.space_, applied);
    return applied;
  }

 private:
  // Which spelling of the key a Set stores, and whether the old record is removed first.
  struct Spelling {
    std::size_t key = 0;
    bool renews = false;
  };
  struct NoSpelling {
    static constexpr bool renews = false;
  };
  struct Decision : update::Decision<ActionT> {
    [[no_unique_address]] std::conditional_t<PageTree::kHasSpellings, Spelling, NoSpelling> spelling{};
    std::optional<std::size_t> old_size;  // of the value in the page, if it was shown
    format::OverflowValue stored{};       // a long value, stored before any change

    bool SetsLong(std::size_t value_max) const { return this->Sets() && this->action.value().size() > value_max; }
    void Replace(std::size_t i, const ActionT& by) {
      if constexpr (PageTree::kHasSpellings) {
        if (by.kind() == ActionT::Kind::kSet && !this->Sets()) spelling = {i, spelling.renews || this->Removes()};
      }
      this->action = by;
    }
  };

  // The key to be stored for the decision at `i`.
  std::string_view KeyOf(std::size_t i) const {
    if constexpr (PageTree::kHasSpellings) {
      if (decisions_[i].Sets()) return keys_[decisions_[i].spelling.key];
    }
    return keys_[i];
  }

  // May read a long value with the leaf locked, as a capture may (tree/leaf_captures.h).
  Status ShowRanges() {
    Status status;
    KeyBuffer key;
    if (RemovesRanges()) return status;
    this->ForEachInRanges([&](Line& leaf, unsigned begin, unsigned end) {
      const View page(tree_.memory_, leaf);
      for (unsigned i = begin; i < end && status.ok(); ++i) {
        Pages::Builder::CopyKeyOf(page, i, &key);
        const char* const cell = page.cell(i);
        const format::Cell sizes = View::Decode(cell);
        const std::string_view content = ContentOf(cell, sizes);
        if (!sizes.is_long) {
          (*batch_.show)(key, content);
          continue;
        }
        LongRead read(tree_.space_);
        while (!read.Has(LongValueIn(content))) read.Read();
        status = read.status();
        if (status.ok()) (*batch_.show)(key, read.bytes());
      }
    });
    return status;
  }
  bool RemovesRanges() const { return batch_.shown_ranges.empty(); }

  Status Decide() {
    update::JoinSorted(
        std::span(decisions_), [this](std::size_t n) { return order_[n].index; },
        [this](std::size_t n) { return this->IsSame(order_[n - 1], order_[n]); });
    const auto show = [this](std::size_t i, Decision& decision, std::optional<std::string_view>* value, Status* status) {
      if (i >= batch_.num_shown) return true;
      const auto place = View(tree_.memory_, *leaf_of_[i]).FindByCall(keys_[i]);
      if (!place.found) return true;
      if (!place.sizes.is_long) {
        *value = ContentOf(place);
        decision.old_size = place.sizes.value;
        return true;
      }
      *status = ShowLong(decision.first, value);
      return status->ok();
    };
    return update::Decide(std::span(decisions_), batch_.visit, show);
  }

  Status ShowLong(std::size_t index, std::optional<std::string_view>* value) {
    const auto found = long_values_.find(index);
    if (found == long_values_.end()) return absl::DataLossError("a page refers to a long value, but the tree has none");
    HAKO_RETURN_IF_ERROR(found->second.status());
    *value = found->second.bytes();
    return absl::OkStatus();
  }

  // Makes all steps that can fail, except logging: checks that there is room, reserves memory,
  // marks the leaves dirty, stores long values.
  Status Prepare() {
    static constexpr std::uint64_t kSlack = 32;  // bytes of a record's slot and of the header of its cell
    std::uint64_t num_sets = 0, num_growing = 0, num_leaves = 0, bytes = 0;
    const Line *last_set = nullptr, *last_marked = nullptr;
    bool has_long = false;
    for (const auto& key : order_) {
      const Decision& decision = decisions_[key.index];
      if (!decision.Sets()) continue;
      const std::size_t size = decision.action.value().size();
      if (size > kValueSizeMax) return TooLargeError("a value", size, kValueSizeMax);
      has_long = has_long || size > tree_.value_max_;
      bytes += 4 * (KeyOf(key.index).size() + std::min<std::size_t>(size, tree_.value_max_) + kSlack);
      num_leaves += std::exchange(last_set, leaf_of_[key.index]) != leaf_of_[key.index] ? 1u : 0u;
      ++num_sets;
      num_growing += decision.old_size && size <= *decision.old_size && !decision.spelling.renews ? 0u : 1u;
    }
    HAKO_RETURN_IF_ERROR(EvictForSets(num_sets));
    const bool has_limit = tree_.has_byte_limit_;  // then Reserve makes room
    if (num_sets != 0 && !has_limit && !tree_.space_.HasRoomFor(3 * num_leaves * tree_.page_size_ + bytes)) return NoMemory();
    if (num_growing != 0) ReserveForSplits(num_growing);
    if (RemovesRanges())
      this->ForEachInRanges([this](Line& leaf, unsigned, unsigned) { is_marked_ = is_marked_ && tree_.TryMarkDirty(leaf); });
    if (!is_marked_) return NoMemory();
    for (const auto& key : order_) {
      if (decisions_[key.index].Keeps() || leaf_of_[key.index] == last_marked) continue;
      last_marked = leaf_of_[key.index];
      if (!tree_.TryMarkDirty(*leaf_of_[key.index])) return NoMemory();
    }
    for (Decision& decision : std::span(decisions_).first(has_long ? decisions_.size() : 0)) {
      if (!decision.SetsLong(tree_.value_max_)) continue;
      StatusOr<format::OverflowValue> stored = tree_.StoreLong(decision.action.value(), deferred_);
      while (!stored.ok() && has_limit && Evict()) stored = tree_.StoreLong(decision.action.value(), deferred_);
      HAKO_RETURN_IF_ERROR(stored.status());
      decision.stored = *stored;
    }
    return num_sets != 0 && has_limit ? Reserve() : absl::OkStatus();
  }
  // Evicts a few records of other keys. Returns false if it can evict none.
  bool Evict() {
    if constexpr (LimitedPageSpace<Space>) {
      if (sorted_leaves_.empty()) {
        sorted_leaves_.assign(leaves_.begin(), leaves_.end());
        std::ranges::sort(sorted_leaves_);
      }
      const auto has = [this](const Line& line) { return std::ranges::binary_search(sorted_leaves_, &line); };
      const auto keeps = [this](std::string_view key) { return this->HasKey(key); };
      OwnLeaves own{has, keeps};
      const bool has_evicted = tree_.eviction_.EvictForMemory(writer_, &own);
      changed_ = changed_ || own.changed;
      return has_evicted;
    }
    return false;
  }
  // Reserves the most additional memory that the pages may need at any moment for all Sets.
  Status Reserve() {
    std::uint64_t bytes = 0;
    for (std::size_t n = 0; n < order_.size();) {
      Line& leaf = *leaf_of_[order_[n].index];
      const Editor page(tree_.space_, leaf);
      std::uint64_t added = 0, keys = 0;
      unsigned slots = page.shape().count;
      for (; n < order_.size() && leaf_of_[order_[n].index] == &leaf; ++n) {
        const Decision& decision = decisions_[order_[n].index];
        if (!decision.Sets()) continue;
        const std::string_view key = KeyOf(order_[n].index);
        const bool is_long = decision.SetsLong(tree_.value_max_);
        const auto cell = [&](std::size_t suffix) {
          return format::Cell::For(suffix, is_long ? sizeof(format::OverflowValue) : decision.action.value().size(), is_long);
        };
        const auto place = page.view().FindByCall(key);
        if (place.found && !decision.spelling.renews && cell(place.sizes.suffix).Size(View::kInlined) <= place.sizes.Size(View::kInlined))
          continue;
        added += cell(key.size()).Size(0);
        keys += key.size();
        slots += place.found ? 0 : 1;
      }
      if (added == 0 || (!page.shape().guarded() && added <= page.shape().room() && slots <= page.shape().slots())) continue;
      // The new pages are three quarters full. Each has a line, and a slot above.
      const std::uint64_t filled = (page.shape().size() + added + std::uint64_t{slots} * page.shape().slot_size()) * 4 / 3;
      bytes += filled + (filled / tree_.page_size_ + 1) * kOfNewPage + keys;
    }
    if (bytes != 0) bytes += kPagesAside * tree_.page_size_;
    while (!reservation_.Take(bytes, true)) {
      if (!Evict()) return absl::ResourceExhaustedError("the batch leaves too few records that could be evicted to make room for it");
    }
    return absl::OkStatus();
  }
  // Evicts records if the reservation was too small.
  void EvictIfExceeded() {
    if constexpr (LimitedPageSpace<Space>) {
      if (reservation_.HasExceeded()) [[unlikely]] {
        EndReservation();
        (void)reservation_.Take(0, true);
      }
    }
  }
  // Call after the changes.
  void EndReservation() {
    if constexpr (LimitedPageSpace<Space>) {
      if (!tree_.has_byte_limit_) return;
      while (!reservation_.End() && Evict()) (void)reservation_.Take(0, true);
    }
  }
  Status EvictForSets(std::uint64_t num_sets) {
    if constexpr (LimitedPageSpace<Space>) {
      if (!tree_.is_limited_ || num_sets == 0) return absl::OkStatus();
      const Capacity& capacity = tree_.space_.limit()->capacity();
      HAKO_RETURN_IF_ERROR(capacity.CheckBatch(num_sets));
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        if (!decisions_[i].Sets()) continue;
        HAKO_RETURN_IF_ERROR(capacity.CheckValue(decisions_[i].action.value().size()));
        bytes += KeyOf(i).size() + decisions_[i].action.value().size() + kOverhead;
      }
      HAKO_RETURN_IF_ERROR(capacity.CheckBatchBytes(bytes));
      std::uint64_t inserted = 0;
      for (const auto& key : order_) {
        if (!decisions_[key.index].Sets()) continue;
        const auto place = View(tree_.memory_, *leaf_of_[key.index]).FindByCall(keys_[key.index]);
        tree_.NoteUse(leaf_of_[key.index], place);
        inserted += place.found ? 0u : 1u;
      }
      if (inserted != 0) tree_.eviction_.EvictForInsertion(writer_, inserted);
    }
    return absl::OkStatus();
  }
  // A record may need several splits, each of which halves the page. There are no more splits than
  // records.
  void ReserveForSplits(std::uint64_t num_growing) {
    const std::uint64_t splits = std::min(kSplitsMax * num_growing, format::kPageSlotsMax * leaves_.size() + num_growing);
    halves_.reserve(kSplitsMax);
    ahead_.reserve(std::min<std::uint64_t>(splits, format::kPageSlotsMax));
    if constexpr (!Space::kResident) tree_.space_.ReserveDirty(2 * (splits + leaves_.size()));  // with the pages above
    leaves_.reserve(leaves_.size() + splits);
  }

  // The ranges are logged first, in the order of RemoveRanges and Apply. Updates with an applied
  // index are in the log in the order in which they set it.
  Status Log() {
    if (!batch_.applied_index) return Append();
    sync::MutexLock lock(tree_.applied_mutex_);
    HAKO_RETURN_IF_ERROR(Append());
    tree_.SetAppliedIndex(*batch_.applied_index);
    return absl::OkStatus();
  }
  Status Append() {
    const std::size_t count = batch_.removed_ranges.size() + keys_.size();
    return update::LogBatch(tree_.space_, writer_, count, batch_.applied_index, [this](update::LogRun& run) {
      for (const Range& range : batch_.removed_ranges) run.RemoveRange(range.from, range.to);
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        const Decision& decision = decisions_[i];
        if (decision.Removes() || decision.spelling.renews) run.Remove(keys_[i]);
        if (decision.Sets()) run.Set(KeyOf(i), decision.action.value());
      }
    });
  }

  void RemoveRanges() {
    if (!RemovesRanges()) return;
    this->ForEachInRanges([this](Line& leaf, unsigned begin, unsigned end) {
      Change(leaf);
      for (unsigned i = end; i > begin; --i) tree_.RemoveSlot(leaf, i - 1, deferred_);
      tree_.count_.Add(writer_, -static_cast<std::int64_t>(end - begin));
      has_removed_ = true;
    });
  }

  Status Apply() {
    std::size_t leaf = 0, whole = 0;  // the current one, and the one that it was before any split
    const Line* locked = leaves_.empty() ? nullptr : leaves_[0];
    for (std::size_t n = 0; n < order_.size(); ++n) {
      const std::size_t i = order_[n].index;
      PrefetchBehind(n);
      Decision& decision = decisions_[i];
      if (decision.Keeps()) continue;
      if (leaf_of_[i] != locked) {
        ahead_.clear();
        do ++whole;
        while (leaves_[whole] != leaf_of_[i]);
        leaf = whole;
        locked = leaf_of_[i];
      }
      for (; !ahead_.empty() && !this->Covers(*leaves_[leaf], keys_[i]); ahead_.pop_back()) leaf = ahead_.back();
      auto place = View(tree_.memory_, *leaves_[leaf]).FindByCall(keys_[i]);
      if (decision.Sets()) {
        if (decision.spelling.renews && place.found) {
          Remove(*leaves_[leaf], place.index);
          place = View(tree_.memory_, *leaves_[leaf]).FindByCall(keys_[i]);
        }
        HAKO_RETURN_IF_ERROR(Set(leaf, KeyOf(i), decision.action.value(), decision.stored, place));
        decision.stored = {};
        EvictIfExceeded();
      } else if (place.found) {
        Remove(*leaves_[leaf], place.index);
        if (tree_.shape_.IsSparse(*leaves_[leaf])) sparse_.push_back(i);
      }
    }
    return absl::OkStatus();
  }
  // Prefetches the leaves of later keys: in a large update, the leaves that were locked first are
  // no longer in the processor's caches.
  void PrefetchBehind(std::size_t n) {
    static constexpr std::size_t kLarge = 256, kLines = 16, kSlots = 8, kCells = 4;
    if (order_.size() < kLarge || n + kLines >= order_.size()) return;
    hako::Prefetch(leaf_of_[order_[n + kLines].index]);
    const std::size_t slots = order_[n + kSlots].index, cell = order_[n + kCells].index;
    View(tree_.memory_, *leaf_of_[slots]).PrefetchSlots(keys_[slots]);
    View(tree_.memory_, *leaf_of_[cell]).PrefetchCell(keys_[cell]);
  }

  void Change(Line& leaf) {
    tree_.space_.MarkDirty(leaf);
    changed_ = true;
  }

  void Remove(Line& leaf, unsigned i) {
    Change(leaf);
    tree_.RemoveSlot(leaf, i, deferred_);
    tree_.count_.Add(writer_, -1);
  }

  // Stores into leaves_[leaf]. If that leaf is split, the part with the key replaces it in leaves_.
  // The other parts are appended to leaves_; those after the key come next.
  Status Set(std::size_t leaf, std::string_view key, std::string_view value, const format::OverflowValue& stored,
             typename View::Place place) {
    SplitResult halves{leaves_[leaf], &halves_};
    Change(*halves.wanted);
    if (place.found && !place.sizes.is_long && place.sizes.value == value.size() && stored.place == 0) {
      sync::StoreShared(const_cast<char*>(ContentOf(place).data()), value.data(), value.size());
      return absl::OkStatus();
    }
    const bool is_long = stored.place != 0 || place.sizes.is_long;
    const Status status = is_long ? tree_.StoreSlowly(&halves, key, value, stored, place, &deferred_, nullptr)
                                  : tree_.StoreByCall(&halves, key, value, place, nullptr);
    if (!halves_.empty()) [[unlikely]] {
      std::ranges::sort(halves_, [this](Line* a, Line* b) { return IsBelow(*b, *a); });
      for (Line* const half : halves_) {
        leaves_.push_back(half);
        if (IsBelow(*leaves_[leaf], *half)) ahead_.push_back(leaves_.size() - 1);
      }
      halves_.clear();
    }
    if (status.ok() && !place.found) tree_.count_.Add(writer_, 1);
    return status;
  }
  bool IsBelow(Line& a, Line& b) const {
    const View x(tree_.memory_, a), y(tree_.memory_, b);
    if ((y.tail().edges & format::PageTail::kNoLow) != 0) return false;
    if ((x.tail().edges & format::PageTail::kNoLow) != 0) return true;
    return Compare::Compare(x.low(x.tail()), y.low(y.tail())) < 0;
  }

  // Call after the update. Joins sparse leaves of the range, leaf by leaf.
  void MergeIn(const Range& range) {
    if (!has_removed_) return;
    for (std::string from(range.from);;) {
      LeafGuard guard(tree_, writer_, tree_.LockLeafByCall(writer_, from));
      if (guard.line == nullptr) return;
      const View page(tree_.memory_, *guard.line);
      const bool last = IsLastOf(range, page);
      std::string next(last ? std::string_view() : page.high(page.tail()));
      if (tree_.shape_.IsSparse(*guard.line)) {
        guard.changed = true;
        tree_.shape_.Merge(writer_, std::exchange(guard.line, nullptr), from);
      }
      if (last) return;
      from = std::move(next);
    }
  }

  // The read of a key's long value, and whether it has read the value that the leaf names now.
  struct LongLook : LongRead {
    using LongRead::LongRead;
    bool has = false;
  };
  Status AcquireWithLongValues() {
    for (;;) {
      HAKO_RETURN_IF_ERROR(this->Acquire());
      if (HasLongValues()) return absl::OkStatus();
      this->UnlockAll(false);
      for (auto& [i, read] : long_values_) {
        if (!read.has) read.Read();
      }
    }
  }
  // Whether all long values that the locked leaves name and the visitor needs have been read.
  bool HasLongValues() {
    if (!tree_.space_.has_long_values()) return true;
    bool has_all = true;
    for (std::size_t n = 0; n < order_.size(); ++n) {
      const std::size_t i = order_[n].index;
      if (i >= batch_.num_shown || (n > 0 && this->IsSame(order_[n - 1], order_[n]))) continue;
      const auto place = View(tree_.memory_, *leaf_of_[i]).FindByCall(keys_[i]);
      if (!place.found || !place.sizes.is_long) continue;
      LongLook& read = long_values_.try_emplace(i, tree_.space_).first->second;
      read.has = read.Has(LongValueIn(ContentOf(place)));
      has_all = has_all && read.has;
    }
    return has_all;
  }

  static constexpr std::size_t kSplitsMax = 10;  // for one record
  // Bytes, beside key and value, of a record in a batch; of a new page; and pages that are built beside those that they replace.
  static constexpr std::uint64_t kOverhead = 16, kOfNewPage = 160, kPagesAside = 4;

  const Batch<ActionT>& batch_;
  absl::InlinedVector<Decision, Leaves::kUsualKeys> decisions_;
  Halves halves_;  // locked: the other parts of the leaf that is being split
  // Indices in leaves_ of the parts of the current leaf that follow the part in use. The last
  // element is the next part.
  absl::InlinedVector<std::size_t, Leaves::kUsualKeys> ahead_;
  absl::InlinedVector<std::size_t, Leaves::kUsualKeys> sparse_;
  absl::InlinedVector<const Line*, Leaves::kUsualKeys> sorted_leaves_;  // leaves_ by address, for Evict
  // Keyed by the index of the first of equal keys; valid until the call returns.
  std::map<std::size_t, LongLook> long_values_;
  // Finishes after everything is unlocked; it may store one of long_values_.
  Deferred deferred_{tree_.space_};
  typename PageTree::Reservation reservation_{tree_.space_};
  bool changed_ = false, has_removed_ = false, is_marked_ = true;
};

template <class Space, Comparator Compare>
template <class ActionT>
Status PageTree<Space, Compare>::ProcessMulti(WriterState& writer, const Batch<ActionT>& batch) {
  if (batch.IsEmpty()) return absl::OkStatus();
  return MultiGuard<ActionT>(*this, writer, batch).Run();
}

}  // namespace hako::tree
