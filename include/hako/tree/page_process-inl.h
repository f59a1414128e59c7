// Definitions of tree/page_tree.h: a writer's access to one leaf, Process, and the changes of its records.
#pragma once

#include <string>
#include <utility>

#include "hako/tree/page_tree.h"

namespace hako::tree {

// A writer's access to a leaf: until the end of the scope, the writer is marked busy and the leaf
// is locked.
template <class Space, Comparator Compare>
class PageTree<Space, Compare>::LeafGuard {
 public:
  HAKO_INLINE LeafGuard(PageTree& tree, WriterState& writer, std::string_view key)
      : line(tree.LockLeaf(writer, key)), tree_(tree), writer_(writer) {}
  // `locked` is the result of LockLeaf.
  LeafGuard(PageTree& tree, WriterState& writer, Line* locked) : line(locked), tree_(tree), writer_(writer) {}
  LeafGuard(const LeafGuard&) = delete;
  HAKO_INLINE ~LeafGuard() {
    if (line != nullptr) Lock(line->version).Unlock(changed);
    tree_.EndWrite(writer_, changed);
  }
  // Ends the access before the end of the scope.
  void End() {
    if (line != nullptr) Lock(std::exchange(line, nullptr)->version).Unlock(changed);
    tree_.EndWrite(writer_, std::exchange(changed, false));
  }
  // As End, but a pause of the writer is delayed to the end of the scope.
  void Unlock() {
    if (line != nullptr) Lock(std::exchange(line, nullptr)->version).Unlock(changed);
    writer_.Leave();
  }
  // Begins another access after End.
  void Begin(std::string_view key) { line = tree_.LockLeafByCall(writer_, key); }
  // Returns why `line` is nullptr.
  Status error() const { return update::ErrorOf(writer_); }
  HAKO_INLINE void Change() {
    tree_.space_.MarkDirty(*line);
    changed = true;
  }
  Line* line;            // nullptr if the leaf could not be loaded into a space that is not resident
  bool changed = false;  // whether the leaf was changed, so the thread may have to pause

 private:
  PageTree& tree_;
  WriterState& writer_;
};

// If the leaf of the guard has become sparse, ends the guard and joins the leaf with a neighbour.
template <class Space, Comparator Compare>
HAKO_INLINE void PageTree<Space, Compare>::MergeIfSparse(LeafGuard& guard, WriterState& writer, std::string_view key) {
  if (shape_.IsSparse(*guard.line)) [[unlikely]]
    shape_.Merge(writer, std::exchange(guard.line, nullptr), key);
}

template <class Space, Comparator Compare>
HAKO_INLINE auto PageTree<Space, Compare>::LockLeaf(WriterState& writer, std::string_view key) -> Line* {
  writer.Enter();
  if (Reached leaf; Descend(key, &leaf) && Lock(leaf.line->version).LockIf(leaf.version)) [[likely]] {
    if (!space_.gate().IsBusy()) [[likely]]
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
        writer.Leave();  // so that a thread that closes the gate need not wait for the read
        writer.error = LoadIfEvicted(leaf);
        writer.Enter();
        if (!writer.error.ok()) return nullptr;
      }
      continue;
    }
    if (Lock(leaf.line->version).LockIf(leaf.version)) {
      if (!space_.gate().IsClosed()) return captures_.CaptureIfAsked(*leaf.line), leaf.line;
      Unlock(leaf.line, false);
    }
  }
}

