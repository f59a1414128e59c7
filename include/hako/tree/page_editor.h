// Changes one page, whose line the caller has locked.
//
// A page is changed in place as long as the change fits. Otherwise it gets other memory (Resize) or
// is split (page_tree.h). A reader that sees an intermediate state notices it by the line's
// version.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/format/page_format.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/tree/page_limit.h"
#include "hako/tree/page_view.h"

namespace hako::tree {

// The content of a slot without its key: the bytes of a value, the name of a long value, or a
// child.
struct Content {
  std::string_view value;  // as stored in the cell
  bool is_long = false;
  std::uint32_t child = 0;
};

template <class Space, Comparator Compare>
class PageEditor {
 public:
  using View = PageView<Compare>;
  using Line = format::PageLine;
  using Shape = format::PageShape;

  HAKO_INLINE PageEditor(Space& space, Line& line) : space_(space), line_(line), view_(space.memory(), line), shape_(view_.shape()) {}

  HAKO_INLINE const View& view() const { return view_; }
  Line& line() const { return line_; }
  const Shape& shape() const { return shape_; }

  // The size of the key's cell. REQUIRES: the key has the page's prefix
  HAKO_INLINE unsigned CellSize(std::string_view key, const Content& content) const {
    HAKO_DCHECK(HasPrefix(key));
    return CellSize(key.size(), content);
  }
  HAKO_INLINE unsigned CellSize(std::size_t key_size, const Content& content) const {
    return format::Cell::For(key_size - shape().prefix, content.value.size(), content.is_long).Size(View::kInlined);
  }
  HAKO_INLINE bool HasPrefix(std::string_view key) const { return !shape().guarded() || view_.SideOf(key) == 0; }
  // Whether a new slot with a cell of this size has room without Resize.
  HAKO_INLINE bool HasRoomFor(unsigned cell_size) const { return shape().count < shape().slots() && shape().room() >= cell_size; }

  // Inserts a slot at i. For slot 0 of an inner page, `key` is the page's prefix. REQUIRES: the key
  // has the prefix, and there is room
  HAKO_INLINE void Insert(unsigned i, std::string_view key, const Content& content) {
    HAKO_DCHECK(HasPrefix(key) && HasRoomFor(CellSize(key.size(), content)));
    Shape shape = this->shape();
    const unsigned count = shape.count;
    const unsigned heap = WriteCell(key, content);
    MoveSlots(i + 1, i, count - i);
    StoreSlot(i, shape.level() > 0 && i == 0 ? format::kLowestHead : View::HeadOf(key, shape.prefix), heap, content.child);
    shape.heap = static_cast<std::uint16_t>(heap);
    shape.count = static_cast<std::uint8_t>(count + 1);
    StoreShape(shape);
    StoreHints(i);
    if (PageLimit* const limit = LimitOf(space_)) limit->UseOf(line_).Open(i);
  }

  HAKO_INLINE void Erase(unsigned i) {
    Shape shape = this->shape();
    const unsigned count = shape.count;
    AddGarbage(static_cast<int>(SizeOfCell(i)));
    MoveSlots(i, i + 1, count - i - 1);
    std::atomic_ref(view_.heads()[count - 1]).store(format::kNoHead, std::memory_order_relaxed);
    shape.count = static_cast<std::uint8_t>(count - 1);
    StoreShape(shape);
    StoreHints(i);
    if (PageLimit* const limit = LimitOf(space_)) limit->UseOf(line_).Close(i);
  }

  // Whether Replace can give slot i this value.
  HAKO_INLINE bool HasRoomToReplace(unsigned i, const Content& content) const {
    const format::Cell old = View::Decode(view_.cell(i));
    const unsigned size = format::Cell::For(old.suffix, content.value.size(), content.is_long).Size(View::kInlined);
    return size <= old.Size(View::kInlined) || size <= shape().room();
  }
  // Gives slot i another value. The key keeps its bytes, even if the new spelling differs but
  // compares as equal. REQUIRES: HasRoomToReplace
  HAKO_INLINE void Replace(unsigned i, const Content& content) {
    HAKO_DCHECK(HasRoomToReplace(i, content));
    char* const cell = const_cast<char*>(view_.cell(i));
    const format::Cell old = View::Decode(cell);
    const format::Cell sizes = format::Cell::For(old.suffix, content.value.size(), content.is_long);
    const std::string_view rest(cell + old.header, old.Rest(View::kInlined));
    if (old.header == sizes.header && old.value == sizes.value && old.is_long == sizes.is_long) [[likely]] {
      sync::StoreShared(cell + old.header + rest.size(), content.value.data(), content.value.size());
      return;
    }
    const unsigned old_size = old.Size(View::kInlined), size = sizes.Size(View::kInlined);
    if (size <= old_size) {
      const std::uint64_t header = sizes.Encode();
      sync::StoreSharedHeader<2>(cell, reinterpret_cast<const char*>(&header), sizes.header);
      if (sizes.header != old.header) sync::MoveShared(cell + sizes.header, rest.data(), rest.size());
      sync::StoreShared(cell + sizes.header + rest.size(), content.value.data(), content.value.size());
      AddGarbage(static_cast<int>(old_size - size));
      return;
    }
    AddGarbage(static_cast<int>(old_size));
    const unsigned heap = shape().heap + size;
    StoreCell(view_.end() - heap, sizes, rest, content.value);
    std::atomic_ref(view_.offsets()[i]).store(static_cast<std::uint16_t>(heap), std::memory_order_relaxed);
    Shape shape = this->shape();
    shape.heap = static_cast<std::uint16_t>(heap);
    StoreShape(shape);
  }

