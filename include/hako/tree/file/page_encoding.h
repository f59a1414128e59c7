// Encodes pages as images, compressed or not (format/tree_file_format.h). An image has no room to
// grow and no garbage.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/format/tree_file_format.h"

namespace hako::tree {

// Encodes a locked page and returns the size of its image. `out` has room for kPageImageMax bytes;
// `inlined` = bytes of a suffix that a head holds.
inline std::size_t EncodePage(std::uint32_t id, const format::PageShape& shape, const char* base, unsigned inlined, char* out) {
  const unsigned count = shape.count, slots = shape.slots();
  const bool inner = shape.level() > 0;
  const char* const end = base + shape.size();
  const char* const children = base + slots * sizeof(std::int32_t);
  const char* const offsets = children + (inner ? slots * sizeof(std::uint32_t) : 0);
  format::PageTail tail;
  std::memcpy(&tail, end - sizeof(tail), sizeof(tail));

  format::PageImageHeader header{};
  header.id = id;
  header.count = shape.count;
  header.kind = shape.kind & static_cast<std::uint8_t>(~format::PageShape::kMark);
  header.prefix = shape.prefix;
  header.heap = static_cast<std::uint16_t>(shape.heap - tail.garbage);
  char* to = out;
  const auto put = [&to](const void* bytes, std::size_t size) {
    std::memcpy(to, bytes, size);
    to += size;
  };
  put(&header, sizeof(header));
  put(base, count * sizeof(std::int32_t));
  if (inner) put(children, count * sizeof(std::uint32_t));
  if (tail.garbage == 0) {
    put(offsets, count * sizeof(std::uint16_t));
    put(end - shape.heap, shape.heap);
    return static_cast<std::size_t>(to - out);
  }
  char* const new_offsets = to;
  to += count * sizeof(std::uint16_t);
  char* const new_end = to + header.heap;
  unsigned heap = static_cast<unsigned>(sizeof(tail)) + tail.fences() + shape.prefix;
  std::memcpy(new_end - heap, end - heap, heap);
  tail.garbage = 0;
  std::memcpy(new_end - sizeof(tail), &tail, sizeof(tail));
  for (unsigned i = 0; i < count; ++i) {
    std::uint16_t offset;
    std::memcpy(&offset, offsets + i * sizeof(offset), sizeof(offset));
    std::uint64_t word;
    std::memcpy(&word, end - offset, sizeof(word));
    const unsigned size = format::Cell::Decode(word).Size(inlined);
    heap += size;
    std::memcpy(new_end - heap, end - offset, size);
    offset = static_cast<std::uint16_t>(heap);
    std::memcpy(new_offsets + i * sizeof(offset), &offset, sizeof(offset));
  }
  return static_cast<std::size_t>(new_end - out);
}

// Compresses an image to `out`, which is as large as the image. Returns the compressed size, or 0
// if that would not save a unit of the file.
template <PageCodec Codec>
std::size_t Pack(std::span<const char> image, char* out) {
  constexpr std::size_t kHeader = sizeof(format::PageImageHeader);
  const std::size_t units = (image.size() + format::kTreeUnit - 1) / format::kTreeUnit;
  if (units < 2) return 0;
  const std::size_t room = (units - 1) * format::kTreeUnit - kHeader;
  const std::size_t size = Codec::Compress(image.subspan(kHeader), {out + kHeader, room});
  if (size == 0) return 0;
  format::PageImageHeader header;
  std::memcpy(&header, image.data(), kHeader);
  header.packed = static_cast<std::uint16_t>(size);
  std::memcpy(out, &header, kHeader);
  return kHeader + size;
}

// Returns the image itself, or decompresses it into `room`. REQUIRES: `room` has kPageImageMax + 8
// bytes if there may be compressed images (unchecked: without such images any room is enough; with
// less room a compressed image is refused)
template <PageCodec Codec>
StatusOr<std::span<const std::byte>> Unpack(std::uint32_t id, std::span<const std::byte> image, std::span<std::byte> room) {
  format::PageImageHeader header;
  constexpr std::size_t kHeader = sizeof(header);
  if (image.size() < kHeader) return image;  // Parse refuses it
  std::memcpy(&header, image.data(), kHeader);
  const std::size_t packed = header.packed;
  if (packed == 0) return image;
  const bool inner = (header.kind & format::PageShape::kLevel) != 0;
  const std::size_t size = header.count * (inner ? 10u : 6u) + header.heap;
  if (packed > image.size() - kHeader || size > format::kPageImageMax - kHeader || room.size() < format::kPageImageMax + 8 ||
      !Codec::Decompress({reinterpret_cast<const char*>(image.data()) + kHeader, packed},
                         {reinterpret_cast<char*>(room.data()) + kHeader, size}))
    return absl::DataLossError(absl::StrCat("image of page ", id, ": cannot be decompressed"));
  header.packed = 0;
  std::memcpy(room.data(), &header, kHeader);
  return room.first(kHeader + size);
}

}  // namespace hako::tree
