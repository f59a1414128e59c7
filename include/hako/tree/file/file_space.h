// Allocates the space of a tree file. Space that the last checkpoint needs is reused only when a
// later one is durable, and not while a checkpoint is pinned, by this process or by a reader in
// another one (file/readers_file.h). Some space is reserved, so that a
// checkpoint still succeeds on a device that has become full, and removals can make room.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/file/free_space_map.h"
#include "hako/tree/file/tree_file.h"

namespace hako::tree {

template <File FileT>
class FileSpace {
 public:
  using Entry = format::PageEntry;
  using Run = FreeSpaceMap::Run;
  static constexpr std::uint64_t kRunUnits = (1 << 20) / format::kTreeUnit;

  explicit FileSpace(TreeFile<FileT>& file) : file_(file) {}
  FileSpace(const FileSpace&) = delete;
  FileSpace& operator=(const FileSpace&) = delete;

  // The map of the units in use. The caller fills it before the first allocation.
  FreeSpaceMap& map() { return map_; }
  std::uint64_t used_bytes() const { return (format::kTreeFirstUnit + map_.used_units()) * format::kTreeUnit; }

  // Call this when a checkpoint begins.
  void Rewind() {
    map_.Rewind();
    no_run_of_ = ~std::uint64_t{0};
  }
  // Takes a run of `least` to `most` units.
  StatusOr<Run> Take(std::uint64_t least, std::uint64_t most) {
    if (!file_.is_short()) HAKO_RETURN_IF_ERROR(KeepReserve(least));
    const std::uint64_t good = is_moving_ ? least : std::min(most, std::max(least, kGoodRun));
    for (const std::uint64_t want : {good, least}) {
      if (want >= no_run_of_) continue;  // so that not every image searches the whole space
      if (const Run run = map_.Take(want, most); run.units != 0) return run;
      no_run_of_ = want;
    }
    HAKO_RETURN_IF_ERROR(GrowBy(std::max({least, GrowthMin(), map_.end() / 16}), least));
    return map_.Take(least, most);
  }
  // Until the next Commit, each image is written as far to the front of the file as possible.
  void PreferFront() { is_moving_ = true; }
  // Frees the units of a run from the first `kept` on.
  void Free(const Run& run, std::uint64_t kept = 0) {
    if (kept < run.units) map_.Free(run.place + kept, run.units - kept);
  }
  void Free(const Entry& entry) {
    if (!entry.IsNone()) map_.Free(entry.place(), entry.units());
  }

  // Reserves memory for the next Retire, which must not fail.
  void MakeRoomToRetire() {
    if (retired_.size() == retired_.capacity()) retired_.reserve(2 * retired_.size() + 16);
  }
  // The tree no longer names this space. It is free at once if no checkpoint has committed it.
  void Retire(const Entry& entry) {
    if (entry.IsNone()) return;
    if (map_.IsYoung(entry.place()))
      map_.Free(entry.place(), entry.units());
    else
      retired_.push_back({entry.place(), entry.units()});
  }
  // Frees this space if no checkpoint has committed it.
  bool Withdraw(const Entry& entry) {
    if (entry.IsNone() || !map_.IsYoung(entry.place())) return false;
    map_.Free(entry.place(), entry.units());
    return true;
  }
  // Sets the entry of an id, and retires the space that the id had. If that fails, frees the new space.
  template <class Pages>
  Status Exchange(Pages& pages, std::uint32_t id, const Entry& entry) {
    const StatusOr<Entry> before = CatchNoMemory([&] {
      MakeRoomToRetire();
      return pages.Exchange(id, entry);
    });
    if (!before.ok()) Free(entry);
    HAKO_RETURN_IF_ERROR(before.status());
    Retire(*before);
    return absl::OkStatus();
  }

  // The steps of a commit. PrepareCommit may fail, and changes nothing. Call NoteWritten once a
  // superblock that names the allocated space may be in the file, and Commit once that superblock
  // is durable. `sequence` is that of the superblock. find_oldest() returns the oldest checkpoint that
  // readers need; the space that this and later ones do not need becomes free.
  void PrepareCommit() { released_.reserve(released_.size() + retired_.size()); }
  void NoteWritten() { map_.ForgetYoung(); }
  template <class F>
  void Commit(std::uint64_t sequence, F&& find_oldest) {
    for (const Run& run : retired_) released_.push_back({run, sequence});
    retired_.clear();
    oldest_ = find_oldest();
    if (num_pins_ == 0) FreeReleased();
    is_moving_ = false;
    if (file_.is_short() && KeepReserve(0).ok()) file_.set_short(false);
  }
  // Returns the end of the space of the state that is about to be committed.
  std::uint64_t EndWithoutRetired() {
    for (const Run& run : retired_) map_.Free(run.place, run.units);
    for (const Released& run : released_) map_.Free(run.place, run.units);
    const std::uint64_t end = map_.UsedEnd();
    for (const Run& run : retired_) map_.MarkUsed(run.place, run.units);
    for (const Released& run : released_) map_.MarkUsed(run.place, run.units);
    return end;
  }

