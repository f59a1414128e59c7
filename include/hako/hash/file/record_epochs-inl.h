// Definitions of hash/file/record_heap.h: the end of an epoch, and the blocks that waited for it.
#pragma once

#include "hako/hash/file/record_heap.h"

namespace hako::hash {

template <File FileT>
template <class ForEachWriter>
typename RecordHeap<FileT>::ClosedEpoch RecordHeap<FileT>::CloseEpoch(ForEachWriter&& for_each_writer) {
  const std::uint64_t closed = epoch();
  const unsigned unstamped = FreeBlockPool::kUnstamped + closed % format::kSizeClasses;
  for_each_writer([&](WriterState& writer) {
    gate_.AssertKeptOut(writer);
    pool_->Flush(writer.free, unstamped, unstamped + 1);
    pool_->Flush(writer.free, FreeBlockPool::kWaiting, FreeBlockPool::kLists);
    writer.waiting_bytes = 0;
  });
  reclaimer_.CloseEpoch();
  this->UseEpoch(closed + 1);
  this->PublishEpoch();
  const log::Position position = log().BeginCheckpoint();
  return {closed, extents_->tail(), position, pool_->TakeWaiting(), pool_->Take(unstamped), harvest_.IsOver(), AppliedIndex()};
}

template <File FileT>
Status RecordHeap<FileT>::CommitEpoch(const ClosedEpoch& closed, std::uint64_t num_records) {
  Status status = Health();
  if (status.ok()) status = extents_->Sync();
  if (status.ok()) status = log().PrepareCheckpoint(closed.log_end);
  if (status.ok()) {
    status = extents_->Commit([&](format::HashSuperBlock& super) {
      super.epoch = closed.epoch;
      super.last_epoch = closed.epoch + 2;  // the next epoch may be closed before this one is durable
      super.tail = closed.tail;
      NameLog(super, log().id(), closed.log_end);
      super.num_records = num_records;
      super.applied_index = closed.applied_index;
      super.synced_at = WallClock();
      sweep_.StorePlace(super);
    });
  }
  if (!status.ok()) {
    Poison(status);
    this->sync_progress().NoteSynced(false);
    return status;
  }
  this->NoteDurable(closed.epoch);
  log().NoteCheckpoint(closed.log_end);
  this->sync_progress().NoteSynced(true);
  return absl::OkStatus();
}

template <File FileT>
template <class AsWriter>
void RecordHeap<FileT>::ReleaseWaiting(WriterState& writer, ClosedEpoch& closed, AsWriter&& as_writer) {
  ReleaseUnstamped(writer, closed, as_writer);
  const bool keeps = pinned_ != nullptr && closed.epoch > pinned_->epoch;
  for (unsigned c = 0; c < closed.waiting.size(); ++c) {
    std::uint32_t& chain = closed.waiting[c];
    if (keeps) {
      KeepPinned(c, chain);
    } else if (!Records::kStampsLate || pool_->IsSmall(c)) {
      while (chain != 0) as_writer([&] { chain = ReleaseSome(writer, c, chain); });
    } else if (chain != 0) {
      FreeSlowly(writer, c, StampFree(chain), as_writer);
    }
  }
  reclaimer_.EndClosed();
  if (closed.has_all_retired) extents_->StoreSealed(&format::LiveState::oldest_retired_epoch, closed.epoch);
  const std::uint64_t end = harvest_.ShareEnd();
  while (harvest_.IsBefore(end)) as_writer([&] { harvest_.RunOnce(Found{*this, writer}); });
}

// Releases some magazines of a chain of small blocks or, in a mapped file, of any; returns the rest
// of the chain.
template <File FileT>
std::uint32_t RecordHeap<FileT>::ReleaseSome(WriterState& writer, unsigned size_class, std::uint32_t chain) {
  const bool evacuating = victims_.IsOn();
  const typename HeapHarvest<FileT>::Lock harvest(harvest_);
  return pool_->Drain(
      chain,
      [&](std::uint32_t handle) {
        if (pinned_ != nullptr) pinned_->handed_out.Add(handle);
        if (evacuating && victims_.HoldBlock(handle, size_class)) return;
        if (IsFrozen(handle)) return StoreStamp(handle, stamps().free);  // the harvest will find the block, or its extent is damaged
        if (Records::kStampsLate) return pool_->Push(writer.free, FreeBlockPool::kUnstamped + size_class, handle);
        StoreStamp(handle, stamps().free);
        FreeStamped(writer, handle, size_class);
      },
      kReleasesAtOnce);
}

// Stamps the blocks of a chain as free. Returns them, except frozen ones.
template <File FileT>
std::vector<std::uint32_t> RecordHeap<FileT>::StampFree(std::uint32_t chain) {
  const typename HeapHarvest<FileT>::Lock harvest(harvest_);
  std::vector<std::uint32_t> handles;
  (void)pool_->Drain(chain, [&](std::uint32_t handle) {
    if (pinned_ != nullptr) pinned_->handed_out.Add(handle);
    // If there is no memory for the list, the block is forgotten: its space is lost, but no data.
    if (IsFrozen(handle) || !TryPushBack(handles, handle)) StoreStamp(handle, stamps().free);
  });
  StampFree(std::span(handles));
  return handles;
}

// Works in small steps, so that a thread that closes the gate does not wait long.
template <File FileT>
template <class AsWriter>
void RecordHeap<FileT>::FreeSlowly(WriterState& writer, unsigned size_class, std::vector<std::uint32_t> handles, AsWriter&& as_writer) {
  while (!handles.empty()) {
    as_writer([&] {
      for (unsigned i = 0; i < kReleasesAtOnce * FreeBlockPool::kMagazineSize && !handles.empty(); ++i, handles.pop_back())
        FreeStamped(writer, handles.back(), size_class);
    });
  }
}

// Stamps the blocks in the order of the file, and reads the next blocks together into the file's
// cache.
template <File FileT>
void RecordHeap<FileT>::StampFree(std::span<std::uint32_t> handles) {
  std::ranges::sort(handles);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if constexpr (kReadsAhead) {
      if (i % Ahead::kRecordsMax == 0 && this->CachedRecords() != 0) {
        Ahead ahead;
        for (const std::uint32_t handle : handles.subspan(i, std::min(Ahead::kRecordsMax, handles.size() - i)))
          ahead.Want(handle, OffsetOf(handle), 8);
        this->Read(ahead);
      }
    }
    StoreStamp(handles[i], stamps().free);
  }
}

