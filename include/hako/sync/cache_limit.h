// The common part of the limits of both engines in memory (hash/record_limit.h, tree/page_limit.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/capacity.h"
#include "hako/sync/use_counts.h"
#include "hako/sync/write_gate.h"

namespace hako::sync {

// Thread-safe, except Show.
class CacheLimit {
 public:
  // Shows the database a record that is evicted.
  struct Shown {
    void* database = nullptr;
    void (*show)(void* database, std::string_view key, std::string_view value) = nullptr;
  };

  explicit CacheLimit(const Capacity& capacity) : capacity_(capacity) {}

  const Capacity& capacity() const { return capacity_; }
  UseCounts& counts() { return counts_; }

  // Records that are evicted from now on are shown.
  void Show(const Shown& shown) { shown_ = shown; }
  void NoteEvicted(std::string_view key, std::string_view value) const {
    if (shown_.show != nullptr) shown_.show(shown_.database, key, value);
  }

  // The number of this step of the hand.
  std::uint64_t NextStep() { return steps_.fetch_add(1, std::memory_order_relaxed); }

  // A writer uses the database for the first time.
  void AddWriter() { num_writers_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t num_writers() const { return num_writers_.load(std::memory_order_relaxed); }
  // Records that a thread may find before it evicts, where each of the others may have `uncounted` more.
  // REQUIRES: capacity().records is not 0
  std::int64_t RecordsMost(std::int64_t uncounted) const {
    HAKO_DCHECK(capacity_.records != 0);
    const auto records = static_cast<std::int64_t>(capacity_.records);
    const auto others = static_cast<std::int64_t>(num_writers() - 1);
    return std::max(records - uncounted * others, records / 2);
  }

 private:
  const Capacity capacity_;
  Shown shown_;
  UseCounts counts_;
  alignas(64) std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> num_writers_{0};
};

}  // namespace hako::sync
