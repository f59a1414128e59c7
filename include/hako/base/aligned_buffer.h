// Memory that direct I/O takes as it is: aligned to 4 KiB, not initialised.
//
// A long buffer is of huge pages where the system has them: then a long transfer is of few pieces. Reads of a mebibyte come at more than
// twice the rate from some devices (benchmark/NOTES.md).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace hako {

struct FreeAligned {
  std::align_val_t alignment{4096};
  void operator()(std::byte* bytes) const { ::operator delete(bytes, alignment); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], FreeAligned>;

inline AlignedBuffer MakeAlignedBuffer(std::size_t size) {
  constexpr std::size_t kHugePage = 2 << 20, kLong = kHugePage / 4;
  const bool is_long = size >= kLong;
  if (is_long) size = (size + kHugePage - 1) / kHugePage * kHugePage;
  const FreeAligned free{std::align_val_t{is_long ? kHugePage : 4096}};
  auto* const bytes = static_cast<std::byte*>(::operator new(size, free.alignment));
  if (is_long) (void)::madvise(bytes, size, MADV_HUGEPAGE);
  return {bytes, free};
}

}  // namespace hako