  // Call when the free space was found: readers need older checkpoints than the last one, which has
  // this sequence, so their pages may be in any of the free space.
  void HoldFree(std::uint64_t sequence) {
    std::vector<Run> free;
    std::uint64_t at = format::kTreeFirstUnit;
    const auto add = [&](std::uint64_t to) {
      if (to > at) free.push_back({at, to - at});
    };
    map_.ForEachUsedRun([&](std::uint64_t place, std::uint64_t units) {
      add(place);
      at = place + units;
    });
    add(map_.end());
    released_.clear();
    released_.reserve(free.size());
    for (const Run& run : free) {
      map_.MarkUsed(run.place, run.units);
      released_.push_back({run, sequence});
    }
    oldest_ = 0;
  }
  // Returns the oldest checkpoint that may be needed so that no more than `bytes` are kept for
  // checkpoints before the last one.
  std::uint64_t OldestWithin(std::uint64_t bytes) const {
    std::uint64_t units = 0;
    for (auto run = released_.rbegin(); run != released_.rend(); ++run) {
      units += run->units;
      if (units > bytes / format::kTreeUnit) return run->until;
    }
    return 0;
  }
  // The bytes that are kept for checkpoints before the last one.
  std::uint64_t released_bytes() const {
    std::uint64_t units = 0;
    for (const Released& run : released_) units += run.units;
    return units * format::kTreeUnit;
  }

  // The space of the last checkpoint is not reused until Unpin.
  void Pin() { ++num_pins_; }
  void Unpin() {
    if (--num_pins_ == 0) FreeReleased();
  }
  bool is_pinned() const { return num_pins_ != 0; }

 private:
  static constexpr std::uint64_t kReserveMin = (256 << 10) / format::kTreeUnit;
  // Shorter runs are taken only when the file would otherwise have to grow.
  static constexpr std::uint64_t kGoodRun = (64 << 10) / format::kTreeUnit;

  // Makes the file longer by `good` units, or by `least` if the device is nearly full.
  Status GrowBy(std::uint64_t good, std::uint64_t least) {
    Status status;
    for (const std::uint64_t more : {good, least}) {
      const std::uint64_t end = map_.end() + more;
      status = file_.Resize(end * format::kTreeUnit);
      if (status.ok()) {
        map_.Grow(end);
        no_run_of_ = ~std::uint64_t{0};
        return status;
      }
      if (!absl::IsResourceExhausted(status)) return status;
    }
    file_.set_short(true);
    return status;
  }
  // Makes the file longer unless `units` units beside the reserve are free. The reserve of a small
  // file is as large as its images.
  Status KeepReserve(std::uint64_t units) {
    const std::uint64_t least = std::min(kReserveMin, std::max(kReserveMin / 8, map_.used_units()));
    const std::uint64_t wanted = units + std::max(least, map_.end() / 64), free = map_.free_units();
    if (free >= wanted) return absl::OkStatus();
    return GrowBy(std::max({GrowthMin(), map_.end() / 16, wanted - free}), wanted - free);
  }
  // A small file at most doubles.
  std::uint64_t GrowthMin() const { return std::min(kRunUnits, map_.end()); }
  void FreeReleased() {
    auto run = released_.begin();
    for (; run != released_.end() && run->until <= oldest_; ++run) map_.Free(run->place, run->units);
    released_.erase(released_.begin(), run);
  }

  TreeFile<FileT>& file_;
  FreeSpaceMap map_;
  std::vector<Run> retired_;  // freed since the last checkpoint, which still needs them
  // Freed before the last checkpoint; a pinned checkpoint may need them. In the order of `until`.
  struct Released : Run {
    std::uint64_t until;  // the first checkpoint that does not need the run
  };
  std::vector<Released> released_;
  std::uint64_t oldest_ = ~std::uint64_t{0};  // no reader needs a checkpoint before this one
  unsigned num_pins_ = 0;
  bool is_moving_ = false;  // see PreferFront
  // This checkpoint has found no free run of this many units.
  std::uint64_t no_run_of_ = ~std::uint64_t{0};
};

}  // namespace hako::tree
