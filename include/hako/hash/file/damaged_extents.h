// The heap extents whose header is damaged, found by a harvest.
//
// An extent without a valid header looks like free space. But if an entry of the index names a
// record there, it is not free: the space from that record's unit up to the next header is not
// used, and blocks that are retired there are not reused. The records of such an extent can still
// be read, because each has its own check. But a recovery by scan would find neither these records
// nor new ones in the extent.
//
// Takes a byte for each extent unit of the file until the harvest is over: 2 MiB for 32 GiB. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_list.h"

namespace hako::hash {

class DamagedExtents {
 public:
  // ---- before the harvest: while an index is adopted ----
  // Marks the records that entries name. It is called for each entry of the table, so for speed it
  // marks a byte rather than a bit, and has copies of two members, which stay in registers. Valid
  // until EndNoting.
  class Noter {
   public:
    void Note(std::uint64_t offset) const {
      const std::uint64_t unit = offset / format::kExtentUnit;
      if (unit < size_) named_[unit] = 1;
    }

   private:
    friend class DamagedExtents;
    explicit Noter(std::vector<unsigned char>& named) : named_(named.data()), size_(named.size()) {}
    unsigned char* named_;
    std::uint64_t size_;
  };
  // `tail`: the end of the extents
  Noter GetNoter(std::uint64_t tail) {
    if (named_.empty()) named_.assign(tail / format::kExtentUnit + 1, 0);
    return Noter(named_);
  }
  void EndNoting() { named_ = {}; }

  // ---- the harvest ----
  // Returns whether a unit that has no header belongs to a damaged extent. Call it for the units in
  // ascending order, except units of undamaged extents and of the index. `is_unreadable`: the unit
  // could not be read and may have a header.
  bool Takes(std::uint64_t offset, bool is_unreadable) {
    const bool continues = !extents_.empty() && extents_.back().offset + extents_.back().bytes == offset;
    if (continues) {
      extents_.back().bytes += format::kExtentUnit;
    } else if (is_unreadable || IsNamed(offset)) {
      extents_.push_back({offset, format::kExtentUnit});
    } else {
      return false;
    }
    return true;
  }

  // ---- during the harvest and after it ----
  bool empty() const { return extents_.empty(); }
  bool Has(std::uint64_t offset) const {
    const auto next = std::ranges::upper_bound(extents_, offset, {}, &Extent::offset);
    return next != extents_.begin() && offset - (next - 1)->offset < (next - 1)->bytes;
  }

 private:
  bool IsNamed(std::uint64_t offset) const {
    const std::uint64_t unit = offset / format::kExtentUnit;
    return unit < named_.size() && named_[unit] != 0;
  }

  std::vector<unsigned char> named_;  // by extent unit: whether an entry named a record that begins there
  std::vector<Extent> extents_;       // by offset
};

}  // namespace hako::hash
