// Definitions of hash/memory/record_arena.h: a walk over the blocks of a part of the arena, in
// order. With it the time to empty a part depends on the size of the part, not on the number of all
// records.
//
// A walk goes from block to block, from the beginning of a region or from the end of a large block over it
// (hash/memory/large_blocks.h). Each block, also a free one, begins with the lengths of the record
// that it has or had, or of a record of its size. The pool knows where a run ends. The bytes of a
// chunk that a thread is using can be anything, and may mislead the walk up to the end of the
// region, but that region cannot become free anyway. Such bytes are never taken for a record,
// because the index must name the record.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>

#include "hako/hash/memory/record_arena.h"

namespace hako::hash {

template <class P, class F>
void RecordArena::ForEachBlockIn(Part part, P&& prefetch, F&& visit) const {
  static constexpr std::uint64_t kRegion = LargeBlocks::kRegion;
  part = {std::max(part.begin, kRegion), std::min(part.end, arena_->end())};
  for (std::uint64_t region = part.begin / kRegion * kRegion; region < part.end; region += kRegion) {
    const Part visited{std::max(part.begin, region), std::min(part.end, region + kRegion)};
    WalkRegion(FirstBlockIn(region), visited, prefetch, visit);
  }
}

// Visits the blocks that begin in `visited`, a part of one region. Starts at a block in this region
// or before it.
template <class P, class F>
void RecordArena::WalkRegion(std::uint64_t at, Part visited, P&& prefetch, F&& visit) const {
  static constexpr unsigned kAhead = 16;  // memory accesses that overlap
  std::array<SeenBlock, kAhead> seen;
  while (at < visited.end) {
    unsigned n = 0;
    for (std::uint64_t next = at; n < kAhead && next < visited.end; next = seen[n++].block.end) {
      seen[n] = See(next);
      if (seen[n].hash && next >= visited.begin) prefetch(*seen[n].hash);
    }
    for (unsigned i = 0; i < n; ++i) {
      const Part block = seen[i].block;
      at = block.end;
      const bool is_visited = block.begin >= visited.begin && seen[i].hash;
      if (is_visited && visit(HandleAt(block.begin), *seen[i].hash)) continue;
      if (const Run run = pool_->RunAround(block.begin); run.bytes() != 0) {
        at = run.end;
        break;
      }
    }
  }
}

// Returns the beginning of the block that contains the first byte of a region, or the end of the
// region if it has no blocks.
inline std::uint64_t RecordArena::FirstBlockIn(std::uint64_t region) const {
  const std::uint32_t handle = large_blocks_.At(region);
  if (handle == LargeBlocks::kNone) return region;
  const std::uint64_t none = region + LargeBlocks::kRegion;
  if (handle == LargeBlocks::kHole) return none;
  const std::uint64_t begin = BeginOf(handle);
  return begin <= region && See(begin).block.end > region ? begin : none;
}

// Returns the block that begins there and the hash of its key, according to its first bytes, which
// another thread may be writing.
inline RecordArena::SeenBlock RecordArena::See(std::uint64_t begin) const {
  static constexpr std::uint64_t kShortKeyMax = 512;
  const auto handle = HandleAt(begin);
  const format::Lengths lengths = ReadLengths(At(handle));
  const SeenBlock unknown{{begin, begin + (std::uint64_t{1} << shift_)}, {}};
  if (lengths.header == 0) return unknown;
  const Part block{begin, begin + BytesOf(ClassOf(lengths.key_size, lengths.value_size))};
  const std::uint64_t next_region = FreeRegions::EndOf(begin);
  if (block.end > next_region && (block.end > arena_->end() || large_blocks_.At(next_region) != handle)) return unknown;
  const char* const key = At(handle) + lengths.header;
  std::array<char, kShortKeyMax> copy;
  std::unique_ptr<char[]> long_copy;
  char* to = copy.data();
  if (lengths.key_size > kShortKeyMax) {
    long_copy.reset(new (std::nothrow) char[lengths.key_size]);
    if (to = long_copy.get(); to == nullptr) return {block, {}};
  }
  sync::LoadShared(to, key, lengths.key_size);
  return {block, KeyHash({to, lengths.key_size})};
}

// Frees bytes between blocks in use. Stores the lengths of a record of their size in small pieces.
inline void RecordArena::FreeGap(WriterState& writer, Part gap) {
  pool_->FreeGap(writer.free, {gap.begin, gap.end}, [this](std::uint32_t handle, std::uint64_t bytes) { StoreLengths(handle, bytes); });
}

// Stores the lengths of a record of this size.
inline void RecordArena::StoreLengths(std::uint32_t handle, std::uint64_t bytes) {
  char lengths[format::kLengthsMax];
  const std::uint64_t value_size = std::min(bytes - format::LengthsSize(0, bytes), kValueSizeMax);
  sync::StoreSharedHeader<2>(At(handle), lengths, format::EncodeLengths(lengths, 0, value_size));
}

}  // namespace hako::hash
