// Definitions of tree/page_tree.h: lookups, and changes of one record.
#pragma once

#include "hako/tree/page_tree.h"

namespace hako::tree {

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Create() {
  const std::uint32_t id = space_.NewPage();
  if (id == 0) return NoMemory();
  root_ = &LineOf(id);
  Builder builder(0, {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh});
  if (!builder.Build(space_, root(), format::kSlotGroup, 256)) return NoMemory();
  Unlock(&root(), true);
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
  *reached = {line, version};
  for (;;) {
    if ((version & Lock::kLocked) != 0) return false;
    const View page(memory_, *line);
    if (page.level() <= level) {
      if (page.level() < level) reached->line = nullptr;
      return page.level() == level;
    }
    Line* const child = &LineOf(page.child(page.ChildFor(key)));
    const std::uint32_t child_version = Lock(child->version).ReadVersion();
    if (!Lock(line->version).IsCurrent(version)) {
      reached->line = nullptr;
      return false;
    }
    *reached = {child, child_version, static_cast<int>(page.level()) - 1};
    line = child;
    version = child_version;
  }
}

template <class Space, Comparator Compare>
HAKO_INLINE auto PageTree<Space, Compare>::LockLeaf(WriterState& writer, std::string_view key) -> Line* {
  writer.Enter();
  if (Reached leaf; Descend(key, &leaf) && Lock(leaf.line->version).LockIf(leaf.version)) [[likely]] {
    if (!space_.gate().IsClosed()) [[likely]]
      return leaf.line;
    Unlock(leaf.line, false);
  }
  return LockLeafSlowly(writer, key);
}

template <class Space, Comparator Compare>
auto PageTree<Space, Compare>::LockLeafSlowly(WriterState& writer, std::string_view key) -> Line* {
  for (sync::Backoff backoff;; backoff.Pause()) {
    if (space_.gate().IsClosed()) {
      writer.Leave();
      space_.gate().WaitUntilOpen();
      writer.Enter();
    }
    Reached leaf;
    if (!DescendTo(0, key, &leaf)) {
      if constexpr (!Space::kResident) {
        if (leaf.line == nullptr || !space_.IsEvicted(IdOf(*leaf.line))) continue;
        writer.Leave();  // so that a thread that closes the gate need not wait for the file
        writer.error = LoadIfEvicted(leaf);
        writer.Enter();
        if (!writer.error.ok()) return nullptr;
      }
      continue;
    }
    if (Lock(leaf.line->version).LockIf(leaf.version)) {
      if (!space_.gate().IsClosed()) return leaf.line;
      Unlock(leaf.line, false);
    }
  }
}

// Locks and returns the parent of `child`, which the caller has locked and whose range contains
// `key`. The lock keeps `child` in the tree, and its ancestors are changed only by threads that
// finish without it, so the loop ends.
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
Status PageTree<Space, Compare>::LockPage(Line& line, int level) const {
  for (sync::Backoff backoff; !Lock(line.version).TryLock(); backoff.Pause()) HAKO_RETURN_IF_ERROR(LoadIfEvicted({&line, 0, level}, true));
  return absl::OkStatus();
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
template <class S>
HAKO_INLINE Status PageTree<Space, Compare>::Fetch(Writers& writers, std::string_view key, S&& sink) {
  const Outcome outcome = TryFetch(key, sink);
  if (outcome == Outcome::kFound) [[likely]]
    return absl::OkStatus();
  if (outcome == Outcome::kAbsent) return AbsentError();
  return FetchSlowly(writers, key, sink);
}

template <class Space, Comparator Compare>
template <class S>
Status PageTree<Space, Compare>::FetchSlowly(Writers& writers, std::string_view key, S& sink) HAKO_TRY {
  if (writers.IsClosed()) return writers.Refusal();
  sync::Backoff backoff;
  for (int i = 0; i < kOptimisticTries; ++i, backoff.Pause()) {
    Reached leaf;
    if (!DescendTo(0, key, &leaf)) {
      HAKO_RETURN_IF_ERROR(LoadIfEvicted(leaf));
      continue;
    }
    const Outcome outcome = FetchFrom(leaf, key, sink);
    if (outcome != Outcome::kRaced) return outcome == Outcome::kFound ? absl::OkStatus() : AbsentError();
    if (!Lock(leaf.line->version).IsCurrent(leaf.version)) continue;
    // Most likely a long value. A resident space can share it only while the leaf is locked; any
    // other finds it without a lock.
    if constexpr (!Space::kResident) {
      if (const auto stored = FindLong(leaf, key)) return FetchLong(key, sink, leaf, stored);
    }
    break;
  }
  WriterState* const writer = writers.Mine();
  if (writer == nullptr) return writers.Refusal();
  LeafGuard guard(*this, *writer, key);
  if (guard.line == nullptr) return guard.error();
  const auto place = View(memory_, *guard.line).Find(key);
  if (!place.found) return AbsentError();
  std::string_view value = ContentOf(place);
  LongRead read(space_);  // keeps the value alive until it is copied
  if (place.sizes.is_long) {
    if constexpr (!Space::kResident) {
      guard.End();
      return FetchLong(key, sink, {}, std::nullopt);
    }
    (void)read.Has(LongValueIn(value));
    guard.End();
    value = read.bytes();
  }
  if (char* out = sink(value.size())) std::memcpy(out, value.data(), value.size());
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

// `stored` is the name that the leaf had as of the version in `leaf`. Reads the value straight into
// the sink's buffer, once, unless it is replaced at the same time. Nothing is locked.
template <class Space, Comparator Compare>
template <class S>
Status PageTree<Space, Compare>::FetchLong(std::string_view key, S& sink, Reached leaf, std::optional<format::OverflowValue> stored) {
  LongRead read(space_);
  char* out = nullptr;
  for (sync::Backoff backoff;; backoff.Pause()) {
    if (stored) {
      bool has = read.Has(*stored);
      if (!has) {
        out = sink(static_cast<std::size_t>(stored->size));
        if (out == nullptr) return absl::OkStatus();
        read.Read(out);
        has = read.Has(*stored);
      }
      if (has && Lock(leaf.line->version).IsCurrent(leaf.version)) {
        HAKO_RETURN_IF_ERROR(read.status());
        const std::string_view value = read.bytes();
        if (value.data() == out) return absl::OkStatus();
        out = sink(value.size());
        if (out != nullptr) std::memcpy(out, value.data(), value.size());
        return absl::OkStatus();
      }
      stored.reset();
    }
    if (!DescendTo(0, key, &leaf)) {
      HAKO_RETURN_IF_ERROR(LoadIfEvicted(leaf));
      continue;
    }
    stored = FindLong(leaf, key);
    if (stored) continue;
    const Outcome outcome = FetchFrom(leaf, key, sink);
    if (outcome != Outcome::kRaced) return outcome == Outcome::kFound ? absl::OkStatus() : AbsentError();
    read = LongRead(space_);  // the sink may have reused its memory for another value
  }
}

template <class Space, Comparator Compare>
auto PageTree<Space, Compare>::FindLong(const Reached& leaf, std::string_view key) const -> std::optional<format::OverflowValue> {
  const View page(memory_, *leaf.line);
  const auto place = page.Find(key);
  if (!place.found || !place.sizes.is_long) return std::nullopt;
  const char* const bytes = place.cell + place.sizes.header + place.sizes.Rest(View::kInlined);
  format::OverflowValue value;
  if (bytes + sizeof(value) > page.end()) return std::nullopt;
  sync::LoadShared(reinterpret_cast<char*>(&value), bytes, sizeof(value));
  if (!Lock(leaf.line->version).IsCurrent(leaf.version)) return std::nullopt;
  return value;
}

template <class Space, Comparator Compare>
template <class ActionT, class V>
HAKO_INLINE Status PageTree<Space, Compare>::Process(WriterState& writer, std::string_view key, V&& visit) {
  LeafGuard guard(*this, writer, key);
  if (!Space::kResident && guard.line == nullptr) [[unlikely]]
    return guard.error();
  const View page(memory_, *guard.line);
  const auto place = page.Find(key);
  char* const bytes = const_cast<char*>(place.cell) + place.sizes.header + place.sizes.Rest(View::kInlined);
  const typename View::Slot slot{place.index, place.found};
  std::optional<std::string_view> value;
  if (place.found && place.sizes.is_long) [[unlikely]]
    return ProcessLong<ActionT>(guard, writer, key, visit);
  if constexpr (kReads<ActionT, V>) {
    if (place.found) value.emplace(bytes, place.sizes.value);
  }
  if constexpr (std::is_void_v<ActionT>) {
    visit(value);
    return absl::OkStatus();
  } else {
    const ActionT action = [&] {
      if constexpr (kReads<ActionT, V>)
        return visit(value);
      else
        return visit(slot.found);
    }();
    if (action.kind() == ActionT::Kind::kSet) {
      guard.Change();
      if (place.found && place.sizes.value == action.value().size()) [[likely]] {
        sync::StoreShared(bytes, action.value().data(), action.value().size());
        return absl::OkStatus();
      }
      if (action.value().size() > value_max_) [[unlikely]]
        return SetLong(guard, writer, key, action.value(), slot);
      SplitResult leaf{guard.line, nullptr};
      const Status status = Store(&leaf, key, action.value(), slot);
      if (status.ok() && !slot.found) AddToCount(writer, 1);
      return status;
    }
    if (action.kind() == ActionT::Kind::kRemove && slot.found) {
      guard.Change();
      Editor(space_, *guard.line).Erase(slot.index);
      AddToCount(writer, -1);
      MergeIfSparse(guard, writer, key);
    }
    return absl::OkStatus();
  }
}

template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::ReadLong(LeafGuard& guard, std::string_view key, LongRead* read, typename View::Place* place, bool shows) {
  for (;;) {
    *place = View(memory_, *guard.line).Find(key);
    if (!place->found || !place->sizes.is_long || read->Has(LongValueIn(ContentOf(*place)))) return true;
    if (!shows && !read->IsBeingFilled()) return true;
    guard.End();
    read->Read();
    guard.Begin(key);
    if (guard.line == nullptr) return false;
  }
}

// A visitor that only reads sees a separate copy, so the leaf is unlocked before the call. An
// update that does not need the old value still waits until the thread that stored it has filled it
// in; otherwise threads that set the key repeatedly could starve threads that read it under the
// lock.
template <class Space, Comparator Compare>
template <class ActionT, class V>
Status PageTree<Space, Compare>::ProcessLong(LeafGuard& guard, WriterState& writer, std::string_view key, V& visit) {
  LongRead read(space_);
  typename View::Place place;
  if (!ReadLong(guard, key, &read, &place, kReads<ActionT, V>)) return guard.error();
  std::optional<std::string_view> value;
  const bool is_long = place.found && place.sizes.is_long;
  if constexpr (kReads<ActionT, V>) {
    if (is_long) HAKO_RETURN_IF_ERROR(read.status());
    if (place.found) value = is_long ? read.bytes() : ContentOf(place);
  }
  if constexpr (std::is_void_v<ActionT>) {
    if (is_long) guard.End();
    visit(value);
  } else {
    const ActionT action = [&] {
      if constexpr (kReads<ActionT, V>)
        return visit(value);
      else
        return visit(place.found);
    }();
    if (action.kind() != ActionT::Kind::kKeep) guard.Change();
    if (action.kind() == ActionT::Kind::kSet) return SetLong(guard, writer, key, action.value(), place);
    if (action.kind() == ActionT::Kind::kRemove && place.found) return RemoveLong(guard, writer, key, place.index);
  }
  return absl::OkStatus();
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::SetLong(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                         typename View::Slot slot) {
  Deferred deferred(space_);
  const Status status = CatchNoMemory([&]() -> Status {
    SplitResult leaf{guard.line, nullptr};
    return StoreAny(&leaf, key, value, slot, deferred);
  });
  if (status.ok() && !slot.found) AddToCount(writer, 1);
  guard.Unlock();  // then `deferred` fills the value, before this thread pauses
  return status;
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::RemoveLong(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i) {
  Deferred deferred(space_);
  RemoveSlot(*guard.line, i, deferred);
  AddToCount(writer, -1);
  HAKO_TRY { MergeIfSparse(guard, writer, key); }
  HAKO_CATCH_NO_MEMORY()  // the leaf stays sparse
  guard.Unlock();
  return absl::OkStatus();
}

// Stores the record in the locked leaf, at `slot`; the leaf may be split.
template <class Space, Comparator Compare>
HAKO_INLINE Status PageTree<Space, Compare>::Store(SplitResult* leaf, std::string_view key, std::string_view value,
                                                   typename View::Slot slot) {
  Editor page(space_, *leaf->wanted);
  const Content content{value};
  if (slot.found) {
    if (page.Replace(slot.index, content)) [[likely]]
      return absl::OkStatus();
  } else if (page.HasPrefix(key) && page.HasRoomFor(page.CellSize(key, content))) [[likely]] {
    page.Insert(slot.index, key, content);
    return absl::OkStatus();
  }
  return StoreSlowly(leaf, key, value, {}, slot, nullptr);
}

template <class Space, Comparator Compare>
StatusOr<format::OverflowValue> PageTree<Space, Compare>::StoreLong(std::string_view value, Deferred& deferred) {
  HAKO_TRY {
    if (const std::uint64_t place = space_.StoreLong(value, deferred); place != 0) return format::OverflowValue{place, value.size()};
  }
  HAKO_CATCH_NO_MEMORY()
  return absl::ResourceExhaustedError(absl::StrCat("out of memory for a value of ", value.size(), " bytes"));
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::StoreAny(SplitResult* leaf, std::string_view key, std::string_view value, typename View::Slot slot,
                                          Deferred& deferred) {
  if (value.size() > kValueSizeMax) return TooLargeError("a value", value.size(), kValueSizeMax);
  if (value.size() <= value_max_) return StoreSlowly(leaf, key, value, {}, slot, &deferred);
  HAKO_ASSIGN_OR_RETURN(const format::OverflowValue stored, StoreLong(value, deferred));
  const Status status = CatchNoMemory([&] { return StoreSlowly(leaf, key, value, stored, slot, &deferred); });
  if (!status.ok()) space_.FreeLong(stored, deferred);
  return status;
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::StoreSlowly(SplitResult* leaf, std::string_view key, std::string_view value,
                                             const format::OverflowValue& stored, typename View::Slot slot, Deferred* deferred) {
  Content content{value};
  if (stored.place != 0) content = {{reinterpret_cast<const char*>(&stored), sizeof(stored)}, true};
  const auto replaced = slot.found ? LongValueOf(View(memory_, *leaf->wanted), slot.index) : std::nullopt;
  for (;;) {
    Editor page(space_, *leaf->wanted);
    if (slot.found) {
      if (page.Replace(slot.index, content)) break;
    } else if (page.HasPrefix(key) && page.HasRoomFor(page.CellSize(key, content))) {
      page.Insert(slot.index, key, content);
      break;
    }
    HAKO_RETURN_IF_ERROR(MakeRoom(leaf, key, content, slot.index, slot.found));
    slot = View(memory_, *leaf->wanted).Find(key);
  }
  if (replaced) space_.FreeLong(*replaced, *deferred);
  return absl::OkStatus();
}

template <class Space, Comparator Compare>
void PageTree<Space, Compare>::RemoveSlot(Line& line, unsigned i, Deferred& deferred) {
  Editor page(space_, line);
  if (const auto value = LongValueOf(page.view(), i)) space_.FreeLong(*value, deferred);
  page.Erase(i);
}

// Whether a locked leaf is so empty that it should return memory, or be joined with its neighbour.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::IsSparse(const Line& line) const {
  const Editor page(space_, const_cast<Line&>(line));
  const unsigned live = page.LiveBytes();
  return page.shape().size() > 2 * live + 4 * format::kPageUnit || page.shape().count == 0;
}

// Whether the fences of a page enclose the key sought. If they do for every page read, a scan that
// continues at a fence terminates.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::HasSought(const View& page, Seek seek, std::string_view key) {
  const format::PageTail tail = page.tail();
  const bool first = (tail.edges & format::PageTail::kNoLow) != 0, last = (tail.edges & format::PageTail::kNoHigh) != 0;
  const int low = first ? -1 : Compare::Compare(page.low(tail), key), high = last ? 1 : Compare::Compare(page.high(tail), key);
  switch (seek) {
    case Seek::kAt:
      return low <= 0 && high > 0;
    case Seek::kBefore:
      return low < 0 && high >= 0;
    case Seek::kFirst:
      return first;
    default:
      return last;
  }
}

// Copies a page as of a version read before; false if the page has another version by now.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::CopyPage(Line& line, std::uint32_t version, Copy* copy) const {
  const View page(memory_, line);
  const unsigned size = page.shape().size();
  char* const bytes = copy->Reserve(size);
  sync::LoadShared(bytes, page.base(), size);
  sync::LoadShared(reinterpret_cast<char*>(copy->line().hints), reinterpret_cast<const char*>(line.hints), sizeof(line.hints));
  copy->line().shape = page.shape();
  if (!Lock(line.version).IsCurrent(version)) return false;
  copy->NoteSource(&line.version, version);
  return true;
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::ReadPage(unsigned level, Seek seek, std::string_view key, Copy* copy) const {
  for (sync::Backoff backoff;; backoff.Pause()) {
    Line *line = &root(), *neighbour = nullptr, *above = nullptr;
    unsigned i_above = 0;
    std::uint32_t version = Lock(line->version).ReadVersion();
    for (int expected = -1;;) {
      if ((version & Lock::kLocked) != 0) {
        HAKO_RETURN_IF_ERROR(LoadIfEvicted({line, version, expected}, true));
        break;
      }
      const View page(memory_, *line);
      if (page.level() <= level) {
        if (!CopyPage(*line, version, copy)) break;
        copy->neighbour = {};
        if (neighbour != nullptr) {
          const View beside(memory_, *neighbour);
          copy->neighbour = {beside.base(), beside.shape().size()};
        }
        if constexpr (!Space::kResident) {
          if (copy->ahead != 0) space_.Demote(IdOf(*line));
        }
        if (Space::kResident || HasSought(copy->view(), seek, key)) return absl::OkStatus();
        return absl::DataLossError(absl::StrCat("page ", IdOf(*line), ": fence keys do not match the parent"));
      }
      expected = static_cast<int>(page.level()) - 1;
      const unsigned i = seek == Seek::kAt       ? page.ChildFor(key)
                         : seek == Seek::kBefore ? page.ChildBefore(key)
                         : seek == Seek::kFirst  ? 0
                                                 : page.count() - 1;
      const unsigned beside = seek == Seek::kBefore || seek == Seek::kLast ? i - 1 : i + 1;
      neighbour = beside < page.count() ? &LineOf(page.child(beside)) : nullptr;
      Line* const child = &LineOf(page.child(i));
      const std::uint32_t child_version = Lock(child->version).ReadVersion();
      if constexpr (!Space::kResident) {
        if (Space::kReadsAhead && copy->ahead != 0 && expected == 0)
          ReadAhead(page, i, above, i_above, seek == Seek::kBefore || seek == Seek::kLast, copy);
        above = line;
        i_above = i;
      }
      if (!Lock(line->version).IsCurrent(version)) break;
      if (neighbour != nullptr) hako::Prefetch(neighbour);
      line = child;
      version = child_version;
    }
  }
}

template <class Space, Comparator Compare>
StatusOr<std::optional<std::string>> PageTree<Space, Compare>::FenceBeyond(Seek seek, std::string_view key, bool downwards) const {
  for (unsigned level = 1;; ++level) {
    Copy copy;
    if (Status read = ReadPage(level, seek, key, &copy); !read.ok()) {
      if (!absl::IsDataLoss(read) || level > format::PageShape::kLevel) return read;
      continue;
    }
    const View page = copy.view();
    if (page.level() < level) return absl::DataLossError("the root of the tree cannot be read");
    const unsigned i = seek == Seek::kAt       ? page.ChildFor(key)
                       : seek == Seek::kBefore ? page.ChildBefore(key)
                       : seek == Seek::kFirst  ? 0
                                               : page.count() - 1;
    const unsigned slot = downwards ? i : i + 1;  // its key is the fence
    if (slot > 0 && slot < page.count()) {
      std::optional<std::string> fence(std::in_place);
      Builder::CopyKeyOf(page, slot, &*fence);
      return fence;
    }
    const format::PageTail tail = page.tail();
    if ((tail.edges & (downwards ? format::PageTail::kNoLow : format::PageTail::kNoHigh)) != 0) return std::optional<std::string>();
    return std::optional<std::string>(downwards ? page.low(tail) : page.high(tail));
  }
}

// Requests leaves beyond a child of `page` when an eighth of those to read ahead is not requested
// yet. Pages may be changing at the same time: the values read are only hints.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::ReadAhead(const View& page, unsigned child, Line* above, unsigned child_above, bool backwards,
                                         Copy* copy) const {
  if constexpr (!Space::kResident) {
    if (8 * (copy->ahead - copy->asked) < copy->ahead) return;
    std::vector<std::uint32_t> ids;
    unsigned seen = 0;
    const auto beyond = [backwards](const View& parent, unsigned i) { return backwards ? i : std::max(parent.count(), i + 1) - 1 - i; };
    // Visits the children from i on.
    const auto look = [&](const View& parent, unsigned i, unsigned count) {
      for (unsigned at = std::max(seen, copy->asked) - seen; at < count && seen + at < copy->ahead; ++at) {
        const auto id = static_cast<std::uint32_t>(parent.child(backwards ? i - at : i + at) % Space::kPagesMax);
        if (space_.MustBeRead(id)) ids.push_back(id);
      }
      seen = std::min(seen + count, copy->ahead);
    };
    look(page, backwards ? child - 1 : child + 1, beyond(page, child));
    for (unsigned distance = 1; above != nullptr && seen < copy->ahead; ++distance) {
      const View parent(memory_, *above);
      if (distance > beyond(parent, child_above)) break;
      const auto id_at = [&](unsigned i) {
        return static_cast<std::uint32_t>(parent.child(backwards ? child_above - i : child_above + i) % Space::kPagesMax);
      };
      const std::uint32_t id = id_at(distance);
      if (space_.IsEvicted(id)) {
        // Several, as the leaves below them will be needed before these are loaded.
        std::array<std::uint32_t, 8> inner;
        const unsigned count = std::min(static_cast<unsigned>(inner.size()), beyond(parent, child_above) - distance + 1);
        for (unsigned i = 0; i < count; ++i) inner[i] = id_at(distance + i);
        if (copy->asked_inner != id && space_.ReadAhead(std::span(inner).first(count), 1)) copy->asked_inner = id;
        break;
      }
      const View beside(memory_, LineOf(id));
      if (beside.level() != 1) break;
      look(beside, backwards ? beside.count() - 1 : 0, beside.count());
    }
    if (ids.empty() || space_.ReadAhead(ids, 0)) copy->asked = std::max(copy->asked, seen);
  }
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::RemoveAll(Deferred& deferred) {
  // From the root's children down; the root becomes an empty leaf. Unreadable pages are dropped.
  const auto drop = [this, &deferred](const auto& self, const Line& line) -> void {
    const View page(memory_, const_cast<Line&>(line));
    for (unsigned i = 0; i < page.count(); ++i) {
      if (page.level() == 0) {
        if (const auto value = LongValueOf(page, i)) space_.FreeLong(*value, deferred);
        continue;
      }
      const std::uint32_t id = page.child(i);
      Line& child = LineOf(id);
      if constexpr (!Space::kResident) {
        if (page.level() == 1 && space_.DiscardEvicted(id, false)) continue;
        if (!LockPage(child, static_cast<int>(page.level()) - 1).ok() && space_.DiscardEvicted(id, true)) continue;
      } else {
        (void)LockPage(child);
      }
      space_.MarkDirty(child);
      self(self, child);
      space_.Free(child.unit, View(memory_, child).shape().units);
      space_.FreePage(id);
    }
  };
  HAKO_RETURN_IF_ERROR(LockPage(root()));
  drop(drop, root());
  space_.MarkDirty(root());
  count_.store(0, std::memory_order_release);
  Builder builder(0, {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh});
  const Status status = Rebuild(root(), builder, format::kSlotGroup, 256);
  Unlock(&root(), true);
  return status;
}

}  // namespace hako::tree
