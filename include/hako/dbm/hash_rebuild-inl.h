// Definitions of dbm/hash_dbm.h: Rebuild.
#pragma once

#include "hako/dbm/hash_dbm.h"

namespace hako {

// First moves the records of extents that are at most three quarters full, if there are several,
// into fresh extents; then moves the records of the last extents into free ones below. Works in
// batches, so that extents emptied by one batch take the records of the next.
template <File FileT>
Status HashDBM<FileT>::Rebuild() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  HAKO_RETURN_IF_ERROR(space_->Refusal());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  sync::MutexLock lock(reorganizing_mutex_);
  {
    sync::MutexLock sync_lock(maintenance_mutex_);
    HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
  }
  space_->HarvestAll(*mine, InStepsOf(*mine));
  const Status status = WithMover(*mine, [&](WriterState& mover, std::uint64_t batch) -> Status {
    std::vector<std::vector<hash::Extent>> batches;
    std::uint64_t live_in_batch = 0, live_in_all = 0, bytes = 0;
    HAKO_RETURN_IF_ERROR(ForEachHeapExtent([&](hash::Extent extent) -> Status {
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t live, space_->LiveBytes(extent));
      if (live > extent.bytes / 4 * 3) return absl::OkStatus();
      if (batches.empty() || live_in_batch + live > batch) batches.emplace_back(), live_in_batch = 0;
      batches.back().push_back(extent);
      live_in_batch += live;
      live_in_all += live;
      bytes += extent.bytes;
      return absl::OkStatus();
    }));
    // A single extent would only be moved into another one, and several small extents into one that
    // is as large as all of them.
    const bool is_single = batches.size() == 1 && batches.front().size() == 1;
    if (is_single || hash::ExtentList::AlignFor(format::kExtentAlignment, live_in_all) >= bytes) batches.clear();
    for (auto& sparse : batches) HAKO_RETURN_IF_ERROR(Evacuate(*mine, mover, sparse));
    AsWriter(*mine, [&] { space_->ReleaseChunk(mover); });  // so that the next chunk lies lower
    return MoveDown(*mine, mover, batch);
  });
  rebuilt_ = rebuilt_ || status.ok();
  return status;
}
HAKO_OR_NO_MEMORY

// Runs body(mover, batch). The body moves records as the writer `mover`, up to `batch` bytes at a
// time.
template <File FileT>
template <class Body>
Status HashDBM<FileT>::WithMover(WriterState& mine, Body&& body) {
  space_->heap_extents().ReturnAllFree();
  const typename hash::HeapExtents<FileT>::Pin pin(space_->heap_extents());  // keeps lists of extents valid
  WriterState mover;
  const Status status = CatchNoMemory([&] { return body(mover, std::max<std::uint64_t>(8 << 20, space_->extents().tail() / 16)); });
  AsWriter(mine, [&] { space_->ReleaseMover(mover); });
  return status;
}

template <File FileT>
template <class F>
Status HashDBM<FileT>::ForEachHeapExtent(F&& visit) {
  auto& extents = space_->extents();
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
    std::uint64_t room = 0;  // for whole chunks
    const std::uint64_t chunk = hash::ChunkSize(space_->extents().tail(), 0, format::kExtentAlignment);
    for (const hash::Extent& free : space_->extents().free_extents()) {
      const std::uint64_t begin = hash::ExtentList::AlignFor(chunk, free.offset), end = free.offset + free.bytes;
      if (begin < end && free.offset < all.back().offset) room += (end - begin) / chunk * chunk;
    }
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
  const auto with_mover = [&](auto&& visit) {  // the mover's free blocks may lie in victims; the blocks that it retires wait as usual
    this->ForEachWriter()(visit);
    visit(mover);
  };
  Status status = CatchNoMemory([&] {
    return RunExclusiveFlushed([&] {
      space_->BeginEvacuation(victims, with_mover);
      return absl::OkStatus();
    });
  });
  // Long records are moved one by one, so that no thread waits for their bytes.
  std::vector<std::uint32_t> long_records;
  if (status.ok())
    status = CatchNoMemory([&] {
      return index().ForEachLocked(mine, 0, ~std::uint64_t{0}, [&](std::uint32_t handle, auto&& replace) -> Status {
        if (!space_->IsVictim(handle)) return absl::OkStatus();
        if (space_->IsLong(handle)) return long_records.push_back(handle), absl::OkStatus();
        HAKO_ASSIGN_OR_RETURN(const std::uint32_t copy, space_->Relocate(mover, handle));
        space_->NoteMove(handle, copy);
        space_->Retire(mover, handle);
        replace(copy);
        space_->Commit(copy);
        space_->ReleaseFreed(mover);  // while the block still counts as one of a victim
        return absl::OkStatus();
      });
    });
  for (std::size_t i = 0; status.ok() && i < long_records.size(); ++i) {
    status = CatchNoMemory([&] { return MoveLong(mine, mover, long_records[i]); });
  }
  sync::MutexLock lock(maintenance_mutex_);  // held until every block that waited in a victim is released
  // Synchronize even after an error, because only a synchronization releases the old blocks of
  // moved records.
  status.Update(CatchNoMemory([&] { return SynchronizeSlots(mine, with_mover); }));
  RunExclusive([&] {
    space_->EndEvacuation(mine, victims, status.ok());
    return 0;
  });
  return status;
}