template <class Space, Comparator Compare>
template <class ActionT, class V>
HAKO_INLINE Status PageTree<Space, Compare>::Process(WriterState& writer, std::string_view key, V&& visit) {
  constexpr bool kInlines = !kIsFunctionRef<std::remove_cvref_t<V>>;  // a caller with a FunctionRef wants less code
  constexpr bool kLogs = update::kMayLog<Space, std::remove_cvref_t<V>>;
  if constexpr (kLogs && std::is_same_v<std::remove_cvref_t<V>, ActionT>) {
    if (visit.kind() == ActionT::Kind::kSet && visit.value().size() > Space::kLoggedAheadMin) [[unlikely]]
      return SetAhead<ActionT>(writer, key, visit);
  }
  LeafGuard guard(*this, writer, key);
  if (!Space::kResident && guard.line == nullptr) [[unlikely]]
    return guard.error();
  const View page(memory_, *guard.line);
  const auto place = page.Find(key);
  char* const bytes = const_cast<char*>(place.cell) + place.sizes.header + place.sizes.Rest(View::kInlined);
  const typename View::Slot slot{place.index, place.found};
  std::optional<std::string_view> value;
  if constexpr (kMayNote<std::remove_cvref_t<V>>) NoteUse(guard.line, slot);
  if (place.found && place.sizes.is_long) [[unlikely]]
    return ProcessLong<ActionT>(guard, writer, key, VisitorRef<ActionT, std::remove_reference_t<V>>(visit));
  if constexpr (kReadsValue<ActionT, V>) {
    if (place.found) value.emplace(bytes, place.sizes.value);
  }
  if constexpr (std::is_void_v<ActionT>) {
    visit(value);
    return absl::OkStatus();
  } else {
    const ActionT action = [&] {
      if constexpr (kReadsValue<ActionT, V>)
        return visit(value);
      else
        return visit(slot.found);
    }();
    if (action.kind() == ActionT::Kind::kSet) {
      guard.Change();
      if (place.found && place.sizes.value == action.value().size()) [[likely]] {
        if (kLogs && !update::LogUpdate(space_, writer, format::LogOp::kSet, key, action.value())) [[unlikely]]
          return update::ErrorOf(writer);
        sync::StoreShared(bytes, action.value().data(), action.value().size());
        return absl::OkStatus();
      }
      if (action.value().size() > value_max_) [[unlikely]]
        return SetLong(guard, writer, key, action.value(), slot);
      if constexpr (kMayNote<std::remove_cvref_t<V>>) {
        if (is_limited_) [[unlikely]]
          return SetEvicting(guard, writer, key, action.value(), slot);
      }
      SplitResult leaf{guard.line, nullptr};
      WriterState* const logging = kLogs ? &writer : nullptr;
      const Status status =
          kInlines ? Store(&leaf, key, action.value(), slot, logging) : StoreByCall(&leaf, key, action.value(), slot, logging);
      if (status.ok() && !slot.found) count_.Add(writer, 1);
      return status;
    }
    if (action.kind() == ActionT::Kind::kRemove && slot.found) {
      guard.Change();
      if (kLogs && !update::LogUpdate(space_, writer, format::LogOp::kRemove, key)) [[unlikely]]
        return update::ErrorOf(writer);
      kInlines && !kReadsValue<ActionT, V> ? RemoveShort(guard, writer, key, slot.index)
                                           : RemoveShortByCall(guard, writer, key, slot.index);
    }
    return absl::OkStatus();
  }
}

// Sets a long value, which is logged before its leaf is locked.
template <class Space, Comparator Compare>
template <class ActionT>
Status PageTree<Space, Compare>::SetAhead(WriterState& writer, std::string_view key, const ActionT& set) {
  if (set.value().size() > kValueSizeMax) return TooLargeError("a value", set.value().size(), kValueSizeMax);
  HAKO_RETURN_IF_ERROR(eviction_.CheckValue(set.value().size()));
  const update::LoggedAhead<Space> logged_ahead(space_, writer, key, set.value());
  return Process<ActionT>(writer, key, VisitorRef<ActionT, const ActionT>(set));
}

template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::ReadLong(LeafGuard& guard, std::string_view key, LongRead* read, typename View::Place* place, bool shows) {
  for (;;) {
    *place = View(memory_, *guard.line).FindByCall(key);
    if (!place->found || !place->sizes.is_long || read->Has(LongValueIn(ContentOf(*place)))) return true;
    if (!shows && !read->IsBeingFilled()) return true;
    guard.End();
    read->Read();
    guard.Begin(key);
    if (guard.line == nullptr) return false;
  }
}

