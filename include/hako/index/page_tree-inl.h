// The page engine's operations; page_tree.h has the design.
#pragma once

#include "hako/index/page_tree.h"

namespace hako::index {

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Create() {
  const std::uint32_t id = space_.NewPage();
  if (id == 0) return NoMemory();
  root_ = &LineOf(id);
  Builder builder(0, {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh});
  if (!builder.Build(space_, root(), format::kSlotGroup, 256)) return NoMemory();
  return absl::OkStatus();
}

template <class Space, Comparator Compare>
HAKO_INLINE bool PageTree<Space, Compare>::Descend(std::string_view key, Reached* reached) const {
  Line* line = &root();
  std::uint32_t version = Lock(line->version).ReadVersion();
  if ((version & Lock::kLocked) != 0) [[unlikely]]
    return false;
  for (;;) {
    const View page(memory_, *line);
    if (page.level() == 0) {
      *reached = {line, version};
      return true;
    }
    Line* const child = &LineOf(page.child(page.ChildFor(key)));
    const std::uint32_t child_version = Lock(child->version).ReadVersion();
    if (!Lock(line->version).IsCurrent(version) || (child_version & Lock::kLocked) != 0) [[unlikely]]
      return false;
    line = child;
    version = child_version;
  }
}

template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::DescendTo(unsigned level, std::string_view key, Reached* reached) const {
  Line* line = &root();
  std::uint32_t version = Lock(line->version).ReadVersion();
  for (;;) {
    if ((version & Lock::kLocked) != 0) return false;
    const View page(memory_, *line);
    if (page.level() <= level) {
      *reached = {line, version};
      return page.level() == level;
    }
    Line* const child = &LineOf(page.child(page.ChildFor(key)));
    const std::uint32_t child_version = Lock(child->version).ReadVersion();
    if (!Lock(line->version).IsCurrent(version)) return false;
    line = child;
    version = child_version;
  }
}

template <class Space, Comparator Compare>
HAKO_INLINE auto PageTree<Space, Compare>::LockLeaf(Slot& slot, std::string_view key) -> Line* {
  slot.Enter();
  if (Reached leaf; Descend(key, &leaf) && Lock(leaf.line->version).LockIf(leaf.version)) [[likely]] {
    if (!space_.gate().IsClosed()) [[likely]]
      return leaf.line;
    Unlock(leaf.line, false);
  }
  return LockLeafSlowly(slot, key);
}

template <class Space, Comparator Compare>
auto PageTree<Space, Compare>::LockLeafSlowly(Slot& slot, std::string_view key) -> Line* {
  for (sync::Backoff backoff;; backoff.Pause()) {
    if (space_.gate().IsClosed()) {
      slot.Leave();
      space_.gate().WaitUntilOpen();
      slot.Enter();
    }
    if (Reached leaf; DescendTo(0, key, &leaf) && Lock(leaf.line->version).LockIf(leaf.version)) {
      if (!space_.gate().IsClosed()) return leaf.line;
      Unlock(leaf.line, false);
    }
  }
}

// The locked page above `child`, which the caller has locked and which holds `key`: so it stays somewhere below the root, and what is above
// it changes only by others, who end.
template <class Space, Comparator Compare>
auto PageTree<Space, Compare>::LockParent(const Line& child, std::string_view key) const -> Line* {
  const std::uint32_t id = IdOf(child);
  const unsigned level = View(memory_, const_cast<Line&>(child)).level() + 1;
  for (sync::Backoff backoff;; backoff.Pause()) {
    Reached parent;
    if (!DescendTo(level, key, &parent) || !Lock(parent.line->version).LockIf(parent.version)) continue;
    const View page(memory_, *parent.line);
    if (page.child(page.ChildFor(key)) == id) return parent.line;
    Unlock(parent.line, false);
  }
}

template <class Space, Comparator Compare>
template <class S>
HAKO_INLINE auto PageTree<Space, Compare>::FetchFrom(const Reached& leaf, std::string_view key, S& sink) const -> Outcome {
  const View page(memory_, *leaf.line);
  const auto place = page.Find(key);
  if (!place.found) return Lock(leaf.line->version).IsCurrent(leaf.version) ? Outcome::kAbsent : Outcome::kRaced;
  const char* const cell = place.cell;
  const format::Cell sizes = place.sizes;
  if (sizes.is_long || cell + sizes.Size(View::kInlined) > page.end()) [[unlikely]]
    return Outcome::kRaced;
  if (char* out = sink(std::size_t{sizes.value})) sync::LoadShared(out, cell + sizes.header + sizes.Rest(View::kInlined), sizes.value);
  return Lock(leaf.line->version).IsCurrent(leaf.version) ? Outcome::kFound : Outcome::kRaced;
}

template <class Space, Comparator Compare>
template <class S>
HAKO_INLINE auto PageTree<Space, Compare>::TryFetch(std::string_view key, S& sink) const -> Outcome {
  Reached leaf;
  if (!Descend(key, &leaf)) [[unlikely]]
    return Outcome::kRaced;
  return FetchFrom(leaf, key, sink);
}

template <class Space, Comparator Compare>
template <class S, class GetSlot>
HAKO_INLINE Status PageTree<Space, Compare>::Fetch(GetSlot&& get_slot, std::string_view key, S&& sink) {
  const Outcome outcome = TryFetch(key, sink);
  if (outcome == Outcome::kFound) [[likely]]
    return absl::OkStatus();
  if (outcome == Outcome::kAbsent) return AbsentError();
  return FetchSlowly(get_slot, key, sink);
}

template <class Space, Comparator Compare>
template <class S, class GetSlot>
Status PageTree<Space, Compare>::FetchSlowly(GetSlot get_slot, std::string_view key, S& sink) {
  sync::Backoff backoff;
  for (int i = 0; i < kOptimisticTries; ++i, backoff.Pause()) {
    Reached leaf;
    if (!DescendTo(0, key, &leaf)) continue;
    const Outcome outcome = FetchFrom(leaf, key, sink);
    if (outcome != Outcome::kRaced) return outcome == Outcome::kFound ? absl::OkStatus() : AbsentError();
    // A long value, most likely, which only the lock holds in place.
    if (Lock(leaf.line->version).IsCurrent(leaf.version)) break;
  }
  Slot* slot = get_slot();
  if (slot == nullptr) return absl::ResourceExhaustedError("more threads use databases than hako has slots for (sync/thread_slot.h)");
  Turn turn(*this, *slot, key);
  const View page(memory_, *turn.line);
  const auto place = page.Find(key);
  if (!place.found) return AbsentError();
  const std::string_view value = ValueOf(page, place.index);
  if (char* out = sink(value.size())) std::memcpy(out, value.data(), value.size());
  return absl::OkStatus();
}

template <class Space, Comparator Compare>
template <class ActionT, class V>
Status PageTree<Space, Compare>::Process(Slot& slot, std::string_view key, V&& visit) {
  Turn turn(*this, slot, key);
  const View page(memory_, *turn.line);
  const auto place = page.Find(key);
  char* const bytes = const_cast<char*>(place.cell) + place.sizes.header + place.sizes.Rest(View::kInlined);
  const auto value = [&]() -> std::optional<std::string_view> {
    if (!place.found) return std::nullopt;
    const std::string_view stored(bytes, place.sizes.value);
    return place.sizes.is_long ? space_.ViewLong(LongValueIn(stored)) : stored;
  };
  if constexpr (std::is_void_v<ActionT>) {
    visit(value());
    return absl::OkStatus();
  } else {
    const ActionT action = [&] {
      if constexpr (kReads<ActionT, V>)
        return visit(value());
      else
        return visit(place.found);
    }();
    if (action.kind() == ActionT::Kind::kSet) {
      if (place.found && place.sizes.value == action.value().size() && !place.sizes.is_long) [[likely]] {
        turn.changed = true;
        sync::StoreShared(bytes, action.value().data(), action.value().size());
        return absl::OkStatus();
      }
      Halves leaf{turn.line, nullptr};
      const Status status = Store(&leaf, key, action.value(), place);
      turn.line = leaf.wanted;
      turn.changed = true;
      if (status.ok() && !place.found) AddToCount(slot, 1);
      return status;
    }
    if (action.kind() == ActionT::Kind::kRemove && place.found) {
      turn.changed = true;
      RemoveSlot(*turn.line, place.index);
      AddToCount(slot, -1);
      if (IsSparse(*turn.line)) [[unlikely]]
        Merge(std::exchange(turn.line, nullptr), key);
    }
    return absl::OkStatus();
  }
}

// Puts the record into the locked leaf, where `place` says; the leaf may become two.
template <class Space, Comparator Compare>
HAKO_INLINE Status PageTree<Space, Compare>::Store(Halves* leaf, std::string_view key, std::string_view value, typename View::Place place) {
  Editor page(space_, *leaf->wanted);
  const Content content{value};
  if (value.size() <= value_max_) [[likely]] {
    if (place.found) {
      if (!LongValueOf(page.view(), place.index) && page.Replace(place.index, key, content)) [[likely]]
        return absl::OkStatus();
    } else if (page.HasPrefix(key) && page.HasRoomFor(page.CellSize(key, content))) [[likely]] {
      page.Insert(place.index, key, content);
      return absl::OkStatus();
    }
  }
  return StoreSlowly(leaf, key, value, place);
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::StoreSlowly(Halves* leaf, std::string_view key, std::string_view value, typename View::Place place) {
  if (value.size() > kValueSizeMax) return TooLargeError("a value", value.size(), kValueSizeMax);
  format::LongValue stored{};
  Content content{value};
  if (value.size() > value_max_) {
    stored = {space_.StoreLong(value), value.size()};
    if (stored.place == 0) return absl::ResourceExhaustedError(absl::StrCat("no memory for a value of ", value.size(), " bytes"));
    content = {{reinterpret_cast<const char*>(&stored), sizeof(stored)}, true};
  }
  const auto replaced = place.found ? LongValueOf(View(memory_, *leaf->wanted), place.index) : std::nullopt;
  for (;;) {
    Editor page(space_, *leaf->wanted);
    if (place.found) {
      if (page.Replace(place.index, key, content)) break;
    } else if (page.HasPrefix(key) && page.HasRoomFor(page.CellSize(key, content))) {
      page.Insert(place.index, key, content);
      break;
    }
    if (const Status status = MakeRoom(leaf, key, content, place.index, place.found); !status.ok()) {
      if (content.is_long) space_.FreeLong(stored);
      return status;
    }
    place = View(memory_, *leaf->wanted).Find(key);
  }
  if (replaced) space_.FreeLong(*replaced);
  return absl::OkStatus();
}

// Makes it possible, or comes nearer to it, that a slot of this key goes into the locked page at `index`. The page may become two: then
// `wanted` is the one for the key, and both are locked.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::MakeRoom(Halves* halves, std::string_view key, const Content& content, unsigned index, bool replaces) {
  Editor page(space_, *halves->wanted);
  const unsigned count = page.shape().count, slot = page.shape().slot_size();
  const unsigned cell = format::Cell::For(key.size(), content.value.size(), content.is_long).Size(0);  // at most
  const unsigned live = page.LiveBytes();
  const bool full = (count == format::kPageSlotsMax && !replaces) || live + page.CellSize(key, content) + slot > page_size_;
  const unsigned fewest = page.shape().level() > 0 ? 4 : replaces ? 2 : 1;  // slots, to be divided
  if (full && count >= fewest) {
    return Split(halves, key, cell, replaces ? count / 2 : index);
  }
  // An ascending load will soon want more, others little by little.
  const unsigned mean = count == 0 ? cell : std::max((live - count * slot) / count, 1u);
  const unsigned more = (index == count && !replaces ? live / 2 : live / kGrowth) / (mean + slot) + 1;
  const unsigned spare = std::max(cell, std::min(more * mean, page_size_ / 2));
  if (page.shape().guarded()) {
    PageSnapshot<Compare> before(memory_, *halves->wanted);
    Builder builder(page.shape().level(), FencesOf(before.view()));
    builder.Add(before.view(), 0, count);
    builder.ChoosePrefix(key);
    if (builder.prefix_size() != page.shape().prefix) return Rebuild(*halves->wanted, builder, more, spare);
  }
  if (!page.Resize(count + more, spare)) return NoMemory();
  return absl::OkStatus();
}

// Makes the locked page what the builder has of it.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Rebuild(Line& line, Builder& builder, unsigned more_slots, unsigned spare) {
  const std::uint32_t unit = line.unit;
  const unsigned units = View(memory_, line).shape().units;
  if (!builder.Build(space_, line, more_slots, spare)) return NoMemory();
  space_.Free(unit, units);
  return absl::OkStatus();
}