// Writes the copy with nothing locked. The blocks of a victim do not change meanwhile, even if the
// record is retired.
template <File FileT>
Status HashDBM<FileT>::MoveLong(WriterState& mine, WriterState& mover, std::uint32_t handle) {
  const auto error_of = [&](const Status& status) { return space_->IsNamed(handle) ? status : absl::OkStatus(); };
  auto record = space_->FindLong(handle);
  if (!record.ok()) return error_of(record.status());
  const std::uint64_t hash = space_->KeyHash(record->key);
  const std::size_t key_size = record->key.size();
  const std::uint64_t value_size = record->value.size();
  Status error;
  const std::uint32_t copy = space_->WriteAhead(mine, hash, record->key, record->value, &error);
  if (copy == 0) return absl::IsDataLoss(error) ? error_of(error) : error;
  bool moved = false;
  index().RunIfNamed(mine, hash, handle, [&](auto&& replace) {
    moved = true;
    error = space_->EndAhead(mine, copy);
    if (!error.ok()) return;
    space_->NoteMove(handle, copy);
    space_->Retire(mover, handle);
    replace(copy);
    space_->Commit(copy);
    space_->ReleaseFreed(mover);
  });
  if (moved) return error;
  AsWriter(mine, [&] {
    error = space_->EndAhead(mine, copy);
    space_->GiveBack(mine, copy, key_size, value_size);
    space_->ReleaseFreed(mine);
  });
  return error;
}

// Call after a Rebuild. If an index of the size that the records need takes less space, builds it
// in the lowest free extents, and moves records to where the old index was.
// REQUIRES: no other thread uses the database
template <File FileT>
Status HashDBM<FileT>::RebuildIndex(WriterState& mine) {
  this->AssertNoWriters();
  auto& extents = space_->extents();
  HAKO_RETURN_IF_ERROR(SynchronizeLocked());
  const std::uint64_t count = this->Count();
  std::uint64_t live = 0;
  HAKO_RETURN_IF_ERROR(space_->Scan(format::kFirstExtent, extents.tail(), [&](const typename Space::ScannedRecord& record) {
    if (record.stamp.IsLive()) ++live;
    return absl::OkStatus();
  }));
  if (live != count) return absl::OkStatus();  // there is damage: a new index would lack records that the old one names
  extents.WithdrawLiveState();
  for (const hash::Extent& extent : space_->TakeIndexExtents()) extents.Free(extent);
  index().Reset();
  this->ForgetCounts();
  HAKO_RETURN_IF_ERROR(index().Create(count));
  HAKO_RETURN_IF_ERROR(space_->Scan(format::kFirstExtent, extents.tail(), [&](const typename Space::ScannedRecord& record) {
    if (!record.stamp.IsLive()) return absl::OkStatus();
    space_->RefreshStamp(record.handle, record.stamp);
    return index().Adopt(mine, record.key_hash, record.handle);
  }));
  if (this->Count() != count) return absl::DataLossError("damaged records found while rebuilding the index");
  // It is not an error if there is no space for a batch.
  (void)WithMover(mine, [&](WriterState& mover, std::uint64_t batch) { return MoveDown(mine, mover, batch); });
  return space_->Health();
}

}  // namespace hako
