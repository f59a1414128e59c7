// After a process kill, finds the space that was free or waiting in the dead process, extent by
// extent: when space is needed, a part with each synchronization, or all at once if the stamps that
// the process left are old. Until an extent is harvested it is frozen: none of its blocks is handed
// out, so only stamps are written to it.
//
// The arguments `found` receive the space: found.Free(offset, bytes) for free space, and
// found.Wait(ScannedRecord) for a block that is free at the end of the epoch.
//
// Thread-safe, except NamedNoter and Skip, which are called before all other functions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/stamp.h"
#include "hako/hash/file/damaged_extents.h"
#include "hako/hash/file/extent_bytes.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/file/kept_blocks.h"
#include "hako/hash/file/victims.h"
#include "hako/hash/free/chunk.h"
#include "hako/hash/lock_order.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

template <File FileT>
class HeapHarvest {
  using Heap = HeapFile<FileT>;

 public:
  // `victims`: nothing is harvested during an evacuation. The epochs before `first_epoch` are those of
  // earlier openings.
  HeapHarvest(Heap& heap, const Victims& victims, std::uint64_t first_epoch) : heap_(heap), victims_(victims), first_epoch_(first_epoch) {}
  HeapHarvest(const HeapHarvest&) = delete;

  // Returns the function that gets all handles that the index names.
  auto NamedNoter() {
    return
        [noter = damaged_.GetNoter(heap_.extents().tail()), shift = heap_.shift()](std::uint64_t handle) { noter.Note(handle << shift); };
  }
  // Call instead of Begin if there is nothing to find.
  void Skip() { damaged_.EndNoting(); }
  // Begins the harvest of a file with `num_records` live records.
  template <class Found>
  void Begin(std::uint64_t num_records, Found&& found) {
    if (!heap_.AcceptsWrites()) return Skip();
    sync::MutexLock lock(mutex_);
    live_ = num_records;
    end_ = heap_.extents().tail();
    next_.store(format::kFirstExtent, std::memory_order_relaxed);
    if (first_epoch_ - heap_.extents().LoadSealed(&format::LiveState::oldest_retired_epoch) > kRetiredAgeMax) RunUntil(end_, found);
  }
  bool IsOver() const { return next_.load(std::memory_order_acquire) >= end_; }
  // Whether the harvest is over and has found all free space.
  bool IsComplete() const { return IsOver() && damaged_.empty(); }

  // Harvests one extent.
  template <class Found>
  void RunOnce(Found&& found) {
    if (!IsOn()) return;
    sync::MutexLock lock(mutex_);
    RunUntil(std::min(next_.load(std::memory_order_relaxed) + 1, end_), found);
  }
  // Harvests only a few extents, because the caller has a bucket locked. Returns false if there is
  // nothing to harvest.
  template <class Found>
  bool RunSome(Found&& found) {
    for (int i = 0; i < kExtentsAtOnce; ++i) {
      if (!IsOn()) return i != 0;
      if (mutex_.TryLock()) {
        sync::MutexLock lock(mutex_, std::adopt_lock);
        RunUntil(std::min(next_.load(std::memory_order_relaxed) + 1, end_), found);
      }
    }
    return true;
  }
  // ShareEnd is where the share of one synchronization ends. IsBefore tells whether anything is
  // left to harvest up to there.
  std::uint64_t ShareEnd() const { return next_.load(std::memory_order_relaxed) + end_ / kParts; }
  bool IsBefore(std::uint64_t end) const { return IsOn() && next_.load(std::memory_order_relaxed) <= end; }

  // Holds the mutex, unless the harvest is over. Clang cannot check it.
  class Lock {
   public:
    explicit Lock(HeapHarvest& harvest) ABSL_NO_THREAD_SAFETY_ANALYSIS : mutex_(harvest.IsOver() ? nullptr : &harvest.mutex_) {
      if (mutex_ != nullptr) mutex_->Lock();
    }
    Lock(const Lock&) = delete;
    ~Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (mutex_ != nullptr) mutex_->Unlock();
    }

