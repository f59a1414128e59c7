// Definitions of array/page_array.h: updates of one record, and of a range.
#pragma once

#include "hako/array/page_array.h"

namespace hako::array {

// A writer's access to a leaf: until the end of the scope the writer is busy and the leaf, if it
// exists, is locked.
template <class Space>
class PageArray<Space>::Guard {
 public:
  HAKO_INLINE Guard(PageArray& array, WriterState& writer, Line* locked) : line(locked), array_(array), writer_(writer) {}
  Guard(const Guard&) = delete;
  HAKO_INLINE ~Guard() {
    if (line != nullptr) array_.Unlock(line, changed);
    array_.EndWrite(writer_, changed);
  }
  HAKO_INLINE void Change() {
    array_.space_.MarkDirty(*line);
    changed = true;
  }
  Line* line;
  bool changed = false;

 private:
  PageArray& array_;
  WriterState& writer_;
};

// Only a thread that changes pages evicts pages and pauses.
template <class Space>
HAKO_INLINE void PageArray<Space>::EndWrite(WriterState& writer, bool changed) {
  writer.Leave();
  if constexpr (!Space::kResident) {
    if (space_.NeedsEviction() && changed) [[unlikely]] {
      HAKO_TRY { space_.EvictIfNeeded(); }
      HAKO_CATCH_NO_MEMORY()  // the next write frees the memory instead
    }
  }
}

// REQUIRES: the writer is busy (checked in ProcessSlowly)
//
// The locked instruction waits until all earlier stores, including those to the previous record,
// have reached the cache. So the record is prefetched first, and the two waits overlap.
template <class Space>
HAKO_INLINE auto PageArray<Space>::TryLockLeaf(const Place& place) -> Line* {
  Reached reached;
  if (!Reach(place.leaf, &reached)) [[unlikely]]
    return nullptr;
  if (!sync::IsSingleThreaded()) {
    const char* const record = RecordOf(PageOf(*reached.line), place.index);
    __builtin_prefetch(record, 1);
    if (shape_.width > 64) __builtin_prefetch(record + 64, 1);
  }
  if (!Lock(reached.line->version).LockIf(reached.version)) [[unlikely]]
    return nullptr;
  if (!space_.gate().IsBusy()) [[likely]]
    return reached.line;
  Unlock(reached.line, false);
  return nullptr;
}

// Returns nullptr if there is no such leaf, or after an error, which is in the writer's state.
template <class Space>
auto PageArray<Space>::LockLeafSlowly(WriterState& writer, std::uint64_t leaf) -> Line* {
  writer.AssertBusy();
  if constexpr (requires { writer.error; }) writer.error = absl::OkStatus();
  for (sync::Backoff backoff;; backoff.Pause()) {
    if (space_.gate().IsClosed()) {
      writer.Leave();
      space_.gate().WaitUntilOpen();
      writer.Enter();
    }
    Reached reached;
    const Way way = Find(leaf, &reached);
    if (way == Way::kAbsent) return nullptr;
    if constexpr (!Space::kResident) {
      if (way == Way::kBlocked && IsEvicted(reached)) {
        writer.Leave();  // so that a thread that closes the gate need not wait for the file
        writer.error = CatchNoMemory([&] { return LoadIfEvicted(reached); });
        writer.Enter();
        if (!writer.error.ok()) return nullptr;
      }
    }
    if (way != Way::kLeaf || !Lock(reached.line->version).LockIf(reached.version)) continue;
    if (!space_.gate().IsClosed()) return NoteLeaves(leaf), CaptureIfAsked(leaf, reached.line), reached.line;
    Unlock(reached.line, false);
  }
}

template <class Space>
void PageArray<Space>::CaptureLeaf(std::uint64_t leaf, const Line* line) {
  captures_.Pass(FirstIdOf(leaf), FirstIdOf(leaf) + shape_.per_leaf, [&] {
    auto copy = std::make_shared<typename Capture::Leaf>();
    if (line == nullptr) return typename Capture::Copied(std::move(copy));
    char* const page = PageOf(*line);
    const PresenceBits bits = BitsOf(*line, page);
    for (unsigned i = bits.FirstFrom(0); i < shape_.per_leaf; i = bits.FirstFrom(i + 1))
      copy->Add(FirstIdOf(leaf) + i, std::string_view(RecordOf(page, i), shape_.width));
    return typename Capture::Copied(std::move(copy));
  });
}

template <class Space>
HAKO_INLINE void PageArray<Space>::StoreRecord(char* record, std::string_view value) const {
  sync::StoreShared(record, value.data(), value.size());
  if (value.size() < shape_.width) [[unlikely]]
    sync::StoreShared(record + value.size(), kZeros, shape_.width - value.size());
}

template <class Space>
template <class ActionT, class V>
HAKO_INLINE Status PageArray<Space>::Process(WriterState& writer, std::uint64_t id, V&& visit) {
  const Place place = PlaceOf(id);
  writer.Enter();
  if (Line* const line = TryLockLeaf(place); line != nullptr) [[likely]] {
    Guard guard(*this, writer, line);
    return ProcessIn<ActionT>(guard, writer, id, place, visit);
  }
  if constexpr (std::is_same_v<std::remove_cvref_t<V>, ActionT>)
    return CarryOutSlowly<ActionT>(writer, id, visit);  // a copy, so that `visit` stays in registers
  else
    return ProcessSlowly<ActionT>(writer, id, VisitorRef<ActionT, std::remove_reference_t<V>>(visit));
}

template <class Space>
template <class ActionT>
Status PageArray<Space>::CarryOutSlowly(WriterState& writer, std::uint64_t id, ActionT action) {
  return ProcessSlowly<ActionT>(writer, id, VisitorRef<ActionT, const ActionT>(action));
}

// See invariant 5.
template <class Space>
template <class ActionT, class V>
HAKO_INLINE Status PageArray<Space>::ProcessIn(Guard& guard, WriterState& writer, std::uint64_t id, const Place& place, V&& visit) {
  constexpr bool kLogs = update::kMayLog<Space, std::remove_cvref_t<V>>;
  char* const page = PageOf(*guard.line);
  char* const record = RecordOf(page, place.index);
  const PresenceBits bits = BitsOf(*guard.line, page);
  const bool found = bits.Has(place.index);
  std::optional<std::string_view> value;
  if constexpr (kReadsValue<ActionT, V>) {
    if (found) value.emplace(record, shape_.width);
  }
  if constexpr (std::is_void_v<ActionT>) {
    visit(value);
    return absl::OkStatus();
  } else {
    const ActionT action = [&] {
      if constexpr (kReadsValue<ActionT, V>)
        return visit(value);
      else
        return visit(found);
    }();
    if (action.kind() == ActionT::Kind::kSet) {
      if (action.value().size() > shape_.width) [[unlikely]]
        return TooLong(action.value().size());
      guard.Change();
      if (kLogs && !update::LogUpdate(space_, writer, format::LogOp::kSet, LogKey(id).view(), action.value())) [[unlikely]]
        return update::ErrorOf(writer);
      StoreRecord(record, action.value());
      if (!found) {
        RaiseEnd(id);
        bits.Set(place.index);
        count_.Add(writer, 1);
      }
    } else if (action.kind() == ActionT::Kind::kRemove && found) {
      guard.Change();
      if (kLogs && !update::LogUpdate(space_, writer, format::LogOp::kRemove, LogKey(id).view())) [[unlikely]]
        return update::ErrorOf(writer);
      bits.Clear(place.index);
      LowerEnd(id);
      count_.Add(writer, -1);
      if (bits.IsEmpty()) [[unlikely]]
        FreeLeaf(&guard.line, place.leaf);
    }
    return absl::OkStatus();
  }
}

// REQUIRES: the writer is busy
template <class Space>
template <class ActionT, class VisitorT>
Status PageArray<Space>::ProcessSlowly(WriterState& writer, std::uint64_t id, VisitorT visit) {
  const Place place = PlaceOf(id);
  writer.AssertBusy();
  for (;;) {
    Line* const line = LockLeafSlowly(writer, place.leaf);
    if (line != nullptr) {
      Guard guard(*this, writer, line);
      return ProcessIn<ActionT>(guard, writer, id, place, visit);
    }
    if (Status error = update::ErrorOf(writer); !error.ok()) return writer.Leave(), error;
    if constexpr (std::is_void_v<ActionT>) {
      const sync::LeaveAtEnd leave(writer);
      visit(std::nullopt);
      return absl::OkStatus();
    } else {
      if (std::optional<Status> done = ProcessAbsent<ActionT>(writer, id, visit)) return *std::move(done);
      writer.Enter();
    }
  }
}

// Decides on a record whose leaf does not exist (invariant 4). Returns nullopt if another thread
// has made the leaf, or the gate is closed. The writer is busy before the call, but not after it.
template <class Space>
template <class ActionT, class VisitorT>
auto PageArray<Space>::ProcessAbsent(WriterState& writer, std::uint64_t id, VisitorT visit) -> std::optional<Status> {
  const Place place = PlaceOf(id);
  Guard guard(*this, writer, nullptr);
  writer.busy.store(true, std::memory_order_seq_cst);  // replaces the fence of a leaf's lock
  if (space_.gate().IsClosed()) return std::nullopt;
  sync::MutexLock lock(structure_mutex_);  // released before the guard ends, because the end of the guard may pause
  Reached reached;
  if (Find(place.leaf, &reached) != Way::kAbsent) return std::nullopt;
  const ActionT action = [&] {
    if constexpr (kReadsValue<ActionT, VisitorT>)
      return visit(std::nullopt);
    else
      return visit(false);
  }();
  if (action.kind() != ActionT::Kind::kSet) return absl::OkStatus();
  if (action.value().size() > shape_.width) return TooLong(action.value().size());
  CaptureIfAsked(place.leaf, nullptr);
  guard.line = MakeLeaf(place.leaf);
  if (guard.line == nullptr) return NoMemory();
  guard.changed = true;
  if (update::kMayLog<Space, VisitorT> && !update::LogUpdate(space_, writer, format::LogOp::kSet, LogKey(id).view(), action.value())) {
    if (FreeEmpty(guard.line, place.leaf)) guard.line = nullptr;
    return update::ErrorOf(writer);
  }
  char* const page = PageOf(*guard.line);
  StoreRecord(RecordOf(page, place.index), action.value());
  RaiseEnd(id);
  BitsOf(*guard.line, page).Set(place.index);
  count_.Add(writer, 1);
  return absl::OkStatus();
}

template <class Space>
void PageArray<Space>::FreeIfEmpty(WriterState& writer, std::uint64_t leaf) {
  writer.Enter();
  Guard guard(*this, writer, LockLeafSlowly(writer, leaf));
  if (guard.line == nullptr || !BitsOf(*guard.line, PageOf(*guard.line)).IsEmpty()) return;
  HAKO_TRY { guard.Change(); }
  HAKO_CATCH_NO_MEMORY(return;)  // then the leaf stays
  FreeLeaf(&guard.line, leaf);
}

// Returns the part of a range that lies in a leaf, as indices of the records in the leaf.
template <class Space>
auto PageArray<Space>::PartOf(const IdRange& range, std::uint64_t leaf) const -> std::pair<unsigned, unsigned> {
  const std::uint64_t first = FirstIdOf(leaf), end = first + shape_.per_leaf;
  return {static_cast<unsigned>(std::clamp(range.from, first, end) - first),
          static_cast<unsigned>(std::clamp(range.to, first, end) - first)};
}

// Removes the records [begin, end) of a locked leaf.
template <class Space>
void PageArray<Space>::RemoveIn(WriterState& writer, const PresenceBits& bits, std::uint64_t leaf, unsigned begin, unsigned end) {
  std::int64_t count = 0;
  for (unsigned i = bits.FirstFrom(begin); i < end; i = bits.FirstFrom(i + 1), ++count) {
    bits.Clear(i);
    LowerEnd(FirstIdOf(leaf) + i);
  }
  count_.Add(writer, -count);
}

template <class Space>
StatusOr<std::uint64_t> PageArray<Space>::RemoveRange(WriterState& writer, std::uint64_t from, std::uint64_t to) {
  std::uint64_t removed = 0;
  std::optional<std::uint64_t> leaf = from < to ? std::optional(PlaceOf(from).leaf) : std::nullopt;
  while (leaf && FirstIdOf(*leaf) < to) {
    std::uint64_t damaged;
    unsigned level;
    HAKO_RETURN_IF_ERROR(NextLeaf(*leaf, true, &leaf, &damaged, &level));
    if (!leaf || FirstIdOf(*leaf) >= to) break;
    writer.Enter();
    Guard guard(*this, writer, LockLeafSlowly(writer, *leaf));
    const std::uint64_t first = FirstIdOf(*leaf);
    const auto [begin, end] = PartOf({from, to}, *leaf);
    if (guard.line == nullptr) {
      HAKO_RETURN_IF_ERROR(update::ErrorOf(writer));
    } else if (const PresenceBits bits = BitsOf(*guard.line, PageOf(*guard.line)); bits.CountIn(begin, end) != 0) {
      guard.Change();
      if (!update::LogUpdate(space_, writer, format::LogOp::kRemoveRange, LogKey(first + begin).view(), LogKey(first + end).view()))
        return update::ErrorOf(writer);
      removed += bits.CountIn(begin, end);
      RemoveIn(writer, bits, *leaf, begin, end);
      if (bits.IsEmpty()) FreeLeaf(&guard.line, *leaf);
    }
    if (++*leaf >= shape_.leaves()) break;
  }
  return removed;
}

}  // namespace hako::array
