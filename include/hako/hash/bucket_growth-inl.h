// Definitions of hash/bucket_index.h: counting records and splitting buckets.
#pragma once

#include "hako/base/no_memory.h"
#include "hako/hash/bucket_index.h"

namespace hako::hash {

template <class Space>
HAKO_INLINE void BucketIndex<Space>::AddToCount(WriterState& writer, std::int64_t delta) {
  const std::int64_t pending = writer.pending_count.load(std::memory_order_relaxed) + delta;
  writer.pending_count.store(pending, std::memory_order_relaxed);
  if (pending >= kCountBatch || pending <= -kCountBatch) FlushCount(writer, pending);
}

template <class Space>
void BucketIndex<Space>::FlushCount(WriterState& writer, std::int64_t pending) {
  std::int64_t total = count_.load(std::memory_order_relaxed) + pending;
  if (sync::IsSingleThreaded()) {
    count_.store(total, std::memory_order_relaxed);
  } else {
    total = count_.fetch_add(pending, std::memory_order_acq_rel) + pending;
  }
  writer.pending_count.store(0, std::memory_order_relaxed);
  HAKO_TRY {
    for (int splits = 0; splits < 4 && total > static_cast<std::int64_t>(num_lines() * kTargetLoad); ++splits) {
      if (!Split(writer)) break;
    }
  }
  HAKO_CATCH_NO_MEMORY()  // the next insertions try again
}

// Splits the next bucket in order. False if another thread is splitting, or if there is no room;
// then the table continues to work with longer chains.
template <class Space>
bool BucketIndex<Space>::Split(WriterState& writer) {
  sync::VersionLock splitting(split_lock_);
  if (!splitting.TryLock()) return false;
  const sync::LockHolder split_holder(splitting);
  const std::uint64_t n = num_lines();
  if (!lines_.EnsureHome(n + 1).ok()) return false;
  const std::uint64_t half = std::bit_floor(n);
  const auto depth = static_cast<unsigned>(std::countr_zero(half));
  Line& from = lines_.Home(n - half);
  __builtin_prefetch(&lines_.Home(n - half + (n + 1 < 2 * half ? 1 : 0)), 1);  // for the next split
  sync::VersionLock lock(from.header);
  lock.Lock();
  sync::LockHolder holder(lock);
  CaptureIfAsked(writer, n - half);

  // Without a branch on the deciding bit, which is as good as random.
  const unsigned deciding_bit = depth - format::TagBase(depth);
  Entries &moved = split_moved_, &stayed = split_stayed_;
  std::size_t num_moved = 0, num_stayed = 0, chain = 0;
  Status status;
  for (Line* line = &from; line != nullptr && status.ok();) {
    if (moved.size() < ++chain * format::kLineEntries) {
      moved.resize(chain * format::kLineEntries);
      stayed.resize(chain * format::kLineEntries);
    }
    const std::uint32_t header = Header(*line);
    for (unsigned i = 0; i < EntriesIn(header); ++i) {
      const Tagged entry{LoadSlot(*line, i), LoadTag(*line, i), static_cast<std::uint16_t>(i), line};
      moved[num_moved] = stayed[num_stayed] = entry;
      const std::size_t moves = entry.tag >> deciding_bit & 1, is_there = entry.handle != 0;
      num_moved += is_there & moves;
      num_stayed += is_there & ~moves;
    }
    unsigned hops = static_cast<unsigned>(chain);
    StatusOr<Line*> next = NextLine(*line, header, &hops);
    status = next.status();
    line = next.ok() ? *next : nullptr;
  }
  const bool new_tags = format::TagBase(depth + 1) != format::TagBase(depth);
  if (new_tags && status.ok())
    status = RecomputeTags(writer, {std::span(moved.data(), num_moved), std::span(stayed.data(), num_stayed)}, depth + 1);
  if (status.ok()) status = FillLine(lines_.Home(n), {moved.data(), num_moved});
  if (!status.ok()) return false;
  PublishLineCount(n + 1);  // nothing can fail from here on
  holder.changed = true;
  for (std::size_t e = 0; e < num_moved; ++e) {
    StoreSlot(*moved[e].line, moved[e].i, 0);
    StoreTag(*moved[e].line, moved[e].i, 0);
  }
  if (new_tags) {
    for (std::size_t e = 0; e < num_stayed; ++e) StoreTag(*stayed[e].line, stayed[e].i, stayed[e].tag);
  }
  Compact(from, chain, num_stayed);
  return true;
}

// Takes new tags from the keys, whose records are read together where they are not in memory.
template <class Space>
Status BucketIndex<Space>::RecomputeTags(WriterState& writer, const std::array<std::span<Tagged>, 2>& lists, unsigned depth) const {
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

// Overwrites a bucket that no reader can reach yet, with overflow buckets as needed. On error,
// frees these again.
template <class Space>
Status BucketIndex<Space>::FillLine(Line& line, std::span<const Tagged> entries) {
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
    if (IsLimited()) {
      for (std::size_t e = first; e < next; ++e) MoveEntry(*entries[e].line, entries[e].i, *at, static_cast<unsigned>(e - first));
    }
    if (linked) at = lines_.Overflow(overflow[l]);
  }
  return absl::OkStatus();
}

// Stores by words: a reader that still follows an old link to a recycled overflow bucket may be
// reading it.
template <class Space>
void BucketIndex<Space>::StoreLine(Line& line, const Line& content) {
  std::uint64_t words[sizeof(Line) / 8];
  std::memcpy(words, &content, sizeof(words));
  for (std::size_t w = 0; w < std::size(words); ++w) {
    std::atomic_ref(reinterpret_cast<std::uint64_t*>(&line)[w]).store(words[w], std::memory_order_relaxed);
  }
}

// Removes overflow buckets from a locked chain of `chain` buckets while its `num_entries` entries
// fit into the remaining ones. An entry is briefly in two places, never in none.
template <class Space>
void BucketIndex<Space>::Compact(Line& home, std::size_t chain, std::size_t num_entries) {
  for (; chain > 1 && num_entries <= format::kLinkEntry * (chain - 1) + 1; --chain) {
    Line* before = &home;
    for (std::size_t l = 2; l < chain; ++l) before = lines_.Overflow(LoadSlot(*before, format::kLinkEntry));
    const std::uint32_t id = LoadSlot(*before, format::kLinkEntry);
    Line& last = *lines_.Overflow(id);
    Line* free = &home;
    unsigned f = 0;
    std::uint32_t last_handle = 0;  // replaces the link
    std::uint16_t last_tag = 0;
    for (unsigned i = 0; i < format::kLineEntries; ++i) {
      const std::uint32_t handle = LoadSlot(last, i);
      if (handle == 0) continue;
      while (free != &last && LoadSlot(*free, f) != 0) {
        if (++f < format::kLinkEntry) continue;
        free = lines_.Overflow(LoadSlot(*free, format::kLinkEntry));
        f = 0;
      }
      if (free == &last) {
        last_tag = LoadTag(last, i);
        last_handle = handle;
        MoveEntry(last, i, *before, format::kLinkEntry);
        break;
      }
      StoreTag(*free, f, LoadTag(last, i));
      StoreSlot(*free, f, handle);
      MoveEntry(last, i, *free, f);
    }
    StoreTag(*before, format::kLinkEntry, last_tag);
    StoreLinkAndHeader(*before, last_handle, Header(*before) & ~sync::VersionLock::kFlag);
    lines_.FreeOverflow(id);
  }
}

}  // namespace hako::hash
