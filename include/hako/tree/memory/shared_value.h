// A long value in memory with a reference count. There is a reference for the leaf that names it,
// for each thread that reads it, and for the thread that fills it. The thread that drops the last
// reference frees the value.
//
// It is made in memory of the arena (tree/memory/page_arena.h) while the leaf that names it is
// locked, in a time that does not depend on its size, and filled after all locks are released. A
// thread takes a reference while it has the leaf locked, then reads the value without a lock.
//
// The memory may have belonged to a page that a late reader still reads: see PageArena.
//
// Thread-safe; one thread fills it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <type_traits>

#include "hako/base/assert.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::tree {

class SharedValue {
 public:
  // The bytes of memory that a value takes.
  static std::uint64_t BytesFor(std::uint64_t size) { return sizeof(SharedValue) + size; }
  // A value without content, with one reference. REQUIRES: `block` has BytesFor(size) bytes (unchecked: a
  // pointer has no size)
  static SharedValue* MakeAt(void* block, std::size_t size) {
    const SharedValue made(size);
    sync::StoreShared(static_cast<char*>(block), reinterpret_cast<const char*>(&made), sizeof(made));
    return std::launder(static_cast<SharedValue*>(block));
  }
  SharedValue(const SharedValue&) = delete;

  // REQUIRES: the caller, or a leaf that it has locked, has a reference
  void AddReference() {
    HAKO_DCHECK(users_.load(std::memory_order_relaxed) != 0);
    users_.fetch_add(1, std::memory_order_relaxed);
  }
  // Returns whether this was the last reference; the caller then frees the memory.
  bool DropReference() { return users_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  std::size_t size() const { return size_; }
  // Call it once. REQUIRES: `value` has size() bytes
  void Fill(std::string_view value) {
    HAKO_DCHECK(value.size() == size_ && !is_filled());
    sync::StoreShared(bytes(), value.data(), size_);
    is_filled_.store(1, std::memory_order_release);
    is_filled_.notify_all();
  }
  bool is_filled() const { return is_filled_.load(std::memory_order_acquire) != 0; }
  // Waits until the value is filled, and returns its bytes. REQUIRES: the caller holds no lock, or
  // the value is filled (unchecked: locks leave no trace in a thread)
  std::string_view Wait() {
    is_filled_.wait(0, std::memory_order_acquire);
    return {bytes(), size_};
  }

 private:
  explicit SharedValue(std::size_t size) : size_(size) {}
  char* bytes() { return reinterpret_cast<char*>(this + 1); }

  std::atomic<std::uint32_t> users_{1}, is_filled_{0};
  const std::size_t size_;
};
static_assert(sizeof(SharedValue) == 16 && std::is_trivially_destructible_v<SharedValue>);

}  // namespace hako::tree
