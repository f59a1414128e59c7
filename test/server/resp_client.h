// A client of the server: a connection to a TCP port or a UNIX socket of this machine, which reads
// replies as the bytes that they are. Blocking, with a timeout.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hako {

class RespClient {
 public:
  using Words = std::vector<std::string>;

  // Without a connection if that fails.
  explicit RespClient(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  explicit RespClient(const std::string& path) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  RespClient(RespClient&& other) noexcept
      : is_open_(other.is_open_), socket_(std::exchange(other.socket_, -1)), bytes_(std::move(other.bytes_)) {}
  virtual ~RespClient() {
    if (socket_ >= 0) close(socket_);
  }

  bool is_open() const { return is_open_; }
  int socket_number() const { return socket_; }

  static std::string Encode(const Words& words) {
    std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
    for (const std::string& word : words) bytes += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    return bytes;
  }
  void Send(std::string_view bytes) {
    while (is_open_ && !bytes.empty()) {
      const ssize_t sent = SendSome(bytes);
      if (sent <= 0)
        is_open_ = false;
      else
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // The next reply, with all elements of an aggregate; "" once the connection is closed.
  std::string Read() {
    std::size_t end = 0;
    if (!FindEnd(&end)) return "";
    std::string reply = bytes_.substr(0, end);
    bytes_.erase(0, end);
    return reply;
  }
  // The texts of a reply, in order.
  static std::vector<std::string> Bulks(const std::string& reply) {
    std::vector<std::string> bulks;
    for (std::size_t at = reply.find('$'); at != std::string::npos; at = reply.find('$', at)) {
      const auto size = static_cast<std::size_t>(std::atoi(reply.c_str() + at + 1));
      at = reply.find("\r\n", at) + 2;
      bulks.push_back(reply.substr(at, size));
      at += size;
    }
    return bulks;
  }
  // Sends requests that it reads no replies of, up to 100 times, until the server takes no more for 0.1 s.
  void SendWithoutReading(std::string_view requests) {
    const timeval briefly{.tv_sec = 0, .tv_usec = 100'000};
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &briefly, sizeof(briefly));
    for (int i = 0; i < 100 && is_open_; ++i) Send(requests);
  }
  // All bytes until the connection is closed.
  std::string ReadAll() {
    while (Receive()) {
    }
    return std::exchange(bytes_, {});
  }
  std::string Run(const Words& words) {
    Send(Encode(words));
    return Read();
  }

 protected:
  virtual ssize_t SendSome(std::string_view bytes) { return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  virtual ssize_t ReceiveSome(char* buffer, std::size_t size) { return recv(socket_, buffer, size, 0); }

  bool is_open_ = false;

 private:
  void Connect(const sockaddr* address, socklen_t size) {
    const timeval limit{.tv_sec = 30, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    is_open_ = connect(socket_, address, size) == 0;
  }
  bool Receive() {
    char buffer[64 << 10];
    const ssize_t size = is_open_ ? ReceiveSome(buffer, sizeof(buffer)) : 0;
    if (size > 0)
      bytes_.append(buffer, static_cast<std::size_t>(size));
    else
      is_open_ = false;
    return size > 0;
  }
  // Moves *end behind the value that begins there.
  bool FindEnd(std::size_t* end) {
    std::size_t line = bytes_.find("\r\n", *end);
    while (line == std::string::npos) {
      if (!Receive()) return false;
      line = bytes_.find("\r\n", *end);
    }
    const char type = bytes_[*end];
    const long long number = std::atoll(bytes_.c_str() + *end + 1);
    *end = line + 2;
    if (type == '$' || type == '=') {
      if (number < 0) return true;
      *end += static_cast<std::size_t>(number) + 2;
      while (bytes_.size() < *end) {
        if (!Receive()) return false;
      }
    } else if (type == '*' || type == '~' || type == '%') {
      for (long long i = 0; i < (type == '%' ? 2 * number : number); ++i) {
        if (!FindEnd(end)) return false;
      }
    }
    return true;
  }

  int socket_;
  std::string bytes_;
};

}  // namespace hako
