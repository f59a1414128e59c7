// Times and durations on the command line, and times and sizes in the output: see times.cc for what is
// accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hako::tool {

// Microseconds since 1970 as "2026-11-25T07:07:05.250000Z"; with milliseconds as "2026-11-25T07:07:05.250Z".
std::string FormatTime(std::uint64_t time);
std::string FormatMilliseconds(std::uint64_t milliseconds);

// The time in microseconds since 1970 that a text is; nullopt if it is none. `unit`: microseconds that a
// plain number counts, 0 = a plain number is no time.
std::optional<std::uint64_t> ParseTime(std::string_view text, std::uint64_t unit = 0);
// Forms of a time for messages.
inline constexpr char kTimeExamples[] = "2026-11-25T07:07Z, 2026-11-25T07:07:05.25Z or @1795590425";

// The duration in microseconds. `unit`: microseconds that a plain number counts.
std::optional<std::uint64_t> ParseDuration(std::string_view text, std::uint64_t unit);
inline constexpr char kDurationExamples[] = "250ms, 60s, 5m, 2h or 7d";

// 12345 as "12.1 KiB".
std::string FormatBytes(std::uint64_t bytes);

}  // namespace hako::tool
