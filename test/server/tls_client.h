// A client of the port with TLS, and the client's side of a session in memory.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "server/certificates.h"
#include "server/resp_client.h"

namespace hako {

using TlsClientContext = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

// Trusts the CA; with a certificate if there is one.
inline TlsClientContext MakeTlsClientContext(const Certificate& ca, const Certificate* certificate = nullptr, int version = 0) {
  TlsClientContext context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (certificate != nullptr) {
    SSL_CTX_use_certificate(context.get(), certificate->get());
    SSL_CTX_use_PrivateKey(context.get(), certificate->key());
  }
  if (version != 0) {
    SSL_CTX_set_min_proto_version(context.get(), version);
    SSL_CTX_set_max_proto_version(context.get(), version);
  }
  return context;
}

class TlsClient : public RespClient {
 public:
  // Makes the handshake. In TLS 1.3 a server that refuses the client's certificate closes the session
  // after it.
  TlsClient(std::uint16_t port, SSL_CTX* context) : RespClient(port), ssl_(SSL_new(context), &SSL_free) {
    SSL_set_fd(ssl_.get(), socket_number());
    if (SSL_connect(ssl_.get()) != 1) is_open_ = false;
  }
  SSL* ssl() const { return ssl_.get(); }

 protected:
  ssize_t SendSome(std::string_view bytes) override {
    std::size_t sent = 0;
    return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent) == 1 ? static_cast<ssize_t>(sent) : -1;
  }
  ssize_t ReceiveSome(char* buffer, std::size_t size) override {
    std::size_t received = 0;
    return SSL_read_ex(ssl_.get(), buffer, size, &received) == 1 ? static_cast<ssize_t>(received) : -1;
  }

 private:
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

}  // namespace hako
