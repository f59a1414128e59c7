// The hits and misses of a cache.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "hako/base/inline.h"
#include "hako/sync/thread_slot.h"

namespace hako::sync {

// Counts Gets that have found their record, and Gets that have not. Each thread has its own cache
// line, unless there are more than kSlots threads. Threads that share a line may lose some counts.
class UseCounts {
 public:
  HAKO_INLINE void Add(bool found) {
    std::atomic<std::uint64_t>& count = slots_[ThreadIndex() % kSlots].counts[found ? 1 : 0];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t hits() const { return Sum(1); }
  std::uint64_t misses() const { return Sum(0); }

 private:
  static constexpr unsigned kSlots = 256;
  struct alignas(64) Slot {
    std::array<std::atomic<std::uint64_t>, 2> counts;
  };
  std::uint64_t Sum(unsigned which) const {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < kSlots; ++i) sum += slots_[i].counts[which].load(std::memory_order_relaxed);
    return sum;
  }
  std::array<Slot, kSlots> slots_{};
};

}  // namespace hako::sync
