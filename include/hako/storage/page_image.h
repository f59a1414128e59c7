// A page between memory and file: its image has no room to grow and no garbage (format/tree_file_format.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::storage {

// The image of a locked page; its size. `out` has room for kPageImageMax bytes; `inlined` = bytes of a suffix that a head holds.
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

// Compresses an image to `out`, which has room for as much; its size then, or 0 if no unit of the file would be saved.
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

// The image that was read, or what it is when it is no longer compressed, in `room` for one and 8 bytes.
template <PageCodec Codec>
StatusOr<std::span<const std::byte>> Unpack(std::uint32_t id, std::span<const std::byte> image, std::span<std::byte> room) {
  format::PageImageHeader header;
  constexpr std::size_t kHeader = sizeof(header);
  if (image.size() < kHeader) return image;  // which Parse refuses
  std::memcpy(&header, image.data(), kHeader);
  const std::size_t packed = header.packed;
  if (packed == 0) return image;
  const bool inner = (header.kind & format::PageShape::kLevel) != 0;
  const std::size_t size = header.count * (inner ? 10u : 6u) + header.heap;
  if (packed > image.size() - kHeader || size > format::kPageImageMax - kHeader || room.size() < format::kPageImageMax + 8 ||
      !Codec::Decompress({reinterpret_cast<const char*>(image.data()) + kHeader, packed},
                         {reinterpret_cast<char*>(room.data()) + kHeader, size}))
    return absl::DataLossError(absl::StrCat("the image of page ", id, " cannot be decompressed"));
  header.packed = 0;
  std::memcpy(room.data(), &header, kHeader);
  return room.first(kHeader + size);
}

// An image that was read, and proved to stay inside of itself.
class PageImage {
 public:
  // `bytes` may go on behind the image. REQUIRES: 8 bytes more can be read
  static StatusOr<PageImage> Parse(std::uint32_t id, std::span<const std::byte> bytes, unsigned inlined, std::uint32_t id_end) {
    PageImage image;
    const auto wrong = [id](const char* what) { return absl::DataLossError(absl::StrCat("the image of page ", id, ": ", what)); };
    if (bytes.size() < sizeof(image.header_)) return wrong("it is cut short");
    std::memcpy(&image.header_, bytes.data(), sizeof(image.header_));
    const format::PageImageHeader& header = image.header_;
    if (header.id != id) return wrong("it is that of another page");
    if (header.packed != 0) return wrong("it is compressed");
    constexpr std::uint8_t kKinds = format::PageShape::kLevel | format::PageShape::kGuarded;
    if ((header.kind & ~kKinds) != 0 || header.reserved != std::array<std::byte, 4>{}) return wrong("what is reserved is not zero");
    format::PageShape& shape = image.shape_;
    shape.count = header.count;
    shape.kind = header.kind;
    shape.prefix = header.prefix;
    shape.heap = header.heap;
    const unsigned count = shape.count, level = shape.level();
    if (count > format::kPageSlotsMax || (level > 0 && count == 0)) return wrong("bad header");
    shape.groups = format::GroupsFor(level > 0 ? format::kPageSlotsMax : count);
    const unsigned units = (shape.slots() * shape.slot_size() + shape.heap + format::kPageUnit - 1) / format::kPageUnit;
    if (units > format::kPageUnitsMax || bytes.size() < sizeof(header) + count * shape.slot_size() + shape.heap) return wrong("bad size");
    shape.units = static_cast<std::uint8_t>(units);

    image.heads_ = reinterpret_cast<const char*>(bytes.data()) + sizeof(header);
    image.children_ = image.heads_ + count * sizeof(std::int32_t);
    image.offsets_ = image.children_ + (level > 0 ? count * sizeof(std::uint32_t) : 0);
    const char* const end = image.offsets_ + count * sizeof(std::uint16_t) + shape.heap;
    format::PageTail tail;
    if (shape.heap < sizeof(tail)) return wrong("bad heap");
    std::memcpy(&tail, end - sizeof(tail), sizeof(tail));
    const unsigned fixed = static_cast<unsigned>(sizeof(tail)) + tail.low + tail.high + shape.prefix;
    if (fixed > shape.heap || tail.garbage != 0) return wrong("bad tail");
    if (std::max({tail.low, tail.high, shape.prefix}) > kTreeKeySizeMax) return wrong("a fence is too long");
    // Cells lie one beside the other: each has two ends, and each place where they meet is an end of two.
    std::array<std::uint64_t, format::kPageImageMax / 64 + 1> ends{};
    unsigned cells = 0;
    const auto flip = [&ends](unsigned at) { ends[at / 64] ^= std::uint64_t{1} << at % 64; };
    flip(fixed);
    flip(shape.heap);
    for (unsigned i = 0; i < count; ++i) {
      const unsigned offset = image.At<std::uint16_t>(image.offsets_, i);
      if (offset > shape.heap) return wrong("a cell lies outside");
      std::uint64_t word;
      std::memcpy(&word, end - offset, sizeof(word));
      const format::Cell cell = format::Cell::Decode(word);
      const unsigned size = cell.Size(inlined);
      if (size + fixed > offset) return wrong("a cell reaches too far");
      if (cell.suffix + shape.prefix > kTreeKeySizeMax) return wrong("a key is too long");
      cells += size;
      flip(offset);
      flip(offset - size);
      const auto head = image.At<std::int32_t>(image.heads_, i);
      if (level > 0 && i == 0 ? head != format::kLowestHead : i > 0 && head < image.At<std::int32_t>(image.heads_, i - 1))
        return wrong("its heads do not rise");
      if (level > 0 && (image.child(i) == 0 || image.child(i) >= id_end)) return wrong("it names a page that cannot be");
    }
    if (cells + fixed != shape.heap || std::ranges::any_of(ends, [](std::uint64_t word) { return word != 0; }))
      return wrong("its cells do not fill its heap");
    return image;
  }

