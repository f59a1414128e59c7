// Definitions of array/page_array.h: making and freeing pages.
#pragma once

#include "hako/array/page_array.h"

namespace hako::array {

template <class Space>
Status PageArray<Space>::Reserve() {
  static constexpr std::uint64_t kLeast = 64 << 10;
  const std::uint64_t wanted = std::min(shape_.leaves(), std::uint64_t{id_mask_} + 1) * sizeof(std::uint32_t);
  HAKO_ASSIGN_OR_RETURN(table_memory_, storage::ReservedMemory::ReserveUpTo(std::max(wanted, kLeast), kLeast));
  table_ = reinterpret_cast<std::uint32_t*>(table_memory_.base());
  table_size_ = std::min(shape_.leaves(), table_memory_.size() / sizeof(std::uint32_t));
  return absl::OkStatus();
}

template <class Space>
Status PageArray<Space>::Create() {
  HAKO_RETURN_IF_ERROR(Reserve());
  sync::MutexLock lock(structure_mutex_);
  root_ = MakePage(nullptr, 0, kRootLevel, 0);
  if (root_ == nullptr) return NoMemory();
  Unlock(root_, true);
  return absl::OkStatus();
}

template <class Space>
Status PageArray<Space>::Attach(std::uint32_t root, std::uint64_t num_records, std::uint64_t applied_index) {
  HAKO_RETURN_IF_ERROR(Reserve());
  root_ = &LineOf(root);
  end_.store(kInexact, std::memory_order_release);
  applied_index_.store(applied_index, std::memory_order_release);
  count_.SetTotal(num_records);
  return absl::OkStatus();
}

// Makes an empty page, which entry i of the parent names, with its line locked. Returns nullptr,
// and changes nothing, if memory runs out.
template <class Space>
auto PageArray<Space>::MakePage(Line* parent, unsigned i, unsigned level, std::uint64_t number) -> Line* {
  std::optional<sync::LockHolder> holder;
  if (parent != nullptr) {
    Lock(parent->version).Lock();
    holder.emplace(Lock(parent->version));
    space_.MarkDirty(*parent);
  }
  const std::uint32_t id = space_.NewPage();
  if (id == 0) return nullptr;
  Line& line = LineOf(id);
  const unsigned units = level == 0 ? shape_.units : format::kDirectoryBytes / format::kPageUnit;
  const std::uint32_t unit = space_.Allocate(units);
  if (unit == 0) return space_.FreePage(id), nullptr;
  format::PageShape shape = format::ArrayPageShape(level, number, units);
  shape.kind = static_cast<std::uint8_t>(shape.kind | space_.mark());
  std::atomic_ref(line.unit).store(unit, std::memory_order_relaxed);
  std::atomic_ref(line.shape).store(shape, std::memory_order_relaxed);
  if (level == 0) {
    BitsOf(line, PageOf(line)).ClearAll();
    NoteLeaf(number, id);
  } else {
    for (unsigned at = 0; at < format::kDirectoryBytes; at += sizeof(kZeros)) sync::StoreShared(PageOf(line) + at, kZeros, sizeof(kZeros));
  }
  if (parent != nullptr) {
    std::atomic_ref(EntryOf(*parent, i)).store(id, std::memory_order_relaxed);
    holder->changed = true;
  }
  return &line;
}

// Makes a leaf, with its line locked, and the missing pages above it. REQUIRES: the pages above it
// that exist are in memory
template <class Space>
auto PageArray<Space>::MakeLeaf(std::uint64_t leaf) -> Line* {
  Line* page = &root();
  for (unsigned level = kRootLevel; level > 0; --level) {
    const unsigned i = IndexIn(level, leaf);
    if (const std::uint32_t child = ChildOf(*page, i); child != 0) {
      page = &LineOf(child);
      HAKO_DCHECK(level == 1 || !IsEvicted({page, 0}));
      continue;
    }
    page = MakePage(page, i, level - 1, leaf >> format::kFanoutBits * (level - 1));
    if (page == nullptr) return nullptr;
    if (level > 1) Unlock(page, true);
  }
  return page;
}

template <class Space>
bool PageArray<Space>::IsEmptyDirectory(const Line& line) const {
  for (unsigned i = 0; i < format::kFanout; ++i) {
    if (ChildOf(line, i) != 0) return false;
  }
  return true;
}

// Frees a locked leaf without records, and sets *line to nullptr, if there is memory to do so.
template <class Space>
void PageArray<Space>::FreeLeaf(Line** line, std::uint64_t leaf) {
  sync::MutexLock lock(structure_mutex_);
  if (FreeEmpty(*line, leaf)) *line = nullptr;
}

// As FreeLeaf; then frees the pages above that have become empty, except the root. Returns false if
// the leaf stays.
template <class Space>
bool PageArray<Space>::FreeEmpty(Line* line, std::uint64_t leaf) {
  Line* path[kRootLevel + 1];
  path[kRootLevel] = &root();
  for (unsigned level = kRootLevel; level > 1; --level) path[level - 1] = &LineOf(ChildOf(*path[level], IndexIn(level, leaf)));
  path[0] = line;
  for (unsigned level = 0; level < kRootLevel; ++level) {
    Line* const page = path[level];
    Line* const parent = path[level + 1];
    Lock(parent->version).Lock();
    HAKO_TRY { space_.MarkDirty(*parent); }
    HAKO_CATCH_NO_MEMORY({
      Unlock(parent, false);
      if (level > 0) Unlock(page, true);  // an empty directory page stays
      return level > 0;
    })
    std::atomic_ref(EntryOf(*parent, IndexIn(level + 1, leaf))).store(0, std::memory_order_relaxed);
    if (level == 0) NoteLeaf(leaf, 0);
    space_.Free(page->unit, page->shape.units);
    space_.FreePage(IdOf(*page));
    if (level + 1 < kRootLevel && IsEmptyDirectory(*parent)) continue;  // it stays locked
    Unlock(parent, true);
    break;
  }
  return true;
}

// If the table lacks the leaf, adds it and its siblings in the same directory page. Returns without
// doing so if the mutex is held, because a reader does not wait.
template <class Space>
void PageArray<Space>::NoteLeaves(std::uint64_t leaf) {
  if (leaf >= table_size_ || std::atomic_ref(table_[leaf]).load(std::memory_order_relaxed) != 0) return;
  if (!structure_mutex_.TryLock()) return;
  NoteLeavesLocked(leaf);
  structure_mutex_.Unlock();
}

template <class Space>
void PageArray<Space>::NoteLeavesLocked(std::uint64_t leaf) {
  Line* page = &root();
  for (unsigned level = kRootLevel; level > 1; --level) {
    const std::uint32_t child = ChildOf(*page, IndexIn(level, leaf));
    if (child == 0) return;
    page = &LineOf(child);
    if (IsEvicted({page, 0})) return;
  }
  const std::uint64_t first = leaf - leaf % format::kFanout;
  for (unsigned i = 0; i < format::kFanout; ++i) NoteLeaf(first + i, ChildOf(*page, i));
}

// REQUIRES: no writers (unchecked here: a copy that is verified has no gate; see EngineOperations::AssertNoWriters)
template <class Space>
Status PageArray<Space>::LockPage(Line& line, unsigned level) {
  for (sync::Backoff backoff; !Lock(line.version).TryLock(); backoff.Pause()) HAKO_RETURN_IF_ERROR(LoadIfEvicted({&line, 0, level}, true));
  return absl::OkStatus();
}

// The steps that can fail (no memory, an unreadable directory) come first. Until the root is
// emptied, the array has all its records.
template <class Space>
Status PageArray<Space>::RemoveAll() {
  captures_.Fail(ClearedError());
  sync::MutexLock lock(structure_mutex_);  // keeps readers from adding leaves to the table
  HAKO_RETURN_IF_ERROR(LockPage(root(), kRootLevel));
  sync::LockHolder holder(Lock(root().version));
  space_.MarkDirty(root());
  std::size_t num_evicted = 0;
  HAKO_RETURN_IF_ERROR(MarkBelow(root(), kRootLevel, &num_evicted));
  if constexpr (!Space::kResident) space_.ReserveDirty(num_evicted);
  holder.changed = true;
  count_.SetTotal(0);
  end_.store(0, std::memory_order_release);
  const Status freed = CatchNoMemory([&] { return FreeBelow(root(), kRootLevel, 0); });
  if (!freed.ok()) update::RefuseUpdates(space_, freed);
  return freed;
}

// Marks the pages below a locked one that are in memory, and counts the others, which are leaves or
// damaged.
template <class Space>
Status PageArray<Space>::MarkBelow(Line& line, unsigned level, std::size_t* num_evicted) {
  for (unsigned i = 0; i < format::kFanout; ++i) {
    const std::uint32_t id = ChildOf(line, i);
    if (id == 0) continue;
    Line& child = LineOf(id);
    const bool stays_away = level == 1 && IsEvicted({&child, 0});
    const Status locked = stays_away ? absl::OkStatus() : LockPage(child, level - 1);
    if (absl::IsResourceExhausted(locked)) return locked;
    if (stays_away || !locked.ok()) {
      ++*num_evicted;
      continue;
    }
    const sync::LockHolder holder(Lock(child.version));
    space_.MarkDirty(child);
    if (level > 1) HAKO_RETURN_IF_ERROR(MarkBelow(child, level - 1, num_evicted));
  }
  return absl::OkStatus();
}

// Frees the pages below a locked one, and drops unreadable ones. Returns an error if one was
// unreadable for lack of memory. REQUIRES: MarkBelow (unchecked: some pages are not in memory)
template <class Space>
Status PageArray<Space>::FreeBelow(Line& line, unsigned level, std::uint64_t number) {
  Status failed;
  for (unsigned i = 0; i < format::kFanout; ++i) {
    const std::uint32_t id = ChildOf(line, i);
    if (id == 0) continue;
    Line& child = LineOf(id);
    std::atomic_ref(EntryOf(line, i)).store(0, std::memory_order_relaxed);
    const std::uint64_t child_number = number * format::kFanout + i;
    if (level == 1) NoteLeaf(child_number, 0);
    if constexpr (!Space::kResident) {
      if (level == 1 && space_.DiscardEvicted(id, false)) continue;
      Status locked = LockPage(child, level - 1);
      while (!locked.ok() && !space_.DiscardEvicted(id, true)) locked = LockPage(child, level - 1);
      if (!locked.ok()) {
        if (absl::IsResourceExhausted(locked)) failed = std::move(locked);
        continue;
      }
    } else {
      (void)LockPage(child, level - 1);
    }
    space_.MarkDirty(child);
    if (level > 1) {
      if (Status below = FreeBelow(child, level - 1, child_number); !below.ok()) failed = std::move(below);
    }
    space_.Free(child.unit, child.shape.units);
    space_.FreePage(id);
  }
  return failed;
}

}  // namespace hako::array
