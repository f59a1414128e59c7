// Bytes that are appended without being zeroed first, in memory that stays where it is until Clear: pieces handed out remain valid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "hako/base/inline.h"

namespace hako::index {

class CopyBuffer {
 public:
  // Room for `size` bytes; never nullptr.
  HAKO_INLINE char* Take(std::size_t size) {
    if (size >= size_ - used_) [[unlikely]]
      Grow(size);
    return bytes_.get() + std::exchange(used_, used_ + size);
  }

  // Everything taken becomes invalid; the memory is kept.
  void Clear() {
    used_ = 0;
    if (!full_.empty()) full_.clear();
  }

 private:
  [[gnu::noinline]] void Grow(std::size_t size) {
    if (used_ != 0) full_.push_back(std::move(bytes_));
    size_ = std::max(2 * size_, std::max<std::size_t>(size + 1, 4096));
    bytes_ = std::make_unique_for_overwrite<char[]>(size_);
    used_ = 0;
  }

  std::unique_ptr<char[]> bytes_;
  std::size_t used_ = 0;
  std::size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> full_;
};

}  // namespace hako::index