// Divides the locked page for a slot of `key` that is to come at `index`.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Split(Halves* halves, std::string_view key, unsigned cell_size, unsigned index) {
  Line* left = halves->wanted;
  if (left == &root()) HAKO_RETURN_IF_ERROR(Deepen(&left));
  halves->wanted = left;
  PageSnapshot<Compare> before(memory_, *left);
  const View old = before.view();
  const unsigned count = old.count(), level = old.level();
  // Where the new slot is the last, all others stay together: an ascending load leaves full pages behind.
  const unsigned at = index == count ? count : count == 1 ? 0 : Builder::MiddleOf(old);

  std::string separator;  // the least keys of the right page, in short
  if (level > 0 || !View::kBytewise) {
    if (at == count)
      separator.assign(key);
    else
      Builder::CopyKeyOf(old, at, &separator);
  } else {
    std::string below;
    if (at == count)
      separator.assign(key);
    else
      Builder::CopyKeyOf(old, at, &separator);
    if (at == 0)
      below.assign(key);
    else
      Builder::CopyKeyOf(old, at - 1, &below);
    separator.resize(Builder::Common(below, separator) + 1);
  }

  Halves parent{LockParent(*left, key), nullptr};
  const std::uint32_t right_id = space_.NewPage();
  const auto fail = [&] {
    if (right_id != 0) space_.FreePage(right_id);
    Unlock(parent.wanted, true);
    return NoMemory();
  };
  if (right_id == 0) return fail();
  Line& right = LineOf(right_id);
  const Content link{{}, false, right_id};
  unsigned child;
  for (;;) {
    const Editor page(space_, *parent.wanted);
    child = page.shape().count == 0 ? 0 : page.view().ChildFor(separator) + 1;
    if (page.HasPrefix(separator) && page.HasRoomFor(page.CellSize(separator, link))) break;
    if (!MakeRoom(&parent, separator, link, child, false).ok()) return fail();
  }

  const Fences fences = FencesOf(old);
  Builder left_page(level, {fences.low, separator, fences.edges & format::PageTail::kNoLow});
  Builder right_page(level, {separator, fences.high, fences.edges & format::PageTail::kNoHigh});
  left_page.Add(old, 0, at);
  right_page.Add(old, at, count);
  const bool to_left = Compare::Compare(key, separator) < 0;
  left_page.ChoosePrefix(to_left ? std::optional(key) : std::nullopt);
  right_page.ChoosePrefix(to_left ? std::nullopt : std::optional(key));
  Lock(right.version).Lock();
  const unsigned mean = count == 0 ? cell_size : (old.shape().heap) / count;
  const unsigned more = at == count ? 0 : at / kGrowth + 1;
  const unsigned right_more = at == count ? format::kSlotGroup : (count - at) / kGrowth + 1;
  const bool built = right_page.Build(space_, right, right_more, std::max(cell_size, std::min(right_more * mean, page_size_ / 2)));
  if (!built || !left_page.Build(space_, *left, more, at == 0 ? cell_size : std::min(more * mean, page_size_ / 2))) {
    if (built) space_.Free(right.unit, View(memory_, right).shape().units);
    Unlock(&right, true);
    return fail();
  }
  space_.Free(before.unit(), before.units());

  Editor page(space_, *parent.wanted);
  page.Insert(child, child == 0 ? page.view().prefix() : std::string_view(separator), link);
  Unlock(parent.wanted, true);
  halves->wanted = to_left ? left : &right;
  Release(halves, to_left ? &right : left);
  return absl::OkStatus();
}

