// Reusable scratch memory that is given back after a large use.
//
// A thread that once read a value of 1 GiB must not keep 1 GiB. So each use ends with Trim, which
// keeps at most kKeptMax bytes. A larger buffer is mapped and unmapped at each use, which costs
// little compared with filling it.
//
// The object has no destructor, so that a thread_local one still serves destructors that run later
// (base/thread_exit.h). ThreadScratch frees its memory when the thread ends; OwnedScratch, for
// members and local variables, in its destructor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "hako/base/aligned_buffer.h"
#include "hako/base/thread_exit.h"

namespace hako {

class ScratchBuffer {
 public:
  static constexpr std::size_t kKeptMax = 2 << 20;

  constexpr ScratchBuffer() = default;
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;

  // Returns space for `size` bytes, aligned to 4 KiB, with the first `kept` bytes preserved.
  // Invalidates the results of earlier calls. nullptr if there is no memory; the buffer is then
  // unchanged.
  [[nodiscard]] char* Take(std::size_t size, std::size_t kept = 0) {
    if (size <= capacity_ && bytes_ != nullptr) [[likely]]
      return bytes_;
    return Grow(size, kept);
  }
  // Ends a use: invalidates the result of Take.
  void Trim() {
    if (capacity_ > kKeptMax) [[unlikely]]
      Free();
  }
  void Free() {
    free_(reinterpret_cast<std::byte*>(std::exchange(bytes_, nullptr)));
    capacity_ = 0;
  }
  char* data() { return bytes_; }
  std::size_t capacity() const { return capacity_; }

 private:
  [[gnu::noinline]] char* Grow(std::size_t size, std::size_t kept) {
    std::size_t capacity = size > kKeptMax ? size : std::bit_ceil(size);
    AlignedBuffer buffer = TryMakeAlignedBuffer(&capacity);
    if (buffer == nullptr) return nullptr;
    if (kept != 0) std::memcpy(buffer.get(), bytes_, kept);
    Free();
    free_ = buffer.get_deleter();
    capacity_ = capacity;
    return bytes_ = reinterpret_cast<char*>(buffer.release());
  }

  char* bytes_ = nullptr;
  std::size_t capacity_ = 0;
  FreeAligned free_;
};

class OwnedScratch : public ScratchBuffer {
 public:
  OwnedScratch() = default;
  ~OwnedScratch() { Free(); }
};

// Trims a buffer at the end of the scope.
class ScratchUse {
 public:
  explicit ScratchUse(ScratchBuffer& buffer) : buffer_(buffer) {}
  ScratchUse(const ScratchUse&) = delete;
  ScratchUse& operator=(const ScratchUse&) = delete;
  ~ScratchUse() { buffer_.Trim(); }

 private:
  ScratchBuffer& buffer_;
};

// The calling thread's buffer for one purpose, named by a type.
template <class Purpose>
class ThreadScratch {
 public:
  static ScratchBuffer& Get() {
    (void)at_exit_.Arm();  // if it fails, the memory is leaked at the thread's end
    return buffer_;
  }

 private:
  static void Free() { buffer_.Free(); }
  static inline constinit thread_local ScratchBuffer buffer_{};
  static inline constinit thread_local ThreadExitCall at_exit_{&Free};
};

}  // namespace hako
