// Search: keys by a pattern, by a walk over all of them beside writers.
//
//   HAKO_ASSIGN_OR_RETURN(const auto keys, Search(*db, SearchMode::kBegin, "lib", 100));
//
// KeyMatcher is the test of one key alone, for callers that walk themselves.
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

enum class SearchMode {
  kContain,  // keys that contain the pattern
  kBegin,    // keys that begin with it
  kEnd,      // keys that end with it
  kRegex,    // keys in which the regular expression (ECMAScript, without back-references) is found
  kEdit,     // all keys, those first that the fewest insertions, removals and replacements of characters make the pattern
};

// "contain", "begin", "end", "regex" or "edit".
std::optional<SearchMode> SearchModeOfName(std::string_view name);

// Whether a key is wanted. Copies share the pattern; one may be used by several threads.
class KeyMatcher {
 public:
  // InvalidArgument if the pattern is no regular expression, where it must be one.
  static StatusOr<KeyMatcher> Make(SearchMode mode, std::string_view pattern);

  // Every key where the mode is kEdit.
  bool operator()(std::string_view key) const;

 private:
  struct Pattern;
  explicit KeyMatcher(std::shared_ptr<const Pattern> pattern) : pattern_(std::move(pattern)) {}
  std::shared_ptr<const Pattern> pattern_;
};

// How many insertions, removals and replacements of characters lead from one to the other (Levenshtein). A character is one of UTF-8, or a
// byte that is part of none.
std::size_t EditDistance(std::string_view a, std::string_view b);

// The keys that are nearest to a pattern among those shown.
class NearestKeys {
 public:
  // Keeps `capacity` of them.
  NearestKeys(std::string_view pattern, std::size_t capacity) : pattern_(pattern), capacity_(capacity) {}
  void Show(std::string_view key);
  // Nearest first, equally near ones in the order of their bytes.
  std::vector<std::string> Take() &&;

 private:
  using Found = std::pair<std::size_t, std::string>;  // distance, key
  std::string pattern_;
  std::size_t capacity_;
  std::vector<Found> heap_;  // the farthest at the front
};

// Keys of the database, `capacity` of them at most (0 = all): those that match, in the order of its iterator; with kEdit the nearest.
// Every key that is there throughout is looked at; writers are not stopped.
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