template <File FileT>
template <class ForEachWriter>
std::uint64_t RecordHeap<FileT>::FreeBytes(ForEachWriter&& for_each_writer) const {
  std::uint64_t bytes = extents_->free_extent_bytes() + pool_->free_bytes();
  for (unsigned list = 0; list < FreeBlockPool::kWaiting; ++list) {
    const auto add = [&](std::uint32_t) { bytes += BytesOf(list % format::kSizeClasses); };
    if (list >= FreeBlockPool::kUnstamped) pool_->ForEach(list, add);
    for_each_writer([&](WriterState& writer) { pool_->ForEach(writer.free, list, add); });
  }
  for_each_writer([&](WriterState& writer) {
    bytes += writer.waiting_bytes;
    bytes += writer.chunk.bytes();
  });
  return bytes;
}

// ---- a pinned state ----

// Moves all free blocks to the pool, which from now on records the blocks that it hands out.
template <File FileT>
template <class ForEachWriter>
Status RecordHeap<FileT>::PinState(ForEachWriter&& for_each_writer) {
  HAKO_DCHECK(pinned_ == nullptr && harvest_.IsOver() && heap_extents_.HasPins());
  HAKO_ASSIGN_OR_RETURN(pinned_, PinnedState::Create(epoch(), extents_->tail(), this->HandleAt(extents_->tail())));
  GatherFree(for_each_writer);
  for_each_writer([&](WriterState& writer) {
    pool_->Flush(writer.free, FreeBlockPool::kUnstamped, FreeBlockPool::kWaiting);
    if (writer.ahead.bytes() != 0) pinned_->handed_out.Add(this->HandleAt(writer.ahead.begin));
  });
  pool_->NoteHandedOut(&pinned_->handed_out);
  return absl::OkStatus();
}

// Replaces the stamps of the blocks before epochs wrap, as without a pin, but keeps the blocks
// until the pin ends.
template <File FileT>
void RecordHeap<FileT>::KeepPinned(unsigned size_class, std::uint32_t chain) {
  std::vector<std::uint32_t>& waiting = pinned_->waiting[size_class];
  const std::size_t before = waiting.size();
  (void)pool_->Drain(chain, [&](std::uint32_t handle) {
    pinned_->released.Add(handle);
    // If there is no memory for the list, the space is lost, but no data.
    if (!TryPushBack(waiting, handle)) StoreStamp(handle, stamps().free);
  });
  std::atomic_thread_fence(std::memory_order_release);
  StampFree(std::span(waiting).subspan(before));
}

template <File FileT>
template <class AsWriter>
void RecordHeap<FileT>::UnpinState(WriterState& writer, AsWriter&& as_writer) {
  if (pinned_ == nullptr) return;
  HAKO_DCHECK(!heap_extents_.HasPins());
  pool_->NoteHandedOut(nullptr);
  const std::unique_ptr<PinnedState> pinned = std::move(pinned_);
  for (unsigned c = 0; c < pinned->waiting.size(); ++c) {
    std::erase_if(pinned->waiting[c], [this](std::uint32_t handle) { return IsFrozen(handle); });
    FreeSlowly(writer, c, std::move(pinned->waiting[c]), as_writer);
  }
}

}  // namespace hako::hash
