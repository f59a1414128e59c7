// Splits the buckets of a hash table, one at a time in their order, as the table gets more records.
//
// Thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/hash/capture_list.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/record_view.h"
#include "hako/sync/version_lock.h"

namespace hako::hash {

template <class Space>
class BucketSplitter {
  using WriterState = typename Space::WriterState;
  using Line = format::BucketLine;

 public:
  static constexpr std::uint64_t kTargetLoad = 8;  // records per bucket, on average

  BucketSplitter(Space& space, LineTable<Space>& lines, const CaptureList<Space>& captures)
      : space_(space), lines_(lines), captures_(captures) {}
  BucketSplitter(const BucketSplitter&) = delete;

  // Splits a few buckets if there are too few for this number of records.
  void Grow(WriterState& writer, std::int64_t num_records) {
    HAKO_TRY {
      for (int splits = 0; splits < 4 && num_records > static_cast<std::int64_t>(lines_.num_lines() * kTargetLoad); ++splits) {
        if (!Split(writer)) break;
      }
    }
    HAKO_CATCH_NO_MEMORY()  // the next insertions try again
  }

 private:
  struct Tagged {
    std::uint32_t handle;
    std::uint16_t tag;
    std::uint16_t i;  // its index in `line`
    Line* line;
  };

  // Splits the next bucket in order. Returns false if another thread is splitting, or if there is
  // no room, and then the table continues with longer chains.
  bool Split(WriterState& writer) {
    sync::VersionLock splitting(lock_);
    if (!splitting.TryLock()) return false;
    const sync::LockHolder split_holder(splitting);
    const std::uint64_t n = lines_.num_lines();
    if (!lines_.EnsureHome(n + 1).ok()) return false;
    const std::uint64_t half = std::bit_floor(n);
    const auto depth = static_cast<unsigned>(std::countr_zero(half));
    Line& from = lines_.Home(n - half);
    __builtin_prefetch(&lines_.Home(n - half + (n + 1 < 2 * half ? 1 : 0)), 1);  // for the next split
    sync::VersionLock lock(from.header);
    lock.Lock();
    sync::LockHolder holder(lock);
    captures_.CaptureIfAsked(writer, n - half);

    // There is no branch on the deciding bit, because it is as good as random.
    const unsigned deciding_bit = depth - format::TagBase(depth);
    std::size_t num_moved = 0, num_stayed = 0, chain = 0;
    Status status;
    for (Line* line = &from; line != nullptr && status.ok();) {
      if (moved_.size() < ++chain * format::kLineEntries) {
        moved_.resize(chain * format::kLineEntries);
        stayed_.resize(chain * format::kLineEntries);
      }
      const std::uint32_t header = LoadHeader(*line);
      for (unsigned i = 0; i < EntriesIn(header); ++i) {
        const Tagged entry{LoadSlot(*line, i), LoadTag(*line, i), static_cast<std::uint16_t>(i), line};
        moved_[num_moved] = stayed_[num_stayed] = entry;
        const std::size_t moves = entry.tag >> deciding_bit & 1, is_there = entry.handle != 0;
        num_moved += is_there & moves;
        num_stayed += is_there & ~moves;
      }
      unsigned hops = static_cast<unsigned>(chain);
      StatusOr<Line*> next = lines_.NextLine(*line, header, &hops);
      status = next.status();
      line = next.ok() ? *next : nullptr;
    }
    const std::span<Tagged> moved(moved_.data(), num_moved), stayed(stayed_.data(), num_stayed);
    const bool new_tags = format::TagBase(depth + 1) != format::TagBase(depth);
    if (new_tags && status.ok()) status = RecomputeTags(writer, {moved, stayed}, depth + 1);
    if (status.ok()) status = FillLine(lines_.Home(n), moved);
    if (!status.ok()) return false;
    lines_.PublishLineCount(n + 1);  // nothing can fail from here on
    holder.changed = true;
    for (const Tagged& entry : moved) {
      StoreSlot(*entry.line, entry.i, 0);
      StoreTag(*entry.line, entry.i, 0);
    }
    if (new_tags) {
      for (const Tagged& entry : stayed) StoreTag(*entry.line, entry.i, entry.tag);
    }
    lines_.Compact(from, chain, num_stayed);
    return true;
  }

  // Computes new tags from the keys. If the records are not in memory, they are read together.
  Status RecomputeTags(WriterState& writer, const std::array<std::span<Tagged>, 2>& lists, unsigned depth) const {
    [[maybe_unused]] typename Space::Ahead ahead;
    if constexpr (Space::kReadsAhead) {
      for (const std::span<Tagged> entries : lists) {
        for (const Tagged& entry : entries) space_.Want(ahead, entry.handle);
      }
      space_.Read(ahead);
    }
    for (const std::span<Tagged> entries : lists) {
      for (Tagged& entry : entries) {
        HAKO_ASSIGN_OR_RETURN(const RecordView record, space_.View(writer, entry.handle));
        entry.tag = format::TagOf(space_.KeyHash(record.key), depth);
      }
    }
    return absl::OkStatus();
  }

  // Overwrites a bucket that no reader can reach yet, and adds overflow buckets as needed. On an
  // error frees the overflow buckets.
  Status FillLine(Line& line, std::span<const Tagged> entries) {
    absl::InlinedVector<std::uint32_t, 4> overflow;
    overflow.reserve(entries.size() / format::kLinkEntry + 1);
    while (entries.size() > format::kLineEntries + overflow.size() * format::kLinkEntry) {
      StatusOr<std::uint32_t> id = lines_.NewOverflow();
      if (!id.ok()) {
        for (std::uint32_t other : overflow) lines_.FreeOverflow(other);
        return id.status();
      }
      overflow.push_back(*id);
    }
    std::size_t next = 0;
    Line* at = &line;
    for (std::size_t l = 0; l <= overflow.size(); ++l) {
      const bool linked = l < overflow.size();
      Line content{};
      const std::size_t first = next;
      for (unsigned i = 0; i < (linked ? format::kLinkEntry : format::kLineEntries) && next < entries.size(); ++i, ++next) {
        content.tags[i] = entries[next].tag;
        content.slots[i] = entries[next].handle;
      }
      if (linked) {
        content.slots[format::kLinkEntry] = overflow[l];
        content.header = sync::VersionLock::kFlag;
      }
      StoreLine(*at, content);
      if (lines_.IsLimited()) {
        for (std::size_t e = first; e < next; ++e) lines_.NoteMoved(*entries[e].line, entries[e].i, *at, static_cast<unsigned>(e - first));
      }
      if (linked) at = lines_.Overflow(overflow[l]);
    }
    return absl::OkStatus();
  }

  Space& space_;
  LineTable<Space>& lines_;
  const CaptureList<Space>& captures_;
  std::uint32_t lock_ = 0;              // a VersionLock: guards the two below, and is held while the table grows
  std::vector<Tagged> moved_, stayed_;  // of the bucket that is split
};

}  // namespace hako::hash
