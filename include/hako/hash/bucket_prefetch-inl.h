// Definitions of hash/bucket_index.h: lookups of several keys whose memory accesses overlap.
#pragma once

#include <algorithm>

#include "hako/base/no_memory.h"
#include "hako/hash/bucket_index.h"

namespace hako::hash {

template <class Space>
template <class S, class F>
Status BucketIndex<Space>::FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived) {
  std::uint64_t hashes[kPrefetchGroup];
  for (std::size_t from = 0, n = 0; from < keys.size(); from += n) {
    n = std::min(keys.size() - from, kPrefetchGroup);
    for (std::size_t i = 0; i < n; ++i) hashes[i] = space_.KeyHash(keys[from + i]);
    const auto hash_of = [&hashes](std::size_t i) { return hashes[i]; };
    [[maybe_unused]] typename Space::Ahead ahead;
    if constexpr (Space::kReadsAhead)
      ReadRecords(ahead, n, hash_of);
    else
      PrefetchRecords(n, hash_of);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = from + i;
      const Status status = Fetch(writers, hashes[i], keys[k], [&sink, k](std::size_t size) { return sink(k, size); });
      if (!status.ok() && !absl::IsNotFound(status)) [[unlikely]]
        return status;
      arrived(k, status.ok());
    }
  }
  return absl::OkStatus();
}

template <class Space>
void BucketIndex<Space>::Prefetch(std::span<const std::string_view> keys) const {
  if constexpr (Space::kReadsAhead) {
    if (PrefetchReads()) keys = keys.first(std::min<std::size_t>(keys.size(), space_.CachedRecords() / 4));  // the rest of the cache stays
  }
  for (std::size_t n; !keys.empty(); keys = keys.subspan(n)) {
    n = std::min(keys.size(), kPrefetchGroup);
    const auto hash_of = [this, keys](std::size_t i) { return space_.KeyHash(keys[i]); };
    if (PrefetchReads()) {
      typename Space::Ahead ahead;
      ReadRecords(ahead, n, hash_of);
    } else {
      PrefetchRecords(n, hash_of);
    }
  }
}

// Prefetches all buckets first, then calls record(handle) for the entries whose tags match. So the
// whole group waits for memory three times, instead of each key. Values read here may be changing,
// so they only guide prefetches. REQUIRES: n <= kPrefetchGroup
template <class Space>
template <class HashOf, class F>
void BucketIndex<Space>::PrefetchLines(std::size_t n, HashOf&& hash_of, F&& record) const {
  struct Wanted {
    Line* line;
    std::uint16_t tag;
  } wanted[kPrefetchGroup];
  HAKO_DCHECK(n <= kPrefetchGroup);
  const TableShape now = shape();
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t hash = hash_of(i);
    const Place place = Locate(hash, now);
    wanted[i] = {&lines_.Home(place.index), place.TagOf(hash)};
    hako::Prefetch(wanted[i].line);
  }
  for (int link = 0; link < 2 && n != 0; ++link) {
    std::size_t left = 0;  // number of keys that were not found in this bucket but may be in the next bucket of the chain
    for (std::size_t i = 0; i < n; ++i) {
      Line& line = *wanted[i].line;
      const std::uint32_t header = LoadHeader(line);
      std::uint32_t mask = MatchTags(line, wanted[i].tag) & EntryMask(header);
      if (mask == 0 && HasLink(header)) {
        Line* const next = lines_.Overflow(LoadSlot(line, format::kLinkEntry));
        if (next == nullptr) continue;
        hako::Prefetch(next);
        wanted[left++] = {next, wanted[i].tag};
      }
      for (; mask != 0; mask &= mask - 1) record(LoadSlot(line, static_cast<unsigned>(std::countr_zero(mask))));
    }
    n = left;
  }
}

}  // namespace hako::hash
