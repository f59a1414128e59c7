// Keys and certificates that a test makes, as PEM files.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <string>

namespace hako {

// A key, and its certificate, which `issuer` has signed; nullptr: itself, as a CA does.
class Certificate {
 public:
  static constexpr long kDay = 24 * 60 * 60;

  explicit Certificate(const char* name, const Certificate* issuer = nullptr, long valid_from = -kDay, long valid_to = kDay)
      : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    static long serial = 0;
    X509_set_version(certificate_, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate_), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate_), valid_from);
    X509_gmtime_adj(X509_getm_notAfter(certificate_), valid_to);
    X509_set_pubkey(certificate_, key_);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate_), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1,
                               -1, 0);
    Add(NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    Add(NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    const Certificate& by = issuer != nullptr ? *issuer : *this;
    X509_set_issuer_name(certificate_, X509_get_subject_name(by.certificate_));
    EXPECT_GT(X509_sign(certificate_, by.key_, EVP_sha256()), 0);
  }
  Certificate(const Certificate&) = delete;
  ~Certificate() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }

  // Writes path.crt and path.key.
  void Write(const std::string& path) const {
    Write(path + ".crt", [this](std::FILE* file) { return PEM_write_X509(file, certificate_); });
    Write(path + ".key", [this](std::FILE* file) { return PEM_write_PrivateKey(file, key_, nullptr, nullptr, 0, nullptr, nullptr); });
  }
  X509* get() const { return certificate_; }
  EVP_PKEY* key() const { return key_; }

 private:
  template <class F>
  static void Write(const std::string& path, F write) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr) << path;
    EXPECT_EQ(write(file), 1);
    std::fclose(file);
  }
  void Add(int nid, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
    EXPECT_EQ(X509_add_ext(certificate_, extension, -1), 1);
    X509_EXTENSION_free(extension);
  }

  EVP_PKEY* const key_;
  X509* const certificate_;
};

}  // namespace hako
