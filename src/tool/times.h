// Points in time on the command line and in the output: UTC, or seconds since 1970.
#pragma once

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace hako::tool {

// Microseconds since 1970 as "2026-11-25T07:07:05.250000Z".
inline std::string FormatTime(std::uint64_t time) {
  const auto seconds = static_cast<time_t>(time / 1'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const std::size_t size = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + size, sizeof(text) - size, ".%06uZ", static_cast<unsigned>(time % 1'000'000));
  return text;
}

// Reads ".25" as 250,000; moves `text` behind it.
inline std::uint64_t TakeFraction(const char** text) {
  if (**text != '.') return 0;
  std::uint64_t fraction = 0;
  std::uint64_t unit = 1'000'000;
  for (++*text; **text >= '0' && **text <= '9'; ++*text) {
    unit /= 10;
    fraction += unit * static_cast<std::uint64_t>(**text - '0');
  }
  return fraction;
}

// The reverse; also with a blank for the T and fewer digits, and "@1795590425.25". nullopt if it is
// none of these.
inline std::optional<std::uint64_t> ParseTime(const std::string& text) {
  const char* rest = text.c_str();
  std::uint64_t seconds = 0;
  const bool is_plain = *rest == '@';
  if (is_plain) {
    const char* const begin = ++rest;
    for (; *rest >= '0' && *rest <= '9' && seconds < std::uint64_t{1} << 40; ++rest)
      seconds = seconds * 10 + static_cast<std::uint64_t>(*rest - '0');
    if (rest == begin) return std::nullopt;
  } else {
    tm parts{};
    rest = strptime(rest, "%Y-%m-%d", &parts);
    if (rest == nullptr || (*rest != 'T' && *rest != ' ')) return std::nullopt;
    rest = strptime(rest + 1, "%H:%M:%S", &parts);
    if (rest == nullptr) return std::nullopt;
    const time_t utc = timegm(&parts);
    if (utc < 0) return std::nullopt;
    seconds = static_cast<std::uint64_t>(utc);
  }
  const std::uint64_t time = seconds * 1'000'000 + TakeFraction(&rest);
  if (!is_plain && *rest++ != 'Z') return std::nullopt;
  return *rest == '\0' ? std::optional(time) : std::nullopt;
}

}  // namespace hako::tool
