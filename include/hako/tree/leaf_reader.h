// Reads a tree from leaf to leaf: copies leaves for scans, counts the keys of ranges, and reads
// ahead of scans in a file.
//
// Thread-safe; takes no lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/tree/tree_pages.h"

namespace hako::tree {

// Which leaf to read: the one for a key, the one with the greatest key below it, the first or the
// last.
enum class Seek { kAt, kBefore, kFirst, kLast };

template <class Space, Comparator Compare>
class LeafReader {
  using Pages = TreePages<Space, Compare>;
  using Line = typename Pages::Line;
  using View = typename Pages::View;
  using Copy = typename Pages::Copy;
  using Builder = typename Pages::Builder;
  using Lock = typename Pages::Lock;
  using Reached = typename Pages::Reached;

 public:
  explicit LeafReader(const Pages& pages) : pages_(pages), space_(pages.space()) {}

  // See the functions of PageTree with these names.
  Status ReadLeaf(Seek seek, std::string_view key, Copy* copy, bool goes_on) const {
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

  StatusOr<std::optional<std::string>> FenceBeyond(Seek seek, std::string_view key, bool downwards) const {
    for (unsigned level = 1;; ++level) {
      Copy copy;
      if (Status read = ReadPage(level, seek, key, &copy); !read.ok()) {
        if (!absl::IsDataLoss(read) || level > format::PageShape::kLevel) return read;
        continue;
      }
      const View page = copy.view();
      if (page.level() < level) return absl::DataLossError("the root of the tree cannot be read");
      const unsigned i = ChildFor(page, seek, key);
      const unsigned slot = downwards ? i : i + 1;  // the key of this slot is the fence
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

  StatusOr<std::uint64_t> CountRange(const Range& range) const {
    HAKO_DCHECK(!range.to || Compare::Compare(range.from, *range.to) < 0);
    Copy copy;
    std::string from(range.from);
    for (std::uint64_t count = 0;;) {
      HAKO_RETURN_IF_ERROR(ReadLeaf(Seek::kAt, from, &copy, from != range.from));
      const View page = copy.view();
      const format::PageTail tail = page.tail();
      const bool last = Pages::IsLastOf(range, page);
      const unsigned begin = page.FindByCall(from).index;
      const unsigned end = last && range.to ? page.FindByCall(*range.to).index : page.count();
      if (end > begin) count += end - begin;
      if (last) return count;
      from.assign(page.high(tail));
    }
  }

  // Descends to both keys at the same time. Pages may be changing at the same time, so the result
  // is only a hint.
  std::uint64_t CountAbout(std::string_view from, std::string_view to) const {
    static constexpr std::uint64_t kUsualSlots = 128;
    Reached low{&pages_.root(), Lock(pages_.root().version).ReadVersion()}, high = low;
    std::uint64_t pages = 0;  // number of pages from the low key's page to the high key's
    for (int level = static_cast<int>(pages_.ViewOf(pages_.root()).level());; --level) {
      const View first = pages_.ViewOf(*low.line), last = pages_.ViewOf(*high.line);
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
        Line* const line = &pages_.LineOf(page.child(child));
        const std::uint32_t version = Lock(line->version).ReadVersion();
        *at = {line, Lock(at->line->version).IsCurrent(at->version) ? version : Lock::kLocked};
      };
      go_down(&low, first, begin);
      go_down(&high, last, end);
    }
  }

  std::vector<std::string> Parts(unsigned parts) const {
    // Take the keys of the slots of one level, going down from the root until there are enough.
    std::vector<std::string> bounds, next;
    for (unsigned level = pages_.ViewOf(pages_.root()).level(); level > 0 && bounds.size() + 1 < 4 * parts; --level) {
      next.clear();
      for (std::size_t i = 0; i <= bounds.size(); ++i) {
        if (i > 0) next.push_back(bounds[i - 1]);
        Copy copy;
        // Do not divide a page that cannot be read; the scan of its part reports the error.
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

 private:
  // A short scan misses at most this many leaves. They stay cached like the leaves of a Get, and no
  // other thread is woken for them.
  static constexpr unsigned kShortScan = 32;
  // How many leaves the thread of a scan reads together with the one that it misses.
  static constexpr unsigned kReadTogether = 8;

  HAKO_INLINE static unsigned ChildFor(const View& page, Seek seek, std::string_view key) {
    switch (seek) {
      case Seek::kAt:
        return page.ChildForByCall(key);
      case Seek::kBefore:
        return page.ChildBefore(key);
      case Seek::kFirst:
        return 0;
      default:
        return page.count() - 1;
    }
  }
  // Whether the fences of a page enclose the key sought. A scan that checks this for every page,
  // and continues at a fence, terminates.
  static bool HasSought(const View& page, Seek seek, std::string_view key) {
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
  // The number of children after this one, in the direction of the scan.
  static unsigned Beyond(const View& parent, unsigned i, bool backwards) { return backwards ? i : std::max(parent.count(), i + 1) - 1 - i; }

  [[gnu::noinline]] Status ReadPage(unsigned level, Seek seek, std::string_view key, Copy* copy) const {
    const bool backwards = seek == Seek::kBefore || seek == Seek::kLast;
    for (sync::Backoff backoff;; backoff.Pause()) {
      Line *line = &pages_.root(), *neighbour = nullptr, *above = nullptr;
      unsigned i_above = 0;
      std::uint32_t version = Lock(line->version).ReadVersion();
      for (int expected = -1;;) {
        if ((version & Lock::kLocked) != 0) {
          HAKO_RETURN_IF_ERROR(LoadIfMissed({line, version, expected}, above, i_above, backwards, copy));
          break;
        }
        const View page = pages_.ViewOf(*line);
        if (page.level() <= level) {
          if (!pages_.CopyPage(*line, version, copy)) break;
          copy->neighbour = {};
          if (neighbour != nullptr) {
            const View beside = pages_.ViewOf(*neighbour);
            copy->neighbour = {beside.base(), beside.shape().size()};
          }
          if (copy->scan.ahead != 0) space_.Demote(pages_.IdOf(*line));
          if (Space::kResident || copy->is_in_place || HasSought(copy->view(), seek, key)) return absl::OkStatus();
          return absl::DataLossError(absl::StrCat("page ", pages_.IdOf(*line), ": fence keys do not match the parent"));
        }
        expected = static_cast<int>(page.level()) - 1;
        const unsigned i = seek == Seek::kAt ? page.ChildFor(key) : ChildFor(page, seek, key);
        const unsigned beside = backwards ? i - 1 : i + 1;
        neighbour = beside < page.count() ? &pages_.LineOf(page.child(beside)) : nullptr;
        Line* const child = &pages_.LineOf(page.child(i));
        const std::uint32_t child_version = Lock(child->version).ReadVersion();
        if (Space::kReadsAhead && copy->scan.ahead != 0 && expected == 0) [[unlikely]]
          ReadAhead(page, i, above, i_above, backwards, copy);
        above = line;
        i_above = i;
        if (!Lock(line->version).IsCurrent(version)) break;
        if (neighbour != nullptr) hako::Prefetch(neighbour);
        line = child;
        version = child_version;
      }
    }
  }

  // Loads a page that a descent found evicted: child number `child` of `above`. The more leaves a
  // scan has missed, the more of the next leaves are loaded with it, by concurrent reads.
  Status LoadIfMissed(const Reached& page, Line* above, unsigned child, bool backwards, Copy* copy) const {
    typename Copy::Scan& scan = copy->scan;
    const bool once = page.level == 0 && scan.misses >= kShortScan;
    if (page.level == 0 && space_.MustBeRead(pages_.IdOf(*page.line))) {
      std::array<std::uint32_t, kReadTogether> ids{pages_.IdOf(*page.line)};
      unsigned count = 1;
      if (Space::kReadsAhead && scan.leaves > 0) {
        const View parent = pages_.ViewOf(*above);
        const unsigned beyond = Beyond(parent, child, backwards);
        const unsigned end = std::min({scan.misses / 2 + 1, beyond + 1, kReadTogether});
        for (unsigned at = 1; at < end; ++at) {
          const std::uint32_t id = pages_.ChildId(parent, backwards ? child - at : child + at);
          if (space_.MustBeRead(id)) ids[count++] = id;
        }
      }
      scan.misses += count;
      if (count > 1) space_.LoadPages(std::span(ids).first(count), 0, once);
    }
    return pages_.LoadIfEvicted(page, once);
  }

  // Requests more leaves, beyond a child of `page`, once an eighth of the leaves to read ahead is not
  // requested. Pages may be changing at the same time, so the values read are only hints.
  void ReadAhead(const View& page, unsigned child, Line* above, unsigned child_above, bool backwards, Copy* copy) const {
    typename Copy::Scan& scan = copy->scan;
    if (8 * (scan.ahead - scan.asked) < scan.ahead) return;
    std::vector<std::uint32_t> ids;
    unsigned seen = 0;
    // Visits the children from i on.
    const auto look = [&](const View& parent, unsigned i, unsigned count) {
      for (unsigned at = std::max(seen, scan.asked) - seen; at < count && seen + at < scan.ahead; ++at) {
        const std::uint32_t id = pages_.ChildId(parent, backwards ? i - at : i + at);
        if (space_.MustBeRead(id)) ids.push_back(id);
      }
      seen = std::min(seen + count, scan.ahead);
    };
    look(page, backwards ? child - 1 : child + 1, Beyond(page, child, backwards));
    for (unsigned distance = 1; above != nullptr && seen < scan.ahead; ++distance) {
      const View parent = pages_.ViewOf(*above);
      if (distance > Beyond(parent, child_above, backwards)) break;
      const auto id_at = [&](unsigned i) { return pages_.ChildId(parent, backwards ? child_above - i : child_above + i); };
      const std::uint32_t id = id_at(distance);
      if (space_.IsEvicted(id)) {
        // Eight inner pages at once: by the time one is loaded, the scan already needs the leaves below the next.
        std::array<std::uint32_t, 8> inner;
        const unsigned count = std::min(static_cast<unsigned>(inner.size()), Beyond(parent, child_above, backwards) - distance + 1);
        for (unsigned i = 0; i < count; ++i) inner[i] = id_at(distance + i);
        if (scan.asked_inner != id && space_.ReadAhead(std::span(inner).first(count), 1)) scan.asked_inner = id;
        break;
      }
      const View beside = pages_.ViewOf(pages_.LineOf(id));
      if (beside.level() != 1) break;
      look(beside, backwards ? beside.count() - 1 : 0, beside.count());
    }
    if (ids.empty() || space_.ReadAhead(ids, 0)) scan.asked = std::max(scan.asked, seen);
  }

  const Pages& pages_;
  Space& space_;
};

}  // namespace hako::tree
