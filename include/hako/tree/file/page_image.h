// The image of a page as read from a file (format/tree_file_format.h).
//
// A valid check does not prove that the content is valid, because it may be forged. Parse checks
// everything on which the code that searches and changes the page relies. So no image can make that
// code access memory outside the page or loop forever.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/tree/file/page_kind.h"

namespace hako::tree {

class PageImage {
 public:
  using Order = format::PageOrder;

  // `bytes` may be longer than the image. REQUIRES: 8 more bytes are readable (unchecked: a pointer has no size)
  static StatusOr<PageImage> Parse(std::uint32_t id, std::span<const std::byte> bytes, const Order& order, std::uint32_t id_end) {
    PageImage image;
    const auto wrong = [id](const char* what) { return absl::DataLossError(absl::StrCat("image of page ", id, ": ", what)); };
    if (bytes.size() < sizeof(image.header_)) return wrong("truncated");
    std::memcpy(&image.header_, bytes.data(), sizeof(image.header_));
    const format::PageImageHeader& header = image.header_;
    if (header.id != id) return wrong("belongs to another page");
    if (header.packed != 0) return wrong("compressed twice");
    constexpr std::uint8_t kKinds = format::PageShape::kLevel | format::PageShape::kGuarded;
    if ((header.kind & ~kKinds) != 0 || header.reserved != std::array<std::byte, 4>{}) return wrong("reserved bytes are not zero");
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
    if (std::max({tail.low, tail.high, shape.prefix}) > kTreeKeySizeMax) return wrong("fence too long");
    image.tail_ = tail;
    image.end_ = end;
    if (const char* const what = image.FlawInBounds(order)) return wrong(what);
    if (const char* const what = image.FlawInSlots(order, fixed, id_end)) return wrong(what);
    return image;
  }

  // As above, for a page of another kind.
  static StatusOr<PageImage> Parse(std::uint32_t id, std::span<const std::byte> bytes, const PageKind& kind, std::uint32_t id_end) {
    PageImage image;
    HAKO_ASSIGN_OR_RETURN(image.other_, kind.Parse(id, bytes, id_end));
    image.kind_ = &kind;
    image.shape_ = image.other_.shape;
    return image;
  }

  const format::PageShape& shape() const { return shape_; }
  // The image of a page of another kind, and its children.
  const PageKind::Image& other() const { return other_; }
  unsigned num_children() const { return kind_ != nullptr ? other_.num_children : shape_.level() > 0 ? shape_.count : 0; }
  std::uint32_t ChildId(unsigned i) const { return kind_ != nullptr ? kind_->ChildOf(other_, i).id : child(i); }
  std::uint32_t child(unsigned i) const { return At<std::uint32_t>(children_, i); }
  // The bounds of the page's keys; `edges` says which of them are absent.
  unsigned edges() const { return tail_.edges; }
  std::string_view low() const { return {prefix().data() - tail_.low, tail_.low}; }
  std::string_view high() const { return {prefix().data() - tail_.low - tail_.high, tail_.high}; }

  // The key of slot i, which is written to `buffer`. REQUIRES: not slot 0 of an inner page
  using KeyBuffer = std::array<char, kTreeKeySizeMax + sizeof(std::uint32_t)>;
  std::string_view Key(unsigned i, const Order& order, KeyBuffer& buffer) const {
    HAKO_DCHECK(i != 0 || shape_.level() == 0);
    const Slot slot = SlotAt(i);
    char* to = std::ranges::copy(prefix(), buffer.data()).out;
    if (order.inlined != 0) {
      const std::uint32_t first = __builtin_bswap32(static_cast<std::uint32_t>(slot.head) ^ 0x80000000u);
      std::memcpy(to, &first, sizeof(first));
      to += order.inlined;
    }
    std::memcpy(to, slot.rest(), slot.sizes.Rest(order.inlined));
    return {buffer.data(), prefix().size() + slot.sizes.suffix};
  }

  // The value of slot i of a leaf; if it is long, the bytes of its OverflowValue.
  struct Value {
    std::string_view bytes;
    bool is_long;
  };
  Value ValueAt(unsigned i, const Order& order) const {
    const Slot slot = SlotAt(i);
    return {{slot.rest() + slot.sizes.Rest(order.inlined), slot.sizes.value}, slot.sizes.is_long};
  }

