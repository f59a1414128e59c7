// Atomic access to the fields of a bucket (format/bucket_format.h), which threads share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

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
HAKO_INLINE bool HasLink(std::uint32_t header) { return (header & sync::VersionLock::kFlag) != 0; }

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

}  // namespace hako::hash
