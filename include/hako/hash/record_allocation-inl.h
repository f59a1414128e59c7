// Definitions of hash/record_heap.h: space, epochs, and evacuation.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

// ---- space ----

template <File FileT>
StatusOr<std::uint64_t> RecordHeap<FileT>::AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind) {
  if (index_arena_ != nullptr) {
    AddIndexBytes(bytes);
    return index_arena_->Allocate(bytes, kind);
  }
  std::lock_guard lock(index_mutex_);
  if (num_index_extents_ == format::kIndexExtentsMax) return absl::ResourceExhaustedError("the hash index has reached its maximum size");
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, extents_->Allocate(bytes));
  const format::IndexExtentEntry entry{offset, bytes, kind == IndexExtent::kOverflowLines};
  extents_->AddIndexExtent({offset, bytes});
  std::atomic_ref(extents_->index_extents()[num_index_extents_]).store(entry.Pack(), std::memory_order_release);
  set_num_index_extents(num_index_extents_ + 1);
  AddIndexBytes(bytes);
  return offset;
}

template <File FileT>
HAKO_INLINE std::uint32_t RecordHeap<FileT>::TakeSmall(WriterState& writer, unsigned size_class) {
  std::uint32_t handle = 0;
  if constexpr (!kMapped) handle = pool_->Pop(writer.free, FreeBlockPool::kUnstamped + size_class);
  if (handle == 0) handle = pool_->Pop<FreeBlockPool::kRest>(writer.free, size_class);
  return handle != 0 ? handle : Carve(writer, size_class);
}

template <File FileT>
HAKO_INLINE std::uint32_t RecordHeap<FileT>::Carve(WriterState& writer, unsigned size_class) {
  const std::uint64_t bytes = BytesOf(size_class);
  const std::uint64_t place = kMapped ? writer.chunk.next : PlaceIn(writer.chunk, bytes);
  if (writer.chunk.end - writer.chunk.next < place - writer.chunk.next + bytes) [[unlikely]]
    return 0;
  if (place != writer.chunk.next) FreeGap(writer, writer.chunk.next, place - writer.chunk.next);
  writer.chunk.next = place + bytes;
  return HandleOf(place);
}

template <File FileT>
std::uint32_t RecordHeap<FileT>::CarveSlowly(WriterState& writer, unsigned size_class, Status* error) {
  const bool small = pool_->IsSmall(size_class);
  const std::uint64_t bytes = BytesOf(size_class), most = bytes + place_unit_ - 1;
  if (small) pool_->FreeRun(Rest(std::exchange(writer.chunk, {})));
  for (bool harvested = false, gathered = false;;) {
    if (!small) {
      if (const Run block = pool_->TakeBlock(bytes, place_unit_); block.bytes() != 0 && !IndexHas(block)) return HandleOf(block.begin);
    } else if (writer.chunk = pool_->TakeChunk(most); IndexHas(Rest(writer.chunk))) {
      writer.chunk = {};
    } else if (writer.chunk.bytes() != 0) {
      return Carve(writer, size_class);
    }
    if (!std::exchange(harvested, true) && HarvestSome(writer)) {
      if (const std::uint32_t handle = small ? pool_->Pop(writer.free, size_class) : 0; handle != 0) return handle;
      continue;
    }
    if (!std::exchange(gathered, true)) {  // before the file grows
      pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
      continue;
    }
    if (*error = Grow(bytes, most); error->ok()) continue;
    std::uint32_t handle = small ? pool_->Pop(writer.free, size_class) : 0;
    if (small && handle == 0) handle = CutSmall(writer, size_class);
    if (handle != 0) *error = absl::OkStatus();
    return handle;
  }
}

