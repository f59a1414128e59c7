// A duration is a number and one of the units us, ms, s, m, h, d and w, as in 250ms or 1.5h; without a
// unit it counts what its option says. A time is
//   2026-11-25T07:07:05.25Z   UTC; with a blank for the T, without seconds, with an offset as +01:00 for Z
//   2026-11-25                the beginning of the day in UTC
//   @1795590425.25            seconds since 1970
// and a plain number where an option says what it counts.
#include "tool/times.h"

#include <time.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

namespace hako::tool {
namespace {

constexpr std::uint64_t kSecond = 1'000'000;  // in microseconds
constexpr std::uint64_t kTimeMax = std::uint64_t{1} << 62;

std::string FormatSeconds(std::uint64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 64> text;
  return std::string(text.data(), strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts));
}

std::string WithFraction(std::string text, unsigned fraction, int digits) {
  std::array<char, 16> end;
  std::snprintf(end.data(), end.size(), ".%0*uZ", digits, fraction);
  return text + end.data();
}

bool TakeSign(std::string_view* text, char sign) {
  if (!text->starts_with(sign)) return false;
  text->remove_prefix(1);
  return true;
}

// Takes `least` to `most` digits.
std::optional<std::uint64_t> TakeDigits(std::string_view* text, std::size_t least, std::size_t most) {
  std::uint64_t number = 0;
  std::size_t size = 0;
  for (; size < text->size() && size < most && (*text)[size] >= '0' && (*text)[size] <= '9'; ++size)
    number = number * 10 + static_cast<std::uint64_t>((*text)[size] - '0');
  if (size < least || (size < text->size() && (*text)[size] >= '0' && (*text)[size] <= '9')) return std::nullopt;
  text->remove_prefix(size);
  return number;
}

// Takes ".25" as 250,000 of a million; digits behind the sixth do not count.
std::optional<std::uint64_t> TakeFraction(std::string_view* text) {
  if (!TakeSign(text, '.')) return 0;
  std::uint64_t fraction = 0;
  std::size_t size = 0;
  for (std::uint64_t unit = kSecond / 10; size < text->size() && (*text)[size] >= '0' && (*text)[size] <= '9'; ++size, unit /= 10)
    fraction += unit * static_cast<std::uint64_t>((*text)[size] - '0');
  if (size == 0) return std::nullopt;
  text->remove_prefix(size);
  return fraction;
}

// "Z", "+01:00" or "-0530" in minutes.
std::optional<std::int64_t> TakeZone(std::string_view* text) {
  if (TakeSign(text, 'Z') || TakeSign(text, 'z')) return 0;
  const bool is_west = TakeSign(text, '-');
  if (!is_west && !TakeSign(text, '+')) return std::nullopt;
  const std::size_t colon = text->find(':');
  const auto hours = colon == 2 ? TakeDigits(text, 2, 2) : TakeDigits(text, 4, 4);
  if (!hours) return std::nullopt;
  std::optional<std::uint64_t> minutes = colon == 2 ? (TakeSign(text, ':'), TakeDigits(text, 2, 2)) : std::optional(*hours % 100);
  const std::uint64_t whole = colon == 2 ? *hours : *hours / 100;
  if (!minutes || *minutes > 59 || whole > 23) return std::nullopt;
  const auto offset = static_cast<std::int64_t>(whole * 60 + *minutes);
  return is_west ? -offset : offset;
}

std::optional<std::uint64_t> ParseMoment(std::string_view text) {
  const auto year = TakeDigits(&text, 4, 4);
  if (!year || !TakeSign(&text, '-')) return std::nullopt;
  const auto month = TakeDigits(&text, 2, 2);
  if (!month || !TakeSign(&text, '-')) return std::nullopt;
  const auto day = TakeDigits(&text, 2, 2);
  if (!day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  std::int64_t seconds = std::int64_t{86'400} * std::chrono::sys_days(date).time_since_epoch().count();
  std::uint64_t fraction = 0;
  if (!text.empty()) {
    if (!TakeSign(&text, 'T') && !TakeSign(&text, ' ')) return std::nullopt;
    const auto hour = TakeDigits(&text, 2, 2);
    if (!hour || *hour > 23 || !TakeSign(&text, ':')) return std::nullopt;
    const auto minute = TakeDigits(&text, 2, 2);
    if (!minute || *minute > 59) return std::nullopt;
    std::optional<std::uint64_t> second = 0;
    if (TakeSign(&text, ':')) {
      second = TakeDigits(&text, 2, 2);
      const auto taken = TakeFraction(&text);
      if (!second || *second > 59 || !taken) return std::nullopt;
      fraction = *taken;
    }
    const auto zone = TakeZone(&text);
    if (!zone || !text.empty()) return std::nullopt;
    seconds += static_cast<std::int64_t>(*hour * 3600 + *minute * 60 + *second) - *zone * 60;
  }
  if (seconds < 0) return std::nullopt;
  return static_cast<std::uint64_t>(seconds) * kSecond + fraction;
}

}  // namespace

std::string FormatTime(std::uint64_t time) { return WithFraction(FormatSeconds(time / kSecond), static_cast<unsigned>(time % kSecond), 6); }

std::string FormatMilliseconds(std::uint64_t milliseconds) {
  return WithFraction(FormatSeconds(milliseconds / 1000), static_cast<unsigned>(milliseconds % 1000), 3);
}

std::optional<std::uint64_t> ParseTime(std::string_view text, std::uint64_t unit) {
  const bool is_seconds = TakeSign(&text, '@');
  if (is_seconds || (unit != 0 && !text.empty() && text.find_first_not_of("0123456789") == text.npos)) {
    const auto number = TakeDigits(&text, 1, 18);
    const auto fraction = number && is_seconds ? TakeFraction(&text) : std::optional<std::uint64_t>(0);
    if (!number || !fraction || !text.empty() || *number > kTimeMax / (is_seconds ? kSecond : unit)) return std::nullopt;
    return *number * (is_seconds ? kSecond : unit) + *fraction;
  }
  return ParseMoment(text);
}

std::optional<std::uint64_t> ParseDuration(std::string_view text, std::uint64_t unit) {
  constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {{"us", 1},
                                                                   {"ms", 1000},
                                                                   {"s", kSecond},
                                                                   {"m", 60 * kSecond},
                                                                   {"h", 3600 * kSecond},
                                                                   {"d", 86'400 * kSecond},
                                                                   {"w", 604'800 * kSecond}};
  std::string_view rest = text;
  const auto whole = rest.starts_with('.') ? std::optional<std::uint64_t>(0) : TakeDigits(&rest, 1, 18);
  if (!whole) return std::nullopt;
  const auto fraction = TakeFraction(&rest);
  if (!fraction) return std::nullopt;
  for (const auto& [name, length] : kUnits) {
    if (rest == name) unit = length, rest = {};
  }
  if (!rest.empty() || *whole > kTimeMax / unit) return std::nullopt;
  return *whole * unit + static_cast<std::uint64_t>(
                             std::llround(static_cast<double>(*fraction) * static_cast<double>(unit) / static_cast<double>(kSecond)));
}

std::string FormatBytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 1023.5 && unit + 1 < kUnits.size()) size /= 1024, ++unit;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), size < 99.95 ? "%.1f %s" : "%.0f %s", size, kUnits[unit]);
  return text.data();
}

}  // namespace hako::tool
