// The log of the program, for its operator (spdlog): a line for each event, as text or as JSON.
//
//   2026-11-26T05:00:00.000+0000 info TLS handshake failed client=127.0.0.1:4711 reason="http request"
//   {"time":"2026-11-26T05:00:00.000+0000","level":"info","message":"TLS handshake failed","client":"127.0.0.1:4711",...}
//
// Fields may contain bytes sent by clients. They are escaped, so they cannot end the line or forge another.
// If memory runs out, a line is lost. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/status.h"
#include "hako/base/wall_clock.h"

namespace hako::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
std::optional<LogLevel> ParseLogLevel(std::string_view name);  // accepts the names of Redis, too
std::string_view LogLevelName(LogLevel level);

enum class LogFormat { kText, kJson };

// The fields of an event: names and values. Names consist of letters and underscores.
using LogFields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Sets the file of the log ("" = standard error) and the lowest level. Returns false if the file
// cannot be opened.
bool OpenLog(const std::string& path, LogLevel level, LogFormat format);
// Changes the lowest level.
void SetLogLevel(LogLevel level);
void LogDebug(std::string_view message, LogFields fields = {});
void LogInfo(std::string_view message, LogFields fields = {});
void LogWarning(std::string_view message, LogFields fields = {});
void LogError(std::string_view message, const Status& status);

// Limits the lines about an event that clients can cause at will to one per interval. Thread-safe.
class LogPace {
 public:
  explicit constexpr LogPace(std::uint64_t milliseconds) : interval_(milliseconds) {}
  bool Passes() {
    const std::uint64_t now = SteadyMilliseconds();
    std::uint64_t next = next_at_.load(std::memory_order_relaxed);
    return now >= next && next_at_.compare_exchange_strong(next, now + interval_);
  }

 private:
  const std::uint64_t interval_;
  std::atomic<std::uint64_t> next_at_{0};
};

// Returns the text of a line, after its time and level.
std::string LogText(std::string_view message, LogFields fields);
std::string LogJson(std::string_view message, LogFields fields);  // the members of the object, without braces

}  // namespace hako::server
