// Definitions of tree/page_tree.h that change the shape of the tree: pages are split, joined or
// moved to other memory.
#pragma once

#include "hako/tree/page_tree.h"

namespace hako::tree {

// Makes room in the locked page for a slot of this key at `index`, or a step towards it. The page
// may be split (SplitResult).
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::MakeRoom(SplitResult* halves, std::string_view key, const Content& content, unsigned index,
                                          bool replaces) {
  Editor page(space_, *halves->wanted);
  const unsigned count = page.shape().count, slot = page.shape().slot_size();
  const std::size_t key_size = replaces ? page.KeySize(index) : key.size();
  // An upper bound.
  const unsigned cell = format::Cell::For(key_size, content.value.size(), content.is_long).Size(0);
  const unsigned live = page.LiveBytes();
  const bool full = (count == format::kPageSlotsMax && !replaces) || live + page.CellSize(key_size, content) + slot > page_size_;
  // For a split.
  const unsigned fewest = page.shape().level() > 0 ? kInnerSlotsMin : replaces ? 2 : 1;
  if (full && count >= fewest) {
    return Split(halves, key, cell, replaces ? count / 2 : index);
  }
  if (CompactForStore(page, key, cell, replaces)) return absl::OkStatus();
  // An ascending load will soon need more room; other loads need it gradually.
  const unsigned mean = count == 0 ? cell : std::max((live - count * slot) / count, 1u);
  const unsigned more = (index == count && !replaces ? live / 2 : live / kGrowth) / (mean + slot) + 1;
  const unsigned spare = std::max(cell, std::min(more * mean, page_size_ / 2));
  if (page.shape().guarded()) {
    PageSnapshot<Compare> before(memory_, *halves->wanted);
    Builder builder(page.shape().level(), FencesOf(before.view()));
    builder.Add(before.view(), 0, count);
    builder.ChoosePrefix(key);
    // An empty page may get another prefix of the same size.
    if (builder.prefix_size() != page.shape().prefix || !page.HasPrefix(key)) return Rebuild(*halves->wanted, builder, more, spare);
  }
  if (!page.Resize(count + more, spare)) return NoMemory();
  return absl::OkStatus();
}

// At a limit in bytes: makes room for a cell of what evictions have left in the locked page, if that is
// enough that it need not be done soon again.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::CompactForStore(Editor& page, std::string_view key, unsigned cell, bool replaces) const {
  static constexpr unsigned kGarbageOf = 32;
  if (!has_byte_limit_ || !page.HasPrefix(key)) return false;
  const unsigned slots = page.shape().count + (replaces ? 0u : 1u), units = page.shape().units;
  if (page.view().tail().garbage < page.shape().size() / kGarbageOf || page.CompactUnits(slots, cell) > units) return false;
  page.Compact(slots, units);
  return true;
}

// Replaces the locked page with the one in the builder.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Rebuild(Line& line, Builder& builder, unsigned more_slots, unsigned spare) {
  const std::uint32_t unit = line.unit;
  const unsigned units = View(memory_, line).shape().units;
  if (!builder.Build(space_, line, more_slots, spare)) return NoMemory();
  space_.Free(unit, units);
  return absl::OkStatus();
}

// Splits the locked page for a slot of `key` that will be inserted at `index`.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Split(SplitResult* halves, std::string_view key, unsigned cell_size, unsigned index) {
  if (halves->kept != nullptr) halves->kept->reserve(halves->kept->size() + 1);
  if (halves->wanted == &root()) HAKO_RETURN_IF_ERROR(GrowRoot(&halves->wanted));
  Line* const left = halves->wanted;
  PageSnapshot<Compare> before(memory_, *left);
  const View old = before.view();
  const unsigned count = old.count(), level = old.level();
  // If the new slot is the last, all others stay together: an ascending load leaves full pages. An
  // inner page still passes on its last child, because without a child the right page would break
  // the tree if the new slot cannot be made.
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
      if (right_id != 0) tree.space_.FreePage(right_id);
      tree.Unlock(parent, true);
    }
    PageTree& tree;
    Line* parent;
    std::uint32_t right_id = 0;
  } locked{*this, LockParent(*left, key)};
  SplitResult parent{locked.parent, nullptr};
  space_.MarkDirty(*parent.wanted);
  const std::uint32_t right_id = locked.right_id = space_.NewPage();  // locked
  if (right_id == 0) return NoMemory();
  Line& right = LineOf(right_id);
  const Content link{{}, false, right_id};
  unsigned child;
  for (;;) {
    const Editor page(space_, *parent.wanted);
    child = page.view().ChildForByCall(separator) + 1;
    if (page.HasPrefix(separator) && page.HasRoomFor(page.CellSize(separator, link))) break;
    HAKO_RETURN_IF_ERROR(MakeRoom(&parent, separator, link, child, false));
  }

  const Fences fences = FencesOf(old);
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
    if (built) space_.Free(right.unit, View(memory_, right).shape().units);
    return NoMemory();
  }
  space_.Free(before.unit(), before.units());
  DivideUses(*left, at, count, right);

  Editor page(space_, *parent.wanted);
  page.Insert(child, separator, link);
  locked.right_id = 0;
  halves->wanted = to_left ? left : &right;
  Release(halves, to_left ? &right : left);
  return absl::OkStatus();
}

