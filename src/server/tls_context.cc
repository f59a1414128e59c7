// Definitions of server/tls_context.h.
#include "server/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace hako::server {

namespace {

Status Refused(std::string_view option, std::string_view file, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(option), " ", ToAbsl(file), ": ", ToAbsl(why)));
}

std::string TimeText(const ASN1_TIME* time) {
  BIO* const memory = BIO_new(BIO_s_mem());
  char* text = nullptr;
  long size = 0;
  if (memory != nullptr && ASN1_TIME_print(memory, time) == 1) size = BIO_get_mem_data(memory, &text);
  std::string result(text != nullptr ? text : "", static_cast<std::size_t>(size));
  BIO_free(memory);
  return result;
}

// Refuses keys with a passphrase, for which a server cannot ask.
int NoPassphrase(char*, int, int, void*) { return -1; }

// Reads the key. Returns nullptr on an error.
std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> ReadKey(const std::string& path) {
  EVP_PKEY* key = nullptr;
  if (std::FILE* const file = std::fopen(path.c_str(), "re"); file != nullptr) {
    key = PEM_read_PrivateKey(file, nullptr, &NoPassphrase, nullptr);
    std::fclose(file);
  } else {
    ERR_raise(ERR_LIB_SYS, errno);
  }
  return {key, &EVP_PKEY_free};
}

// Returns a text that identifies the present content of the files.
std::string StampOf(const TlsOptions& options) {
  std::string stamp;
  for (const std::string& path : {options.cert_file, options.key_file, options.ca_cert_file}) {
    struct stat file = {};
    if (path.empty() || stat(path.c_str(), &file) != 0) continue;
    absl::StrAppend(&stamp, file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, " ", file.st_mtim.tv_nsec, ";");
  }
  return stamp;
}

}  // namespace

std::string TlsErrorText() {
  const unsigned long error = ERR_peek_error();
  if (ERR_SYSTEM_ERROR(error)) return std::strerror(ERR_GET_REASON(error));
  const char* const reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "unknown error";
}

TlsContext::TlsContext() : context_(SSL_CTX_new(TLS_server_method())) {
  if (context_ == nullptr) throw std::bad_alloc();
  SSL_CTX_set_options(context_, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context_, 0);
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS);  // so that an idle connection has no buffers
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsOptions& options) {
  ERR_clear_error();
  const std::shared_ptr<TlsContext> context(new TlsContext);
  HAKO_RETURN_IF_ERROR(context->SetProtocols(options.protocols));
  HAKO_RETURN_IF_ERROR(context->UseCertificate(options));
  HAKO_RETURN_IF_ERROR(context->CheckClients(options));
  return context;
}

Status TlsContext::SetProtocols(std::string_view protocols) {
  bool has_12 = false, has_13 = false;
  std::istringstream words{std::string(protocols)};
  for (std::string word; words >> word;) {
    if (word != "TLSv1.2" && word != "TLSv1.3")
      return absl::InvalidArgumentError(absl::StrCat("tls-protocols: TLSv1.2 and TLSv1.3, not '", word, "'"));
    (word == "TLSv1.2" ? has_12 : has_13) = true;
  }
  if (!has_12 && !has_13) return absl::InvalidArgumentError("tls-protocols is empty: it may have TLSv1.2 and TLSv1.3");
  SSL_CTX_set_min_proto_version(context_, has_12 ? TLS1_2_VERSION : TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context_, has_13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  return absl::OkStatus();
}

Status TlsContext::UseCertificate(const TlsOptions& options) {
  if (options.cert_file.empty() || options.key_file.empty())
    return absl::InvalidArgumentError("TLS needs a certificate and its key: tls-cert-file and tls-key-file");
  if (SSL_CTX_use_certificate_chain_file(context_, options.cert_file.c_str()) != 1)
    return Refused("tls-cert-file", options.cert_file, TlsErrorText());
  const X509* const certificate = SSL_CTX_get0_certificate(context_);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    return Refused("tls-cert-file", options.cert_file, "the certificate expired at " + TimeText(X509_get0_notAfter(certificate)));
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    return Refused("tls-cert-file", options.cert_file,
                   "the certificate is valid from " + TimeText(X509_get0_notBefore(certificate)) + " on");
  const auto key = ReadKey(options.key_file);
  if (key == nullptr) return Refused("tls-key-file", options.key_file, TlsErrorText());
  if (X509_check_private_key(certificate, key.get()) != 1)
    return Refused("tls-key-file", options.key_file, "it is not the key of the certificate in " + options.cert_file);
  if (SSL_CTX_use_PrivateKey(context_, key.get()) != 1) return Refused("tls-key-file", options.key_file, TlsErrorText());
  return absl::OkStatus();
}

Status TlsContext::CheckClients(const TlsOptions& options) {
  const std::string& wanted = options.auth_clients;
  if (wanted == "no") return absl::OkStatus();
  if (wanted != "optional" && wanted != "yes")
    return absl::InvalidArgumentError(absl::StrCat("tls-auth-clients is no, optional or yes, not '", wanted, "'"));
  if (options.ca_cert_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls-auth-clients is ", wanted, ": tls-ca-cert-file must name the CA of the clients' certificates, or set it to no"));
  }
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(options.ca_cert_file.c_str());
  if (names == nullptr || SSL_CTX_load_verify_locations(context_, options.ca_cert_file.c_str(), nullptr) != 1) {
    sk_X509_NAME_pop_free(names, &X509_NAME_free);
    return Refused("tls-ca-cert-file", options.ca_cert_file, TlsErrorText());
  }
  SSL_CTX_set_client_CA_list(context_, names);  // takes ownership
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | (wanted == "yes" ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  return absl::OkStatus();
}

Status TlsContextHolder::Open(const TlsOptions& options) {
  options_ = options;
  stamp_ = StampOf(options_);
  HAKO_ASSIGN_OR_RETURN(auto context, TlsContext::Load(options_));
  sync::MutexLock lock(mutex_);
  context_ = std::move(context);
  return absl::OkStatus();
}

Status TlsContextHolder::Refresh(bool* is_loaded) {
  *is_loaded = false;
  const std::string stamp = StampOf(options_);
  if (stamp == stamp_) return absl::OkStatus();
  stamp_ = stamp;
  HAKO_ASSIGN_OR_RETURN(auto context, TlsContext::Load(options_));
  *is_loaded = true;
  sync::MutexLock lock(mutex_);
  context_ = std::move(context);
  return absl::OkStatus();
}

}  // namespace hako::server
