// Copies bytes of one file to another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hako/base/status.h"
#include "hako/file/file.h"

namespace hako {

// Copies `size` bytes into a file that is long enough, through a buffer.
template <File From, File To>
Status CopyRange(const From& from, std::uint64_t from_offset, To& to, std::uint64_t to_offset, std::uint64_t size) {
  static constexpr std::uint64_t kPart = 256 << 10;
  std::vector<std::byte> bytes(std::min(size, kPart));
  for (std::uint64_t at = 0; at < size; at += bytes.size()) {
    const auto part = std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), size - at));
    HAKO_RETURN_IF_ERROR(from.ReadAt(from_offset + at, part));
    HAKO_RETURN_IF_ERROR(to.WriteAt(to_offset + at, part));
  }
  return absl::OkStatus();
}

}  // namespace hako
