// TlsSession: the TLS session of one connection, without its socket: it works on bytes in memory.
//
//   socket -> Receive -> plain bytes            plain bytes -> Encrypt -> out() -> socket
//
// Invariants
//   1. Receive consumes all its bytes. The bytes of an incomplete record stay in OpenSSL, which
//      buffers at most one record (16 KiB and its header).
//   2. Nothing is decrypted, and Encrypt is refused, before the handshake is complete.
//   3. After a failure the state stays kFailed; out() ends with the alert for the client.
//
// A custom BIO copies directly to and from these buffers. The memory BIO of OpenSSL would copy once more and
// never free its memory.
//
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "server/output_buffer.h"

struct bio_st;  // BIO
struct ssl_st;  // SSL

namespace hako::server {

class TlsContext;

class TlsSession {
 public:
  enum class State {
    kHandshake,
    kOpen,
    kEnded,   // the client has sent close_notify, and sends nothing more
    kFailed,  // error() has the reason
  };

  // May throw std::bad_alloc.
  explicit TlsSession(const TlsContext& context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;

  State state() const { return state_; }
  const std::string& error() const { return error_; }
  bool has_received() const { return has_received_; }  // whether any byte was received

  // Takes bytes from the socket. Appends the decrypted bytes to *plain, and replies of the protocol
  // to out(). May throw std::bad_alloc.
  State Receive(std::string_view bytes, OutputBuffer* plain);
  // Appends records with these bytes to out(). Returns false if the session is not open, or fails
  // now.
  bool Encrypt(std::string_view plain);
  // Appends close_notify to out() unless the session has failed or the handshake is incomplete.
  void Close();
  // The bytes for the socket. The caller consumes them.
  OutputBuffer& out() { return out_; }

 private:
  friend struct TlsSessionBio;
  State Fail();

  ssl_st* const ssl_;
  State state_ = State::kHandshake;
  bool is_closed_ = false, has_received_ = false;
  std::string_view incoming_;  // the unconsumed bytes of Receive
  OutputBuffer out_;
  std::string error_;
};

}  // namespace hako::server
