// A scan of all records of a HashDBM in file order, by long reads: for files that are not mapped,
// where bucket order would take a read for each record.
//
// The scan shows a record that it finds in the file if an entry names it and it was not moved since
// the scan began. The tracker (hash/file/scan_tracker.h) has the records that writers moved since;
// these are shown at the end, from their new places. Records that were added since are not shown.
//
// Invariants
//   1. The visitor runs without locks.
//   2. The scan asks the index whether an entry names a record before it asks the tracker. A handle
//      that the tracker does not have after that was named during the whole scan, or never.
//   3. The number of records shown is the number of records at the start, minus those that were
//      removed before they could be shown. So a damaged record, which the scan does not find, is
//      detected.
//
// Not thread-safe. Only one such scan of a database runs at a time; other scans go by buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/copy_buffer.h"
#include "hako/hash/file/extent_bytes.h"
#include "hako/hash/file/extent_reader.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/file/scan_tracker.h"
#include "hako/hash/record_view.h"

namespace hako::hash {

template <class Index, class Space>
class FileOrderScan {
 public:
  FileOrderScan(const Index& index, Space& heap) : index_(index), heap_(heap), tracker_(heap.move_tracker()) {}
  FileOrderScan(const FileOrderScan&) = delete;
  FileOrderScan& operator=(const FileOrderScan&) = delete;
  ~FileOrderScan() {
    if (claimed_) tracker_.Stop();
  }

  // Returns false if another scan is in progress.
  bool Claim() { return claimed_ = tracker_.Claim(); }
  // `records` = the number of records. REQUIRES: claimed, writers kept out
  void Start(std::uint64_t records) {
    HAKO_DCHECK(claimed_);
    heap_.gate().AssertNoWriters();
    tracker_.Start(records);
    end_ = heap_.extents().tail();
  }

  template <class V>
  Status Run(V& visit) {
    HAKO_RETURN_IF_ERROR(ShowFile(visit));
    tracker_.FinishPass();
    HAKO_RETURN_IF_ERROR(ShowOwed(visit));
    return tracker_.left() == 0 ? absl::OkStatus() : FindDamage();
  }

 private:
  using Record = typename Space::ScannedRecord;
  static constexpr std::size_t kTogether = 64;  // records prefetched and checked together
  static constexpr unsigned kScannedMax = 512;  // records scanned together, including those that no entry may name

  template <class V>
  Status ShowFile(V& visit) {
    ExtentReader reader(heap_.extents(), format::kFirstExtent, end_);
    const auto scan = [&](const Record& record) {
      if (heap_.MayBeNamed(record.stamp)) {
        index_.PrefetchHome(record.key_hash);
        found_.push_back(record);
      }
      if (found_.size() == kTogether || ++scanned_ == kScannedMax) Show(std::uint64_t{record.handle} + 1, visit);
      return absl::OkStatus();
    };
    for (;;) {
      HAKO_ASSIGN_OR_RETURN(const auto* window, reader.Next());
      if (window == nullptr) return absl::OkStatus();
      for (const Extent& extent : window->extents) {
        HAKO_RETURN_IF_ERROR(heap_.ScanExtent(extent, LoadedBytes(window->At(extent)), scan, kNoDoubt));
      }
      if (window->huge.bytes != 0) HAKO_RETURN_IF_ERROR(ShowHuge(window->huge, visit));
      Show(heap_.HandleAt(window->offset + window->bytes), visit);
    }
  }

  // Shows the records of an extent of which only a part is in memory at a time. Copies the records
  // that entries name.
  template <class V>
  Status ShowHuge(const Extent& extent, V& visit) {
    WindowBytes bytes(heap_.extents());
    HAKO_RETURN_IF_ERROR(bytes.Enter(extent));
    std::uint64_t copied = 0;
    const auto scan = [&](Record record) -> Status {
      if (!heap_.MayBeNamed(record.stamp) || !index_.Names(record.key_hash, record.handle)) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(heap_.CopyScanned(&record, buffer_));
      found_.push_back(record);
      copied += record.key_size + record.value_size;
      if (found_.size() < kTogether && copied < CopyBuffer::kKeptMax) return absl::OkStatus();
      Show(std::uint64_t{record.handle} + 1, visit);
      copied = 0;
      return absl::OkStatus();
    };
    return heap_.ScanExtent(extent, bytes, scan, kNoDoubt);
  }

  // Shows the records found before `end`, except those that must not be shown.
  template <class V>
  void Show(std::uint64_t end, V& visit) {
    std::erase_if(found_, [this](const Record& record) { return !index_.Names(record.key_hash, record.handle); });
    handles_.clear();
    for (const Record& record : found_) handles_.push_back(record.handle);
    std::size_t count = 0;
    tracker_.Advance(handles_, end, [&](std::size_t i) { found_[count++] = found_[i]; });
    for (std::size_t i = 0; i < count; ++i) visit(found_[i].key(), found_[i].value());
    found_.clear();
    buffer_.Clear();
    scanned_ = 0;
  }

  template <class V>
  Status ShowOwed(V& visit) {
    struct Copy {
      Match match;
      RecordCopy record;
    };
    for (;;) {
      const std::vector<ScanTracker::Owed> owed = tracker_.SomeOwed(kTogether);
      std::vector<Copy> copies(owed.size());
      buffer_.Clear();
      {
        [[maybe_unused]] typename Space::Ahead ahead;  // destroyed before the visitor reads newer records
        if constexpr (Space::kReadsAhead) {
          for (const auto& one : owed) heap_.Want(ahead, one.handle);
          heap_.Read(ahead);
        }
        for (std::size_t i = 0; i < owed.size(); ++i) copies[i].match = Read(owed[i].handle, &copies[i].record);
      }
      bool shown = false;
      for (std::size_t i = 0; i < owed.size(); ++i) {
        if (!tracker_.Pay(owed[i])) continue;  // it was moved again
        if (copies[i].match != Match::kYes) return heap_.DamageAt(owed[i].handle);
        visit(copies[i].record.key(), copies[i].record.value());
        shown = true;
      }
      if (shown) continue;
      // Writers have replaced each owed record before it could be read, so make them wait for one
      // read.
      Copy copy{};
      std::uint32_t handle = 0;
      if (!tracker_.PayFirst([&](std::uint32_t first) { copy.match = Read(handle = first, &copy.record); })) return absl::OkStatus();
      if (copy.match != Match::kYes) return heap_.DamageAt(handle);
      visit(copy.record.key(), copy.record.value());
    }
  }

  Match Read(std::uint32_t handle, RecordCopy* copy) {
    return heap_.CopyRecord(
        handle, [] { return true; }, buffer_, copy);
  }

  // Returns an error that names the record that was not found.
  Status FindDamage() const {
    const auto nothing = [](std::string_view, std::string_view) {};
    HAKO_RETURN_IF_ERROR(index_.ForEach(nothing));
    return absl::DataLossError("some records lie outside the extents of the file");
  }

  const Index& index_;
  Space& heap_;
  ScanTracker& tracker_;
  bool claimed_ = false;
  std::uint64_t end_ = 0;
  std::vector<Record> found_;  // not yet looked up
  unsigned scanned_ = 0;       // since found_ was empty
  std::vector<std::uint32_t> handles_;
  CopyBuffer buffer_;
};

}  // namespace hako::hash
