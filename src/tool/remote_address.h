// The address of a server in place of a file: hako-server, or another that speaks the protocol of Redis.
//
//   redis://[[USER]:PASSWORD@]HOST[:PORT][/0]       HOST may be an IPv6 address in [ ]
//   rediss://...[?cacert=FILE&cert=FILE&key=FILE]   with TLS
//   unix://[[USER]:PASSWORD@]/PATH                  a socket of this machine
//
// User, password and path may contain %XX. A password that the address lacks is that of the variable
// REDISCLI_AUTH, if there is one: other users of the machine can read a command line.
#pragma once

#include <string>
#include <string_view>

#include "hako/base/status.h"

namespace hako::tool {

struct RemoteAddress {
  std::string user, password;
  std::string host, path;  // one of them
  int port = 6379;
  bool is_tls = false;
  std::string ca_cert_file, cert_file, key_file;
  std::string shown;  // as it was given, without user and password

  // Whether it begins as one of these.
  static bool IsOne(std::string_view text);
  // The message of an error does not contain the password.
  static StatusOr<RemoteAddress> Parse(std::string_view text);
};

}  // namespace hako::tool
