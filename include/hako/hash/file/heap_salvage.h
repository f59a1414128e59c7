// Reads the undamaged records of a damaged hash file, for a salvage.
//
// Which records belong to the state is known in one of three ways:
//   1. The file was closed, and the index passes its check: takes the records that the index names,
//      each from its place. This needs neither stamps nor the headers of extents.
//   2. Otherwise takes the records whose stamps belong to the last synchronized state
//      (format/stamp.h), found by a scan of the extents as in a recovery. If some are missing, also
//      scans the space between the extents, because a header may be damaged. There the stamp must
//      be live or recent: a former extent has no live record, but may have dead records with very
//      old stamps.
//   3. As 2, but for the state that a killed process has left in the page cache, if this is a
//      mapped file of this boot. An update that the process was making may be missing. If there is
//      no live state, uses way 2, and reports this.
//
// Every record that is shown has passed the check that covers key, value and place, so its value is
// one that it had in this file. A stamp has no check, so in the cases 2 and 3 damage may make a
// dead record look live. In a closed file the rest of the damaged index contradicts most such
// records (hash/file/salvaged_index.h). But a damaged index may contradict live records, too, so
// the number of records in the superblock decides:
//   more records look live than there were   the index is right: the contradicted ones are not shown,
//                                            and are listed if other records are missing
//   as many, and none looks damaged          the stamps are right: all are shown
//   otherwise                                undecided: all are shown, and the contradicted ones are
//                                            listed and noted
// If the live record of the key exists, too, both are shown to the caller.
//
// Takes the memory of the index, and 12 bytes a record in case 1; otherwise 4 bytes for each
// contradicted record, and some 40 for each bucket that was compared with it. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_bytes.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/file/salvaged_index.h"
#include "hako/storage/damaged_file.h"

namespace hako::hash {

template <File FileT>
class HeapSalvage : private HeapFile<storage::DamagedFile<FileT>> {
  using Source = storage::DamagedFile<FileT>;
  using Base = HeapFile<Source>;
  using Head = typename Base::Head;
  using Kind = SalvageReport::Kind;

 public:
  // Finds the state. The report and the file must outlive the object.
  static StatusOr<std::unique_ptr<HeapSalvage>> Open(const FileT& file, SalvageReport* report) {
    Source source(file, *report);
    HAKO_ASSIGN_OR_RETURN(auto found, storage::SalvageSuperBlock<format::HashSuperBlock>(source, ExtentFile<Source>::kKind));
    source.Claim(found.block.tail);
    const std::optional<format::LiveState> live = LiveStateOf(source, found.block, report);
    if (live) source.Claim(live->tail);
    source.ShowSuperBlock(found.block);
    HAKO_ASSIGN_OR_RETURN(auto extents, ExtentFile<Source>::Open(std::move(source), 0, 0));
    std::unique_ptr<HeapSalvage> self(new HeapSalvage(std::move(extents), report));
    // The superblock after that of a closed file names the same state.
    if (found.may_be_older && found.block.clean != 1)
      report->notes.emplace_back("one superblock is lost: it may have named a later synchronization than the other");
    if (live) self->UseLiveState(*live);
    return self;
  }

  const format::HashSuperBlock& super() const { return this->extents_->super(); }
  // The number of records of the state; nullopt = unknown.
  std::optional<std::uint64_t> num_expected() const { return is_live_ ? std::nullopt : std::optional(super().num_records.get()); }
  // The end of the extents within the file. A damaged superblock may name a later end.
  std::uint64_t EndOfBytes() const {
    const std::uint64_t units = (this->extents_->file().end() + format::kExtentUnit - 1) / format::kExtentUnit;
    return std::min(this->extents_->tail(), units * format::kExtentUnit);
  }
  std::uint64_t applied_index() const { return applied_index_; }
  // The clock of the state (format::HashSuperBlock); 0 = its records do not expire.
  std::uint64_t clock() const { return clock_; }
  // Whether the updates of the log come after this state.
  bool NeedsLog() const { return !is_live_ && this->extents_->LogInFile().IsNeeded(); }

