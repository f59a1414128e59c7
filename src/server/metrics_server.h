// MetricsServer: figures of the server for Prometheus, over HTTP/1.1: GET /metrics, and nothing else.
//
// Invariants
//   1. One request a connection: it is closed behind the reply, whatever that is.
//   2. A connection holds kRequestMax bytes of its request and one reply, lives kSecondsMax at most,
//      and there are kConnectionsMax at most; another one is closed at once.
//   3. A malformed request gets 400, an unknown path 404, another method 405.
//
// Threads: that of the loop.
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

  // Serves on this address. The port may be kAnyPort; the log shows the one that it is.
  Status Listen(const std::string& address, int port);
  // Closes the socket and all connections, soon: the loop must run until they are gone.
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

// The status line that a request deserves: 200 if it asks for the metrics; 0 if its head is incomplete.
int StatusOfRequest(std::string_view request);

}  // namespace hako::server
