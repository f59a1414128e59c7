// Definitions of hash/memory/record_arena.h: how a large record gets a run of free bytes once the
// arena has reached its limit. One window of the arena is emptied (hash/memory/record_windows.h).
// The small records in it that were used are moved together to another place.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "hako/hash/memory/record_arena.h"
#include "hako/hash/memory/record_windows.h"

namespace hako::hash {

// As long as most records are large, evicts single records in the order of their use. If no window
// can be emptied because other threads hold or take free blocks in it, the next try keeps these
// threads out.
[[gnu::noinline]] inline std::uint32_t RecordArena::CarveLarge(WriterState& writer, unsigned size_class, Status* error) {
  static constexpr unsigned kRounds = 8, kTries = 16, kPatience = 90;
  writer.AssertBusy();
  const std::uint64_t bytes = BytesOf(size_class);
  *error = absl::OkStatus();
  ReturnChunk(writer);
  std::uint32_t handle = TakeFreed(writer, size_class);
  for (unsigned round = 0; round < kRounds && handle == 0 && pool_->free_bytes() < arena_->end() / 16; ++round) {
    const std::uint64_t before = pool_->free_bytes();
    if (limit_->Evict(writer, 1) == 0) break;
    handle = TakeFreed(writer, size_class);
    if (pool_->free_bytes() < before + bytes / 8) break;
  }
  const auto empty = [&] {
    handle = TakeFreed(writer, size_class);
    if (handle == 0) handle = CarveWindow(writer, size_class);
  };
  const auto for_each = [this](auto&& visit) { limit_->ForEachWriter(visit); };
  // Take the free blocks of other threads back, because a window that contains one cannot be
  // emptied.
  const auto return_blocks = [this](sync::WriterState& other) {
    gate_.AssertNoWriters();
    ReturnChunk(static_cast<WriterState&>(other));
  };
  const unsigned num_tries = limit_->num_writers() > 1 ? kTries : 2;
  for (unsigned i = 0; i < num_tries && handle == 0; ++i) {
    if (i == 0) {
      gate_.RunBesideBusy(writer, 0, for_each, return_blocks, [] {});
      empty();
    } else {
      gate_.RunBesideBusy(writer, kPatience, for_each, return_blocks, empty);
    }
  }
  if (handle == 0) *error = NoRoomError();
  return handle;
}

inline void RecordArena::ReturnChunk(WriterState& writer) {
  const ChunkRest rest = std::exchange(writer.chunk, {});
  FreeGap(writer, {rest.next, rest.end});
  pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
}

// Empties a window for a block; 0 if there is none, or if other threads have taken blocks of it.
inline std::uint32_t RecordArena::CarveWindow(WriterState& writer, unsigned size_class) {
  const std::uint64_t bytes = BytesOf(size_class);
  const std::optional<Part> run = EmptyWindow(writer, bytes);
  if (!run) return 0;
  // The block begins where the window begins, so that a later record of this size can replace it
  // exactly.
  const bool is_taken = pool_->TakePart({run->begin, run->begin + bytes});
  const std::uint32_t handle = is_taken ? HandleAt(run->begin) : TakeFreed(writer, size_class);
  if (handle != 0) pool_->DropOutdated();
  return handle;
}

// Adds the records and the free bytes of `least`, a part of the section, and of the parts around it
// until there are many records.
inline RecordWindows RecordArena::Survey(WriterState& writer, Part section, Part least) {
  static constexpr unsigned kMost = 40'000;  // takes 4 to 8 ms
  pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
  RecordWindows windows(section);
  const auto newest = limit_->Newest();
  unsigned num_records = 0;
  const auto add = [&](std::uint32_t handle, bool is_used) {
    ++num_records;
    const Part block = PartOf(handle);
    const bool is_small = block.bytes() <= FreeBlockPool::kSmallMax;
    const bool is_newest = !is_small && std::ranges::find(newest, handle) != newest.end();
    const std::uint64_t worth = is_newest  ? RecordWindows::kNewest
                                : !is_used ? RecordWindows::kCold
                                           : (is_small ? RecordWindows::kUsed : RecordWindows::kUsedLarge);
    windows.AddRecord(block, worth, is_used && is_small);
  };
  const auto survey = [&](std::uint64_t at) { limit_->Survey(writer, {at, at + RecordLimit::kUnit}, add); };
  Part part{least.begin, least.begin};
  for (; part.end < section.end && (part.end < least.end || num_records < kMost); part.end += RecordLimit::kUnit) survey(part.end);
  while (part.begin > section.begin && num_records < kMost) survey(part.begin -= RecordLimit::kUnit);
  pool_->ForEachRegion({part.begin, part.end}, [&](std::uint64_t at, std::uint64_t free) { windows.AddFree({at, at + free}); });
  windows.SetSurveyed(part);
  return windows;
}

// Empties the cheapest window of the next sections. Returns nullopt, and evicts nothing, if there
// is none.
inline std::optional<Part> RecordArena::EmptyWindow(WriterState& writer, std::uint64_t bytes) {
  static constexpr std::uint64_t kUnit = RecordLimit::kUnit, kWindows = 8;
  const std::uint64_t end = arena_->end() / kUnit * kUnit;
  const std::uint64_t size = (std::max(bytes, RecordLimit::WindowBytes(end)) + kUnit - 1) / kUnit * kUnit;
  for (std::uint64_t surveyed = 0; surveyed < 2 * end;) {
    const std::uint64_t start = limit_->NextSection(size, end);
    if (start + size > end) return std::nullopt;
    const std::uint64_t last = std::min(start + kWindows * size, end), length = std::min(kWindows * size, last - kUnit);
    RecordWindows windows = Survey(writer, {last - length, last}, {start, start + size});
    const std::optional<RecordWindows::Window> window = windows.Choose(size, start, size / kMovedOf);
    limit_->EndSection(window ? window->run.end : windows.surveyed().end - size + kUnit);
    surveyed += windows.surveyed().bytes();
    if (!window) continue;
    EvictWindow(writer, window->records(), MakeRoomToMove(writer, &windows, *window, 2));
    return window->run;
  }
  return std::nullopt;
}

// Takes a run for the records that are moved out of a window, of at most a quarter of its size. The
// run is a smaller window that is emptied in the same way. `levels` is the number of nested
// windows; the records of the last one are all evicted.
inline ChunkRest RecordArena::MakeRoomToMove(WriterState& writer, RecordWindows* windows, const RecordWindows::Window& window,
                                             unsigned levels) {
  if (window.moved == 0 || levels == 0) return {};
  const std::uint64_t unit = std::uint64_t{1} << shift_;
  const std::uint64_t wanted = window.moved + window.moved / 16 + 2 * FreeBlockPool::kSmallMax;
  const std::uint64_t bytes = std::min(wanted, window.run.bytes() / kMovedOf) / unit * unit;
  windows->SetExcluded(window.run, true);
  if (const Run run = pool_->TakeBlock(bytes); run.bytes() != 0) {
    if (!windows->IsExcluded({run.begin, run.end})) return {run.begin, run.end};
    pool_->FreeRun(run);
  }
  const std::optional<RecordWindows::Window> other = windows->Choose(bytes, 0, levels > 1 ? bytes / kMovedOf : 0);
  if (!other) return {};
  EvictWindow(writer, other->records(), MakeRoomToMove(writer, windows, *other, levels - 1));
  windows->SetExcluded(other->run, false);
  const ChunkRest room{other->run.begin, other->run.begin + bytes};
  return pool_->TakePart({room.next, room.end}) ? room : ChunkRest{};
}

// Evicts the records of a window, or moves them to `room` if they were used, are small, and fit. Frees the
// rest of the room.
inline void RecordArena::EvictWindow(WriterState& writer, Part window, ChunkRest room) {
  const auto skip_to = [&](std::uint64_t next) {
    FreeGap(writer, {room.next, next});
    room.next = next;
  };
  limit_->EvictPart(writer, window, [&](std::uint32_t handle) -> std::uint32_t {
    const Part block = PartOf(handle);
    if (block.bytes() > FreeBlockPool::kSmallMax) return 0;
    // A small block may not cross the end of a region.
    if (const std::uint64_t end = FreeRegions::EndOf(room.next); room.next + block.bytes() > end) skip_to(std::min(end, room.end));
    if (room.bytes() < block.bytes()) return 0;
    const std::uint64_t to = std::exchange(room.next, room.next + block.bytes());
    sync::StoreShared(base_ + to, base_ + block.begin, block.bytes());
    return HandleAt(to);
  });
  if (room.bytes() != 0) skip_to(room.end);
  pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
}

}  // namespace hako::hash