// If the file cannot grow: cuts the block from a free block of any small size; the rest of that
// stays free.
template <File FileT>
std::uint32_t RecordHeap<FileT>::CutSmall(WriterState& writer, unsigned size_class) {
  Run block = pool_->TakeSmallBlock(FreeBlockPool::kFree, size_class);
  if (!kMapped && block.bytes() == 0) block = pool_->TakeSmallBlock(FreeBlockPool::kUnstamped, size_class);
  if (block.bytes() == 0) return 0;
  const std::uint64_t used = BytesOf(size_class);
  FreeGap(writer, block.begin + used, block.bytes() - used);
  return HandleOf(block.begin);
}

template <File FileT>
Status RecordHeap<FileT>::Grow(std::uint64_t bytes, std::uint64_t most) {
  if (bytes > FreeBlockPool::kSmallMax) ReleaseExtents();  // two neighbours may be large enough
  const std::uint64_t size = ExtentSize(bytes, most);
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, extents_->AllocateHeapExtent(size));
  pool_->FreeRun({offset + sizeof(format::HeapExtentHeader), offset + size});
  return absl::OkStatus();
}

// For blocks that are not small: room for several, so that little is left over, but few while the
// file is small. A large block gets its own extent, so that the extent is soon free.
template <File FileT>
std::uint64_t RecordHeap<FileT>::ExtentSize(std::uint64_t bytes, std::uint64_t most) const {
  const std::uint64_t used = extents_->tail();
  const std::uint64_t blocks = bytes < kLarge ? std::clamp<std::uint64_t>(used / 16 / bytes, 1, 8) : 1;
  const std::uint64_t needed = most + (blocks - 1) * bytes + sizeof(format::HeapExtentHeader);
  return std::max(ChunkSize(bytes < kLarge ? used : 0, needed), block_ > 1 ? kDirectChunk : 0);
}

template <File FileT>
bool RecordHeap<FileT>::IsHeapExtent(Run run) const {
  static constexpr std::uint64_t kHeader = sizeof(format::HeapExtentHeader);
  if (run.begin % format::kExtentUnit != kHeader || run.end % format::kExtentUnit != 0) return false;
  const StatusOr<std::uint64_t> bytes = extents_->HeapExtentBytes(run.begin - kHeader);
  return bytes.ok() && *bytes == run.bytes() + kHeader;
}

template <File FileT>
void RecordHeap<FileT>::ReleaseExtents() {
  std::lock_guard lock(extents_mutex_);
  if (extent_pins_ != 0) return;
  for (const Run run : pool_->TakeRuns([this](Run each) { return IsHeapExtent(each); })) ReleaseExtent(run);
}

template <File FileT>
void RecordHeap<FileT>::ReleaseIfExtent(Run run) {
  if (!IsHeapExtent(run)) return;
  std::lock_guard lock(extents_mutex_);
  if (extent_pins_ == 0 && pool_->TakeIfThere(run)) ReleaseExtent(run);
}

template <File FileT>
void RecordHeap<FileT>::ReleaseExtent(Run run) {
  const std::uint64_t offset = run.begin - sizeof(format::HeapExtentHeader);
  if (!AcceptsWrites()) return;
  if (Status status = extents_->ForgetHeapExtent(offset); !status.ok()) return Poison(status);
  extents_->Free({offset, run.end - offset});
}

template <File FileT>
template <class ForEachWriter>
void RecordHeap<FileT>::GatherFree(ForEachWriter&& for_each_writer) {
  for_each_writer([&](WriterState& writer) {
    ReleaseFreed(writer);
    pool_->FreeRun(Rest(std::exchange(writer.chunk, {})));
    pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  });
}

// ---- harvest ----

template <File FileT>
void RecordHeap<FileT>::BeginHarvest(WriterState& writer, std::uint64_t num_records) {
  if (!AcceptsWrites()) return;
  std::lock_guard lock(harvest_mutex_);
  live_to_harvest_ = num_records;
  harvest_end_ = extents_->tail();
  harvest_next_.store(format::kFirstExtent, std::memory_order_relaxed);
  if (first_epoch_ - extents_->LoadLive(&format::LiveState::oldest_retired_epoch) > kRetiredAgeMax) HarvestUntil(writer, harvest_end_);
}

