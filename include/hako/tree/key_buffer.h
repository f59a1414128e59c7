// A key of a tree in a buffer on the stack: pages are changed while locks are held, when an
// allocation must not fail.
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
  // Bytes after the key that a copy may overwrite.
  static constexpr std::size_t kCapacity = kTreeKeySizeMax + 8;

  KeyBuffer() {}  // the bytes are not initialized
  explicit KeyBuffer(std::string_view key) { assign(key); }
  KeyBuffer(const KeyBuffer&) = delete;
  KeyBuffer& operator=(const KeyBuffer&) = delete;

  // REQUIRES: `key` is not part of this buffer
  void assign(std::string_view key) {
    HAKO_DCHECK(key.empty() || key.data() + key.size() <= bytes_ || key.data() >= bytes_ + kCapacity);
    resize(key.size());
    key.copy(bytes_, key.size());
  }
  // Copies bytes that may change at the same time. `size` may then be wrong, so copies at most
  // kCapacity bytes.
  void LoadShared(const char* shared, std::size_t size) {
    size_ = std::min(size, kCapacity);
    sync::LoadShared(bytes_, shared, size_);
  }
  // Leaves new bytes undefined.
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
