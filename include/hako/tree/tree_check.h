// Checks the invariants of a tree, page by page (tree/page_tree.h), and visits its pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "hako/tree/tree_pages.h"

namespace hako::tree {

template <class Space, Comparator Compare>
class TreeCheck {
  using Pages = TreePages<Space, Compare>;
  using Line = typename Pages::Line;
  using View = typename Pages::View;
  using Builder = typename Pages::Builder;
  using Lock = typename Pages::Lock;

 public:
  explicit TreeCheck(const Pages& pages) : pages_(pages), space_(pages.space()) {}

  // See the functions of PageTree with these names.
  Status Verify(std::uint64_t expected) const {
    std::uint64_t found = 0;
    const Fences all{{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh};
    HAKO_RETURN_IF_ERROR(VerifyBelow(pages_.root(), pages_.ViewOf(pages_.root()).level(), all, &found));
    return CompareCounts(found, expected);
  }
  Status CheckCount(std::uint64_t expected) const { return CompareCounts(CountBelow(pages_.root()), expected); }
  Status VerifyBeside() const {
    std::vector<CheckedPage> path;
    std::optional<std::string> from;  // where the next leaf begins; none for the first
    for (sync::Backoff backoff;;) {
      HAKO_ASSIGN_OR_RETURN(const bool checked, CheckPath(from, &path));
      if (!checked) {
        backoff.Pause();
        continue;
      }
      const CheckedPage& leaf = path.back();
      if ((leaf.edges & format::PageTail::kNoHigh) != 0) return absl::OkStatus();
      from = leaf.high;
      backoff = {};
    }
  }

  template <class F>
  void ForEachPage(F& visit) const {
    static_assert(Space::kResident);
    ForEachPageBelow(pages_.root(), visit);
  }

  // Checks the invariants of a single page, and its level and fences. `hints` are the hints in its
  // line.
  static Status CheckPage(std::uint32_t id, const View& page, const std::int32_t* hints, unsigned level, const Fences& fences) {
    const format::PageTail tail = page.tail();
    const auto wrong = [id](std::string_view what) { return absl::DataLossError(absl::StrCat("page ", id, ": ", ToAbsl(what))); };
    if (page.level() != level) return wrong("level does not match the parent");
    if (tail.edges != fences.edges || page.low(tail) != fences.low || page.high(tail) != fences.high)
      return wrong("fence keys do not match the parent");
    if (page.shape().guarded() != (View::kBytewise && fences.edges != 0)) return wrong("guard flag does not match the fences");
    if (View::kBytewise && fences.edges == 0 && page.prefix() != fences.low.substr(0, Builder::Common(fences.low, fences.high)))
      return wrong("prefix is not the common prefix of the fences");
    if (level > 0 && page.count() == 0) return wrong("no children");
    if (page.count() > page.shape().slots()) return wrong("more entries than slots");
    if (page.shape().slots() * page.shape().slot_size() + page.shape().heap > page.shape().size()) return wrong("slots and heap overlap");

    // Bytes after the cells, so that decoding the last one never reads beyond the page.
    const unsigned fixed = static_cast<unsigned>(sizeof(tail)) + tail.fences() + page.shape().prefix;
    unsigned cells = 0;
    std::string before, key;
    for (unsigned i = 0; i < page.count(); ++i) {
      const unsigned offset = page.offset(i);
      if (offset > page.shape().heap || offset <= fixed) return wrong("cell outside the heap");
      const format::Cell sizes = View::Decode(page.cell(i));
      cells += sizes.Size(View::kInlined);
      if (sizes.Size(View::kInlined) > offset - fixed) return wrong("cell outside the heap");
      if (level > 0 && i == 0) {
        if (page.head(0) != format::kLowestHead) return wrong("first slot has a head");
        continue;
      }
      Builder::CopyKeyOf(page, i, &key);
      if (page.head(i) != View::HeadOf(key, page.shape().prefix)) return wrong("head does not match its key");
      if (i > (level > 0 ? 1 : 0) && Compare::Compare(before, key) >= 0) return wrong("keys out of order");
      if ((fences.edges & format::PageTail::kNoLow) == 0 && Compare::Compare(key, fences.low) < 0) return wrong("key below the low fence");
      if ((fences.edges & format::PageTail::kNoHigh) == 0 && Compare::Compare(key, fences.high) >= 0)
        return wrong("key above the high fence");
      before = key;
    }
    if (cells + tail.garbage + fixed != page.shape().heap) return wrong("cells and garbage do not add up to the heap");
    for (unsigned i = page.count(); i < page.shape().slots(); ++i) {
      if (page.head(i) != format::kNoHead) return wrong("unused slot has a head");
    }
    for (unsigned hint = 0; hint < format::kPageHints; ++hint) {
      const unsigned slot = (hint + 1) * format::kSlotGroup;
      if (hints[hint] != (slot < page.count() ? page.head(slot) : format::kNoHead)) return wrong("hint does not match its head");
    }
    return absl::OkStatus();
  }

 private:
  // A checked copy of a page at one moment, and the entry for it in the page above.
  struct CheckedPage {
    Line* line = nullptr;
    std::uint32_t version = 0;
    typename Pages::Copy copy;
    std::string low, high;  // fences
    unsigned edges = 0;
    bool HasFences(const View& page) const {
      const format::PageTail tail = page.tail();
      return tail.edges == edges && page.low(tail) == low && page.high(tail) == high;
    }
  };

  static Status CompareCounts(std::uint64_t found, std::uint64_t expected) {
    if (found == expected) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the tree has ", found, " records instead of ", expected));
  }

  // Leaves may still be locked: a writer locks a leaf before it sees that the gate is closed.
  std::uint64_t CountBelow(Line& line) const {
    const View page = pages_.ViewOf(line);
    if (page.level() == 0) return page.count();
    std::uint64_t found = 0;
    for (unsigned i = 0; i < page.count(); ++i) found += CountBelow(pages_.LineOf(page.child(i)));
    return found;
  }

  template <class F>
  void ForEachPageBelow(Line& line, F& visit) const {
    const View page = pages_.ViewOf(line);
    for (unsigned i = 0; page.level() > 0 && i < page.count(); ++i) ForEachPageBelow(pages_.LineOf(page.child(i)), visit);
    visit(page.level(), page.shape().size(), typename Pages::Editor(space_, line).LiveBytes());
  }

  // Checks the leaf of `from`, or the first leaf, and the pages above it. Pages that `path` has
  // from the previous leaf are not checked again unless they have changed. Returns false if a page
  // has changed meanwhile.
  StatusOr<bool> CheckPath(const std::optional<std::string>& from, std::vector<CheckedPage>* path) const {
    Line* line = &pages_.root();
    unsigned level = pages_.ViewOf(*line).level();
    path->resize(std::max<std::size_t>(path->size(), 1));
    (*path)[0].edges = format::PageTail::kNoLow | format::PageTail::kNoHigh;
    bool is_new = false;
    for (std::size_t depth = 0;; ++depth, --level) {
      CheckedPage& page = (*path)[depth];
      const std::uint32_t version = Lock(line->version).ReadVersion();
      if ((version & Lock::kLocked) != 0) return false;
      is_new = is_new || page.line != line || page.version != version;
      if (is_new) {
        page.line = nullptr;
        if (!pages_.CopyPage(*line, version, &page.copy)) return false;
      }
      // If the parent has not changed since it was copied, it named this page when this page was
      // copied.
      if (depth > 0 && !Lock((*path)[depth - 1].line->version).IsCurrent((*path)[depth - 1].version)) return false;
      const View view = page.copy.view();
      if (depth == 0) level = view.level();
      if (is_new || !page.HasFences(view)) {
        HAKO_RETURN_IF_ERROR(CheckPage(pages_.IdOf(*line), view, page.copy.line().hints, level, {page.low, page.high, page.edges}));
        page.line = line;
        page.version = version;
      }
      path->resize(level == 0 ? depth + 1 : std::max(path->size(), depth + 2));
      if (level == 0) return true;
      const unsigned child = from ? view.ChildForByCall(*from) : 0;
      NameChild((*path)[depth], view, child, &(*path)[depth + 1]);
      line = &pages_.LineOf(view.child(child));
    }
  }

  // Sets the fences that a child must have.
  static void NameChild(const CheckedPage& above, const View& view, unsigned child, CheckedPage* below) {
    below->edges = 0;
    if (child > 0) {
      Builder::CopyKeyOf(view, child, &below->low);
    } else {
      below->low = above.low;
      below->edges |= above.edges & format::PageTail::kNoLow;
    }
    if (child + 1 < view.count()) {
      Builder::CopyKeyOf(view, child + 1, &below->high);
    } else {
      below->high = above.high;
      below->edges |= above.edges & format::PageTail::kNoHigh;
    }
  }

  // Loads up to kPrefetchGroup children from the one at `begin` on; a hint.
  void LoadChildren(const View& page, unsigned begin) const {
    absl::InlinedVector<std::uint32_t, Pages::kPrefetchGroup> ids;
    for (unsigned i = begin; i < page.count() && i < begin + Pages::kPrefetchGroup; ++i) ids.push_back(page.child(i));
    space_.LoadPages(ids, static_cast<int>(page.level()) - 1, true);
  }

  Status VerifyBelow(Line& line, unsigned level, const Fences& fences, std::uint64_t* found) const {
    HAKO_RETURN_IF_ERROR(pages_.LockPage(line, static_cast<int>(level)));
    std::optional<sync::LockHolder> holder(Lock(line.version));
    const View page = pages_.ViewOf(line);
    HAKO_RETURN_IF_ERROR(CheckPage(pages_.IdOf(line), page, line.hints, level, fences));
    if (level == 0) {
      *found += page.count();
      for (unsigned i = 0; i < page.count(); ++i) {
        const auto value = Pages::LongValueOf(page, i);
        if (!value) continue;
        typename Space::LongRead read(space_);
        while (!read.Has(*value)) read.Check();
        HAKO_RETURN_IF_ERROR(read.status());
      }
      return absl::OkStatus();
    }
    holder.reset();  // an inner page is not evicted
    std::string low(fences.low), key;
    for (unsigned i = 0; i < page.count(); ++i) {
      if (level == 1 && i % Pages::kPrefetchGroup == 0) LoadChildren(page, i);
      const bool last = i + 1 == page.count();
      if (last)
        key.assign(fences.high);
      else
        Builder::CopyKeyOf(page, i + 1, &key);
      const unsigned edges = (i == 0 ? fences.edges & format::PageTail::kNoLow : 0) | (last ? fences.edges & format::PageTail::kNoHigh : 0);
      HAKO_RETURN_IF_ERROR(VerifyBelow(pages_.LineOf(page.child(i)), level - 1, {low, key, edges}, found));
      low = key;
    }
    return absl::OkStatus();
  }

  const Pages& pages_;
  Space& space_;
};

}  // namespace hako::tree
