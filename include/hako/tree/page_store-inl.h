// Definitions of tree/page_store.h: reading several images, moving them, and copying a checkpoint.
#pragma once

#include "hako/tree/page_store.h"

namespace hako::tree {

// In the order of the file. Neighbours are read as one run of whole blocks.
template <File FileT>
void PageStore<FileT>::ReadMulti(std::span<ImageRequest> images) requires BatchFile<FileT> {
  struct Found {
    ImageRequest* image;
    Entry entry;
    std::size_t begin = 0;  // of its bytes in the buffer
  };
  if (min_read_size_ != 0) return;
  // Reading the gap takes no longer than another read.
  static constexpr std::size_t kRoomAlignment = 4096, kGapMax = 16 << 10;
  ScratchBuffer& buffer = ThreadScratch<PageStore>::Get();
  buffer.Trim();
  absl::InlinedVector<Found, 32> found;
  std::shared_lock<std::shared_mutex> not_cut;
  {
    std::unique_lock lock(map_mutex_);
    // May release the lock.
    for (const ImageRequest& image : images) (void)map_.At(image.id, NodeReader(lock));
    for (ImageRequest& image : images) {
      const Entry* const at = map_.Find(image.id);
      if (at != nullptr && !at->IsNone() && IsInFile(*at) && at->units() * format::kTreeUnit <= format::kPageImageMax)
        found.push_back({&image, *at});
    }
    not_cut = std::shared_lock(cut_mutex_);
    map_bytes_.store(map_.bytes(), std::memory_order_relaxed);
  }
  std::ranges::sort(found, {}, [](const Found& one) { return one.entry.place(); });

  std::uint64_t block = 1, end = 0;  // end: of the last run, in the file
  if constexpr (requires { file_.block_size(); }) block = file_.block_size();
  struct Piece {
    std::uint64_t offset;
    std::size_t begin, size;  // in the buffer
  };
  absl::InlinedVector<Piece, 32> runs;
  std::size_t room_end = 0;
  for (Found& one : found) {
    const std::uint64_t from = one.entry.place() * format::kTreeUnit, first = from & ~(block - 1);
    if (runs.empty() || first > end + kGapMax) runs.push_back({first, room_end, 0});
    Piece& run = runs.back();
    const std::uint64_t to = (from + one.entry.units() * format::kTreeUnit + block - 1) & ~(block - 1);
    // A damaged map may name a place within another.
    end = std::max(end, std::min(to, file_.Size()));
    one.begin = run.begin + (from - run.offset);
    run.size = end - run.offset;
    // 8: see PageImage.
    room_end = (run.begin + run.size + 8 + kRoomAlignment - 1) / kRoomAlignment * kRoomAlignment;
  }
  auto* const room = reinterpret_cast<std::byte*>(buffer.Take(room_end));
  if (room == nullptr) return;
  absl::InlinedVector<ReadRequest, 32> reads;
  for (const Piece& run : runs) reads.push_back({run.offset, {room + run.begin, run.size}});
  reads_.fetch_add(reads.size(), std::memory_order_relaxed);
  for (const ReadRequest& read : reads) read_bytes_.fetch_add(read.out.size(), std::memory_order_relaxed);
  if (reads.empty() || !file_.ReadMulti(reads).ok()) return;
  for (const Found& one : found) {
    const std::span<const std::byte> image(room + one.begin, one.entry.units() * format::kTreeUnit);
    if (Hash64(image.data(), image.size(), SeedOf(one.image->id)) == one.entry.check) one.image->image = image;
  }
}

template <File FileT>
Status PageStore<FileT>::ReadLong(std::uint32_t id, const Entry& entry, std::span<char> out) {
  if (entry.IsNone() || entry.units() != UnitsFor(out.size()))
    return absl::DataLossError(absl::StrCat("long value ", id, " is not in the page map"));
  static constexpr std::size_t kPart = 1 << 20;
  const std::span<std::byte> bytes = std::as_writable_bytes(out);
  reads_.fetch_add(1, std::memory_order_relaxed);
  read_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
  for (std::size_t at = 0; at < bytes.size(); at += kPart) {
    std::shared_lock<std::shared_mutex> not_cut;
    {
      std::lock_guard lock(map_mutex_);  // otherwise CutFile might wait for ever
      not_cut = std::shared_lock(cut_mutex_);
    }
    if (!IsInFile(entry))
      return DataLossError(absl::StrCat("long value ", id, " lies outside the file"), entry.place() * format::kTreeUnit);
    const std::span<std::byte> part = bytes.subspan(at, std::min(kPart, bytes.size() - at));
    HAKO_RETURN_IF_ERROR(file_.ReadAt(entry.place() * format::kTreeUnit + at, part));
  }
  if (Hash64(bytes.data(), bytes.size(), SeedOf(id)) == entry.check) return absl::OkStatus();
  return DataLossError(absl::StrCat("long value ", id, " fails its checksum"), entry.place() * format::kTreeUnit);
}

template <File FileT>
auto PageStore<FileT>::BeginMoving() -> StatusOr<Moving> {
  Moving moving;
  HAKO_RETURN_IF_ERROR(map_.ForEach(NodeLoader(), [&](int level, std::uint64_t number, const Entry& entry) {
    // It is far enough forward.
    if (entry.place() + entry.units() <= format::kTreeFirstUnit + space_.used_units()) return absl::OkStatus();
    if (level < 0) {
      moving.images.push_back({static_cast<std::uint32_t>(number), entry});
    } else {
      std::lock_guard lock(map_mutex_);
      map_.MarkChanged(static_cast<unsigned>(level), number);
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
  is_moving_ = true;
  std::string bytes;
  std::uint64_t moved = 0;
  for (std::uint64_t moved_bytes = 0; moving->next < moving->images.size() && moved_bytes < max_bytes;) {
    const auto& [id, entry] = moving->images[moving->next++];
    {
      std::unique_lock lock(map_mutex_);
      HAKO_ASSIGN_OR_RETURN(const Entry* now, map_.At(id, NodeReader(lock)));
      // A checkpoint has written it elsewhere.
      if (std::memcmp(now, &entry, sizeof(entry)) != 0) continue;
    }
    bytes.resize(entry.units() * format::kTreeUnit);
    const FreeSpaceMap::Run run = space_.TakeFirst(entry.units(), entry.place(), &moving->front);
    if (run.units == 0) continue;
    const std::span<std::byte> out(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
    const Status copied = CatchNoMemory([&, from = entry]() -> Status {
      HAKO_RETURN_IF_ERROR(ReadAt(from, out));
      return WriteAt(run.place * format::kTreeUnit, out);
    });
    if (!copied.ok()) space_.Free(run.place, run.units);
    HAKO_RETURN_IF_ERROR(copied);
    HAKO_RETURN_IF_ERROR(Exchange(id, Entry::For(run.place, run.units, entry.check)));
    moved_bytes += bytes.size();
    ++moved;
  }
  return moved;
}

template <File FileT>
template <File OtherFile>
Status PageStore<FileT>::Copy(const Pinned& pinned, OtherFile& out) const {
  HAKO_RETURN_IF_ERROR(out.Resize(pinned.super.end * format::kTreeUnit));
  const AlignedBuffer bytes = MakeAlignedBuffer(kRunUnits * format::kTreeUnit);
  for (const FreeSpaceMap::Run& run : pinned.runs) {
    for (std::uint64_t at = 0; at < run.units && run.place + at < pinned.super.end; at += kRunUnits) {
      const std::uint64_t units = std::min({kRunUnits, run.units - at, pinned.super.end - run.place - at});
      const std::span<std::byte> part(bytes.get(), units * format::kTreeUnit);
      HAKO_RETURN_IF_ERROR(file_.ReadAt((run.place + at) * format::kTreeUnit, part));
      HAKO_RETURN_IF_ERROR(out.WriteAt((run.place + at) * format::kTreeUnit, part));
    }
  }
  HAKO_RETURN_IF_ERROR(out.Sync());
  HAKO_RETURN_IF_ERROR(out.WriteAt(pinned.super.sequence % 2 * storage::kSlotDistance, std::as_bytes(std::span(&pinned.super, 1))));
  return out.Sync();
}

}  // namespace hako::tree
