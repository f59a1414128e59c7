// Definitions of dbm/hash_dbm.h: Rebuild.
#pragma once

#include "hako/dbm/hash_dbm.h"

namespace hako {

// First moves the records of extents that are at most three quarters full into fresh ones, then
// those of the last extents into free ones below. Works in batches, so that extents emptied by one
// batch take the records of the next.
template <File FileT>
Status HashDBM<FileT>::Rebuild() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());
  HAKO_RETURN_IF_ERROR(heap_->Refusal());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  std::lock_guard lock(reorganizing_mutex_);
  {
    std::lock_guard sync_lock(maintenance_mutex_);
    HAKO_RETURN_IF_ERROR(SynchronizeLocked(*mine));
  }
  heap_->HarvestAll(*mine, InStepsOf(*mine));
  const Status status = WithMover(*mine, [&](WriterState& mover, std::uint64_t batch) -> Status {
    std::vector<std::vector<hash::Extent>> batches;
    std::uint64_t live_in_batch = 0;
    HAKO_RETURN_IF_ERROR(ForEachHeapExtent([&](hash::Extent extent) -> Status {
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t live, heap_->LiveBytes(extent));
      if (live > extent.bytes / 4 * 3) return absl::OkStatus();
      if (batches.empty() || live_in_batch + live > batch) batches.emplace_back(), live_in_batch = 0;
      batches.back().push_back(extent);
      live_in_batch += live;
      return absl::OkStatus();
    }));
    for (auto& sparse : batches) HAKO_RETURN_IF_ERROR(Evacuate(*mine, mover, sparse));
    AsWriter(*mine, [&] { heap_->ReleaseChunk(mover); });  // the next chunk lies lower
    return MoveDown(*mine, mover, batch);
  });
  rebuilt_ = rebuilt_ || status.ok();
  return status;
}
HAKO_OR_NO_MEMORY

// Runs body(mover, batch), which moves records as the writer `mover`, up to `batch` bytes at a
// time.
template <File FileT>
template <class Body>
Status HashDBM<FileT>::WithMover(WriterState& mine, Body&& body) {
  heap_->ReleaseExtents();
  const typename Space::ExtentPin pin(*heap_);  // lists of extents stay valid
  WriterState mover;
  const Status status = CatchNoMemory([&] { return body(mover, std::max<std::uint64_t>(8 << 20, heap_->extents().tail() / 16)); });
  AsWriter(mine, [&] { heap_->ReleaseMover(mover); });
  return status;
}

template <File FileT>
template <class F>
Status HashDBM<FileT>::ForEachHeapExtent(F&& visit) {
  auto& extents = heap_->extents();
  for (std::uint64_t at = format::kFirstExtent; at < extents.tail();) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t bytes, extents.HeapExtentBytes(at));
    if (bytes != 0) HAKO_RETURN_IF_ERROR(visit(hash::Extent{at, bytes}));
    at += std::max(bytes, format::kExtentUnit);
  }
  return absl::OkStatus();
}

// Empties the last heap extents, while free extents below have space for their records.
template <File FileT>
Status HashDBM<FileT>::MoveDown(WriterState& mine, WriterState& mover, std::uint64_t batch) {
  std::vector<hash::Extent> all, victims;
  HAKO_RETURN_IF_ERROR(ForEachHeapExtent([&](hash::Extent extent) { return all.push_back(extent), absl::OkStatus(); }));
  while (!all.empty()) {
    std::uint64_t room = 0;
    for (const hash::Extent& free : heap_->extents().free_extents()) room += free.offset < all.back().offset ? free.bytes : 0;
    room = std::min(room, batch);
    for (victims.clear(); !all.empty() && all.back().bytes <= room; all.pop_back()) {
      room -= all.back().bytes;
      victims.push_back(all.back());
    }
    if (victims.empty()) break;
    HAKO_RETURN_IF_ERROR(Evacuate(mine, mover, victims));
  }
  return absl::OkStatus();
}

