// The order of keys in a tree: a template parameter, so that it inlines.
//
// A Comparator is a type with
//   kName                     stored by every file whose pages depend on the order; a file with another name is refused
//   Compare(a, b)             < 0, 0 or > 0; a total order. Keys that compare equal are one key.
// and, to be fast, one of
//   kBytewise = true          the order is that of memcmp, a prefix before what it begins: pages then leave out what their keys share
//   Head(key) -> uint32_t     never falls as keys rise: Compare(a, b) <= 0 implies Head(a) <= Head(b). What differs in it is not compared.
// Without them every comparison of a search asks Compare. All are static.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace hako {

template <class C>
concept Comparator = requires(std::string_view key) {
  { C::kName } -> std::convertible_to<std::string_view>;
  { C::Compare(key, key) } -> std::same_as<int>;
};
template <class C>
concept BytewiseOrder = Comparator<C> && requires {
  requires bool{C::kBytewise};
};

struct BytewiseComparator {
  static constexpr std::string_view kName = "bytewise";
  static constexpr bool kBytewise = true;
  static int Compare(std::string_view a, std::string_view b) { return a.compare(b); }
};

}  // namespace hako
