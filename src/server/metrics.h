// The figures of a server in the text format of Prometheus, version 0.0.4. INFO shows most of them, too.
#pragma once

#include <string>

namespace hako::server {

struct ServerState;

std::string MetricsText(const ServerState& server);

}  // namespace hako::server
