// Memory that direct I/O takes as it is: aligned to 4 KiB, not initialised.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace hako {

struct FreeAligned {
  static constexpr auto kAlignment = std::align_val_t(4096);
  void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], FreeAligned>;

inline AlignedBuffer MakeAlignedBuffer(std::size_t size) {
  return AlignedBuffer(static_cast<std::byte*>(::operator new(size, FreeAligned::kAlignment)));
}

}  // namespace hako
