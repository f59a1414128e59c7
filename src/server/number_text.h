// Reads and writes numbers as Redis does.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/assert.h"

namespace hako::server {

// Parses a decimal integer without blanks, leading zeros or a plus sign (string2ll in Redis'
// util.c).
inline std::optional<std::int64_t> ParseInteger(std::string_view text) {
  if (text.empty() || text.size() > 20) return std::nullopt;
  if (text == "0") return 0;
  const std::size_t first = text[0] == '-' ? 1 : 0;
  if (first == text.size() || text[first] < '1' || text[first] > '9') return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The decimal text of an integer, in its own buffer.
class IntegerText {
 public:
  explicit IntegerText(std::int64_t value)
      : size_(static_cast<std::size_t>(std::to_chars(text_, text_ + sizeof(text_), value).ptr - text_)) {}
  std::string_view view() const { return {text_, size_}; }

 private:
  char text_[24];
  std::size_t size_;
};

// Parses a number as string2ld in Redis' util.c does: the whole text must be a number for strtold,
// of less than 5 KiB, and neither "nan" nor an overflow or underflow.
inline std::optional<long double> ParseFloat(std::string_view text) {
  static constexpr std::size_t kSizeMax = 5 * 1024;
  if (text.empty() || text.size() >= kSizeMax || std::isspace(static_cast<unsigned char>(text[0])) != 0) return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  errno = 0;
  const long double value = std::strtold(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || errno == EINVAL || std::isnan(value)) return std::nullopt;
  if (errno == ERANGE && (std::isinf(value) || std::fpclassify(value) == FP_ZERO)) return std::nullopt;
  return value;
}

// Returns the number with 17 digits after the point, without trailing zeros (ld2string in Redis'
// util.c).
// REQUIRES: the value is finite
inline std::string FloatText(long double value) {
  HAKO_DCHECK(std::isfinite(value));
  char text[5 * 1024];
  std::string_view view(text, static_cast<std::size_t>(std::snprintf(text, sizeof(text), "%.17Lf", value)));
  if (view.find('.') != std::string_view::npos) {
    view = view.substr(0, view.find_last_not_of('0') + 1);
    if (view.back() == '.') view.remove_suffix(1);
  }
  return view == "-0" ? "0" : std::string(view);
}

}  // namespace hako::server
