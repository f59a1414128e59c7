// A duration is a number and one of the units us, ms, s, m, h, d and w, as in 250ms or 1.5h; without a
// unit it counts what its option says. A time is
//   2026-11-25T07:07:05.25Z   UTC; with a blank for the T, without seconds, with an offset as +01:00 for Z
//   2026-11-25                the beginning of the day in UTC
//   @1795590425.25            seconds since 1970
// or a plain number, if the option says what it counts.
#include "tool/times.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/time/time.h"
#include "hako/text/regular_expression.h"

namespace hako::tool {
namespace {

constexpr std::uint64_t kSecond = 1'000'000;  // in microseconds
constexpr std::uint64_t kTimeMax = std::uint64_t{1} << 62;

bool TakeSign(std::string_view* text, char sign) {
  if (!text->starts_with(sign)) return false;
  text->remove_prefix(1);
  return true;
}

// Takes `least` to `most` digits from the beginning of the text.
std::optional<std::uint64_t> TakeDigits(std::string_view* text, std::size_t least, std::size_t most) {
  std::uint64_t number = 0;
  std::size_t size = 0;
  for (; size < text->size() && size < most && (*text)[size] >= '0' && (*text)[size] <= '9'; ++size)
    number = number * 10 + static_cast<std::uint64_t>((*text)[size] - '0');
  if (size < least || (size < text->size() && (*text)[size] >= '0' && (*text)[size] <= '9')) return std::nullopt;
  text->remove_prefix(size);
  return number;
}

// Takes a fraction, in millionths: 250,000 for ".25". Ignores digits after the sixth.
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

// Checks the form itself, because abseil also accepts blanks, fewer digits, leap seconds and more.
std::optional<std::uint64_t> ParseMoment(std::string_view text) {
  static const auto shape =
      text::RegularExpression::Compile("^\\d{4}-\\d\\d-\\d\\d([T ]\\d\\d:\\d\\d(:[0-5]\\d(\\.\\d+)?)?([Zz]|[+-]\\d\\d:?\\d\\d))?$");
  if (!shape->Matches(text)) return std::nullopt;
  std::string moment(text);
  if (moment.size() == 10) moment += "T00:00Z";
  moment[10] = 'T';
  const char* const format = moment[16] == ':' ? "%Y-%m-%dT%H:%M:%E*S%Ez" : "%Y-%m-%dT%H:%M%Ez";
  absl::Time time;
  if (!absl::ParseTime(format, moment, &time, nullptr) || time < absl::UnixEpoch()) return std::nullopt;
  return static_cast<std::uint64_t>(absl::ToUnixMicros(time));
}

}  // namespace

std::string FormatTime(std::uint64_t time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(static_cast<std::int64_t>(time)), absl::UTCTimeZone());
}

std::string FormatMilliseconds(std::uint64_t milliseconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMillis(static_cast<std::int64_t>(milliseconds)), absl::UTCTimeZone());
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
