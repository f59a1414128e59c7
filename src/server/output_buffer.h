// OutputBuffer: the unsent replies of one connection, as one run of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "hako/base/assert.h"

namespace hako::server {

// Grows as needed, without filling new memory with zeros. Throws std::bad_alloc if memory runs out
// or the limit is reached, so commands need not check the size of their replies.
class OutputBuffer {
 public:
  OutputBuffer() = default;
  explicit OutputBuffer(std::size_t limit) : limit_(limit) {}

  // Returns room for `size` more bytes; the caller fills it and calls Extend. Valid until the next call.
  char* Reserve(std::size_t size) {
    if (capacity_ - end_ < size) [[unlikely]]
      Grow(size);
    return bytes_.get() + end_;
  }
  void Extend(std::size_t size) { end_ += size; }
  void Append(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(Reserve(bytes.size()), bytes.data(), bytes.size());
    end_ += bytes.size();
  }

  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  std::string_view view() const { return {bytes_.get() + begin_, size()}; }
  // Consume removes the first `size` bytes; Truncate removes all but the first `size`.
  void Consume(std::size_t size) {
    begin_ += size;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void Truncate(std::size_t size) { end_ = begin_ + size; }
  // The largest number of bytes that the buffer may hold.
  std::size_t limit() const { return limit_; }
  void set_limit(std::size_t limit) {
    limit_ = limit;
    is_refused_ = false;
  }
  // Whether the limit has refused bytes since it was set.
  bool is_refused() const { return is_refused_; }
  // Frees memory beyond what most replies need. REQUIRES: empty()
  void Trim() {
    HAKO_DCHECK(empty());
    if (capacity_ <= kKeptMax) return;
    bytes_.reset();
    capacity_ = begin_ = end_ = 0;
  }

 private:
  static constexpr std::size_t kFirst = 4 << 10, kKeptMax = 64 << 10;

  void Grow(std::size_t size) {
    const std::size_t used = this->size();
    if (size > limit_ || used > limit_ - size) {
      is_refused_ = true;
      throw std::bad_alloc();
    }
    if (begin_ > 0 && capacity_ - used >= size && begin_ >= used) {
      std::memcpy(bytes_.get(), bytes_.get() + begin_, used);
    } else {
      const std::size_t capacity = std::max({kFirst, used + size, capacity_ + capacity_ / 2});
      auto grown = std::make_unique_for_overwrite<char[]>(capacity);
      if (used > 0) std::memcpy(grown.get(), bytes_.get() + begin_, used);
      bytes_ = std::move(grown);
      capacity_ = capacity;
    }
    begin_ = 0;
    end_ = used;
  }

  std::unique_ptr<char[]> bytes_;
  std::size_t begin_ = 0, end_ = 0, capacity_ = 0;
  std::size_t limit_ = ~std::size_t{0};
  bool is_refused_ = false;
};

}  // namespace hako::server
