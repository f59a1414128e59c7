// Builds a page from slots of one or two other pages: for a split, a join, or another prefix.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/format/page_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/tree/page_editor.h"
#include "hako/tree/page_view.h"

namespace hako::tree {

// The bounds of the keys of a page.
struct Fences {
  std::string_view low, high;
  unsigned edges = 0;  // format::PageTail::kNoLow, kNoHigh
};

template <class Space, Comparator Compare>
class PageBuilder {
 public:
  using View = PageView<Compare>;
  using Editor = PageEditor<Space, Compare>;
  using Line = format::PageLine;
  using Shape = format::PageShape;

  PageBuilder(unsigned level, const Fences& fences) : level_(level), fences_(fences) {}

  // Adds the slots [from, to) of a page, which must not change until Build. REQUIRES: at most two
  // calls
  void Add(const View& page, unsigned from, unsigned to) {
    HAKO_DCHECK(from >= to || num_pieces_ < std::size(pieces_));
    if (from < to) pieces_[num_pieces_++] = {page, from, to};
    count_ += to - from;
  }

  // Chooses the prefix; call it after the last Add. The prefix has the bytes that the fences share
  // or, at an edge of the tree, that all keys share. It is never so long that a head would not be
  // full. `coming` is a key that will be inserted afterwards.
  void ChoosePrefix(std::optional<std::string_view> coming) {
    if constexpr (!View::kBytewise) return;
    if (!guarded()) {
      prefix_.assign(fences_.low.substr(0, Common(fences_.low, fences_.high)));
      return;
    }
    KeyBuffer last;
    const unsigned first = level_ > 0 ? 1 : 0;  // slot 0 of an inner page has no key
    if (count_ > first) {
      CopyKey(first, &prefix_);
      CopyKey(count_ - 1, &last);
      prefix_.resize(Common(prefix_, last));
    } else if (coming) {
      prefix_.assign(*coming);
      last.assign(*coming);
    }
    if (coming) prefix_.resize(Common(prefix_, *coming));
    prefix_.resize(std::min({prefix_.size(), std::max<std::size_t>(last.size(), View::kInlined) - View::kInlined, kGuardedPrefixMax}));
  }
  std::size_t prefix_size() const { return prefix_.size(); }

  // An upper bound of the bytes of the cells.
  unsigned CellBytes() const {
    std::size_t cells = 0;
    for (unsigned p = 0; p < num_pieces_; ++p) {
      const View& page = pieces_[p].page;
      const std::size_t old = page.prefix_size(), longer = old > prefix_.size() ? old - prefix_.size() + 4 : 0;
      for (unsigned i = pieces_[p].from; i < pieces_[p].to; ++i) cells += View::Decode(page.cell(i)).Size(View::kInlined) + longer;
      if (p > 0 && level_ > 0) cells += page.tail().low + 4u;  // its slot 0 gets a key
    }
    return static_cast<unsigned>(cells);
  }

  // Returns the slot at which to split a page so that both parts have about the same number of
  // bytes. An inner page has at least four slots, and each part gets at least two.
  static unsigned MiddleOf(const View& page) {
    const format::PageTail tail = page.tail();
    const unsigned count = page.count();
    const unsigned cells = unsigned{page.shape().heap} - tail.garbage - page.shape().prefix - tail.fences();
    unsigned i = 0;
    for (unsigned sum = 0; i < count && 2 * sum < cells; ++i) sum += View::Decode(page.cell(i)).Size(View::kInlined);
    const unsigned least = page.level() > 0 ? 2 : 1;
    return std::clamp(i, least, count - least);
  }

  // Writes the page to new memory and makes `line` name that memory. The line must be locked or
  // unknown to other threads. Does not free the memory that the line named before. Leaves room for
  // `more_slots` slots and for cells of `spare` bytes. Returns false if memory runs out.
  bool Build(Space& space, Line& line, unsigned more_slots, unsigned spare) {
    const unsigned cells = CellBytes();
    format::PageTail tail;
    tail.low = static_cast<std::uint16_t>(fences_.low.size());
    tail.high = static_cast<std::uint16_t>(fences_.high.size());
    tail.garbage = 0;
    tail.edges = static_cast<std::uint16_t>(fences_.edges);
    unsigned heap = static_cast<unsigned>(sizeof(tail) + prefix_.size()) + tail.fences();

    Shape shape;
    shape.kind = static_cast<std::uint8_t>(level_ | (View::kBytewise && guarded() ? Shape::kGuarded : 0) | space.mark());
    shape.count = static_cast<std::uint8_t>(count_);
    shape.prefix = static_cast<std::uint16_t>(prefix_.size());
    shape.groups = format::GroupsFor(level_ > 0 ? format::kPageSlotsMax : count_ + more_slots);
    const unsigned units = (shape.slots() * shape.slot_size() + heap + cells + spare + format::kPageUnit - 1) / format::kPageUnit;
    // Only a page of a forged file can be so large.
    if (units > format::kPageUnitsMax) return false;
    shape.units = static_cast<std::uint8_t>(units);
    const std::uint32_t unit = space.Allocate(units);
    if (unit == 0) return false;

    shape.heap = static_cast<std::uint16_t>(heap);
    std::atomic_ref(line.unit).store(unit, std::memory_order_relaxed);
    Editor page(space, line);
    page.StoreShape(shape);
    const View view = page.view();
    char* const end = view.end();
    sync::StoreShared(end - sizeof(tail), reinterpret_cast<const char*>(&tail), sizeof(tail));
    sync::StoreShared(end - sizeof(tail) - prefix_.size(), prefix_.data(), prefix_.size());
    sync::StoreShared(end - heap + fences_.high.size(), fences_.low.data(), fences_.low.size());
    sync::StoreShared(end - heap, fences_.high.data(), fences_.high.size());

    unsigned i = 0;
    for (unsigned p = 0; p < num_pieces_; ++p) {
      const View& from = pieces_[p].page;
      for (unsigned slot = pieces_[p].from; slot < pieces_[p].to; ++slot, ++i) {
        std::int32_t head;
        heap += CopyCell(from, slot, i, end - heap, &head);
        std::atomic_ref(view.heads()[i]).store(head, std::memory_order_relaxed);
        std::atomic_ref(view.offsets()[i]).store(static_cast<std::uint16_t>(heap), std::memory_order_relaxed);
        if (level_ > 0) std::atomic_ref(view.children()[i]).store(from.child(slot), std::memory_order_relaxed);
      }
    }
    for (; i < shape.slots(); ++i) std::atomic_ref(view.heads()[i]).store(format::kNoHead, std::memory_order_relaxed);
    shape.heap = static_cast<std::uint16_t>(heap);
    page.StoreShape(shape);
    page.StoreAllHints();
    return true;
  }

