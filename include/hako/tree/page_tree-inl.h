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