template <File FileT>
void RecordHeap<FileT>::HarvestFor(WriterState& writer, std::uint64_t bytes) {
  if (HarvestIsOver() || evacuating_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(harvest_mutex_);
  HarvestUntil(writer, std::min(harvest_next_.load(std::memory_order_relaxed) + bytes, harvest_end_));
}

// Harvests few extents, as the caller has a bucket locked. False if there is nothing to harvest.
template <File FileT>
bool RecordHeap<FileT>::HarvestSome(WriterState& writer) {
  for (int i = 0; i < kHarvestsAtOnce; ++i) {
    if (HarvestIsOver() || evacuating_.load(std::memory_order_relaxed)) return i != 0;
    if (std::unique_lock harvest(harvest_mutex_, std::try_to_lock); harvest) {
      HarvestUntil(writer, std::min(harvest_next_.load(std::memory_order_relaxed) + 1, harvest_end_));
    }
  }
  return true;
}

template <File FileT>
void RecordHeap<FileT>::HarvestUntil(WriterState& writer, std::uint64_t end) {
  for (std::uint64_t next; (next = harvest_next_.load(std::memory_order_relaxed)) < end;) {
    const StatusOr<std::uint64_t> bytes = extents_->HeapExtentBytes(next);
    if (!bytes.ok() || *bytes != 0) {
      if (bytes.ok()) HarvestExtent(writer, {next, *bytes});
      next += bytes.ok() ? *bytes : format::kExtentUnit;  // an unreadable extent stays unused
    } else {
      extents_->Free({next, format::kExtentUnit});  // unless the index has it
      next += format::kExtentUnit;
    }
    harvest_next_.store(next, std::memory_order_relaxed);
    if (next < harvest_end_) continue;
    // A damaged live record may be one of the doubtful pieces; then these stay unused.
    if (live_to_harvest_ == 0) {
      for (const ChunkRest& piece : doubtful_) FreeGap(writer, piece.next, piece.bytes());
    }
    doubtful_ = {};
  }
}

// REQUIRES: only stamps are written to the extent meanwhile
template <File FileT>
void RecordHeap<FileT>::HarvestExtent(WriterState& writer, Extent extent) {
  AlignedBuffer buffer;
  const char* bytes = base_ + (kMapped ? extent.offset : 0);
  if constexpr (!kMapped) {
    buffer = MakeAlignedBuffer(extent.bytes);
    bytes = reinterpret_cast<const char*>(buffer.get());
    if (!extents_->Read(extent.offset, reinterpret_cast<char*>(buffer.get()), extent.bytes).ok()) return;
  }
  KeptBlocks kept([&](std::uint64_t offset, std::uint64_t size, bool certain) {
    if (certain) return FreeGap(writer, offset, size);
    doubtful_.push_back({offset, offset + size});
  });
  kept.Enter(extent);
  const auto visit = [&](const ScannedRecord& record) {
    const format::Leftover leftover = format::LeftoverOf(record.stamp, first_epoch_);
    if (leftover == format::Leftover::kWaiting) Wait(writer, record.handle, record.key.size(), record.value.size());
    if (format::WasLiveBefore(record.stamp, first_epoch_)) --live_to_harvest_;
    if (leftover != format::Leftover::kFree) kept.Keep(OffsetOf(record.handle), BlockBytes(record));
    return absl::OkStatus();
  };
  (void)ScanExtent<Trust::kLiveHeads>(extent, bytes, visit, [&] { kept.Doubt(); });
  kept.Leave();
}

// ---- reclaiming ----

template <File FileT>
void RecordHeap<FileT>::CountLarge(std::uint64_t bytes) {
  large_waiting_.fetch_add(bytes, std::memory_order_relaxed);
  if (!NeedsReclaim() || is_reclaiming_.exchange(true, std::memory_order_acq_rel)) return;
  if (!reclaim_call_.ask(reclaim_call_.context)) EndReclaim();
}

template <File FileT>
bool RecordHeap<FileT>::NeedsReclaim() const {
  const std::uint64_t waiting = large_waiting_.load(std::memory_order_relaxed);
  return reclaim_bytes_ != 0 && waiting >= reclaim_bytes_ && waiting >= AllLive() / kReclaimShare;
}

// Free blocks in threads' caches and small blocks that wait count as live here.
template <File FileT>
std::uint64_t RecordHeap<FileT>::AllLive() const {
  const std::uint64_t index = index_is_in_memory() ? 0 : index_bytes();
  const std::uint64_t others = LargeWaiting() + index + extents_->free_extent_bytes() + pool_->free_bytes(), all = extents_->tail();
  return all - std::min(all, others);
}

// Long values are written faster than a device syncs. While twice as many bytes wait as cause a
// synchronization, each Set of a long value waits up to kPauses ms for it, so that the file does
// not grow by everything that is written meanwhile.
template <File FileT>
void RecordHeap<FileT>::PaceLongWrite() const {
  if (!is_reclaiming_.load(std::memory_order_acquire) || LargeWaiting() < 2 * reclaim_bytes_) [[likely]]
    return;
  const std::uint64_t most = std::max(2 * reclaim_bytes_, AllLive() / kReclaimShare * 2);
  for (int i = 0; i < kPauses && LargeWaiting() >= most && is_reclaiming_.load(std::memory_order_acquire); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// ---- epochs ----

template <File FileT>
template <class ForEachWriter>
typename RecordHeap<FileT>::ClosedEpoch RecordHeap<FileT>::CloseEpoch(ForEachWriter&& for_each_writer) {
  const std::uint64_t closed = epoch();
  const unsigned unstamped = FreeBlockPool::kUnstamped + closed % format::kSizeClasses;
  for_each_writer([&](WriterState& writer) {
    pool_->Flush(writer.free, unstamped, unstamped + 1);
    pool_->Flush(writer.free, FreeBlockPool::kWaiting, FreeBlockPool::kLists);
    writer.waiting_bytes = 0;
  });
  large_closing_.store(large_waiting_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  UseEpoch(closed + 1);
  PublishEpoch();
  return {closed, extents_->tail(), pool_->TakeWaiting(), pool_->Take(unstamped), HarvestIsOver()};
}

template <File FileT>
Status RecordHeap<FileT>::CommitEpoch(const ClosedEpoch& closed, std::uint64_t num_records) {
  Status status = Health();
  if (status.ok()) status = extents_->Sync();
  if (status.ok()) {
    status = extents_->Commit([&](format::HashSuperBlock& super) {
      super.epoch = closed.epoch;
      super.tail = closed.tail;
      super.num_records = num_records;
      super.synced_at = WallClock();
      super.sweep_extent = sweep_.extent;
      super.sweep_to = sweep_.to;
      super.sweep_end = sweep_.end;
    });
  }
  if (!status.ok()) {
    Poison(status);
    return status;
  }
  durable_epoch_.store(closed.epoch, std::memory_order_release);
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
    } else if (kMapped || pool_->IsSmall(c)) {
      while (chain != 0) as_writer([&] { chain = ReleaseSome(writer, c, chain); });
    } else if (chain != 0) {
      FreeSlowly(writer, c, StampFree(chain), as_writer);
    }
  }
  large_closing_.store(0, std::memory_order_relaxed);
  if (closed.has_all_retired) extents_->StoreLive(&format::LiveState::oldest_retired_epoch, closed.epoch);
  const std::uint64_t until = harvest_next_.load(std::memory_order_relaxed) + harvest_end_ / kHarvestParts;
  while (!HarvestIsOver() && !evacuating_.load(std::memory_order_relaxed) && harvest_next_.load(std::memory_order_relaxed) <= until) {
    as_writer([&] { HarvestFor(writer, 1); });
  }
}

// Releases some magazines of a chain of small blocks or, in a mapped file, of any; returns the rest
// of the chain.
template <File FileT>
std::uint32_t RecordHeap<FileT>::ReleaseSome(WriterState& writer, unsigned size_class, std::uint32_t chain) {
  const bool evacuating = evacuating_.load(std::memory_order_relaxed);
  std::unique_lock harvest(harvest_mutex_, std::defer_lock);
  if (!HarvestIsOver()) harvest.lock();
  return pool_->Drain(
      chain,
      [&](std::uint32_t handle) {
        if (pinned_ != nullptr) pinned_->handed_out.Add(handle);
        if (evacuating && IsVictim(handle)) return ForgetBlock(handle, size_class);
        if (IsFrozen(handle)) return StoreStamp(handle, stamps().free);  // the harvest finds it
        if (!kMapped) return pool_->Push(writer.free, FreeBlockPool::kUnstamped + size_class, handle);
        StoreStamp(handle, stamps().free);
        FreeStamped(writer, handle, size_class);
      },
      kReleasesAtOnce);
}

// Stamps the blocks of a chain as free. Returns them, except those that the harvest will find.
template <File FileT>
std::vector<std::uint32_t> RecordHeap<FileT>::StampFree(std::uint32_t chain) {
  std::unique_lock harvest(harvest_mutex_, std::defer_lock);
  if (!HarvestIsOver()) harvest.lock();
  std::vector<std::uint32_t> handles;
  (void)pool_->Drain(chain, [&](std::uint32_t handle) {
    if (pinned_ != nullptr) pinned_->handed_out.Add(handle);
    // If there is no memory for the list, the block is forgotten: lost space, not lost data.
    if (IsFrozen(handle) || !TryPushBack(handles, handle)) StoreStamp(handle, stamps().free);
  });
  StampFree(std::span(handles));
  return handles;
}

template <File FileT>
template <class AsWriter>
void RecordHeap<FileT>::ReleaseUnstamped(WriterState& writer, const ClosedEpoch& closed, AsWriter&& as_writer) {
  static_assert(format::kSizeClasses < format::kOtherAgeMax / 2);
  if (closed.unstamped != 0) FreeSlowly(writer, closed.epoch % format::kSizeClasses, StampFree(closed.unstamped), as_writer);
}

// In small steps, so that a closing gate does not wait long.
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

// Stamps in file order, and reads the next blocks together into the file's cache.
template <File FileT>
void RecordHeap<FileT>::StampFree(std::span<std::uint32_t> handles) {
  std::ranges::sort(handles);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if constexpr (kReadsAhead) {
      if (HasCache() && i % Ahead::kRecordsMax == 0) {
        Ahead ahead;
        for (const std::uint32_t handle : handles.subspan(i, std::min(Ahead::kRecordsMax, handles.size() - i)))
          ahead.Want(handle, OffsetOf(handle), 8);
        Read(ahead);
      }
    }
    StoreStamp(handles[i], stamps().free);
  }
}

template <File FileT>
void RecordHeap<FileT>::RefreshStamp(std::uint32_t handle, format::Stamp stamp) {
  const format::Stamp refreshed = format::Refresh(stamp, epochs());
  if (refreshed.bits() != stamp.bits()) StoreStamp(handle, refreshed);
}

// ---- evacuation ----

template <File FileT>
template <class ForEachWriter>
void RecordHeap<FileT>::BeginEvacuation(std::vector<Extent>& victims, ForEachWriter&& for_each_writer) {
  for_each_writer([&](WriterState& writer) {
    std::erase_if(victims, [&](const Extent& extent) {
      return writer.ahead.bytes() != 0 && writer.ahead.begin >= extent.offset && writer.ahead.begin < extent.offset + extent.bytes;
    });
  });
  victims_.assign(extents_->tail() / format::kExtentUnit, false);
  for (const Extent& extent : victims) {
    for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += format::kExtentUnit) {
      victims_[at / format::kExtentUnit] = true;
    }
  }
  evacuating_.store(true, std::memory_order_release);
  const auto forget = [this](std::uint32_t handle, unsigned size_class) {
    if (!IsVictim(handle)) return false;
    ForgetBlock(handle, size_class);
    return true;
  };
  pool_->Forget(forget);
  for_each_writer([&](WriterState& writer) { pool_->Forget(writer.free, forget); });
  for_each_writer([&](WriterState& writer) {
    if (writer.chunk.bytes() != 0 && IsVictim(HandleOf(writer.chunk.next))) forgotten_.push_back(Rest(std::exchange(writer.chunk, {})));
  });
  std::vector<Run> ranges;
  for (const Extent& extent : victims) ranges.push_back({extent.offset, extent.offset + extent.bytes});
  pool_->TakeAll(
      ranges, [this](std::uint32_t handle) { return IsVictim(handle); }, [this](Run run) { forgotten_.push_back(run); });
}