// Gives the locked root's contents to a new page, locked too, and makes the root its parent.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Deepen(Line** page) {
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
  Lock(line.version).Lock();
  std::atomic_ref(line.unit).store(before.unit(), std::memory_order_relaxed);
  Editor moved(space_, line);
  moved.StoreShape(old.shape());
  for (std::int32_t& hint : line.hints) std::atomic_ref(hint).store(format::kNoHead, std::memory_order_relaxed);
  moved.StoreHints(0);
  Editor(space_, root()).Insert(0, {}, {{}, false, id});
  Unlock(&root(), true);
  *page = &line;
  return absl::OkStatus();
}

template <class Space, Comparator Compare>
void PageTree<Space, Compare>::RemoveSlot(Line& line, unsigned i) {
  Editor page(space_, line);
  if (const auto value = LongValueOf(page.view(), i)) space_.FreeLong(*value);
  page.Erase(i);
}

// Whether a locked leaf has so little left that it should give memory back, or join its neighbour.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::IsSparse(const Line& line) const {
  const Editor page(space_, const_cast<Line&>(line));
  const unsigned live = page.LiveBytes();
  return page.shape().size() > 2 * live + 4 * format::kPageUnit || page.shape().count == 0;
}

// Unlocks `page`, which is locked and holds `key`, after it was made smaller or joined with a neighbour, if that can be done at once.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::Merge(Line* page, std::string_view key) {
  for (;;) {
    bool empty;
    {
      Editor editor(space_, *page);
      empty = editor.shape().count == 0;
      const unsigned count = editor.shape().count, live = editor.LiveBytes();
      if (count > 0 && editor.shape().size() > 2 * live) editor.Resize(count + 1, live / 16);
      if (page == &root() || live > page_size_ / 3 || count > format::kPageSlotsMax / 3) return Unlock(page, true);
    }
    Line* const parent = LockParent(*page, key);
    const View above(memory_, *parent);
    const unsigned i = above.ChildFor(key);
    const unsigned j = i + 1 < above.count() ? i + 1 : i - 1;
    Line* const sibling = above.count() > 1 ? &LineOf(above.child(j)) : nullptr;
    if (sibling == nullptr || !Lock(sibling->version).TryLock()) {
      Unlock(parent, false);
      return Unlock(page, true);
    }
    Line* const left = i < j ? page : sibling;
    Line* const right = i < j ? sibling : page;
    PageSnapshot<Compare> left_before(memory_, *left), right_before(memory_, *right);
    const View a = left_before.view(), b = right_before.view();
    const Fences low = FencesOf(a), high = FencesOf(b);
    Builder builder(a.level(), {low.low, high.high, (low.edges & format::PageTail::kNoLow) | (high.edges & format::PageTail::kNoHigh)});
    builder.Add(a, 0, a.count());
    builder.Add(b, 0, b.count());
    builder.ChoosePrefix(std::nullopt);
    const unsigned bytes = builder.CellBytes() + builder.count() * a.shape().slot_size();
    const bool fits = builder.count() <= format::kPageSlotsMax * 3 / 4 && (bytes <= page_size_ * 3 / 4 || empty);
    const bool merged = fits && builder.Build(space_, *left, 1, bytes / 16);
    if (!merged) {
      Unlock(sibling, false);
      Unlock(parent, false);
      return Unlock(page, true);
    }
    space_.Free(left_before.unit(), left_before.units());
    space_.Free(right_before.unit(), right_before.units());
    Unlock(right, true);
    space_.FreePage(IdOf(*right));
    Editor(space_, *parent).Erase(std::max(i, j));
    if (parent == &root() && View(memory_, *parent).count() == 1) return MoveUp(*left);
    Unlock(left, true);
    page = parent;
  }
}

