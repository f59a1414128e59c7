// Colours on a terminal. A NO_COLOR that is not empty, and TERM=dumb, switch them off.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace hako::tool {

inline bool WantsColor(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') && (term == nullptr || std::string_view(term) != "dumb");
}

inline constexpr std::string_view kErrorColor = "\x1b[1;31m";
inline constexpr std::string_view kKeyColor = "\x1b[36m";
inline constexpr std::string_view kNoColor = "\x1b[0m";

}  // namespace hako::tool