   private:
    sync::Mutex* const mutex_;
  };
  // Whether the block at `offset` must not be reused, because the harvest has not yet visited it,
  // or the header of its extent is damaged. REQUIRES: a Lock is held, or the harvest is over
  bool IsFrozen(std::uint64_t offset) const {
    HAKO_DCHECK(IsOver() || mutex_.IsHeld(true));
    return (offset >= next_.load(std::memory_order_relaxed) && offset < end_) || damaged_.Has(offset);
  }

 private:
  static constexpr std::uint64_t kParts = 512;
  static constexpr int kExtentsAtOnce = 2;  // usually of 1 MiB
  // Stamps of this age make the whole harvest run at once, because it must end before kOtherAgeMax.
  static constexpr std::uint64_t kRetiredAgeMax = format::kOtherAgeMax / 2;

  bool IsOn() const { return !IsOver() && !victims_.IsOn(); }

  template <class Found>
  void RunUntil(std::uint64_t end, Found&& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ExtentFile<FileT>& extents = heap_.extents();
    for (std::uint64_t next; (next = next_.load(std::memory_order_relaxed)) < end;) {
      const StatusOr<std::uint64_t> bytes = extents.HeapExtentBytes(next);
      if (bytes.ok() && *bytes != 0) {
        HarvestExtent({next, *bytes}, found);
        next += *bytes;
      } else {
        const Extent unit{next, format::kExtentUnit};
        if (!extents.IndexHas(unit) && !damaged_.Takes(next, !bytes.ok())) extents.Free(unit);
        next += format::kExtentUnit;
      }
      next_.store(next, std::memory_order_release);
      if (next < end_) continue;
      damaged_.EndNoting();
      // If live records were not found, any of the doubtful pieces may be a damaged live record, so
      // all of them stay unused.
      if (live_ == 0) {
        for (const ChunkRest& piece : doubtful_) found.Free(piece.next, piece.bytes());
      }
      doubtful_ = {};
    }
  }

  // REQUIRES: only stamps are written to the extent meanwhile: its blocks are frozen
  template <class Found>
  void HarvestExtent(Extent extent, Found&& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    HAKO_DCHECK(extent.offset >= next_.load(std::memory_order_relaxed) && extent.offset < end_);
    ExtentBytes<FileT> bytes(heap_.extents());
    if (!bytes.Enter(extent).ok()) return;
    KeptBlocks kept([&](std::uint64_t offset, std::uint64_t size, bool certain) {
      if (certain) return found.Free(offset, size);
      mutex_.AssertHeld();
      doubtful_.push_back({offset, offset + size});
    });
    kept.Enter(extent);
    const auto visit = [&](const typename Heap::ScannedRecord& record) {
      mutex_.AssertHeld();
      const format::Leftover leftover = format::LeftoverOf(record.stamp, first_epoch_);
      if (leftover == format::Leftover::kWaiting) found.Wait(record);
      if (format::WasLiveBefore(record.stamp, first_epoch_)) --live_;
      if (leftover != format::Leftover::kFree) kept.Keep(heap_.OffsetOf(record.handle), heap_.BlockBytes(record));
      return absl::OkStatus();
    };
    // If a part cannot be read, the space after the last record that could be read stays unused.
    const auto doubt = [&](std::uint32_t, format::Stamp) { kept.Doubt(); };
    if (heap_.template ScanExtent<Heap::Trust::kLiveHeads>(extent, bytes, visit, doubt).ok()) kept.Leave();
  }

  Heap& heap_;
  const Victims& victims_;
  const std::uint64_t first_epoch_;
  std::atomic<std::uint64_t> next_{0};
  std::uint64_t end_ = 0;
  // Held to change next_, end_ and damaged_, which are also read without the mutex.
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kHeapLocks) ABSL_ACQUIRED_BEFORE(kExtentLocks);
  std::uint64_t live_ ABSL_GUARDED_BY(mutex_) = 0;           // records live at the beginning and not yet found
  std::vector<ChunkRest> doubtful_ ABSL_GUARDED_BY(mutex_);  // free, unless they hold a damaged record
  DamagedExtents damaged_;
};

}  // namespace hako::hash
