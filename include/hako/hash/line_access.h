// Atomic access to the fields of a bucket (format/bucket_format.h), which threads share.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "hako/base/inline.h"
#include "hako/format/bucket_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/version_lock.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hako::hash {

HAKO_INLINE std::uint16_t LoadTag(format::BucketLine& line, unsigned i) {
  return std::atomic_ref(line.tags[i]).load(std::memory_order_relaxed);
}
HAKO_INLINE void StoreTag(format::BucketLine& line, unsigned i, std::uint16_t tag) {
  std::atomic_ref(line.tags[i]).store(tag, std::memory_order_relaxed);
}
HAKO_INLINE std::uint32_t LoadSlot(format::BucketLine& line, unsigned i) {
  return std::atomic_ref(line.slots[i]).load(std::memory_order_acquire);
}
HAKO_INLINE void StoreSlot(format::BucketLine& line, unsigned i, std::uint32_t handle) {
  std::atomic_ref(line.slots[i]).store(handle, std::memory_order_release);
}
HAKO_INLINE std::uint32_t LoadHeader(format::BucketLine& line) { return std::atomic_ref(line.header).load(std::memory_order_acquire); }
HAKO_INLINE bool HasLink(std::uint32_t header) { return (header & sync::VersionLock::kFlag) != 0; }

HAKO_INLINE unsigned EntriesIn(std::uint32_t header) { return HasLink(header) ? format::kLinkEntry : format::kLineEntries; }
// Masks the bits of MatchTags that stand for entries, not for the link.
HAKO_INLINE std::uint32_t EntryMask(std::uint32_t header) {
  static_assert(sync::VersionLock::kFlag << 8 == 1u << format::kLinkEntry);
  return ~((header & sync::VersionLock::kFlag) << 8);
}

// Stores slots[9] and the header in one store.
inline void StoreLinkAndHeader(format::BucketLine& line, std::uint32_t slot, std::uint32_t header) {
  auto& word = *reinterpret_cast<std::uint64_t*>(&line.slots[format::kLinkEntry]);
  std::atomic_ref(word).store(slot | (std::uint64_t{header} << 32), std::memory_order_release);
}

// Bit i is set if tags[i] == tag. An empty entry may match: check its slot.
HAKO_INLINE std::uint32_t MatchTags(format::BucketLine& line, std::uint16_t tag) {
#if defined(__SSE2__) && !defined(HAKO_TSAN)
  const auto* bytes = reinterpret_cast<const std::byte*>(line.tags.data());
  const __m128i wanted = _mm_set1_epi16(static_cast<short>(tag));
  const __m128i low = _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)), wanted);       // tags 0..7
  const __m128i high = _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 4)), wanted);  // tags 2..9
  const auto mask = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
  return (mask & 0xff) | ((mask >> 14) << 8);
#else
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < format::kLineEntries; ++i) mask |= static_cast<std::uint32_t>(LoadTag(line, i) == tag) << i;
  return mask;
#endif
}

// The number of a free entry; kLineEntries if there is none.
HAKO_INLINE unsigned FreeEntry(format::BucketLine& line) {
  const unsigned entries = EntriesIn(LoadHeader(line));
  for (std::uint32_t mask = MatchTags(line, 0); mask != 0; mask &= mask - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(mask));
    if (i < entries && LoadSlot(line, i) == 0) return i;
  }
  return format::kLineEntries;
}

// Stores word by word, because a reader that still follows an old link to a recycled overflow
// bucket may be reading the line.
inline void StoreLine(format::BucketLine& line, const format::BucketLine& content) {
  std::uint64_t words[sizeof(line) / 8];
  std::memcpy(words, &content, sizeof(words));
  for (std::size_t w = 0; w < std::size(words); ++w) {
    std::atomic_ref(reinterpret_cast<std::uint64_t*>(&line)[w]).store(words[w], std::memory_order_relaxed);
  }
}

}  // namespace hako::hash
