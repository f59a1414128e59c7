// Search: finds keys by a pattern, with a scan of all keys beside writers.
//
//   HAKO_ASSIGN_OR_RETURN(const auto keys, Search(*db, SearchMode::kBegin, "lib", 100));
//
// KeyMatcher tests one key, for callers that scan by themselves.
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
#include "hako/base/string_arg.h"
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
std::optional<SearchMode> SearchModeOfName(StringArg name);

// Tests whether a key matches. Copies share the pattern. Thread-safe.
class KeyMatcher {
 public:
  // Returns InvalidArgument if `mode` is kRegex and the pattern is not a valid regular expression.
  static StatusOr<KeyMatcher> Make(SearchMode mode, StringArg pattern);

  // Whether the key matches; always true for kEdit.
  bool operator()(StringArg key) const;

 private:
  struct Pattern;
  explicit KeyMatcher(std::shared_ptr<const Pattern> pattern) : pattern_(std::move(pattern)) {}
  std::shared_ptr<const Pattern> pattern_;
};

// Returns the edit distance (Levenshtein): the least number of insertions, removals and
// replacements of characters that turn one string into the other. A byte that is not part of a
// UTF-8 character counts as one.
std::size_t EditDistance(StringArg a, StringArg b);

// Collects the keys nearest to a pattern among those shown. Not thread-safe.
class NearestKeys {
 public:
  // Keeps up to `capacity` keys.
  NearestKeys(StringArg pattern, std::size_t capacity) : pattern_(pattern), capacity_(capacity) {}
  // Considers a key.
  void Show(StringArg key);
  // Returns the keys, the nearest first; equally near keys are in bytewise order.
  std::vector<std::string> Take() &&;

 private:
  using Found = std::pair<std::size_t, std::string>;  // distance, key
  std::string pattern_;
  std::size_t capacity_;
  std::vector<Found> heap_;  // the farthest at the front
};

// Returns up to `capacity` keys of the database (0 = all) that match, in the order of the iterator;
// for kEdit, the nearest keys. Runs beside writers, and tests every key that exists during the
// whole search. Returns the error that stops the scan, or InvalidArgument for a wrong pattern.
template <DBM D>
StatusOr<std::vector<std::string>> Search(D& db, SearchMode mode, StringArg pattern, std::size_t capacity = 0) {
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
