// Definitions of hash/memory/record_arena.h: how memory is allocated, also at the limit
// (hash/record_limit.h).
#pragma once

#include <algorithm>

#include "hako/hash/memory/record_arena.h"

namespace hako::hash {

inline StatusOr<std::uint64_t> RecordArena::AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind) {
  StatusOr<std::uint64_t> offset = byte_limit() != 0 ? TakeIndexExtent(bytes, kind) : index_arena().Allocate(bytes);
  if (offset.ok()) index_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return offset;
}

inline Status RecordArena::CheckBlock(std::uint64_t bytes) const {
  const std::uint64_t most = byte_limit() == 0 ? ~std::uint64_t{0} : byte_limit() / 4;
  return bytes > most ? TooLargeError("a record", bytes, most) : absl::OkStatus();
}

inline Status RecordArena::SetLimit(const Capacity& capacity) {
  HAKO_ASSIGN_OR_RETURN(separate_, storage::Arena::Create(arena_->max_bytes()));
  index_arena_ = separate_.get();
  static_assert(RecordLimit::kUnit == storage::Arena::kExtentAlignment);
  HAKO_ASSIGN_OR_RETURN(uses_, storage::ReservedMemory::Reserve(LineUses::Bytes(index_arena_->max_bytes()) + 4096));
  limit_ = std::make_unique<RecordLimit>(capacity, LineUses(index_arena_->base(), uses_.base()));
  if (capacity.bytes == 0) return absl::OkStatus();
  HAKO_ASSIGN_OR_RETURN(large_blocks_, LargeBlocks::Create(arena_->max_bytes()));
  pool_->SetMagazineBytes(RecordLimit::MagazineBytes(capacity.bytes));
  return absl::OkStatus();
}

inline Status RecordArena::Grow(std::uint64_t bytes) {
  if (!pool_->HasRoomForRun()) return NoMemoryError();
  std::uint64_t size = ChunkSize(arena_->end(), bytes);
  if (byte_limit() != 0) {
    const std::uint64_t room = arena_->room() - std::min(arena_->room(), kKeptForIndex);
    size = std::min(size, room / storage::Arena::kExtentAlignment * storage::Arena::kExtentAlignment);
    if (size < bytes) return absl::ResourceExhaustedError("the database has reached its capacity");
  }
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, arena_->Allocate(size));
  pool_->FreeRun({offset, offset + size});
  return absl::OkStatus();
}

inline std::uint32_t RecordArena::WriteAhead(WriterState& writer, std::uint64_t, std::string_view key, std::string_view value,
                                             Status* error) {
  if (value.size() > kValueSizeMax) {
    *error = TooLargeError("a value", value.size(), kValueSizeMax);
    return 0;
  }
  const unsigned size_class = ClassOf(key.size(), value.size());
  const std::uint64_t bytes = BytesOf(size_class);
  std::uint32_t handle = 0;
  if (*error = CheckBlock(bytes); !error->ok()) return 0;
  while (handle == 0) {
    if (const Run block = pool_->TakeBlock(bytes); block.bytes() != 0) {
      handle = NoteLarge(HandleAt(block.begin), bytes);
    } else if (*error = Grow(bytes); !error->ok()) {
      if (!MayEvict(*error)) return 0;
      gate_.Pass(writer);
      const sync::LeaveAtEnd leave(writer);
      if (handle = CarveByEviction(writer, size_class, error); handle == 0) return 0;
    }
  }
  Put(handle, key, value);
  return handle;
}

// Makes room for a block by eviction, and takes it. First evicts records that are not used much,
// until there is a free block of the size, or, if much memory is free, a larger one to divide. If
// there is still none, or if much memory is free in smaller blocks, evicts all records of a part of
// the arena, which then becomes a run.
[[gnu::noinline]] inline std::uint32_t RecordArena::CarveByEviction(WriterState& writer, unsigned size_class, Status* error) {
  static constexpr unsigned kWanted = 24, kRounds = 8;
  const std::uint64_t end = arena_->end();
  if (const std::uint64_t total = total_bytes(); total > byte_limit()) limit_->excess_extent().Ask(total - byte_limit());
  if (!pool_->IsSmall(size_class)) {
    const std::uint32_t handle = CarveLarge(writer, size_class, error);
    return handle != 0 ? NoteLarge(handle, BytesOf(size_class)) : 0;
  }
  std::uint64_t emptied = 0;
  if (pool_->free_bytes() >= end / 16) {
    if (const std::uint32_t handle = TakeFreed(writer, size_class); handle != 0) return *error = absl::OkStatus(), handle;
  }
  for (unsigned round = 0; emptied < 3 * end; ++round) {
    if (round < kRounds && pool_->free_bytes() < end / 16) {
      if (limit_->Evict(writer, kWanted) == 0) round = kRounds;
    } else {
      emptied += EvictNextWindow(writer, emptied == 0);
    }
    if (const std::uint32_t handle = TakeFreed(writer, size_class); handle != 0) {
      if (emptied != 0) pool_->DropOutdated();
      *error = absl::OkStatus();
      return handle;
    }
  }
  *error = NoRoomError();
  return 0;
}

