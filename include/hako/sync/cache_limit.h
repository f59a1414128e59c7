// The common part of the limits of a hash table and a tree in memory (hash/record_limit.h,
// tree/page_limit.h).
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
  // The function that shows an evicted record to the database.
  struct Shown {
    void* database = nullptr;
    void (*show)(void* database, std::string_view key, std::string_view value) = nullptr;
  };

  explicit CacheLimit(const Capacity& capacity) : capacity_(capacity) {}

  const Capacity& capacity() const { return capacity_; }
  UseCounts& counts() { return counts_; }

  // From now on, calls the function with each record that is evicted.
  void Show(const Shown& shown) { shown_ = shown; }
  void NoteEvicted(std::string_view key, std::string_view value) const {
    if (shown_.show != nullptr) shown_.show(shown_.database, key, value);
  }

  // How many records the hand may still evict in a step: new ones, and kept ones.
  struct Quota {
    unsigned fresh, kept;
  };
  // The quota of a step in which the hand has found this many records: one of 16.
  static constexpr unsigned QuotaOf(unsigned num_records) { return std::max((num_records + 8) / 16, 1u); }
  // Begins a step of the hand, and returns its number.
  std::uint64_t NextStep() { return steps_.fetch_add(1, std::memory_order_relaxed); }

  // Counts a writer that uses the database for the first time.
  void AddWriter() { num_writers_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t num_writers() const { return num_writers_.load(std::memory_order_relaxed); }
  // Returns the number of counted records above which a thread evicts, if each of the other threads
  // may have added up to `uncounted` more.
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
