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
  // The visitor needs the values of only the first `num_shown` keys. It may be told that a later
  // one is absent although it exists.
  std::size_t num_shown = ~std::size_t{0};
  // Records of these ranges are removed, except those that the visitor sets. The visitor sees them
  // as they were before. REQUIRES: not empty, ascending and disjoint; none for a hash table
  // (checked in MultiGuard and TryProcessMulti)
  std::span<const Range> removed_ranges = {};
  // Replaces the applied index of the database (dbm/write_batch.h).
  std::optional<std::uint64_t> applied_index = {};
  // The database need not look at each Action: those for keys that are not shown are a Set or Remove, and
  // none has a time that the database does not keep.
  bool is_checked = false;

  bool IsEmpty() const { return keys.empty() && removed_ranges.empty() && !applied_index; }
};

}  // namespace hako
