// The heap extents that an evacuation empties: none of their blocks is handed out, and blocks that
// become free are held back until it is over.
//
// IsOn, Has and the Hold functions are thread-safe. Begin and End require that writers are kept
// out.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/size_class.h"
#include "hako/hash/file/extent_list.h"
#include "hako/hash/free/chunk.h"
#include "hako/hash/free/free_block_pool.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

class Victims {
 public:
  // For a space whose handles are offsets in units of 1 << shift bytes.
  Victims(FreeBlockPool& pool, unsigned shift) : pool_(pool), shift_(shift) {}
  Victims(const Victims&) = delete;

  // Whether there is an evacuation.
  bool IsOn() const { return is_on_.load(std::memory_order_relaxed); }
  bool Has(std::uint32_t handle) const { return HasOffset(OffsetOf(handle)); }
  // Holds back free space of a victim. Must not fail, because its callers have already changed some
  // lists and stamps. If there is no memory, and the victim cannot be emptied, the space is lost
  // until the next opening or another evacuation finds it.
  void Hold(Run run) noexcept {
    sync::MutexLock lock(mutex_);
    HAKO_TRY { held_.push_back(run); }
    HAKO_CATCH_NO_MEMORY()
  }

  // Holds a block back if it lies in a victim.
  [[gnu::noinline]] bool HoldBlock(std::uint32_t handle, unsigned size_class) noexcept {
    if (!Has(handle)) return false;
    Hold({OffsetOf(handle), OffsetOf(handle) + (format::UnitsOf(size_class) << shift_)});
    return true;
  }

  // Takes the free space of the extents out of the pool and out of the writers' caches. Removes from the
  // list the extents to which a long record is being written. REQUIRES: no evacuation, the extents are
  // whole units below `tail`, and writers kept out (checked in RecordHeap::BeginEvacuation)
  template <class ForEachWriter>
  void Begin(std::vector<Extent>& extents, std::uint64_t tail, ForEachWriter&& for_each_writer) {
    HAKO_DCHECK(!IsOn());
    for_each_writer([&](auto& writer) {
      std::erase_if(extents, [&](const Extent& extent) {
        return writer.ahead.bytes() != 0 && writer.ahead.begin >= extent.offset && writer.ahead.begin < extent.offset + extent.bytes;
      });
    });
    Mark(extents, tail);
    const auto forget = [this](std::uint32_t handle, unsigned size_class) { return HoldBlock(handle, size_class); };
    pool_.Forget(forget);
    for_each_writer([&](auto& writer) {
      pool_.Forget(writer.free, forget);
      if (writer.chunk.bytes() != 0 && HasOffset(writer.chunk.next)) Hold(Rest(std::exchange(writer.chunk, {})));
    });
    std::vector<Run> ranges;
    for (const Extent& extent : extents) ranges.push_back({extent.offset, extent.offset + extent.bytes});
    pool_.TakeAll(
        ranges, [this](std::uint32_t handle) { return Has(handle); }, [this](Run run) { Hold(run); });
  }
  // Returns the space that was held back.
  std::vector<Run> End() {
    is_on_.store(false, std::memory_order_release);
    units_.clear();
    sync::MutexLock lock(mutex_);
    return std::exchange(held_, {});
  }

 private:
  std::uint64_t OffsetOf(std::uint32_t handle) const { return std::uint64_t{handle} << shift_; }
  bool HasOffset(std::uint64_t offset) const {
    const std::uint64_t unit = offset / format::kExtentUnit;
    return unit < units_.size() && units_[unit];
  }
  void Mark(const std::vector<Extent>& extents, std::uint64_t tail) {
    units_.assign(tail / format::kExtentUnit, false);
    for (const Extent& extent : extents) {
      for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += format::kExtentUnit) {
        HAKO_DCHECK(at < tail && at % format::kExtentUnit == 0);
        units_[at / format::kExtentUnit] = true;
      }
    }
    is_on_.store(true, std::memory_order_release);
  }

  FreeBlockPool& pool_;
  const unsigned shift_;
  std::atomic<bool> is_on_{false};
  std::vector<bool> units_;  // by extent unit
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kInnermostLocks);
  std::vector<Run> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hako::hash
