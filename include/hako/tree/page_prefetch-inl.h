// Definitions of tree/page_tree.h: lookups of several keys whose memory accesses overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hako/tree/page_tree.h"

namespace hako::tree {

template <class Space, Comparator Compare>
template <class S, class F>
Status PageTree<Space, Compare>::FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived) {
  Reached leaves[kPrefetchGroup];
  for (std::size_t from = 0, n = 0; from < keys.size(); from += n) {
    n = std::min(keys.size() - from, kPrefetchGroup);
    if constexpr (Space::kResident) {
      DescendTogether(keys.subspan(from, n), leaves);
    } else {
      EvictedLeaves evicted;
      DescendTogether(keys.subspan(from, n), leaves, &evicted);
      if (evicted.count > 1) {
        space_.LoadPages(std::span(evicted.ids).first(evicted.count), 0, false);
        DescendTogether(keys.subspan(from, n), leaves);
      }
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

// Descends one level at a time for all keys, so that a group waits for each level only once, and
// prefetches their cells. A leaf's line is nullptr if a writer interfered or the descent reached an
// evicted page.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::DescendTogether(std::span<const std::string_view> keys, Reached* leaves,
                                               [[maybe_unused]] EvictedLeaves* evicted) const {
  const std::uint32_t version = sync::VersionLock(root().version).ReadVersion();
  const unsigned levels = View(memory_, root()).level();
  for (std::size_t i = 0; i < keys.size(); ++i) leaves[i] = {(version & Lock::kLocked) == 0 ? root_ : nullptr, version};
  for (unsigned level = levels; level > 0; --level) {
    Line* children[kPrefetchGroup];
    if (level < levels) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (leaves[i].line != nullptr) View(memory_, *leaves[i].line).PrefetchSlots(keys[i]);
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (leaves[i].line == nullptr) continue;
      const View page(memory_, *leaves[i].line);
      children[i] = page.level() == level ? &LineOf(page.child(page.ChildFor(keys[i]))) : nullptr;
      if (children[i] != nullptr) hako::Prefetch(children[i]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (leaves[i].line == nullptr) continue;
      const std::uint32_t child = children[i] != nullptr ? Lock(children[i]->version).ReadVersion() : Lock::kLocked;
      const bool good = (child & Lock::kLocked) == 0 && Lock(leaves[i].line->version).IsCurrent(leaves[i].version);
      if constexpr (!Space::kResident) {
        if (!good && level == 1 && evicted != nullptr && children[i] != nullptr && space_.IsEvicted(IdOf(*children[i])))
          evicted->ids[evicted->count++] = IdOf(*children[i]);
      }
      leaves[i] = {good ? children[i] : nullptr, child};
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (leaves[i].line != nullptr) View(memory_, *leaves[i].line).PrefetchSlots(keys[i]);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (leaves[i].line != nullptr && View(memory_, *leaves[i].line).level() == 0) View(memory_, *leaves[i].line).PrefetchCell(keys[i]);
  }
}

}  // namespace hako::tree
