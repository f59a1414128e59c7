// The tree of a regular expression: made by the parser from a pattern, and compiled to states.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hako/text/regular_expression.h"

namespace hako::text {

struct RegularExpressionTree {
  static constexpr std::size_t kNodesMax = 32'768;
  static constexpr std::size_t kGroupDepthMax = 100;  // parentheses within each other
  static constexpr std::size_t kHeightMax = 1'000;    // which the compiler's recursion has
  static constexpr std::uint32_t kUnbounded = ~std::uint32_t{0};
  static constexpr const char* kTooLarge = "is too large";

  using Bytes = std::bitset<256>;
  using Kind = RegularExpression::Kind;
  struct Node {
    enum class Type : std::uint8_t { kSequence, kAlternatives, kRepeat, kState };
    Type type;
    Kind kind = Kind::kByte;            // kState: neither kAccept nor kSplit; the child of a look-ahead is its body
    std::uint32_t set = 0;              // kByte: its bytes
    std::uint32_t least = 0, most = 0;  // kRepeat
    std::vector<std::size_t> children = {};
    std::size_t height = 1;
  };

  // Replaces the tree by that of the pattern. Returns the fault of the pattern, or nullptr.
  const char* Parse(std::string_view pattern);

  std::vector<Node> nodes;
  std::vector<Bytes> sets;
  std::size_t root = 0;
  bool has_look_ahead = false;
};

}  // namespace hako::text
