// TlsContext: certificate, key and rules of the port with TLS (OpenSSL).
//
// TLS 1.2 and 1.3 alone; no renegotiation, no compression, no resumption: each connection makes a whole
// handshake, so a client's certificate is checked each time.
//
// Threads: immutable.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/sync/mutex.h"

struct ssl_ctx_st;  // SSL_CTX

namespace hako::server {

struct TlsOptions {  // by the names of Redis
  std::string cert_file, key_file, ca_cert_file;
  std::string auth_clients = "yes";  // no, optional, yes: whether a client needs a certificate of the CA
  std::string protocols = "TLSv1.2 TLSv1.3";
};

class TlsContext {
 public:
  // Loads and checks all that the options name. The error names the file.
  static StatusOr<std::shared_ptr<const TlsContext>> Load(const TlsOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  TlsContext();
  Status SetProtocols(std::string_view protocols);
  Status UseCertificate(const TlsOptions& options);
  Status CheckClients(const TlsOptions& options);

  ssl_ctx_st* const context_;
};

// The context for new connections. It is replaced when its files change, so that a renewed certificate
// needs no restart. Thread-safe.
class TlsContextHolder {
 public:
  // Loads the first one.
  Status Open(const TlsOptions& options);
  // Loads another if a file has changed since the last that was loaded. If that fails the present one
  // stays, and the error is returned once for each change. *is_loaded: there is another.
  Status Refresh(bool* is_loaded);
  std::shared_ptr<const TlsContext> Get() const {
    sync::MutexLock lock(mutex_);
    return context_;
  }

 private:
  TlsOptions options_;
  std::string stamp_;  // of the files that were loaded, or could not be
  mutable sync::Mutex mutex_;
  std::shared_ptr<const TlsContext> context_ ABSL_GUARDED_BY(mutex_);
};

// The oldest error of OpenSSL in this thread, in words.
std::string TlsErrorText();

}  // namespace hako::server