// Moves every record out of the victims, synchronizes, and frees the victims.
template <File FileT>
Status HashDBM<FileT>::Evacuate(WriterState& mine, WriterState& mover, std::vector<hash::Extent>& victims) {
  const auto with_mover = [&](auto&& visit) {  // the mover's free blocks may lie in victims; blocks it retires wait like those of others
    ForEachWriter()(visit);
    visit(mover);
  };
  Status status = CatchNoMemory([&] {
    return RunExclusiveFlushed([&] {
      heap_->BeginEvacuation(victims, with_mover);
      return absl::OkStatus();
    });
  });
  // Long records are moved one by one, so that no thread waits for their bytes.
  std::vector<std::uint32_t> long_records;
  if (status.ok())
    status = CatchNoMemory([&] {
      return index_.ForEachLocked(mine, 0, ~std::uint64_t{0}, [&](std::uint32_t handle, auto&& replace) -> Status {
        if (!heap_->IsVictim(handle)) return absl::OkStatus();
        if (heap_->IsLong(handle)) return long_records.push_back(handle), absl::OkStatus();
        HAKO_ASSIGN_OR_RETURN(const std::uint32_t copy, heap_->Relocate(mover, handle));
        heap_->NoteMove(handle, copy);
        heap_->Retire(mover, handle);
        replace(copy);
        heap_->Commit(copy);
        heap_->ReleaseFreed(mover);  // while it still counts as a block of a victim
        return absl::OkStatus();
      });
    });
  for (std::size_t i = 0; status.ok() && i < long_records.size(); ++i) {
    status = CatchNoMemory([&] { return MoveLong(mine, mover, long_records[i]); });
  }
  std::lock_guard lock(maintenance_mutex_);  // until every block that waited in a victim is released
  // After an error too: moved records have left blocks that only a synchronization releases.
  status.Update(CatchNoMemory([&] { return SynchronizeSlots(mine, with_mover); }));
  RunExclusive([&] {
    heap_->EndEvacuation(mine, victims, status.ok());
    return 0;
  });
  return status;
}

// Writes the copy with nothing locked: a victim's blocks stay unchanged, even those of a record
// retired meanwhile.
template <File FileT>
Status HashDBM<FileT>::MoveLong(WriterState& mine, WriterState& mover, std::uint32_t handle) {
  StatusOr<hash::RecordView> record = heap_->View(mine, handle);
  if (!record.ok()) return heap_->IsNamed(handle) ? record.status() : absl::OkStatus();
  const std::uint64_t hash = heap_->KeyHash(record->key);
  const std::size_t key_size = record->key.size(), value_size = record->value.size();
  Status error;
  const std::uint32_t copy = heap_->WriteAhead(mine, hash, record->key, record->value, &error);
  if (copy == 0) return error;
  bool moved = false;
  index_.RunIfNamed(mine, hash, handle, [&](auto&& replace) {
    moved = true;
    error = heap_->EndAhead(mine, copy);
    if (!error.ok()) return;
    heap_->NoteMove(handle, copy);
    heap_->Retire(mover, handle);
    replace(copy);
    heap_->Commit(copy);
    heap_->ReleaseFreed(mover);
  });
  if (moved) return error;
  AsWriter(mine, [&] {
    error = heap_->EndAhead(mine, copy);
    heap_->GiveBack(mine, copy, key_size, value_size);
    heap_->ReleaseFreed(mine);
  });
  return error;
}

// After a Rebuild: builds an index of the size that the records need, in the lowest free extents.
// REQUIRES: no other thread uses the database
template <File FileT>
Status HashDBM<FileT>::RebuildIndex(WriterState& mine) {
  auto& extents = heap_->extents();
  HAKO_RETURN_IF_ERROR(SynchronizeLocked(mine));
  extents.WithdrawLiveState();
  const std::uint64_t count = Count();
  for (const hash::Extent& extent : heap_->TakeIndexExtents()) extents.Free(extent);
  index_.Reset();
  writers_.ForEach([](WriterState& writer) { writer.pending_count.store(0, std::memory_order_relaxed); });
  HAKO_RETURN_IF_ERROR(index_.Create(count));
  HAKO_RETURN_IF_ERROR(heap_->Scan(format::kFirstExtent, extents.tail(), [&](const typename Space::ScannedRecord& record) {
    if (!record.stamp.IsLive()) return absl::OkStatus();
    heap_->RefreshStamp(record.handle, record.stamp);
    return index_.Adopt(mine, record.key_hash, record.handle);
  }));
  return Count() == count ? absl::OkStatus() : absl::DataLossError("damaged records found while rebuilding the index");
}

}  // namespace hako
