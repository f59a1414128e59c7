// The figures of a server in the text format of Prometheus, version 0.0.4. INFO shows most of them, too.
#pragma once

#include <string>
#include <string_view>

namespace hako::server {

struct ServerState;

std::string MetricsText(const ServerState& server);

// Escapes the value of a label: \, " and line feeds.
std::string EscapeLabel(std::string_view value);

}  // namespace hako::server
