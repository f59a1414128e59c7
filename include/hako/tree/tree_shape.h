// Changes the shape of a tree: pages are split, joined or moved to other memory.
//
// The caller must have locked the page that it passes. Locks of the pages above are taken upwards
// only, and any other lock is only tried (invariant 4 of tree/page_tree.h).
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "hako/tree/key_buffer.h"
#include "hako/tree/tree_pages.h"

namespace hako::tree {

template <class Space, Comparator Compare>
class TreeShape {
  using Pages = TreePages<Space, Compare>;
  using Line = typename Pages::Line;
  using View = typename Pages::View;
  using Editor = typename Pages::Editor;
  using Builder = typename Pages::Builder;
  using Lock = typename Pages::Lock;

 public:
  // A locked page that may be split. After a split, `wanted` is the half for the key; the other
  // half is unlocked, or stays locked and is appended to `kept`.
  using Halves = absl::InlinedVector<Line*, 16>;
  struct SplitResult {
    Line*& wanted;
    Halves* kept;
  };

  // A page is split when it would exceed `page_size` bytes.
  TreeShape(const Pages& pages, unsigned page_size) : pages_(pages), space_(pages.space()), page_size_(page_size) {}

  // Makes room in the locked page for a slot of this key at `index`, or makes a step towards it.
  // May split the page (SplitResult).
  Status MakeRoom(SplitResult* halves, std::string_view key, const Content& content, unsigned index, bool replaces) {
    Lock(halves->wanted->version).AssertLocked();
    Editor page(space_, *halves->wanted);
    const unsigned count = page.shape().count, slot = page.shape().slot_size();
    const std::size_t key_size = replaces ? page.KeySize(index) : key.size();
    // An upper bound of the cell's size.
    const unsigned cell = format::Cell::For(key_size, content.value.size(), content.is_long).Size(0);
    const unsigned live = page.LiveBytes();
    const bool full = (count == format::kPageSlotsMax && !replaces) || live + page.CellSize(key_size, content) + slot > page_size_;
    // The fewest slots of a page that can be split.
    const unsigned fewest = page.shape().level() > 0 ? kInnerSlotsMin : replaces ? 2 : 1;
    if (full && count >= fewest) {
      return Split(halves, key, cell, replaces ? count / 2 : index);
    }
    if (CompactForStore(page, key, cell, replaces)) return absl::OkStatus();
    // A load in ascending order will soon need more room here; other loads need it gradually.
    const unsigned mean = count == 0 ? cell : std::max((live - count * slot) / count, 1u);
    const unsigned more = (index == count && !replaces ? live / 2 : live / kGrowth) / (mean + slot) + 1;
    const unsigned spare = std::max(cell, std::min(more * mean, page_size_ / 2));
    if (page.shape().guarded()) {
      PageSnapshot<Compare> before(space_.memory(), *halves->wanted);
      Builder builder(page.shape().level(), Pages::FencesOf(before.view()));
      builder.Add(before.view(), 0, count);
      builder.ChoosePrefix(key);
      // An empty page may get another prefix of the same size.
      if (builder.prefix_size() != page.shape().prefix || !page.HasPrefix(key)) return Rebuild(*halves->wanted, builder, more, spare);
    }
    if (!page.Resize(count + more, spare)) return Pages::NoMemory();
    return absl::OkStatus();
  }

  // Whether a locked leaf is so empty that it should return memory, or be joined with its neighbour.
  bool IsSparse(const Line& line) const {
    const Editor page(space_, const_cast<Line&>(line));
    return page.shape().size() > 2 * page.LiveBytes() + 4 * format::kPageUnit || page.shape().count == 0;
  }

  // Whether a leaf has so few bytes beside garbage that it should be joined with a neighbour.
  bool IsSmall(const Line& line) const {
    const Editor page(space_, const_cast<Line&>(line));
    return page.shape().count == 0 || (page.LiveBytes() <= page_size_ / 4 && page.shape().count <= format::kPageSlotsMax / 4);
  }

