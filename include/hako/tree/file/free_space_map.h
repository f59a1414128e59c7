// A bitmap of the units of a file that are in use, and of those that are young: allocated since the
// last checkpoint, so that no checkpoint needs them.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/language.h"

namespace hako::tree {

class FreeSpaceMap {
 public:
  struct Run {
    std::uint64_t place = 0;
    std::uint64_t units = 0;
  };

  // Makes all units in [first, end) free, and all units before them used.
  void Reset(std::uint64_t first, std::uint64_t end) {
    used_.assign(end / 64 + 1, 0);
    used_in_.assign(end / kPart + 1, 0);
    young_.assign(end / 64 + 1, 0);
    young_runs_.clear();
    end_ = end;
    used_units_ = 0;
    next_ = first_ = first;
    SetUsed(0, first, true);
  }
  std::uint64_t end() const { return end_; }
  std::uint64_t used_units() const { return used_units_; }
  // Number of free units below end().
  std::uint64_t free_units() const { return end_ - first_ - used_units_; }

  void Grow(std::uint64_t end) {
    used_.resize(std::max<std::size_t>(used_.size(), end / 64 + 1));
    used_in_.resize(std::max<std::size_t>(used_in_.size(), end / kPart + 1));
    young_.resize(used_.size());
    end_ = end;
  }
  // Drops the units from `end` on. REQUIRES: they are free
  void Shrink(std::uint64_t end) {
    HAKO_DCHECK(UsedEnd() <= end);
    end_ = end;
    next_ = std::min(next_, end);
  }
  std::uint64_t UsedEnd() const {
    for (std::uint64_t word = end_ / 64 + 1; word-- > 0;) {
      const std::uint64_t bits = used_[word] & (word == end_ / 64 ? (std::uint64_t{1} << end_ % 64) - 1 : ~std::uint64_t{0});
      if (bits != 0) return word * 64 + 64 - static_cast<unsigned>(std::countl_zero(bits));
    }
    return 0;
  }

  // Returns false, and marks nothing, if units == 0 or if not all of the units are free.
  bool MarkUsed(std::uint64_t place, std::uint64_t units) {
    if (units == 0 || place < first_ || units > end_ || place > end_ - units || RunAt(place, units, false) < units) return false;
    SetUsed(place, units, true);
    used_units_ += units;
    return true;
  }

  // Makes the next search for free runs start at the front.
  void Rewind() { next_ = first_; }

  // Takes the next free run of at least `least` units, and at most `most` units of it; an empty run
  // if there is none below end().
  Run Take(std::uint64_t least, std::uint64_t most) {
    Run run = Search(next_, end_, least, most);
    if (run.units == 0) run = Search(first_, std::min(next_ + least, end_), least, most);
    if (run.units == 0) return run;
    MakeYoung(run);
    next_ = run.place + run.units;
    return run;
  }
  void Free(std::uint64_t place, std::uint64_t units) {
    SetUsed(place, units, false);
    used_units_ -= units;
  }

  // For each size, a place before which no free run of that size or more begins. Valid as long as
  // nothing is freed. Sizes and places ascend together.
  using Front = std::map<std::uint64_t, std::uint64_t>;
  // Takes the first `units` consecutive free units that begin below `to`; an empty run if there are
  // none. All calls with one Front together read the map once per size, not once per call.
  Run TakeFirst(std::uint64_t units, std::uint64_t to, Front* front) {
    const auto above = front->upper_bound(units);
    const std::uint64_t from = above == front->begin() ? first_ : std::prev(above)->second;
    to = std::min(to, end_);
    if (from >= to) return {};
    const Run run = Search(from, to, units, units);
    const std::uint64_t bound = run.units != 0 ? run.place + run.units : to;
    auto last = above;
    while (last != front->end() && last->second <= bound) ++last;
    front->erase(above, last);
    front->insert_or_assign(units, bound);
    if (run.units != 0) MakeYoung(run);
    return run;
  }

  bool IsYoung(std::uint64_t place) const { return place < end_ && (young_[place / 64] >> place % 64 & 1) != 0; }
  void ForgetYoung() {
    for (const Run& run : young_runs_) Fill(young_, run.place, run.units, false);
    young_runs_.clear();
  }

