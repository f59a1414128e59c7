// Definitions of array/page_array.h: updates of several records that are atomic for other threads.
#pragma once

#include "hako/array/array_multi_locks-inl.h"
#include "hako/array/page_array.h"
#include "hako/update/logging.h"

namespace hako::array {

// A writer's update of several records and ranges. All records are decided on before the first change, and
// the steps that can fail are tried before it: leaves are made and marked dirty, then the whole update is
// appended to the log as one run, ranges first.
template <class Space>
class PageArray<Space>::MultiGuard : private LockedLeaves {
  using LockedLeaves::array_, LockedLeaves::writer_, LockedLeaves::ids_, LockedLeaves::ranges_;
  using LockedLeaves::kUsual, LockedLeaves::order_, LockedLeaves::leaf_of_, LockedLeaves::leaves_;
  using typename LockedLeaves::Leaf;

 public:
  MultiGuard(PageArray& array, WriterState& writer, std::span<const std::uint64_t> ids, const IdRanges& ranges, const MultiExtras& extras)
      : LockedLeaves(array, writer, ids, ranges), extras_(extras) {}
  ~MultiGuard() {
    this->UnlockAll(changed_);
    this->ReleaseHeld(changed_);
    array_.EndWrite(writer_, changed_);
    for (const Leaf& leaf : leaves_) {
      if (leaf.may_be_empty) array_.FreeIfEmpty(writer_, leaf.number);
    }
  }

  template <class ActionT>
  Status Run(MultiVisitorRef<ActionT> visit) {
    absl::InlinedVector<ActionT, kUsual> actions(ids_.size(), ActionT::Keep());  // of equal ids, the first one's is for all
    HAKO_RETURN_IF_ERROR(this->Acquire());
    HAKO_RETURN_IF_ERROR(Decide<ActionT>(actions, visit));
    HAKO_RETURN_IF_ERROR(Prepare<ActionT>(actions));
    HAKO_RETURN_IF_ERROR(Log<ActionT>(actions));
    RemoveRanges();
    Apply<ActionT>(actions);
    return absl::OkStatus();
  }

 private:
  template <class ActionT>
  Status Decide(std::span<ActionT> actions, MultiVisitorRef<ActionT> visit) {
    absl::InlinedVector<std::uint32_t, kUsual> first(ids_.size());
    for (std::size_t n = 0; n < order_.size(); ++n) {
      const bool same = n > 0 && ids_[order_[n - 1]] == ids_[order_[n]];
      first[order_[n]] = same ? first[order_[n - 1]] : order_[n];
    }
    std::string completed;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      ActionT& decided = actions[first[i]];
      std::optional<std::string_view> value;  // as the previous calls leave it
      if (decided.kind() == ActionT::Kind::kSet) {
        completed.assign(decided.value());
        completed.resize(std::max<std::size_t>(completed.size(), array_.shape_.width));
        value = completed;
      } else if (decided.kind() == ActionT::Kind::kKeep) {
        value = ValueOf(i);
      }
      const std::optional<ActionT> action = visit(i, value);
      if (!action) return MismatchError();
      if (action->kind() != ActionT::Kind::kKeep) decided = *action;
    }
    return absl::OkStatus();
  }
  std::optional<std::string_view> ValueOf(std::size_t i) const {
    const Line* const line = leaves_[leaf_of_[i]].line;
    if (line == nullptr) return std::nullopt;
    char* const page = array_.PageOf(*line);
    const Place place = array_.PlaceOf(ids_[i]);
    if (!array_.BitsOf(*line, page).Has(place.index)) return std::nullopt;
    return std::string_view(array_.RecordOf(page, place.index), array_.shape_.width);
  }