  // Writes the page to shape().size() bytes at `base`, which late readers of a previous page may be
  // reading, and its hints.
  void Store(char* base, std::int32_t* hints) const {
    if (kind_ != nullptr) return kind_->Store(other_, base, hints);
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
  struct Slot {
    std::int32_t head;
    unsigned offset;
    const char* cell;
    format::Cell sizes;
    const char* rest() const { return cell + sizes.header; }
  };

  Slot SlotAt(unsigned i) const {
    Slot slot{At<std::int32_t>(heads_, i), At<std::uint16_t>(offsets_, i), nullptr, {}};
    slot.cell = end_ - slot.offset;
    std::uint64_t word;
    std::memcpy(&word, slot.cell, sizeof(word));
    slot.sizes = format::Cell::Decode(word);
    return slot;
  }
  std::string_view prefix() const { return {end_ - sizeof(format::PageTail) - shape_.prefix, shape_.prefix}; }

  // Returns the flaw in the fences or the prefix, or nullptr.
  const char* FlawInBounds(const Order& order) const {
    constexpr unsigned kNoLow = format::PageTail::kNoLow, kNoHigh = format::PageTail::kNoHigh;
    const bool bytewise = order.inlined != 0;
    if ((tail_.edges & ~(kNoLow | kNoHigh)) != 0) return "bad tail";
    if (((tail_.edges & kNoLow) != 0 && tail_.low != 0) || ((tail_.edges & kNoHigh) != 0 && tail_.high != 0)) return "fence at an open end";
    if (shape_.guarded() != (bytewise && tail_.edges != 0)) return "guard flag does not match the fences";
    if (!bytewise && shape_.prefix != 0) return "prefix in an order without prefixes";
    if (tail_.edges != 0) return nullptr;
    if (order.compare(low(), high()) >= 0) return "fences out of order";
    // `high` is greater than `low`, so it has a byte where the two begin to differ.
    const std::size_t prefix = shape_.prefix;
    if (bytewise && (prefix >= high().size() || !low().starts_with(this->prefix()) || !high().starts_with(this->prefix()) ||
                     (prefix < low().size() && low()[prefix] == high()[prefix])))
      return "prefix is not the common prefix of the fences";
    return nullptr;
  }

  // Returns the flaw in the slots or their cells, or nullptr. `fixed` is the size of the parts
  // after the cells.
  const char* FlawInSlots(const Order& order, unsigned fixed, std::uint32_t id_end) const {
    // The first slot that has a key.
    const unsigned count = shape_.count, first = shape_.level() > 0 ? 1 : 0;
    // Cells must be adjacent: each place where two of them meet is an end of both.
    std::array<std::uint64_t, format::kPageImageMax / 64 + 1> ends{};
    unsigned cells = 0;
    const auto flip = [&ends](unsigned at) { ends[at / 64] ^= std::uint64_t{1} << at % 64; };
    flip(fixed);
    flip(shape_.heap);
    Slot before{};
    for (unsigned i = 0; i < count; ++i) {
      if (At<std::uint16_t>(offsets_, i) > shape_.heap) return "cell outside the heap";
      const Slot slot = SlotAt(i);
      const unsigned size = slot.sizes.Size(order.inlined);
      if (size + fixed > slot.offset) return "cell overlaps the tail";
      if (slot.sizes.suffix + shape_.prefix > kTreeKeySizeMax) return "key too long";
      cells += size;
      flip(slot.offset);
      flip(slot.offset - size);
      if (first != 0) {
        if (child(i) == 0 || child(i) >= id_end) return "invalid id of a child";
        if (slot.sizes.value != 0) return "a child has a value";
      }
      if (i < first) {
        if (slot.head != format::kLowestHead || slot.sizes.suffix != 0) return "first child has a key";
        continue;
      }
      if (!IsHeadOf(slot, order)) return "head does not match its key";
      if (i > first && !AreInOrder(before, slot, order)) return "keys out of order";
      before = slot;
    }
    if (cells + fixed != shape_.heap || std::ranges::any_of(ends, [](std::uint64_t word) { return word != 0; }))
      return "cells do not fill the heap";
    if (count == first) return nullptr;
    KeyBuffer buffer;
    if ((tail_.edges & format::PageTail::kNoLow) == 0) {
      const int from_low = order.compare(Key(first, order, buffer), low());
      if (from_low < 0 || (from_low == 0 && first != 0)) return "key below the low fence";
    }
    if ((tail_.edges & format::PageTail::kNoHigh) == 0 && order.compare(Key(count - 1, order, buffer), high()) >= 0)
      return "key above the high fence";
    return nullptr;
  }

  static bool IsHeadOf(const Slot& slot, const Order& order) {
    if (order.inlined == 0) return slot.head == order.head({slot.rest(), slot.sizes.suffix});
    // The last bits, which must be zero.
    const unsigned unused = slot.sizes.suffix < 4 ? 8 * (4 - slot.sizes.suffix) : 0;
    return ((static_cast<std::uint32_t>(slot.head) ^ 0x80000000u) & ((std::uint64_t{1} << unused) - 1)) == 0;
  }
  // REQUIRES: their heads match their keys
  static bool AreInOrder(const Slot& a, const Slot& b, const Order& order) {
    HAKO_DCHECK(IsHeadOf(a, order) && IsHeadOf(b, order));
    if (a.head != b.head) return a.head < b.head;
    if (order.inlined == 0) return order.compare({a.rest(), a.sizes.suffix}, {b.rest(), b.sizes.suffix}) < 0;
    const unsigned shared = std::min(a.sizes.Rest(order.inlined), b.sizes.Rest(order.inlined));
    const int rests = shared == 0 ? 0 : std::memcmp(a.rest(), b.rest(), shared);
    return rests != 0 ? rests < 0 : a.sizes.suffix < b.sizes.suffix;
  }

  template <class T>
  static T At(const char* array, unsigned i) {
    T value;
    std::memcpy(&value, array + i * sizeof(T), sizeof(T));
    return value;
  }

  format::PageImageHeader header_;
  format::PageShape shape_;
  const char *heads_ = nullptr, *children_ = nullptr, *offsets_ = nullptr, *end_ = nullptr;
  format::PageTail tail_;
  const PageKind* kind_ = nullptr;  // nullptr: a page of a B+ tree
  PageKind::Image other_;
};

}  // namespace hako::tree
