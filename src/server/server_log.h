// The log of the program, for its operator (spdlog): a line for each event, as text or as JSON.
//
//   2026-11-26T05:00:00.000+0000 info TLS handshake failed client=127.0.0.1:4711 reason="http request"
//   {"time":"2026-11-26T05:00:00.000+0000","level":"info","message":"TLS handshake failed","client":"127.0.0.1:4711",...}
//
// What others have sent may be part of a line: it is escaped, so that it cannot end the line or write
// another. Thread-safe.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/status.h"

namespace hako::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
std::optional<LogLevel> ParseLogLevel(std::string_view name);  // also the names of Redis
std::string_view LogLevelName(LogLevel level);

enum class LogFormat { kText, kJson };

// Names and values of an event. The names are letters and underscores.
using LogFields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Where lines go, "" = standard error, and from which level on. False if the file cannot be opened.
bool OpenLog(const std::string& path, LogLevel level, LogFormat format);
// From now on.
void SetLogLevel(LogLevel level);
void LogDebug(std::string_view message, LogFields fields = {});
void LogInfo(std::string_view message, LogFields fields = {});
void LogWarning(std::string_view message, LogFields fields = {});
void LogError(std::string_view message, const Status& status);

// A line without its time and level.
std::string LogText(std::string_view message, LogFields fields);
std::string LogJson(std::string_view message, LogFields fields);  // the inside of an object

}  // namespace hako::server
