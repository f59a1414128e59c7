// Definitions of tree/page_tree.h: updates of several keys that are atomic for other threads.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>

#include "hako/tree/page_tree.h"

namespace hako::tree {

// A writer's access to several leaves. All are locked in key order and stay locked until the end,
// so that other threads see all of the update or nothing; when a leaf is split meanwhile, both
// halves stay locked. All keys are decided on before the first change, and steps that can fail are
// tried before it. Pages and long values are loaded before the first lock and never while one is
// held: if the locked leaves name long values that were not read, all leaves are unlocked, the
// values read, and the leaves locked again.
template <class Space, Comparator Compare>
class PageTree<Space, Compare>::MultiGuard {
 public:
  MultiGuard(PageTree& tree, WriterState& writer, std::span<const std::string_view> keys) : tree_(tree), writer_(writer), keys_(keys) {
    order_.resize(keys.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_, [keys](std::size_t a, std::size_t b) {
      const int order = Compare::Compare(keys[a], keys[b]);
      return order != 0 ? order < 0 : a < b;
    });
    leaf_of_.resize(keys.size());
    leaves_.reserve(keys.size());
    sparse_.reserve(keys.size());
  }
  MultiGuard(const MultiGuard&) = delete;
  ~MultiGuard() {
    for (Line* line : halves_) tree_.Unlock(line, changed_);
    UnlockAll(changed_);
    if constexpr (!Space::kResident) {
      if (held_) held_->Release(changed_);
      held_.reset();
    }
    deferred_.Finish();  // before this thread pauses: other threads may be waiting for its values
    tree_.EndWrite(writer_, changed_);
    for (const std::size_t i : sparse_) {
      LeafGuard guard(tree_, writer_, tree_.LockLeafByCall(writer_, keys_[i]));
      if (guard.line == nullptr || !tree_.IsSparse(*guard.line)) continue;
      guard.changed = true;
      tree_.Merge(writer_, std::exchange(guard.line, nullptr), keys_[i]);
    }
  }

  // Calls visit for each key, in the order of the caller, then makes the changes.
  template <class ActionT>
  Status Run(MultiVisitorRef<ActionT> visit) {
    absl::InlinedVector<Decision<ActionT>, kUsualKeys> decisions(keys_.size());
    Acquire();
    HAKO_RETURN_IF_ERROR(status_);
    HAKO_RETURN_IF_ERROR(Decide<ActionT>(decisions, visit));
    struct Unused {  // frees the long values that no cell names
      ~Unused() {
        for (const auto& decision : all) {
          if (decision.stored.place != 0) tree.space_.FreeLong(decision.stored, deferred);
        }
      }
      PageTree& tree;
      Deferred& deferred;
      std::span<const Decision<ActionT>> all;
    } unused{tree_, deferred_, decisions};
    HAKO_RETURN_IF_ERROR(Prepare<ActionT>(decisions));
    HAKO_RETURN_IF_ERROR(Log<ActionT>(decisions));
    Status applied = CatchNoMemory([&] { return Apply<ActionT>(decisions); });
    if (!applied.ok()) RefuseUpdates(tree_.space_, applied);
    return applied;
  }

 private:
  static constexpr std::size_t kUsualKeys = 16;  // need no allocation
  static constexpr unsigned kTriesMax = 2;       // after these, pages are held until all are locked

  // Of equal keys, the first one's Decision is for all.
  template <class ActionT>
  struct Decision {
    ActionT action = ActionT::Keep();
    std::size_t first = 0;
    format::OverflowValue stored{};  // a long value, stored before any change
  };

