// Definitions of hash/bucket_index.h: changes of several keys that are one step for other threads.
#pragma once

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "hako/hash/bucket_index.h"
#include "hako/hash/bucket_multi_guard-inl.h"

namespace hako::hash {

// Stores an applied index without changing records.
template <class Space>
Status BucketIndex<Space>::StoreAlone(WriterState& writer, std::optional<std::uint64_t> applied_index) {
  if (!applied_index) return absl::OkStatus();
  space_.gate().Pass(writer);
  const sync::LeaveAtEnd leave(writer);
  HAKO_RETURN_IF_ERROR(update::LogBatch(space_, writer, 0, applied_index, [](const update::LogRun&) {}));
  Store(applied_index);
  return absl::OkStatus();
}

template <class Space>
template <class ActionT>
Status BucketIndex<Space>::MultiGuard<ActionT>::MakeRoom() {
  if constexpr (LimitedRecordSpace<Space>) {
    if (!index_.IsLimited()) return absl::OkStatus();
    const Capacity& capacity = index_.space_.limit()->capacity();
    std::uint64_t bytes = 0, records = 0, inserted = 0;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (!records_[i].Sets()) continue;
      HAKO_RETURN_IF_ERROR(index_.space_.CheckSize(keys_[i].size(), records_[i].action.value().size()));
      bytes += keys_[i].size() + records_[i].action.value().size() + sizeof(Line) / kTargetLoad;
      ++records;
      inserted += records_[i].entry.handle == 0 ? 1u : 0u;
    }
    if (capacity.bytes != 0 && bytes > capacity.bytes / 2) return TooLargeError("a batch", bytes, capacity.bytes / 2);
    HAKO_RETURN_IF_ERROR(capacity.CheckBatch(records));
    for (const Record& record : records_) {
      if (record.Sets() && record.entry.handle != 0) index_.eviction_.NoteUse(*record.entry.line, record.entry.i);
    }
    if (inserted != 0) index_.eviction_.EvictForInsertion(writer_, inserted);
  }
  return absl::OkStatus();
}

// The records that the writer may evict while it writes its new records: those in the buckets that
// it has locked, except the records that it changes.
template <class Space>
template <class ActionT>
class BucketIndex<Space>::MultiGuard<ActionT>::Evictable final : public OwnBuckets {
 public:
  explicit Evictable(MultiGuard& guard) : guard_(guard) { guard_.writer_.own_buckets = this; }
  ~Evictable() { guard_.writer_.own_buckets = nullptr; }
  bool Has(std::uint64_t index) const override { return guard_.homes_.Has(index); }
  bool Names(std::uint32_t handle) const override {
    if (named_.empty()) {
      for (const Record& record : guard_.records_) named_.push_back(record.entry.handle);
      std::ranges::sort(named_);
    }
    return std::ranges::binary_search(named_, handle);
  }
  void MarkChanged() override { guard_.homes_.MarkChanged(); }

 private:
  MultiGuard& guard_;
  mutable std::vector<std::uint32_t> named_;
};

// Writes records in descending order of size, because records that are not yet published cannot be
// moved or evicted, and so fragment the memory.
template <class Space>
template <class ActionT>
Status BucketIndex<Space>::MultiGuard<ActionT>::WriteWithinLimit() {
  if constexpr (LimitedRecordSpace<Space>) {
    const Evictable evictable(*this);
    const auto size_of = [this](std::size_t i) { return records_[i].action.value().size(); };
    std::vector<std::size_t> large;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const Record& record = records_[i];
      if (record.Sets() && record.fresh == 0 && size_of(i) > kLargeValue) large.push_back(i);
    }
    std::ranges::sort(large, std::ranges::greater{}, size_of);
    for (const std::size_t i : large)
      HAKO_RETURN_IF_ERROR(WriteOne(records_[i].hash, keys_[i], records_[i].action.value(), &records_[i].fresh));
  }
  return WriteAll();
}

template <class Space>
template <class ActionT>
Status BucketIndex<Space>::ProcessMulti(WriterState& writer, const Batch<ActionT>& batch) {
  return TryProcessMulti(writer, batch, [](std::uint64_t) { return false; }).status();
}

template <class Space>
template <class ActionT>
StatusOr<bool> BucketIndex<Space>::TryProcessMulti(WriterState& writer, const Batch<ActionT>& batch, IsBlocked is_blocked) {
  HAKO_DCHECK(batch.removed_ranges.empty() && batch.shown_ranges.empty());
  if (batch.keys.empty()) {
    HAKO_RETURN_IF_ERROR(StoreAlone(writer, batch.applied_index));
    return true;
  }
  MultiGuard<ActionT> guard(*this, writer, batch.keys, is_blocked, batch.applied_index);
  if (!guard.IsLocked()) return false;
  HAKO_RETURN_IF_ERROR(guard.Decide(batch.visit, batch.num_shown));
  HAKO_RETURN_IF_ERROR(guard.MakeRoom());
  HAKO_RETURN_IF_ERROR(guard.WriteLong());
  HAKO_RETURN_IF_ERROR(guard.Apply());
  if (IsLimited()) eviction_.EvictForInsertion(writer, 0);  // with many buckets locked, too few records could be evicted
  return true;
}

template <class Space>
template <class ActionT>
StatusOr<bool> BucketIndex<Space>::PublishMulti(WriterState& writer, std::span<const std::string_view> keys,
                                                std::span<const std::uint32_t> handles) {
  HAKO_DCHECK(keys.size() == handles.size());
  HAKO_DCHECK(std::set<std::string_view>(keys.begin(), keys.end()).size() == keys.size());
  const auto is_held = [this](std::uint64_t hash) { return space_.gate().IsHeld(hash); };
  MultiGuard<ActionT> guard(*this, writer, keys, is_held);
  if (!guard.IsLocked()) return false;
  HAKO_RETURN_IF_ERROR(guard.Take(handles));
  HAKO_RETURN_IF_ERROR(guard.Apply());
  return true;
}

}  // namespace hako::hash
