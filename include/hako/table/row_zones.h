// RowZones: which keys the rows have whose numbers are in one zone of kNumbersOfZone numbers.
//
// A zone has bounds: no row in it has a key before the least one, or behind the most one. Where numbers
// ascend with keys, the zones' bounds hardly overlap, and the first rows by key are in the first zones in
// the order of their least keys. The idea is that of the zone maps of column stores, and of the BRIN indices
// of PostgreSQL; this one is in memory.
//
// Bounds grow with each row, and shrink only when the last row of a zone is removed. So they may be wider
// than the keys of its rows, which costs time alone.
//
// Threads: belongs to the mutex of RowNumbers.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "hako/base/language.h"
#include "hako/table/posting_block.h"

namespace hako::table {

class RowZones {
 public:
  static constexpr RowNumber kNumbersOfZone = 8 * kKeysOfBlock;

  // A zone in the order of a query, and its bound there.
  struct Zone {
    std::uint32_t index;
    std::string bound;
  };
  // The zones that a query has seen. All rows that are not put or removed while it runs are in zones that it
  // has seen or that SeeNext adds later.
  class Seen {
   public:
    // The query sees zones in the order of their least keys or, `is_reversed`, of their most ones, from the
    // last one back.
    explicit Seen(bool is_reversed) : is_reversed_(is_reversed) {}

   private:
    friend class RowZones;
    bool is_reversed_;
    std::unordered_set<std::uint32_t> zones_;
    std::optional<Zone> last_;     // the last one that was added, if no zone has moved since
    std::uint64_t num_moves_ = 0;  // when SeeNext was called last
  };

  RowZones() = default;
  RowZones(const RowZones&) = delete;

  // A row has this number and key. Strong guarantee.
  void Add(RowNumber number, std::string_view key);
  // No row has this number any more. It may be unknown.
  void Remove(RowNumber number) noexcept;
  void Clear() noexcept;

  std::size_t size() const { return by_least_.size(); }  // of the zones with rows
  // Whether numbers seem to ascend with keys: only few zones may have keys before the most one of the first
  // zone or, `is_reversed`, behind the least one of the last zone.
  bool HasOrder(bool is_reversed) const;
  // Adds the next zones in the order of `seen`, at most `count`, to it and to `zones`. Leaves out zones without a
  // key from `from` on, or before `to` unless that is empty.
  void SeeNext(Seen& seen, std::size_t count, std::string_view from, std::string_view to, std::vector<Zone>* zones) const;

 private:
  struct Bounds {
    std::bitset<kNumbersOfZone> used;  // numbers that were added
    std::string least, most;
  };
  struct ByLeast {
    using is_transparent = void;
    const std::vector<Bounds>* zones;
    bool operator()(std::uint32_t a, std::uint32_t b) const { return IsBefore((*zones)[a].least, a, (*zones)[b].least, b); }
    bool operator()(const Zone& a, std::uint32_t b) const { return IsBefore(a.bound, a.index, (*zones)[b].least, b); }
    bool operator()(std::uint32_t a, const Zone& b) const { return IsBefore((*zones)[a].least, a, b.bound, b.index); }
  };
  struct ByMost {
    using is_transparent = void;
    const std::vector<Bounds>* zones;
    bool operator()(std::uint32_t a, std::uint32_t b) const { return IsBefore((*zones)[b].most, b, (*zones)[a].most, a); }
    bool operator()(const Zone& a, std::uint32_t b) const { return IsBefore((*zones)[b].most, b, a.bound, a.index); }
    bool operator()(std::uint32_t a, const Zone& b) const { return IsBefore(b.bound, b.index, (*zones)[a].most, a); }
  };
  static bool IsBefore(std::string_view a_key, std::uint32_t a, std::string_view b_key, std::uint32_t b) {
    const int order = a_key.compare(b_key);
    return order != 0 ? order < 0 : a < b;
  }
  template <class Order>
  void SeeNext(const Order& order, std::uint64_t num_moves, std::string Bounds::*bound, Seen& seen, std::size_t count,
               std::string_view from, std::string_view to, std::vector<Zone>* zones) const;

  std::vector<Bounds> zones_;
  std::set<std::uint32_t, ByLeast> by_least_{ByLeast{&zones_}};  // the zones with rows
  std::set<std::uint32_t, ByMost> by_most_{ByMost{&zones_}};     // the same, descending
  std::uint64_t num_least_moves_ = 0, num_most_moves_ = 0;       // how often a bound of a zone with rows grew
};

}  // namespace hako::table
