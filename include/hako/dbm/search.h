// Search: finds keys by a pattern, with a scan of all keys beside writers.
//
//   HAKO_ASSIGN_OR_RETURN(const auto keys, Search(*db, SearchMode::kBegin, "lib", 100));
//
// KeyMatcher tests one key, for callers with their own scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/dbm/dbm.h"

namespace hako {

// How a pattern selects keys.
enum class SearchMode {
  kContain,  // keys that contain the pattern
  kBegin,    // keys that begin with the pattern
  kEnd,      // keys that end with the pattern
  kRegex,    // keys that contain a match of the regular expression of RE2 (text/regular_expression.h)
  kEdit,     // all keys, by ascending edit distance from the pattern
};

// Parses "contain", "begin", "end", "regex" or "edit".
std::optional<SearchMode> SearchModeOfName(std::string_view name);

// Tests whether a key matches. Copies share the pattern. Thread-safe.
class KeyMatcher {
 public:
  // InvalidArgument if `mode` is kRegex and the pattern is not a valid regular expression.
  static StatusOr<KeyMatcher> Make(SearchMode mode, std::string_view pattern);

  // Always true for kEdit.
  bool operator()(std::string_view key) const;

 private:
  struct Pattern;
  explicit KeyMatcher(std::shared_ptr<const Pattern> pattern) : pattern_(std::move(pattern)) {}
  std::shared_ptr<const Pattern> pattern_;
};

// The edit distance (Levenshtein): the least number of insertions, removals and replacements of
// characters that turn one string into the other. A character is a UTF-8 character, or a byte that
// is part of none.
std::size_t EditDistance(std::string_view a, std::string_view b);

// Collects the keys nearest to a pattern among those shown. One thread.
class NearestKeys {
 public:
  // Keeps up to `capacity` keys.
  NearestKeys(std::string_view pattern, std::size_t capacity) : pattern_(pattern), capacity_(capacity) {}
  // Considers a key.
  void Show(std::string_view key);
  // Returns the keys, nearest first; equally near ones in bytewise order.
  std::vector<std::string> Take() &&;

 private:
  using Found = std::pair<std::size_t, std::string>;  // distance, key
  std::string pattern_;
  std::size_t capacity_;
  std::vector<Found> heap_;  // the farthest at the front
};

// Returns up to `capacity` keys of the database (0 = all): those that match, in iterator order; for
// kEdit the nearest ones. Every key that exists throughout is tested; writers are not stopped.
// Returns the error that stops the scan, or InvalidArgument for a wrong pattern.
template <DBM D>
StatusOr<std::vector<std::string>> Search(D& db, SearchMode mode, std::string_view pattern, std::size_t capacity = 0) {
  if (capacity == 0) capacity = static_cast<std::size_t>(-1);
  HAKO_ASSIGN_OR_RETURN(const KeyMatcher matches, KeyMatcher::Make(mode, pattern));
  NearestKeys nearest(pattern, capacity);
  std::vector<std::string> keys;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid() && keys.size() < capacity; it.Next()) {
    if (mode == SearchMode::kEdit) {
      nearest.Show(it.key());
    } else if (matches(it.key())) {
      keys.emplace_back(it.key());
    }
  }
  HAKO_RETURN_IF_ERROR(it.status());
  return mode == SearchMode::kEdit ? std::move(nearest).Take() : keys;
}

}  // namespace hako
