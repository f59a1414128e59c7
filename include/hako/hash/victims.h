// The heap extents that an evacuation empties: none of their blocks is handed out, and blocks that
// become free are held back until it is over.
//
// Thread-safe for IsOn, Has and Hold. Begin and End require that writers are kept out.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/extent_file.h"
#include "hako/hash/free_runs.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

class Victims {
 public:
  // Whether there is an evacuation.
  bool IsOn() const { return is_on_.load(std::memory_order_relaxed); }
  bool Has(std::uint64_t offset) const {
    const std::uint64_t unit = offset / format::kExtentUnit;
    return unit < units_.size() && units_[unit];
  }
  // Holds free space of a victim back. Its callers have changed lists and stamps in part, so it must
  // not fail: without memory, space of a victim that cannot be emptied is not used again before it
  // is found by the next opening, or by another evacuation.
  void Hold(Run run) noexcept {
    sync::MutexLock lock(mutex_);
    HAKO_TRY { held_.push_back(run); }
    HAKO_CATCH_NO_MEMORY()
  }

  // REQUIRES: no evacuation, and the extents are whole units below `tail`
  void Begin(const std::vector<Extent>& extents, std::uint64_t tail) {
    HAKO_DCHECK(!IsOn());
    units_.assign(tail / format::kExtentUnit, false);
    for (const Extent& extent : extents) {
      for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += format::kExtentUnit) {
        HAKO_DCHECK(at < tail && at % format::kExtentUnit == 0);
        units_[at / format::kExtentUnit] = true;
      }
    }
    is_on_.store(true, std::memory_order_release);
  }
  // Returns the blocks that were held back.
  std::vector<Run> End() {
    is_on_.store(false, std::memory_order_release);
    units_.clear();
    sync::MutexLock lock(mutex_);
    return std::exchange(held_, {});
  }

 private:
  std::atomic<bool> is_on_{false};
  std::vector<bool> units_;  // by extent unit
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kInnermostLocks);
  std::vector<Run> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hako::hash
