// MetricsServer: serves metrics to Prometheus over HTTP/1.1: GET /metrics, and nothing else.
//
// Invariants
//   1. A connection serves one request, and is closed after the reply.
//   2. A connection buffers at most kRequestMax bytes of its request and one reply, and lasts at most
//      kSecondsMax. There are at most kConnectionsMax connections; a further one is closed at once.
//   3. A malformed request gets 400, an unknown path 404, another method 405.
//
// Only the thread of the loop uses it.
#pragma once

#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "hako/base/status.h"

namespace hako::server {

struct ServerState;

class MetricsServer {
 public:
  static constexpr std::size_t kRequestMax = 8 << 10, kConnectionsMax = 16;
  static constexpr std::uint64_t kSecondsMax = 10;

  MetricsServer(uv_loop_t* loop, const ServerState& state) : loop_(loop), state_(state) {}
  MetricsServer(const MetricsServer&) = delete;

  // Listens on this address. The port may be kAnyPort; the log shows the port that was chosen.
  Status Listen(const std::string& address, int port);
  // Starts to close the socket and all connections; the loop must run until they are closed.
  void Close();

 private:
  class Connection;
  void Accept();

  uv_loop_t* const loop_;
  const ServerState& state_;
  uv_tcp_t socket_{};
  bool is_listening_ = false;
  std::unordered_set<Connection*> connections_;
};

// Returns the HTTP status for a request: 200 if it asks for the metrics, 0 if its head is
// incomplete.
int StatusOfRequest(std::string_view request);

}  // namespace hako::server
