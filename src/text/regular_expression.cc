#include "hako/text/regular_expression.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako::text {
namespace {

#if defined(__GLIBCXX__)
constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kSyntax = std::regex::ECMAScript;
#endif

// What the pattern exceeds, or nullptr. A class ends at its first ']': a parenthesis behind it may be
// counted that is none, as in "[[:alpha:]()]", but none is left out.
const char* ExceededLimit(std::string_view pattern) {
  std::vector<bool> groups;  // those that are open: whether each is a look-ahead or in one
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      const std::string_view head = pattern.substr(i, 3);
      const bool is_look_ahead = head == "(?=" || head == "(?!", in_look_ahead = !groups.empty() && groups.back();
      if (is_look_ahead && in_look_ahead) return "has a look-ahead in a look-ahead";
      if (groups.size() == kGroupDepthMax) return "has too many parentheses within each other";
      groups.push_back(is_look_ahead || in_look_ahead);
    } else if (c == ')' && !groups.empty()) {
      groups.pop_back();
    }
  }
  return nullptr;
}

Status Refused(std::string_view pattern, std::string_view why) {
  std::string quoted;
  AppendPrintable(pattern.substr(0, 64), &quoted);
  return absl::InvalidArgumentError(absl::StrCat("'", quoted, pattern.size() > 64 ? "...' " : "' ", ToAbsl(why)));
}

}  // namespace

StatusOr<std::regex> CompileRegularExpression(std::string_view pattern) {
  if (const char* const exceeded = ExceededLimit(pattern)) return Refused(pattern, exceeded);
  try {
    return std::regex(pattern.begin(), pattern.end(), kSyntax);
  } catch (const std::regex_error& error) {
    const bool has_back_reference = error.code() == std::regex_constants::error_complexity;
    const bool is_too_large = error.code() == std::regex_constants::error_space;
    return Refused(pattern, has_back_reference ? "has a back-reference, which is not supported"
                            : is_too_large     ? "is too large"
                                               : "is not a regular expression (ECMAScript)");
  }
}

}  // namespace hako::text
