// Removes all records of a tree, with its pages and long values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "hako/sync/record_count.h"
#include "hako/tree/leaf_eviction.h"
#include "hako/tree/tree_pages.h"
#include "hako/update/logging.h"

namespace hako::tree {

template <class Space, Comparator Compare>
class TreeRemoval {
  using Pages = TreePages<Space, Compare>;
  using Line = typename Pages::Line;
  using View = typename Pages::View;
  using Lock = typename Pages::Lock;
  using Deferred = typename Space::Deferred;

 public:
  explicit TreeRemoval(const Pages& pages) : pages_(pages), space_(pages.space()) {}

  // Makes the locked root an empty leaf, in new memory. Returns false if memory runs out.
  static bool BuildEmpty(Space& space, Line& root) {
    typename Pages::Builder builder(0, {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh});
    return builder.Build(space, root, format::kSlotGroup, 256);
  }

  // The steps that can run out of memory come first: until the root is an empty leaf, the tree has
  // all of its records. After that only the load of a leaf whose long values must be freed may
  // fail.
  // REQUIRES: no writers
  Status RemoveAll(sync::RecordCount& count, Deferred& deferred) const {
    space_.gate().AssertNoWriters();
    Line& root = pages_.root();
    HAKO_RETURN_IF_ERROR(pages_.LockPage(root));
    sync::LockHolder holder(Lock(root.version));
    space_.MarkDirty(root);
    std::size_t num_evicted = 0;
    HAKO_RETURN_IF_ERROR(MarkBelow(root, &num_evicted));
    space_.ReserveDirty(num_evicted);
    PageSnapshot<Compare> before(space_.memory(), root);
    typename LeafEviction<Space, Compare>::Reservation reservation(
        space_);  // at a limit there may be no memory until the records are removed
    (void)reservation.Take(0, true);
    if (!BuildEmpty(space_, root)) return Pages::NoMemory();
    holder.changed = true;
    count.SetTotal(0);
    const Status freed = CatchNoMemory([&] { return FreeBelow(before.view(), deferred); });
    space_.Free(before.unit(), before.units());
    if (!freed.ok()) update::RefuseUpdates(space_, freed);
    return freed;
  }

 private:
  // Marks those pages below a locked one that are in memory dirty, and counts the others.
  Status MarkBelow(Line& line, std::size_t* num_evicted) const {
    const View page = pages_.ViewOf(line);
    const int level = static_cast<int>(page.level()) - 1;
    for (unsigned i = 0; level >= 0 && i < page.count(); ++i) {
      Line& child = pages_.LineOf(page.child(i));
      const bool is_evicted = level == 0 && space_.IsEvicted(pages_.IdOf(child));
      const Status locked = is_evicted ? absl::OkStatus() : pages_.LockPage(child, level);
      if (absl::IsResourceExhausted(locked)) return locked;
      if (is_evicted || !locked.ok()) {
        ++*num_evicted;
        continue;
      }
      const sync::LockHolder holder(Lock(child.version));
      space_.MarkDirty(child);
      HAKO_RETURN_IF_ERROR(MarkBelow(child, num_evicted));
    }
    return absl::OkStatus();
  }

  // Frees the pages and long values below a page. Drops unreadable pages. Returns an error if one
  // of them was unreadable for lack of memory. REQUIRES: MarkBelow (unchecked: some pages are not
  // in memory)
  Status FreeBelow(const View& page, Deferred& deferred) const {
    Status failed;
    for (unsigned i = 0; i < page.count(); ++i) {
      if (page.level() == 0) {
        if (const auto value = Pages::LongValueOf(page, i)) space_.FreeLong(*value, deferred);
        continue;
      }
      const std::uint32_t id = page.child(i);
      Line& child = pages_.LineOf(id);
      const int level = static_cast<int>(page.level()) - 1;
      if (level == 0 && space_.DiscardEvicted(id, false)) continue;
      Status locked = pages_.LockPage(child, level);
      while (!locked.ok() && !space_.DiscardEvicted(id, true)) locked = pages_.LockPage(child, level);
      if (!locked.ok()) {
        if (absl::IsResourceExhausted(locked)) failed = std::move(locked);
        continue;
      }
      space_.MarkDirty(child);
      const View below = pages_.ViewOf(child);
      if (Status status = FreeBelow(below, deferred); !status.ok()) failed = std::move(status);
      space_.Free(child.unit, below.shape().units);
      space_.FreePage(id);
    }
    return failed;
  }

  const Pages& pages_;
  Space& space_;
};

}  // namespace hako::tree
