// Definitions of hash/record_heap.h: moving records together.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

template <File FileT>
template <class ForEachWriter>
void RecordHeap<FileT>::BeginEvacuation(std::vector<Extent>& victims, ForEachWriter&& for_each_writer) {
  const sync::MutexLock lock(growth_mutex_);
  for_each_writer([&](WriterState& writer) {
    gate_.AssertKeptOut(writer);
    std::erase_if(victims, [&](const Extent& extent) {
      return writer.ahead.bytes() != 0 && writer.ahead.begin >= extent.offset && writer.ahead.begin < extent.offset + extent.bytes;
    });
  });
  victims_.Begin(victims, extents_->tail());
  const auto forget = [this](std::uint32_t handle, unsigned size_class) {
    if (!IsVictim(handle)) return false;
    ForgetBlock(handle, size_class);
    return true;
  };
  pool_->Forget(forget);
  for_each_writer([&](WriterState& writer) { pool_->Forget(writer.free, forget); });
  for_each_writer([&](WriterState& writer) {
    if (writer.chunk.bytes() != 0 && IsVictim(HandleOf(writer.chunk.next))) victims_.Hold(Rest(std::exchange(writer.chunk, {})));
  });
  std::vector<Run> ranges;
  for (const Extent& extent : victims) ranges.push_back({extent.offset, extent.offset + extent.bytes});
  pool_->TakeAll(
      ranges, [this](std::uint32_t handle) { return IsVictim(handle); }, [this](Run run) { victims_.Hold(run); });
}

template <File FileT>
bool RecordHeap<FileT>::IsLong(std::uint32_t handle) const {
  char bytes[Heap::kHeadMax];
  const std::uint64_t offset = OffsetOf(handle);
  if (!IsPlace(offset)) return false;
  const std::uint64_t size = std::min<std::uint64_t>(sizeof(bytes), extents_->tail() - offset);
  return extents_->Read(offset, bytes, size).ok() && Heap::DecodeHead(bytes, static_cast<std::size_t>(size)).size() > kLongRecord;
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
  HAKO_RETURN_IF_ERROR(this->Put(mover.write_buffer, copy, fresh_stamp(), KeyHash(key), key, value));
  return copy;
}

template <File FileT>
void RecordHeap<FileT>::ReleaseMover(WriterState& mover) {
  ReleaseChunk(mover);
  pool_->Flush(mover.free, 0, FreeBlockPool::kLists);
}

template <File FileT>
void RecordHeap<FileT>::EndEvacuation(WriterState& writer, const std::vector<Extent>& victims, bool emptied) {
  gate_.AssertNoWriters();
  const std::vector<Run> held = victims_.End();
  if (!emptied) {
    for (const Run run : held) {
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
    if (is_live) bytes += this->BlockBytes(record);
    return absl::OkStatus();
  }));
  return bytes;
}

}  // namespace hako::hash