  // HasRoomToStore returns whether the key's slot can get this content without Resize. Store makes
  // the change.
  HAKO_INLINE bool HasRoomToStore(typename View::Slot slot, std::string_view key, const Content& content) const {
    return slot.found ? HasRoomToReplace(slot.index, content) : HasPrefix(key) && HasRoomFor(CellSize(key, content));
  }
  HAKO_INLINE void Store(typename View::Slot slot, std::string_view key, const Content& content) {
    slot.found ? Replace(slot.index, content) : Insert(slot.index, key, content);
  }

  unsigned KeySize(unsigned i) const { return shape().prefix + View::Decode(view_.cell(i)).suffix; }

  // The bytes that the page would need if it were rebuilt: slots, cells, fences, prefix, tail.
  unsigned LiveBytes() const { return shape().count * shape().slot_size() + shape().heap - view_.tail().garbage; }

  // Moves the page to other memory, with room for `slots` more slots and for `spare` more bytes of
  // cells, and drops garbage. Returns false if memory runs out, or if the page would be too large.
  bool Resize(unsigned slots, unsigned spare) {
    const format::PageTail tail = view_.tail();
    Shape shape = this->shape();
    if (shape.level() == 0) shape.groups = format::GroupsFor(slots);
    const unsigned units =
        (shape.slots() * shape.slot_size() + shape.heap - tail.garbage + spare + format::kPageUnit - 1) / format::kPageUnit;
    if (units > format::kPageUnitsMax) return false;
    shape.units = static_cast<std::uint8_t>(units);
    const std::uint32_t unit = space_.Allocate(units);
    if (unit == 0) return false;
    PageSnapshot<Compare> before(space_.memory(), line_);
    const View old = before.view();
    std::atomic_ref(line_.unit).store(unit, std::memory_order_relaxed);
    TakeContent(old, shape, tail);
    space_.Free(before.unit(), before.units());
    return true;
  }

  // The units that the page needs without garbage, with room for `slots` slots and for `spare` bytes of cells.
  unsigned CompactUnits(unsigned slots, unsigned spare) const {
    const unsigned room = shape().level() == 0 ? format::GroupsFor(slots) * format::kSlotGroup : shape().slots();
    return (room * shape().slot_size() + shape().heap - view_.tail().garbage + spare + format::kPageUnit - 1) / format::kPageUnit;
  }
  // Drops garbage in place, and frees the units beyond `units`. Needs no memory.
  // REQUIRES: CompactUnits(slots, 0) <= units <= the page's
  void Compact(unsigned slots, unsigned units) {
    HAKO_DCHECK(CompactUnits(slots, 0) <= units && units <= shape().units);
    alignas(64) char copy[format::kPageUnitsMax * format::kPageUnit];
    const unsigned before = shape().units;
    const format::PageTail tail = view_.tail();
    sync::LoadShared(copy, view_.base(), shape().size());
    Line copied{};
    copied.shape = shape();
    Shape shape = this->shape();
    if (shape.level() == 0) shape.groups = format::GroupsFor(slots);
    shape.units = static_cast<std::uint8_t>(units);
    TakeContent(View(copied, copy), shape, tail);
    if (units < before) space_.Free(line_.unit + units, before - units);
  }

  HAKO_INLINE unsigned SizeOfCell(unsigned i) const { return View::Decode(view_.cell(i)).Size(View::kInlined); }

  // Sets the shape in the line and in view().
  HAKO_INLINE void StoreShape(Shape shape) {
    sync::VersionLock(line_.version).AssertLocked();  // invariant 3 of tree/page_tree.h
    std::atomic_ref(line_.shape).store(shape, std::memory_order_relaxed);
    view_ = View(space_.memory(), line_);
    shape_ = shape;
  }
  void StoreAllHints() {
    for (std::int32_t& hint : line_.hints) std::atomic_ref(hint).store(format::kNoHead, std::memory_order_relaxed);
    StoreHints(0);
  }
  // Makes the line name the memory of another page, which has this shape.
  void TakeOver(std::uint32_t unit, Shape shape) {
    std::atomic_ref(line_.unit).store(unit, std::memory_order_relaxed);
    StoreShape(shape);
    StoreAllHints();
  }
  HAKO_INLINE void StoreHints(unsigned from_slot) {
    const unsigned count = shape().count;
    for (unsigned hint = from_slot == 0 ? 0 : (from_slot - 1) / format::kSlotGroup; hint < format::kPageHints; ++hint) {
      const unsigned slot = (hint + 1) * format::kSlotGroup;
      std::atomic_ref word(line_.hints[hint]);
      if (slot > count + 1) break;
      word.store(slot < count ? view_.head(slot) : format::kNoHead, std::memory_order_relaxed);
    }
  }