  // Calls take(key, value, stray) for each record. `stray`: the record lies outside all extents,
  // and must not be taken if there is another record of this key. Returns the first error of
  // `take`.
  template <class Take>
  Status Run(Take&& take) {
    FindExtents();
    if (super().clean == 1 && index_.Load(*this->extents_)) return TakeNamed(take);
    HAKO_RETURN_IF_ERROR(TakeExtents(take));
    if (num_expected() && num_taken_ >= *num_expected()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(TakeBetween(take));
    HAKO_ASSIGN_OR_RETURN(const bool is_certain, TakeContradicted(take));
    if (is_certain && num_expected() && num_taken_ >= *num_expected()) return absl::OkStatus();
    return ReportSuspects();
  }

 private:
  static constexpr std::size_t kReadableKeyMax = 1 << 20;

  HeapSalvage(std::unique_ptr<ExtentFile<Source>> extents, SalvageReport* report)
      : Base(std::move(extents)),
        report_(report),
        epoch_(super().epoch),
        applied_index_(super().applied_index),
        clock_(super().clock),
        index_(*report) {}

  // ---- the state of a killed process ----

  // Returns the live state, with its seals removed, if it counts. If it does not count but may have
  // had later updates, reports that.
  static std::optional<format::LiveState> LiveStateOf(const Source& source, const format::HashSuperBlock& super, SalvageReport* report) {
    if (super.clean == 1) return std::nullopt;
    std::optional<FileIdentity> identity;
    if constexpr (requires { source.file().MapIdentity(); }) {
      identity = source.file().MapIdentity();
    } else if constexpr (KernelBackedFile<FileT>) {
      identity = source.file().Identity();
    }
    format::LiveState live{};
    const bool is_read = source.ReadAt(format::kLiveStateOffset, std::as_writable_bytes(std::span(&live, 1))).ok();
    const bool is_here = identity && super.map_identity == CheckOf(*identity);
    const char* const damaged = identity ? DamagedField(live, super, *identity, source.end()) : nullptr;
    const bool is_of = is_read && identity && damaged == nullptr && IsOf(live, *identity);
    for (auto field : {&format::LiveState::epoch, &format::LiveState::tail}) live.*field = format::UnsealLive(live.*field);
    const bool counts =
        is_of && live.epoch > super.epoch && live.epoch - super.epoch < format::kEpochsAhead && live.clearing != format::kClearing;
    if (counts) return live;
    // If there is a log, it has all updates. If there is none, the updates of a process that
    // withdrew its live state are synchronized.
    const bool is_withdrawn = is_here && damaged == nullptr && live.in_use == 0;
    const bool has_log = super.log_id != log::DatabaseId{};
    if (!has_log && !is_withdrawn && (super.map_identity != 0 || live.in_use != 0)) {
      const char* const why = damaged != nullptr ? "what it left there is damaged" : "they are not known to be in this file as a whole";
      report->notes.push_back(absl::StrCat(
          "a process that had the file mapped did not close it: its updates after the last synchronization are left out, as ", why));
    }
    return std::nullopt;
  }
  void UseLiveState(const format::LiveState& live) {
    is_live_ = true;
    epoch_ = live.epoch;
    applied_index_ = live.applied_index;
    if (clock_ != 0) clock_ = std::max(clock_, format::UnsealClock(live.clock));
    this->extents_->SetTail(live.tail);
    report_->notes.emplace_back(
        "a killed process had the file mapped: its updates are salvaged, except those that it was making, which may be there in part; the "
        "number of lost records is unknown");
  }

  // ---- extents ----

  void FindExtents() {
    const std::uint64_t end = EndOfBytes();
    for (std::uint64_t at = format::kFirstExtent; at < end;) {
      const StatusOr<std::uint64_t> bytes = this->extents_->HeapExtentBytes(at);
      const std::uint64_t size = bytes.ok() ? *bytes : 0;
      if (size != 0) heap_.push_back({at, size});
      at += std::max(size, format::kExtentUnit);
    }
  }
  // Returns the spaces between the extents of records.
  std::vector<Extent> Between() const {
    std::vector<Extent> gaps;
    std::uint64_t begin = format::kFirstExtent;
    for (const Extent& extent : heap_) {
      if (extent.offset > begin) gaps.push_back({begin, extent.offset - begin});
      begin = extent.offset + extent.bytes;
    }
    if (EndOfBytes() > begin) gaps.push_back({begin, EndOfBytes() - begin});
    return gaps;
  }
  // Reports that a record lies at this offset outside all extents, once for each space between two
  // extents.
  void NoteOutside(std::uint64_t offset) {
    const auto next = std::ranges::upper_bound(heap_, offset, {}, &Extent::offset);
    const std::uint64_t begin = next == heap_.begin() ? format::kFirstExtent : (next - 1)->offset + (next - 1)->bytes;
    if (offset < begin || std::ranges::binary_search(outside_, begin)) return;
    outside_.insert(std::ranges::upper_bound(outside_, begin), begin);
    report_->Add(Kind::kExtentHeader, begin, sizeof(format::HeapExtentHeader));
  }

  // ---- one record ----

  // Reads the head of the record at `offset`, whatever its stamp. Returns false if the bytes cannot
  // be a head.
  bool ReadHead(WindowBytes<Source>& bytes, std::uint64_t offset, std::uint64_t end, Head* head) const {
    if (offset >= end || end - offset < format::kShortHead) return false;
    const auto size = std::min<std::uint64_t>(format::kRecordHeadMax, end - offset);
    char copy[format::kRecordHeadMax] = {};
    std::memcpy(copy, bytes.Get(offset, size), size);
    return DecodeAnyHead(copy, end - offset, offset, head);
  }
  // REQUIRES: `bytes` has kRecordHeadMax bytes (unchecked: a pointer has no size)
  bool DecodeAnyHead(char* bytes, std::uint64_t size, std::uint64_t offset, Head* head) const {
    const std::uint16_t any_valid = format::Stamp::Ancient().bits();
    std::memcpy(bytes + Base::kStampAt, &any_valid, sizeof(any_valid));
    return this->DecodeWholeHead(bytes, size, offset, head);
  }
  // Returns the record that follows an intact head, in `bytes` or in `room`; nullopt if it is
  // damaged.
  std::optional<RecordView> ReadRecord(WindowBytes<Source>& bytes, std::uint64_t offset, const Head& head, std::string* room) const {
    const std::uint64_t size = head.lengths.key_size + head.lengths.value_size, at = offset + head.key_at();
    if (offset + head.size() > this->extents_->file().end()) return std::nullopt;  // checked before memory is taken
    const char* content = nullptr;
    if (size <= WindowBytes<Source>::kWhole) {
      content = bytes.Get(at, size);
    } else {
      room->resize(size);
      if (!this->extents_->Read(at, room->data(), size).ok()) return std::nullopt;
      content = room->data();
    }
    const RecordView record{{content, head.lengths.key_size}, {content + head.lengths.key_size, head.lengths.value_size}};
    return this->IsIntact(head, record, offset) ? std::optional(record) : std::nullopt;
  }
  std::string_view KeyBehind(WindowBytes<Source>& bytes, std::uint64_t offset, const Head& head) const {
    if (head.lengths.key_size > kReadableKeyMax) return {};
    return {bytes.Get(offset + head.key_at(), head.lengths.key_size), head.lengths.key_size};
  }

  // Returns the hash of the key of the state's record there; nullopt if its head is damaged, or
  // there is no such record.
  std::optional<std::uint64_t> KeyHashAt(std::uint32_t handle) const {
    const std::uint64_t offset = this->OffsetOf(handle), end = this->extents_->tail();
    if (!this->IsPlace(offset)) return std::nullopt;
    char bytes[format::kRecordHeadMax] = {};
    if (!this->extents_->Read(offset, bytes, std::min<std::uint64_t>(sizeof(bytes), end - offset)).ok()) return std::nullopt;
    std::uint16_t stamp;
    std::memcpy(&stamp, bytes + Base::kStampAt, sizeof(stamp));
    Head head;
    if (!format::Stamp(stamp).BelongsTo(epoch_) || !DecodeAnyHead(bytes, end - offset, offset, &head) ||
        head.lengths.key_size > kReadableKeyMax)
      return std::nullopt;
    std::string key(head.lengths.key_size, '\0');
    if (!this->extents_->Read(offset + head.key_at(), key.data(), key.size()).ok()) return std::nullopt;
    return this->KeyHash(key);
  }

  // ---- 1. by the index ----

  template <class Take>
  Status TakeNamed(Take& take);

  // ---- 2. by stamps ----

  template <class Take>
  Status TakeExtents(Take& take);
  template <class Take>
  Status TakeBetween(Take& take);
  bool IsRecent(format::Stamp stamp) const;
  template <class Take>
  Status TakeScanned(const typename Base::ScannedRecord& record, bool is_stray, Take& take);
  template <class Take>
  StatusOr<bool> TakeContradicted(Take& take);
  Status ReportSuspects();
  void AddSuspects(const std::vector<std::uint64_t>& doubts, const std::vector<Extent>& kept, std::uint64_t end);

  SalvageReport* const report_;
  bool is_live_ = false;  // case 3
  std::uint64_t epoch_;   // of the state
  std::uint64_t applied_index_, clock_;
  std::vector<Extent> heap_;            // extents of records, by offset
  std::vector<std::uint64_t> outside_;  // the spaces between them where a header is damaged
  SalvagedIndex<FileT> index_;
  std::vector<std::uint32_t> contradicted_;  // handles of the records that the damaged index contradicts
  std::uint64_t num_taken_ = 0;
  std::vector<Extent> suspects_;  // where damaged records may lie
  WindowBytes<Source> window_{*this->extents_};
  std::string room_;
};

}  // namespace hako::hash

#include "hako/hash/file/heap_salvage-inl.h"