template <File FileT>
bool RecordHeap<FileT>::IsLong(std::uint32_t handle) const {
  char bytes[kHeadMax];
  const std::uint64_t offset = OffsetOf(handle);
  if (!IsPlace(offset)) return false;
  const std::uint64_t size = std::min<std::uint64_t>(sizeof(bytes), extents_->tail() - offset);
  return extents_->Read(offset, bytes, size).ok() && DecodeHead(bytes, static_cast<std::size_t>(size)).size() > kLongRecord;
}

template <File FileT>
StatusOr<std::uint32_t> RecordHeap<FileT>::Relocate(WriterState& mover, std::uint32_t handle) {
  HAKO_RETURN_IF_ERROR(Health());
  HAKO_ASSIGN_OR_RETURN(const RecordView record, View(mover, handle));
  const std::string key(record.key), value(record.value);
  Status error;
  const unsigned size_class = ClassOf(key.size(), value.size());
  std::uint32_t copy = pool_->IsSmall(size_class) ? Carve(mover, size_class) : 0;
  if (copy == 0) copy = CarveSlowly(mover, size_class, &error);
  if (copy == 0) return error;
  HAKO_RETURN_IF_ERROR(Put(mover, copy, fresh_stamp(), KeyHash(key), key, value));
  return copy;
}

