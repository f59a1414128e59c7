// Definitions of hash/record_heap.h for the whole file: scanning it, the index extents, and the
// note of a clean close.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

template <File FileT>
template <class Visit, class Enter, class Other>
Status RecordHeap<FileT>::Scan(std::uint64_t from, std::uint64_t to, Visit&& visit, Enter&& enter, Other&& other) const {
  AlignedBuffer buffer;
  std::uint64_t room = 0;
  for (std::uint64_t extent = from; extent < to;) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t size, extents_->HeapExtentBytes(extent));
    if (size == 0) {
      other(Extent{extent, format::kExtentUnit});
      extent += format::kExtentUnit;
      continue;
    }
    if (size > room) buffer = MakeAlignedBuffer(room = size);
    char* const bytes = reinterpret_cast<char*>(buffer.get());
    HAKO_RETURN_IF_ERROR(extents_->Read(extent, bytes, size));
    enter(Extent{extent, size});
    HAKO_RETURN_IF_ERROR(ScanExtent({extent, size}, bytes, visit, [] {}));
    extent += size;
  }
  return absl::OkStatus();
}

// Whether a record may start at `offset`, where `size` bytes are left.
template <File FileT>
bool RecordHeap<FileT>::DecodeWholeHead(const char* shared, std::uint64_t size, std::uint64_t offset, Head* head) const {
  char bytes[format::kRecordHeadMax];
  const auto head_max = static_cast<std::size_t>(std::min<std::uint64_t>(sizeof(bytes), size));
  sync::LoadShared(bytes, shared, head_max);
  *head = DecodeHead(bytes, std::min<std::size_t>(kHeadMax, head_max));
  if (!head->stamp.IsValid() || head->lengths.header == 0 || head->size() > size) return false;
  if (head->lengths.header == 2) return true;
  std::uint32_t head_check;
  std::memcpy(&head_check, bytes + kFixed + head->lengths.header, sizeof(head_check));
  return head_check == format::RecordHeadCheck(head->check, head->lengths.key_size, head->lengths.value_size, offset, secret_);
}

// Continues behind the end of a record, not of its block: dead records may follow there.
//
// A record that the durable state does not have may share its block with a newer record. Its check
// still holds if the shared bytes are equal: for one byte, once in 256 times. So the last unit of
// such a record is scanned too. Earlier units need not be: eight equal bytes are as rare as a false
// match of the check. The stamp does not help: after a crash of the machine a free block may have
// an earlier stamp.
template <File FileT>
template <typename RecordHeap<FileT>::Trust kTrust, class Visit, class Doubt>
Status RecordHeap<FileT>::ScanExtent(Extent extent, const char* bytes, Visit&& visit, Doubt&& doubt) const {
  const std::uint64_t size = extent.bytes, unit = std::uint64_t{1} << shift_;
  const std::uint64_t wasted_max = std::max<std::uint64_t>(64 * size, std::uint64_t{2} << 30);
  std::uint64_t wasted = 0;        // bytes hashed in vain; bounds the work on a hostile file
  std::uint64_t shared_until = 0;  // end of the last record not in the durable state
  const auto is_doubtful = [&](std::uint64_t at) { return at >= shared_until; };
  for (std::uint64_t at = sizeof(format::HeapExtentHeader); size - at >= format::kShortHead && wasted <= wasted_max; at += unit) {
    if (sync::LoadSharedWord(bytes + at) == 0) continue;
    Head head;
    if (!DecodeWholeHead(bytes + at, size - at, extent.offset + at, &head)) {
      if (is_doubtful(at)) doubt();
      continue;
    }
    const std::string_view key(bytes + at + head.key_at(), head.lengths.key_size);
    const std::string_view value(key.data() + key.size(), head.lengths.value_size);
    const std::uint64_t key_hash = KeyHash(key);
    const bool trusted = kTrust == Trust::kLiveHeads && head.lengths.header > 2 && head.stamp.IsLive();
    if (!trusted && head.check != CheckOf(value, key_hash, extent.offset + at)) {
      if (is_doubtful(at)) doubt();
      wasted += head.size();
      continue;
    }
    HAKO_RETURN_IF_ERROR(visit(ScannedRecord{HandleOf(extent.offset + at), head.stamp, key_hash, key, value}));
    const std::uint64_t last_unit = (head.size() - 1) & ~(unit - 1);
    const bool looks_at_last = last_unit != 0 && !head.stamp.BelongsTo(epochs().durable);
    if (looks_at_last) shared_until = at + head.size();
    at += looks_at_last ? last_unit - unit : last_unit;  // and the loop adds a unit
  }
  return absl::OkStatus();
}

