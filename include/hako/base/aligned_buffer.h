// Memory for direct I/O: aligned to 4 KiB, uninitialized.
//
// Long buffers use huge pages where the system has them, so that a long transfer has few pieces.
// Some devices serve reads of 1 MiB at more than twice the rate (benchmark/NOTES.md).
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "hako/base/no_memory.h"

namespace hako {

struct FreeAligned {
  std::align_val_t alignment{4096};
  void operator()(std::byte* bytes) const { ::operator delete(bytes, alignment); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], FreeAligned>;

// When a long buffer asks for huge pages.
enum class HugePages {
  kIfLong,  // when it is allocated
  kLater,   // when its owner calls AdviseHugePages, or never
};

// Chooses for a buffer of `size` bytes through which a file is read or written. A file that is not
// longer than the buffer needs no huge pages, because it uses little of the buffer.
inline HugePages HugePagesFor(std::uint64_t file_size, std::size_t size) {
  return file_size > size ? HugePages::kIfLong : HugePages::kLater;
}

// Hints that unused memory should get huge pages.
inline void AdviseHugePages(std::byte* bytes, std::size_t size) { (void)::madvise(bytes, size, MADV_HUGEPAGE); }

// Allocates at least *size bytes, and sets *size to the size allocated. Returns nullptr if there is
// no memory.
inline AlignedBuffer TryMakeAlignedBuffer(std::size_t* size, HugePages huge_pages = HugePages::kIfLong) {
  constexpr std::size_t kPage = 4096, kHugePage = 2 << 20, kLong = kHugePage / 4;
  const bool is_long = *size >= kLong;
  const std::size_t unit = is_long ? kHugePage : kPage;
  *size = (std::max<std::size_t>(*size, 1) + unit - 1) / unit * unit;
  const FreeAligned free{std::align_val_t{unit}};
  auto* const bytes = static_cast<std::byte*>(::operator new(*size, free.alignment, std::nothrow));
  if (is_long && bytes != nullptr && huge_pages == HugePages::kIfLong) AdviseHugePages(bytes, *size);
  return {bytes, free};
}

// As TryMakeAlignedBuffer, but throws std::bad_alloc if there is no memory (base/no_memory.h).
inline AlignedBuffer MakeAlignedBuffer(std::size_t size, HugePages huge_pages = HugePages::kIfLong) {
  AlignedBuffer buffer = TryMakeAlignedBuffer(&size, huge_pages);
  if (buffer == nullptr) ThrowNoMemory();
  return buffer;
}

}  // namespace hako
