// A set of ids of overflow lines, for recovery. There is a bitmap for each part of the space that
// has such a line.
//
// Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "hako/base/language.h"

namespace hako::hash {

class OverflowIds {
 public:
  // Returns false if the id was already in the set.
  bool Insert(std::uint32_t id) {
    const std::uint32_t part = id / kPart;
    if (part >= numbers_.size()) numbers_.resize(part + 1);
    if (numbers_[part] == 0) {
      bits_.emplace_back();
      numbers_[part] = static_cast<std::uint32_t>(bits_.size());
    }
    std::uint64_t& word = bits_[numbers_[part] - 1][id % kPart / 64];
    const std::uint64_t bit = std::uint64_t{1} << id % 64;
    if ((word & bit) != 0) return false;
    word |= bit;
    ++size_;
    return true;
  }
  bool Contains(std::uint32_t id) const {
    const std::uint32_t part = id / kPart;
    if (part >= numbers_.size() || numbers_[part] == 0) return false;
    return (bits_[numbers_[part] - 1][id % kPart / 64] >> id % 64 & 1) != 0;
  }
  std::uint64_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kPart = 1024;  // ids of 64 KiB, the smallest extent of an index

  std::vector<std::uint32_t> numbers_;  // for each part 1 + the index of its bitmap in bits_, or 0
  std::vector<std::array<std::uint64_t, kPart / 64>> bits_;
  std::uint64_t size_ = 0;
};

}  // namespace hako::hash
