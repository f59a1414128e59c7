// Checks the file of an open HashDBM on its device, a part at a time: every record that an entry
// names, the headers of its extents, and, on a mapped file, that every live record has an entry.
//
// A pass goes through the file in segments. The extents of a segment are read by long reads, in the
// order of the file; each record that passes its check, and that an entry names, is noted in a set
// of bits. Then all entries of the index are compared with the set, and each record of the segment
// that is not in the set is read at its place. It may have been written after the extents were
// read, or its extent was not found; otherwise it is damaged.
//
// Writers may run at the same time. So a record counts as damaged only if it fails its check while
// its bucket is locked, or, above kLockedMax, three times while the same entry names it. Blocks
// that an entry names do not change. A record that exists from the beginning of a pass to its end
// is checked.
//
// Memory: one bit for each place of a record in kSegmentBytes, the extents of the segment, and
// buffers of 4 MiB during a call. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/aligned_buffer.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_bytes.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/file/extent_reader.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/free/pinned_state.h"
#include "hako/storage/scrub_progress.h"

namespace hako::hash {

template <class Index, class Space>
class HeapScrub {
  using Kind = SalvageReport::Kind;
  using Record = typename Space::ScannedRecord;
  using WriterState = typename Space::WriterState;
  using ListedEntry = typename Index::ListedEntry;

 public:
  // Both must outlive the object.
  HeapScrub(Index& index, Space& heap) : index_(index), heap_(heap) {}

  // Whether the next Run begins a pass.
  bool IsAtBegin() const { return phase_ == Phase::kBegin; }
  // Checks the next part: see ScrubOptions::max_bytes. Only a lack of memory is an error. Then
  // repeat the call, which also reports the findings of the failed call.
  Status Run(WriterState& writer, std::uint64_t max_bytes, ScrubProgress* progress);

 private:
  enum class Phase { kBegin, kExtents, kEntries };
  static constexpr std::uint64_t kSegmentBytes = std::uint64_t{512} << 20;
  static constexpr std::uint64_t kBeyond = std::uint64_t{16} << 20;    // how far the last extent of a segment may go
  static constexpr std::uint64_t kSkipped = std::uint64_t{1} << 20;    // where the device fails
  static constexpr std::uint64_t kLockedMax = std::uint64_t{1} << 20;  // bytes of a record that is read under a lock
  static constexpr std::uint64_t kLinesAtOnce = 64;
  static constexpr std::size_t kRecordsAtOnce = 64;  // looked up together

  Status RunSteps(WriterState& writer, std::uint64_t max_bytes, ScrubProgress* progress);
  void BeginPass();
  Status BeginSegment();
  Status ReadExtents(WriterState& writer, std::uint64_t bytes, ScrubProgress* progress);
  void LookUp(WriterState& writer, ScrubProgress* progress);
  void CheckOrphan(WriterState& writer, const Record& record, ScrubProgress* progress);
  void CheckEntries(WriterState& writer, ScrubProgress* progress);
  bool IsSuspect(std::uint32_t handle) const;
  void CheckSuspect(WriterState& writer, std::uint64_t line, const ListedEntry& entry, ScrubProgress* progress);
  // The result of a check of a record: OK if it is the record of the entry and undamaged.
  struct Finding {
    Status status;
    Kind kind = Kind::kRecord;
    std::uint64_t size = 0;  // of the record; 0 = unknown
  };
  Finding Examine(std::uint64_t line, const ListedEntry& entry, ScrubProgress* progress);
  bool IsNamed(std::uint64_t line, std::uint32_t handle);
  Finding ExamineLocked(WriterState& writer, std::uint64_t line, std::uint32_t handle, ScrubProgress* progress);
  Finding ExamineLong(std::uint64_t line, const ListedEntry& entry, ScrubProgress* progress);
  void CheckHeader(std::uint64_t line, std::uint32_t handle, ScrubProgress* progress);
  std::optional<Extent> FindExtent(std::uint64_t from, std::uint64_t offset, bool on_device, ScrubProgress* progress) const;
  std::uint64_t HeaderAt(std::uint64_t offset, bool on_device, ScrubProgress* progress) const;

  bool IsFirstSegment() const { return segment_begin_ == format::kFirstExtent; }
  std::uint64_t BitOf(std::uint32_t handle) const { return handle - heap_.HandleAt(segment_begin_); }

  Index& index_;
  Space& heap_;
  Phase phase_ = Phase::kBegin;
  std::uint64_t end_ = 0;                                // of the pass: the tail when it began
  std::uint64_t position_ = 0;                           // the next extent to read
  std::uint64_t segment_begin_ = 0, segment_limit_ = 0;  // the segment ends with the extent that reaches the limit
  std::optional<HandleSet> seen_;                        // records of the segment, by BitOf
  std::uint64_t num_bits_ = 0;
  std::vector<Extent> extents_;  // found in the segment
  std::uint64_t next_line_ = 0;
  std::optional<std::uint64_t> bad_header_;  // the last one reported
  std::vector<Record> found_;                // not yet looked up
  std::vector<ListedEntry> entries_, again_;
  std::vector<ScrubProgress::Damage> unreported_;  // found by calls that failed
  AlignedBuffer buffer_;                           // of kLockedMax bytes, during Run
};

}  // namespace hako::hash

#include "hako/hash/file/heap_scrub-inl.h"
