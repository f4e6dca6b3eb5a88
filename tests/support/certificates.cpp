#include "tests/support/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

namespace tierpack::support {

void write_self_signed(const std::filesystem::path& certificate, const std::filesystem::path& key, int days,
                       const char* address) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pair(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> cert(X509_new(), X509_free);
  if (!pair || !cert) throw std::runtime_error("cannot make a certificate");
  constexpr long kDay = 24 * 3600;
  X509_set_version(cert.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), -3 * kDay);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), days * kDay);
  X509_set_pubkey(cert.get(), pair.get());
  X509_NAME* const name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("tierpack test hub"), -1, -1, 0);
  X509_set_issuer_name(cert.get(), name);
  X509_EXTENSION* const alternative = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, address);
  X509_add_ext(cert.get(), alternative, -1);
  X509_EXTENSION_free(alternative);
  if (X509_sign(cert.get(), pair.get(), EVP_sha256()) == 0) throw std::runtime_error("cannot sign a certificate");

  std::FILE* file = std::fopen(certificate.c_str(), "w");
  if (file == nullptr || PEM_write_X509(file, cert.get()) != 1) throw std::runtime_error("cannot write a certificate");
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  if (file == nullptr || PEM_write_PrivateKey(file, pair.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    throw std::runtime_error("cannot write a key");
  }
  std::fclose(file);
}

}  // namespace tierpack::support
