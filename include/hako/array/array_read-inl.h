// Definitions of array/page_array.h: look-ups, which take no lock.
#pragma once

#include "hako/array/page_array.h"

namespace hako::array {

// See invariant 1.
template <class Space>
HAKO_INLINE bool PageArray<Space>::Reach(std::uint64_t leaf, Reached* reached) const {
  if (leaf >= table_size_) [[unlikely]]
    return false;
  const std::atomic_ref entry(table_[leaf]);
  const std::uint32_t id = entry.load(std::memory_order_relaxed);
  Line& line = lines_[id];  // the table has only ids of pages, and 0
  const std::uint32_t version = Lock(line.version).ReadVersion();
  *reached = {&line, version};
  return id != 0 && (version & Lock::kLocked) == 0 && entry.load(std::memory_order_relaxed) == id;
}

template <class Space>
auto PageArray<Space>::Find(std::uint64_t leaf, Reached* reached) const -> Way {
  if (leaf < table_size_) {
    const std::atomic_ref entry(table_[leaf]);
    if (const std::uint32_t id = entry.load(std::memory_order_relaxed); id != 0) {
      Line& line = LineOf(id);
      *reached = {&line, Lock(line.version).ReadVersion()};
      if (entry.load(std::memory_order_relaxed) != id) return Way::kRaced;
      return (reached->version & Lock::kLocked) != 0 ? Way::kBlocked : Way::kLeaf;
    }
  }
  return FindInDirectory(leaf, reached);
}

// See invariant 2.
template <class Space>
auto PageArray<Space>::FindInDirectory(std::uint64_t leaf, Reached* reached) const -> Way {
  Line* line = &root();
  *reached = {line, Lock(line->version).ReadVersion(), kRootLevel};
  for (unsigned level = kRootLevel; level > 0; --level) {
    if ((reached->version & Lock::kLocked) != 0) return Way::kBlocked;
    const std::uint32_t child = ChildOf(*line, IndexIn(level, leaf));
    Line& below = LineOf(child);
    const std::uint32_t version = Lock(below.version).ReadVersion();
    if (!Lock(line->version).IsCurrent(reached->version)) return Way::kRaced;
    if (child == 0) return Way::kAbsent;
    line = &below;
    *reached = {line, version, level - 1};
  }
  return (reached->version & Lock::kLocked) != 0 ? Way::kBlocked : Way::kLeaf;
}

template <class Space>
template <class S>
HAKO_INLINE auto PageArray<Space>::FetchFrom(const Reached& leaf, unsigned i, S& sink) const -> Outcome {
  char* const page = PageOf(*leaf.line);
  if (!BitsOf(*leaf.line, page).Has(i)) return Lock(leaf.line->version).IsCurrent(leaf.version) ? Outcome::kAbsent : Outcome::kRaced;
  const std::size_t width = shape_.width;
  if (char* out = sink(width)) sync::LoadShared(out, RecordOf(page, i), width);
  return Lock(leaf.line->version).IsCurrent(leaf.version) ? Outcome::kFound : Outcome::kRaced;
}

template <class Space>
template <class S>
HAKO_INLINE auto PageArray<Space>::TryFetch(std::uint64_t id, S& sink) const -> Outcome {
  const Place place = PlaceOf(id);
  Reached leaf;
  if (!Reach(place.leaf, &leaf)) [[unlikely]]
    return Outcome::kRaced;
  return FetchFrom(leaf, place.index, sink);
}

template <class Space>
template <class S>
HAKO_INLINE Status PageArray<Space>::Fetch(Writers& writers, std::uint64_t id, S&& sink) {
  const Outcome outcome = TryFetch(id, sink);
  if (outcome == Outcome::kFound) [[likely]]
    return absl::OkStatus();
  if (outcome == Outcome::kAbsent) return AbsentError();
  if constexpr (std::is_trivially_copy_assignable_v<std::remove_cvref_t<S>>) {
    // Work on a copy, so that nothing takes the address of `sink` and its members stay in
    // registers.
    std::remove_cvref_t<S> copy = sink;
    Status status = FetchSlowly(writers, id, copy);
    sink = copy;
    return status;
  } else {
    return FetchSlowly(writers, id, sink);
  }
}

template <class Space>
Status PageArray<Space>::FetchSlowly(Writers& writers, std::uint64_t id, SinkRef sink) HAKO_TRY {
  if (writers.IsClosed()) return writers.Refusal();
  const Place place = PlaceOf(id);
  sync::Backoff backoff;
  for (int tries = 0; tries < kOptimisticTries; ++tries, backoff.Pause()) {
    Reached leaf;
    const Way way = Find(place.leaf, &leaf);
    if (way == Way::kAbsent) return AbsentError();
    if (way == Way::kBlocked) HAKO_RETURN_IF_ERROR(LoadIfEvicted(leaf));
    if (way != Way::kLeaf) continue;
    NoteLeaves(place.leaf);
    const Outcome outcome = FetchFrom(leaf, place.index, sink);
    if (outcome != Outcome::kRaced) return outcome == Outcome::kFound ? absl::OkStatus() : AbsentError();
  }
  HAKO_RETURN_IF_ERROR(writers.CheckReads());  // a visitor of this thread would make it wait for its own lock
  return FetchLocked(place, sink);
}
HAKO_OR_NO_MEMORY

// Locks the leaf without passing the gate, because it changes nothing; a thread that has closed the
// gate may also read.
template <class Space>
Status PageArray<Space>::FetchLocked(const Place& place, SinkRef sink) {
  for (sync::Backoff backoff;; backoff.Pause()) {
    Reached leaf;
    const Way way = Find(place.leaf, &leaf);
    if (way == Way::kAbsent) return AbsentError();
    if (way == Way::kBlocked) HAKO_RETURN_IF_ERROR(LoadIfEvicted(leaf));
    if (way != Way::kLeaf || !Lock(leaf.line->version).LockIf(leaf.version)) continue;
    const sync::LockHolder holder(Lock(leaf.line->version));
    char* const page = PageOf(*leaf.line);
    if (!BitsOf(*leaf.line, page).Has(place.index)) return AbsentError();
    if (char* out = sink(shape_.width)) std::memcpy(out, RecordOf(page, place.index), shape_.width);
    return absl::OkStatus();
  }
}

template <class Space>
Status PageArray<Space>::LoadIfEvicted(const Reached& page, bool once) {
  if constexpr (!Space::kResident) {
    const std::uint32_t id = IdOf(*page.line);
    if (space_.IsEvicted(id)) return space_.LoadPage(id, static_cast<int>(page.level), once && page.level == 0);
  }
  return absl::OkStatus();
}

template <class Space>
void PageArray<Space>::Prefetch(std::uint64_t id) const {
  const Place place = PlaceOf(id);
  Reached leaf;
  if (!Reach(place.leaf, &leaf)) return;
  char* const page = PageOf(*leaf.line);
  const char* const record = RecordOf(page, place.index);
  hako::Prefetch(record);
  if (shape_.width > 64) hako::Prefetch(record + 64);
  if (!bits_in_line_) hako::Prefetch(page + place.index / 8);
}

template <class Space>
template <class S, class F>
Status PageArray<Space>::FetchMulti(Writers& writers, std::span<const std::uint64_t> ids, S&& sink, F&& arrived) {
  for (std::size_t from = 0, n = 0; from < ids.size(); from += n) {
    n = std::min(ids.size() - from, kGroup);
    for (std::size_t i = 0; i < n; ++i) Prefetch(ids[from + i]);
    for (std::size_t i = from; i < from + n; ++i) {
      auto put = [&sink, i ](std::size_t size) __attribute__((always_inline)) { return sink(i, size); };
      const Status status = Fetch(writers, ids[i], put);
      if (!status.ok() && !absl::IsNotFound(status)) return status;
      arrived(i, status.ok());
    }
  }
  return absl::OkStatus();
}

template <class Space>
void PageArray<Space>::LoadLeaves(std::span<const std::uint64_t> ids) {
  if constexpr (!Space::kResident) {
    absl::InlinedVector<std::uint32_t, kGroup> pages;
    for (const std::uint64_t id : ids) {
      Reached leaf;
      if (Find(PlaceOf(id).leaf, &leaf) == Way::kBlocked && leaf.level == 0 && IsEvicted(leaf)) pages.push_back(IdOf(*leaf.line));
    }
    std::ranges::sort(pages);
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    if (!pages.empty()) space_.LoadLeaves(pages);
  }
}

// Looks for the next leaf from *leaf on, in the direction of the scan, without loading anything.
// Advances *leaf past numbers that have no leaf. Returns kLeaf if *leaf is a leaf, kBlocked if
// *reached is a directory page that is locked or evicted.
template <class Space>
auto PageArray<Space>::TryNextLeaf(std::uint64_t* leaf, bool upwards, Reached* reached) const -> Way {
  Line* line = &root();
  *reached = {line, Lock(line->version).ReadVersion(), kRootLevel};
  for (unsigned level = kRootLevel;; --level) {
    if ((reached->version & Lock::kLocked) != 0) return Way::kBlocked;
    const unsigned from = IndexIn(level, *leaf);
    unsigned i = from;
    std::uint32_t child = 0;
    for (; i < format::kFanout && (child = ChildOf(*line, i)) == 0; upwards ? ++i : --i) {
    }
    Line& below = LineOf(child);
    const std::uint32_t version = child != 0 ? Lock(below.version).ReadVersion() : 0;
    if (!Lock(line->version).IsCurrent(reached->version)) return Way::kRaced;
    const unsigned shift = format::kFanoutBits * (level - 1);
    if (child == 0) {  // there is no page: skip its leaves
      const std::uint64_t page = *leaf >> shift >> format::kFanoutBits;
      if (level == kRootLevel || (!upwards && page == 0)) return Way::kAbsent;
      *leaf = upwards ? (page + 1) << shift << format::kFanoutBits : (page << shift << format::kFanoutBits) - 1;
      return *leaf < shape_.leaves() ? Way::kRaced : Way::kAbsent;
    }
    if (i != from) {
      const std::uint64_t number = (*leaf >> shift) - from + i;
      *leaf = upwards ? number << shift : ((number + 1) << shift) - 1;
    }
    if (level == 1) return Way::kLeaf;
    line = &below;
    *reached = {line, version, level - 1};
  }
}

// As TryNextLeaf, but loads directory pages. After an error *damaged_leaf is a leaf below the
// damaged page, and *level is the level of that page.
template <class Space>
Status PageArray<Space>::NextLeaf(std::uint64_t leaf, bool upwards, std::optional<std::uint64_t>* next, std::uint64_t* damaged_leaf,
                                  unsigned* level) {
  for (sync::Backoff backoff;;) {
    Reached reached;
    const Way way = TryNextLeaf(&leaf, upwards, &reached);
    if (way == Way::kLeaf) return *next = leaf, absl::OkStatus();
    if (way == Way::kAbsent) return *next = std::nullopt, absl::OkStatus();
    if (way == Way::kRaced) continue;
    *damaged_leaf = leaf;
    *level = reached.level;
    HAKO_RETURN_IF_ERROR(LoadIfEvicted(reached));
    backoff.Pause();
  }
}

// Looks for a record in one leaf. Sets *exists to whether the leaf exists.
template <class Space>
Status PageArray<Space>::SeekIn(std::uint64_t leaf, unsigned i, bool upwards, std::optional<unsigned>* found, bool* exists, SinkRef sink,
                                unsigned* level) {
  for (sync::Backoff backoff;; backoff.Pause()) {
    Reached reached;
    const Way way = Find(leaf, &reached);
    *exists = way != Way::kAbsent;
    found->reset();
    if (way == Way::kAbsent) return absl::OkStatus();
    if (way == Way::kBlocked) {
      *level = reached.level;
      if (reached.level == 0 && IsEvicted(reached)) ReadAheadOf(leaf, upwards);
      HAKO_RETURN_IF_ERROR(LoadIfEvicted(reached, true));
    }
    if (way != Way::kLeaf) continue;
    char* const page = PageOf(*reached.line);
    const PresenceBits bits = BitsOf(*reached.line, page);
    const unsigned at = upwards ? bits.FirstFrom(i) : bits.LastUpTo(i);
    if (at < shape_.per_leaf) {
      if (char* out = sink(shape_.width)) sync::LoadShared(out, RecordOf(page, at), shape_.width);
      *found = at;
    }
    if (!Lock(reached.line->version).IsCurrent(reached.version)) continue;
    if constexpr (!Space::kResident) {
      if (!*found) space_.Demote(IdOf(*reached.line));  // a scan has passed it
    }
    return absl::OkStatus();
  }
}

// Reads the leaves that a scan needs after one that was not in memory, in one request.
template <class Space>
void PageArray<Space>::ReadAheadOf(std::uint64_t leaf, bool upwards) {
  if constexpr (!Space::kResident) {
    std::array<std::uint32_t, kGroup> ids;
    std::size_t count = 0;
    const std::size_t most = std::min(kGroup, space_.ahead_max());
    for (std::size_t i = 1; i <= most; ++i) {
      const std::uint64_t next = upwards ? leaf + i : leaf - i;  // wraps around to a large number
      if (next >= table_size_) break;
      const std::uint32_t id = std::atomic_ref(table_[next]).load(std::memory_order_relaxed);
      if (id != 0 && space_.MustBeRead(id)) ids[count++] = id;
    }
    // A few leaves are not worth waking another thread.
    if (count * 2 > most) (void)space_.ReadAhead(std::span(ids).first(count), 0);
  }
}

template <class Space>
Status PageArray<Space>::Seek(std::uint64_t from, bool upwards, Sought* sought, SinkRef sink) HAKO_TRY {
  Place place = PlaceOf(from);
  *sought = {};
  for (;;) {
    std::optional<unsigned> found;
    bool exists = false;
    unsigned level = 0;
    std::uint64_t damaged = place.leaf;
    Status status = SeekIn(place.leaf, place.index, upwards, &found, &exists, sink, &level);
    if (found && status.ok()) return sought->id = FirstIdOf(place.leaf) + *found, status;
    std::optional<std::uint64_t> next;
    if (status.ok() && exists) {
      if (upwards ? place.leaf + 1 < shape_.leaves() : place.leaf > 0) next = upwards ? place.leaf + 1 : place.leaf - 1;
    } else if (status.ok()) {
      status = NextLeaf(place.leaf, upwards, &next, &damaged, &level);
    }
    if (!status.ok()) {
      const unsigned shift = format::kFanoutBits * level;
      const std::uint64_t page = damaged >> shift;
      if (upwards && ((page + 1) << shift) < shape_.leaves()) sought->beyond = FirstIdOf((page + 1) << shift);
      if (!upwards && page > 0) sought->beyond = FirstIdOf(page << shift) - 1;
      return status;
    }
    if (!next) return absl::OkStatus();
    place = {*next, upwards ? 0 : shape_.per_leaf - 1};
  }
}
HAKO_OR_NO_MEMORY

template <class Space>
StatusOr<std::uint64_t> PageArray<Space>::CountRange(std::uint64_t from, std::uint64_t to) {
  std::uint64_t count = 0;
  std::optional<std::uint64_t> leaf = from < to ? std::optional(PlaceOf(from).leaf) : std::nullopt;
  sync::Backoff backoff;
  while (leaf && FirstIdOf(*leaf) < to) {
    Reached reached;
    const Way way = Find(*leaf, &reached);
    if (way == Way::kAbsent) {
      std::uint64_t damaged;
      unsigned level;
      HAKO_RETURN_IF_ERROR(NextLeaf(*leaf, true, &leaf, &damaged, &level));
      continue;
    }
    if (way == Way::kBlocked) HAKO_RETURN_IF_ERROR(LoadIfEvicted(reached, true));
    if (way != Way::kLeaf) {
      backoff.Pause();
      continue;
    }
    const std::uint64_t first = FirstIdOf(*leaf), end = first + shape_.per_leaf;
    const unsigned found =
        BitsOf(*reached.line, PageOf(*reached.line))
            .CountIn(static_cast<unsigned>(std::max(first, from) - first), static_cast<unsigned>(std::min(end, to) - first));
    if (!Lock(reached.line->version).IsCurrent(reached.version)) continue;
    count += found;
    if (++*leaf >= shape_.leaves()) break;
  }
  return count;
}

template <class Space>
Status PageArray<Space>::FindEnd() {
  space_.gate().AssertNoWriters();
  Sought last;
  HAKO_RETURN_IF_ERROR(Seek(kRecordIdMax, false, &last, [](std::size_t) -> char* { return nullptr; }));
  end_.store(last.id ? (*last.id + 1) * 2 : 0, std::memory_order_release);
  return absl::OkStatus();
}

}  // namespace hako::array
