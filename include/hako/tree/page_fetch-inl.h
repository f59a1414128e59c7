// Definitions of tree/page_tree.h: look-ups of one key, and of several whose memory accesses overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hako/tree/page_tree.h"

namespace hako::tree {

template <class Space, Comparator Compare>
template <bool kNotes, class S>
HAKO_INLINE auto PageTree<Space, Compare>::FetchFrom(const Reached& leaf, std::string_view key, S& sink) const -> Outcome {
  const View page(memory_, *leaf.line);
  const auto place = page.Find(key);
  if (!place.found) {
    if (!Lock(leaf.line->version).IsCurrent(leaf.version)) return Outcome::kRaced;
    if constexpr (kNotes) NoteFetched(leaf.line, place);
    return Outcome::kAbsent;
  }
  const char* const cell = place.cell;
  const format::Cell sizes = place.sizes;
  if (sizes.is_long || cell + sizes.Size(View::kInlined) > page.end()) [[unlikely]]
    return Outcome::kRaced;
  const char* const value = cell + sizes.header + sizes.Rest(View::kInlined);
  std::size_t size = sizes.value;
  if (char* out = RoomFor(sink, value, &size)) sync::LoadShared(out, value, size);
  if (!Lock(leaf.line->version).IsCurrent(leaf.version)) [[unlikely]]
    return Outcome::kRaced;
  if constexpr (kNotes) NoteFetched(leaf.line, place);
  return Outcome::kFound;
}

template <class Space, Comparator Compare>
template <bool kNotes, class S>
HAKO_INLINE auto PageTree<Space, Compare>::TryFetch(std::string_view key, S& sink) const -> Outcome {
  Reached leaf;
  if (!Descend(key, &leaf)) [[unlikely]]
    return Outcome::kRaced;
  return FetchFrom<kNotes>(leaf, key, sink);
}

template <class Space, Comparator Compare>
template <bool kNotes, class S>
HAKO_INLINE Status PageTree<Space, Compare>::Fetch(Writers& writers, std::string_view key, S&& sink) {
  const Outcome outcome = TryFetch<kNotes>(key, sink);
  if (outcome == Outcome::kFound) [[likely]]
    return absl::OkStatus();
  if (outcome == Outcome::kAbsent) return AbsentError();
  if constexpr (std::is_trivially_copy_assignable_v<std::remove_cvref_t<S>>) {
    // Nothing takes the address of `sink`, so its members stay in registers.
    std::remove_cvref_t<S> copy = sink;
    Status status = FetchSlowly(writers, key, copy);
    sink = copy;
    return status;
  } else {
    return FetchSlowly(writers, key, sink);
  }
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::FetchSlowly(Writers& writers, std::string_view key, SinkRef sink) HAKO_TRY {
  if (writers.IsClosed()) return writers.Refusal();
  sync::Backoff backoff;
  for (int i = 0; i < kOptimisticTries; ++i, backoff.Pause()) {
    Reached leaf;
    if (!DescendTo(0, key, &leaf)) {
      HAKO_RETURN_IF_ERROR(LoadIfEvicted(leaf));
      continue;
    }
    const Outcome outcome = FetchByCall(leaf, key, sink);
    if (outcome != Outcome::kRaced) return outcome == Outcome::kFound ? absl::OkStatus() : AbsentError();
    if (!Lock(leaf.line->version).IsCurrent(leaf.version)) continue;
    // The value is probably long. A resident space can share a long value only while the leaf is
    // locked; other spaces find it without a lock.
    if constexpr (!Space::kResident) {
      if (const auto stored = FindLong(leaf, key)) return FetchLong(key, sink, leaf, stored);
    }
    break;
  }
  WriterState* const writer = writers.Mine();
  if (writer == nullptr) return writers.Refusal();
  if constexpr (Space::kResident) {
    return FetchLocked(key, sink);
  } else {
    LeafGuard guard(*this, *writer, LockLeafByCall(*writer, key));
    if (guard.line == nullptr) return guard.error();
    const auto place = View(memory_, *guard.line).FindByCall(key);
    if (!place.found) return AbsentError();
    if (place.sizes.is_long) {
      guard.End();
      return FetchLong(key, sink, {}, std::nullopt);
    }
    const std::string_view value = ContentOf(place);
    if (char* out = sink(value.size())) std::memcpy(out, value.data(), value.size());
    return absl::OkStatus();
  }
}
HAKO_OR_NO_MEMORY

// Locks the leaf without passing the gate: it changes nothing, and a thread that has closed the
// gate may read, too. The lock keeps a long value alive until it is shared.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::FetchLocked(std::string_view key, SinkRef sink) {
  LongRead read(space_);
  for (sync::Backoff backoff;; backoff.Pause()) {
    Reached leaf;
    if (!DescendTo(0, key, &leaf) || !Lock(leaf.line->version).LockIf(leaf.version)) continue;
    const sync::LockHolder holder(Lock(leaf.line->version));
    const auto place = View(memory_, *leaf.line).FindByCall(key);
    NoteFetched(leaf.line, place);
    if (!place.found) return AbsentError();
    const std::string_view value = ContentOf(place);
    if (place.sizes.is_long) {
      (void)read.Has(LongValueIn(value));
      break;
    }
    if (char* out = sink(value.size())) std::memcpy(out, value.data(), value.size());
    return absl::OkStatus();
  }
  const std::string_view value = read.bytes();
  if (char* out = sink(value.size())) std::memcpy(out, value.data(), value.size());
  return absl::OkStatus();
}

// `stored` is the name of the value in the leaf at the version in `leaf`. Reads the value directly
// into the sink's buffer, with nothing locked. Repeats the read if another thread replaces the
// value at the same time.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::FetchLong(std::string_view key, SinkRef sink, Reached leaf, std::optional<format::OverflowValue> stored) {
  LongRead read(space_);
  char* out = nullptr;
  for (sync::Backoff backoff;; backoff.Pause()) {
    if (stored) {
      bool has = read.Has(*stored);
      if (!has) {
        out = sink(static_cast<std::size_t>(stored->size));
        if (out == nullptr) return absl::OkStatus();
        read.Read(out);
        has = read.Has(*stored);
      }
      if (has && Lock(leaf.line->version).IsCurrent(leaf.version)) {
        HAKO_RETURN_IF_ERROR(read.status());
        const std::string_view value = read.bytes();
        if (value.data() == out) return absl::OkStatus();
        out = sink(value.size());
        if (out != nullptr) std::memcpy(out, value.data(), value.size());
        return absl::OkStatus();
      }
      stored.reset();
    }
    if (!DescendTo(0, key, &leaf)) {
      HAKO_RETURN_IF_ERROR(LoadIfEvicted(leaf));
      continue;
    }
    stored = FindLong(leaf, key);
    if (stored) continue;
    const Outcome outcome = FetchByCall(leaf, key, sink);
    if (outcome != Outcome::kRaced) return outcome == Outcome::kFound ? absl::OkStatus() : AbsentError();
    read = LongRead(space_);  // the sink may have reused its memory for another value
  }
}