  // Shrinks the page, whose range contains `key`, or joins it with a neighbour, if that can be done
  // at once or after an evicted neighbour was loaded. Then unlocks it.
  void Merge(typename Space::WriterState& writer, Line* page, std::string_view key) {
    Lock(page->version).AssertLocked();
    for (bool loaded = false;;) {
      bool empty;
      {
        const bool is_marked = pages_.TryMarkDirty(*page);  // a sparse leaf in the range may have lost no record
        Editor editor(space_, *page);
        empty = editor.shape().count == 0;
        const unsigned count = editor.shape().count, live = editor.LiveBytes();
        const bool is_loose = count > 0 && editor.shape().size() > 2 * live && is_marked;
        if (is_loose && !editor.Resize(count + 1, live / 16) && pages_.has_byte_limit())
          editor.Compact(count, editor.CompactUnits(count, 0));
        // An empty page is sparse, however long its fences are.
        const bool sparse =
            empty || (live <= page_size_ / 3 && count <= format::kPageSlotsMax / 3) || IsNarrow(editor.shape().level(), count);
        if (page == &pages_.root() || !sparse) return Pages::Unlock(page, true);
      }
      Line* const parent = pages_.LockParent(*page, key);
      const View above = pages_.ViewOf(*parent);
      const unsigned i = above.ChildForByCall(key);
      Line *joined = nullptr, *evicted = nullptr;
      for (const unsigned j : {i + 1, i - 1}) {
        if (j >= above.count()) continue;  // or i is 0
        Line& sibling = pages_.LineOf(above.child(j));
        if (!Lock(sibling.version).TryLock()) {
          if (space_.IsEvicted(pages_.IdOf(sibling))) evicted = &sibling;
          continue;
        }
        Line* const left = i < j ? page : &sibling;
        if (pages_.TryMarkDirty(*page) && pages_.TryMarkDirty(sibling) && pages_.TryMarkDirty(*parent) &&
            Join(left, i < j ? &sibling : page, empty)) {
          space_.MarkDirty(*parent);
          Editor(space_, *parent).Erase(std::max(i, j));
          joined = left;
          break;
        }
        Pages::Unlock(&sibling, false);
      }
      if (joined != nullptr) {
        if (parent == &pages_.root() && pages_.ViewOf(*parent).count() == 1) return CollapseRoot(*joined);
        Pages::Unlock(joined, true);
        page = parent;
        continue;
      }
      const auto level = static_cast<int>(pages_.ViewOf(*page).level());
      Pages::Unlock(parent, false);
      Pages::Unlock(page, true);
      if (evicted == nullptr || loaded) return;
      loaded = true;
      writer.Leave();
      const Status status = pages_.LoadIfEvicted({evicted, 0, level});
      space_.gate().Pass(writer);
      typename Pages::Reached again;
      if (!status.ok() || !pages_.DescendTo(static_cast<unsigned>(level), key, &again) || !Lock(again.line->version).LockIf(again.version))
        return;
      page = again.line;
    }
  }

 private:
  static constexpr unsigned kGrowth = 6;  // a full page grows by 1 / kGrowth of its size
  // The most bytes of slots and cells after a join, which leave room in a page for the longest
  // fences.
  static constexpr unsigned kJoinedMax = 16 << 10;
  // An inner page has room for this many slots, however long its keys.
  static constexpr unsigned kInnerSlotsMin = 4;
  static bool IsNarrow(unsigned level, unsigned count) { return level > 0 && count < kInnerSlotsMin; }

  // Only with a limit in bytes: makes room for a cell from the garbage that evictions have left in
  // the locked page, if there is so much garbage that this need not be repeated soon.
  bool CompactForStore(Editor& page, std::string_view key, unsigned cell, bool replaces) const {
    static constexpr unsigned kGarbageOf = 32;
    if (!pages_.has_byte_limit() || !page.HasPrefix(key)) return false;
    const unsigned slots = page.shape().count + (replaces ? 0u : 1u), units = page.shape().units;
    if (page.view().tail().garbage < page.shape().size() / kGarbageOf || page.CompactUnits(slots, cell) > units) return false;
    page.Compact(slots, units);
    return true;
  }

  // Replaces the locked page with the one in the builder.
  Status Rebuild(Line& line, Builder& builder, unsigned more_slots, unsigned spare) {
    const std::uint32_t unit = line.unit;
    const unsigned units = pages_.ViewOf(line).shape().units;
    if (!builder.Build(space_, line, more_slots, spare)) return Pages::NoMemory();
    space_.Free(unit, units);
    return absl::OkStatus();
  }

