// Batch: the updates that an engine makes in one atomic step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "hako/base/key_value.h"
#include "hako/base/visitor_ref.h"

namespace hako {

// Views must stay valid until the call returns. An array has numbers for keys.
template <class ActionT, class Key = std::string_view, class Range = KeyRange>
struct Batch {
  std::span<const Key> keys;
  MultiVisitorRef<ActionT> visit;  // called for each key, in their order: see ProcessMulti in dbm/dbm.h
  // The visitor needs the values of only the first `num_shown` keys. A later key may be shown as
  // absent although its record exists.
  std::size_t num_shown = ~std::size_t{0};
  // Removes the records of these ranges, except those that the visitor sets. The visitor sees the
  // records as they were before the removal. REQUIRES: each has_from, not empty, ascending and disjoint; none for
  // a hash table (checked in MultiGuard and TryProcessMulti)
  std::span<const Range> removed_ranges = {};
  // Replaces the applied index of the database (dbm/write_batch.h).
  std::optional<std::uint64_t> applied_index = {};
  // Whether the database may skip its checks of each Action: keys that are not shown get Set or
  // Remove, and no Action has a time if the database keeps none.
  bool is_checked = false;
  // Whether the visitor keeps every record, so that a database which refuses updates accepts the batch.
  bool is_read_only = false;
  // Shows the records of these ranges to *show, in ascending order, before the first call of the visitor. From then on
  // until the changes are made, no other thread changes a record there or adds one. REQUIRES: as of removed_ranges, which
  // are then empty (checked in MultiGuard and ProcessMultiIn); a range without has_from is the first
  std::span<const Range> shown_ranges = {};
  const EachRef* show = nullptr;

  bool IsEmpty() const { return keys.empty() && removed_ranges.empty() && shown_ranges.empty() && !applied_index; }
};

}  // namespace hako
