// A walk over all records of a HashDBM in the order of the file, by long reads: for files that are not mapped, where the order of the
// buckets would be a read for each record.
//
// A record of the file is shown if its entry names it and it was not moved since the walk began; what writers move meanwhile is told by a
// log (hash/scan_tracker.h), and is shown at the end, from where it is then. Records that come meanwhile are not shown.
//
// Invariants
//   1. The visitor runs with nothing locked.
//   2. Whether an entry names a record is asked before the log is: a handle that is not noted even then was named throughout, or never.
//   3. As many records are shown as there were at the start, less those that went before they could be: so one that is damaged, and
//      therefore not found, is missed.
//
// Threads: one, and its reader's. One walk a database at a time; another goes by buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/copy_buffer.h"
#include "hako/hash/extent_reader.h"
#include "hako/hash/record_view.h"
#include "hako/hash/scan_tracker.h"

namespace hako::hash {

template <class Index, class Space>
class FileOrderScan {
 public:
  FileOrderScan(const Index& index, Space& heap) : index_(index), heap_(heap), log_(heap.moves()) {}
  FileOrderScan(const FileOrderScan&) = delete;
  FileOrderScan& operator=(const FileOrderScan&) = delete;
  ~FileOrderScan() {
    if (claimed_) log_.Stop();
  }

  // False if there is another walk.
  bool Claim() { return claimed_ = log_.Claim(); }
  // `records` are there. REQUIRES: claimed, writers kept out
  void Start(std::uint64_t records) {
    log_.Start(records);
    end_ = heap_.extents().tail();
  }

  template <class V>
  Status Run(V& visit) {
    HAKO_RETURN_IF_ERROR(ShowFile(visit));
    log_.FinishPass();
    HAKO_RETURN_IF_ERROR(ShowOwed(visit));
    return log_.left() == 0 ? absl::OkStatus() : FindDamage();
  }

 private:
  using Record = typename Space::ScannedRecord;
  static constexpr std::size_t kTogether = 64;  // records: their index lines are fetched together, and the log is asked once
  static constexpr unsigned kScannedMax = 512;  // with those that are none of these

  template <class V>
  Status ShowFile(V& visit) {
    ExtentReader reader(heap_.extents(), format::kFirstExtent, end_);
    for (;;) {
      HAKO_ASSIGN_OR_RETURN(const auto* window, reader.Next());
      if (window == nullptr) return absl::OkStatus();
      for (const Extent& extent : window->extents) {
        const auto scan = [&](const Record& record) {
          if (heap_.MayBeNamed(record.stamp)) {
            index_.PrefetchHome(record.key_hash);
            found_.push_back(record);
          }
          if (found_.size() == kTogether || ++scanned_ == kScannedMax) Show(std::uint64_t{record.handle} + 1, visit);
          return absl::OkStatus();
        };
        HAKO_RETURN_IF_ERROR(heap_.ScanExtent(extent, window->At(extent), scan, [] {}));
      }
      Show(heap_.HandleAt(window->offset + window->bytes), visit);
    }
  }

  // What was found before `end`, as far as it is to be shown.
  template <class V>
  void Show(std::uint64_t end, V& visit) {
    std::erase_if(found_, [this](const Record& record) { return !index_.Names(record.key_hash, record.handle); });
    handles_.clear();
    for (const Record& record : found_) handles_.push_back(record.handle);
    std::size_t count = 0;
    log_.Advance(handles_, end, [&](std::size_t i) { found_[count++] = found_[i]; });
    for (std::size_t i = 0; i < count; ++i) visit(found_[i].key, found_[i].value);
    found_.clear();
    scanned_ = 0;
  }

  template <class V>
  Status ShowOwed(V& visit) {
    struct Copy {
      Match match;
      RecordCopy record;
    };
    for (;;) {
      const std::vector<ScanTracker::Owed> owed = log_.SomeOwed(kTogether);
      std::vector<Copy> copies(owed.size());
      buffer_.Clear();
      {
        [[maybe_unused]] typename Space::Ahead ahead;  // gone when the visitor reads what may be newer
        if constexpr (Space::kReadsAhead) {
          for (const auto& one : owed) heap_.Want(ahead, one.handle);
          heap_.Read(ahead);
        }
        for (std::size_t i = 0; i < owed.size(); ++i) copies[i].match = Read(owed[i].handle, &copies[i].record);
      }
      bool shown = false;
      for (std::size_t i = 0; i < owed.size(); ++i) {
        if (!log_.Pay(owed[i])) continue;  // it was moved again
        if (copies[i].match != Match::kYes) return heap_.DamageAt(owed[i].handle);
        visit(copies[i].record.key(), copies[i].record.value());
        shown = true;
      }
      if (shown) continue;
      // Each time they are replaced before they can be read: so a writer has to wait for once.
      Copy copy{};
      std::uint32_t handle = 0;
      if (!log_.PayFirst([&](std::uint32_t first) { copy.match = Read(handle = first, &copy.record); })) return absl::OkStatus();
      if (copy.match != Match::kYes) return heap_.DamageAt(handle);
      visit(copy.record.key(), copy.record.value());
    }
  }

  Match Read(std::uint32_t handle, RecordCopy* copy) {
    return heap_.CopyRecord(
        handle, [] { return true; }, buffer_, copy);
  }

  // Names the record that was not found.
  Status FindDamage() const {
    const auto nothing = [](std::string_view, std::string_view) {};
    HAKO_RETURN_IF_ERROR(index_.ForEach(nothing));
    return absl::DataLossError("some records are not in the extents of the file");
  }

  const Index& index_;
  Space& heap_;
  ScanTracker& log_;
  bool claimed_ = false;
  std::uint64_t end_ = 0;
  std::vector<Record> found_;  // and not yet looked up
  unsigned scanned_ = 0;       // since it was empty
  std::vector<std::uint32_t> handles_;
  CopyBuffer buffer_;
};

}  // namespace hako::hash