// Evicts the records of the next part of the arena or, with `chooses`, of the part with the most
// free bytes among the next ones. Returns the size of the part.
inline std::uint64_t RecordArena::EvictNextWindow(WriterState& writer, bool chooses) {
  static constexpr unsigned kCandidates = 16;
  const std::uint64_t end = arena_->end();
  Part window;
  std::uint64_t most = 0;
  for (unsigned i = 0; i < (chooses ? kCandidates : 1); ++i) {
    const Part candidate = limit_->NextWindow(end);
    const std::uint64_t free = pool_->CountedIn({candidate.begin, std::min(candidate.end, end)});
    if (i == 0 || free > most) window = candidate, most = free;
  }
  limit_->EvictPart(writer, window);
  return window.bytes();
}

inline std::uint32_t RecordArena::TakeFreed(WriterState& writer, unsigned size_class) {
  const std::uint64_t bytes = BytesOf(size_class);
  if (pool_->IsSmall(size_class)) {
    if (const std::uint32_t handle = pool_->Pop(writer.free, size_class); handle != 0) return handle;
  }
  pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  if (!pool_->IsSmall(size_class)) {
    const Run block = pool_->TakeBlock(bytes);
    return HandleAt(block.begin);
  }
  if (writer.chunk = pool_->TakeChunk(bytes, ChunkBytes()); writer.chunk.bytes() != 0) return Carve(writer, size_class);
  Run block = pool_->TakeSmallBlock(FreeBlockPool::kFree, size_class);
  if (block.bytes() == 0) return 0;
  FreeGap(writer, {block.begin + bytes, block.end});
  return HandleAt(block.begin);
}

// While the arena has room, its limit is lowered by the memory that the index takes. After that the
// index takes memory that the arena has returned to the system. Home lines can wait for such
// memory: the table continues with longer chains. An overflow line cannot wait, because the update
// would fail, so the arena returns one extent in advance. The next writer that inserts a record
// returns the missing memory.
inline StatusOr<std::uint64_t> RecordArena::TakeIndexExtent(std::uint64_t bytes, IndexExtent kind) {
  const bool is_overflow = kind == IndexExtent::kOverflowLines;
  const std::uint64_t with_bits = bytes + bytes / LineUses::kLinesPerByte;
  SpareExtent& spare = is_overflow ? limit_->overflow_extent() : limit_->home_extent();
  if (arena_->room() >= with_bits + (is_overflow ? 0 : kKeptForIndex)) {
    arena_->LowerLimit(with_bits);
    if (arena_->room() < kKeptForIndex) limit_->overflow_extent().Ask(storage::Arena::kExtentAlignment);
    return index_arena_->Allocate(bytes);
  }
  const bool is_returned = spare.Take(bytes);
  if (is_overflow || !is_returned) spare.Ask(bytes);
  if (is_returned) return index_arena_->Allocate(bytes);
  return absl::ResourceExhaustedError("no memory for the index within the capacity of the database");
}

// Returns the memory that the index has requested to the system.
inline void RecordArena::ReserveExtents(WriterState& writer) {
  if (writer.failed_searches != limit_->failed_searches()) {
    writer.failed_searches = limit_->failed_searches();
    ReturnChunk(writer);
  }
  if (limit_->SearchPauses()) return;
  for (SpareExtent* spare : {&limit_->overflow_extent(), &limit_->excess_extent(), &limit_->home_extent()}) {
    const std::uint64_t asked = spare->TakeAsked();
    if (asked == 0) continue;
    const std::uint64_t returned = ReturnExtents(writer, asked);
    if (spare != &limit_->excess_extent()) spare->Offer(returned);
    pool_->DropOutdated();
    if (returned < asked) spare->Ask(asked - returned);
    if (returned == 0) limit_->NoteFailedSearch(index_bytes() / sizeof(format::BucketLine));
  }
}

// Returns the last extents that consist of records, and of free blocks that no thread holds, to the
// system. The result is the number of bytes returned.
inline std::uint64_t RecordArena::ReturnExtents(WriterState& writer, std::uint64_t asked) {
  const Part part = limit_->NextReturned(arena_->end());
  const RecordWindows windows = Survey(writer, part, part);
  std::uint64_t returned = 0;
  for (std::uint64_t end = part.end; end > part.begin && returned < asked; end -= RecordLimit::kUnit) {
    const Part extent{end - RecordLimit::kUnit, end};
    const std::optional<Part> window = windows.WindowAt(extent.begin);
    if (!window) continue;
    limit_->EvictPart(writer, *window);
    pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
    if (!pool_->TakePart({extent.begin, extent.end})) continue;  // another thread has a block of it now
    holes_.fetch_add(extent.bytes(), std::memory_order_relaxed);
    large_blocks_.AddHole(extent);
    arena_->Discard(extent.begin, extent.bytes());
    returned += extent.bytes();
  }
  if (returned < asked) limit_->EndReturned(part);
  return returned;
}

}  // namespace hako::hash
