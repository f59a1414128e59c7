// Free runs of units of page memory (tree/memory/page_arena.h), in bins by size: a bin for each size below 64
// units, and eight for each doubling above. A run is joined with its free neighbours when it is freed
// (boundary tags: Knuth, TAOCP 2.5).
//
// Invariants
//   1. No two free runs are adjacent.
//   2. A free run begins with a Run, and its last four bytes are its size. In `edge_` the bits of
//      its first and last unit are set, and no others.
//
// Not thread-safe. All memory stays readable, and readers may read it at any time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hako/base/assert.h"
#include "hako/format/page_format.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::tree {

class UnitRuns {
 public:
  struct Span {
    std::uint32_t first, units;
  };

  // `base` is the address of unit 0.
  explicit UnitRuns(char* base) : base_(base) {}

  // Makes sure that Reserve up to this unit needs no reallocation. May throw.
  void ReserveMost(std::uint64_t end) { edge_.reserve(end / 64 + 64); }
  // Makes sure that freeing units below this one needs no memory. May throw.
  void Reserve(std::uint64_t end) { edge_.resize(std::max<std::size_t>(edge_.size(), end / 64 + 64)); }

  // The smallest run that fits and ends at or below `end`, as far as the bins distinguish sizes; 0 if
  // there is none among the first `most` of each bin.
  std::uint32_t Find(std::uint32_t units, std::uint32_t end, unsigned most = ~0u) const {
    for (unsigned bin = BinFrom(BinOf(units)); bin < kBins; bin = BinFrom(bin + 1)) {
      unsigned left = most;
      for (std::uint32_t run = heads_[bin]; run != 0 && left != 0; --left) {
        const Run content = Load(run);
        if (content.units >= units && run + units <= end) return run;
        run = content.after;
      }
    }
    return 0;
  }
  // One of the largest runs, as far as the bins distinguish sizes; {0, 0} if there is none.
  Span Largest() const {
    for (unsigned word = kWords; word-- > 0;) {
      if (nonempty_[word] == 0) continue;
      const std::uint32_t run = heads_[word * 64 + 63 - static_cast<unsigned>(std::countl_zero(nonempty_[word]))];
      return {run, Load(run).units};
    }
    return {0, 0};
  }
  // A run of fewer than 64 units that contains `group` units beginning at a multiple of `group`;
  // {0, 0} if there is none.
  Span FindAligned(std::uint32_t group) const {
    for (std::uint32_t units = kSmall - 1; units >= group; --units) {
      for (std::uint32_t run = heads_[BinOf(units)]; run != 0; run = Load(run).after) {
        if ((run + group - 1) / group * group + group <= run + units) return {run, units};
      }
    }
    return {0, 0};
  }
  // The first unit of the run that ends before unit `end`; `end` if there is none.
  std::uint32_t BeginOfRunBefore(std::uint32_t end) const {
    if (!IsEdge(end - 1)) return end;
    std::uint32_t units;
    std::memcpy(&units, At(end) - sizeof(units), sizeof(units));
    return end - units;
  }

  // Puts free units into a bin. REQUIRES: no adjacent unit is free
  void Link(std::uint32_t run, std::uint32_t units) {
    HAKO_DCHECK(units != 0 && !IsEdge(run - 1) && !IsEdge(run + units));  // invariant 1
    std::uint32_t& head = heads_[BinOf(units)];
    Store(run, {units, 0, head});
    sync::StoreShared(At(run + units) - sizeof(units), reinterpret_cast<const char*>(&units), sizeof(units));
    if (head != 0) {
      Run next = Load(head);
      next.before = run;
      Store(head, next);
    }
    head = run;
    nonempty_[BinOf(units) / 64] |= std::uint64_t{1} << BinOf(units) % 64;
    FlipEdge(run);
    if (units > 1) FlipEdge(run + units - 1);
  }

  // Takes a run out of its bin and returns its size.
  std::uint32_t Unlink(std::uint32_t run) {
    const Run content = Load(run);
    const unsigned bin = BinOf(content.units);
    std::uint32_t& head = heads_[bin];
    if (content.before != 0) {
      Run before = Load(content.before);
      before.after = content.after;
      Store(content.before, before);
    } else {
      head = content.after;
      if (head == 0) nonempty_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
    }
    if (content.after != 0) {
      Run after = Load(content.after);
      after.before = content.before;
      Store(content.after, after);
    }
    FlipEdge(run);
    if (content.units > 1) FlipEdge(run + content.units - 1);
    return content.units;
  }

  // Makes free units a run, together with the adjacent free runs.
  Span Join(std::uint32_t first, std::uint32_t units) {
    if (IsEdge(first + units)) units += Unlink(first + units);
    if (const std::uint32_t before = BeginOfRunBefore(first); before != first) {
      units += Unlink(before);
      first = before;
    }
    Link(first, units);
    return {first, units};
  }

 private:
  struct Run {
    std::uint32_t units, before, after;  // neighbours in the bin
  };
  static constexpr unsigned kSmall = 64;  // units from which on a bin has runs of several sizes
  static constexpr unsigned kBins = kSmall - 1 + 8 * (32 - 6), kWords = (kBins + 63) / 64;

  char* At(std::uint32_t unit) const { return base_ + std::uint64_t{unit} * format::kPageUnit; }
  static unsigned BinOf(std::uint32_t units) {
    if (units < kSmall) return units - 1;
    const auto log = static_cast<unsigned>(std::bit_width(units)) - 1;
    return kSmall - 1 + 8 * (log - 6) + (units >> (log - 3)) % 8;
  }
  // Returns the first bin from this one on that has a run, or kBins if there is none.
  unsigned BinFrom(unsigned bin) const {
    if (bin >= kBins) return kBins;
    std::uint64_t bits = nonempty_[bin / 64] >> bin % 64 << bin % 64;
    for (unsigned word = bin / 64;; bits = nonempty_[word]) {
      if (bits != 0) return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
      if (++word == kWords) return kBins;
    }
  }
  Run Load(std::uint32_t run) const {
    Run loaded;
    std::memcpy(&loaded, At(run), sizeof(loaded));
    return loaded;
  }
  void Store(std::uint32_t run, const Run& content) {
    sync::StoreShared(At(run), reinterpret_cast<const char*>(&content), sizeof(content));
  }

  bool IsEdge(std::uint32_t unit) const { return unit / 64 < edge_.size() && (edge_[unit / 64] >> unit % 64 & 1) != 0; }
  void FlipEdge(std::uint32_t unit) {
    if (unit / 64 >= edge_.size()) edge_.resize(unit / 64 + 64);
    edge_[unit / 64] ^= std::uint64_t{1} << unit % 64;
  }

  char* const base_;
  std::array<std::uint32_t, kBins> heads_{};
  std::array<std::uint64_t, kWords> nonempty_{};  // bins, as bits
  std::vector<std::uint64_t> edge_;
};

}  // namespace hako::tree
