#include "tool/remote_client.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#if defined(HAKO_TOOL_HAS_HIREDIS)
#include <hiredis/hiredis.h>

#include <cerrno>
#endif
#if defined(HAKO_TOOL_HAS_HIREDIS) && defined(HAKO_TOOL_HAS_SSL)
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#endif

namespace hako::tool {

#if defined(HAKO_TOOL_HAS_HIREDIS)

namespace {

constexpr timeval kConnectLimit = {.tv_sec = 10, .tv_usec = 0}, kReplyLimit = {.tv_sec = 60, .tv_usec = 0};

Status Lost(std::string_view why) { return absl::UnavailableError(absl::StrCat("the connection is lost: ", ToAbsl(why))); }

// An error that the server has replied.
Status ErrorOf(std::string_view text) {
  const absl::string_view message = ToAbsl(text);
  if (text.starts_with("NOAUTH") || text.starts_with("WRONGPASS") || text.starts_with("NOPERM") || text.starts_with("DENIED") ||
      text.find("AUTH <password>") != text.npos)
    return absl::PermissionDeniedError(message);
  if (text.starts_with("ERR unknown command")) return absl::UnimplementedError(message);
  return absl::AbortedError(message);
}

RemoteReply Converted(const redisReply& reply) {
  RemoteReply converted;
  switch (reply.type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:  // of a command of EXEC
      converted.type = RemoteReply::Type::kText;
      converted.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_INTEGER:
      converted.type = RemoteReply::Type::kInteger;
      converted.integer = reply.integer;
      break;
    case REDIS_REPLY_ARRAY:
      converted.type = RemoteReply::Type::kArray;
      for (std::size_t i = 0; i < reply.elements; ++i) converted.elements.push_back(Converted(*reply.element[i]));
      break;
    default:
      break;
  }
  return converted;
}

}  // namespace

struct RemoteClient::Connection {
  redisContext* context = nullptr;
  std::string unsent;  // with TLS
#if defined(HAKO_TOOL_HAS_SSL)
  SSL_CTX* tls_context = nullptr;
  SSL* tls = nullptr;
#endif

  Connection() = default;
  Connection(const Connection&) = delete;
  ~Connection() {
#if defined(HAKO_TOOL_HAS_SSL)
    if (tls != nullptr) SSL_shutdown(tls);
    SSL_free(tls);
    SSL_CTX_free(tls_context);
#endif
    if (context != nullptr) redisFree(context);
  }

  Status Open(const RemoteAddress& address) {
    context = address.path.empty() ? redisConnectWithTimeout(address.host.c_str(), address.port, kConnectLimit)
                                   : redisConnectUnixWithTimeout(address.path.c_str(), kConnectLimit);
    if (context == nullptr) return absl::ResourceExhaustedError("out of memory");
    if (context->err != 0) return absl::UnavailableError(absl::StrCat("cannot connect: ", context->errstr));
    redisSetTimeout(context, kReplyLimit);
    return address.is_tls ? BeginTls(address) : absl::OkStatus();
  }

