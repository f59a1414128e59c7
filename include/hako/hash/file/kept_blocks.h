// Finds the free space between the kept blocks of a heap extent, which the caller names in
// ascending order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_file.h"

namespace hako::hash {

// `free(offset, bytes, certain)` receives each free range. `certain` is true if Doubt was not
// called since the last kept block.
template <class Free>
class KeptBlocks {
 public:
  explicit KeptBlocks(Free free) : free_(std::move(free)) {}

  void Enter(Extent extent) {
    Leave();
    next_ = extent.offset + sizeof(format::HeapExtentHeader);
    end_ = extent.offset + extent.bytes;
  }
  void Keep(std::uint64_t offset, std::uint64_t bytes) {
    FreeUntil(offset);
    next_ = std::clamp(offset + bytes, next_, end_);
  }
  // Call this after finding bytes that are neither zero nor a record.
  void Doubt() { certain_ = false; }
  void Leave() {
    FreeUntil(end_);
    next_ = end_ = 0;
  }

 private:
  void FreeUntil(std::uint64_t offset) {
    if (offset > next_) free_(next_, offset - next_, certain_);
    certain_ = true;
  }

  Free free_;
  std::uint64_t next_ = 0, end_ = 0;  // the part of the extent that is not yet decided
  bool certain_ = true;
};

}  // namespace hako::hash
