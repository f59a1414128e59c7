// RemoteClient: a connection to a server, by hiredis, and with TLS by OpenSSL. Without these packages
// Connect returns Unimplemented.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "tool/remote_address.h"

namespace hako::tool {

struct RemoteReply {
  enum class Type { kText, kInteger, kNil, kArray };  // kText: also a status such as OK
  Type type = Type::kNil;
  std::string text;
  std::int64_t integer = 0;
  std::vector<RemoteReply> elements;

  bool is_nil() const { return type == Type::kNil; }
};

class RemoteClient {
 public:
  // Connects, and logs in. Unavailable: there is no such server; PermissionDenied: it refuses the login.
  static StatusOr<std::unique_ptr<RemoteClient>> Connect(const RemoteAddress& address);
  ~RemoteClient();
  RemoteClient(const RemoteClient&) = delete;

  // A request, which is sent with those before it by the next Receive.
  void Add(std::span<const std::string_view> words);
  // The next reply. A reply that is an error becomes a status: PermissionDenied if a login or a
  // permission is missing, Unimplemented if the server does not know the command, else Aborted.
  // Unavailable if the connection is lost.
  StatusOr<RemoteReply> Receive();
  StatusOr<RemoteReply> Run(std::initializer_list<std::string_view> words) {
    Add({words.begin(), words.size()});
    return Receive();
  }

 private:
  struct Connection;
  explicit RemoteClient(std::unique_ptr<Connection> connection);
  const std::unique_ptr<Connection> connection_;
};

}  // namespace hako::tool
