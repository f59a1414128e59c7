// The note of a clean close, which stores the free space of the heap.
//
// 8-byte numbers: count, then {offset, bytes} of the free extents; then 1 and nothing else if a
// harvest is not over, or has found a damaged extent, so that the next Open starts it again.
// Otherwise 0; count, {begin, end} of the free runs; then, for each list of free blocks that is not
// empty, {list, count} and the 4-byte handles. A list is a size class, or kSizeClasses + class for
// blocks whose stamp does not say free, although they are free once the note is durable.
//
// REQUIRES: no other thread uses the heap (unchecked: an opening and a close are alone)
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/size_class.h"
#include "hako/hash/file/heap_harvest.h"
#include "hako/hash/file/heap_index.h"
#include "hako/hash/free/free_block_pool.h"

namespace hako::hash {

// `Records`: MappedRecords or PositionalRecords.
template <class Records, File FileT>
class FreeSpaceNote {
 public:
  FreeSpaceNote(Records& records, const HeapIndex<FileT>& index, FreeBlockPool& pool, HeapHarvest<FileT>& harvest)
      : records_(records), extents_(records.extents()), index_(index), pool_(pool), harvest_(harvest) {}

  // `waiting` are the blocks that are free once the note is durable, by size class.
  template <class ForEachWriter>
  std::string Take(ForEachWriter&& for_each_writer, const FreeBlockPool::Chains& waiting) const {
    std::string note;
    // Leaves out the free extents of the harvest, which finds them again.
    const bool is_harvested = harvest_.IsComplete();
    const std::vector<Extent> free = is_harvested ? extents_.free_extents() : std::vector<Extent>();
    PutNumber(&note, free.size());
    for (const Extent& extent : free) {
      PutNumber(&note, extent.offset);
      PutNumber(&note, extent.bytes);
    }
    PutNumber(&note, is_harvested ? 0 : 1);
    if (!is_harvested) return note;
    std::vector<Run> runs;
    pool_.ForEachRun([&](Run run) { runs.push_back(run); });
    PutNumber(&note, runs.size());
    for (const Run run : runs) {
      PutNumber(&note, run.begin);
      PutNumber(&note, run.end);
    }
    for (unsigned list = 0; list < FreeBlockPool::kWaiting; ++list) {
      std::vector<std::uint32_t> handles;
      const auto add = [&](std::uint32_t handle) { handles.push_back(handle); };
      pool_.ForEach(list, add);
      for_each_writer([&](const auto& writer) { pool_.ForEach(writer.free, list, add); });
      if (list >= FreeBlockPool::kUnstamped) pool_.Drain(waiting[list - FreeBlockPool::kUnstamped], add);
      if (handles.empty()) continue;
      PutNumber(&note, list);
      PutNumber(&note, handles.size());
      note.append(reinterpret_cast<const char*>(handles.data()), handles.size() * sizeof(handles[0]));
    }
    return note;
  }

  // Frees the space in the note, its blocks through the thread's `cache`. Returns false if the note
  // has only extents, and the harvest must find the rest.
  StatusOr<bool> Read(FreeBlockPool::Cache& cache, std::string_view note) const {
    const auto is_short = [&] { return Bad("it is cut short", extents_.super().tail); };
    const std::uint64_t unit = records_.OffsetOf(1);
    std::vector<bool> taken(extents_.tail() / format::kExtentUnit);
    const auto take = [&](std::uint64_t offset, std::uint64_t bytes) {
      for (std::uint64_t at = offset; at < offset + bytes; at += format::kExtentUnit) taken[at / format::kExtentUnit] = true;
    };
    if (!index_.index_is_in_memory()) {
      for (const format::IndexExtentEntry& entry : index_.IndexExtents()) take(entry.offset, entry.bytes);
    }
    std::uint64_t count = 0, a = 0, b = 0;
    if (!TakeNumber(&note, &count)) return is_short();
    for (; count != 0; --count) {
      if (!TakeNumber(&note, &a) || !TakeNumber(&note, &b)) return is_short();
      if (!CanBeFree(taken, a, b) || (a | b) % format::kExtentUnit != 0 || b == 0) return Bad("a free extent is not free", a);
      take(a, b);
      extents_.Free({a, b});
    }
    std::uint64_t is_partial;
    if (!TakeNumber(&note, &is_partial)) return is_short();
    if (is_partial != 0) return note.empty() ? StatusOr<bool>(false) : Bad("it goes on behind its end", extents_.super().tail);
    harvest_.Skip();
    if (!TakeNumber(&note, &count)) return is_short();
    for (std::uint64_t before = 0; count != 0; --count, before = b) {
      if (!TakeNumber(&note, &a) || !TakeNumber(&note, &b)) return is_short();
      if (b < a || a < before || (a | b) % unit != 0 || !CanBeFree(taken, a, b - a)) return Bad("a free run is not free", a);
      pool_.FreeRun({a, b});
    }
    while (!note.empty()) {
      if (!TakeNumber(&note, &a) || !TakeNumber(&note, &count)) return is_short();
      if (a >= FreeBlockPool::kWaiting) return Bad("it has an unknown list", extents_.super().tail);
      if (count == 0) return Bad("it has an empty list", extents_.super().tail);
      if (count > note.size() / sizeof(std::uint32_t)) return is_short();
      std::vector<std::uint32_t> handles(count);
      std::memcpy(handles.data(), note.data(), count * sizeof(handles[0]));
      note.remove_prefix(count * sizeof(handles[0]));
      const auto list = static_cast<unsigned>(a), size_class = list % format::kSizeClasses;
      // The block stays in a list of unstamped blocks.
      const bool stays = Records::kStampsLate && list != size_class && pool_.IsSmall(size_class);
      const bool stamps_now = !stays && list != size_class && records_.AcceptsWrites();
      for (const std::uint32_t handle : handles) {
        const std::uint64_t offset = records_.OffsetOf(handle);
        if (!CanBeFree(taken, offset, records_.BytesOf(size_class))) return Bad("a free block is not free", offset);
        if (stamps_now) records_.StoreStamp(handle, records_.stamps().free);
        if (stays) {
          pool_.Push(cache, list, handle);
        } else {
          pool_.FreeBlock(cache, size_class, handle);
        }
      }
    }
    if (records_.AcceptsWrites()) extents_.StoreSealed(&format::LiveState::oldest_retired_epoch, extents_.super().epoch);
    return true;
  }

 private:
  static void PutNumber(std::string* out, std::uint64_t number) { out->append(reinterpret_cast<const char*>(&number), sizeof(number)); }
  static bool TakeNumber(std::string_view* in, std::uint64_t* number) {
    if (in->size() < sizeof(*number)) return false;
    std::memcpy(number, in->data(), sizeof(*number));
    in->remove_prefix(sizeof(*number));
    return true;
  }
  static Status Bad(const char* what, std::uint64_t offset) {
    return DataLossError(absl::StrCat("bad closing note: ", what).c_str(), offset);
  }
  // `taken` are the extent units that are free or belong to the index, in which no block can be.
  bool CanBeFree(const std::vector<bool>& taken, std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t tail = extents_.tail();
    if (offset < format::kFirstExtent || offset > tail || bytes > tail - offset) return false;
    for (std::uint64_t at = offset / format::kExtentUnit; at * format::kExtentUnit < offset + bytes; ++at) {
      if (taken[at]) return false;
    }
    return true;
  }

  Records& records_;
  ExtentFile<FileT>& extents_;
  const HeapIndex<FileT>& index_;
  FreeBlockPool& pool_;
  HeapHarvest<FileT>& harvest_;
};

}  // namespace hako::hash
