// Parses the times of SET, GETEX and EXPIRE, in the units of their options.
#pragma once

#include <cstdint>
#include <string_view>

#include "hako/dbm/expiry.h"
#include "server/command.h"

namespace hako::server {

// The unit of a time, and whether the time is relative to now.
struct TimeUnit {
  bool is_seconds, is_absolute;

  friend bool operator==(const TimeUnit&, const TimeUnit&) = default;
};

// Whether the word is EX, PX, EXAT or PXAT.
inline bool IsTimeOption(std::string_view word, TimeUnit* unit) {
  for (const auto& [name, of] : {std::pair<std::string_view, TimeUnit>("ex", {true, false}),
                                 {"px", {false, false}},
                                 {"exat", {true, true}},
                                 {"pxat", {false, true}}}) {
    if (!EqualsIgnoringCase(word, name)) continue;
    *unit = of;
    return true;
  }
  return false;
}

inline void FailTime(Call& call) { call.Fail("ERR invalid expire time in '" + std::string(call.command.name) + "' command"); }
inline void FailNoTimes(Call& call) { call.Fail("ERR the database was created without expiry times"); }

// Parses argument i as a time, in milliseconds since 1970. A time beyond the latest one that the
// database stores becomes that one. Replies with an error, and returns false, if the time is not
// positive or the database keeps no times.
inline bool TimeArgument(Call& call, std::size_t i, TimeUnit unit, std::uint64_t* time) {
  std::int64_t value = 0;
  if (!call.Integer(i, &value)) return false;
  static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto now = static_cast<std::int64_t>(call.keys().Now());
  bool is_valid = value > 0 && (!unit.is_seconds || value <= kMax / 1000);
  if (is_valid && unit.is_seconds) value *= 1000;
  if (is_valid && !unit.is_absolute) {
    is_valid = value <= kMax - now;
    if (is_valid) value += now;
  }
  if (!is_valid) return FailTime(call), false;
  if (!call.keys().KeepsTimes()) return FailNoTimes(call), false;
  *time = std::min(static_cast<std::uint64_t>(value), Expiry::kTimeMax);
  return true;
}

}  // namespace hako::server
