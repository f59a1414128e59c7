// Helpers of the DBM tests: keys in order, and all records of a database in a std::map.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "hako/format/record_format.h"
#include "support/checked_value.h"
#include "support/status_matchers.h"

namespace hako {

using Records = std::map<std::string, std::string, std::less<>>;

// Keys "00000000", "00000001", ...
inline std::string NumberedKey(std::uint64_t number) {
  std::string key = std::to_string(number);
  return std::string(key.size() < 8 ? 8 - key.size() : 0, '0') + key;
}

// The longest key that a database accepts.
template <class D>
constexpr std::size_t LongestKeyOf() {
  if constexpr (requires { D::kKeySizeMax; })
    return D::kKeySizeMax;
  else
    return kKeySizeMax;
}

// All records that an iteration shows, and the order of their keys; fails if one key comes twice.
struct Listing {
  Records records;
  std::vector<std::string> order;
  void Add(std::string_view key, std::string_view value) {
    order.emplace_back(key);
    EXPECT_TRUE(records.emplace(key, value).second) << "shown twice: " << testing::PrintToString(order.back());
  }
};
template <class D>
Listing ListByIterator(D& db) {
  Listing listing;
  auto it = db.MakeIterator();
  for (it.First(); it.Valid(); it.Next()) listing.Add(it.key(), it.value());
  EXPECT_THAT(it.status(), IsOk());
  return listing;
}
template <class D>
Listing ListByProcessEach(D& db) {
  Listing listing;
  EXPECT_THAT(db.ProcessEach([&](std::string_view key, std::string_view value) { listing.Add(key, value); }), IsOk());
  return listing;
}

// Whether these are the records of a state from the first-th on.
inline bool IsOneOf(const Records& found, const std::vector<Records>& states, std::size_t first) {
  return std::find(states.begin() + static_cast<std::ptrdiff_t>(first), states.end(), found) != states.end();
}

// The first difference, in few words; "none" if there is none.
inline std::string Difference(const Records& expected, const Records& found) {
  for (const auto& [key, value] : expected) {
    const auto it = found.find(key);
    if (it == found.end()) return key + " is missing";
    if (it->second != value) {
      return key + " has a value of " + std::to_string(it->second.size()) + " bytes, not of " + std::to_string(value.size()) + ", salt " +
             std::to_string(SaltOf(key, it->second).value_or(0)) + ", not " + std::to_string(SaltOf(key, value).value_or(0));
    }
  }
  for (const auto& [key, value] : found) {
    if (expected.count(key) == 0) return key + " should not be there";
  }
  return "none";
}

}  // namespace hako
