// The range check of every File: an access outside [0, size) is OutOfRange and has no effect.
#pragma once

#include <cstdint>

#include "hako/base/status.h"

namespace hako {

// Whether [offset, offset + size) lies inside a file of `file_size` bytes. The sum may overflow.
constexpr bool IsInside(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) {
  return size <= file_size && offset <= file_size - size;
}

[[gnu::cold, gnu::noinline]] inline Status OutsideError(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) {
  return absl::OutOfRangeError(absl::StrCat(size, " bytes at offset ", offset, " are outside a file of ", file_size, " bytes"));
}

inline Status CheckInside(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) {
  if (!IsInside(offset, size, file_size)) [[unlikely]]
    return OutsideError(offset, size, file_size);
  return absl::OkStatus();
}

}  // namespace hako
