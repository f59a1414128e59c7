// Definitions of server/open_options.h.
#include "server/open_options.h"

#include <arpa/inet.h>

#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/base/wall_clock.h"
#include "server/tls_context.h"

namespace hako::server {

namespace {

Status LimitMemory(const Settings& settings, AnyOptions* options) {
  const auto limit = static_cast<std::uint64_t>(settings.memory_max.load());
  if (limit == 0) return absl::OkStatus();
  const std::string_view kind = options->ResolvedKind();
  if (kind != AnyOptions::kTiny && kind != AnyOptions::kBaby)
    return absl::InvalidArgumentError("maxmemory requires a database in memory: ?dbm=tiny, ?dbm=baby or FILE.hks");
  if (options->capacity_bytes != 0 && options->capacity_bytes != limit)
    return absl::InvalidArgumentError("maxmemory and capacity_bytes of --db are different limits");
  options->capacity_bytes = limit;
  return absl::OkStatus();
}

}  // namespace

StatusOr<AnyOptions> DatabaseOptions(const Settings& settings) {
  HAKO_ASSIGN_OR_RETURN(AnyOptions options, ParseAnyOptions(settings.database.empty() ? "?dbm=tiny" : settings.database));
  if (options.path.ends_with(".hktb")) return absl::InvalidArgumentError(absl::StrCat("db: ", options.path, " is a table; use --table"));
  std::error_code ignored;
  const bool exists = !options.path.empty() && std::filesystem::exists(options.path, ignored);
  if (!exists && options.ResolvedKind() != AnyOptions::kArray) options.expiry = true;  // a new database keeps times
  options.clock = [] { return WallClock() / 1000; };                                   // precise to the millisecond, which PTTL shows
  options.keep_log = settings.fsync == Fsync::kAlways;                                 // so that a group commit is one sync of the log
  HAKO_RETURN_IF_ERROR(LimitMemory(settings, &options));
  HAKO_RETURN_IF_ERROR(options.Check());
  return options;
}

StatusOr<TableFile> TableFileOf(const Settings& settings) {
  HAKO_DCHECK(!settings.table.empty());
  HAKO_ASSIGN_OR_RETURN(const AnyOptions any, ParseAnyOptions(settings.table));
  if (!any.path.ends_with(".hktb") || any.ResolvedKind() != AnyOptions::kTree || !any.order.empty() || !any.codec.empty())
    return absl::InvalidArgumentError(absl::StrCat("table: ", settings.table, " is no table; use a name with the suffix .hktb"));
  TableFile file;
  file.path = any.path;
  file.options.tree = TreeOptionsOf(any);
  file.options.file = any.file;
  file.options.positional = any.device == "pos";
  return file;
}

StatusOr<SocketAddress> ParseAddress(const char* option, const std::string& text, std::uint16_t port) {
  SocketAddress address{};
  address.v4.sin_family = AF_INET;
  address.v4.sin_port = htons(port);
  address.is_v4 = inet_pton(AF_INET, text.c_str(), &address.v4.sin_addr) == 1;
  if (address.is_v4) return address;
  address.v6 = {};
  address.v6.sin6_family = AF_INET6;
  address.v6.sin6_port = htons(port);
  if (inet_pton(AF_INET6, text.c_str(), &address.v6.sin6_addr) == 1) return address;
  return absl::InvalidArgumentError(absl::StrCat(option, ": ", text, " is no IP address"));
}

Status CheckSettings(const Settings& settings) {
  HAKO_RETURN_IF_ERROR(DatabaseOptions(settings).status());
  if (!settings.table.empty()) HAKO_RETURN_IF_ERROR(TableFileOf(settings).status());
  std::istringstream words(settings.bind);
  int num_addresses = 0;
  for (std::string address; words >> address; ++num_addresses) HAKO_RETURN_IF_ERROR(ParseAddress("bind", address, 0).status());
  if (num_addresses == 0) return absl::InvalidArgumentError("bind: no address");
  if (settings.metrics_port != kNoPort) HAKO_RETURN_IF_ERROR(ParseAddress("metrics-bind", settings.metrics_bind, 0).status());
  if (settings.tls_port == kNoPort && settings.tls.cert_file.empty()) return absl::OkStatus();
  return TlsContext::Load(settings.tls).status();
}

}  // namespace hako::server
