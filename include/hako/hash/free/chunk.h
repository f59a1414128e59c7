// Chunks: parts of a space that a thread takes at once, to carve blocks from without locks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hako/hash/free/free_runs.h"
#include "hako/storage/arena.h"

namespace hako::hash {

// The part of a chunk that is not yet carved into blocks, as byte offsets in the space.
struct ChunkRest {
  std::uint64_t next = 0;
  std::uint64_t end = 0;
  std::uint64_t bytes() const { return end - next; }
};
inline Run Rest(ChunkRest chunk) { return {chunk.next, chunk.end}; }

// Returns how much to allocate in a space of `used` bytes for a record of `bytes`, in whole units.
// Small spaces grow in small steps, so that little is left unused.
inline std::uint64_t ChunkSize(std::uint64_t used, std::uint64_t bytes, std::uint64_t unit = storage::Arena::kExtentAlignment) {
  const std::uint64_t usual = std::clamp<std::uint64_t>(std::bit_floor(used / 256 + 1), unit, 1 << 20);
  return std::max(usual, (bytes + unit - 1) & ~(unit - 1));
}

}  // namespace hako::hash
