// The B+ tree asks this of its home, which stores its pages and their lines. The tree does not depend on a home or on a file: BabyDBM gives
// it memory (tree/page_arena.h), TreeDBM a cache of pages in a file (tree/buffer_pool.h).
//
// A page is named by an id, never 0, whose line lies in an array that never moves; its bytes are units of a range of memory that never
// moves and can always be read, so that a reader that is late finds other bytes and no fault. What a call gives out is 0 where there is no
// memory. Any thread.
//
// A space that is not resident keeps pages in a file. The line of a page that is away is locked, and no page that is locked by a caller, or
// that is not a leaf, goes away. It also has
//   IsEvicted(id)           whether the page's line is locked because the page is away
//   Bring(id, level, once)  makes a page that is away be there, for a moment at least. Its level must be that, if it is not negative;
//                        `once`: it is not likely to be wanted again soon. The caller holds no lock, unless nothing else is left to do.
//   kReadsAhead, ReadAhead(ids, level), ahead_max(), MustBeRead(id), Demote(id)  see tree/buffer_pool.h
//   DiscardEvicted(id, unseen) forgets a page, if it is away; unless `unseen`, only if it need not be looked at for long values
//   HeldPages            pages that one caller keeps in memory (tree/page_hold-inl.h)
//   NeedsEviction(), Settle()  what the space wants to do when a thread that has changed pages has no lock any more
//   Slot::error          why a call that has no other way to say so failed
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"

namespace hako::tree {

template <class S>
concept PageSpace = requires(S& s, std::uint32_t id, unsigned units, std::uint64_t bytes, std::string_view value,
                             format::OverflowValue place, typename S::Deferred& deferred, typename S::LongRead& read,
                             format::PageLine& line) {
  requires std::derived_from<typename S::WriterState, sync::WriterState>;
  { S::kResident } -> std::convertible_to<bool>;  // every page is in memory
  { s.gate() } -> std::same_as<sync::WriteGate&>;
  { S::kPagesMax } -> std::convertible_to<std::uint64_t>;
  { s.lines() } -> std::same_as<format::PageLine*>;  // kPagesMax of them
  { s.memory() } -> std::same_as<char*>;             // where unit 0 would be
  { s.NewPage() } -> std::same_as<std::uint32_t>;    // an id; its line is locked, with a version that readers of a former page do not know
  { s.FreePage(id) } -> std::same_as<void>;          // locked by the caller, for the last time
  { s.Allocate(units) } -> std::same_as<std::uint32_t>;  // the first of so many units; their contents are undefined
  { s.Free(id, units) } -> std::same_as<void>;
  { s.HasRoomFor(bytes) } -> std::same_as<bool>;  // for pages of so many bytes, most likely
  { s.MarkDirty(line) } -> std::same_as<void>;    // the locked page is going to be changed
  { s.mark() } -> std::same_as<std::uint8_t>;     // PageShape::kMark of a page that is made now
  // Values too long for a page. A Deferred has the rest of the work, and does it when it ends, or in Finish(), after the caller's last lock
  // is released. A LongRead reads one, in turns: Has(place) with the leaf locked that names it, or watched; Read() with nothing locked;
  // until Has is true.
  typename S::Deferred;
  { s.has_long_values() } -> std::same_as<bool>;  // false: there are none
  { s.StoreLong(value, deferred) } -> std::same_as<std::uint64_t>;
  { s.FreeLong(place, deferred) } -> std::same_as<void>;
  { deferred.Finish() } -> std::same_as<void>;
  { read.Has(place) } -> std::same_as<bool>;       // whether status() and bytes() are those of this value
  { read.IsBeingFilled() } -> std::same_as<bool>;  // after Has: whether Read is going to wait for the thread that stored it
  { read.Read() } -> std::same_as<void>;           // with an argument: to there
  { read.status() } -> std::convertible_to<Status>;
  { read.bytes() } -> std::same_as<std::string_view>;
};

}  // namespace hako::tree
