// Numbers as written in options: decimal digits with a sign and a suffix, k m g t for powers of
// 1000 or ki mi gi ti for powers of 1024, in either case. "8", "10k", "64Mi", "-1".
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/language.h"

namespace hako {

// Returns nullopt if `text` is not such a number or does not fit.
inline std::optional<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest == text.data()) return std::nullopt;
  std::string suffix(rest, end);
  for (char& c : suffix) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::int64_t factor = 1;
  if (!suffix.empty()) {
    constexpr std::string_view kUnits = "kmgt";
    const std::size_t power = kUnits.find(suffix[0]);
    if (power == kUnits.npos || suffix.size() > 2 || (suffix.size() == 2 && suffix[1] != 'i')) return std::nullopt;
    for (std::size_t i = 0; i <= power; ++i) factor *= suffix.size() == 2 ? 1024 : 1000;
  }
  if (__builtin_mul_overflow(number, factor, &number)) return std::nullopt;
  return number;
}

}  // namespace hako