// Makes the root's only child, locked like the root, the root.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::MoveUp(Line& child) {
  const View below(memory_, child);
  space_.Free(root().unit, View(memory_, root()).shape().units);
  std::atomic_ref(root().unit).store(child.unit, std::memory_order_relaxed);
  Editor editor(space_, root());
  editor.StoreShape(below.shape());
  for (std::int32_t& hint : root().hints) std::atomic_ref(hint).store(format::kNoHead, std::memory_order_relaxed);
  editor.StoreHints(0);
  Unlock(&child, true);
  space_.FreePage(IdOf(child));
  Unlock(&root(), true);
}

template <class Space, Comparator Compare>
void PageTree<Space, Compare>::ReadPage(unsigned level, Seek seek, std::string_view key, Copy* copy) const {
  for (sync::Backoff backoff;; backoff.Pause()) {
    Line* line = &root();
    std::uint32_t version = Lock(line->version).ReadVersion();
    bool raced = (version & Lock::kLocked) != 0;
    while (!raced) {
      const View page(memory_, *line);
      if (page.level() <= level) {
        const unsigned size = page.shape().size();
        char* const bytes = copy->Reserve(size);
        sync::LoadShared(bytes, page.base(), size);
        sync::LoadShared(reinterpret_cast<char*>(copy->line().hints), reinterpret_cast<const char*>(line->hints), sizeof(line->hints));
        copy->line().shape = page.shape();
        if (Lock(line->version).IsCurrent(version)) return;
        break;
      }
      const unsigned i = seek == Seek::kAt       ? page.ChildFor(key)
                         : seek == Seek::kBefore ? page.ChildBefore(key)
                         : seek == Seek::kFirst  ? 0
                                                 : page.count() - 1;
      Line* const child = &LineOf(page.child(i));
      const std::uint32_t child_version = Lock(child->version).ReadVersion();
      raced = !Lock(line->version).IsCurrent(version) || (child_version & Lock::kLocked) != 0;
      line = child;
      version = child_version;
    }
  }
}

