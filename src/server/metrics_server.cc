// Definitions of server/metrics_server.h.
#include "server/metrics_server.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/command.h"
#include "server/metrics.h"
#include "server/open_options.h"
#include "server/server_log.h"

namespace hako::server {

namespace {

// Removes the part of *text up to the first `end`, and returns it without `end`. Returns all of
// *text if it has no `end`.
std::string_view Cut(std::string_view* text, std::string_view end) {
  const std::size_t at = std::min(text->find(end), text->size());
  const std::string_view piece = text->substr(0, at);
  text->remove_prefix(std::min(at + end.size(), text->size()));
  return piece;
}

// Whether a line may have these bytes.
bool IsText(std::string_view bytes) {
  for (const char c : bytes) {
    if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f') return false;
  }
  return true;
}
// Whether these bytes may be a name or a target.
bool IsVisible(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c > '~') return false;
  }
  return !text.empty();
}

std::string Reply(int status, const ServerState& state) {
  std::string body;
  if (status == 200) body = MetricsText(state);
  const char* const reason = status == 200   ? "OK"
                             : status == 404 ? "Not Found"
                             : status == 405 ? "Method Not Allowed\r\nAllow: GET"
                                             : "Bad Request";
  return absl::StrCat("HTTP/1.1 ", status, " ", reason,
                      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

int StatusOfRequest(std::string_view request) {
  const std::size_t line_end = request.find("\r\n"), end = request.find("\r\n\r\n");
  std::string_view line = request.substr(0, line_end);
  if (line_end == request.npos) {  // a client of another protocol may never send a line
    if (line.ends_with('\r')) line.remove_suffix(1);
    return IsText(line) && request.size() < MetricsServer::kRequestMax ? 0 : 400;
  }
  const std::string_view method = Cut(&line, " "), target = Cut(&line, " ");
  if (!IsVisible(method) || !IsVisible(target) || (line != "HTTP/1.1" && line != "HTTP/1.0")) return 400;
  if (end == request.npos) return request.size() < MetricsServer::kRequestMax ? 0 : 400;
  bool has_host = line == "HTTP/1.0";
  std::string_view head = request.substr(0, end);
  for (Cut(&head, "\r\n"); !head.empty();) {
    std::string_view value = Cut(&head, "\r\n");
    const std::string_view name = Cut(&value, ":");
    if (!IsVisible(name) || value.data() == name.data() + name.size() || !IsText(value)) return 400;
    has_host |= absl::EqualsIgnoreCase(ToAbsl(name), "host");
    const bool has_body =
        absl::EqualsIgnoreCase(ToAbsl(name), "content-length") || absl::EqualsIgnoreCase(ToAbsl(name), "transfer-encoding");
    if (has_body && method == "GET") return 400;
  }
  if (!has_host) return 400;
  if (method != "GET") return 405;
  return target == "/metrics" ? 200 : 404;
}

// The connection of one client. It deletes itself.
class MetricsServer::Connection {
 public:
  explicit Connection(MetricsServer* server) : server_(*server) {
    uv_tcp_init(server_.loop_, &socket_);
    uv_timer_init(server_.loop_, &timer_);
    socket_.data = timer_.data = write_.data = this;
    server_.connections_.insert(this);
  }
  void Start() {
    if (uv_accept(reinterpret_cast<uv_stream_t*>(&server_.socket_), stream()) != 0) return Close();
    uv_timer_start(
        &timer_, [](uv_timer_t* timer) { Of(timer).Close(); }, kSecondsMax * 1000, 0);
    uv_read_start(stream(), OnAllocate, OnRead);
  }
  void Close() {
    if (is_closing_) return;
    is_closing_ = true;
    server_.connections_.erase(this);
    uv_close(reinterpret_cast<uv_handle_t*>(&socket_), OnClosed);
    uv_close(reinterpret_cast<uv_handle_t*>(&timer_), OnClosed);
  }

 private:
  static Connection& Of(void* handle) { return *static_cast<Connection*>(static_cast<uv_handle_t*>(handle)->data); }
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&socket_); }

  static void OnAllocate(uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
    Connection& self = Of(handle);
    *buffer = uv_buf_init(self.request_ + self.size_, static_cast<unsigned>(kRequestMax - self.size_));
  }
  static void OnRead(uv_stream_t* stream, ssize_t size, const uv_buf_t*) {
    Connection& self = Of(stream);
    if (size < 0) return self.Close();
    self.size_ += static_cast<std::size_t>(size);
    const int status = StatusOfRequest({self.request_, self.size_});
    if (status == 0) return;
    uv_read_stop(stream);
    try {
      self.reply_ = Reply(status, self.server_.state_);
    } catch (const std::bad_alloc&) {
      return self.Close();
    }
    const uv_buf_t buffer = uv_buf_init(self.reply_.data(), static_cast<unsigned>(self.reply_.size()));
    if (uv_write(&self.write_, stream, &buffer, 1, [](uv_write_t* write, int) { static_cast<Connection*>(write->data)->Close(); }) != 0)
      self.Close();
  }
  static void OnClosed(uv_handle_t* handle) {
    Connection& self = Of(handle);
    if (++self.num_closed_ == 2) delete &self;
  }

  MetricsServer& server_;
  uv_tcp_t socket_{};
  uv_timer_t timer_{};
  uv_write_t write_{};
  std::size_t size_ = 0;
  int num_closed_ = 0;
  bool is_closing_ = false;
  std::string reply_;
  char request_[kRequestMax];
};

Status MetricsServer::Listen(const std::string& address, int port) {
  HAKO_ASSIGN_OR_RETURN(SocketAddress place, ParseAddress("metrics-bind", address, static_cast<std::uint16_t>(port)));
  uv_tcp_init(loop_, &socket_);
  socket_.data = this;
  is_listening_ = true;
  int failed = uv_tcp_bind(&socket_, &place.any, 0);
  if (failed == 0) {
    failed = uv_listen(reinterpret_cast<uv_stream_t*>(&socket_), 64, [](uv_stream_t* stream, int status) {
      if (status == 0) static_cast<MetricsServer*>(stream->data)->Accept();
    });
  }
  if (failed != 0) return absl::ErrnoToStatus(-failed, absl::StrCat("metrics on ", address, " port ", port));
  int size = static_cast<int>(place.size());
  uv_tcp_getsockname(&socket_, &place.any, &size);
  const int real = ntohs(place.is_v4 ? place.v4.sin_port : place.v6.sin6_port);
  LogInfo(absl::StrCat("metrics on http://", place.is_v4 ? "" : "[", address, place.is_v4 ? ":" : "]:", real, "/metrics"));
  return absl::OkStatus();
}

void MetricsServer::Accept() {
  Connection* connection = nullptr;
  try {
    connection = new Connection(this);
  } catch (const std::bad_alloc&) {  // then the client waits until another one comes
    return;
  }
  connection->Start();
  if (connections_.size() > kConnectionsMax) connection->Close();
}

void MetricsServer::Close() {
  if (!std::exchange(is_listening_, false)) return;
  uv_close(reinterpret_cast<uv_handle_t*>(&socket_), nullptr);
  const std::vector<Connection*> all(connections_.begin(), connections_.end());
  for (Connection* const connection : all) connection->Close();
}

}  // namespace hako::server