  // Does all that can fail, except the log.
  template <class ActionT>
  Status Prepare(std::span<const ActionT> actions) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (actions[i].kind() == ActionT::Kind::kSet && actions[i].value().size() > array_.shape_.width)
        return array_.TooLong(actions[i].value().size());
    }
    if constexpr (!Space::kResident) array_.space_.ReserveDirty(2 * leaves_.size());
    this->ForEachInRanges([this](Leaf& leaf, unsigned begin, unsigned end) {
      if (BitsOf(leaf).CountIn(begin, end) != 0) Mark(leaf);
    });
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      Leaf& leaf = leaves_[leaf_of_[i]];
      if (actions[i].kind() == ActionT::Kind::kKeep || leaf.changes) continue;
      if (leaf.line == nullptr) {
        if (actions[i].kind() == ActionT::Kind::kRemove) continue;
        leaf.line = array_.MakeLeaf(leaf.number);
        if (leaf.line == nullptr) return NoMemory();
        leaf.may_be_empty = true;  // until Apply
      }
      Mark(leaf);
    }
    return absl::OkStatus();
  }
  void Mark(Leaf& leaf) {
    leaf.changes = changed_ = true;
    array_.space_.MarkDirty(*leaf.line);
  }
  PresenceBits BitsOf(const Leaf& leaf) const { return array_.BitsOf(*leaf.line, array_.PageOf(*leaf.line)); }

  // Updates with an applied index are in the log in the order in which they set it.
  template <class ActionT>
  Status Log(std::span<const ActionT> actions) {
    if (!extras_.applied_index) return Append<ActionT>(actions);
    sync::MutexLock lock(array_.applied_mutex_);
    HAKO_RETURN_IF_ERROR(Append<ActionT>(actions));
    array_.SetAppliedIndex(*extras_.applied_index);
    return absl::OkStatus();
  }
  template <class ActionT>
  Status Append(std::span<const ActionT> actions) {
    absl::InlinedVector<LogKey, kUsual> keys;
    const std::size_t count = ranges_.size() + ids_.size();
    return update::LogBatch(array_.space_, writer_, count, extras_.applied_index, [&, this](update::LogRun& run) {
      keys.reserve(ranges_.size() + count);  // views of them stay valid
      for (const IdRange& range : ranges_) {
        const std::string_view from = keys.emplace_back(range.from).view(), to = keys.emplace_back(range.to).view();
        run.RemoveRange(from, to);
      }
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (actions[i].kind() == ActionT::Kind::kKeep) continue;
        const std::string_view key = keys.emplace_back(ids_[i]).view();
        actions[i].kind() == ActionT::Kind::kSet ? run.Set(key, actions[i].value()) : run.Remove(key);
      }
    });
  }

  void RemoveRanges() {
    this->ForEachInRanges([this](Leaf& leaf, unsigned begin, unsigned end) {
      if (leaf.changes) array_.RemoveIn(writer_, BitsOf(leaf), leaf.number, begin, end);
    });
  }

  template <class ActionT>
  void Apply(std::span<const ActionT> actions) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      Leaf& leaf = leaves_[leaf_of_[i]];
      if (actions[i].kind() == ActionT::Kind::kKeep || leaf.line == nullptr) continue;
      char* const page = array_.PageOf(*leaf.line);
      const PresenceBits bits = array_.BitsOf(*leaf.line, page);
      const unsigned at = array_.PlaceOf(ids_[i]).index;
      const bool found = bits.Has(at);
      if (actions[i].kind() == ActionT::Kind::kSet) {
        array_.StoreRecord(array_.RecordOf(page, at), actions[i].value());
        if (found) continue;
        array_.RaiseEnd(ids_[i]);
        bits.Set(at);
        array_.count_.Add(writer_, 1);
      } else if (found) {
        bits.Clear(at);
        array_.LowerEnd(ids_[i]);
        array_.count_.Add(writer_, -1);
      }
    }
    for (Leaf& leaf : leaves_) leaf.may_be_empty = leaf.changes && BitsOf(leaf).IsEmpty();
  }

  const MultiExtras extras_;
  bool changed_ = false;
};

template <class Space>
template <class ActionT>
Status PageArray<Space>::ProcessMulti(WriterState& writer, std::span<const std::uint64_t> ids, const IdRanges& ranges,
                                      MultiVisitorRef<ActionT> visit, const MultiExtras& extras) {
  if (ids.empty() && ranges.all.empty() && !extras.applied_index) return absl::OkStatus();
  MultiGuard guard(*this, writer, ids, ranges, extras);
  return guard.template Run<ActionT>(visit);
}

}  // namespace hako::array