// A visitor that only reads sees a separate copy, so the leaf is unlocked before the call. An
// update that does not need the old value still waits until the thread that stored that value has
// filled it in. Otherwise repeated Sets of the key could starve threads that read the value under
// the lock.
template <class Space, Comparator Compare>
template <class ActionT, class VisitorT>
Status PageTree<Space, Compare>::ProcessLong(LeafGuard& guard, WriterState& writer, std::string_view key, VisitorT visit) {
  LongRead read(space_);
  typename View::Place place;
  if (!ReadLong(guard, key, &read, &place, kReadsValue<ActionT, VisitorT>)) return guard.error();
  std::optional<std::string_view> value;
  const bool is_long = place.found && place.sizes.is_long;
  if constexpr (kReadsValue<ActionT, VisitorT>) {
    if (is_long) HAKO_RETURN_IF_ERROR(read.status());
    if (place.found) value = is_long ? read.bytes() : ContentOf(place);
  }
  if constexpr (std::is_void_v<ActionT>) {
    if (is_long) guard.End();
    visit(value);
  } else {
    const ActionT action = [&] {
      if constexpr (kReadsValue<ActionT, VisitorT>)
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
  HAKO_RETURN_IF_ERROR(eviction_.CheckValue(value.size()));
  if (is_limited_ && !slot.found) eviction_.EvictForInsertion(writer, 1);
  Deferred deferred(space_);
  const Status status = CatchNoMemory([&]() -> Status {
    SplitResult leaf{guard.line, nullptr};
    return StoreAny(&leaf, key, value, slot, deferred, writer);
  });
  if (status.ok() && !slot.found) count_.Add(writer, 1);
  guard.Unlock();  // `deferred` fills the value after this, before the thread pauses
  return status;
}

template <class Space, Comparator Compare>
HAKO_INLINE void PageTree<Space, Compare>::RemoveShort(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i) {
  Editor(space_, *guard.line).Erase(i);
  count_.Add(writer, -1);
  MergeIfSparse(guard, writer, key);
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::RemoveLong(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i) {
  if (!update::LogUpdate(space_, writer, format::LogOp::kRemove, key)) [[unlikely]]
    return update::ErrorOf(writer);
  Deferred deferred(space_);
  RemoveSlot(*guard.line, i, deferred);
  count_.Add(writer, -1);
  HAKO_TRY { MergeIfSparse(guard, writer, key); }
  HAKO_CATCH_NO_MEMORY()  // the leaf stays sparse
  guard.Unlock();
  return absl::OkStatus();
}

// Stores the record in the locked leaf, at `slot`; the leaf may be split. `writer` logs the update,
// unless it is nullptr.
template <class Space, Comparator Compare>
HAKO_INLINE Status PageTree<Space, Compare>::Store(SplitResult* leaf, std::string_view key, std::string_view value,
                                                   typename View::Slot slot, WriterState* writer) {
  HAKO_DCHECK(value.size() <= value_max_);
  Editor page(space_, *leaf->wanted);
  const Content content{value};
  if (!page.HasRoomToStore(slot, key, content)) [[unlikely]]
    return StoreSlowly(leaf, key, value, {}, slot, nullptr, writer);
  if (writer != nullptr && !update::LogUpdate(space_, *writer, format::LogOp::kSet, key, value)) [[unlikely]]
    return update::ErrorOf(*writer);
  page.Store(slot, key, content);
  return absl::OkStatus();
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
                                          Deferred& deferred, WriterState& writer) {
  if (value.size() > kValueSizeMax) return TooLargeError("a value", value.size(), kValueSizeMax);
  format::OverflowValue stored{};
  if (value.size() > value_max_) {
    HAKO_RETURN_IF_ERROR(eviction_.Store(writer, leaf->wanted, key, slot, [&](typename View::Slot at) -> Status {
      slot = at;
      HAKO_ASSIGN_OR_RETURN(stored, StoreLong(value, deferred));
      return absl::OkStatus();
    }));
  }
  const Status status = CatchNoMemory([&] {
    return eviction_.Store(writer, leaf->wanted, key, slot,
                           [&](typename View::Slot at) { return StoreSlowly(leaf, key, value, stored, at, &deferred, &writer); });
  });
  if (!status.ok() && stored.place != 0) space_.FreeLong(stored, deferred);
  return status;
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::StoreSlowly(SplitResult* leaf, std::string_view key, std::string_view value,
                                             const format::OverflowValue& stored, typename View::Slot slot, Deferred* deferred,
                                             WriterState* writer) {
  Content content{value};
  if (stored.place != 0) content = {{reinterpret_cast<const char*>(&stored), sizeof(stored)}, true};
  const auto replaced = slot.found ? LongValueOf(View(memory_, *leaf->wanted), slot.index) : std::nullopt;
  while (!Editor(space_, *leaf->wanted).HasRoomToStore(slot, key, content)) {
    HAKO_RETURN_IF_ERROR(shape_.MakeRoom(leaf, key, content, slot.index, slot.found));
    slot = View(memory_, *leaf->wanted).Find(key);
  }
  if (writer != nullptr && !update::LogUpdate(space_, *writer, format::LogOp::kSet, key, value)) [[unlikely]]
    return update::ErrorOf(*writer);
  Editor(space_, *leaf->wanted).Store(slot, key, content);
  if (replaced) space_.FreeLong(*replaced, *deferred);
  return absl::OkStatus();
}

// Stores a value that is not long, in a space with a limit.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::SetEvicting(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                             typename View::Slot slot) {
  if (!slot.found) eviction_.EvictForInsertion(writer, 1);
  SplitResult leaf{guard.line, nullptr};
  const Status status =
      eviction_.Store(writer, guard.line, key, slot, [&](typename View::Slot at) { return StoreByCall(&leaf, key, value, at, &writer); });
  if (status.ok() && !slot.found) count_.Add(writer, 1);
  return status;
}

template <class Space, Comparator Compare>
StatusOr<std::uint64_t> PageTree<Space, Compare>::RemoveRange(WriterState& writer, const Range& range) {
  HAKO_DCHECK(!range.to || Compare::Compare(range.from, *range.to) < 0);
  Copy copy;
  std::string from(range.from);
  for (std::uint64_t removed = 0;;) {
    if (!Space::kResident) HAKO_RETURN_IF_ERROR(ReadLeaf(Seek::kAt, from, &copy, from != range.from));  // loads it, and reads ahead
    Deferred deferred(space_);
    LeafGuard guard(*this, writer, LockLeafByCall(writer, from));
    if (guard.line == nullptr) return guard.error();
    const View page(memory_, *guard.line);
    const bool last = IsLastOf(range, page);
    const unsigned begin = page.FindByCall(from).index;
    const unsigned end = last && range.to ? page.FindByCall(*range.to).index : page.count();
    std::string next(last ? std::string_view() : page.high(page.tail()));
    if (end > begin) {
      guard.Change();
      const bool has_end = !last || range.to;
      if (!update::LogUpdate(space_, writer, has_end ? format::LogOp::kRemoveRange : format::LogOp::kRemoveFrom, from,
                             last ? range.to.value_or(std::string_view()) : std::string_view(next))) [[unlikely]]
        return update::ErrorOf(writer);
    }
    for (unsigned i = end; i > begin; --i, ++removed) {
      RemoveSlot(*guard.line, i - 1, deferred);
      count_.Add(writer, -1);
    }
    if (guard.changed) MergeIfSparse(guard, writer, from);
    if (last) return removed;
    from = std::move(next);
  }
}

// Joins the leaves that this thread's evictions have left sparse with their neighbours.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::JoinSparse(WriterState& writer) {
  if constexpr (LimitedPageSpace<Space>) {
    for (; !writer.sparse.empty(); writer.sparse.pop_back()) {
      const std::string& key = writer.sparse.back();
      HAKO_TRY {
        LeafGuard guard(*this, writer, LockLeafByCall(writer, key));
        if (guard.line != nullptr && shape_.IsSparse(*guard.line)) {
          guard.changed = true;
          shape_.Merge(writer, std::exchange(guard.line, nullptr), key);
        }
      }
      HAKO_CATCH_NO_MEMORY()  // the leaf stays sparse
    }
  }
}

}  // namespace hako::tree
