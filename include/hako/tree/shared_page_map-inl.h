// Definitions of tree/shared_page_map.h: reading images and long values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/container/inlined_vector.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/hash_stream.h"
#include "hako/base/scratch_buffer.h"
#include "hako/tree/shared_page_map.h"

namespace hako::tree {

template <File FileT>
StatusOr<std::size_t> SharedPageMap<FileT>::Read(std::uint32_t id, std::span<std::byte> out) {
  HAKO_DCHECK(out.size() >= format::kPageImageMax);
  for (Entry tried{};;) {
    Entry entry;
    {
      sync::MutexLock lock(mutex_);
      HAKO_ASSIGN_OR_RETURN(const Entry* at, map_.At(id, NodeReader()));
      entry = *at;
      NoteBytes();
      cut_mutex_.LockShared();
    }
    const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
    if (!file_.Has(entry)) return DataLossError(absl::StrCat("page ", id, " lies outside the file"), entry.place() * format::kTreeUnit);
    const std::uint64_t size = entry.units() * format::kTreeUnit;
    if (entry.IsNone() || size > out.size()) return absl::DataLossError(absl::StrCat("page ", id, " is not in the page map, or too large"));
    HAKO_RETURN_IF_ERROR(file_.Read(entry, out.first(size)));
    if (Hash64(out.data(), size, SeedOf(id)) == entry.check) return size;
    // Otherwise it may have been moved.
    if (std::memcmp(&entry, &tried, sizeof(entry)) == 0)
      return DataLossError(absl::StrCat("page ", id, " fails its checksum"), entry.place() * format::kTreeUnit);
    tried = entry;
  }
}

// In the order of the file. Neighbours are read as one run of whole blocks.
template <File FileT>
void SharedPageMap<FileT>::ReadMulti(std::span<ImageRequest> images) requires BatchFile<FileT> {
  ScratchBuffer& buffer = ThreadScratch<SharedPageMap>::Get();
  buffer.Trim();
  absl::InlinedVector<Found, 32> found;
  found.reserve(images.size());
  {
    sync::MutexLock lock(mutex_);
    // May release the lock.
    for (const ImageRequest& image : images) (void)map_.At(image.id, NodeReader());
    for (ImageRequest& image : images) {
      const Entry* const at = map_.Find(image.id);
      if (at != nullptr && !at->IsNone() && file_.Has(*at) && at->units() * format::kTreeUnit <= format::kPageImageMax)
        found.push_back({&image, *at});
    }
    NoteBytes();
    cut_mutex_.LockShared();
  }
  const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
  std::ranges::sort(found, {}, [](const Found& one) { return one.entry.place(); });
  ReadRuns(found, buffer);
}

// Reads images in the order of the file.
template <File FileT>
void SharedPageMap<FileT>::ReadRuns(std::span<Found> found, ScratchBuffer& buffer) requires BatchFile<FileT> {
  // Reading the gap takes no longer than another read.
  static constexpr std::size_t kRoomAlignment = 4096, kGapMax = 16 << 10;
  std::uint64_t block = 1, end = 0;  // end: of the last run, in the file
  if constexpr (requires { file_.device().block_size(); }) block = file_.device().block_size();
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
    end = std::max(end, std::min(to, file_.size()));
    one.begin = run.begin + (from - run.offset);
    run.size = end - run.offset;
    // 8: see PageImage.
    room_end = (run.begin + run.size + 8 + kRoomAlignment - 1) / kRoomAlignment * kRoomAlignment;
  }
  auto* const room = reinterpret_cast<std::byte*>(buffer.Take(room_end));
  if (room == nullptr || runs.empty()) return;
  absl::InlinedVector<ReadRequest, 32> reads;
  for (const Piece& run : runs) reads.push_back({run.offset, {room + run.begin, run.size}});
  if (!file_.ReadMulti(reads).ok()) return;
  for (const Found& one : found) {
    const std::span<const std::byte> image(room + one.begin, one.entry.units() * format::kTreeUnit);
    if (Hash64(image.data(), image.size(), SeedOf(one.image->id)) == one.entry.check) one.image->image = image;
  }
}

template <File FileT>
Status SharedPageMap<FileT>::CheckLong(std::uint32_t id, const Entry& entry, std::size_t size) {
  const AlignedBuffer buffer = MakeAlignedBuffer(std::min(kLongPart, size));
  char* const bytes = reinterpret_cast<char*>(buffer.get());
  return ReadParts(id, entry, size, [bytes](std::size_t, std::size_t part) { return std::span(bytes, part); });
}

// Reads the bytes from `at` on to out(at, size).
template <File FileT>
template <class Out>
Status SharedPageMap<FileT>::ReadParts(std::uint32_t id, const Entry& entry, std::size_t size, Out&& out) {
  if (entry.IsNone() || entry.units() != format::TreeUnitsFor(size))
    return absl::DataLossError(absl::StrCat("long value ", id, " is not in the page map"));
  file_.CountReads(1, size);
  HashStream hash(SeedOf(id));
  for (std::size_t at = 0; at < size; at += kLongPart) {
    {
      sync::MutexLock lock(mutex_);  // otherwise Cut might wait for ever
      cut_mutex_.LockShared();
    }
    const sync::SharedLock not_cut(cut_mutex_, std::adopt_lock);
    if (!file_.Has(entry))
      return DataLossError(absl::StrCat("long value ", id, " lies outside the file"), entry.place() * format::kTreeUnit);
    const std::span<std::byte> part = std::as_writable_bytes(out(at, std::min(kLongPart, size - at)));
    HAKO_RETURN_IF_ERROR(file_.ReadAt(entry.place() * format::kTreeUnit + at, part));
    hash.Add(part.data(), part.size());
  }
  if (hash.Get() == entry.check) return absl::OkStatus();
  return DataLossError(absl::StrCat("long value ", id, " fails its checksum"), entry.place() * format::kTreeUnit);
}

}  // namespace hako::tree
