// The number of records of a database: a shared total, plus the parts that threads have yet to add
// to it from their writer states.
#pragma once

#include <atomic>
#include <cstdint>

#include "hako/base/inline.h"
#include "hako/sync/writer_states.h"

namespace hako::sync {

class RecordCount {
 public:
  static constexpr std::int64_t kBatch = 64;  // a thread adds its part to the total beyond this

  HAKO_INLINE void Add(WriterState& writer, std::int64_t delta) {
    const std::int64_t pending = writer.pending_count.load(std::memory_order_relaxed) + delta;
    writer.pending_count.store(pending, std::memory_order_relaxed);
    if (pending > kBatch || pending < -kBatch) [[unlikely]] {
      writer.pending_count.store(0, std::memory_order_relaxed);
      total_.fetch_add(pending, std::memory_order_release);
    }
  }
  // Exact while no writer is active.
  template <class ForEachWriter>
  std::uint64_t Get(ForEachWriter&& for_each_writer) const {
    std::int64_t count = total_.load(std::memory_order_acquire);
    for_each_writer([&](const WriterState& writer) { count += writer.pending_count.load(std::memory_order_relaxed); });
    return count < 0 ? 0 : static_cast<std::uint64_t>(count);
  }
  // The shared total, without the parts in the writer states.
  std::int64_t total() const { return total_.load(std::memory_order_relaxed); }
  void SetTotal(std::uint64_t total) { total_.store(static_cast<std::int64_t>(total), std::memory_order_release); }

 private:
  std::atomic<std::int64_t> total_{0};
};

}  // namespace hako::sync
