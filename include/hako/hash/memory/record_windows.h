// The choice of a window: the part of the arena that is emptied to make a run for a large record
// (hash/memory/record_room-inl.h).
//
// If records were evicted only in the order of their use, the freed blocks would be scattered and
// rarely form a run. So the units of a section of the arena are surveyed, and of the windows that
// can become free as a whole, the one whose records are worth least is chosen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "hako/base/assert.h"
#include "hako/hash/record_limit.h"

namespace hako::hash {

class RecordWindows {
 public:
  static constexpr std::uint64_t kUnit = RecordLimit::kUnit;
  // The cost of losing one byte of a record.
  static constexpr std::uint64_t kCold = 1, kUsed = 2, kUsedLarge = 4, kNewest = 8, kLost = 8;
  // A run that can become free, and its records.
  struct Window {
    Part run;                        // whole units, which become free
    std::uint64_t first_record = 0;  // where the first record in it begins
    std::uint64_t moved = 0;         // bytes of its records that should be moved
    Part records() const { return {first_record, run.end}; }
  };

  // REQUIRES: the section consists of whole units
  explicit RecordWindows(Part section) : section_(section), units_(section.bytes() / kUnit + 1) {
    HAKO_DCHECK(section.begin % kUnit == 0 && section.end % kUnit == 0);
  }

  // Adds the block of a record that begins in the section and can be evicted. `moves`: the record
  // should be moved instead.
  void AddRecord(Part block, std::uint64_t worth, bool moves) {
    ForEachUnit(block, [&](Unit& unit, std::uint64_t bytes) {
      unit.available += bytes;
      unit.cost += bytes * worth;
      if (moves) unit.moved += bytes;
    });
    for (std::uint64_t at = (block.begin / kUnit + 1) * kUnit; at < block.end && at <= section_.end; at += kUnit) {
      Unit& unit = units_[(at - section_.begin) / kUnit];
      unit.before = at - block.begin;
      unit.cost_before = unit.before * worth;
      unit.cost_behind = (block.end - at) * worth;
    }
  }
  void AddFree(Part bytes) {
    ForEachUnit(bytes, [](Unit& unit, std::uint64_t size) { unit.available += size; });
  }
  // Sets whether windows may overlap the part.
  void SetExcluded(Part part, bool is_excluded) {
    ForEachUnit(part, [&](Unit& unit, std::uint64_t) { unit.is_excluded = is_excluded; });
  }
  bool IsExcluded(Part part) {
    bool is_excluded = false;
    ForEachUnit(part, [&](const Unit& unit, std::uint64_t) { is_excluded |= unit.is_excluded; });
    return is_excluded;
  }

  // Sets the part of the section whose records and free bytes were added.
  void SetSurveyed(Part part) { surveyed_ = part; }
  Part surveyed() const { return surveyed_; }

  // Returns the cheapest window of at least this many bytes; if there are several, the first one
  // from `start` on. At most `most_moved` bytes of records are moved; the others are lost.
  std::optional<Window> Choose(std::uint64_t bytes, std::uint64_t start, std::uint64_t most_moved) const {
    const std::size_t width = (bytes + kUnit - 1) / kUnit, end = units_.size() - 1;
    std::optional<std::size_t> best;
    std::uint64_t cost = 0, moved = 0, least = ~std::uint64_t{0};
    for (std::size_t i = 0, run = 0; i < end; ++i) {
      run = IsAvailable(units_[i]) ? run + 1 : 0;
      if (run <= 1) cost = moved = 0;
      if (run == 0) continue;
      cost += units_[i].cost;
      moved += units_[i].moved;
      if (run > width) cost -= units_[i - width].cost, moved -= units_[i - width].moved;
      if (run < width) continue;
      const std::size_t first = i + 1 - width;
      const std::uint64_t lost = std::max(moved, most_moved) - most_moved;
      const std::uint64_t whole = cost + lost * kLost + units_[first].cost_before + units_[i + 1].cost_behind;
      const auto is_before = [&](std::size_t at) { return section_.begin + at * kUnit < start; };
      if (whole < least || (whole == least && is_before(*best) && !is_before(first))) best = first, least = whole;
    }
    if (!best) return std::nullopt;
    const std::uint64_t begin = section_.begin + *best * kUnit;
    Window window{{begin, begin + width * kUnit}, begin - units_[*best].before, 0};
    for (std::size_t i = *best; i < *best + width; ++i) window.moved += units_[i].moved;
    return window;
  }
  // The window of the unit that begins there; nullopt if it cannot become free.
  std::optional<Part> WindowAt(std::uint64_t begin) const {
    const Unit& unit = units_[(begin - section_.begin) / kUnit];
    if (!IsAvailable(unit)) return std::nullopt;
    return Part{begin - unit.before, begin + kUnit};
  }

 private:
  struct Unit {
    std::uint64_t available = 0;  // bytes free, or of records that can be evicted
    std::uint64_t moved = 0;
    bool is_excluded = false;
    std::uint64_t cost = 0;
    // Of the record that crosses the beginning of the unit: its bytes before the unit, their cost,
    // and the cost of the rest.
    std::uint64_t before = 0, cost_before = 0, cost_behind = 0;
  };
  static bool IsAvailable(const Unit& unit) { return unit.available >= kUnit && !unit.is_excluded; }
  template <class F>
  void ForEachUnit(Part bytes, F&& visit) {
    bytes = {std::max(bytes.begin, section_.begin), std::min(bytes.end, section_.end)};
    for (std::uint64_t end; bytes.begin < bytes.end; bytes.begin = end) {
      end = std::min(bytes.end, (bytes.begin / kUnit + 1) * kUnit);
      visit(units_[(bytes.begin - section_.begin) / kUnit], end - bytes.begin);
    }
  }

  const Part section_;
  Part surveyed_;
  std::vector<Unit> units_;  // plus one after the section, for a record that crosses the end
};

}  // namespace hako::hash
