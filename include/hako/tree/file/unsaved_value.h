// A long value of a tree that no checkpoint has written yet.
//
// It is made while the leaf that names it is locked, in a time that does not depend on its size,
// and filled after all locks are released. So no other thread waits for the copy, unless it reads
// this value.
//
// Thread-safe; one thread fills it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"

namespace hako::tree {

class UnsavedValue {
 public:
  // nullptr if out of memory.
  static std::shared_ptr<UnsavedValue> Make(std::size_t size) {
    std::unique_ptr<char[]> bytes(new (std::nothrow) char[size]);
    if (bytes == nullptr) return nullptr;
    HAKO_TRY { return std::make_shared<UnsavedValue>(std::move(bytes), size); }
    HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
    return nullptr;
#endif
  }
  UnsavedValue(std::unique_ptr<char[]> bytes, std::size_t size) : bytes_(std::move(bytes)), size_(size) {}
  UnsavedValue(const UnsavedValue&) = delete;

  std::size_t size() const { return size_; }
  // Call it once. REQUIRES: `value` has size() bytes
  void Fill(std::string_view value) {
    HAKO_DCHECK(value.size() == size_ && !is_filled());
    std::memcpy(bytes_.get(), value.data(), size_);
    is_filled_.store(true, std::memory_order_release);
    is_filled_.notify_all();
  }
  bool is_filled() const { return is_filled_.load(std::memory_order_acquire); }
  // Waits until the value is filled, and returns its bytes. REQUIRES: the caller holds no lock, or
  // the value is filled (unchecked: locks leave no trace in a thread)
  std::string_view Wait() const {
    is_filled_.wait(false, std::memory_order_acquire);
    return {bytes_.get(), size_};
  }

 private:
  std::unique_ptr<char[]> bytes_;
  const std::size_t size_;
  std::atomic<bool> is_filled_{false};
};

}  // namespace hako::tree
