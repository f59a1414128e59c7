// Definitions of hash/record_heap.h: keeping a state readable across epochs.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

template <File FileT>
class RecordHeap<FileT>::ExtentPin {
 public:
  explicit ExtentPin(RecordHeap& heap) : heap_(heap) { Add(1); }
  ExtentPin(const ExtentPin&) = delete;
  ~ExtentPin() { Add(-1); }

 private:
  void Add(int n) {
    sync::MutexLock lock(heap_.extents_mutex_);
    heap_.extent_pins_ += n;
  }
  RecordHeap& heap_;
};

// Moves all free blocks to the pool, which from now on records the blocks that it hands out.
template <File FileT>
template <class ForEachWriter>
Status RecordHeap<FileT>::PinState(ForEachWriter&& for_each_writer) {
  HAKO_DCHECK(pinned_ == nullptr && harvest_.IsOver() && HasPinnedExtents());
  HAKO_ASSIGN_OR_RETURN(pinned_, PinnedState::Create(epoch(), extents_->tail(), this->HandleAt(extents_->tail())));
  GatherFree(for_each_writer);
  for_each_writer([&](WriterState& writer) {
    pool_->Flush(writer.free, FreeBlockPool::kUnstamped, FreeBlockPool::kWaiting);
    if (writer.ahead.bytes() != 0) pinned_->handed_out.Add(this->HandleAt(writer.ahead.begin));
  });
  pool_->NoteHandedOut(&pinned_->handed_out);
  return absl::OkStatus();
}

// A block of the state that was retired since is in one of three conditions: stamped as retired in
// a later epoch than the pinned one, which its stamp shows while it is younger than a period; or
// stamped as free, and added to `released` before; or live, if the scan read it before it was
// retired.
template <File FileT>
template <class Visit>
Status RecordHeap<FileT>::ScanPinned(Visit&& visit) const {
  return Scan(format::kFirstExtent, pinned_->tail, [&](const ScannedRecord& record) {
    std::atomic_thread_fence(std::memory_order_acquire);
    if (pinned_->handed_out.Has(record.handle)) return absl::OkStatus();
    const format::BlockState state = record.stamp.state();
    const bool is_retired = state == format::BlockState::kRetired || state == format::BlockState::kYoungRetired;
    const std::uint64_t now = epoch();
    const bool belongs = record.stamp.IsLive() || (is_retired && now - record.stamp.AgeAt(now) > pinned_->epoch);
    return belongs || pinned_->released.Has(record.handle) ? visit(record) : absl::OkStatus();
  });
}

// Replaces the blocks' stamps as usual, before epochs wrap, but keeps the blocks until the pin
// ends.
template <File FileT>
void RecordHeap<FileT>::KeepPinned(unsigned size_class, std::uint32_t chain) {
  std::vector<std::uint32_t>& waiting = pinned_->waiting[size_class];
  const std::size_t before = waiting.size();
  (void)pool_->Drain(chain, [&](std::uint32_t handle) {
    pinned_->released.Add(handle);
    // If there is no memory for the list: lost space, not lost data.
    if (!TryPushBack(waiting, handle)) StoreStamp(handle, stamps().free);
  });
  std::atomic_thread_fence(std::memory_order_release);
  StampFree(std::span(waiting).subspan(before));
}

template <File FileT>
template <class AsWriter>
void RecordHeap<FileT>::UnpinState(WriterState& writer, AsWriter&& as_writer) {
  if (pinned_ == nullptr) return;
  HAKO_DCHECK(!HasPinnedExtents());
  pool_->NoteHandedOut(nullptr);
  const std::unique_ptr<PinnedState> pinned = std::move(pinned_);
  for (unsigned c = 0; c < pinned->waiting.size(); ++c) {
    std::erase_if(pinned->waiting[c], [this](std::uint32_t handle) { return IsFrozen(handle); });
    FreeSlowly(writer, c, std::move(pinned->waiting[c]), as_writer);
  }
}

}  // namespace hako::hash
