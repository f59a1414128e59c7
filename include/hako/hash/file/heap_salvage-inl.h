// Definitions of hash/file/heap_salvage.h: the records that the index names, and the records found
// by stamps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/hash/file/heap_salvage.h"

namespace hako::hash {

template <File FileT>
template <class Take>
Status HeapSalvage<FileT>::TakeNamed(Take& take) {
  const std::uint64_t end = this->extents_->tail();
  const auto& named_records = index_.named();
  HAKO_RETURN_IF_ERROR(window_.Enter({0, end}));
  for (std::size_t i = 0; i < named_records.size(); ++i) {
    const auto& named = named_records[i];
    const std::uint64_t offset = this->OffsetOf(named.handle);
    Head head;
    const bool has_head = this->IsPlace(offset) && ReadHead(window_, offset, end, &head);
    if (has_head) NoteOutside(offset);
    if (const auto record = has_head ? ReadRecord(window_, offset, head, &room_) : std::nullopt) {
      HAKO_RETURN_IF_ERROR(take(record->key, record->value, false));
      continue;
    }
    // The entry proves the key, and so the head.
    const std::uint64_t next = i + 1 < named_records.size() ? this->OffsetOf(named_records[i + 1].handle) : end;
    const bool is_plausible = has_head && head.size() <= next - offset;
    const std::string_view key = is_plausible ? KeyBehind(window_, offset, head) : std::string_view();
    const bool is_its_key = is_plausible && index_.Names(named, this->KeyHash(key));
    report_->Add(Kind::kRecord, offset, is_its_key ? head.size() : 0, is_its_key ? key : std::string_view());
  }
  return absl::OkStatus();
}

template <File FileT>
template <class Take>
Status HeapSalvage<FileT>::TakeScanned(const typename Base::ScannedRecord& record, bool is_stray, Take& take) {
  if (index_.Contradicts(record.key_hash, record.handle, [this](std::uint32_t handle) { return KeyHashAt(handle); })) {
    contradicted_.push_back(record.handle);
    return absl::OkStatus();
  }
  if (record.bytes != nullptr) {
    ++num_taken_;
    return take(record.key(), record.value(), is_stray);
  }
  // The record is long, and was hashed in pieces: read it into memory, and check the bytes read.
  WindowBytes<Source> bytes(*this->extents_);
  const std::uint64_t offset = this->OffsetOf(record.handle), end = this->extents_->tail();
  HAKO_RETURN_IF_ERROR(bytes.Enter({0, end}));
  Head head;
  if (!ReadHead(bytes, offset, end, &head)) return absl::OkStatus();
  const auto whole = ReadRecord(bytes, offset, head, &room_);
  if (!whole) return absl::OkStatus();
  ++num_taken_;
  return take(whole->key, whole->value, is_stray);
}

// Shows the records that the damaged index contradicts, unless the number of records proves the
// index right. If a record of the same key was shown before, that one is kept. Returns false if the
// number decides nothing.
template <File FileT>
template <class Take>
StatusOr<bool> HeapSalvage<FileT>::TakeContradicted(Take& take) {
  if (contradicted_.empty()) return true;
  const std::uint64_t num_expected = super().num_records, num_found = num_taken_ + contradicted_.size();
  const bool are_dead = num_found > num_expected, are_live = num_found == num_expected && suspects_.empty();
  if (are_dead && num_taken_ >= num_expected) return true;
  const std::uint64_t end = this->extents_->tail();
  std::ranges::sort(contradicted_);
  HAKO_RETURN_IF_ERROR(window_.Enter({0, end}));
  for (const std::uint32_t handle : contradicted_) {
    const std::uint64_t offset = this->OffsetOf(handle);
    Head head;
    const auto record = ReadHead(window_, offset, end, &head) ? ReadRecord(window_, offset, head, &room_) : std::nullopt;
    if (!record) continue;  // the device no longer returns it
    if (!are_live) report_->Add(Kind::kRecord, offset, head.size(), record->key);
    if (are_dead) continue;
    ++num_taken_;
    HAKO_RETURN_IF_ERROR(take(record->key, record->value, true));
  }
  if (!are_dead && !are_live) {
    report_->notes.push_back(absl::StrCat(
        contradicted_.size(), " records that the damaged index does not name were taken: they may have been removed or replaced"));
  }
  return are_dead || are_live;
}

template <File FileT>
template <class Take>
Status HeapSalvage<FileT>::TakeExtents(Take& take) {
  std::vector<std::uint64_t> doubts;
  std::vector<Extent> kept;
  for (const Extent& extent : heap_) {
    doubts.clear();
    kept.clear();
    HAKO_RETURN_IF_ERROR(window_.Enter(extent));
    HAKO_RETURN_IF_ERROR(this->ScanExtent(
        extent, window_,
        [&](const typename Base::ScannedRecord& record) -> Status {
          if (!record.stamp.BelongsTo(epoch_)) return absl::OkStatus();
          kept.push_back({this->OffsetOf(record.handle), this->BlockBytes(record)});
          return TakeScanned(record, false, take);
        },
        [&](std::uint32_t handle, format::Stamp stamp) {
          if (stamp.BelongsTo(epoch_)) doubts.push_back(this->OffsetOf(handle));
        }));
    AddSuspects(doubts, kept, extent.offset + extent.bytes);
  }
  return absl::OkStatus();
}

// Reports each head of a record of the state that lies between the kept records and whose check
// fails.
template <File FileT>
void HeapSalvage<FileT>::AddSuspects(const std::vector<std::uint64_t>& doubts, const std::vector<Extent>& kept, std::uint64_t end) {
  if (doubts.empty()) return;
  if (!window_.Enter({0, this->extents_->tail()}).ok()) return;
  std::uint64_t from = 0;
  for (const std::uint64_t offset : doubts) {
    const auto next = std::ranges::upper_bound(kept, offset, {}, &Extent::offset);
    if (next != kept.begin()) from = std::max(from, (next - 1)->offset + (next - 1)->bytes);
    const std::uint64_t limit = next == kept.end() ? end : next->offset;
    Head head;
    if (offset < from || suspects_.size() == SalvageReport::kPlacesMax || !ReadHead(window_, offset, limit, &head)) continue;
    suspects_.push_back({offset, head.size()});
    from = offset + head.size();
  }
}

// Reads the keys of the suspects only now, so that no more keys are in memory than the report
// lists.
template <File FileT>
Status HeapSalvage<FileT>::ReportSuspects() {
  const std::uint64_t end = this->extents_->tail();
  HAKO_RETURN_IF_ERROR(window_.Enter({0, end}));
  for (const Extent& suspect : suspects_) {
    Head head;
    const bool has_head = ReadHead(window_, suspect.offset, end, &head) && head.size() == suspect.bytes;
    report_->Add(Kind::kRecord, suspect.offset, suspect.bytes, has_head ? KeyBehind(window_, suspect.offset, head) : std::string_view());
  }
  return absl::OkStatus();
}

// Whether the stamp is live, or belongs to an epoch after the state that the file can have, and
// does not only seem later because epochs wrap.
template <File FileT>
bool HeapSalvage<FileT>::IsRecent(format::Stamp stamp) const {
  const std::uint64_t last = this->extents_->last_epoch();
  return stamp.IsLive() || (last > epoch_ && stamp.AgeAt(last) < last - epoch_);
}

template <File FileT>
template <class Take>
Status HeapSalvage<FileT>::TakeBetween(Take& take) {
  for (const Extent& gap : Between()) {
    HAKO_RETURN_IF_ERROR(window_.Enter(gap));
    HAKO_RETURN_IF_ERROR(this->ScanExtent(
        gap, window_,
        [&](const typename Base::ScannedRecord& record) -> Status {
          if (!record.stamp.BelongsTo(epoch_) || !IsRecent(record.stamp)) return absl::OkStatus();
          NoteOutside(this->OffsetOf(record.handle));
          return TakeScanned(record, true, take);
        },
        kNoDoubt));
  }
  return absl::OkStatus();
}

}  // namespace hako::hash