template <class Space, Comparator Compare>
template <class F>
void PageTree<Space, Compare>::ForEachPageBelow(Line& line, F& visit) const {
  const View page(memory_, line);
  for (unsigned i = 0; page.level() > 0 && i < page.count(); ++i) ForEachPageBelow(LineOf(page.child(i)), visit);
  visit(page.level(), page.shape().size(), Editor(space_, line).LiveBytes());
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::RemoveAll() {
  // From the root's children down; the root becomes an empty leaf.
  const auto drop = [this](const auto& self, Line& line) -> void {
    Lock(line.version).Lock();
    const View page(memory_, line);
    for (unsigned i = 0; i < page.count(); ++i) {
      if (page.level() > 0)
        self(self, LineOf(page.child(i)));
      else if (const auto value = LongValueOf(page, i))
        space_.FreeLong(*value);
    }
    if (&line == root_) return;
    space_.Free(line.unit, page.shape().units);
    Unlock(&line, true);
    space_.FreePage(IdOf(line));
  };
  drop(drop, root());
  count_.store(0, std::memory_order_release);
  Builder builder(0, {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh});
  const Status status = Rebuild(root(), builder, format::kSlotGroup, 256);
  Unlock(&root(), true);
  return status;
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Verify(std::uint64_t expected) const {
  std::uint64_t found = 0;
  HAKO_RETURN_IF_ERROR(
      VerifyBelow(root(), View(memory_, root()).level(), {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh}, &found));
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(found, " records are in the tree, not ", expected));
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::VerifyBelow(Line& line, unsigned level, const Fences& fences, std::uint64_t* found) const {
  const View page(memory_, line);
  const format::PageTail tail = page.tail();
  const auto wrong = [id = IdOf(line)](std::string_view what) {
    return absl::DataLossError(absl::StrCat("page ", id, ": ", ToAbsl(what)));
  };
  if ((line.version & Lock::kLocked) != 0) return wrong("it is locked");
  if (page.level() != level) return wrong("it has the wrong level");
  if (tail.edges != fences.edges || page.low(tail) != fences.low || page.high(tail) != fences.high)
    return wrong("its fences are not its parent's");
  if (page.shape().guarded() != (View::kBytewise && fences.edges != 0)) return wrong("it is guarded, or not, without reason");
  if (View::kBytewise && fences.edges == 0 && page.prefix() != fences.low.substr(0, Builder::Common(fences.low, fences.high)))
    return wrong("its prefix is not what its fences share");
  if (level > 0 && page.count() == 0) return wrong("it has no child");
  if (page.count() > page.shape().slots()) return wrong("it has more slots than room for them");
  if (page.shape().slots() * page.shape().slot_size() + page.shape().heap > page.shape().size()) return wrong("its parts overlap");

  unsigned cells = 0;
  std::string before, key;
  for (unsigned i = 0; i < page.count(); ++i) {
    const format::Cell sizes = View::Decode(page.cell(i));
    cells += sizes.Size(View::kInlined);
    if (page.offset(i) > page.shape().heap || sizes.Size(View::kInlined) > page.offset(i)) return wrong("a cell lies outside of the heap");
    if (level > 0 && i == 0) {
      if (page.head(0) != format::kLowestHead) return wrong("its first slot has a head");
      continue;
    }
    Builder::CopyKeyOf(page, i, &key);
    if (page.head(i) != View::HeadOf(key, page.shape().prefix)) return wrong("a head is not its key's");
    if (i > (level > 0 ? 1 : 0) && Compare::Compare(before, key) >= 0) return wrong("its keys do not rise");
    if ((fences.edges & format::PageTail::kNoLow) == 0 && Compare::Compare(key, fences.low) < 0) return wrong("a key is below its fence");
    if ((fences.edges & format::PageTail::kNoHigh) == 0 && Compare::Compare(key, fences.high) >= 0)
      return wrong("a key is above its fence");
    before = key;
  }
  const unsigned fixed = static_cast<unsigned>(sizeof(tail)) + tail.fences() + page.shape().prefix;
  if (cells + tail.garbage + fixed != page.shape().heap) return wrong("its cells and its garbage are not all of its heap");
  for (unsigned i = page.count(); i < page.shape().slots(); ++i) {
    if (page.head(i) != format::kNoHead) return wrong("a slot that is not in use has a head");
  }
  for (unsigned hint = 0; hint < format::kPageHints; ++hint) {
    const unsigned slot = (hint + 1) * format::kSlotGroup;
    if (line.hints[hint] != (slot < page.count() ? page.head(slot) : format::kNoHead)) return wrong("a hint is not the head it stands for");
  }

  if (level == 0) {
    *found += page.count();
    return absl::OkStatus();
  }
  std::string low(fences.low);
  for (unsigned i = 0; i < page.count(); ++i) {
    const bool last = i + 1 == page.count();
    if (last)
      key.assign(fences.high);
    else
      Builder::CopyKeyOf(page, i + 1, &key);
    const unsigned edges = (i == 0 ? fences.edges & format::PageTail::kNoLow : 0) | (last ? fences.edges & format::PageTail::kNoHigh : 0);
    HAKO_RETURN_IF_ERROR(VerifyBelow(LineOf(page.child(i)), level - 1, {low, key, edges}, found));
    low = key;
  }
  return absl::OkStatus();
}

}  // namespace hako::index
