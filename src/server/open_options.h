// Checks the database, the table and the addresses that the settings of a server name, without
// opening them.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "hako/base/status.h"
#include "hako/dbm/any_options.h"
#include "hako/table/table_dbm.h"
#include "server/settings.h"

namespace hako::server {

// Returns the options with which the database is opened, including the limit of maxmemory. A
// database without a name is in memory.
StatusOr<AnyOptions> DatabaseOptions(const Settings& settings);

struct TableFile {
  std::string path;
  TableOptions options;
};
// REQUIRES: settings.table is not empty
StatusOr<TableFile> TableFileOf(const Settings& settings);

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  bool is_v4;

  socklen_t size() const { return is_v4 ? sizeof(v4) : sizeof(v6); }
};
// Parses an address. `option` is named in the error.
StatusOr<SocketAddress> ParseAddress(const char* option, const std::string& text, std::uint16_t port);

// Checks everything that the settings name, including the certificate of TLS (--check-config).
Status CheckSettings(const Settings& settings);

}  // namespace hako::server
