// Definitions of tree/page_store.h: moving images to the front of the file, so that it can be cut.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "hako/tree/page_store.h"

namespace hako::tree {

template <File FileT>
auto PageStore<FileT>::BeginMoving() -> StatusOr<Moving> {
  Moving moving;
  HAKO_RETURN_IF_ERROR(pages_.ForEach([&](int level, std::uint64_t number, const Entry& entry) {
    // It is far enough forward.
    if ((entry.place() + entry.units()) * format::kTreeUnit <= space_.used_bytes()) return absl::OkStatus();
    if (level < 0) {
      moving.images.push_back({static_cast<std::uint32_t>(number), entry});
    } else {
      pages_.MarkChanged(static_cast<unsigned>(level), number);
      ++moving.num_nodes;
    }
    return absl::OkStatus();
  }));
  using Image = typename Moving::Image;
  std::ranges::sort(moving.images, [](const Image& a, const Image& b) { return a.entry.place() > b.entry.place(); });
  return moving;
}

// Images that move to adjacent places are written together.
template <File FileT>
StatusOr<std::uint64_t> PageStore<FileT>::MoveForward(Moving* moving, std::uint64_t max_bytes) {
  space_.PreferFront();
  const AlignedBuffer buffer = MakeAlignedBuffer(kMovingPart, HugePagesFor(file_.size(), kMovingPart));
  std::vector<Move> moves;
  moves.reserve(kMovingPart / format::kTreeUnit);
  std::uint64_t moved = 0, bytes = 0;
  const auto move_all = [&]() -> Status {
    if (moves.empty()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(MoveImages(moves, buffer.get()));
    moved += moves.size();
    moves.clear();
    bytes = 0;
    return absl::OkStatus();
  };
  for (std::uint64_t moved_bytes = 0; moving->next < moving->images.size() && moved_bytes < max_bytes;) {
    const auto& [id, entry] = moving->images[moving->next++];
    HAKO_ASSIGN_OR_RETURN(const Entry now, pages_.EntryOf(id));
    // A checkpoint has written it elsewhere.
    if (std::memcmp(&now, &entry, sizeof(entry)) != 0) continue;
    const std::uint64_t size = entry.units() * format::kTreeUnit;
    const FreeSpaceMap::Run run = space_.map().TakeFirst(entry.units(), entry.place(), &moving->front);
    if (run.units == 0) continue;
    const bool is_next = !moves.empty() && run.place == moves.back().to.place + moves.back().to.units;
    if (!is_next || bytes + size > kMovingPart) {
      const Status status = move_all();
      if (!status.ok()) space_.Free(run);
      HAKO_RETURN_IF_ERROR(status);
    }
    moves.push_back({id, entry, run});
    bytes += size;
    moved_bytes += size;
  }
  HAKO_RETURN_IF_ERROR(move_all());
  return moved;
}

template <File FileT>
Status PageStore<FileT>::MoveImages(std::span<const Move> moves, std::byte* buffer) {
  Status status = CatchNoMemory([&] { return CopyImages(moves, buffer); });
  for (const Move& move : moves) {
    if (!status.ok())
      space_.Free(move.to);
    else
      status = Exchange(move.id, Entry::For(move.to.place, move.to.units, move.from.check));
  }
  return status;
}

template <File FileT>
Status PageStore<FileT>::CopyImages(std::span<const Move> moves, std::byte* buffer) {
  std::uint64_t place = moves.front().to.place * format::kTreeUnit, filled = 0;  // where the buffer's bytes go, and how many
  const auto write = [&]() -> Status {
    HAKO_RETURN_IF_ERROR(file_.WriteAt(place, {buffer, filled}));
    place += std::exchange(filled, 0);
    return absl::OkStatus();
  };
  for (const Move& move : moves) {
    const std::uint64_t size = move.to.units * format::kTreeUnit;
    file_.CountReads(1, size);
    for (std::uint64_t at = 0; at < size;) {
      if (filled == kMovingPart) HAKO_RETURN_IF_ERROR(write());
      const std::uint64_t part = std::min(kMovingPart - filled, size - at);
      HAKO_RETURN_IF_ERROR(file_.ReadAt(move.from.place() * format::kTreeUnit + at, {buffer + filled, part}));
      filled += part;
      at += part;
    }
  }
  return write();
}

}  // namespace hako::tree
