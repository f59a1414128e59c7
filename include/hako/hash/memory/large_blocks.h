// For each region of an arena, the large block that contains the region's first byte. Small blocks
// never cross the end of a region, so a walk can visit the blocks of any region in order
// (hash/memory/record_walk-inl.h).
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/hash/free/free_regions.h"
#include "hako/hash/record_limit.h"
#include "hako/storage/arena.h"

namespace hako::hash {

class LargeBlocks {
 public:
  static constexpr std::uint64_t kRegion = FreeRegions::kRegion;
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kHole = ~std::uint32_t{0};  // the region has no blocks and will never have any

  LargeBlocks() = default;
  // For an arena of `bytes` bytes.
  static StatusOr<LargeBlocks> Create(std::uint64_t bytes) {
    HAKO_ASSIGN_OR_RETURN(storage::ReservedMemory memory, storage::ReservedMemory::Reserve((bytes / kRegion + 1) * sizeof(std::uint32_t)));
    return LargeBlocks(std::move(memory));
  }

  // Call this when a block of more than FreeBlockPool::kSmallMax bytes was taken.
  void Add(Part block, std::uint32_t handle) { Fill(block, handle); }
  void Remove(Part block) { Fill(block, kNone); }
  // REQUIRES: whole regions
  void AddHole(Part part) {
    HAKO_DCHECK(part.begin % kRegion == 0 && part.end % kRegion == 0);
    Fill(part, kHole);
  }

  // The handle of the block, kNone or kHole.
  std::uint32_t At(std::uint64_t region) const { return Entry(region).load(std::memory_order_relaxed); }

 private:
  explicit LargeBlocks(storage::ReservedMemory memory) : memory_(std::move(memory)) {}

  std::atomic_ref<std::uint32_t> Entry(std::uint64_t region) const {
    return std::atomic_ref(reinterpret_cast<std::uint32_t*>(memory_.base())[region / kRegion]);
  }
  void Fill(Part part, std::uint32_t entry) {
    for (std::uint64_t at = (part.begin + kRegion - 1) / kRegion * kRegion; at < part.end; at += kRegion)
      Entry(at).store(entry, std::memory_order_relaxed);
  }

  storage::ReservedMemory memory_;
};

}  // namespace hako::hash
