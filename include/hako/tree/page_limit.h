// The limit of a tree in memory (base/capacity.h): the part that PageArena and PageTree share.
// The policy is that of a hash table (hash/record_limit.h), with two differences. A step considers
// 16 slots in each of 8 leaves instead of a group of buckets, and evicts either new or kept
// records, depending on the share of new records in the last steps. The hand goes over the pages in
// the order of their ids, at 8 places at a time, because the records of adjacent leaves are often
// alike: some leaves have only popular records, others only those of a scan.
//
// Memory. A limit in bytes is divided: kBeside and a 128th are for the objects of the database and for
// tables (of free runs, holes, ids), and kWriterBytes for each writer; the rest, the budget, is for pages,
// long values, lines and use bits. Pages and long values are runs of units of PageArena. The arena
// has four times as many addresses as bytes. A page or value that finds no free run gets new
// addresses; in exchange, as many system pages without any page or value become holes, which take
// no memory (tree/memory/page_holes.h). Evictions free few units in many places. So each time that
// an eighth of the size of a part of the memory was evicted, the evicting thread also moves the
// pages of that part together, so that its free units become one run.
//
// Invariants
//   1. Records are evicted like Remove removes them: the leaf is locked, and the removal is logged
//      first. The evicting thread only tries to lock the leaf. A thread that needs memory may also
//      evict from the leaves that it has locked itself, except the records that it is about to
//      change.
//   2. An eviction takes no memory of pages and changes no other page. A leaf that it leaves sparse is
//      joined with a neighbour once the thread has released its locks (PageTree::JoinSparse); if
//      the limit is in bytes, this is done at once: the join waits only for pages above the leaf,
//      and changes no page that the thread had locked before.
//   3. A line without a page has a shape of 0 bytes, so the hand skips it.
//   4. The memory that PageArena counts is within the budget. It counts a system page of the arena
//      from its first use until it becomes a hole, and a system page of lines, with the page of
//      their use bits, from the first use of a line. The memory of a page is free once the page is
//      freed. The memory of a long value is free once its last reader has dropped it, too.
//   5. An update of one record that gets no memory changes nothing; the thread evicts some records
//      and tries again. A batch cannot fail once it is logged, so it first reserves what its pages
//      may need. If that was too little, the batch exceeds the budget, and then evicts as much
//      before it continues.
//   6. One thread at a time joins leaves. It may use Spare() bytes that no other thread may use,
//      because it takes memory before it returns more.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/format/page_format.h"
#include "hako/sync/cache_limit.h"
#include "hako/tree/page_uses.h"

namespace hako::tree {

class PageLimit : public sync::CacheLimit {
 public:
  using Line = format::PageLine;
  static constexpr std::uint64_t kBeside = 40 << 10;
  static constexpr std::uint64_t kWriterBytes = 1 << 10, kWritersBeside = 4;  // kBeside includes this many writers
  static constexpr std::uint64_t kSpareMin = 16 << 10, kSpareMax = 64 << 10;
  static constexpr std::uint64_t kAddressesOf = 4;  // for each byte

  // For lines from `lines` on. `uses` has a zeroed PageUse for each of them, and outlives this.
  PageLimit(const Capacity& capacity, const Line* lines, std::byte* uses)
      : CacheLimit(capacity), origin_(reinterpret_cast<std::uintptr_t>(uses) - reinterpret_cast<std::uintptr_t>(lines)) {}

  // Adds a step of the hand, which has seen `records` records, of which `fresh` were new. Returns
  // whether more than a quarter of the records seen by the last steps are new.
  bool HasManyNew(unsigned records, unsigned fresh) {
    const auto add = [](std::atomic<std::uint64_t>& sum, std::uint64_t seen) {
      const std::uint64_t old = sum.load(std::memory_order_relaxed), now = old - old / kStepsSeen + seen;
      sum.store(now, std::memory_order_relaxed);
      return now;
    };
    const std::uint64_t all = add(seen_, records);
    return 4 * add(fresh_seen_, fresh) > all;
  }

  // Returns the most bytes that PageArena may use. REQUIRES: the limit is in bytes
  std::uint64_t Budget() const {
    HAKO_DCHECK(capacity().bytes != 0);
    return BudgetOf(capacity().bytes) - std::min(WriterBytes(), capacity().bytes / 2);
  }
  static std::uint64_t BudgetOf(std::uint64_t capacity_bytes) { return capacity_bytes - kBeside - capacity_bytes / 128; }
  std::uint64_t Spare() const { return std::clamp(capacity().bytes / 64, kSpareMin, kSpareMax); }
  // The bytes of the writers that kBeside does not include.
  std::uint64_t WriterBytes() const { return (std::max(num_writers(), kWritersBeside) - kWritersBeside) * kWriterBytes; }

  // Set while a thread joins leaves at the limit; only one thread at a time does.
  std::atomic_flag& joins() { return joins_; }

  // Call this when a Get has found its record in this slot of the leaf, or has not found it.
  template <class Slot>
  HAKO_INLINE void NoteFetched(const Line& leaf, const Slot& slot) {
    counts().Add(slot.found);
    NoteUse(leaf, slot);
  }
  // Call this when an operation with a lock has found the record in this slot, or has not found it.
  template <class Slot>
  HAKO_INLINE void NoteUse(const Line& leaf, const Slot& slot) {
    if (slot.found) UseOf(leaf).used.Set(slot.index);
  }

  HAKO_INLINE PageUse& UseOf(const Line& line) const {
    static_assert(sizeof(PageUse) == sizeof(Line));
    return *reinterpret_cast<PageUse*>(origin_ + reinterpret_cast<std::uintptr_t>(&line));
  }

 private:
  static constexpr std::uint64_t kStepsSeen = 32;

  const std::uintptr_t origin_;  // where the PageUse of a line at address 0 would be
  // The records, and the new records, that the hand has seen, with later steps weighted more. If
  // several threads update them, an update may be lost.
  std::atomic<std::uint64_t> seen_{0}, fresh_seen_{0};
  std::atomic_flag joins_;
};

// The eviction state of a writer.
struct EvictingWriter {
  static constexpr std::size_t kSparseMax = 64;

  std::atomic<std::uint64_t> evictions{0};
  bool is_counted = false;          // among the writers of the limit
  std::vector<std::string> sparse;  // keys of leaves that evictions have left sparse
};

// A space that may have a limit beyond which the tree evicts records.
template <class S>
concept LimitedPageSpace = requires(S& s) {
  { s.limit() } -> std::same_as<PageLimit*>;  // nullptr = none
  requires std::derived_from<typename S::WriterState, EvictingWriter>;
  { s.page_end() } -> std::same_as<std::uint32_t>;
  requires std::constructible_from<typename S::Reservation, S&>;
  { S::kFirstId } -> std::convertible_to<std::uint32_t>;
};

// The limit of a space; nullptr if it has none.
template <class Space>
HAKO_INLINE PageLimit* LimitOf(Space& space) {
  if constexpr (LimitedPageSpace<Space>)
    return space.limit();
  else
    return nullptr;
}

}  // namespace hako::tree
