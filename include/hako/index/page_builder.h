// Makes a page anew out of slots of others: for a split, a merge, another prefix.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/assert.h"
#include "hako/format/page_format.h"
#include "hako/index/page_editor.h"
#include "hako/index/page_view.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::index {

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

  // The slots [from, to) of a page, which must stay as it is until Build.
  void Add(const View& page, unsigned from, unsigned to) {
    if (from < to) pieces_[num_pieces_++] = {page, from, to};
    count_ += to - from;
  }

  // Chooses the prefix: what the fences share, or, at an edge of the tree, so much of what all keys share that their heads are full; `coming`
  // is a key that is to be inserted afterwards. To be called after the last Add.
  void ChoosePrefix(std::optional<std::string_view> coming) {
    if constexpr (!View::kBytewise) return;
    if (!guarded()) {
      prefix_.assign(fences_.low.substr(0, Common(fences_.low, fences_.high)));
      return;
    }
    std::string last;
    const unsigned first = level_ > 0 ? 1 : 0;  // slot 0 of an inner page has no key of its own
    if (count_ > first) {
      CopyKey(first, &prefix_);
      CopyKey(count_ - 1, &last);
      prefix_.resize(Common(prefix_, last));
    } else if (coming) {
      prefix_.assign(*coming);
      last.assign(*coming);
    }
    if (coming) prefix_.resize(Common(prefix_, *coming));
    prefix_.resize(std::min(prefix_.size(), std::max<std::size_t>(last.size(), View::kInlined) - View::kInlined));
  }
  std::size_t prefix_size() const { return prefix_.size(); }

  // Where to divide a page so that both parts get about the same bytes.
  static unsigned MiddleOf(const View& page) {
    const unsigned count = page.count();
    unsigned total = 0, half = 0;
    for (unsigned i = 0; i < count; ++i) total += page.Decode(page.cell(i)).Size(View::kInlined);
    for (unsigned i = 0; i < count; ++i) {
      half += page.Decode(page.cell(i)).Size(View::kInlined);
      if (half * 2 >= total) return std::clamp(i + 1, 1u, count - 1);
    }
    return count / 2;
  }

  // Writes the page to new memory and makes `line`, locked or unknown to others, name it; the memory that it named is not freed. Room is
  // made for `more_slots` and cells of `spare` bytes. False if there is no memory.
  bool Build(Space& space, Line& line, unsigned more_slots, unsigned spare) {
    std::string key;
    const std::size_t longest = Prepare();
    key.resize(longest + 8);
    unsigned cells = 0;
    ForEachSlot(key, [&](const View&, unsigned, const char*, const format::Cell& sizes, std::string_view whole) {
      cells += Resized(sizes, whole).Size(View::kInlined);
    });
    format::PageTail tail;
    tail.low = static_cast<std::uint16_t>(fences_.low.size());
    tail.high = static_cast<std::uint16_t>(fences_.high.size());
    tail.garbage = 0;
    tail.edges = static_cast<std::uint16_t>(fences_.edges);
    unsigned heap = static_cast<unsigned>(sizeof(tail) + prefix_.size()) + tail.fences();

    Shape shape;
    shape.set_level(level_);
    shape.set_count(count_);
    shape.set_prefix(static_cast<unsigned>(prefix_.size()));
    shape.set_guarded(View::kBytewise && guarded());
    const unsigned slots = std::clamp(count_ + more_slots, 1u, format::kPageSlotsMax);
    shape.set_groups((slots + format::kSlotGroup - 1) / format::kSlotGroup);
    const unsigned units = (shape.arrays() + heap + cells + spare + format::kPageUnit - 1) / format::kPageUnit;
    HAKO_ASSERT(units <= format::kPageUnitsMax);
    shape.set_units(units);
    const std::uint32_t unit = space.Allocate(units);
    if (unit == 0) return false;

    shape.set_heap(heap);
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
    ForEachSlot(key, [&](const View& from, unsigned slot, const char* cell, const format::Cell& sizes, std::string_view whole) {
      const format::Cell resized = Resized(sizes, whole);
      heap += resized.Size(View::kInlined);
      const std::uint64_t header = resized.Encode();
      const unsigned rest = resized.Rest(View::kInlined);
      char* const at = end - heap;
      sync::StoreSharedHeader<2>(at, reinterpret_cast<const char*>(&header), resized.header);
      sync::StoreShared(at + resized.header, whole.data() + whole.size() - rest, rest);
      sync::StoreShared(at + resized.header + rest, cell + sizes.header + sizes.Rest(View::kInlined), sizes.value);
      const std::int32_t head = level_ > 0 && i == 0 ? format::kLowestHead : View::HeadOf(whole, prefix_.size());
      std::atomic_ref(view.heads()[i]).store(head, std::memory_order_relaxed);
      std::atomic_ref(view.offsets()[i]).store(static_cast<std::uint16_t>(heap), std::memory_order_relaxed);
      if (level_ > 0) std::atomic_ref(view.children()[i]).store(from.child(slot), std::memory_order_relaxed);
      ++i;
    });
    for (; i < shape.groups() * format::kSlotGroup; ++i) std::atomic_ref(view.heads()[i]).store(format::kNoHead, std::memory_order_relaxed);
    shape.set_heap(heap);
    page.StoreShape(shape);
    for (std::int32_t& hint : line.hints) std::atomic_ref(hint).store(format::kNoHead, std::memory_order_relaxed);
    page.StoreHints(0);
    return true;
  }

  unsigned count() const { return count_; }

  // The bytes that keys a and b begin with, both.
  static std::size_t Common(std::string_view a, std::string_view b) {
    const std::size_t size = std::min(a.size(), b.size());
    std::size_t common = 0;
    while (common < size && a[common] == b[common]) ++common;
    return common;
  }

 private:
  struct Piece {
    View page;
    unsigned from, to;
  };

  bool guarded() const { return fences_.edges != 0; }

  // The longest key; all keys are in pages of at most kPageUnitsMax units.
  std::size_t Prepare() const {
    std::size_t longest = 0;
    for (unsigned p = 0; p < num_pieces_; ++p) {
      const View& page = pieces_[p].page;
      longest = std::max<std::size_t>(longest, page.tail().low);
      for (unsigned i = pieces_[p].from; i < pieces_[p].to; ++i)
        longest = std::max<std::size_t>(longest, page.shape().prefix() + View::Decode(page.cell(i)).suffix);
    }
    return longest;
  }

  // visit(page, slot, cell, its sizes, the whole key). The key of slot 0 of an inner page is the page's low fence, or, in the first piece,
  // nothing: it becomes slot 0 again.
  template <class F>
  void ForEachSlot(std::string& key, F&& visit) const {
    unsigned n = 0;
    for (unsigned p = 0; p < num_pieces_; ++p) {
      const View& page = pieces_[p].page;
      page.prefix().copy(key.data(), key.size());
      for (unsigned i = pieces_[p].from; i < pieces_[p].to; ++i, ++n) {
        const char* const cell = page.cell(i);
        const format::Cell sizes = View::Decode(cell);
        if (level_ > 0 && (i == 0 || n == 0)) [[unlikely]] {
          visit(page, i, cell, sizes, n == 0 ? std::string_view(prefix_) : page.low(page.tail()));
          continue;
        }
        visit(page, i, cell, sizes, std::string_view(key.data(), page.CopyKeyAfterPrefix(i, cell, sizes, key.data())));
      }
    }
  }

  void CopyKey(unsigned n, std::string* key) const {
    for (unsigned p = 0; p < num_pieces_; ++p) {
      const Piece& piece = pieces_[p];
      const unsigned i = piece.from + n;
      if (i < piece.to) return CopyKeyOf(piece.page, i, key);
      n -= piece.to - piece.from;
    }
  }

 public:
  // The whole key of a slot, of an inner page's slot 0 the low fence.
  static void CopyKeyOf(const View& page, unsigned i, std::string* key) {
    if (page.level() > 0 && i == 0) {
      key->assign(page.low(page.tail()));
      return;
    }
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    key->resize(page.shape().prefix() + sizes.suffix + 8);
    page.prefix().copy(key->data(), key->size());
    key->resize(page.CopyKeyAfterPrefix(i, cell, sizes, key->data()));
  }

 private:
  format::Cell Resized(const format::Cell& sizes, std::string_view key) const {
    return format::Cell::For(key.size() - prefix_.size(), sizes.value, sizes.is_long);
  }

  unsigned level_;
  Fences fences_;
  std::string prefix_;
  Piece pieces_[2];
  unsigned num_pieces_ = 0;
  unsigned count_ = 0;
};

}  // namespace hako::index
