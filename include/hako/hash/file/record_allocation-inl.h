// Definitions of hash/file/record_heap.h: where a new block comes from.
#pragma once

#include "hako/hash/file/record_heap.h"

namespace hako::hash {

template <File FileT>
HAKO_INLINE std::uint32_t RecordHeap<FileT>::TakeSmall(WriterState& writer, unsigned size_class) {
  std::uint32_t handle = 0;
  if constexpr (Records::kStampsLate) handle = pool_->Pop(writer.free, FreeBlockPool::kUnstamped + size_class);
  if (handle == 0) handle = pool_->Pop<FreeBlockPool::kRest>(writer.free, size_class);
  return handle != 0 ? handle : Carve(writer, size_class);
}

template <File FileT>
HAKO_INLINE std::uint32_t RecordHeap<FileT>::Carve(WriterState& writer, unsigned size_class) {
  const std::uint64_t bytes = BytesOf(size_class);
  const std::uint64_t place = this->PlaceIn(writer.chunk, bytes);
  if (writer.chunk.end - writer.chunk.next < place - writer.chunk.next + bytes) [[unlikely]]
    return 0;
  if (place != writer.chunk.next) FreeGap(writer, writer.chunk.next, place - writer.chunk.next);
  writer.chunk.next = place + bytes;
  return HandleOf(place);
}

template <File FileT>
std::uint32_t RecordHeap<FileT>::CarveSlowly(WriterState& writer, unsigned size_class, Status* error) {
  const bool small = pool_->IsSmall(size_class);
  const std::uint64_t bytes = BytesOf(size_class), most = bytes + this->place_unit() - 1;
  if (small) pool_->FreeRun(Rest(std::exchange(writer.chunk, {})));
  for (bool harvested = false, gathered = false;;) {
    if (!small) {
      if (const Run block = pool_->TakeBlock(bytes, this->place_unit()); block.bytes() != 0 && !IndexHas(block))
        return HandleOf(block.begin);
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
    if (*error = heap_extents_.Grow(bytes, most); error->ok()) continue;
    std::uint32_t handle = small ? pool_->Pop(writer.free, size_class) : 0;
    if (small && handle == 0) handle = CutSmall(writer, size_class);
    if (handle != 0) *error = absl::OkStatus();
    return handle;
  }
}

// Call if the file cannot grow. Cuts the block from a free block of any small size, whose rest
// stays free.
template <File FileT>
std::uint32_t RecordHeap<FileT>::CutSmall(WriterState& writer, unsigned size_class) {
  Run block = pool_->TakeSmallBlock(FreeBlockPool::kFree, size_class);
  if (Records::kStampsLate && block.bytes() == 0) block = pool_->TakeSmallBlock(FreeBlockPool::kUnstamped, size_class);
  if (block.bytes() == 0) return 0;
  const std::uint64_t used = BytesOf(size_class);
  FreeGap(writer, block.begin + used, block.bytes() - used);
  return HandleOf(block.begin);
}

template <File FileT>
template <class ForEachWriter>
void RecordHeap<FileT>::GatherFree(ForEachWriter&& for_each_writer) {
  for_each_writer([&](WriterState& writer) {
    gate_.AssertKeptOut(writer);
    ReleaseFreed(writer);
    pool_->FreeRun(Rest(std::exchange(writer.chunk, {})));
    pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  });
}

template <File FileT>
void RecordHeap<FileT>::EndEvacuation(WriterState& writer, const std::vector<Extent>& victims, bool emptied) {
  gate_.AssertNoWriters();
  const std::vector<Run> held = victims_.End();
  if (!emptied) {
    for (const Run run : held) {
      StoreStamp(HandleOf(run.begin), stamps().free);  // it may be stamped as retired
      FreeGap(writer, run.begin, run.bytes());         // not FreeRun, because small pieces belong in the lists
    }
    return;
  }
  for (const Extent& extent : victims) {
    if (extents_->ForgetHeapExtent(extent.offset).ok()) extents_->Free(extent);
  }
}

}  // namespace hako::hash
