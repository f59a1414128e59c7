// The fences that a page must have when it is loaded, as its parent gives them. The line of a page
// that was never loaded stores a hash of them in place of its hints. The line of an evicted page
// that was in memory before stores 0: its fences were checked then, and do not change while the
// page is evicted.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "hako/base/hash.h"
#include "hako/base/random_seed.h"
#include "hako/format/page_format.h"
#include "hako/tree/file/page_image.h"

namespace hako::tree {

// REQUIRES: the line of the page is locked (checked in Match and Store)
class ExpectedBounds {
 public:
  explicit ExpectedBounds(format::PageLine* lines) : lines_(lines) {}

  void Store(std::uint32_t id, std::string_view low, std::string_view high, unsigned edges) const { Store(id, HashOf(low, high, edges)); }
  // As above, for a page of another kind: stores a hash of its level and of its number among the
  // pages of that level.
  void Store(std::uint32_t id, unsigned level, std::uint64_t number) const { Store(id, HashOf(level, number)); }
  void StoreChecked(std::uint32_t id) const { Store(id, 0); }
  bool Match(std::uint32_t id, const PageImage& image) const { return Match(id, HashOf(image.low(), image.high(), image.edges())); }
  bool Match(std::uint32_t id, unsigned level, std::uint64_t number) const { return Match(id, HashOf(level, number)); }

 private:
  std::uint64_t HashOf(std::string_view low, std::string_view high, unsigned edges) const {
    return MixBits(Hash64(low, seed_) + edges) ^ Hash64(high, seed_);
  }
  std::uint64_t HashOf(unsigned level, std::uint64_t number) const { return MixBits(number * 32 + level + 1) ^ seed_; }
  bool Match(std::uint32_t id, std::uint64_t hash) const {
    sync::VersionLock(lines_[id].version).AssertLocked();
    const auto half = [&](unsigned i) { return std::uint64_t{static_cast<std::uint32_t>(lines_[id].hints[i])} << 32 * i; };
    const std::uint64_t expected = half(0) | half(1);
    return expected == 0 || expected == hash;
  }
  void Store(std::uint32_t id, std::uint64_t hash) const {
    sync::VersionLock(lines_[id].version).AssertLocked();
    for (const unsigned i : {0u, 1u}) {
      std::atomic_ref(lines_[id].hints[i]).store(static_cast<std::int32_t>(hash >> 32 * i), std::memory_order_relaxed);
    }
  }

  format::PageLine* const lines_;
  const std::uint64_t seed_ = RandomSeed();
};

}  // namespace hako::tree