// Moves the content of the locked root to a new page, which is locked too, makes the root its
// parent and unlocks it.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::GrowRoot(Line** page) {
  if (View(memory_, root()).level() == format::PageShape::kLevel)
    return absl::ResourceExhaustedError("the tree has reached its maximum height");
  const std::uint32_t id = space_.NewPage();
  if (id == 0) return NoMemory();
  Line& line = LineOf(id);
  PageSnapshot<Compare> before(memory_, root());
  const View old = before.view();
  Builder builder(old.level() + 1, FencesOf(old));
  if (!builder.Build(space_, root(), format::kSlotGroup, 256)) {
    space_.FreePage(id);
    return NoMemory();
  }
  Editor(space_, line).TakeOver(before.unit(), old.shape());
  AppendUses(line, 0, root(), old.count());
  Editor(space_, root()).Insert(0, {}, {{}, false, id});
  Unlock(&root(), true);
  *page = &line;
  return absl::OkStatus();
}

// Unlocks `page`, which is locked and whose range contains `key`. Before that, shrinks it or joins
// it with a neighbour if that can be done at once, or after an evicted neighbour has been loaded.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::Merge(WriterState& writer, Line* page, std::string_view key) {
  for (bool loaded = false;;) {
    bool empty;
    {
      const bool is_marked = TryMarkDirty(*page);  // a sparse leaf of a range may have lost no record
      Editor editor(space_, *page);
      empty = editor.shape().count == 0;
      const unsigned count = editor.shape().count, live = editor.LiveBytes();
      const bool is_loose = count > 0 && editor.shape().size() > 2 * live && is_marked;
      if (is_loose && !editor.Resize(count + 1, live / 16) && has_byte_limit_) editor.Compact(count, editor.CompactUnits(count, 0));
      // An empty page is, however long its fences.
      const bool sparse =
          empty || (live <= page_size_ / 3 && count <= format::kPageSlotsMax / 3) || IsNarrow(editor.shape().level(), count);
      if (page == &root() || !sparse) return Unlock(page, true);
    }
    Line* const parent = LockParent(*page, key);
    const View above(memory_, *parent);
    const unsigned i = above.ChildForByCall(key);
    Line *joined = nullptr, *evicted = nullptr;
    for (const unsigned j : {i + 1, i - 1}) {
      if (j >= above.count()) continue;  // or i is 0
      Line& sibling = LineOf(above.child(j));
      if (!Lock(sibling.version).TryLock()) {
        if constexpr (!Space::kResident) evicted = space_.IsEvicted(IdOf(sibling)) ? &sibling : evicted;
        continue;
      }
      Line* const left = i < j ? page : &sibling;
      if (TryMarkDirty(*page) && TryMarkDirty(sibling) && TryMarkDirty(*parent) && Join(left, i < j ? &sibling : page, empty)) {
        space_.MarkDirty(*parent);
        Editor(space_, *parent).Erase(std::max(i, j));
        joined = left;
        break;
      }
      Unlock(&sibling, false);
    }
    if (joined != nullptr) {
      if (parent == &root() && View(memory_, *parent).count() == 1) return CollapseRoot(*joined);
      Unlock(joined, true);
      page = parent;
      continue;
    }
    const auto level = static_cast<int>(View(memory_, *page).level());
    Unlock(parent, false);
    Unlock(page, true);
    if (evicted == nullptr || loaded) return;
    loaded = true;
    writer.Leave();
    const Status status = LoadIfEvicted({evicted, 0, level});
    space_.gate().Pass(writer);
    Reached again;
    if (!status.ok() || !DescendTo(static_cast<unsigned>(level), key, &again) || !Lock(again.line->version).LockIf(again.version)) return;
    page = again.line;
  }
}

// Joins two locked neighbours into the left one if they fit, and frees the right one. `empty`: one
// of them has no slot.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::Join(Line* left, Line* right, bool empty) {
  PageSnapshot<Compare> left_before(memory_, *left), right_before(memory_, *right);
  const View a = left_before.view(), b = right_before.view();
  const Fences low = FencesOf(a), high = FencesOf(b);
  Builder builder(a.level(), {low.low, high.high, (low.edges & format::PageTail::kNoLow) | (high.edges & format::PageTail::kNoHigh)});
  builder.Add(a, 0, a.count());
  builder.Add(b, 0, b.count());
  builder.ChoosePrefix(std::nullopt);
  const unsigned bytes = builder.CellBytes() + builder.count() * a.shape().slot_size();
  // An empty page is joined with a neighbour of any size, unless without the shared prefix the
  // neighbour's keys would become too long. So are inner pages of few slots: otherwise, with long
  // keys, most of them would end with one slot, and the tree would be too high.
  const bool at_any_size = empty || IsNarrow(a.level(), builder.count());
  if (builder.count() > format::kPageSlotsMax * 3 / 4 || bytes > (at_any_size ? kJoinedMax : page_size_ * 3 / 4)) return false;
  space_.MarkDirty(*left);
  space_.MarkDirty(*right);
  if (!builder.Build(space_, *left, 1, bytes / 16)) return false;
  AppendUses(*left, a.count(), *right, b.count());
  space_.Free(left_before.unit(), left_before.units());
  space_.Free(right_before.unit(), right_before.units());
  space_.FreePage(IdOf(*right));
  return true;
}

// Moves the content of the root's only child to the root and unlocks it. REQUIRES: both are locked
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::CollapseRoot(Line& child) {
  Lock(root().version).AssertLocked();
  Lock(child.version).AssertLocked();
  const View below(memory_, child);
  space_.Free(root().unit, View(memory_, root()).shape().units);
  Editor(space_, root()).TakeOver(child.unit, below.shape());
  AppendUses(root(), 0, child, below.count());
  space_.FreePage(IdOf(child));
  Unlock(&root(), true);
}

}  // namespace hako::tree
