// Definitions of hash/record_heap.h: making old stamps ancient before epochs wrap.
//
// Each synchronization sweeps a small part of the file, so that a pass takes kSweepEpochs epochs,
// across reopens: the superblock stores the position. A pass ends where the file ended when the
// pass began. So a live stamp is seen again within two passes. When it was last seen it was at most
// kRefreshAge old, so it never reaches kLiveAgeMax.
#pragma once

#include "hako/hash/record_heap.h"

namespace hako::hash {

template <File FileT>
template <class Named>
Status RecordHeap<FileT>::Sweep(Named&& named) {
  static_assert(2 * kSweepEpochs + format::kRefreshAge <= format::kLiveAgeMax);
  const format::Epochs at = epochs();
  if (at.now <= format::kRefreshAge) return absl::OkStatus();  // no stamp is old
  if (sweep_.to < format::kFirstExtent || sweep_.to >= sweep_.end) sweep_ = {format::kFirstExtent, format::kFirstExtent, extents_->tail()};
  const std::uint64_t share = (sweep_.end - format::kFirstExtent) / kSweepEpochs + kSweepLeast;
  for (std::uint64_t left = share * (at.now - at.durable); left != 0 && sweep_.to < sweep_.end;) {
    const std::uint64_t from = sweep_.to;
    HAKO_RETURN_IF_ERROR(SweepPiece(std::min(left, kSweepPiece), named));
    left -= std::min(left, sweep_.to - from);
  }
  return absl::OkStatus();
}

// Sweeps about `bytes` bytes of one extent.
template <File FileT>
template <class Named>
Status RecordHeap<FileT>::SweepPiece(std::uint64_t bytes, Named&& named) {
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t extent, extents_->HeapExtentBytes(sweep_.extent));
  const std::uint64_t end = sweep_.extent + extent;
  const auto leave = [&](std::uint64_t next) { sweep_.extent = sweep_.to = next; };
  if (extent == 0) {  // no longer a heap extent
    leave((sweep_.to / format::kExtentUnit + 1) * format::kExtentUnit);
    return absl::OkStatus();
  }
  const std::uint64_t from = std::max(sweep_.to, sweep_.extent + sizeof(format::HeapExtentHeader)), unit = std::uint64_t{1} << shift_;
  if (from + format::kShortHead > end) return leave(end), absl::OkStatus();
  sweep_buffer_.resize(std::min(end - from, bytes + format::kShortRecordMax));
  HAKO_RETURN_IF_ERROR(extents_->Read(from, sweep_buffer_.data(), sweep_buffer_.size()));
  sweep_found_.clear();
  std::uint64_t offset = from;
  while (offset < from + bytes && offset + format::kShortHead <= end) {
    std::uint64_t size = 0;
    HAKO_RETURN_IF_ERROR(SweepRecord(offset, sweep_buffer_.data() + (offset - from), end - offset, &size, named));
    offset += size == 0 ? unit : (size + unit - 1) & ~(unit - 1);
  }
  if constexpr (!kMapped) {
    named.Prefetch(sweep_found_);
    for (std::span<const SweptRecord> rest(sweep_found_); !rest.empty();) {
      std::size_t count = 1;
      const auto is_next = [&] { return OffsetOf(rest[count - 1].handle) + rest[count - 1].block_bytes == OffsetOf(rest[count].handle); };
      while (count < std::min(rest.size(), kStampedAtOnce) && is_next()) ++count;
      named.RunLocked(rest.first(count), [&](std::uint64_t mask) { StampAncient(rest.first(count), mask, from); });
      rest = rest.subspan(count);
    }
  }
  if (offset + format::kShortHead > end) {
    leave(end);
  } else {
    sweep_.to = offset;
  }
  return absl::OkStatus();
}