  unsigned count() const { return count_; }

  // The length of the common prefix of a and b.
  static std::size_t Common(std::string_view a, std::string_view b) {
    const std::size_t size = std::min(a.size(), b.size());
    std::size_t common = 0;
    while (common < size && a[common] == b[common]) ++common;
    return common;
  }

 private:
  // If a key without the prefix is inserted, each cell of the page may have to store these bytes
  // again.
  static constexpr std::size_t kGuardedPrefixMax = 32;

  struct Piece {
    View page;
    unsigned from, to;
  };

  bool guarded() const { return fences_.edges != 0; }

  // Copies the cell of a slot so that it ends at `end`, for a page with the new prefix, and returns
  // its new size. n is the number of the new slot.
  HAKO_INLINE unsigned CopyCell(const View& from, unsigned slot, unsigned n, char* end, std::int32_t* head) const {
    const char* const cell = from.cell(slot);
    const format::Cell sizes = View::Decode(cell);
    const std::size_t old = from.shape().prefix;
    *head = from.head(slot);
    const bool no_key = level_ > 0 && (slot == 0 || n == 0);
    if (old == prefix_.size() && !no_key) [[likely]] {
      const unsigned size = sizes.Size(View::kInlined);
      sync::StoreShared(end - size, cell, size);
      return size;
    }
    // The bytes that the cell leaves out are in the head.
    if (old < prefix_.size() && sizes.header == 2 && sizes.suffix <= View::kInlined && !no_key) {
      const auto cut = static_cast<unsigned>(prefix_.size() - old);
      const std::uint32_t rest = cut < 4 ? (static_cast<std::uint32_t>(*head) ^ 0x80000000u) << 8 * cut : 0;
      *head = static_cast<std::int32_t>(rest ^ 0x80000000u);
      const unsigned size = 2 + sizes.value;
      const char suffix = static_cast<char>(sizes.suffix - cut);
      sync::StoreShared(end - size, &suffix, 1);
      sync::StoreShared(end - size + 1, cell + 1, size - 1);
      return size;
    }
    return RewriteCell(from, slot, n, end, head);
  }

  [[gnu::noinline]] unsigned RewriteCell(const View& from, unsigned slot, unsigned n, char* end, std::int32_t* head) const {
    char bytes[kTreeKeySizeMax + 8];
    const char* const cell = from.cell(slot);
    const format::Cell sizes = View::Decode(cell);
    std::string_view key;
    if (level_ > 0 && n == 0) {
      key = prefix_;
      *head = format::kLowestHead;
    } else {
      if (level_ > 0 && slot == 0) {
        key = from.low(from.tail());
      } else {
        from.prefix().copy(bytes, sizeof(bytes));
        key = {bytes, from.CopyKeyAfterPrefix(slot, cell, sizes, bytes)};
      }
      *head = View::HeadOf(key, prefix_.size());
    }
    const format::Cell resized = format::Cell::For(key.size() - prefix_.size(), sizes.value, sizes.is_long);
    const unsigned size = resized.Size(View::kInlined);
    Editor::StoreCell(end - size, resized, key, {cell + sizes.header + sizes.Rest(View::kInlined), sizes.value});
    return size;
  }

  void CopyKey(unsigned n, KeyBuffer* key) const {
    for (unsigned p = 0; p < num_pieces_; ++p) {
      const Piece& piece = pieces_[p];
      const unsigned i = piece.from + n;
      if (i < piece.to) return CopyKeyOf(piece.page, i, key);
      n -= piece.to - piece.from;
    }
  }

 public:
  // Copies the whole key of a slot; for slot 0 of an inner page, the low fence.
  template <class Key>
  static void CopyKeyOf(const View& page, unsigned i, Key* key) {
    if (page.level() > 0 && i == 0) {
      key->assign(page.low(page.tail()));
      return;
    }
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    key->resize(page.shape().prefix + sizes.suffix + 8);
    page.prefix().copy(key->data(), key->size());
    key->resize(page.CopyKeyAfterPrefix(i, cell, sizes, key->data()));
  }

 private:
  unsigned level_;
  Fences fences_;
  KeyBuffer prefix_;
  Piece pieces_[2];
  unsigned num_pieces_ = 0;
  unsigned count_ = 0;
};

}  // namespace hako::tree