  // Writes a cell. The cell stores the last bytes of `key`, as many as sizes.Rest() says.
  HAKO_INLINE static void StoreCell(char* cell, const format::Cell& sizes, std::string_view key, std::string_view value) {
    const std::uint64_t header = sizes.Encode();
    sync::StoreSharedHeader<2>(cell, reinterpret_cast<const char*>(&header), sizes.header);
    const unsigned rest = sizes.Rest(View::kInlined);
    if (rest != 0) sync::StoreShared(cell + sizes.header, key.data() + key.size() - rest, rest);
    sync::StoreShared(cell + sizes.header + rest, value.data(), value.size());
  }

 private:
  // Copies slots and cells of `old`, whose tail this is, into the page's memory, without the garbage.
  HAKO_INLINE void TakeContent(const View& old, Shape shape, const format::PageTail& tail) {
    StoreShape(shape);
    const unsigned count = shape.count;
    CopyArray(view_.heads(), old.heads(), count);
    for (unsigned i = count; i < shape.slots(); ++i) std::atomic_ref(view_.heads()[i]).store(format::kNoHead, std::memory_order_relaxed);
    if (shape.level() > 0) CopyArray(view_.children(), old.children(), count);
    if (tail.garbage == 0) {
      CopyArray(view_.offsets(), old.offsets(), count);
      sync::StoreShared(view_.end() - shape.heap, old.end() - shape.heap, shape.heap);
    } else {
      unsigned heap = static_cast<unsigned>(sizeof(tail)) + tail.fences() + shape.prefix;
      sync::StoreShared(view_.end() - heap, old.end() - heap, heap);
      for (unsigned i = 0; i < count; ++i) {
        const char* const cell = old.cell(i);
        const unsigned size = View::Decode(cell).Size(View::kInlined);
        heap += size;
        sync::StoreShared(view_.end() - heap, cell, size);
        std::atomic_ref(view_.offsets()[i]).store(static_cast<std::uint16_t>(heap), std::memory_order_relaxed);
      }
      shape.heap = static_cast<std::uint16_t>(heap);
      StoreShape(shape);
      AddGarbage(-static_cast<int>(tail.garbage));
    }
  }
  HAKO_INLINE unsigned WriteCell(std::string_view key, const Content& content) {
    const format::Cell sizes = format::Cell::For(key.size() - shape().prefix, content.value.size(), content.is_long);
    const unsigned heap = shape().heap + sizes.Size(View::kInlined);
    StoreCell(view_.end() - heap, sizes, key, content.value);
    return heap;
  }
  HAKO_INLINE void StoreSlot(unsigned i, std::int32_t head, unsigned offset, std::uint32_t child) {
    std::atomic_ref(view_.heads()[i]).store(head, std::memory_order_relaxed);
    std::atomic_ref(view_.offsets()[i]).store(static_cast<std::uint16_t>(offset), std::memory_order_relaxed);
    if (shape().level() > 0) std::atomic_ref(view_.children()[i]).store(child, std::memory_order_relaxed);
  }
  HAKO_INLINE void MoveSlots(unsigned to, unsigned from, unsigned n) {
    if (n == 0) return;
    MoveArray(view_.heads(), to, from, n);
    MoveArray(view_.offsets(), to, from, n);
    if (shape().level() > 0) MoveArray(view_.children(), to, from, n);
  }
  template <class T>
  HAKO_INLINE static void MoveArray(T* array, unsigned to, unsigned from, unsigned n) {
    sync::MoveShared(reinterpret_cast<char*>(array + to), reinterpret_cast<const char*>(array + from), n * sizeof(T));
  }
  template <class T>
  static void CopyArray(T* to, const T* from, unsigned n) {
    sync::StoreShared(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), n * sizeof(T));
  }
  HAKO_INLINE void AddGarbage(int bytes) {
    format::PageTail tail = view_.tail();
    tail.garbage = static_cast<std::uint16_t>(tail.garbage + bytes);
    sync::StoreShared(view_.end() - sizeof(tail), reinterpret_cast<const char*>(&tail), sizeof(tail));
  }

  Space& space_;
  Line& line_;
  View view_;
  Shape shape_;
};

}  // namespace hako::tree
