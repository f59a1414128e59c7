// Definitions of hash/file/heap_scrub.h.
#pragma once

#include "hako/hash/file/heap_scrub.h"

namespace hako::hash {

template <class Index, class Space>
Status HeapScrub<Index, Space>::Run(WriterState& writer, std::uint64_t max_bytes, ScrubProgress* progress) {
  Status status = CatchNoMemory([&] {
    progress->damage.insert(progress->damage.end(), unreported_.begin(), unreported_.end());
    unreported_.clear();
    buffer_ = MakeAlignedBuffer(kLockedMax, HugePages::kLater);
    return RunSteps(writer, max_bytes, progress);
  });
  if (!status.ok() && unreported_.empty()) unreported_ = std::move(progress->damage);
  buffer_.reset();
  progress->end = end_;
  progress->position = progress->is_complete ? end_ : std::min(position_, end_);
  return status;
}

template <class Index, class Space>
Status HeapScrub<Index, Space>::RunSteps(WriterState& writer, std::uint64_t max_bytes, ScrubProgress* progress) {
  if (phase_ == Phase::kBegin) BeginPass();
  for (std::uint64_t walked = 0; !progress->is_complete && (walked == 0 || progress->read_bytes + walked < max_bytes);) {
    if (phase_ == Phase::kExtents) {
      if (!seen_) HAKO_RETURN_IF_ERROR(BeginSegment());
      const std::uint64_t spent = std::min(progress->read_bytes + walked, max_bytes);
      HAKO_RETURN_IF_ERROR(ReadExtents(writer, max_bytes - spent, progress));
      if (position_ >= segment_limit_) phase_ = Phase::kEntries;
      ++walked;
    } else {
      CheckEntries(writer, progress);
      walked += kLinesAtOnce * sizeof(format::BucketLine);  // bytes of the index
      if (next_line_ < index_.num_lines()) continue;
      seen_.reset();
      progress->is_complete = position_ >= end_;
      phase_ = progress->is_complete ? Phase::kBegin : Phase::kExtents;
    }
  }
  return absl::OkStatus();
}

template <class Index, class Space>
void HeapScrub<Index, Space>::BeginPass() {
  end_ = heap_.extents().tail();
  position_ = format::kFirstExtent;
  bad_header_.reset();
  phase_ = Phase::kExtents;
}

template <class Index, class Space>
Status HeapScrub<Index, Space>::BeginSegment() {
  segment_begin_ = position_;
  segment_limit_ = std::max(position_, std::min(end_, position_ + kSegmentBytes));
  num_bits_ = heap_.HandleAt(segment_limit_ - segment_begin_ + kBeyond);
  HAKO_ASSIGN_OR_RETURN(seen_, HandleSet::Create(num_bits_));
  extents_.clear();
  next_line_ = 0;
  return absl::OkStatus();
}

// ---- by the extents ----

template <class Index, class Space>
Status HeapScrub<Index, Space>::ReadExtents(WriterState& writer, std::uint64_t bytes, ScrubProgress* progress) {
  const std::uint64_t rounded = std::max(bytes, format::kExtentUnit) / format::kExtentUnit * format::kExtentUnit;
  const std::uint64_t to = std::min(segment_limit_, position_ + std::min(rounded, kSegmentBytes));
  const auto visit = [&](const Record& record) {
    index_.PrefetchHome(record.key_hash);
    found_.push_back(record);
    if (found_.size() == kRecordsAtOnce) LookUp(writer, progress);
    return absl::OkStatus();
  };
  found_.clear();
  while (!extents_.empty() && extents_.back().offset >= position_) extents_.pop_back();  // left over from a failed call
  ExtentReader reader(heap_.extents(), position_, to, ReadsFrom::kDevice);
  while (position_ < to) {
    const auto window = reader.Next();
    if (absl::IsResourceExhausted(window.status())) return window.status();
    if (!window.ok()) {  // the records there are read one by one when the entries are checked
      position_ = std::min(position_ + kSkipped, to);
      return absl::OkStatus();
    }
    if (*window == nullptr) break;
    for (const Extent& extent : (*window)->extents) {
      extents_.push_back(extent);
      HAKO_RETURN_IF_ERROR(heap_.ScanExtent(extent, LoadedBytes((*window)->At(extent)), visit, kNoDoubt));
      LookUp(writer, progress);
    }
    const Extent& huge = (*window)->huge;  // it has one record, which is read when the entries are checked
    if (huge.bytes != 0) extents_.push_back(huge);
    progress->read_bytes += (*window)->bytes - huge.bytes;
    position_ = (*window)->offset + (*window)->bytes;
  }
  return absl::OkStatus();
}

// Adds the records that entries name to the set.
template <class Index, class Space>
void HeapScrub<Index, Space>::LookUp(WriterState& writer, ScrubProgress* progress) {
  for (const Record& record : found_) {
    const auto naming = index_.NamingOf(record.key_hash, record.handle);
    if (naming == Index::Naming::kRight) {
      seen_->Add(BitOf(record.handle));
    } else if constexpr (Space::kMapped) {
      if (naming == Index::Naming::kNone && heap_.IsNamed(record.handle)) CheckOrphan(writer, record, progress);
    }
  }
  found_.clear();
}

// Handles a record with a live stamp that no entry named. It may have been replaced or removed
// between the two checks. Blocks that a killed process has left are found by the harvest.
template <class Index, class Space>
void HeapScrub<Index, Space>::CheckOrphan(WriterState& writer, const Record& record, ScrubProgress* progress) {
  if (!heap_.AcceptsWrites() || !heap_.harvest().IsOver()) return;
  bool is_orphan = false;
  const std::uint64_t size = record.key_size + record.value_size;
  if (size > kLockedMax) return;
  index_.RunLocked(writer, std::span(&record, 1), [&](std::uint64_t mask) {
    if (mask != 0 || !heap_.IsNamed(record.handle)) return;
    const auto checked = heap_.CheckRecord(record.handle, ReadsFrom::kMemory, {reinterpret_cast<char*>(buffer_.get()), kLockedMax});
    is_orphan = checked.status.ok() && checked.key_hash == record.key_hash;
  });
  const std::uint64_t offset = heap_.OffsetOf(record.handle);
  if (is_orphan) progress->Add(Kind::kIndex, offset, size, DataLossError("no bucket has the record", offset));
}

// ---- by the entries ----

// Checks the records that entries of some buckets name and that the scan has not added to the set.
// A bucket that is split meanwhile keeps its entries or moves them to a later bucket.
template <class Index, class Space>
void HeapScrub<Index, Space>::CheckEntries(WriterState& writer, ScrubProgress* progress) {
  const std::uint64_t to = std::min(next_line_ + kLinesAtOnce, index_.num_lines());
  for (; next_line_ < to; ++next_line_) {
    const Status chain = index_.ListEntries(next_line_, &entries_);
    if (!chain.ok() && IsFirstSegment()) progress->Add(Kind::kIndex, 0, 0, chain);
    std::erase_if(entries_, [this](const ListedEntry& entry) { return !IsSuspect(entry.handle); });
    for (const ListedEntry& entry : entries_) CheckSuspect(writer, next_line_, entry, progress);
  }
}

template <class Index, class Space>
bool HeapScrub<Index, Space>::IsSuspect(std::uint32_t handle) const {
  const std::uint64_t offset = heap_.OffsetOf(handle);
  if (offset < format::kFirstExtent || offset >= heap_.extents().tail()) return IsFirstSegment();
  if (offset < segment_begin_ || offset >= position_) return false;
  return BitOf(handle) >= num_bits_ || !seen_->Has(BitOf(handle));
}

template <class Index, class Space>
void HeapScrub<Index, Space>::CheckSuspect(WriterState& writer, std::uint64_t line, const ListedEntry& entry, ScrubProgress* progress) {
  Finding finding = Examine(line, entry, progress);
  if (!finding.status.ok())
    finding = finding.size <= kLockedMax ? ExamineLocked(writer, line, entry.handle, progress) : ExamineLong(line, entry, progress);
  if (!finding.status.ok()) return progress->Add(finding.kind, heap_.OffsetOf(entry.handle), finding.size, finding.status);
  CheckHeader(line, entry.handle, progress);
}

template <class Index, class Space>
auto HeapScrub<Index, Space>::Examine(std::uint64_t line, const ListedEntry& entry, ScrubProgress* progress) -> Finding {
  const auto checked = heap_.CheckRecord(entry.handle, ReadsFrom::kDevice, {reinterpret_cast<char*>(buffer_.get()), kLockedMax});
  progress->read_bytes += checked.read_bytes;
  if (absl::IsResourceExhausted(checked.status)) ThrowNoMemory();  // not damage: the caller repeats the call
  if (!checked.status.ok()) {
    const Kind kind = absl::IsDataLoss(checked.status) ? Kind::kRecord : Kind::kUnreadable;
    return {checked.status, kind, checked.size};
  }
  if (index_.IsPlaceOf(checked.key_hash, line, entry.tag)) return {};
  return {DataLossError("an entry of the index does not belong to the record that it names,", heap_.OffsetOf(entry.handle)), Kind::kIndex,
          checked.size};
}

template <class Index, class Space>
bool HeapScrub<Index, Space>::IsNamed(std::uint64_t line, std::uint32_t handle) {
  (void)index_.ListEntries(line, &again_);
  return std::ranges::any_of(again_, [handle](const ListedEntry& entry) { return entry.handle == handle; });
}

template <class Index, class Space>
auto HeapScrub<Index, Space>::ExamineLocked(WriterState& writer, std::uint64_t line, std::uint32_t handle, ScrubProgress* progress)
    -> Finding {
  Finding finding;
  index_.RunOnBucket(writer, line, &again_, [&] {
    for (const ListedEntry& entry : again_) {
      if (entry.handle == handle) finding = Examine(line, entry, progress);
    }
  });
  return finding;
}

template <class Index, class Space>
auto HeapScrub<Index, Space>::ExamineLong(std::uint64_t line, const ListedEntry& entry, ScrubProgress* progress) -> Finding {
  static constexpr int kTries = 3;
  Finding finding;
  for (int i = 0; i < kTries; ++i) {
    if (!IsNamed(line, entry.handle)) return {};
    finding = Examine(line, entry, progress);
    if (finding.status.ok() || !IsNamed(line, entry.handle)) return {};
  }
  return finding;
}

// ---- headers of extents ----

// Handles an undamaged record whose extent the scan has not found. The extent is new, or its header
// is damaged, so that a recovery after a crash would not find its records.
template <class Index, class Space>
void HeapScrub<Index, Space>::CheckHeader(std::uint64_t line, std::uint32_t handle, ScrubProgress* progress) {
  static constexpr int kTries = 3;  // extents come and go while they are searched
  const std::uint64_t offset = heap_.OffsetOf(handle);
  const auto next = std::ranges::upper_bound(extents_, offset, {}, &Extent::offset);
  const std::uint64_t gap = next == extents_.begin() ? segment_begin_ : (next - 1)->offset + (next - 1)->bytes;
  if (gap > offset || bad_header_ == gap || FindExtent(gap, offset, true, progress)) return;
  std::uint64_t bad = gap;
  for (int i = 0; i < kTries; ++i) {
    const std::optional<Extent> in_memory = FindExtent(format::kFirstExtent, offset, false, progress);
    bad = in_memory ? in_memory->offset : gap;
    if (in_memory && HeaderAt(in_memory->offset, true, progress) != 0) return;
    if (!IsNamed(line, handle)) return;
  }
  bad_header_ = gap;
  progress->Add(Kind::kExtentHeader, bad, sizeof(format::HeapExtentHeader),
                DataLossError("the header of an extent of records is damaged", bad));
}

// Finds the extent that contains `offset`. Searches from `from` on, which must not lie inside an
// extent.
template <class Index, class Space>
std::optional<Extent> HeapScrub<Index, Space>::FindExtent(std::uint64_t from, std::uint64_t offset, bool on_device,
                                                          ScrubProgress* progress) const {
  for (std::uint64_t at = from, bytes; at <= offset; at += std::max(bytes, format::kExtentUnit)) {
    bytes = HeaderAt(at, on_device, progress);
    if (offset - at < bytes) return Extent{at, bytes};
  }
  return std::nullopt;
}

// Returns the size of the extent of records that begins there; 0 if there is none.
template <class Index, class Space>
std::uint64_t HeapScrub<Index, Space>::HeaderAt(std::uint64_t offset, bool on_device, ScrubProgress* progress) const {
  const auto& file = heap_.extents();
  format::HeapExtentHeader header{};
  auto* const bytes = reinterpret_cast<char*>(&header);
  const bool is_read = (on_device ? file.ReadDevice(offset, bytes, sizeof(header)) : file.Read(offset, bytes, sizeof(header))).ok();
  if (on_device) progress->read_bytes += sizeof(header);
  return is_read ? file.HeapExtentBytes(offset, header) : 0;
}

}  // namespace hako::hash
