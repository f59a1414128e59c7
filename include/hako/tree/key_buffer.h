// A key of a tree in memory of its own, on the stack: pages are changed while locks are held, and nothing may fail there for want of
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/format/page_format.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::tree {

class KeyBuffer {
 public:
  static constexpr std::size_t kCapacity = kTreeKeySizeMax + 8;  // copies of keys may write a few bytes more

  KeyBuffer() {}  // the bytes are not initialized
  explicit KeyBuffer(std::string_view key) { assign(key); }
  KeyBuffer(const KeyBuffer&) = delete;
  KeyBuffer& operator=(const KeyBuffer&) = delete;

  // REQUIRES: what is assigned is no part of this buffer
  void assign(std::string_view key) {
    resize(key.size());
    key.copy(bytes_, key.size());
  }
  // Bytes that may change meanwhile, and whose size may be wrong then; as many as fit.
  void LoadShared(const char* shared, std::size_t size) {
    size_ = std::min(size, kCapacity);
    sync::LoadShared(bytes_, shared, size_);
  }
  // New bytes are undefined.
  void resize(std::size_t size) {
    HAKO_ASSERT(size <= kCapacity);
    size_ = size;
  }
  char* data() { return bytes_; }
  const char* data() const { return bytes_; }
  std::size_t size() const { return size_; }
  operator std::string_view() const { return {bytes_, size_}; }

 private:
  std::size_t size_ = 0;
  char bytes_[kCapacity];
};

}  // namespace hako::tree
