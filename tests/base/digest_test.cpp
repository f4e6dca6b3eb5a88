#include "base/digest.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

TEST(Digest, KnownAnswers) {
  EXPECT_EQ(Sha256::of(as_bytes("abc")).hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha1 sha1;
  sha1.update(as_bytes("blob 0"));
  sha1.update({reinterpret_cast<const std::byte*>("\0"), 1});
  EXPECT_EQ(sha1.finish().hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // git's empty blob
  EXPECT_EQ(xxh3_128({}).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, StreamsEqualOneShot) {
  const std::string text(100'000, 'x');
  Xxh3Stream stream(7);
  for (size_t at = 0; at < text.size(); at += 777) stream.update(as_bytes(std::string_view(text).substr(at, 777)));
  EXPECT_EQ(stream.digest(), xxh3_128(as_bytes(text), 7));
  EXPECT_NE(stream.digest(), xxh3_128(as_bytes(text), 8));

  const MemorySource source(as_bytes(text), "text");
  uint64_t seen = 0;
  EXPECT_EQ(sha256_of(source, 0, text.size(), [&](uint64_t n) { seen += n; }), Sha256::of(as_bytes(text)));
  EXPECT_EQ(seen, text.size());
}

TEST(Digest, RefusesMalformedHex) {
  EXPECT_THROW(Sha256Digest::from_hex("abc"), Error);
  EXPECT_EQ(Sha256Digest::from_hex(std::string(64, 'A')).hex(), std::string(64, 'a'));
}

}  // namespace
}  // namespace tierpack
