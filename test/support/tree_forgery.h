// Forges files of TreeDBM: parses a file, changes fields, and writes it with valid checks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "hako/base/hash.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/forged_fields.h"

namespace hako {

// Of the three levels of the map, a file has one node each.
class TreeForgery {
 public:
  using Image = std::vector<std::byte>;
  explicit TreeForgery(const Image& image) : image_(image) {
    format::TreeSuperBlock slots[2];
    for (int i : {0, 1}) std::memcpy(&slots[i], image_.data() + i * storage::kSlotDistance, sizeof(slots[i]));
    super = slots[0].sequence > slots[1].sequence ? slots[0] : slots[1];
    const format::PageEntry* entry = &super.map[0];
    for (int level = 2; level >= 0; --level) {
      for (unsigned i = 0; i < format::kMapFanout; ++i) {
        if (!entry[i].IsNone() || level == 0) break;
      }
      Node& node = nodes_[level];
      node.number = level == 2 ? 0 : FirstNode(level);
      node.offset = Parent(level).place() * format::kTreeUnit;
      std::memcpy(node.entries.data(), image_.data() + node.offset, sizeof(node.entries));
    }
  }

  // The entry of an id. REQUIRES: it is of the first node that is in use, as all are in a small
  // file
  format::PageEntry& EntryOf(std::uint32_t id) { return nodes_[0].entries[id - nodes_[0].number * format::kMapFanout]; }
  std::span<std::byte> ImageOf(std::uint32_t id) {
    const format::PageEntry& entry = EntryOf(id);
    return std::span(image_).subspan(entry.place() * format::kTreeUnit, entry.units() * format::kTreeUnit);
  }
  format::PageImageHeader& HeaderOf(std::uint32_t id) { return *reinterpret_cast<format::PageImageHeader*>(ImageOf(id).data()); }
  Le<std::uint32_t>* ChildrenOf(std::uint32_t id) {
    return reinterpret_cast<Le<std::uint32_t>*>(ImageOf(id).data() + sizeof(format::PageImageHeader) + HeaderOf(id).count * 4u);
  }
  std::byte* OffsetsOf(std::uint32_t id) {
    const bool inner = (HeaderOf(id).kind & format::PageShape::kLevel) != 0;
    return ImageOf(id).data() + sizeof(format::PageImageHeader) + HeaderOf(id).count * (inner ? 8u : 4u);
  }
  // Ids of pages of a level.
  std::vector<std::uint32_t> PagesOf(unsigned level) {
    std::vector<std::uint32_t> found;
    for (unsigned i = 0; i < format::kMapFanout; ++i) {
      const auto id = static_cast<std::uint32_t>(nodes_[0].number * format::kMapFanout + i);
      if (id >= super.id_end || EntryOf(id).IsNone() || HeaderOf(id).id != id) continue;
      if ((HeaderOf(id).kind & format::PageShape::kLevel) == level) found.push_back(id);
    }
    return found;
  }

  std::span<std::byte> BytesOfEntry(std::uint32_t id) { return std::as_writable_bytes(std::span(&EntryOf(id), 1)); }

  // The fields of a page's image: those that lay the page out, then the rest of them.
  std::vector<ForgedField> LayoutFieldsOf(std::uint32_t id) {
    using Header = format::PageImageHeader;
    using Tail = format::PageTail;
    const std::size_t tail = TailOf(id);
    return {{offsetof(Header, count), 1},     {offsetof(Header, kind), 1},         {offsetof(Header, prefix), 2},
            {offsetof(Header, heap), 2},      {offsetof(Header, packed), 2},       {tail + offsetof(Tail, low), 2},
            {tail + offsetof(Tail, high), 2}, {tail + offsetof(Tail, garbage), 2}, {tail + offsetof(Tail, edges), 2}};
  }
  std::vector<ForgedField> ContentFieldsOf(std::uint32_t id) {
    std::vector<ForgedField> fields;
    const std::size_t count = HeaderOf(id).count, begin = sizeof(format::PageImageHeader);
    const bool inner = (HeaderOf(id).kind & format::PageShape::kLevel) != 0;
    const std::size_t offsets = begin + count * (inner ? 8 : 4), end = TailOf(id) + sizeof(format::PageTail);
    for (std::size_t at = begin; at < offsets; at += 4) fields.push_back({at, 4});
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t offset;
      std::memcpy(&offset, ImageOf(id).data() + offsets + 2 * i, sizeof(offset));
      fields.insert(fields.end(), {{offsets + 2 * i, 2}, {end - offset, 1}, {end - offset + 1, 1}});
    }
    for (std::size_t at = offsets + 2 * count; at < end; ++at) fields.push_back({at, 1});
    return fields;
  }

  // With right checks, from below.
  Image Finish() {
    for (unsigned i = 0; i < format::kMapFanout; ++i) {
      format::PageEntry& entry = nodes_[0].entries[i];
      const std::uint64_t id = nodes_[0].number * format::kMapFanout + i, size = entry.units() * format::kTreeUnit;
      const std::uint64_t begin = entry.place() * format::kTreeUnit;
      if (entry.IsNone() || size == 0 || size > image_.size() || begin > image_.size() - size) continue;
      const auto header = reinterpret_cast<const format::PageImageHeader*>(image_.data() + entry.place() * format::kTreeUnit);
      if (header->id == id) entry.check = Hash64(header, size, MixBits(super.secret ^ id));  // else a long value: as it was
    }
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      Node& node = nodes_[level];
      std::memcpy(image_.data() + node.offset, node.entries.data(), sizeof(node.entries));
      Parent(static_cast<int>(level)).check =
          Hash64(node.entries.data(), sizeof(node.entries), MixBits(super.secret ^ ((level + 1ull) << 32 | node.number)));
    }
    super.check = format::CheckOf(super);
    for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance})
      std::memcpy(image_.data() + offset, &super, sizeof(super));
    return image_;
  }

  format::TreeSuperBlock super;

 private:
  std::size_t TailOf(std::uint32_t id) {
    const format::PageImageHeader& header = HeaderOf(id);
    const std::size_t slot = (header.kind & format::PageShape::kLevel) != 0 ? 10 : 6;
    return sizeof(header) + header.count * slot + header.heap - sizeof(format::PageTail);
  }
  struct Node {
    std::uint64_t number = 0, offset = 0;
    std::array<format::PageEntry, format::kMapFanout> entries;
  };
  std::uint64_t FirstNode(int level) const {
    const Node& above = nodes_[level + 1];
    for (unsigned i = 0; i < format::kMapFanout; ++i) {
      if (!above.entries[i].IsNone()) return above.number * format::kMapFanout + i;
    }
    return 0;
  }
  format::PageEntry& Parent(int level) {
    if (level == 2) return super.map[nodes_[2].number];
    return nodes_[level + 1].entries[nodes_[level].number % format::kMapFanout];
  }

  Image image_;
  Node nodes_[format::kMapLevels];
};

}  // namespace hako
