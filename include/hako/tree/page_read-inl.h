// Definitions of tree/page_tree.h: copies of pages for scans, and read-ahead.
#pragma once

#include "hako/tree/page_tree.h"

namespace hako::tree {

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::ReadLeaf(Seek seek, std::string_view key, Copy* copy, bool goes_on) const {
  if constexpr (!Space::kResident) {
    typename Copy::Scan& scan = copy->scan;
    if (goes_on) {
      ++scan.leaves;
      scan.ahead = scan.misses < kShortScan ? 0 : std::min(scan.leaves, static_cast<unsigned>(space_.ahead_max()));
      scan.asked = scan.asked > 0 ? scan.asked - 1 : 0;
    } else {
      scan = {};
    }
  }
  return ReadPage(0, seek, key, copy);
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
  if (copy->is_in_place)
    copy->UseInPlace(page.base());
  else
    sync::LoadShared(copy->Reserve(size), page.base(), size);
  sync::LoadShared(reinterpret_cast<char*>(copy->line().hints), reinterpret_cast<const char*>(line.hints), sizeof(line.hints));
  copy->line().shape = page.shape();
  if (!Lock(line.version).IsCurrent(version)) return false;
  copy->NoteSource(&line.version, version);
  return true;
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::ReadPage(unsigned level, Seek seek, std::string_view key, Copy* copy) const {
  const bool backwards = seek == Seek::kBefore || seek == Seek::kLast;
  for (sync::Backoff backoff;; backoff.Pause()) {
    Line *line = &root(), *neighbour = nullptr, *above = nullptr;
    unsigned i_above = 0;
    std::uint32_t version = Lock(line->version).ReadVersion();
    for (int expected = -1;;) {
      if ((version & Lock::kLocked) != 0) {
        HAKO_RETURN_IF_ERROR(LoadIfMissed({line, version, expected}, above, i_above, backwards, copy));
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
          if (copy->scan.ahead != 0) space_.Demote(IdOf(*line));
        }
        if (Space::kResident || copy->is_in_place || HasSought(copy->view(), seek, key)) return absl::OkStatus();
        return absl::DataLossError(absl::StrCat("page ", IdOf(*line), ": fence keys do not match the parent"));
      }
      expected = static_cast<int>(page.level()) - 1;
      const unsigned i = seek == Seek::kAt       ? page.ChildFor(key)
                         : seek == Seek::kBefore ? page.ChildBefore(key)
                         : seek == Seek::kFirst  ? 0
                                                 : page.count() - 1;
      const unsigned beside = backwards ? i - 1 : i + 1;
      neighbour = beside < page.count() ? &LineOf(page.child(beside)) : nullptr;
      Line* const child = &LineOf(page.child(i));
      const std::uint32_t child_version = Lock(child->version).ReadVersion();
      if constexpr (!Space::kResident) {
        if (Space::kReadsAhead && copy->scan.ahead != 0 && expected == 0) [[unlikely]]
          ReadAhead(page, i, above, i_above, backwards, copy);
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
    const unsigned i = seek == Seek::kAt       ? page.ChildForByCall(key)
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

// Loads a page that a descent found evicted: child number `child` of `above`. The more leaves a scan
// has missed, the more of those beyond it are loaded too, with reads that are in flight together.
template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::LoadIfMissed(const Reached& page, Line* above, unsigned child, bool backwards, Copy* copy) const {
  if constexpr (!Space::kResident) {
    typename Copy::Scan& scan = copy->scan;
    const bool once = page.level == 0 && scan.misses >= kShortScan;
    if (page.level == 0 && space_.MustBeRead(IdOf(*page.line))) {
      std::array<std::uint32_t, kReadTogether> ids{IdOf(*page.line)};
      unsigned count = 1;
      if (Space::kReadsAhead && scan.leaves > 0) {
        const View parent(memory_, *above);
        const unsigned beyond = Beyond(parent, child, backwards);
        const unsigned end = std::min({scan.misses / 2 + 1, beyond + 1, kReadTogether});
        for (unsigned at = 1; at < end; ++at) {
          const std::uint32_t id = ChildId(parent, backwards ? child - at : child + at);
          if (space_.MustBeRead(id)) ids[count++] = id;
        }
      }
      scan.misses += count;
      if (count > 1) space_.LoadPages(std::span(ids).first(count), 0, once);
    }
    return LoadIfEvicted(page, once);
  }
  return absl::OkStatus();
}

// Requests leaves beyond a child of `page` when an eighth of those to read ahead is not requested
// yet. Pages may be changing at the same time: the values read are only hints.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::ReadAhead(const View& page, unsigned child, Line* above, unsigned child_above, bool backwards,
                                         Copy* copy) const {
  if constexpr (!Space::kResident) {
    typename Copy::Scan& scan = copy->scan;
    if (8 * (scan.ahead - scan.asked) < scan.ahead) return;
    std::vector<std::uint32_t> ids;
    unsigned seen = 0;
    // Visits the children from i on.
    const auto look = [&](const View& parent, unsigned i, unsigned count) {
      for (unsigned at = std::max(seen, scan.asked) - seen; at < count && seen + at < scan.ahead; ++at) {
        const std::uint32_t id = ChildId(parent, backwards ? i - at : i + at);
        if (space_.MustBeRead(id)) ids.push_back(id);
      }
      seen = std::min(seen + count, scan.ahead);
    };
    look(page, backwards ? child - 1 : child + 1, Beyond(page, child, backwards));
    for (unsigned distance = 1; above != nullptr && seen < scan.ahead; ++distance) {
      const View parent(memory_, *above);
      if (distance > Beyond(parent, child_above, backwards)) break;
      const auto id_at = [&](unsigned i) { return ChildId(parent, backwards ? child_above - i : child_above + i); };
      const std::uint32_t id = id_at(distance);
      if (space_.IsEvicted(id)) {
        // Several, as the leaves below them will be needed before these are loaded.
        std::array<std::uint32_t, 8> inner;
        const unsigned count = std::min(static_cast<unsigned>(inner.size()), Beyond(parent, child_above, backwards) - distance + 1);
        for (unsigned i = 0; i < count; ++i) inner[i] = id_at(distance + i);
        if (scan.asked_inner != id && space_.ReadAhead(std::span(inner).first(count), 1)) scan.asked_inner = id;
        break;
      }
      const View beside(memory_, LineOf(id));
      if (beside.level() != 1) break;
      look(beside, backwards ? beside.count() - 1 : 0, beside.count());
    }
    if (ids.empty() || space_.ReadAhead(ids, 0)) scan.asked = std::max(scan.asked, seen);
  }
}

}  // namespace hako::tree