  // Splits the locked page for a slot of `key` that will be inserted at `index`.
  Status Split(SplitResult* halves, std::string_view key, unsigned cell_size, unsigned index) {
    if (halves->kept != nullptr) halves->kept->reserve(halves->kept->size() + 1);
    if (halves->wanted == &pages_.root()) HAKO_RETURN_IF_ERROR(GrowRoot(&halves->wanted));
    Line* const left = halves->wanted;
    PageSnapshot<Compare> before(space_.memory(), *left);
    const View old = before.view();
    const unsigned count = old.count(), level = old.level();
    // If the new slot is the last, all others stay together, so that an ascending load leaves full
    // pages. An inner page still gives its last child to the right page, because a right page
    // without a child would break the tree if the new slot cannot be made.
    const bool ascends = index == count;
    const unsigned at = ascends ? count - (level > 0 ? 1 : 0) : count == 1 ? 0 : Builder::MiddleOf(old);

    KeyBuffer separator(key);  // the least key of the right page
    if (at < count) Builder::CopyKeyOf(old, at, &separator);
    if (level == 0 && View::kBytewise) {  // as short as possible
      KeyBuffer below;
      if (at == 0)
        below.assign(key);
      else
        Builder::CopyKeyOf(old, at - 1, &below);
      separator.resize(Builder::Common(below, separator) + 1);
    }

    struct Locked {  // until the end of the scope, on every path
      ~Locked() {
        if (right_id != 0) space.FreePage(right_id);
        Pages::Unlock(parent, true);
      }
      Space& space;
      Line* parent;
      std::uint32_t right_id = 0;
    } locked{space_, pages_.LockParent(*left, key)};
    SplitResult parent{locked.parent, nullptr};
    space_.MarkDirty(*parent.wanted);
    const std::uint32_t right_id = locked.right_id = space_.NewPage();  // locked
    if (right_id == 0) return Pages::NoMemory();
    Line& right = pages_.LineOf(right_id);
    const Content link{{}, false, right_id};
    unsigned child;
    for (;;) {
      const Editor page(space_, *parent.wanted);
      child = page.view().ChildForByCall(separator) + 1;
      if (page.HasPrefix(separator) && page.HasRoomFor(page.CellSize(separator, link))) break;
      HAKO_RETURN_IF_ERROR(MakeRoom(&parent, separator, link, child, false));
    }

    const Fences fences = Pages::FencesOf(old);
    Builder left_page(level, {fences.low, separator, fences.edges & format::PageTail::kNoLow});
    Builder right_page(level, {separator, fences.high, fences.edges & format::PageTail::kNoHigh});
    left_page.Add(old, 0, at);
    right_page.Add(old, at, count);
    const bool to_left = Compare::Compare(key, separator) < 0;
    left_page.ChoosePrefix(to_left ? std::optional(key) : std::nullopt);
    right_page.ChoosePrefix(to_left ? std::nullopt : std::optional(key));
    const unsigned mean = count == 0 ? cell_size : (old.shape().heap) / count;
    const unsigned more = ascends ? 0 : at / kGrowth + 1;
    const unsigned right_more = ascends ? format::kSlotGroup : (count - at) / kGrowth + 1;
    const bool built = right_page.Build(space_, right, right_more, std::max(cell_size, std::min(right_more * mean, page_size_ / 2)));
    if (!built || !left_page.Build(space_, *left, more, at == 0 ? cell_size : std::min(more * mean, page_size_ / 2))) {
      if (built) space_.Free(right.unit, pages_.ViewOf(right).shape().units);
      return Pages::NoMemory();
    }
    space_.Free(before.unit(), before.units());
    DivideUses(*left, at, count, right);
    pages_.passed_leaves().Copy(pages_.IdOf(*left), right_id);

    Editor page(space_, *parent.wanted);
    page.Insert(child, separator, link);
    locked.right_id = 0;
    halves->wanted = to_left ? left : &right;
    Release(halves, to_left ? &right : left);
    return absl::OkStatus();
  }

