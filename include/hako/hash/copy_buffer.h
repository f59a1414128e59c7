// A buffer to which pieces of uninitialized bytes are appended. The pieces keep their addresses
// until Clear.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "hako/base/inline.h"

namespace hako::hash {

class CopyBuffer {
 public:
  static constexpr std::size_t kKeptMax = 1 << 20;

  // Appends room for `size` bytes; never nullptr.
  HAKO_INLINE char* Take(std::size_t size) {
    if (size >= size_ - used_) [[unlikely]]
      Grow(size);
    return bytes_.get() + std::exchange(used_, used_ + size);
  }

  // Invalidates all pieces. Keeps at most kKeptMax bytes of memory.
  void Clear() {
    used_ = 0;
    if (!full_.empty()) full_.clear();
    if (size_ > kKeptMax) [[unlikely]] {
      bytes_.reset();
      size_ = 0;
    }
  }

 private:
  [[gnu::noinline]] void Grow(std::size_t size) {
    const std::size_t bigger = std::max({size + 1, std::min(2 * size_, kKeptMax), std::size_t{4096}});
    auto bytes = std::make_unique_for_overwrite<char[]>(bigger);
    if (used_ != 0) full_.push_back(std::move(bytes_));
    bytes_ = std::move(bytes);
    size_ = bigger;
    used_ = 0;
  }

  std::unique_ptr<char[]> bytes_;
  std::size_t used_ = 0;
  std::size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> full_;
};

}  // namespace hako::hash
