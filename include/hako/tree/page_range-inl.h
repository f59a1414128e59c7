// Definitions of tree/page_tree.h: operations on a range of keys, and the parts of a parallel scan.
#pragma once

#include <algorithm>

#include "hako/tree/page_tree.h"

namespace hako::tree {

// Whether no page after this one has keys of the range.
template <class Space, Comparator Compare>
bool PageTree<Space, Compare>::IsLastOf(const Range& range, const View& page) {
  const format::PageTail tail = page.tail();
  return (tail.edges & format::PageTail::kNoHigh) != 0 || (range.to && Compare::Compare(page.high(tail), *range.to) >= 0);
}

template <class Space, Comparator Compare>
StatusOr<std::uint64_t> PageTree<Space, Compare>::CountRange(const Range& range) const {
  HAKO_DCHECK(!range.to || Compare::Compare(range.from, *range.to) < 0);
  Copy copy;
  std::string from(range.from);
  for (std::uint64_t count = 0;;) {
    HAKO_RETURN_IF_ERROR(ReadLeaf(Seek::kAt, from, &copy, from != range.from));
    const View page = copy.view();
    const format::PageTail tail = page.tail();
    const bool last = IsLastOf(range, page);
    const unsigned begin = page.FindByCall(from).index;
    const unsigned end = last && range.to ? page.FindByCall(*range.to).index : page.count();
    if (end > begin) count += end - begin;
    if (last) return count;
    from.assign(page.high(tail));
  }
}

// Descends to both keys side by side. Pages may be changing at the same time: the result is only a hint.
template <class Space, Comparator Compare>
std::uint64_t PageTree<Space, Compare>::CountAbout(std::string_view from, std::string_view to) const {
  static constexpr std::uint64_t kUsualSlots = 128;
  Reached low{&root(), Lock(root().version).ReadVersion()}, high = low;
  std::uint64_t pages = 0;  // from the low one to the high one
  for (int level = static_cast<int>(View(memory_, root()).level());; --level) {
    const View first(memory_, *low.line), last(memory_, *high.line);
    const bool good = ((low.version | high.version) & Lock::kLocked) == 0 && static_cast<int>(first.level()) == level &&
                      static_cast<int>(last.level()) == level;
    if (!good) {
      for (std::uint64_t keys = pages + 1;; keys *= kUsualSlots) {
        if (level-- < 0) return keys;
      }
    }
    const unsigned begin = level == 0 ? first.FindByCall(from).index : first.ChildForByCall(from);
    const unsigned end = level == 0 ? last.FindByCall(to).index : last.ChildForByCall(to);
    pages = pages == 0 ? std::max(begin, end) - begin : std::max(first.count(), begin) - begin + (pages - 1) * kUsualSlots + end;
    if (level == 0) return pages;
    const auto go_down = [&](Reached* at, const View& page, unsigned child) {
      Line* const line = &LineOf(page.child(child));
      const std::uint32_t version = Lock(line->version).ReadVersion();
      *at = {line, Lock(at->line->version).IsCurrent(at->version) ? version : Lock::kLocked};
    };
    go_down(&low, first, begin);
    go_down(&high, last, end);
  }
}

template <class Space, Comparator Compare>
StatusOr<std::uint64_t> PageTree<Space, Compare>::RemoveRange(WriterState& writer, const Range& range) {
  HAKO_DCHECK(!range.to || Compare::Compare(range.from, *range.to) < 0);
  Copy copy;
  std::string from(range.from);
  for (std::uint64_t removed = 0;;) {
    if constexpr (!Space::kResident) {  // loads the leaf, and reads ahead
      HAKO_RETURN_IF_ERROR(ReadLeaf(Seek::kAt, from, &copy, from != range.from));
    }
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

template <class Space, Comparator Compare>
std::vector<std::string> PageTree<Space, Compare>::Parts(unsigned parts) const {
  // The keys of a level's slots, from the root down until there are enough.
  std::vector<std::string> bounds, next;
  for (unsigned level = View(memory_, root()).level(); level > 0 && bounds.size() + 1 < 4 * parts; --level) {
    next.clear();
    for (std::size_t i = 0; i <= bounds.size(); ++i) {
      if (i > 0) next.push_back(bounds[i - 1]);
      Copy copy;
      // A page that cannot be read is not divided; the scan of its part reports the error.
      if (!ReadPage(level, i == 0 ? Seek::kFirst : Seek::kAt, i == 0 ? std::string_view() : bounds[i - 1], &copy).ok()) continue;
      const View page = copy.view();
      for (unsigned slot = 1; slot < page.count(); ++slot) Builder::CopyKeyOf(page, slot, &next.emplace_back());
    }
    // Pages may have been split or joined between two reads of them.
    std::ranges::sort(next, [](const std::string& a, const std::string& b) { return Compare::Compare(a, b) < 0; });
    const auto same = [](const std::string& a, const std::string& b) { return Compare::Compare(a, b) == 0; };
    next.erase(std::unique(next.begin(), next.end(), same), next.end());
    bounds.swap(next);
  }
  if (bounds.size() + 1 <= parts) return bounds;
  next.clear();
  for (std::size_t part = 1; part < parts; ++part) next.push_back(std::move(bounds[bounds.size() * part / parts]));
  return next;
}

}  // namespace hako::tree
