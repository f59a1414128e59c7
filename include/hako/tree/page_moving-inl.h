// Definitions of tree/page_store.h: moving images to the front of the file, so that it can be cut.
#pragma once

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

template <File FileT>
StatusOr<std::uint64_t> PageStore<FileT>::MoveForward(Moving* moving, std::uint64_t max_bytes) {
  space_.PreferFront();
  static constexpr std::size_t kPart = 1 << 20;
  const AlignedBuffer buffer = MakeAlignedBuffer(kPart);
  std::uint64_t moved = 0;
  for (std::uint64_t moved_bytes = 0; moving->next < moving->images.size() && moved_bytes < max_bytes;) {
    const auto& [id, entry] = moving->images[moving->next++];
    HAKO_ASSIGN_OR_RETURN(const Entry now, pages_.EntryOf(id));
    // A checkpoint has written it elsewhere.
    if (std::memcmp(&now, &entry, sizeof(entry)) != 0) continue;
    const std::uint64_t size = entry.units() * format::kTreeUnit;
    const FreeSpaceMap::Run run = space_.map().TakeFirst(entry.units(), entry.place(), &moving->front);
    if (run.units == 0) continue;
    file_.CountReads(1, size);
    const Status copied = CatchNoMemory([&, from = entry]() -> Status {
      for (std::uint64_t at = 0; at < size; at += kPart) {
        const std::span<std::byte> part(buffer.get(), std::min<std::uint64_t>(kPart, size - at));
        HAKO_RETURN_IF_ERROR(file_.ReadAt(from.place() * format::kTreeUnit + at, part));
        HAKO_RETURN_IF_ERROR(file_.WriteAt(run.place * format::kTreeUnit + at, part));
      }
      return absl::OkStatus();
    });
    if (!copied.ok()) space_.Free(run);
    HAKO_RETURN_IF_ERROR(copied);
    HAKO_RETURN_IF_ERROR(Exchange(id, Entry::For(run.place, run.units, entry.check)));
    moved_bytes += size;
    ++moved;
  }
  return moved;
}

}  // namespace hako::tree
