// TlsContext: the certificate, key and rules of the TLS port (OpenSSL).
//
// Only TLS 1.2 and 1.3; no renegotiation, no compression, no resumption. Each connection makes a full
// handshake, so a client's certificate is checked each time.
//
// Immutable, so thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/sync/mutex.h"

struct ssl_ctx_st;  // SSL_CTX

namespace hako::server {

struct TlsOptions {  // named as in Redis
  std::string cert_file, key_file, ca_cert_file;
  std::string auth_clients = "yes";  // no, optional, yes: whether a client needs a certificate of the CA
  std::string protocols = "TLSv1.2 TLSv1.3";
};

class TlsContext {
 public:
  // Loads and checks all files that the options name. Errors name the file.
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

// The context for new connections. It is replaced when its files change, so a renewed certificate
// needs no restart. Thread-safe.
class TlsContextHolder {
 public:
  // Loads the first context.
  Status Open(const TlsOptions& options);
  // Loads a new context if a file has changed since the last load, and sets *is_loaded. If that
  // fails, keeps the present context, and returns the error once for each change.
  Status Refresh(bool* is_loaded);
  std::shared_ptr<const TlsContext> Get() const {
    sync::MutexLock lock(mutex_);
    return context_;
  }

 private:
  TlsOptions options_;
  std::string stamp_;  // identifies the files that were loaded, or that failed to load
  mutable sync::Mutex mutex_;
  std::shared_ptr<const TlsContext> context_ ABSL_GUARDED_BY(mutex_);
};

// Returns the oldest error of OpenSSL in this thread, in words.
std::string TlsErrorText();

}  // namespace hako::server
