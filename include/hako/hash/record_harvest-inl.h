// Definitions of hash/record_heap.h: the space that a killed process had free or waiting.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

template <File FileT>
void RecordHeap<FileT>::BeginHarvest(WriterState& writer, std::uint64_t num_records) {
  if (!AcceptsWrites()) return damaged_.EndNoting();
  sync::MutexLock lock(harvest_mutex_);
  live_to_harvest_ = num_records;
  harvest_end_ = extents_->tail();
  harvest_next_.store(format::kFirstExtent, std::memory_order_relaxed);
  if (first_epoch_ - extents_->LoadSealed(&format::LiveState::oldest_retired_epoch) > kRetiredAgeMax) HarvestUntil(writer, harvest_end_);
}

template <File FileT>
void RecordHeap<FileT>::HarvestFor(WriterState& writer, std::uint64_t bytes) {
  if (HarvestIsOver() || victims_.IsOn()) return;
  sync::MutexLock lock(harvest_mutex_);
  HarvestUntil(writer, std::min(harvest_next_.load(std::memory_order_relaxed) + bytes, harvest_end_));
}

// Harvests few extents, as the caller has a bucket locked. False if there is nothing to harvest.
template <File FileT>
bool RecordHeap<FileT>::HarvestSome(WriterState& writer) {
  for (int i = 0; i < kHarvestsAtOnce; ++i) {
    if (HarvestIsOver() || victims_.IsOn()) return i != 0;
    if (harvest_mutex_.TryLock()) {
      sync::MutexLock lock(harvest_mutex_, std::adopt_lock);
      HarvestUntil(writer, std::min(harvest_next_.load(std::memory_order_relaxed) + 1, harvest_end_));
    }
  }
  return true;
}

template <File FileT>
void RecordHeap<FileT>::HarvestUntil(WriterState& writer, std::uint64_t end) {
  for (std::uint64_t next; (next = harvest_next_.load(std::memory_order_relaxed)) < end;) {
    const StatusOr<std::uint64_t> bytes = extents_->HeapExtentBytes(next);
    if (bytes.ok() && *bytes != 0) {
      HarvestExtent(writer, {next, *bytes});
      next += *bytes;
    } else {
      const Extent unit{next, format::kExtentUnit};
      if (!extents_->IndexHas(unit) && !damaged_.Takes(next, !bytes.ok())) extents_->Free(unit);
      next += format::kExtentUnit;
    }
    harvest_next_.store(next, std::memory_order_release);
    if (next < harvest_end_) continue;
    damaged_.EndNoting();
    // A damaged live record may be one of the doubtful pieces; then these stay unused.
    if (live_to_harvest_ == 0) {
      for (const ChunkRest& piece : doubtful_) FreeGap(writer, piece.next, piece.bytes());
    }
    doubtful_ = {};
  }
}

// REQUIRES: only stamps are written to the extent meanwhile: its blocks are frozen
template <File FileT>
void RecordHeap<FileT>::HarvestExtent(WriterState& writer, Extent extent) {
  HAKO_DCHECK(extent.offset >= harvest_next_.load(std::memory_order_relaxed) && extent.offset < harvest_end_);
  ExtentBytes<FileT> bytes(*extents_);
  if (!bytes.Enter(extent).ok()) return;
  KeptBlocks kept([&](std::uint64_t offset, std::uint64_t size, bool certain) {
    if (certain) return FreeGap(writer, offset, size);
    harvest_mutex_.AssertHeld();
    doubtful_.push_back({offset, offset + size});
  });
  kept.Enter(extent);
  const auto visit = [&](const ScannedRecord& record) {
    harvest_mutex_.AssertHeld();
    const format::Leftover leftover = format::LeftoverOf(record.stamp, first_epoch_);
    if (leftover == format::Leftover::kWaiting) Wait(writer, record.handle, record.key_size, record.value_size);
    if (format::WasLiveBefore(record.stamp, first_epoch_)) --live_to_harvest_;
    if (leftover != format::Leftover::kFree) kept.Keep(OffsetOf(record.handle), this->BlockBytes(record));
    return absl::OkStatus();
  };
  // If a part cannot be read, everything behind the last record that was stays unused.
  const auto doubt = [&](std::uint32_t, format::Stamp) { kept.Doubt(); };
  if (this->template ScanExtent<Heap::Trust::kLiveHeads>(extent, bytes, visit, doubt).ok()) kept.Leave();
}

}  // namespace hako::hash
