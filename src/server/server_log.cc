// Definitions of server/server_log.h.
#include "server/server_log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>

#include "hako/text/json_record.h"
#include "hako/text/text_encoding.h"

namespace hako::server {

namespace {

constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warning", "error"};
constexpr std::array<spdlog::level::level_enum, 4> kSpdlogLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                                    spdlog::level::err};
std::atomic<bool> is_json{false};
std::atomic<LogLevel> least{LogLevel::kInfo};

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> fallback =
      std::make_shared<spdlog::logger>("hako", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto logger = spdlog::get("hako-server");
  return logger != nullptr ? *logger : *fallback;
}

void Write(LogLevel level, std::string_view message, LogFields fields) try {
  if (level < least) return;
  Logger().log(kSpdlogLevels[static_cast<std::size_t>(level)],
               spdlog::string_view_t(is_json ? LogJson(message, fields) : LogText(message, fields)));
} catch (const std::bad_alloc&) {  // the line is lost
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (kLevels[i] == name) return static_cast<LogLevel>(i);
  }
  if (name == "verbose") return LogLevel::kDebug;
  if (name == "notice") return LogLevel::kInfo;
  return std::nullopt;
}

std::string_view LogLevelName(LogLevel level) { return kLevels[static_cast<std::size_t>(level)]; }

bool OpenLog(const std::string& path, LogLevel level, LogFormat format) {
  try {
    spdlog::sink_ptr sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    if (!path.empty()) sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    auto logger = std::make_shared<spdlog::logger>("hako-server", std::move(sink));
    is_json = format == LogFormat::kJson;
    logger->set_pattern(is_json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})" : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::debug);
    spdlog::register_logger(std::move(logger));
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
  least = level;
  return true;
}

void SetLogLevel(LogLevel level) { least = level; }

void LogDebug(std::string_view message, LogFields fields) { Write(LogLevel::kDebug, message, fields); }
void LogInfo(std::string_view message, LogFields fields) { Write(LogLevel::kInfo, message, fields); }
void LogWarning(std::string_view message, LogFields fields) { Write(LogLevel::kWarning, message, fields); }
void LogError(std::string_view message, const Status& status) try {
  const std::string text = is_json ? status.ToString() : std::string();
  if (is_json) return Write(LogLevel::kError, message, {{"error", text}});
  Write(LogLevel::kError, std::string(message) + ": " + status.ToString(), {});
} catch (const std::bad_alloc&) {
}

std::string LogText(std::string_view message, LogFields fields) {
  std::string line;
  text::AppendPrintable(message, &line, /*escapes_backslash=*/false);
  for (const auto& [name, value] : fields) {
    const bool is_quoted = value.empty() || value.find_first_of(" \"=\\") != value.npos;
    line.append(" ").append(name).append(is_quoted ? "=\"" : "=");
    for (std::size_t begin = 0; begin <= value.size();) {  // escapes quotes, too
      const std::size_t end = std::min(value.find('"', begin), value.size());
      text::AppendPrintable(value.substr(begin, end - begin), &line);
      if (end < value.size()) line += "\\\"";
      begin = end + 1;
    }
    if (is_quoted) line += '"';
  }
  return line;
}

std::string LogJson(std::string_view message, LogFields fields) {
  std::string line;
  const auto add = [&line](std::string_view name, std::string_view value) {
    std::string printable;  // makes the text UTF-8, as JSON requires
    text::AppendPrintable(value, &printable, /*escapes_backslash=*/false);
    line.append(line.empty() ? "\"" : ",\"").append(name).append("\":");
    text::AppendJsonBytes(printable, &line);
  };
  add("message", message);
  for (const auto& [name, value] : fields) add(name, value);
  return line;
}

}  // namespace hako::server