  template <class ActionT>
  Status Decide(std::span<Decision<ActionT>> decisions, MultiVisitorRef<ActionT> visit) {
    for (std::size_t n = 0; n < order_.size(); ++n) {
      const bool same = n > 0 && Compare::Compare(keys_[order_[n - 1]], keys_[order_[n]]) == 0;
      decisions[order_[n]].first = same ? decisions[order_[n - 1]].first : order_[n];
    }
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Decision<ActionT>& decided = decisions[decisions[i].first];
      std::optional<std::string_view> value;  // as the previous calls leave it
      if (decided.action.kind() == ActionT::Kind::kSet) {
        value = decided.action.value();
      } else if (decided.action.kind() == ActionT::Kind::kKeep) {
        const auto place = View(tree_.memory_, *leaf_of_[i]).FindByCall(keys_[i]);
        if (place.found) value = ContentOf(place);
        if (place.found && place.sizes.is_long) {
          const auto found = long_values_.find(decisions[i].first);
          if (found == long_values_.end()) return absl::DataLossError("a page refers to a long value, but the tree has none");
          HAKO_RETURN_IF_ERROR(found->second.status());
          value = found->second.bytes();
        }
      }
      const std::optional<ActionT> action = visit(i, value);
      if (!action) return MismatchError();
      if (action->kind() != ActionT::Kind::kKeep) decided.action = *action;
    }
    return absl::OkStatus();
  }