  const format::PageShape& shape() const { return shape_; }
  std::uint32_t child(unsigned i) const { return At<std::uint32_t>(children_, i); }

  // Writes the page to shape().size() bytes at `base`, which late readers of what was there may be reading; and its hints.
  void Store(char* base, std::int32_t* hints) const {
    const unsigned count = shape_.count, slots = shape_.slots();
    std::array<std::int32_t, format::kPageSlotsMax> heads;
    heads.fill(format::kNoHead);
    std::memcpy(heads.data(), heads_, count * sizeof(std::int32_t));
    sync::StoreShared(base, reinterpret_cast<const char*>(heads.data()), slots * sizeof(std::int32_t));
    char* to = base + slots * sizeof(std::int32_t);
    if (shape_.level() > 0) {
      sync::StoreShared(to, children_, count * sizeof(std::uint32_t));
      to += slots * sizeof(std::uint32_t);
    }
    sync::StoreShared(to, offsets_, count * sizeof(std::uint16_t));
    sync::StoreShared(base + shape_.size() - shape_.heap, offsets_ + count * sizeof(std::uint16_t), shape_.heap);
    for (unsigned hint = 0; hint < format::kPageHints; ++hint) {
      const unsigned slot = (hint + 1) * format::kSlotGroup;
      std::atomic_ref(hints[hint]).store(slot < count ? heads[slot] : format::kNoHead, std::memory_order_relaxed);
    }
  }

 private:
  template <class T>
  static T At(const char* array, unsigned i) {
    T value;
    std::memcpy(&value, array + i * sizeof(T), sizeof(T));
    return value;
  }

  format::PageImageHeader header_;
  format::PageShape shape_;
  const char *heads_ = nullptr, *children_ = nullptr, *offsets_ = nullptr;
};

}  // namespace hako::storage