template <class Space, Comparator Compare>
auto PageTree<Space, Compare>::FindLong(const Reached& leaf, std::string_view key) const -> std::optional<format::OverflowValue> {
  const View page(memory_, *leaf.line);
  const auto place = page.FindByCall(key);
  if (!place.found || !place.sizes.is_long) return std::nullopt;
  const char* const bytes = place.cell + place.sizes.header + place.sizes.Rest(View::kInlined);
  format::OverflowValue value;
  if (bytes + sizeof(value) > page.end()) return std::nullopt;
  sync::LoadShared(reinterpret_cast<char*>(&value), bytes, sizeof(value));
  if (!Lock(leaf.line->version).IsCurrent(leaf.version)) return std::nullopt;
  return value;
}

template <class Space, Comparator Compare>
template <class S, class F>
Status PageTree<Space, Compare>::FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived) {
  Reached leaves[kPrefetchGroup];
  for (std::size_t from = 0, n = 0; from < keys.size(); from += n) {
    n = std::min(keys.size() - from, kPrefetchGroup);
    EvictedLeaves evicted;
    DescendTogether(keys.subspan(from, n), leaves, Space::kResident ? nullptr : &evicted);
    if (evicted.count > 1) {
      space_.LoadPages(std::span(evicted.ids).first(evicted.count), 0, false);
      DescendTogether(keys.subspan(from, n), leaves);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = from + i;
      auto put = [&sink, k ](std::size_t size) __attribute__((always_inline)) { return sink(k, size); };
      Outcome outcome = leaves[i].line != nullptr ? FetchFrom<true>(leaves[i], keys[k], put) : Outcome::kRaced;
      if (outcome == Outcome::kRaced) [[unlikely]] {
        const Status status = FetchSlowly(writers, keys[k], put);
        if (!status.ok() && !absl::IsNotFound(status)) return status;
        outcome = status.ok() ? Outcome::kFound : Outcome::kAbsent;
      }
      arrived(k, outcome == Outcome::kFound);
    }
  }
  return absl::OkStatus();
}

template <class Space, Comparator Compare>
void PageTree<Space, Compare>::Prefetch(std::span<const std::string_view> keys) const {
  Reached leaves[kPrefetchGroup];
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kPrefetchGroup)))
    DescendTogether(keys.first(std::min(keys.size(), kPrefetchGroup)), leaves);
}

template <class Space, Comparator Compare>
void PageTree<Space, Compare>::LoadLeaves(std::span<const std::string_view> keys) {
  if constexpr (!Space::kResident) {
    std::vector<std::uint32_t> ids;
    Reached leaves[kPrefetchGroup];
    for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kPrefetchGroup))) {
      EvictedLeaves evicted;
      DescendTogether(keys.first(std::min(keys.size(), kPrefetchGroup)), leaves, &evicted);
      ids.insert(ids.end(), evicted.ids.begin(), evicted.ids.begin() + static_cast<std::ptrdiff_t>(evicted.count));
    }
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (ids.size() > 1) space_.LoadLeaves(ids);
  }
}

}  // namespace hako::tree
