// The long values of a tree that no checkpoint has written yet, by id, and the number of all long
// values.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/sync/mutex.h"
#include "hako/tree/file/unsaved_value.h"
#include "hako/tree/lock_order.h"

namespace hako::tree {

class LongValues {
 public:
  using Pointer = std::shared_ptr<UnsavedValue>;
  using Unsaved = std::pair<std::uint32_t, Pointer>;

  // `num_values` is the number of long values in the file.
  explicit LongValues(std::uint64_t num_values) : num_values_(num_values) {}
  LongValues(const LongValues&) = delete;
  LongValues& operator=(const LongValues&) = delete;

  std::uint64_t num_values() const { return num_values_.load(std::memory_order_relaxed); }
  std::uint64_t unsaved_bytes() const { return unsaved_bytes_.load(std::memory_order_relaxed); }

  // False if out of memory.
  bool Add(std::uint32_t id, Pointer value) {
    const std::uint64_t size = value->size();
    sync::MutexLock lock(mutex_);
    HAKO_TRY { unsaved_.emplace(id, std::move(value)); }
    HAKO_CATCH_NO_MEMORY(return false;)
    num_values_.fetch_add(1, std::memory_order_relaxed);
    unsaved_bytes_.fetch_add(size, std::memory_order_relaxed);
    return true;
  }
  // Removes a value, and returns it if it is unsaved.
  Pointer Remove(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    // A damaged file may name more long values than it counts.
    if (num_values() > 0) num_values_.fetch_sub(1, std::memory_order_relaxed);
    const auto found = unsaved_.find(id);
    return found != unsaved_.end() ? Drop(found) : nullptr;
  }
  // nullptr if the value is in the file.
  Pointer Find(std::uint32_t id) const {
    sync::MutexLock lock(mutex_);
    const auto found = unsaved_.find(id);
    return found != unsaved_.end() ? found->second : nullptr;
  }

  // Returns all unsaved values, for a checkpoint.
  std::vector<Unsaved> AllUnsaved() const {
    sync::MutexLock lock(mutex_);
    return {unsaved_.begin(), unsaved_.end()};
  }
  // Call this when a checkpoint has written these values.
  void NoteSaved(std::span<const Unsaved> values) {
    sync::MutexLock lock(mutex_);
    for (const auto& [id, value] : values) {
      if (const auto found = unsaved_.find(id); found != unsaved_.end() && found->second == value) (void)Drop(found);
    }
  }

 private:
  using Map = std::unordered_map<std::uint32_t, Pointer>;
  Pointer Drop(Map::iterator found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Pointer value = std::move(found->second);
    unsaved_bytes_.fetch_sub(value->size(), std::memory_order_relaxed);
    unsaved_.erase(found);
    return value;
  }

  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks);
  Map unsaved_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> num_values_;  // changed with mutex_ held
  std::atomic<std::uint64_t> unsaved_bytes_{0};
};

}  // namespace hako::tree
