// Compiles the regular expressions of searches and queries, whose authors may be hostile.
//
// The syntax is ECMAScript, without back-references. The implementation of libstdc++ calls itself
//   - for each character of the text, unless it is made with __polynomial, which also bounds its time;
//   - for each level of parentheses, so their depth has a limit here;
//   - for each look-ahead at each character, so a look-ahead may not be in another one.
#pragma once

#include <cstddef>
#include <regex>
#include <string_view>

#include "hako/base/status.h"

namespace hako::text {

// The limit of parentheses within each other.
inline constexpr std::size_t kGroupDepthMax = 100;

// InvalidArgument if the pattern is none or exceeds a limit; the message quotes its beginning.
StatusOr<std::regex> CompileRegularExpression(std::string_view pattern);

}  // namespace hako::text