template <File FileT>
std::vector<format::IndexExtentEntry> RecordHeap<FileT>::IndexExtents() const {
  if (index_arena_ != nullptr) return index_arena_->extents();
  std::vector<format::IndexExtentEntry> entries;
  for (std::uint64_t i = 0; i < num_index_extents_; ++i) {
    entries.push_back(format::IndexExtentEntry::Unpack(extents_->index_extents()[i]));
  }
  return entries;
}

template <File FileT>
std::vector<Extent> RecordHeap<FileT>::TakeIndexExtents() {
  std::vector<Extent> taken;
  for (std::uint64_t i = 0; i < num_index_extents_; ++i) {
    const auto entry = format::IndexExtentEntry::Unpack(extents_->index_extents()[i]);
    taken.push_back({entry.offset, entry.bytes});
  }
  set_num_index_extents(0);
  extents_->ForgetIndexExtents();
  index_bytes_.store(0, std::memory_order_relaxed);
  return taken;
}

template <File FileT>
bool RecordHeap<FileT>::IndexTableIsInside() const {
  for (std::uint64_t i = 0; i < num_index_extents_; ++i) {
    const auto entry = format::IndexExtentEntry::Unpack(extents_->index_extents()[i]);
    if (entry.offset < format::kFirstExtent || entry.offset > extents_->tail() || entry.bytes > extents_->tail() - entry.offset)
      return false;
  }
  return true;
}

template <File FileT>
std::uint64_t RecordHeap<FileT>::IndexCheck() const {
  std::uint64_t check = num_index_extents_;
  for (std::uint64_t i = 0; i < num_index_extents_; ++i) {
    const auto entry = format::IndexExtentEntry::Unpack(extents_->index_extents()[i]);
    check = Hash64(base_ + entry.offset, entry.bytes, MixBits(check ^ extents_->index_extents()[i]));
  }
  return check;
}

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
// so that the next Open starts it again, and nothing else. Otherwise 0; count, {begin, end} of the
// free runs; then, for each list of free blocks that is not empty, {list, count} and the 4-byte
// handles. A list is a size class, or kSizeClasses + class for blocks that are free once the note
// is durable but have another stamp.
template <File FileT>
template <class ForEachWriter>
std::string RecordHeap<FileT>::TakeNote(ForEachWriter&& for_each_writer, const ClosedEpoch& closed) {
  std::string note;
  // Without the harvest's: it finds the free extents again.
  const std::vector<Extent> free = HarvestIsOver() ? extents_->free_extents() : std::vector<Extent>();
  internal::PutNumber(&note, free.size());
  for (const Extent& extent : free) {
    internal::PutNumber(&note, extent.offset);
    internal::PutNumber(&note, extent.bytes);
  }
  internal::PutNumber(&note, HarvestIsOver() ? 0 : 1);
  if (!HarvestIsOver()) return note;
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
  if (!index_is_in_memory()) {
    for (const format::IndexExtentEntry& entry : IndexExtents()) take(entry.offset, entry.bytes);
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
  if (!internal::TakeNumber(&note, &count)) return is_short();
  for (std::uint64_t before = 0; count != 0; --count, before = b) {
    if (!internal::TakeNumber(&note, &a) || !internal::TakeNumber(&note, &b)) return is_short();
    if (b < a || a < before || (a | b) % unit != 0 || !is_free(a, b - a)) return bad("a free run is not free", a);
    pool_->FreeRun({a, b});
  }
  while (!note.empty()) {
    if (!internal::TakeNumber(&note, &a) || !internal::TakeNumber(&note, &count)) return is_short();
    if (a >= FreeBlockPool::kWaiting) return bad("it has an unknown list", extents_->super().tail);
    if (count > note.size() / sizeof(std::uint32_t)) return is_short();
    std::vector<std::uint32_t> handles(count);
    std::memcpy(handles.data(), note.data(), count * sizeof(handles[0]));
    note.remove_prefix(count * sizeof(handles[0]));
    const auto list = static_cast<unsigned>(a), size_class = list % format::kSizeClasses;
    // The block is to stay in a list of unstamped blocks.
    const bool stays = !kMapped && list != size_class && pool_->IsSmall(size_class);
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
  if (AcceptsWrites()) extents_->StoreLive(&format::LiveState::oldest_retired_epoch, extents_->super().epoch);
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
