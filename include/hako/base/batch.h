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
  // records as they were before the removal. REQUIRES: not empty, ascending and disjoint; none for
  // a hash table (checked in MultiGuard and TryProcessMulti)
  std::span<const Range> removed_ranges = {};
  // Replaces the applied index of the database (dbm/write_batch.h).
  std::optional<std::uint64_t> applied_index = {};
  // Whether the database may skip its checks of each Action: keys that are not shown get Set or
  // Remove, and no Action has a time if the database keeps none.
  bool is_checked = false;

  bool IsEmpty() const { return keys.empty() && removed_ranges.empty() && !applied_index; }
};

}  // namespace hako
