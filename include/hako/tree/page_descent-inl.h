// Definitions of tree/page_tree.h: descents from the root, and the locks of writers.
#pragma once

#include "hako/tree/page_tree.h"

namespace hako::tree {

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
        writer.Leave();  // so that a thread that closes the gate need not wait for the file
        writer.error = LoadIfEvicted(leaf);
        writer.Enter();
        if (!writer.error.ok()) return nullptr;
      }
      continue;
    }
    if (Lock(leaf.line->version).LockIf(leaf.version)) {
      if (!space_.gate().IsClosed()) return CaptureIfAsked(*leaf.line), leaf.line;
      Unlock(leaf.line, false);
    }
  }
}

// The records that can be read, and the first error. A long value may have to be read with the leaf locked:
// the thread that stores it holds no lock.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::CaptureLeaf(const Line& leaf) {
  const View page(memory_, const_cast<Line&>(leaf));
  const format::PageTail tail = page.tail();
  typename Capture::Bound low, high;
  if ((tail.edges & format::PageTail::kNoLow) == 0) low = page.low(tail);
  if ((tail.edges & format::PageTail::kNoHigh) == 0) high = page.high(tail);
  for (Capture* const capture : captures_) {
    capture->Capture(low, high, [&](auto&& visit) -> Status {
      Status unread;
      KeyBuffer key;
      for (unsigned i = 0; i < page.count(); ++i) {
        Builder::CopyKeyOf(page, i, &key);
        const char* const cell = page.cell(i);
        const format::Cell sizes = View::Decode(cell);
        const std::string_view content(cell + sizes.header + sizes.Rest(View::kInlined), sizes.value);
        if (!sizes.is_long) {
          visit(key, content);
          continue;
        }
        LongRead read(space_);
        while (!read.Has(LongValueIn(content))) read.Read();
        unread.Update(read.status());
        if (read.status().ok()) visit(key, read.bytes());
      }
      return unread;
    });
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
    if (page.child(page.ChildForByCall(key)) == id) return parent.line;
    Unlock(parent.line, false);
  }
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::LockPage(Line& line, int level) const {
  for (sync::Backoff backoff; !Lock(line.version).TryLock(); backoff.Pause()) HAKO_RETURN_IF_ERROR(LoadIfEvicted({&line, 0, level}, true));
  return absl::OkStatus();
}

}  // namespace hako::tree