  // Does all that can fail: checks that there is room, marks the leaves, stores long values.
  template <class ActionT>
  Status Prepare(std::span<Decision<ActionT>> decisions) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const ActionT& action = decisions[i].action;
      if (action.kind() != ActionT::Kind::kSet) continue;
      if (action.value().size() > kValueSizeMax) return TooLargeError("a value", action.value().size(), kValueSizeMax);
      bytes += 3 * (tree_.page_size_ + keys_[i].size() + std::min<std::size_t>(action.value().size(), tree_.value_max_));
    }
    if (bytes != 0 && !tree_.space_.HasRoomFor(bytes)) return NoMemory();
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Decision<ActionT>& decision = decisions[i];
      if (decision.action.kind() == ActionT::Kind::kKeep) continue;
      if (!tree_.TryMarkDirty(*leaf_of_[i])) return NoMemory();
      if (decision.action.kind() == ActionT::Kind::kSet && decision.action.value().size() > tree_.value_max_) {
        HAKO_ASSIGN_OR_RETURN(decision.stored, tree_.StoreLong(decision.action.value(), deferred_));
      }
    }
    return absl::OkStatus();
  }

  template <class ActionT>
  Status Log(std::span<const Decision<ActionT>> decisions) {
    if (!IsLogged(tree_.space_)) return absl::OkStatus();
    absl::InlinedVector<format::LogEntry, kUsualKeys> run;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const ActionT& action = decisions[i].action;
      if (action.kind() == ActionT::Kind::kSet) run.push_back({format::LogOp::kSet, keys_[i], action.value()});
      if (action.kind() == ActionT::Kind::kRemove) run.push_back({format::LogOp::kRemove, keys_[i], {}});
    }
    return LogUpdates(tree_.space_, writer_, run) ? absl::OkStatus() : ErrorOf(writer_);
  }

  template <class ActionT>
  Status Apply(std::span<Decision<ActionT>> decisions) {
    std::size_t leaf = 0;
    for (const std::size_t i : order_) {
      const ActionT& action = decisions[i].action;  // Keep for all but the first of equal keys
      if (action.kind() == ActionT::Kind::kKeep) continue;
      while (!Covers(*leaves_[leaf], keys_[i])) ++leaf;
      const auto place = View(tree_.memory_, *leaves_[leaf]).FindByCall(keys_[i]);
      if (action.kind() == ActionT::Kind::kSet) {
        HAKO_RETURN_IF_ERROR(Set(&leaf, keys_[i], action.value(), decisions[i].stored, place));
        decisions[i].stored = {};
      } else if (place.found) {
        Change(*leaves_[leaf]);
        tree_.RemoveSlot(*leaves_[leaf], place.index, deferred_);
        tree_.AddToCount(writer_, -1);
        if (tree_.IsSparse(*leaves_[leaf])) sparse_.push_back(i);
      }
    }
    return absl::OkStatus();
  }

  bool Covers(Line& leaf, std::string_view key) const {
    const View page(tree_.memory_, leaf);
    const format::PageTail tail = page.tail();
    return (tail.edges & format::PageTail::kNoHigh) != 0 || Compare::Compare(key, page.high(tail)) < 0;
  }

  void Change(Line& leaf) {
    tree_.space_.MarkDirty(leaf);
    changed_ = true;
  }

  // Locks the leaves. In a small pool some leaves may be evicted again before all are locked, the
  // more leaves the more often. After a few tries, or if there are many leaves, they are held.
  void Acquire() {
    for (unsigned tries = 0;; ++tries) {
      const bool locked = LockAll();
      bool is_large = false;
      if constexpr (!Space::kResident) is_large = locked && !held_ && tree_.space_.IsLarge(leaves_.size());
      if (locked && !is_large) {
        if (HasLongValues()) return;
        UnlockAll(false);
        for (auto& [i, read] : long_values_) {
          if (!read.has) read.Read();
        }
        continue;
      }
      if constexpr (!Space::kResident) {
        if (is_large) UnlockAll(false);
        if (!status_.ok()) return;
        if (!held_ && (is_large || tries >= kTriesMax)) held_.emplace(tree_.space_);
        status_ = LoadAll();
        if (!status_.ok()) return;
      }
    }
  }

  // Locks the leaves, and waits only for threads that have locked one of them. False if a leaf is
  // not in memory or cannot be read: then none is locked, and the writer state is not busy.
  bool LockAll() {
    Line* leaf = tree_.LockLeafByCall(writer_, keys_[order_[0]]);
    if (leaf == nullptr) status_ = tree_.ErrorOf(writer_);
    for (const std::size_t i : order_) {
      if (leaf == nullptr) break;
      if (leaves_.empty() || !Covers(*leaves_.back(), keys_[i])) {
        if (!leaves_.empty()) leaf = Lock(keys_[i]);
        if (leaf != nullptr) leaves_.push_back(leaf);
      }
      leaf_of_[i] = leaf;
    }
    if (leaf == nullptr) UnlockAll(false);
    return leaf != nullptr;
  }
  void UnlockAll(bool changed) {
    for (Line* line : leaves_) tree_.Unlock(line, changed);
    // clear() would free the memory on which the next LockAll() relies.
    leaves_.erase(leaves_.begin(), leaves_.end());
    writer_.Leave();
  }

  // The gate was passed with the first leaf: a thread that closes it waits until this writer
  // leaves. nullptr if the leaf is not in memory.
  Line* Lock(std::string_view key) {
    for (sync::Backoff backoff;; backoff.Pause()) {
      Reached leaf;
      if (tree_.DescendTo(0, key, &leaf)) {
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
      for (std::size_t i = 0; i < n; ++i) group[i] = keys_[order_[from + i]];
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
    return absl::OkStatus();
  }
  Status Load(std::string_view key) {
    if constexpr (!Space::kResident) {
      for (sync::Backoff backoff;; backoff.Pause()) {
        Reached leaf;
        const bool reached = tree_.DescendTo(0, key, &leaf);
        if (leaf.line == nullptr || (!reached && leaf.level != 0 && !tree_.space_.IsEvicted(tree_.IdOf(*leaf.line)))) continue;
        if (!tree_.space_.IsEvicted(tree_.IdOf(*leaf.line)) && (!held_ || held_->Add(tree_.IdOf(*leaf.line)))) return absl::OkStatus();
        HAKO_RETURN_IF_ERROR(tree_.LoadIfEvicted(leaf));
      }
    }
    return absl::OkStatus();
  }

  // Stores into leaves_[*leaf]. If that leaf is split, its parts take its place, and *leaf becomes
  // the index of the one with the key.
  Status Set(std::size_t* leaf, std::string_view key, std::string_view value, const format::OverflowValue& stored,
             typename View::Place place) {
    SplitResult halves{leaves_[*leaf], &halves_};
    Change(*halves.wanted);
    const bool is_long = stored.place != 0 || place.sizes.is_long;
    const Status status = is_long ? tree_.StoreSlowly(&halves, key, value, stored, place, &deferred_, nullptr)
                                  : tree_.StoreByCall(&halves, key, value, place, nullptr);
    if (!halves_.empty()) {
      Line* const wanted = halves.wanted;
      leaves_.reserve(leaves_.size() + halves_.size());
      leaves_.insert(leaves_.begin() + static_cast<std::ptrdiff_t>(*leaf), halves_.begin(), halves_.end());
      const auto begin = leaves_.begin() + static_cast<std::ptrdiff_t>(*leaf);
      std::ranges::sort(begin, begin + static_cast<std::ptrdiff_t>(halves_.size() + 1),
                        [this](Line* a, Line* b) { return IsBelow(*a, *b); });
      halves_.clear();
      while (leaves_[*leaf] != wanted) ++*leaf;
    }
    if (status.ok() && !place.found) tree_.AddToCount(writer_, 1);
    return status;
  }
  bool IsBelow(Line& a, Line& b) const {
    const View x(tree_.memory_, a), y(tree_.memory_, b);
    if ((y.tail().edges & format::PageTail::kNoLow) != 0) return false;
    if ((x.tail().edges & format::PageTail::kNoLow) != 0) return true;
    return Compare::Compare(x.low(x.tail()), y.low(y.tail())) < 0;
  }

  // The read of a key's long value, and whether it has the value that the leaf names now.
  struct LongLook : LongRead {
    using LongRead::LongRead;
    bool has = false;
  };
  // Whether all long values that the locked leaves name have been read.
  bool HasLongValues() {
    if (!tree_.space_.has_long_values()) return true;
    bool has_all = true;
    for (std::size_t n = 0; n < order_.size(); ++n) {
      const std::size_t i = order_[n];
      if (n > 0 && Compare::Compare(keys_[order_[n - 1]], keys_[i]) == 0) continue;
      const auto place = View(tree_.memory_, *leaf_of_[i]).FindByCall(keys_[i]);
      if (!place.found || !place.sizes.is_long) continue;
      LongLook& read = long_values_.try_emplace(i, tree_.space_).first->second;
      read.has = read.Has(LongValueIn(ContentOf(place)));
      has_all = has_all && read.has;
    }
    return has_all;
  }

  PageTree& tree_;
  WriterState& writer_;
  std::span<const std::string_view> keys_;
  absl::InlinedVector<std::size_t, kUsualKeys> order_;  // of the keys, ascending
  absl::InlinedVector<Line*, kUsualKeys> leaf_of_;      // by key, before any change
  absl::InlinedVector<Line*, kUsualKeys> leaves_;       // locked, ascending
  // Locked: the other parts of a leaf that is split.
  std::vector<Line*> halves_;
  absl::InlinedVector<std::size_t, kUsualKeys> sparse_;
  // By index of the first of equal keys; valid until the call returns.
  std::map<std::size_t, LongLook> long_values_;
  // Finished when all is unlocked; it may store one of long_values_.
  Deferred deferred_{tree_.space_};
  Status status_;
  bool changed_ = false;
  struct NoPages {
    explicit NoPages(Space&) {}
  };
  static auto HeldPages() {
    if constexpr (Space::kResident)
      return std::type_identity<NoPages>();
    else
      return std::type_identity<typename Space::HeldPages>();
  }
  std::optional<typename decltype(HeldPages())::type> held_;
};

template <class Space, Comparator Compare>
template <class ActionT>
Status PageTree<Space, Compare>::ProcessMulti(WriterState& writer, std::span<const std::string_view> keys, MultiVisitorRef<ActionT> visit) {
  if (keys.empty()) return absl::OkStatus();
  Prefetch(keys.first(std::min(keys.size(), kPrefetchGroup)));
  MultiGuard guard(*this, writer, keys);
  return guard.template Run<ActionT>(visit);
}

}  // namespace hako::tree
