// Definitions of server/tls_session.h.
#include "server/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "server/tls_context.h"

namespace hako::server {

// The functions of the BIO.
struct TlsSessionBio {
  static TlsSession& Of(BIO* bio) { return *static_cast<TlsSession*>(BIO_get_data(bio)); }
  static int Read(BIO* bio, char* to, std::size_t size, std::size_t* read) {
    std::string_view& incoming = Of(bio).incoming_;
    BIO_clear_retry_flags(bio);
    *read = std::min(size, incoming.size());
    if (*read == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    std::memcpy(to, incoming.data(), *read);
    incoming.remove_prefix(*read);
    return 1;
  }
  static int Write(BIO* bio, const char* bytes, std::size_t size, std::size_t* written) {
    BIO_clear_retry_flags(bio);
    *written = 0;
    try {
      Of(bio).out_.Append({bytes, size});
    } catch (const std::bad_alloc&) {
      return 0;
    }
    *written = size;
    return 1;
  }
  static long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO* Make(TlsSession* session) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hako-server");
      if (made == nullptr) throw std::bad_alloc();
      BIO_meth_set_read_ex(made, &Read);
      BIO_meth_set_write_ex(made, &Write);
      BIO_meth_set_ctrl(made, &Control);
      return made;
    }();
    BIO* const bio = BIO_new(method);
    if (bio == nullptr) return nullptr;
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    return bio;
  }
};

TlsSession::TlsSession(const TlsContext& context) : ssl_(SSL_new(context.get())) {
  BIO* const bio = ssl_ != nullptr ? TlsSessionBio::Make(this) : nullptr;
  if (bio == nullptr) {
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_accept_state(ssl_);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

TlsSession::State TlsSession::Receive(std::string_view bytes, OutputBuffer* plain) {
  static constexpr std::size_t kRecordMax = 16 << 10;
  incoming_ = bytes;
  has_received_ = true;
  ERR_clear_error();
  if (state_ == State::kHandshake) {
    if (const int result = SSL_do_handshake(ssl_); result == 1)
      state_ = State::kOpen;
    else if (SSL_get_error(ssl_, result) != SSL_ERROR_WANT_READ)
      return Fail();
  }
  while (state_ == State::kOpen) {
    std::size_t size = 0;
    char* const room = plain->Reserve(kRecordMax);
    if (SSL_read_ex(ssl_, room, kRecordMax, &size) == 1) {
      plain->Extend(size);
      continue;
    }
    const int error = SSL_get_error(ssl_, 0);
    if (error == SSL_ERROR_WANT_READ) break;
    if (error != SSL_ERROR_ZERO_RETURN) return Fail();
    state_ = State::kEnded;
  }
  incoming_ = {};
  return state_;
}

TlsSession::State TlsSession::Fail() {
  const bool was_in_handshake = state_ == State::kHandshake;
  incoming_ = {};
  state_ = State::kFailed;
  const int reason = ERR_GET_REASON(ERR_peek_error());
  error_ = TlsErrorText();
  if (const long verified = SSL_get_verify_result(ssl_); verified != X509_V_OK)
    error_ += std::string(": ") + X509_verify_cert_error_string(verified);
  if (was_in_handshake && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_UNEXPECTED_MESSAGE))
    error_ += "; the client may not use TLS";
  ERR_clear_error();
  return state_;
}

bool TlsSession::Encrypt(std::string_view plain) {
  if (state_ != State::kOpen && state_ != State::kEnded) return false;
  if (plain.empty()) return true;
  ERR_clear_error();
  std::size_t written = 0;
  if (!is_closed_ && SSL_write_ex(ssl_, plain.data(), plain.size(), &written) == 1 && written == plain.size()) return true;
  Fail();
  return false;
}

void TlsSession::Close() {
  if (is_closed_ || (state_ != State::kOpen && state_ != State::kEnded)) return;
  is_closed_ = true;
  ERR_clear_error();
  SSL_shutdown(ssl_);
}

}  // namespace hako::server
