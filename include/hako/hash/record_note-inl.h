// Definitions of hash/record_heap.h: the note of a clean close, which stores the free space.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

namespace internal {

inline void PutNumber(std::string* out, std::uint64_t number) { out->append(reinterpret_cast<const char*>(&number), sizeof(number)); }
inline bool TakeNumber(std::string_view* in, std::uint64_t* number) {
  if (in->size() < sizeof(*number)) return false;
  std::memcpy(number, in->data(), sizeof(*number));
  in->remove_prefix(sizeof(*number));
  return true;
}

}  // namespace internal

// 8-byte numbers: count, then {offset, bytes} of the free extents; then 1 if a harvest is not over,
// or has found a damaged extent, so that the next Open starts it again, and nothing else. Otherwise
// 0; count, {begin, end} of the free runs; then, for each list of free blocks that is not empty, {list, count} and the 4-byte
// handles. A list is a size class, or kSizeClasses + class for blocks that are free once the note
// is durable but have another stamp.
template <File FileT>
template <class ForEachWriter>
std::string RecordHeap<FileT>::TakeNote(ForEachWriter&& for_each_writer, const ClosedEpoch& closed) {
  std::string note;
  // Without the harvest's: it finds the free extents again.
  const bool is_harvested = harvest_.IsComplete();
  const std::vector<Extent> free = is_harvested ? extents_->free_extents() : std::vector<Extent>();
  internal::PutNumber(&note, free.size());
  for (const Extent& extent : free) {
    internal::PutNumber(&note, extent.offset);
    internal::PutNumber(&note, extent.bytes);
  }
  internal::PutNumber(&note, is_harvested ? 0 : 1);
  if (!is_harvested) return note;
  std::vector<Run> runs;
  pool_->ForEachRun([&](Run run) { runs.push_back(run); });
  internal::PutNumber(&note, runs.size());
  for (const Run run : runs) {
    internal::PutNumber(&note, run.begin);
    internal::PutNumber(&note, run.end);
  }
  for (unsigned list = 0; list < FreeBlockPool::kWaiting; ++list) {
    std::vector<std::uint32_t> handles;
    const auto add = [&](std::uint32_t handle) { handles.push_back(handle); };
    pool_->ForEach(list, add);
    for_each_writer([&](WriterState& writer) { pool_->ForEach(writer.free, list, add); });
    if (list >= FreeBlockPool::kUnstamped) pool_->Drain(closed.waiting[list - FreeBlockPool::kUnstamped], add);
    if (handles.empty()) continue;
    internal::PutNumber(&note, list);
    internal::PutNumber(&note, handles.size());
    note.append(reinterpret_cast<const char*>(handles.data()), handles.size() * sizeof(handles[0]));
  }
  return note;
}

template <File FileT>
Status RecordHeap<FileT>::ReadNote(WriterState& writer, std::string_view note) {
  const auto bad = [](const char* what, std::uint64_t offset) {
    return DataLossError(absl::StrCat("bad closing note: ", what).c_str(), offset);
  };
  const auto is_short = [&] { return bad("it is cut short", extents_->super().tail); };
  const std::uint64_t tail = extents_->tail(), unit = std::uint64_t{1} << shift_;
  // Extent units that are free or of the index, where no block can be.
  std::vector<bool> taken(tail / format::kExtentUnit);
  const auto is_free = [&](std::uint64_t offset, std::uint64_t bytes) {
    if (offset < format::kFirstExtent || offset > tail || bytes > tail - offset) return false;
    for (std::uint64_t at = offset / format::kExtentUnit; at * format::kExtentUnit < offset + bytes; ++at) {
      if (taken[at]) return false;
    }
    return true;
  };
  const auto take = [&](std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t at = offset; at < offset + bytes; at += format::kExtentUnit) taken[at / format::kExtentUnit] = true;
  };
  if (!this->index_is_in_memory()) {
    for (const format::IndexExtentEntry& entry : this->IndexExtents()) take(entry.offset, entry.bytes);
  }
  std::uint64_t count = 0, a = 0, b = 0;
  if (!internal::TakeNumber(&note, &count)) return is_short();
  for (; count != 0; --count) {
    if (!internal::TakeNumber(&note, &a) || !internal::TakeNumber(&note, &b)) return is_short();
    if (!is_free(a, b) || (a | b) % format::kExtentUnit != 0 || b == 0) return bad("a free extent is not free", a);
    take(a, b);
    extents_->Free({a, b});
  }
  std::uint64_t harvest;
  if (!internal::TakeNumber(&note, &harvest)) return is_short();
  if (harvest != 0) {
    BeginHarvest(writer, extents_->super().num_records);
    return note.empty() ? absl::OkStatus() : bad("it goes on behind its end", extents_->super().tail);
  }
  harvest_.Skip();
  if (!internal::TakeNumber(&note, &count)) return is_short();
  for (std::uint64_t before = 0; count != 0; --count, before = b) {
    if (!internal::TakeNumber(&note, &a) || !internal::TakeNumber(&note, &b)) return is_short();
    if (b < a || a < before || (a | b) % unit != 0 || !is_free(a, b - a)) return bad("a free run is not free", a);
    pool_->FreeRun({a, b});
  }
  while (!note.empty()) {
    if (!internal::TakeNumber(&note, &a) || !internal::TakeNumber(&note, &count)) return is_short();
    if (a >= FreeBlockPool::kWaiting) return bad("it has an unknown list", extents_->super().tail);
    if (count == 0) return bad("it has an empty list", extents_->super().tail);
    if (count > note.size() / sizeof(std::uint32_t)) return is_short();
    std::vector<std::uint32_t> handles(count);
    std::memcpy(handles.data(), note.data(), count * sizeof(handles[0]));
    note.remove_prefix(count * sizeof(handles[0]));
    const auto list = static_cast<unsigned>(a), size_class = list % format::kSizeClasses;
    // The block is to stay in a list of unstamped blocks.
    const bool stays = Records::kStampsLate && list != size_class && pool_->IsSmall(size_class);
    const bool stamps_now = !stays && list != size_class && AcceptsWrites();
    for (const std::uint32_t handle : handles) {
      if (!is_free(OffsetOf(handle), BytesOf(size_class))) return bad("a free block is not free", OffsetOf(handle));
      if (stamps_now) StoreStamp(handle, stamps().free);
      if (stays) {
        pool_->Push(writer.free, list, handle);
      } else {
        pool_->FreeBlock(writer.free, size_class, handle);
      }
    }
  }
  if (AcceptsWrites()) extents_->StoreSealed(&format::LiveState::oldest_retired_epoch, extents_->super().epoch);
  return absl::OkStatus();
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

}  // namespace hako::hash
