// Takes over the buckets that an earlier process has left.
//
// Not thread-safe: no other thread uses the table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/overflow_ids.h"
#include "hako/hash/record_count.h"
#include "hako/hash/record_view.h"
#include "hako/hash/table_shape.h"
#include "hako/sync/version_lock.h"

namespace hako::hash {

template <class Space>
class BucketRecovery {
  using WriterState = typename Space::WriterState;
  using Line = format::BucketLine;

 public:
  BucketRecovery(Space& space, LineTable<Space>& lines, RecordCount& count) : space_(space), lines_(lines), count_(count) {}

  // See BucketIndex::Recover.
  template <class Visit>
  Status Run(WriterState& writer, std::uint64_t num_lines, OverflowIds* used_overflow, Visit&& visit) {
    if (num_lines < 2 || num_lines > std::min(lines_.HomeCapacity(), TableShape::kMaxLines))
      return absl::DataLossError("the number of buckets is invalid");
    lines_.SetLineCount(num_lines);
    static constexpr std::uint64_t kAhead = 16;
    std::int64_t count = 0;
    for (std::uint64_t index = 0; index < num_lines; ++index) {
      if (index + kAhead < num_lines) {
        Line& later = lines_.Home(index + kAhead);
        if (HasLink(LoadHeader(later))) Prefetch(lines_.Overflow(LoadSlot(later, format::kLinkEntry)));
      }
      Line& home = lines_.Home(index);
      if ((LoadHeader(home) & sync::VersionLock::kLocked) != 0) HAKO_RETURN_IF_ERROR(RepairLine(writer, index));
      unsigned hops = 0;
      for (Line* line = &home; line != nullptr;) {
        const std::uint32_t header = LoadHeader(*line);
        for (unsigned i = 0; i < EntriesIn(header); ++i) {
          const std::uint32_t handle = LoadSlot(*line, i);
          count += handle != 0 ? 1 : 0;
          visit(handle);
        }
        HAKO_ASSIGN_OR_RETURN(Line* const next, lines_.NextLine(*line, header, &hops));
        if (next != nullptr && !used_overflow->Insert(LoadSlot(*line, format::kLinkEntry))) return lines_.BrokenChain(*line);
        line = next;
      }
    }
    count_.Set(count);
    return absl::OkStatus();
  }

 private:
  // Repairs a bucket that a killed process was changing. Its slots are the truth; see the order of
  // stores in BucketIndex::Process, BucketSplitter::Split and LineTable::Compact.
  Status RepairLine(WriterState& writer, std::uint64_t index) {
    Line& home = lines_.Home(index);
    std::unordered_set<std::uint32_t> seen;
    Status status;
    HAKO_RETURN_IF_ERROR(lines_.ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      space_.Revive(handle);
      const StatusOr<RecordView> record = space_.View(writer, handle);
      if (!record.ok()) {
        status = record.status();
        return;
      }
      const std::uint64_t hash = space_.KeyHash(record->key);
      const Place place = Locate(hash, lines_.shape());
      const bool stays = place.index == index && seen.insert(handle).second;
      if (!stays) StoreSlot(line, i, 0);
      StoreTag(line, i, stays ? place.TagOf(hash) : 0);
    }));
    HAKO_RETURN_IF_ERROR(status);
    unsigned hops = 0;
    // A tag without a slot belongs to an insertion that was not published.
    for (Line* line = &home; line != nullptr;) {
      for (unsigned i = 0; i < EntriesIn(LoadHeader(*line)); ++i) {
        if (LoadSlot(*line, i) == 0) StoreTag(*line, i, 0);
      }
      HAKO_ASSIGN_OR_RETURN(line, lines_.NextLine(*line, LoadHeader(*line), &hops));
    }
    sync::VersionLock(home.header).Unlock(true);
    return absl::OkStatus();
  }

  Space& space_;
  LineTable<Space>& lines_;
  RecordCount& count_;
};

}  // namespace hako::hash
