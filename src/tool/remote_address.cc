#include "tool/remote_address.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hako::tool {
namespace {

constexpr std::string_view kSchemes[] = {"redis://", "rediss://", "unix://"};

// The text with %XX decoded; nullopt if that is malformed, or a NUL.
std::optional<std::string> Decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned value = 0;
    for (const std::size_t at : {i + 1, i + 2}) {
      if (at >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[at]))) return std::nullopt;
      const char digit = absl::ascii_tolower(static_cast<unsigned char>(text[at]));
      value = value * 16 + static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (value == 0) return std::nullopt;
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

// What precedes the mark, which is removed with it; all of the text if there is none.
std::string_view Cut(std::string_view* text, char mark) {
  const std::size_t at = text->find(mark);
  const std::string_view piece = text->substr(0, at);
  *text = at == text->npos ? std::string_view() : text->substr(at + 1);
  return piece;
}

Status Mistake(std::string_view what) { return absl::InvalidArgumentError(ToAbsl(what)); }

Status TakeLogin(std::string_view login, RemoteAddress* address) {
  const bool has_colon = login.find(':') != login.npos;
  std::string_view rest = login;
  const auto user = has_colon ? Decoded(Cut(&rest, ':')) : Decoded(login), password = has_colon ? Decoded(rest) : std::string();
  if (!user || !password) return Mistake("malformed %XX in user or password");
  if (!has_colon) return Mistake("a login is USER:PASSWORD, or :PASSWORD");
  address->user = *user;
  address->password = *password;
  return absl::OkStatus();
}

Status TakeHost(std::string_view text, RemoteAddress* address) {
  const bool is_v6 = text.starts_with('[');
  const std::size_t end = is_v6 ? text.find(']') : text.find(':');
  if (is_v6 && end == text.npos) return Mistake("] is missing");
  address->host = text.substr(is_v6 ? 1 : 0, is_v6 ? end - 1 : end);
  const std::string_view rest = end == text.npos ? std::string_view() : text.substr(is_v6 ? end + 1 : end);
  if (address->host.empty()) return Mistake("no host");
  if (rest.empty()) return absl::OkStatus();
  if (rest[0] != ':' || !absl::SimpleAtoi(ToAbsl(rest.substr(1)), &address->port) || address->port < 1 || address->port > 65535)
    return Mistake("a port is a number of 1 to 65535");
  return absl::OkStatus();
}

Status TakeFiles(std::string_view query, RemoteAddress* address) {
  while (!query.empty()) {
    std::string_view value = Cut(&query, '&');
    const std::string_view name = Cut(&value, '=');
    std::string* const file = name == "cacert" ? &address->ca_cert_file
                              : name == "cert" ? &address->cert_file
                              : name == "key"  ? &address->key_file
                                               : nullptr;
    const auto decoded = Decoded(value);
    if (file == nullptr || !address->is_tls) return Mistake("options are cacert, cert and key, of rediss:// alone");
    if (!decoded || decoded->empty()) return Mistake(absl::StrCat(ToAbsl(name), " names no file"));
    *file = *decoded;
  }
  return address->cert_file.empty() == address->key_file.empty() ? absl::OkStatus() : Mistake("cert and key belong together");
}

}  // namespace

bool RemoteAddress::IsOne(std::string_view text) {
  for (const std::string_view scheme : kSchemes) {
    if (text.starts_with(scheme)) return true;
  }
  return false;
}

StatusOr<RemoteAddress> RemoteAddress::Parse(std::string_view text) {
  RemoteAddress address;
  const std::size_t scheme_end = text.find("://") + 3;
  const std::string_view scheme = text.substr(0, scheme_end);
  address.is_tls = scheme == "rediss://";
  std::string_view rest = text.substr(scheme_end);
  std::string_view place = Cut(&rest, '?');
  if (const std::size_t at = place.rfind('@'); at != place.npos) {
    HAKO_RETURN_IF_ERROR(TakeLogin(place.substr(0, at), &address));
    place.remove_prefix(at + 1);
  }
  address.shown = absl::StrCat(ToAbsl(scheme), ToAbsl(place));
  if (scheme == "unix://") {
    const auto path = Decoded(place);
    if (!path || !path->starts_with('/')) return Mistake("the path of a socket begins with /");
    address.path = *path;
  } else {
    const std::string_view host = Cut(&place, '/');
    HAKO_RETURN_IF_ERROR(TakeHost(host, &address));
    if (!place.empty() && place != "0") return Mistake("the server has one database, /0");
  }
  HAKO_RETURN_IF_ERROR(TakeFiles(rest, &address));
  if (const char* const variable = std::getenv("REDISCLI_AUTH"); address.password.empty() && variable != nullptr)
    address.password = variable;
  return address;
}

}  // namespace hako::tool
