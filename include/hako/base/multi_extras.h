// MultiExtras: the changes of a ProcessMulti beside the records of its keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "hako/base/key_value.h"

namespace hako {

// These change in the same atomic step as the records. Views must stay valid until the call
// returns.
struct MultiExtras {
  // Replaces the applied index of the database (dbm/write_batch.h).
  std::optional<std::uint64_t> applied_index = {};
  // Records of these ranges are removed, except those that the visitor sets. The visitor sees them
  // as they were before. REQUIRES: not empty, ascending and disjoint; none for a hash table
  // (checked in MultiGuard and TryProcessMulti)
  std::span<const KeyRange> removed_ranges = {};
  // The visitor needs the values of only the first `num_shown` keys. It may be told that a later
  // one is absent although it exists.
  std::size_t num_shown = ~std::size_t{0};
  // If not nullptr, receives the expiry time of each record (dbm/expiry.h) before the visitor is
  // called with it.
  std::uint64_t* expiry_shown = nullptr;
};

}  // namespace hako
