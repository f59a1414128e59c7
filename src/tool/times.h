// Parses times and durations on the command line, and formats times and sizes. times.cc describes
// the accepted forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hako::tool {

// Format microseconds since 1970 as "2026-11-25T07:07:05.250000Z", and milliseconds as
// "2026-11-25T07:07:05.250Z".
std::string FormatTime(std::uint64_t time);
std::string FormatMilliseconds(std::uint64_t milliseconds);

// Parses a time, in microseconds since 1970. Returns nullopt if the text is not a time. A plain
// number counts units of `unit` microseconds; with 0 it is not a time.
std::optional<std::uint64_t> ParseTime(std::string_view text, std::uint64_t unit = 0);
// Examples of times, for messages.
inline constexpr char kTimeExamples[] = "2026-11-25T07:07Z, 2026-11-25T07:07:05.25Z or @1795590425";

// Parses a duration, in microseconds. A plain number counts units of `unit` microseconds.
std::optional<std::uint64_t> ParseDuration(std::string_view text, std::uint64_t unit);
inline constexpr char kDurationExamples[] = "250ms, 60s, 5m, 2h or 7d";

// Formats 12345 as "12.1 KiB".
std::string FormatBytes(std::uint64_t bytes);

}  // namespace hako::tool
