// A long value in memory with a reference count: one for the leaf that names it, for each thread
// that reads it, and for the thread that fills it. The last to drop it frees it.
//
// It is made while the leaf that names it is locked, which takes no longer for a longer value, and
// filled after all locks are released. A thread shares it while it has the leaf locked, then reads
// it without a lock.
//
// Thread-safe; one thread fills it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

namespace hako::tree {

class SharedValue {
  struct Dropper {
    void operator()(SharedValue* value) const { value->Drop(); }
  };

 public:
  using Pointer = std::unique_ptr<SharedValue, Dropper>;

  // nullptr if out of memory.
  static Pointer Make(std::size_t size) {
    void* const block = std::malloc(sizeof(SharedValue) + size);
    return Pointer(block == nullptr ? nullptr : new (block) SharedValue(size));
  }
  SharedValue(const SharedValue&) = delete;

  // Adds a reference. REQUIRES: the caller, or a leaf that it has locked, has one
  Pointer Share() {
    users_.fetch_add(1, std::memory_order_relaxed);
    return Pointer(this);
  }
  std::size_t size() const { return size_; }
  // Call it once. REQUIRES: `value` has size() bytes
  void Fill(std::string_view value) {
    std::memcpy(bytes(), value.data(), size_);
    is_filled_.store(1, std::memory_order_release);
    is_filled_.notify_all();
  }
  bool is_filled() const { return is_filled_.load(std::memory_order_acquire) != 0; }
  // Waits until the value is filled, and returns its bytes. REQUIRES: the caller holds no lock, or
  // the value is filled
  std::string_view Wait() {
    is_filled_.wait(0, std::memory_order_acquire);
    return {bytes(), size_};
  }

 private:
  explicit SharedValue(std::size_t size) : size_(size) {}
  ~SharedValue() = default;
  char* bytes() { return reinterpret_cast<char*>(this + 1); }
  void Drop() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    this->~SharedValue();
    std::free(this);
  }

  std::atomic<std::uint32_t> users_{1}, is_filled_{0};
  const std::size_t size_;
};
static_assert(sizeof(SharedValue) == 16);

}  // namespace hako::tree