// Notes the record, if there is one and its stamp is old. *size = 0 if there is no live one: the
// bytes of a dead record may belong to another by now.
template <File FileT>
template <class Named>
Status RecordHeap<FileT>::SweepRecord(std::uint64_t offset, const char* bytes, std::uint64_t room, std::uint64_t* size, Named&& named) {
  const auto read = static_cast<std::uint64_t>(sweep_buffer_.data() + sweep_buffer_.size() - bytes);
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, std::min<std::uint64_t>(sizeof(word), read));
  if (!format::Stamp(static_cast<std::uint16_t>(word >> 32)).IsLive()) return absl::OkStatus();
  Head head;
  if (!this->DecodeWholeHead(bytes, room, offset, &head) || head.key_at() > read) return absl::OkStatus();
  const bool is_old = format::Refresh(head.stamp, epochs()).bits() != head.stamp.bits();
  if (head.lengths.header == 2) {
    if (head.size() > read) return absl::OkStatus();
    const std::string_view key(bytes + head.key_at(), head.lengths.key_size);
    const std::uint64_t key_hash = KeyHash(key);
    if (head.check != CheckOf({key.data() + key.size(), head.lengths.value_size}, key_hash, offset)) return absl::OkStatus();
    *size = head.size();
    if (is_old) MakeAncient(offset, head, key_hash);
    return absl::OkStatus();
  }
  std::string key(head.lengths.key_size, '\0');  // the index, not the check, confirms it
  HAKO_RETURN_IF_ERROR(extents_->Read(offset + head.key_at(), key.data(), key.size()));
  const SweptRecord record{KeyHash(key), HandleOf(offset), 0};
  if (!named.Has(record)) return absl::OkStatus();
  *size = head.size();
  if (is_old) MakeAncient(offset, head, record.key_hash);
  return absl::OkStatus();
}

// Runs beside writers. They may retire the record, but write nothing else to it before the next
// synchronization, because only this thread releases its block. In a mapped file the exchange fails
// if the record was retired; in any other file the buckets are locked, see StampAncient.
template <File FileT>
void RecordHeap<FileT>::MakeAncient(std::uint64_t offset, const Head& head, std::uint64_t key_hash) {
  if constexpr (kMapped) {
    std::uint16_t old = head.stamp.bits();
    this->StampOf(HandleOf(offset)).compare_exchange_strong(old, format::Stamp::Ancient().bits(), std::memory_order_relaxed);
  } else {
    const bool is_short = head.lengths.header == 2;
    const std::uint64_t bytes = is_short ? BytesOf(ClassOf(head.lengths.key_size, head.lengths.value_size)) : 0;
    sweep_found_.push_back({key_hash, HandleOf(offset), static_cast<std::uint32_t>(bytes)});
  }
}

// Stamps the records of the mask, whose blocks are adjacent. Their buckets are locked and entries
// name them, so no thread writes to the blocks, which are unchanged since the read. Adjacent
// records are stamped in one write.
template <File FileT>
void RecordHeap<FileT>::StampAncient(std::span<const SweptRecord> run, std::uint64_t mask, std::uint64_t read_from) {
  const std::uint16_t bits = format::Stamp::Ancient().bits();
  while (mask != 0) {
    const auto first = static_cast<std::size_t>(std::countr_zero(mask));
    const auto count = static_cast<std::size_t>(std::countr_one(mask >> first));
    mask = first + count < 64 ? mask >> (first + count) << (first + count) : 0;
    if (count == 1) {
      StoreStamp(run[first].handle, format::Stamp(bits));
      continue;
    }
    const auto stamp_of = [&](std::size_t i) { return sweep_buffer_.data() + (OffsetOf(run[i].handle) + Heap::kStampAt - read_from); };
    for (std::size_t i = first; i < first + count; ++i) std::memcpy(stamp_of(i), &bits, sizeof(bits));
    const auto size = static_cast<std::size_t>(stamp_of(first + count - 1) - stamp_of(first)) + sizeof(bits);
    if (!AcceptsWrites()) return;
    (void)this->WriteOrPoison(OffsetOf(run[first].handle) + Heap::kStampAt, {stamp_of(first), size});
  }
}

}  // namespace hako::hash
