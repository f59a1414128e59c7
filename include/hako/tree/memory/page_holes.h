// The holes of page memory (tree/memory/page_arena.h): ranges of whole system pages that were returned to the
// system. They take no memory and have nothing in them.
//
// Invariant: no two holes are adjacent.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "hako/base/no_memory.h"

namespace hako::tree {

class PageHoles {
 public:
  struct Range {
    std::uint64_t first = 0, pages = 0;
  };

  std::uint64_t pages() const { return pages_; }

  // Adds a hole. Returns false, and changes nothing, if memory runs out.
  bool Add(Range range) {
    const std::uint64_t added = range.pages;
    const auto after = by_place_.lower_bound(range.first);
    const auto before = after == by_place_.begin() ? by_place_.end() : std::prev(after);
    const Range next = after != by_place_.end() && after->first == range.first + range.pages ? Range{after->first, after->second} : Range{};
    const Range last =
        before != by_place_.end() && before->first + before->second == range.first ? Range{before->first, before->second} : Range{};
    if (last.pages != 0) range.first = last.first;
    range.pages += last.pages + next.pages;
    HAKO_TRY {
      by_size_.emplace(range.pages, range.first);
      by_place_[range.first] = range.pages;
    }
    HAKO_CATCH_NO_MEMORY(by_size_.erase({range.pages, range.first}); return false;)
    if (last.pages != 0) by_size_.erase({last.pages, last.first});
    if (next.pages != 0) {
      by_size_.erase({next.pages, next.first});
      by_place_.erase(after);
    }
    pages_ += added;
    return true;
  }

  // Takes `least` to `most` pages from the smallest hole that has `most`, or from the largest hole
  // if none has. Returns an empty range if no hole has `least`. Needs no memory.
  Range Take(std::uint64_t least, std::uint64_t most) {
    if (by_size_.empty()) return {};
    auto sized = by_size_.lower_bound({most, 0});
    if (sized == by_size_.end()) --sized;
    const Range hole{sized->second, sized->first};
    if (hole.pages < least) return {};
    const Range taken{hole.first, std::min(hole.pages, most)};
    const Range rest{hole.first + taken.pages, hole.pages - taken.pages};
    auto by_size = by_size_.extract(sized);
    auto by_place = by_place_.extract(hole.first);
    if (rest.pages != 0) {
      by_size.value() = {rest.pages, rest.first};
      by_place.key() = rest.first;
      by_place.mapped() = rest.pages;
      by_size_.insert(std::move(by_size));
      by_place_.insert(std::move(by_place));
    }
    pages_ -= taken.pages;
    return taken;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> by_place_;            // first page, number of pages
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // number of pages, first page
  std::uint64_t pages_ = 0;
};

}  // namespace hako::tree
