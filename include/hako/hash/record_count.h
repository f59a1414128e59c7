// The number of records of a hash table: a shared count, plus the changes that each writer has not
// yet added to it. So an update rarely writes to a shared cache line.
//
// Thread-safe, except Set.
#pragma once

#include <atomic>
#include <cstdint>

#include "hako/base/inline.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/writer_states.h"

namespace hako::hash {

class RecordCount {
 public:
  static constexpr std::int64_t kBatch = 8;  // net insertions of a writer per update of the shared count

  void Set(std::int64_t count) { shared_.store(count, std::memory_order_release); }
  // Adds to the shared count.
  void Add(std::int64_t delta) { shared_.fetch_add(delta, std::memory_order_acq_rel); }

  // Adds to a writer's part, and returns the part.
  HAKO_INLINE static std::int64_t AddTo(sync::WriterState& writer, std::int64_t delta) {
    const std::int64_t pending = writer.pending_count.load(std::memory_order_relaxed) + delta;
    writer.pending_count.store(pending, std::memory_order_relaxed);
    return pending;
  }
  HAKO_INLINE static bool IsBatch(std::int64_t pending) { return pending >= kBatch || pending <= -kBatch; }
  // Adds a writer's part to the shared count, and returns the count.
  std::int64_t Flush(sync::WriterState& writer, std::int64_t pending) {
    std::int64_t total = shared_.load(std::memory_order_relaxed) + pending;
    if (sync::IsSingleThreaded()) {
      shared_.store(total, std::memory_order_relaxed);
    } else {
      total = shared_.fetch_add(pending, std::memory_order_acq_rel) + pending;
    }
    writer.pending_count.store(0, std::memory_order_relaxed);
    return total;
  }

  // The shared count plus this writer's part.
  std::int64_t Near(const sync::WriterState& writer) const {
    return shared_.load(std::memory_order_relaxed) + writer.pending_count.load(std::memory_order_relaxed);
  }
  template <class ForEachWriter>
  std::uint64_t Of(ForEachWriter&& for_each_writer) const {
    std::int64_t count = shared_.load(std::memory_order_acquire);
    for_each_writer([&](const sync::WriterState& writer) { count += writer.pending_count.load(std::memory_order_relaxed); });
    return count < 0 ? 0 : static_cast<std::uint64_t>(count);
  }

 private:
  alignas(64) std::atomic<std::int64_t> shared_{0};
};

}  // namespace hako::hash