template <File FileT>
void RecordHeap<FileT>::EndEvacuation(WriterState& writer, const std::vector<Extent>& victims, bool emptied) {
  evacuating_.store(false, std::memory_order_release);
  victims_.clear();
  const std::vector<Run> forgotten = std::exchange(forgotten_, {});
  if (!emptied) {
    for (const Run run : forgotten) {
      StoreStamp(HandleOf(run.begin), stamps().free);  // it may be stamped as retired
      FreeGap(writer, run.begin, run.bytes());         // not FreeRun: small pieces go to the lists
    }
    return;
  }
  for (const Extent& extent : victims) {
    if (extents_->ForgetHeapExtent(extent.offset).ok()) extents_->Free(extent);
  }
}

template <File FileT>
StatusOr<std::uint64_t> RecordHeap<FileT>::LiveBytes(Extent extent) const {
  std::uint64_t bytes = 0;
  HAKO_RETURN_IF_ERROR(Scan(extent.offset, extent.offset + extent.bytes, [&](const ScannedRecord& record) {
    const bool is_live = record.stamp.IsLive() || record.stamp.state() == format::BlockState::kUnborn;
    if (is_live) bytes += BytesOf(ClassOf(record.key.size(), record.value.size()));
    return absl::OkStatus();
  }));
  return bytes;
}

}  // namespace hako::hash
