// Definitions of tree/page_tree.h: a new tree, and the removal of all records.
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

// The steps that can run out of memory come first: until the root is an empty leaf, the tree has all
// of its records. Only the load of a leaf, whose long values are to be freed, may fail later.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::RemoveAll(Deferred& deferred) {
  for (Capture* const capture : captures_) capture->Fail(ClearedError());
  HAKO_RETURN_IF_ERROR(LockPage(root()));
  sync::LockHolder holder(Lock(root().version));
  space_.MarkDirty(root());
  std::size_t num_evicted = 0;
  HAKO_RETURN_IF_ERROR(MarkBelow(root(), &num_evicted));
  if constexpr (!Space::kResident) space_.ReserveDirty(num_evicted);
  PageSnapshot<Compare> before(memory_, root());
  Builder builder(0, {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh});
  Reservation reservation(space_);  // at a limit there may be no memory until the records are removed
  (void)reservation.Take(0, true);
  if (!builder.Build(space_, root(), format::kSlotGroup, 256)) return NoMemory();
  holder.changed = true;
  count_.SetTotal(0);
  const Status freed = CatchNoMemory([&] { return FreeBelow(before.view(), deferred); });
  space_.Free(before.unit(), before.units());
  if (!freed.ok()) update::RefuseUpdates(space_, freed);
  return freed;
}

// Marks the pages below a locked one as far as they are in memory, and counts the others.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::MarkBelow(Line& line, std::size_t* num_evicted) {
  const View page(memory_, line);
  const int level = static_cast<int>(page.level()) - 1;
  for (unsigned i = 0; level >= 0 && i < page.count(); ++i) {
    Line& child = LineOf(page.child(i));
    Status locked;
    if constexpr (!Space::kResident) {
      const bool is_evicted = level == 0 && space_.IsEvicted(IdOf(child));
      if (!is_evicted) locked = LockPage(child, level);
      if (absl::IsResourceExhausted(locked)) return locked;
      if (is_evicted || !locked.ok()) {
        ++*num_evicted;
        continue;
      }
    } else {
      (void)LockPage(child);
    }
    const sync::LockHolder holder(Lock(child.version));
    space_.MarkDirty(child);
    HAKO_RETURN_IF_ERROR(MarkBelow(child, num_evicted));
  }
  return absl::OkStatus();
}

// Frees the pages and long values below a page. Drops unreadable pages; an error if one of them was
// unreadable for lack of memory. REQUIRES: MarkBelow (unchecked: some pages are not in memory)
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::FreeBelow(const View& page, Deferred& deferred) {
  Status failed;
  for (unsigned i = 0; i < page.count(); ++i) {
    if (page.level() == 0) {
      if (const auto value = LongValueOf(page, i)) space_.FreeLong(*value, deferred);
      continue;
    }
    const std::uint32_t id = page.child(i);
    Line& child = LineOf(id);
    if constexpr (!Space::kResident) {
      if (page.level() == 1 && space_.DiscardEvicted(id, false)) continue;
      Status locked = LockPage(child, static_cast<int>(page.level()) - 1);
      while (!locked.ok() && !space_.DiscardEvicted(id, true)) locked = LockPage(child, static_cast<int>(page.level()) - 1);
      if (!locked.ok()) {
        if (absl::IsResourceExhausted(locked)) failed = std::move(locked);
        continue;
      }
    } else {
      (void)LockPage(child);
    }
    space_.MarkDirty(child);
    if (Status below = FreeBelow(View(memory_, child), deferred); !below.ok()) failed = std::move(below);
    space_.Free(child.unit, View(memory_, child).shape().units);
    space_.FreePage(id);
  }
  return failed;
}

}  // namespace hako::tree