  // The number of words of the map that searches have read, which measures their cost.
  std::uint64_t words_read() const { return words_read_; }

  // Calls visit(place, units) for each run of used units, from the `first` of Reset on.
  template <class F>
  void ForEachUsedRun(F&& visit) const {
    for (std::uint64_t at = first_; at < end_;) {
      at += RunAt(at, end_ - at, false);
      const std::uint64_t units = at < end_ ? RunAt(at, end_ - at, true) : 0;
      if (units != 0) visit(at, units);
      at += units;
    }
  }

 private:
  // Returns the number of consecutive units from `place` on that are all used (or all free), up to
  // `most`.
  std::uint64_t RunAt(std::uint64_t place, std::uint64_t most, bool used) const {
    std::uint64_t units = 0;
    while (units < most) {
      const std::uint64_t at = place + units;
      // A part that is fully in use is the common case in a large file.
      if (used && at % kPart == 0 && used_in_[at / kPart] == kPart) {
        units += kPart;
        continue;
      }
      const std::uint64_t word = (used ? ~used_[at / 64] : used_[at / 64]) >> at % 64;
      ++words_read_;
      const auto same = static_cast<unsigned>(word == 0 ? 64 - at % 64 : static_cast<unsigned>(std::countr_zero(word)));
      units += same;
      if (word != 0) break;
    }
    return std::min(units, most);
  }
  // Returns the beginning of the run of free units that ends at `end`, but at least `floor`. `end`
  // must be the end of a part.
  std::uint64_t FreeBefore(std::uint64_t end, std::uint64_t floor) const {
    while (end > floor) {
      const auto free = static_cast<unsigned>(std::countl_zero(used_[end / 64 - 1]));
      ++words_read_;
      end -= free;
      if (free < 64) break;
    }
    return end;
  }
  Run Search(std::uint64_t from, std::uint64_t to, std::uint64_t least, std::uint64_t most) const {
    for (std::uint64_t at = from; at < to;) {
      const std::uint64_t part_end = (at / kPart + 1) * kPart;
      const std::uint64_t free = kPart - used_in_[at / kPart];
      // A long enough run that begins here must continue past the part.
      if (free < least && part_end <= end_) {
        at = free == 0 ? part_end : FreeBefore(part_end, at);
        if (at == part_end) continue;
        if (at >= to) break;
      }
      at += RunAt(at, to - at, true);
      if (at >= to) break;
      const std::uint64_t units = RunAt(at, std::min(most, end_ - at), false);
      if (units >= least) return {at, units};
      at += units;
    }
    return {};
  }
  void MakeYoung(const Run& run) {
    young_runs_.push_back(run);  // first, because it may throw
    SetUsed(run.place, run.units, true);
    Fill(young_, run.place, run.units, true);
    used_units_ += run.units;
  }
  void SetUsed(std::uint64_t place, std::uint64_t units, bool used) {
    Fill(used_, place, units, used);
    while (units > 0) {
      const std::uint64_t n = std::min(kPart - place % kPart, units);
      used_in_[place / kPart] = static_cast<std::uint16_t>(used_in_[place / kPart] + (used ? n : 0 - n));
      place += n;
      units -= n;
    }
  }
  static void Fill(std::vector<std::uint64_t>& map, std::uint64_t place, std::uint64_t units, bool used) {
    while (units > 0) {
      const unsigned shift = place % 64, n = static_cast<unsigned>(std::min<std::uint64_t>(64 - shift, units));
      const std::uint64_t bits = (n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << shift;
      std::uint64_t& word = map[place / 64];
      word = used ? word | bits : word & ~bits;
      place += n;
      units -= n;
    }
  }

  static constexpr std::uint64_t kPart = 4096;
  std::vector<std::uint64_t> used_, young_;
  std::vector<std::uint16_t> used_in_;  // units in use in each part of kPart units
  std::vector<Run> young_runs_;         // runs of young units, and of some units that were freed since
  mutable std::uint64_t words_read_ = 0;
  std::uint64_t first_ = 0, end_ = 0, next_ = 0, used_units_ = 0;
};

}  // namespace hako::tree