  // Moves the content of the locked root to a new page, which is locked too, makes the root its
  // parent and unlocks it.
  Status GrowRoot(Line** page) {
    if (pages_.ViewOf(pages_.root()).level() == format::PageShape::kLevel)
      return absl::ResourceExhaustedError("the tree has reached its maximum height");
    const std::uint32_t id = space_.NewPage();
    if (id == 0) return Pages::NoMemory();
    Line& line = pages_.LineOf(id);
    PageSnapshot<Compare> before(space_.memory(), pages_.root());
    const View old = before.view();
    Builder builder(old.level() + 1, Pages::FencesOf(old));
    if (!builder.Build(space_, pages_.root(), format::kSlotGroup, 256)) {
      space_.FreePage(id);
      return Pages::NoMemory();
    }
    Editor(space_, line).TakeOver(before.unit(), old.shape());
    AppendUses(line, 0, pages_.root(), old.count());
    pages_.passed_leaves().Copy(pages_.IdOf(pages_.root()), id);
    Editor(space_, pages_.root()).Insert(0, {}, {{}, false, id});
    Pages::Unlock(&pages_.root(), true);
    *page = &line;
    return absl::OkStatus();
  }

  // Joins two locked neighbours into the left one if they fit, and frees the right one. `empty`:
  // one of the two has no slots.
  bool Join(Line* left, Line* right, bool empty) {
    Lock(left->version).AssertLocked();
    Lock(right->version).AssertLocked();
    PageSnapshot<Compare> left_before(space_.memory(), *left), right_before(space_.memory(), *right);
    const View a = left_before.view(), b = right_before.view();
    const Fences low = Pages::FencesOf(a), high = Pages::FencesOf(b);
    Builder builder(a.level(), {low.low, high.high, (low.edges & format::PageTail::kNoLow) | (high.edges & format::PageTail::kNoHigh)});
    builder.Add(a, 0, a.count());
    builder.Add(b, 0, b.count());
    builder.ChoosePrefix(std::nullopt);
    const unsigned bytes = builder.CellBytes() + builder.count() * a.shape().slot_size();
    // Join an empty page with a neighbour of any size, unless the neighbour's keys would become too
    // long without the shared prefix. Do the same with inner pages of few slots: otherwise, with
    // long keys, most of them would end up with one slot, and the tree would be too high.
    const bool at_any_size = empty || IsNarrow(a.level(), builder.count());
    if (builder.count() > format::kPageSlotsMax * 3 / 4 || bytes > (at_any_size ? kJoinedMax : page_size_ * 3 / 4)) return false;
    space_.MarkDirty(*left);
    space_.MarkDirty(*right);
    if (!builder.Build(space_, *left, 1, bytes / 16)) return false;
    AppendUses(*left, a.count(), *right, b.count());
    pages_.passed_leaves().Join(pages_.IdOf(*right), pages_.IdOf(*left));
    space_.Free(left_before.unit(), left_before.units());
    space_.Free(right_before.unit(), right_before.units());
    space_.FreePage(pages_.IdOf(*right));
    return true;
  }

  // Moves the content of the root's only child to the root and unlocks it. REQUIRES: both are locked
  void CollapseRoot(Line& child) {
    Lock(pages_.root().version).AssertLocked();
    Lock(child.version).AssertLocked();
    const View below = pages_.ViewOf(child);
    space_.Free(pages_.root().unit, pages_.ViewOf(pages_.root()).shape().units);
    Editor(space_, pages_.root()).TakeOver(child.unit, below.shape());
    AppendUses(pages_.root(), 0, child, below.count());
    pages_.passed_leaves().Copy(pages_.IdOf(child), pages_.IdOf(pages_.root()));
    space_.FreePage(pages_.IdOf(child));
    Pages::Unlock(&pages_.root(), true);
  }

  static void Release(SplitResult* halves, Line* other) {
    if (halves->kept == nullptr) return Pages::Unlock(other, true);
    halves->kept->push_back(other);  // capacity is reserved, see Split
  }
  // Call when a page was split: moves the use bits of the slots from `at` on to `right`.
  void DivideUses(const Line& left, unsigned at, unsigned count, const Line& right) const {
    if (PageLimit* const limit = LimitOf(space_)) limit->UseOf(left).Divide(at, count, &limit->UseOf(right));
  }
  // Appends the use bits of `count` slots of `from` after the first `before` of `to`.
  void AppendUses(const Line& to, unsigned before, const Line& from, unsigned count) const {
    if (PageLimit* const limit = LimitOf(space_)) limit->UseOf(to).Take(limit->UseOf(from), 0, count, before);
  }

  const Pages& pages_;
  Space& space_;
  const unsigned page_size_;
};

}  // namespace hako::tree
