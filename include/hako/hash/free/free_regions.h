// The free bytes of a record store: runs (hash/free/free_runs.h), and small blocks in magazines
// (hash/free/free_block_pool.h), which this class counts by region.
//
// The space is divided into regions of 64 KiB. A region counts its free bytes. When all of them are
// free, the region is renewed: its small blocks become a run again. Their handles stay in the
// magazines. The region's renewal number makes them outdated, and they are dropped when a thread
// takes the magazine.
//
// Invariants
//   1. A free byte is in one run or in one listed block, and is counted once, by its region.
//   2. A listed block is free only if its region was not renewed since its magazine was filled: see
//      IsCurrent.
//   3. A block that crosses the end of a region is never listed (CanBeListed), so it is never
//      joined.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/hash/free/free_runs.h"
#include "hako/storage/arena.h"

namespace hako::hash {

class FreeRegions {
 public:
  static constexpr std::uint64_t kRegion = 64 << 10;  // bytes
  static constexpr std::uint64_t kHeader = 64;        // bytes at an extent's start, never free
  // Whether an extent with a header begins at an offset.
  struct Extents {
    bool (*begins_at)(const void* context, std::uint64_t offset) = nullptr;
    const void* context = nullptr;
  };

  // For a space of `bytes` bytes.
  static StatusOr<FreeRegions> Create(std::uint64_t bytes, const Extents& extents) {
    HAKO_ASSIGN_OR_RETURN(storage::ReservedMemory memory, storage::ReservedMemory::Reserve((bytes / kRegion + 1) * sizeof(Region)));
    return FreeRegions(std::move(memory), extents);
  }
  static std::uint64_t EndOf(std::uint64_t offset) { return offset / kRegion * kRegion + kRegion; }

  // Free bytes in runs and in listed blocks.
  std::uint64_t free_bytes() const { return free_bytes_; }
  // Free bytes of the regions in which the range lies.
  std::uint64_t FreeIn(Run range) const {
    std::uint64_t bytes = 0;
    for (std::uint64_t at = range.begin; at < range.end; at = EndOf(at)) bytes += RegionAt(at).free;
    return bytes;
  }
  // The number of renewals so far.
  std::uint64_t renewals() const { return renewals_; }

  // ---- runs ----
  // Whether there is memory for one more run.
  bool HasRoomForRun() { return runs_.HasRoom(); }
  // Adds a run, and returns the run of which it is then part. Bytes that were free already, as in a
  // damaged file whose records overlap, are counted once.
  Run Add(Run run) {
    if (runs_.Overlaps(run)) [[unlikely]]
      runs_.Cut(run, [&](Run counted) { Count(counted, -1); });
    Run joined = runs_.Add(run);
    Count(run, 1);
    for (std::uint64_t at = run.begin; at < run.end; at = EndOf(at)) {
      if (const Run renewed = RenewIfFree(at); renewed.bytes() != 0) joined = renewed;
    }
    return joined;
  }
  // REQUIRES: all of it is in runs
  Run Take(Run run) {
    HAKO_DCHECK(run.bytes() == 0 || IsFree(run));
    runs_.Take(run);
    Count(run, -1);
    return run;
  }
  // The first run of at least `bytes`; an empty one if there is none.
  Run Find(std::uint64_t bytes) const { return runs_.Find(bytes); }
  // Whether the range is part of a run.
  bool IsFree(Run range) const { return range.end <= Around(range.begin).end; }
  // The run that contains the byte, or an empty one.
  Run Around(std::uint64_t place) const {
    const Run run = runs_.Around(place);
    return place < run.end ? run : Run{};
  }
  // The run that begins at `place`, or an empty one.
  Run At(std::uint64_t place) const { return runs_.At(place); }
  template <class F>
  void ForEach(F&& visit) const {
    runs_.ForEach(visit);
  }
  // Takes the runs, or parts of runs, that lie in the range, and forgets the blocks listed there.
  // REQUIRES: the range consists of whole regions
  template <class F>
  void TakeAll(Run range, F&& visit) {
    runs_.Cut(range, [&](Run run) {
      Count(run, -1);
      visit(run);
    });
    for (std::uint64_t at = range.begin; at < range.end; at = EndOf(at)) RegionAt(at) = {++renewals_, 0, 0};
  }

  // ---- small blocks in magazines ----
  static bool CanBeListed(Run block) { return block.end <= EndOf(block.begin); }
  void List(Run block) {
    const auto bytes = static_cast<std::uint32_t>(block.bytes());
    Region& region = RegionAt(block.begin);
    region.free += bytes;
    region.listed += bytes;
    free_bytes_ += bytes;
    if (region.free >= kRegion - kHeader) [[unlikely]]
      RenewIfFree(block.begin);
  }
  // Call this when a listed block is no longer free.
  void Unlist(Run block) {
    Count(block, -1);
    RegionAt(block.begin).listed -= static_cast<std::uint32_t>(block.bytes());
  }
  // Whether a block is still free that is in a magazine filled when the number of renewals was
  // `renewals`.
  bool IsCurrent(Run block, std::uint64_t renewals) const { return RegionAt(block.begin).renewal <= renewals; }

 private:
  struct Region {
    std::uint64_t renewal;  // its last renewal number
    std::uint32_t free;     // bytes free
    std::uint32_t listed;   // of these, bytes in magazines
  };

  FreeRegions(storage::ReservedMemory memory, const Extents& extents) : memory_(std::move(memory)), extents_(extents) {}

  Region& RegionAt(std::uint64_t offset) const { return reinterpret_cast<Region*>(memory_.base())[offset / kRegion]; }
  void Count(Run run, int sign) {
    free_bytes_ += sign > 0 ? run.bytes() : 0 - run.bytes();
    for (std::uint64_t at = run.begin; at < run.end; at = EndOf(at)) {
      const auto bytes = static_cast<std::uint32_t>(std::min(run.end, EndOf(at)) - at);
      RegionAt(at).free += sign > 0 ? bytes : 0 - bytes;
    }
  }
  // Turns a region whose bytes are all free into a run.
  Run RenewIfFree(std::uint64_t offset) {
    Region& region = RegionAt(offset);
    if (region.listed == 0 || region.free < kRegion - kHeader) return {};
    Run whole{EndOf(offset) - kRegion, EndOf(offset)};
    if (region.free != kRegion) {
      if (region.free != kRegion - kHeader || extents_.begins_at == nullptr || !extents_.begins_at(extents_.context, whole.begin))
        return {};
      whole.begin += kHeader;
    }
    region.renewal = ++renewals_;
    region.listed = 0;
    runs_.Remove(whole);  // the other bytes are in listed blocks
    return runs_.Add(whole);
  }

  storage::ReservedMemory memory_;
  Extents extents_;
  FreeRuns runs_;
  std::uint64_t renewals_ = 0;  // number of renewals of all regions
  std::uint64_t free_bytes_ = 0;
};

}  // namespace hako::hash
