// The page memory of a buffer pool: how much pages may take, and how much they take.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "hako/format/page_format.h"
#include "hako/tree/file/long_values.h"
#include "hako/tree/memory/page_arena.h"

namespace hako::tree {

class PoolMemory {
 public:
  // `most` is the limit of all memory that the pool uses, `map_bytes` the bytes that the page map
  // takes at present.
  PoolMemory(PageArena& arena, const LongValues& long_values, const std::atomic<std::uint64_t>& map_bytes, std::uint64_t most)
      : arena_(arena), long_values_(long_values), map_bytes_(map_bytes), most_(most) {}
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  // Returns the bytes that pages may take: all memory minus the tables, their growth during an epoch
  // and the unsaved long values, but at least a quarter of all memory; more while a large update
  // holds pages. Long values beyond UnsavedMax do not reduce the result, because other threads
  // would have to wait for the evictions.
  std::uint64_t Limit() const {
    const std::uint64_t tables = TableBytes() + std::min(long_values_.unsaved_bytes(), UnsavedMax()) + most_ / 64;
    return std::max(most_ / 4, most_ - std::min(most_, tables)) + held_bytes_.load(std::memory_order_relaxed);
  }
  std::uint64_t used_bytes() const { return used_units_.load(std::memory_order_relaxed) * format::kPageUnit; }
  // An eighth of the memory stays free, because pages of many sizes never fill all of it.
  bool IsOverLimit() const { return used_bytes() > most_ / 4 && used_bytes() > Limit() / 8 * 7; }
  std::uint64_t TableBytes() const {
    return arena_.page_end() * (sizeof(format::PageLine) + 2) + map_bytes_.load(std::memory_order_relaxed);
  }
  // A thread that stores a long value waits while this many bytes of long values are not in the
  // file.
  std::uint64_t UnsavedMax() const { return most_ / 8; }

  // How long a thread that has changed a page pauses, when this many bytes cannot be evicted.
  std::chrono::microseconds PauseAt(std::int64_t staying_bytes) const {
    static constexpr std::int64_t kAtLimit = 4096, kHalvingsMax = 5, kDoublingsMax = 8, kDoublingMin = 4 << 20;
    // The limit is at least 3/16 of all memory.
    if (staying_bytes < static_cast<std::int64_t>(most_ / 8)) return {};
    const auto limit = static_cast<std::int64_t>(Limit() / 4 * 3);
    if (staying_bytes > limit)
      return std::chrono::microseconds(kAtLimit << std::min((staying_bytes - limit) / std::max(limit / 8, kDoublingMin), kDoublingsMax));
    const std::int64_t halvings = (limit - staying_bytes) / (limit / 32);
    return std::chrono::microseconds(halvings > kHalvingsMax ? 0 : kAtLimit >> halvings);
  }

  // Takes this many units, and returns the first; 0 if all page memory would then exceed `limit`
  // bytes.
  std::uint32_t Take(unsigned units, std::uint64_t limit) {
    const std::uint32_t unit = arena_.Allocate(units, limit);
    if (unit != 0) used_units_.fetch_add(units, std::memory_order_relaxed);
    return unit;
  }
  std::uint32_t TakeBeyondLimit(unsigned units) { return Take(units, PageArena::kBytesMax); }
  void GiveBack(std::uint32_t first, unsigned units) {
    used_units_.fetch_sub(units, std::memory_order_relaxed);
    arena_.Free(first, units);
  }

  // Bytes that are added to the limit, for pages that an update holds (tree/file/held_pages.h).
  void AddHeld(std::uint64_t bytes) { held_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void DropHeld(std::uint64_t bytes) { held_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  PageArena& arena_;
  const LongValues& long_values_;
  const std::atomic<std::uint64_t>& map_bytes_;
  const std::uint64_t most_;
  alignas(64) std::atomic<std::uint64_t> used_units_{0};
  std::atomic<std::uint64_t> held_bytes_{0};
};

}  // namespace hako::tree
