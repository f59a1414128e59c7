// Forges files of HashDBM: parses a file, changes fields, and writes it with valid checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/format/bucket_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/record_format.h"
#include "hako/storage/arena.h"
#include "hako/storage/superblock_slots.h"
#include "support/forged_fields.h"

namespace hako {

// Of a file that was closed: mapped, with its index in extents, or not, with an image of its index
// behind the closing note.
class HashForgery {
 public:
  using Image = std::vector<std::byte>;
  using Line = format::BucketLine;

  explicit HashForgery(const Image& image) : image_(image) {
    format::HashSuperBlock slots[2];
    for (const std::uint64_t i : {0, 1}) std::memcpy(&slots[i], image_.data() + i * storage::kSlotDistance, sizeof(slots[i]));
    super = slots[slots[1].sequence > slots[0].sequence];
    tail_ = super.tail;
    note.assign(At(tail_), At(tail_) + static_cast<std::ptrdiff_t>(super.note_size.get()));
    if (super.index_extents != 0) {
      for (std::uint64_t i = 0; i < super.index_extents; ++i) AddExtent(format::IndexExtentEntry::Unpack(EntryAt(i)));
    } else {
      ReadIndexImage(RoundUp(tail_ + note.size()));
    }
    for (std::uint64_t at = format::kFirstExtent; at < tail_; at += format::kExtentUnit) {
      const format::HeapExtentHeader& header = HeapHeaderAt(at);
      if (header.magic == format::kHeapExtentMagic && header.check == header.CheckAt(at, super.secret)) heap_extents.push_back(at);
    }
  }

  format::HashSuperBlock super;
  Image note;
  std::vector<std::uint64_t> heap_extents;  // offsets

  std::span<std::byte> Super() { return std::as_writable_bytes(std::span(&super, 1)); }
  std::span<std::byte> Live() {
    return std::span(image_).subspan(format::kLiveStateOffset, format::kIndexExtentsOffset - format::kLiveStateOffset);
  }
  std::span<std::byte> Table() { return std::span(image_).subspan(format::kIndexExtentsOffset, 4 * format::kIndexExtentsMax); }
  std::span<std::byte> Bytes(std::uint64_t offset, std::size_t size) { return std::span(image_).subspan(offset, size); }
  format::HeapExtentHeader& HeapHeaderAt(std::uint64_t offset) { return *reinterpret_cast<format::HeapExtentHeader*>(&image_[offset]); }

  // Home lines by number. Of overflow lines, those that are in use, in no order.
  std::uint64_t num_homes() const { return super.num_lines; }
  Line& Home(std::uint64_t index) { return LineAt(homes_[index / kLinesOfExtent], index % kLinesOfExtent); }
  Line& Overflow(std::uint32_t id) {
    if (!IsMapped()) return *reinterpret_cast<Line*>(index_.data() + (std::uint64_t{id} * sizeof(Line) - kArenaBegin));
    return *reinterpret_cast<Line*>(&image_[std::uint64_t{id} * sizeof(Line)]);
  }
  static bool HasLink(const Line& line) { return (line.header & kLink) != 0; }
  static std::uint32_t LinkOf(const Line& line) { return line.slots[format::kLinkEntry]; }
  // Numbers of home lines that have an overflow line.
  std::vector<std::uint64_t> Chained() {
    std::vector<std::uint64_t> found;
    for (std::uint64_t i = 0; i < num_homes(); ++i) {
      if (HasLink(Home(i))) found.push_back(i);
    }
    return found;
  }
  static std::span<std::byte> BytesOf(Line& line) { return std::as_writable_bytes(std::span(&line, 1)); }
  static std::vector<ForgedField> FieldsOfLine() {
    std::vector<ForgedField> fields;
    for (std::size_t i = 0; i < format::kLineEntries; ++i) {
      fields.push_back({2 * i, 2});
      fields.push_back({offsetof(Line, slots) + 4 * i, 4});
    }
    fields.push_back({offsetof(Line, header), 4});
    return fields;
  }

