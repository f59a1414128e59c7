// Self-checking values: every byte follows from the key, the size and a salt, so a torn,
// stale-sized or misplaced value is detected. A value of 8 bytes or more has its salt (its writer
// and time) in the first 8.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "support/random.h"

namespace hako {

inline void FillCheckedValue(std::string_view key, std::uint64_t salt, std::string* value) {
  const std::size_t size = value->size();
  std::uint64_t state = 0x5EED0FBADC0FFEE5 ^ (size << 20) ^ key.size();
  for (const char byte : key) state = Random::Mix(state + static_cast<unsigned char>(byte));
  std::size_t at = 0;
  if (size >= sizeof(salt)) {
    std::memcpy(value->data(), &salt, sizeof(salt));
    at = sizeof(salt);
    state ^= Random::Mix(salt);
  }
  for (; at < size; at += sizeof(state)) {
    state = Random::Mix(state + 0x9E3779B97F4A7C15);
    std::memcpy(value->data() + at, &state, std::min(sizeof(state), size - at));
  }
}

inline std::string CheckedValue(std::string_view key, std::size_t size, std::uint64_t salt = 0) {
  std::string value(size, '\0');
  FillCheckedValue(key, salt, &value);
  return value;
}

// The salt of a valid value of `key` (0 if it is shorter than 8 bytes); nullopt if the value is not
// valid.
inline std::optional<std::uint64_t> SaltOf(std::string_view key, std::string_view value) {
  std::uint64_t salt = 0;
  if (value.size() >= sizeof(salt)) std::memcpy(&salt, value.data(), sizeof(salt));
  if (CheckedValue(key, value.size(), salt) != value) return std::nullopt;
  return salt;
}

}  // namespace hako