  Status BeginTls(const RemoteAddress& address);
  Status SendTls();
  Status ReceiveTls(void** reply);
};

#if defined(HAKO_TOOL_HAS_SSL)

namespace {

std::string TlsError() {
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  return reason != nullptr ? reason : "unknown error";
}

}  // namespace

Status RemoteClient::Connection::BeginTls(const RemoteAddress& address) {
  ERR_clear_error();
  tls_context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(tls_context, TLS1_2_VERSION);
  SSL_CTX_set_verify(tls_context, SSL_VERIFY_PEER, nullptr);
  const std::string &ca = address.ca_cert_file, &cert = address.cert_file, &key = address.key_file;
  if ((ca.empty() ? SSL_CTX_set_default_verify_paths(tls_context) : SSL_CTX_load_verify_locations(tls_context, ca.c_str(), nullptr)) != 1)
    return absl::InvalidArgumentError(absl::StrCat("cacert ", ca, ": it cannot be read, or is no certificate (PEM)"));
  if (!cert.empty() && (SSL_CTX_use_certificate_chain_file(tls_context, cert.c_str()) != 1 ||
                        SSL_CTX_use_PrivateKey_file(tls_context, key.c_str(), SSL_FILETYPE_PEM) != 1))
    return absl::InvalidArgumentError(absl::StrCat("cert ", cert, " and key ", key, ": ", TlsError()));
  tls = SSL_new(tls_context);
  SSL_set_fd(tls, context->fd);
  SSL_set1_host(tls, address.host.c_str());
  if (address.host.find(':') == address.host.npos) SSL_set_tlsext_host_name(tls, address.host.c_str());
  if (SSL_connect(tls) == 1) return absl::OkStatus();
  const long verified = SSL_get_verify_result(tls);
  return absl::UnavailableError(
      absl::StrCat("the TLS handshake failed: ", verified != X509_V_OK ? X509_verify_cert_error_string(verified) : TlsError()));
}

Status RemoteClient::Connection::SendTls() {
  std::size_t written = 0;
  ERR_clear_error();
  const bool is_sent = unsent.empty() || SSL_write_ex(tls, unsent.data(), unsent.size(), &written) == 1;
  unsent.clear();
  return is_sent ? absl::OkStatus() : Lost(TlsError());
}

Status RemoteClient::Connection::ReceiveTls(void** reply) {
  HAKO_RETURN_IF_ERROR(SendTls());
  while (redisReaderGetReply(context->reader, reply) == REDIS_OK) {
    if (*reply != nullptr) return absl::OkStatus();
    char buffer[16 << 10];
    std::size_t size = 0;
    ERR_clear_error();
    if (SSL_read_ex(tls, buffer, sizeof(buffer), &size) != 1) {
      const int error = SSL_get_error(tls, 0);
      return Lost(error == SSL_ERROR_WANT_READ ? "no reply within 60 seconds"
                  : error == SSL_ERROR_SSL     ? TlsError()
                                               : "the server closed it");
    }
    redisReaderFeed(context->reader, buffer, size);
  }
  return Lost(redisReaderGetError(context->reader));
}

#else

Status RemoteClient::Connection::BeginTls(const RemoteAddress&) { return absl::UnimplementedError("hako was built without TLS (libssl)"); }
Status RemoteClient::Connection::SendTls() { return absl::OkStatus(); }
Status RemoteClient::Connection::ReceiveTls(void**) { return absl::OkStatus(); }

#endif

StatusOr<std::unique_ptr<RemoteClient>> RemoteClient::Connect(const RemoteAddress& address) {
  auto connection = std::make_unique<Connection>();
  HAKO_RETURN_IF_ERROR(connection->Open(address));
  std::unique_ptr<RemoteClient> client(new RemoteClient(std::move(connection)));
  if (!address.user.empty()) {
    HAKO_RETURN_IF_ERROR(client->Run({"AUTH", address.user, address.password}).status());
  } else if (!address.password.empty()) {
    HAKO_RETURN_IF_ERROR(client->Run({"AUTH", address.password}).status());
  }
  return client;
}

void RemoteClient::Add(std::span<const std::string_view> words) {
  std::vector<const char*> bytes;
  std::vector<std::size_t> sizes;
  for (const std::string_view word : words) {
    bytes.push_back(word.data());
    sizes.push_back(word.size());
  }
#if defined(HAKO_TOOL_HAS_SSL)
  if (connection_->tls != nullptr) {
    char* request = nullptr;
    const int size = redisFormatCommandArgv(&request, static_cast<int>(words.size()), bytes.data(), sizes.data());
    if (size > 0) connection_->unsent.append(request, static_cast<std::size_t>(size));
    redisFreeCommand(request);
    return;
  }
#endif
  redisAppendCommandArgv(connection_->context, static_cast<int>(words.size()), bytes.data(), sizes.data());
}

StatusOr<RemoteReply> RemoteClient::Receive() {
  redisContext* const context = connection_->context;
  void* raw = nullptr;
#if defined(HAKO_TOOL_HAS_SSL)
  if (connection_->tls != nullptr) HAKO_RETURN_IF_ERROR(connection_->ReceiveTls(&raw));
#endif
  if (raw == nullptr && redisGetReply(context, &raw) != REDIS_OK) {
    const bool is_late = context->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
    return Lost(is_late ? "no reply within 60 seconds" : context->errstr);
  }
  const std::unique_ptr<void, void (*)(void*)> reply(raw, &freeReplyObject);
  const auto& read = *static_cast<const redisReply*>(raw);
  if (read.type == REDIS_REPLY_ERROR) return ErrorOf({read.str, read.len});
  return Converted(read);
}

#else  // without hiredis

struct RemoteClient::Connection {};

StatusOr<std::unique_ptr<RemoteClient>> RemoteClient::Connect(const RemoteAddress&) {
  return absl::UnimplementedError("hako was built without a client of servers (libhiredis)");
}
void RemoteClient::Add(std::span<const std::string_view>) {}
StatusOr<RemoteReply> RemoteClient::Receive() { return RemoteReply(); }

#endif

RemoteClient::RemoteClient(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
RemoteClient::~RemoteClient() = default;

}  // namespace hako::tool
