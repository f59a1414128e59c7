// The concept of a space that stores the pages of a B+ tree and their lines. The tree does not
// depend on a particular space: BabyDBM uses memory (tree/memory/page_arena.h), TreeDBM a buffer
// pool over a file (tree/file/buffer_pool.h).
//
// A page is named by an id, which is never 0. The id selects a line in an array that never moves.
// The page's bytes are units of a memory range that never moves and always stays readable, so a
// late reader may find other bytes but never faults. Functions that return an id or a unit return 0
// when out of memory. Thread-safe.
//
// A space that is not resident keeps pages in a file. The line of an evicted page is locked. A page
// that a caller has locked is never evicted, nor is an inner page. A resident space inherits the
// functions that it does not need (ResidentSpace).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"

namespace hako::tree {

// The functions of a space whose pages are all in memory: no page is evicted, so there is nothing
// to load.
struct ResidentSpace {
  static constexpr bool kResident = true, kReadsAhead = false;
  static constexpr bool IsEvicted(std::uint32_t /*id*/) { return false; }
  static constexpr bool MustBeRead(std::uint32_t /*id*/) { return false; }
  static Status LoadPage(std::uint32_t /*id*/, int /*level*/, bool /*once*/) { return absl::OkStatus(); }
  static void LoadPages(std::span<const std::uint32_t> /*ids*/, int /*level*/, bool /*once*/) {}
  static constexpr bool DiscardEvicted(std::uint32_t /*id*/, bool /*unseen*/) { return false; }
  static bool ReadAhead(std::span<const std::uint32_t> /*ids*/, int /*level*/) { return true; }
  static void LoadLeaves(std::span<const std::uint32_t> /*ids*/) {}
  static constexpr std::size_t ahead_max() { return 0; }
  static void Demote(std::uint32_t /*id*/) {}
  static constexpr bool NeedsEviction() { return false; }
  static void EvictIfNeeded() {}
  static void ReserveDirty(std::size_t /*num_pages*/) {}
  static void NoteChange() {}
  struct HeldPages {
    explicit HeldPages(ResidentSpace&) {}
    static void MakeRoomFor(std::size_t /*num_pages*/) {}
    static constexpr bool Add(std::uint32_t /*id*/) { return true; }
    static void Release(bool /*changed*/) {}
  };
  static constexpr bool IsLarge(std::size_t /*num_pages*/) { return false; }
};

template <class S>
concept PageSpace = requires(S& s, std::uint32_t id, unsigned units, std::uint64_t bytes, std::string_view value,
                             format::OverflowValue place, typename S::Deferred& deferred, typename S::LongRead& read,
                             format::PageLine& line, int level, bool once, bool unseen, bool changed, std::span<const std::uint32_t> ids,
                             std::size_t n, typename S::HeldPages& held) {
  requires std::derived_from<typename S::WriterState, sync::WriterState>;
  { S::kResident } -> std::convertible_to<bool>;  // every page is in memory
  { s.gate() } -> std::same_as<sync::WriteGate&>;
  { s.id_mask() } -> std::same_as<std::uint32_t>;    // the largest id, one less than a power of two
  { s.lines() } -> std::same_as<format::PageLine*>;  // by id
  { s.memory() } -> std::same_as<char*>;             // where unit 0 would be
  // Returns a new id. Its line is locked, with a version that no reader of a former page holds.
  { s.NewPage() } -> std::same_as<std::uint32_t>;
  // Unlocks the page. REQUIRES: the caller has locked it (checked in PageArena::FreePage)
  { s.FreePage(id) } -> std::same_as<void>;
  // Returns the first of `units` consecutive units, whose contents are undefined.
  { s.Allocate(units) } -> std::same_as<std::uint32_t>;
  { s.Free(id, units) } -> std::same_as<void>;
  // Whether pages of this many bytes are likely to fit.
  { s.HasRoomFor(bytes) } -> std::same_as<bool>;
  // Call this before a change of the page, which the caller has locked.
  { s.MarkDirty(line) } -> std::same_as<void>;
  { s.mark() } -> std::same_as<std::uint8_t>;  // PageShape::kMark of a new page
  // Long values: too long for a page. A Deferred does the rest of the work in its destructor or in
  // Finish(), after the caller has released its last lock. A LongRead reads one value in
  // alternating steps, until Has returns true: Has(place), while the leaf that names the value is
  // locked or its version is checked afterwards; Read(), with nothing locked.
  requires std::constructible_from<typename S::Deferred, S&>;
  requires std::constructible_from<typename S::LongRead, S&> && std::movable<typename S::LongRead>;
  { s.has_long_values() } -> std::same_as<bool>;  // false: the tree has none
  { s.StoreLong(value, deferred) } -> std::same_as<std::uint64_t>;
  { s.FreeLong(place, deferred) } -> std::same_as<void>;
  { deferred.Finish() } -> std::same_as<void>;
  // Whether status() and bytes() are those of this value.
  { read.Has(place) } -> std::same_as<bool>;
  // After Has: whether Read would wait for the thread that stores the value.
  { read.IsBeingFilled() } -> std::same_as<bool>;
  { read.Read() } -> std::same_as<void>;   // an argument is the buffer to read into
  { read.Check() } -> std::same_as<void>;  // as Read, but sets only the status
  { read.status() } -> std::convertible_to<Status>;
  { read.bytes() } -> std::same_as<std::string_view>;

  // ---- pages that are not in memory ----

  // The error of the last call that has no other way to return it.
  requires S::kResident || requires(typename S::WriterState writer) { requires std::same_as<decltype(writer.error), Status>; };
  // Whether the line of the page is locked because the page is evicted.
  { s.IsEvicted(id) } -> std::same_as<bool>;
  // Loads an evicted page, which may be evicted again at any time. The page must have this level,
  // unless `level` is negative. `once`: the page is not likely to be needed again soon. The caller
  // holds no lock, unless no writer is active.
  { s.LoadPage(id, level, once) } -> std::same_as<Status>;
  // A hint: loads those of these pages that are evicted.
  { s.LoadPages(ids, level, once) } -> std::same_as<void>;
  // Frees a page if it is evicted and cannot name long values, which would have to be freed first.
  // With `unseen` does so even if it may name long values.
  { s.DiscardEvicted(id, unseen) } -> std::same_as<bool>;
  // Reading leaves ahead of a scan, and evicting them behind it.
  { S::kReadsAhead } -> std::convertible_to<bool>;
  { s.ReadAhead(ids, level) } -> std::same_as<bool>;
  { s.LoadLeaves(ids) } -> std::same_as<void>;  // leaves that will be changed soon
  { s.ahead_max() } -> std::convertible_to<std::size_t>;
  { s.MustBeRead(id) } -> std::same_as<bool>;
  { s.Demote(id) } -> std::same_as<void>;
  // Called by a thread that has changed pages, after it has released its locks.
  { s.NeedsEviction() } -> std::same_as<bool>;
  { s.EvictIfNeeded() } -> std::same_as<void>;
  // Reserves memory to mark this many pages dirty.
  { s.ReserveDirty(n) } -> std::same_as<void>;
  // Something beside pages has changed that a checkpoint must write.
  { s.NoteChange() } -> std::same_as<void>;
  // Pages that one large update keeps in memory (tree/file/held_pages.h).
  requires std::constructible_from<typename S::HeldPages, S&>;
  { s.IsLarge(n) } -> std::same_as<bool>;
  { held.MakeRoomFor(n) } -> std::same_as<void>;
  { held.Add(id) } -> std::same_as<bool>;
  { held.Release(changed) } -> std::same_as<void>;
};

}  // namespace hako::tree
