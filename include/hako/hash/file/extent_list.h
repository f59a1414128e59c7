// Lists of extents (hash/file/extent_file.h): sorted by offset, without overlaps. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hako/base/assert.h"
#include "hako/format/hash_file_format.h"

namespace hako::hash {

struct Extent {
  std::uint64_t offset;
  std::uint64_t bytes;
};

class ExtentList {
 public:
  const std::vector<Extent>& extents() const { return extents_; }
  void Clear() { extents_.clear(); }
  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    for (const Extent& extent : extents_) bytes += extent.bytes;
    return bytes;
  }

  bool Overlaps(Extent extent) const {
    const auto next = After(extent.offset);
    if (next != extents_.end() && next->offset - extent.offset < extent.bytes) return true;
    return next != extents_.begin() && (next - 1)->bytes > extent.offset - (next - 1)->offset;
  }
  // REQUIRES: it overlaps no extent of the list
  void Insert(Extent extent) {
    HAKO_DCHECK(!Overlaps(extent));
    extents_.insert(After(extent.offset), extent);
  }
  bool EndsAt(std::uint64_t offset) const { return !extents_.empty() && extents_.back().offset + extents_.back().bytes == offset; }
  // Removes the last extent and returns its offset. REQUIRES: the list is not empty
  std::uint64_t PopLast() {
    HAKO_DCHECK(!extents_.empty());
    const std::uint64_t offset = extents_.back().offset;
    extents_.pop_back();
    return offset;
  }

  // For lists of free space: adds an extent and joins it with adjacent ones. REQUIRES: `extent`
  // overlaps none
  void AddFree(Extent extent) {
    if (extent.bytes == 0) return;
    HAKO_DCHECK(!Overlaps(extent));
    auto here = extents_.insert(After(extent.offset), extent);
    if (const auto after = here + 1; after != extents_.end() && here->offset + here->bytes == after->offset) {
      here->bytes += after->bytes;
      extents_.erase(after);
    }
    if (here != extents_.begin() && (here - 1)->offset + (here - 1)->bytes == here->offset) {
      (here - 1)->bytes += here->bytes;
      extents_.erase(here);
    }
  }
  // Takes `bytes` of the lowest free extent that is large enough, and returns the offset; 0 if
  // there is none.
  std::uint64_t TakeFree(std::uint64_t bytes) {
    extents_.reserve(extents_.size() + 1);  // reserve now, because no part may get lost
    const auto fits = [bytes](const Extent& e) { return AlignFor(bytes, e.offset) + bytes <= e.offset + e.bytes; };
    const auto found = std::ranges::find_if(extents_, fits);
    if (found == extents_.end()) return 0;
    const Extent extent = *found;
    const std::uint64_t offset = AlignFor(bytes, extent.offset), end = offset + bytes;
    extents_.erase(found);
    AddFree({extent.offset, offset - extent.offset});
    AddFree({end, extent.offset + extent.bytes - end});
    return offset;
  }

  // Returns the first offset, from `offset` on, at which an extent of `bytes` may begin.
  static std::uint64_t AlignFor(std::uint64_t bytes, std::uint64_t offset) {
    const std::uint64_t alignment = bytes < format::kExtentAlignment ? format::kExtentUnit : format::kExtentAlignment;
    return (offset + alignment - 1) & ~(alignment - 1);
  }

 private:
  std::vector<Extent>::const_iterator After(std::uint64_t offset) const {
    return std::ranges::upper_bound(extents_, offset, {}, &Extent::offset);
  }

  std::vector<Extent> extents_;
};

}  // namespace hako::hash