  // Offsets of the records that the index names.
  std::vector<std::uint64_t> Records() {
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < num_homes(); ++i) {
      for (const Line* line = &Home(i); line != nullptr; line = HasLink(*line) ? &Overflow(LinkOf(*line)) : nullptr) {
        for (unsigned e = 0; e < format::kLineEntries - HasLink(*line); ++e) {
          if (line->slots[e] != 0) offsets.push_back(std::uint64_t{line->slots[e]} << super.align_pow);
        }
      }
    }
    return offsets;
  }
  // Rewrites a record's lengths, with valid checks if the record lies inside the file.
  void SetLengths(std::uint64_t offset, std::uint64_t key_size, std::uint64_t value_size) {
    char head[format::kRecordHeadMax] = {};
    char* const record = reinterpret_cast<char*>(&image_[offset]);
    std::memcpy(head, record, 6);
    const unsigned lengths = format::EncodeLengths(head + 6, key_size, value_size);
    const std::uint64_t size = format::RecordHeadSize(lengths);
    const std::uint64_t room = image_.size() - offset;
    std::uint32_t check;
    std::memcpy(&check, head, sizeof(check));
    std::memcpy(record, head, std::min(size, room));
    if (size <= room && key_size <= room - size && value_size <= room - size - key_size) {
      const std::string_view key(record + size, key_size), value(record + size + key_size, value_size);
      check = format::RecordCheck(value, Hash64(key, super.hash_seed), offset, super.secret);
    }
    const std::uint32_t head_check = format::RecordHeadCheck(check, key_size, value_size, offset, super.secret);
    std::memcpy(head, &check, sizeof(check));
    if (lengths > 2) std::memcpy(head + 6 + lengths, &head_check, sizeof(head_check));
    std::memcpy(record, head, std::min(size, room));
  }
  void SetStamp(std::uint64_t offset, std::uint16_t bits) { std::memcpy(&image_[offset + 4], &bits, sizeof(bits)); }

  // With right checks.
  Image Finish() {
    for (const std::uint64_t offset : heap_extents) HeapHeaderAt(offset).check = HeapHeaderAt(offset).CheckAt(offset, super.secret);
    Image out(At(0), At(tail_));
    out.insert(out.end(), note.begin(), note.end());
    if (super.note_size <= note.size()) super.note_check = Hash64(note.data(), super.note_size, super.secret);
    if (IsMapped()) {
      std::uint64_t check = super.index_extents;
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(super.index_extents, format::kIndexExtentsMax); ++i) {
        const auto entry = format::IndexExtentEntry::Unpack(EntryAt(i));
        if (entry.offset + entry.bytes > tail_) break;
        check = Hash64(&image_[entry.offset], entry.bytes, MixBits(check ^ EntryAt(i)));
      }
      super.index_check = check;
    } else {
      out.resize(RoundUp(out.size()));
      out.insert(out.end(), head_.begin(), head_.end());
      out.insert(out.end(), index_.begin(), index_.end());
      std::uint64_t check = Hash64(head_.data(), head_.size(), super.secret);
      std::size_t at = 0;
      for (const auto& entry : extents_) check = Hash64(&index_[std::exchange(at, at + entry.bytes)], entry.bytes, check);
      super.index_check = check | 1;
    }
    super.check = format::CheckOf(super);
    for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) std::memcpy(&out[offset], &super, sizeof(super));
    return out;
  }

 private:
  static constexpr std::uint32_t kLink = 2;
  static constexpr std::uint64_t kArenaBegin = storage::Arena::kExtentAlignment;  // of an index in memory
  static constexpr std::uint64_t kLinesOfExtent = format::kSmallIndexExtent / sizeof(Line);
  static std::uint64_t RoundUp(std::uint64_t size) { return (size + 4095) / 4096 * 4096; }

  bool IsMapped() const { return index_.empty(); }
  Image::const_iterator At(std::uint64_t offset) const { return image_.begin() + static_cast<std::ptrdiff_t>(offset); }
  std::uint32_t EntryAt(std::uint64_t i) {
    std::uint32_t word;
    std::memcpy(&word, Table().data() + 4 * i, sizeof(word));
    return word;
  }
  void AddExtent(const format::IndexExtentEntry& entry) {
    extents_.push_back(entry);
    if (!entry.overflow) homes_.push_back(entry.offset);
  }
  Line& LineAt(std::uint64_t extent, std::uint64_t i) { return Overflow(static_cast<std::uint32_t>(extent / sizeof(Line) + i)); }
  void ReadIndexImage(std::uint64_t at) {
    const std::uint64_t count = LoadLe<std::uint64_t>(&image_[at]), head = RoundUp((1 + 2 * count) * 8);
    head_.assign(At(at), At(at + head));
    std::uint64_t offset = kArenaBegin;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t bytes = LoadLe<std::uint64_t>(&head_[8 + 16 * i]);
      AddExtent({offset, bytes, LoadLe<std::uint64_t>(&head_[16 + 16 * i]) != 0});
      offset += bytes;
    }
    index_.assign(At(at + head), At(at + head + offset - kArenaBegin));
  }

  Image image_;
  std::uint64_t tail_;
  std::vector<format::IndexExtentEntry> extents_;  // of the index
  std::vector<std::uint64_t> homes_;               // offsets of those of home lines
  Image head_, index_;                             // the index's image, if the file was not mapped
};

}  // namespace hako
