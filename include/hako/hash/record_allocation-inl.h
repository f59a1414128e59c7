// Definitions of hash/record_heap.h: where a new block comes from, and how the file grows.
#pragma once

#include "hako/hash/record_heap.h"

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
  if (Records::kStampsLate && block.bytes() == 0) block = pool_->TakeSmallBlock(FreeBlockPool::kUnstamped, size_class);
  if (block.bytes() == 0) return 0;
  const std::uint64_t used = BytesOf(size_class);
  FreeGap(writer, block.begin + used, block.bytes() - used);
  return HandleOf(block.begin);
}

template <File FileT>
Status RecordHeap<FileT>::Grow(std::uint64_t bytes, std::uint64_t most) {
  if (bytes > FreeBlockPool::kSmallMax) ReleaseExtents();  // two neighbours may be large enough
  if (!pool_->HasRoomForRun()) return NoMemoryError();
  const std::uint64_t size = ExtentSize(bytes, most);
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, extents_->Allocate(size));
  const sync::SharedLock lock(growth_mutex_);
  HAKO_RETURN_IF_ERROR(extents_->BeginHeapExtent({offset, size}));
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
  // Small extents fill the region that the first ones have begun, see FreeBlockPool.
  const std::uint64_t within = used % format::kExtentAlignment;
  const bool is_small = within != 0 && needed <= format::kExtentAlignment - within;
  const std::uint64_t unit = is_small ? format::kExtentUnit : format::kExtentAlignment;
  const std::uint64_t least = this->IsDirect() && within == 0 ? std::min(kDirectChunk, std::bit_floor(used)) : 0;
  return std::max(ChunkSize(bytes < kLarge ? used : 0, needed, unit), least);
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
  sync::MutexLock lock(extents_mutex_);
  if (extent_pins_ != 0) return;
  for (const Run run : pool_->TakeRuns([this](Run each) { return IsHeapExtent(each); })) ReleaseExtent(run);
}

template <File FileT>
void RecordHeap<FileT>::ReleaseIfExtent(Run run) {
  if (!IsHeapExtent(run)) return;
  sync::MutexLock lock(extents_mutex_);
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
    gate_.AssertKeptOut(writer);
    ReleaseFreed(writer);
    pool_->FreeRun(Rest(std::exchange(writer.chunk, {})));
    pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  });
}

}  // namespace hako::hash
