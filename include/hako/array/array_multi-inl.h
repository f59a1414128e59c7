// Definitions of array/page_array.h: updates of several records that are atomic for other threads.
#pragma once

#include "hako/array/array_multi_locks-inl.h"
#include "hako/array/page_array.h"
#include "hako/update/decisions.h"
#include "hako/update/logging.h"

namespace hako::array {

// A writer's update of several records and ranges. All records are decided on before the first change, and
// the steps that can fail are tried before it: leaves are made and marked dirty, then the whole update is
// appended to the log as one run, ranges first.
template <class Space>
template <class ActionT>
class PageArray<Space>::MultiGuard : private LockedLeaves {
  using LockedLeaves::array_, LockedLeaves::writer_, LockedLeaves::ids_, LockedLeaves::ranges_;
  using LockedLeaves::kUsual, LockedLeaves::order_, LockedLeaves::leaf_of_, LockedLeaves::leaves_;
  using typename LockedLeaves::Leaf;

 public:
  MultiGuard(PageArray& array, WriterState& writer, const IdBatch<ActionT>& batch, std::size_t range_leaves_max)
      : LockedLeaves(array, writer, batch.keys, batch.removed_ranges, range_leaves_max), batch_(batch), decisions_(batch.keys.size()) {}
  ~MultiGuard() {
    this->UnlockAll(changed_);
    this->ReleaseHeld(changed_);
    array_.EndWrite(writer_, changed_);
    for (const Leaf& leaf : leaves_) {
      if (leaf.may_be_empty) array_.FreeIfEmpty(writer_, leaf.number);
    }
  }

  Status Run() {
    HAKO_RETURN_IF_ERROR(this->Acquire());
    HAKO_RETURN_IF_ERROR(Decide());
    HAKO_RETURN_IF_ERROR(Prepare());
    HAKO_RETURN_IF_ERROR(Log());
    RemoveRanges();
    Apply();
    return absl::OkStatus();
  }

 private:
  using Decision = update::Decision<ActionT>;

  Status Decide() {
    update::JoinSorted(
        std::span(decisions_), [this](std::size_t n) { return order_[n]; },
        [this](std::size_t n) { return ids_[order_[n - 1]] == ids_[order_[n]]; });
    std::string completed;
    const auto visit = [&](std::size_t i, std::optional<std::string_view> value) {
      if (value && value->size() < array_.shape_.width) {
        completed.assign(*value);
        completed.resize(array_.shape_.width);
        value = completed;
      }
      return batch_.visit(i, value);
    };
    const auto show = [this](std::size_t i, const Decision&, std::optional<std::string_view>* value, Status*) {
      *value = ValueOf(i);
      return true;
    };
    return update::Decide(std::span(decisions_), visit, show);
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
  Status Prepare() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (decisions_[i].Sets() && decisions_[i].action.value().size() > array_.shape_.width)
        return array_.TooLong(decisions_[i].action.value().size());
    }
    if constexpr (!Space::kResident) array_.space_.ReserveDirty(2 * leaves_.size());
    this->ForEachInRanges([this](Leaf& leaf, unsigned begin, unsigned end) {
      if (BitsOf(leaf).CountIn(begin, end) != 0) Mark(leaf);
    });
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      Leaf& leaf = leaves_[leaf_of_[i]];
      if (decisions_[i].Keeps() || leaf.changes) continue;
      if (leaf.line == nullptr) {
        if (decisions_[i].Removes()) continue;
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
  Status Log() {
    if (!batch_.applied_index) return Append();
    sync::MutexLock lock(array_.applied_mutex_);
    HAKO_RETURN_IF_ERROR(Append());
    array_.SetAppliedIndex(*batch_.applied_index);
    return absl::OkStatus();
  }
  Status Append() {
    absl::InlinedVector<LogKey, kUsual> keys;
    const std::size_t count = ranges_.size() + ids_.size();
    return update::LogBatch(array_.space_, writer_, count, batch_.applied_index, [&, this](update::LogRun& run) {
      keys.reserve(ranges_.size() + count);  // views of them stay valid
      for (const IdRange& range : ranges_) {
        const std::string_view from = keys.emplace_back(range.from).view(), to = keys.emplace_back(range.to).view();
        run.RemoveRange(from, to);
      }
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (decisions_[i].Keeps()) continue;
        const std::string_view key = keys.emplace_back(ids_[i]).view();
        decisions_[i].Sets() ? run.Set(key, decisions_[i].action.value()) : run.Remove(key);
      }
    });
  }

  void RemoveRanges() {
    this->ForEachInRanges([this](Leaf& leaf, unsigned begin, unsigned end) {
      if (leaf.changes) array_.RemoveIn(writer_, BitsOf(leaf), leaf.number, begin, end);
    });
  }

  void Apply() {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      Leaf& leaf = leaves_[leaf_of_[i]];
      if (decisions_[i].Keeps() || leaf.line == nullptr) continue;
      char* const page = array_.PageOf(*leaf.line);
      const PresenceBits bits = array_.BitsOf(*leaf.line, page);
      const unsigned at = array_.PlaceOf(ids_[i]).index;
      const bool found = bits.Has(at);
      if (decisions_[i].Sets()) {
        array_.StoreRecord(array_.RecordOf(page, at), decisions_[i].action.value());
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

  const IdBatch<ActionT>& batch_;
  absl::InlinedVector<Decision, kUsual> decisions_;
  bool changed_ = false;
};

template <class Space>
template <class ActionT>
Status PageArray<Space>::ProcessMulti(WriterState& writer, const IdBatch<ActionT>& batch, std::size_t range_leaves_max) {
  if (batch.IsEmpty()) return absl::OkStatus();
  return MultiGuard<ActionT>(*this, writer, batch, range_leaves_max).Run();
}

}  // namespace hako::array
