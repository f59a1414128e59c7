// Definitions of server/settings.h.
#include "server/settings.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "server/number_text.h"

namespace hako::server {

namespace {

template <auto Member>
std::string GetNumber(const Settings& settings) {
  return std::to_string((settings.*Member).load());
}
template <auto Member, std::int64_t kLeast = 0>
bool SetNumber(Settings& settings, std::string_view value) {
  const auto number = ParseInteger(value);
  if (!number || *number < kLeast) return false;
  (settings.*Member).store(*number);
  return true;
}
// Parses a number of bytes, such as 100, 64kb, 1mb or 1gb. Without the b, units are powers of 1000
// instead of 1024 (memtoull in Redis' util.c).
std::optional<std::int64_t> ParseBytes(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  std::int64_t unit = 0;
  for (const auto& [suffix, bytes] : {std::pair<std::string_view, std::int64_t>("", 1),
                                      {"b", 1},
                                      {"k", 1000},
                                      {"kb", 1 << 10},
                                      {"m", 1'000'000},
                                      {"mb", 1 << 20},
                                      {"g", 1'000'000'000},
                                      {"gb", 1 << 30}}) {
    if (absl::EqualsIgnoreCase(ToAbsl(text.substr(end)), ToAbsl(suffix))) unit = bytes;
  }
  const auto number = ParseInteger(text.substr(0, end));
  if (!number || unit == 0 || *number > (std::int64_t{1} << 50) / unit) return std::nullopt;
  return *number * unit;
}
// Refuses limits below kLeast, with which a client could not even change them again.
template <auto Member, std::int64_t kLeast>
bool SetBytes(Settings& settings, std::string_view value) {
  const auto bytes = ParseBytes(value);
  if (!bytes || *bytes < kLeast) return false;
  (settings.*Member).store(*bytes);
  return true;
}

constexpr std::array<std::string_view, 3> kFsyncs = {"always", "everysec", "no"};
constexpr const char* kOneOf = "argument(s) must be one of the following: always, everysec, no";

bool SetFsync(Settings& settings, std::string_view value) {
  for (std::size_t i = 0; i < kFsyncs.size(); ++i) {
    if (kFsyncs[i] != value) continue;
    settings.fsync = static_cast<Fsync>(i);
    return true;
  }
  return false;
}
bool SetProtected(Settings& settings, std::string_view value) {
  if (value != "yes" && value != "no") return false;
  settings.is_protected = value == "yes";
  return true;
}
bool SetPassword(Settings& settings, std::string_view value) {
  if (value.size() > UserTable::kPasswordMax) return false;
  settings.set_password(value);
  return true;
}
std::string PortText(int port) { return std::to_string(port == kNoPort ? 0 : port); }
bool SetLevel(Settings& settings, std::string_view value) {
  const auto level = ParseLogLevel(value);
  if (level) settings.log_level = *level;
  return level.has_value();
}
bool AcceptsEmpty(Settings&, std::string_view value) { return value.empty(); }

}  // namespace

const std::vector<SettingName>& SettingNames() {
  using S = Settings;
  static const std::vector<SettingName> names = {
      {"appendfsync", [](const S& s) { return std::string(kFsyncs[static_cast<std::size_t>(s.fsync.load())]); }, SetFsync, kOneOf},
      {"appendonly", [](const S& s) { return std::string(s.has_file() ? "yes" : "no"); }, nullptr},
      {"backup-dir", [](const S& s) { return s.backup_dir; }, nullptr},
      {"bind", [](const S& s) { return s.bind; }, nullptr},
      {"client-output-buffer-limit", GetNumber<&S::output_max>, SetBytes<&S::output_max, 16 << 10>,
       "argument must be a memory value of at least 16kb"},
      {"client-query-buffer-limit", GetNumber<&S::request_max>, SetBytes<&S::request_max, 1 << 20>,
       "argument must be a memory value of at least 1mb"},
      {"databases", [](const S&) { return std::string("1"); }, nullptr},
      {"dbfilename", [](const S& s) { return s.database; }, nullptr},
      {"loglevel", [](const S& s) { return std::string(LogLevelName(s.log_level)); }, SetLevel,
       "argument(s) must be one of the following: debug, info, warning, error"},
      {"maxclients", GetNumber<&S::clients_max>, SetNumber<&S::clients_max, 1>},
      {"maxmemory", GetNumber<&S::memory_max>, SetBytes<&S::memory_max, 0>, "argument must be a memory value", true},
      {"maxmemory-policy", [](const S& s) { return std::string(s.eviction_policy()); }, nullptr},
      {"metrics-bind", [](const S& s) { return s.metrics_bind; }, nullptr},
      {"metrics-port", [](const S& s) { return PortText(s.metrics_port); }, nullptr},
      {"port", [](const S& s) { return PortText(s.port); }, nullptr},
      {"proto-max-bulk-len", GetNumber<&S::bulk_max>, SetBytes<&S::bulk_max, 1 << 20>, "argument must be a memory value of at least 1mb"},
      {"protected-mode", [](const S& s) { return std::string(s.is_protected ? "yes" : "no"); }, SetProtected,
       "argument must be 'yes' or 'no'"},
      {"requirepass", [](const S& s) { return s.password(); }, SetPassword, "a password has at most 16 KiB"},
      {"save", [](const S&) { return std::string(); }, AcceptsEmpty, "there are no snapshots to schedule; see appendfsync"},
      {"slowlog-log-slower-than", GetNumber<&S::slow_microseconds>, SetNumber<&S::slow_microseconds, -1>},
      {"slowlog-max-len", GetNumber<&S::slow_log_size>, SetNumber<&S::slow_log_size>},
      {"table", [](const S& s) { return s.table; }, nullptr},
      {"threads", [](const S& s) { return std::to_string(s.threads); }, nullptr},
      {"timeout", GetNumber<&S::idle_seconds>, SetNumber<&S::idle_seconds>},
      {"tls-auth-clients", [](const S& s) { return s.tls.auth_clients; }, nullptr},
      {"tls-ca-cert-file", [](const S& s) { return s.tls.ca_cert_file; }, nullptr},
      {"tls-cert-file", [](const S& s) { return s.tls.cert_file; }, nullptr},
      {"tls-handshake-timeout", GetNumber<&S::handshake_seconds>, SetNumber<&S::handshake_seconds, 1>},
      {"tls-key-file", [](const S& s) { return s.tls.key_file; }, nullptr},
      {"tls-port", [](const S& s) { return PortText(s.tls_port); }, nullptr},
      {"tls-protocols", [](const S& s) { return s.tls.protocols; }, nullptr},
  };
  return names;
}

}  // namespace hako::server
