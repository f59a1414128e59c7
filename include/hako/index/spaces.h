// What the two engines ask of the places where their bytes live. They know no file and no storage class: TinyDBM gives the bucket engine
// memory, HashDBM a record heap in a file; BabyDBM gives the page engine memory, TreeDBM a cache of pages in a file.
//
// HashSpace. A record is named by a 32-bit handle, never 0. Calls marked (optimistic) run without a lock beside writers: they may see
// garbage, must not follow it outside the space, and their result counts only if the line's version still holds. All others run with the
// record's bucket line locked by the caller.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/format/record_format.h"
#include "hako/format/record_view.h"
#include "hako/index/copy_buffer.h"
#include "hako/sync/write_gate.h"

namespace hako::index {

template <class S>
concept HashSpace = requires(S& s, typename S::Slot& slot, std::uint32_t handle, std::uint64_t n, std::uint64_t head,
                             std::string_view bytes, format::FetchedCopy& copy, format::Lengths& lengths, Status* error,
                             format::IndexExtent kind, CopyBuffer& buffer, format::RecordCopy* copied, char* (*sink)(std::size_t),
                             bool (*is_current)()) {
  requires std::derived_from<typename S::Slot, sync::WriterSlot>;
  { S::kOverwrites } -> std::convertible_to<bool>;  // whether a value can be changed in place
  { S::kReadsAhead } -> std::convertible_to<bool>;  // whether an Ahead reads several records together (storage/read_ahead.h), or is nothing
  typename S::Ahead;
  { s.gate() } -> std::same_as<sync::WriteGate&>;

  // Index lines: zero-filled extents of one address range that never moves.
  { s.AllocateIndexExtent(n, kind) } -> std::same_as<StatusOr<std::uint64_t>>;
  { s.index_base() } -> std::same_as<std::byte*>;
  { s.index_end() } -> std::same_as<std::uint64_t>;  // no line lies at or above it
  { s.StoreLineCount(n) } -> std::same_as<void>;     // to be found again after a process kill

  // Records.
  { s.Prefetch(handle) } -> std::same_as<void>;                                          // (optimistic)
  { s.PrefetchRest(handle) } -> std::same_as<void>;                                      // (optimistic) once the head is here
  { s.TryFetchShort(handle, n, bytes, sink) } -> std::same_as<bool>;                     // (optimistic) n = hash; false = ask TryFetch
  { s.TryFetch(handle, bytes, sink, is_current, copy) } -> std::same_as<format::Match>;  // (optimistic)
  { s.CopyRecord(handle, is_current, buffer, copied) } -> std::same_as<format::Match>;   // (optimistic) to the buffer; kYes: intact
  { s.CopyIsIntact(copy, n) } -> std::same_as<bool>;                                     // n = hash of the key
  { s.DamageAt(handle) } -> std::same_as<Status>;
  { s.MatchKey(handle, bytes, &lengths) } -> std::same_as<format::Match>;         // and the record's lengths
  { s.View(slot, handle) } -> std::same_as<StatusOr<format::RecordView>>;         // checked; DataLoss if damaged
  { s.Write(slot, n, bytes, bytes, error) } -> std::same_as<std::uint32_t>;       // a new record, seen by nobody yet; 0 = error
  { s.WriteAhead(slot, n, bytes, bytes, error) } -> std::same_as<std::uint32_t>;  // the same for a long value, outside the gate and locks
  { s.EndAhead(slot, handle) } -> std::same_as<Status>;                           // inside the gate, before it is published or given back
  { s.Overwrite(handle, lengths, bytes, bytes) } -> std::same_as<bool>;           // in place, if the space allows it
  { s.Commit(handle) } -> std::same_as<void>;                                     // its slot names it now
  { s.Revive(handle) } -> std::same_as<void>;                                     // the same after a process kill
  { s.Retire(slot, handle, lengths) } -> std::same_as<void>;                      // its slot will name it no more
  { s.ReleaseFreed(slot) } -> std::same_as<void>;  // what was retired may be used again: its slot names it no more
  {
    s.NoteMove(handle, handle)
    } -> std::same_as<void>;  // the entry of the first is going to name the second, before either knows; 0 = none
  { s.KeyHash(bytes) } -> std::same_as<std::uint64_t>;

  // The same in short, for short records (format/record_format.h); a refusal, false or 0 or nullopt, means that nothing was done. `head`
  // is the record's first 8 bytes.
  { s.MatchShort(handle, bytes, &head) } -> std::same_as<bool>;
  { s.ViewShort(handle, head, n) } -> std::same_as<std::optional<std::string_view>>;  // its value
  { s.WriteShort(slot, n, bytes, bytes) } -> std::same_as<std::uint32_t>;
  { s.GiveBack(slot, handle, n, n) } -> std::same_as<void>;  // of Write or WriteShort, with the sizes of key and value; nobody saw it
  { s.OverwriteShort(handle, head, bytes) } -> std::same_as<bool>;
  { s.RetireShort(slot, handle, head) } -> std::same_as<void>;
};

// PageSpace. A page is named by an id, never 0, whose line lies in an array that never moves; its bytes are units of a range of memory that
// never moves and can always be read, so that a reader that is late finds other bytes and no fault. What a call gives out is 0 where there
// is no memory. Any thread.
//
// A space that is not resident keeps pages in a file. The line of a page that is away is locked, and no page that is locked by a caller, or
// that is not a leaf, goes away. It also has
//   IsAway(id)           whether the page's line is locked because the page is away
//   Bring(id, level, once)  makes a page that is away be there, for a moment at least. Its level must be that, if it is not negative;
//                        `once`: it is not likely to be wanted again soon. The caller holds no lock, unless nothing else is left to do.
//   kReadsAhead, ReadAhead(ids, level), ahead_max(), MustBeRead(id), LeaveBehind(id)  see storage/page_cache.h
//   DropAway(id, unseen) forgets a page, if it is away; unless `unseen`, only if it need not be looked at for long values
//   HeldPages            pages that one caller keeps in memory (storage/page_hold-inl.h)
//   NeedsSettling(), Settle()  what the space wants to do when a thread that has changed pages has no lock any more
//   Slot::error          why a call that has no other way to say so failed
template <class S>
concept PageSpace = requires(S& s, std::uint32_t id, unsigned units, std::uint64_t bytes, std::string_view value, format::LongValue place,
                             typename S::Deferred& deferred, typename S::LongRead& read, format::PageLine& line) {
  requires std::derived_from<typename S::Slot, sync::WriterSlot>;
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
  { s.Touch(line) } -> std::same_as<void>;        // the locked page is going to be changed
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

}  // namespace hako::index
