#include "base/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "base/error.h"

namespace tierpack {

namespace {

void* make_context(const EVP_MD* algorithm) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  TIERPACK_CHECK(context != nullptr && EVP_DigestInit_ex(context, algorithm, nullptr) == 1);
  return context;
}

void update_context(void* context, Bytes data) {
  TIERPACK_CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context), data.data(), data.size()) == 1);
}

void finish_context(void* context, MutableBytes out) {
  unsigned size = 0;
  auto* target = reinterpret_cast<unsigned char*>(out.data());
  TIERPACK_CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context), target, &size) == 1 && size == out.size());
}

}  // namespace

void detail::EvpFree::operator()(void* context) const { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }

Sha256Digest Sha256Digest::from_hex(std::string_view hex) {
  Sha256Digest digest;
  if (!tierpack::from_hex(hex, digest.bytes)) fail(ErrorKind::kCorrupt, "'{}' is not a SHA-256 (64 hex digits)", hex);
  return digest;
}

Sha256::Sha256() : context_(make_context(EVP_sha256())) {}
void Sha256::update(Bytes data) { update_context(context_.get(), data); }
Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  finish_context(context_.get(), digest.bytes);
  return digest;
}
Sha256Digest Sha256::of(Bytes data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

Sha1::Sha1() : context_(make_context(EVP_sha1())) {}
void Sha1::update(Bytes data) { update_context(context_.get(), data); }
Sha1Digest Sha1::finish() {
  Sha1Digest digest;
  finish_context(context_.get(), digest.bytes);
  return digest;
}

std::string Xxh128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Xxh128 xxh3_128(Bytes data, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data.data(), data.size(), seed);
  return {hash.low64, hash.high64};
}

Xxh3Stream::Xxh3Stream(uint64_t seed) : state_(XXH3_createState()) {
  TIERPACK_CHECK(state_ != nullptr);
  XXH3_128bits_reset_withSeed(static_cast<XXH3_state_t*>(state_), seed);
}
Xxh3Stream::~Xxh3Stream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Xxh3Stream::update(Bytes data) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data.data(), data.size());
}
Xxh128 Xxh3Stream::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {hash.low64, hash.high64};
}

}  // namespace tierpack
