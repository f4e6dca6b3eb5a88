// Digests: SHA-256 proves identity with the outside world (sources, segments), XXH3-128 proves that a record read back
// is the record that was written. Both stream; neither allocates per update.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/file.h"

namespace tierpack {

struct Sha256Digest {
  std::array<std::byte, 32> bytes{};
  auto operator<=>(const Sha256Digest&) const = default;
  std::string hex() const { return to_hex(bytes); }
  // Throws kCorrupt unless `hex` is 64 hex digits.
  static Sha256Digest from_hex(std::string_view hex);
};

// SHA-1 is used only to check git blob ids of small hub files, never as our own proof.
struct Sha1Digest {
  std::array<std::byte, 20> bytes{};
  auto operator<=>(const Sha1Digest&) const = default;
  std::string hex() const { return to_hex(bytes); }
};

namespace detail {
struct EvpFree {
  void operator()(void* context) const;
};
}  // namespace detail

// OpenSSL's SHA-256 (SHA-NI where the CPU has it).
class Sha256 {
 public:
  Sha256();
  void update(Bytes data);
  Sha256Digest finish();  // the object may not be updated afterwards
  static Sha256Digest of(Bytes data);

 private:
  std::unique_ptr<void, detail::EvpFree> context_;
};

class Sha1 {
 public:
  Sha1();
  void update(Bytes data);
  Sha1Digest finish();

 private:
  std::unique_ptr<void, detail::EvpFree> context_;
};

struct Xxh128 {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Xxh128&) const = default;
  // 32 hex digits, most significant first (the canonical form of xxhsum).
  std::string hex() const;
};

Xxh128 xxh3_128(Bytes data, uint64_t seed = 0);

class Xxh3Stream {
 public:
  explicit Xxh3Stream(uint64_t seed = 0);
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;
  void update(Bytes data);
  Xxh128 digest() const;

 private:
  void* state_;
};


// SHA-256 of [offset, offset + length) of a source, read in 1 MiB pieces. `on_bytes` may be empty.
template <typename OnBytes>
Sha256Digest sha256_of(const ByteSource& source, uint64_t offset, uint64_t length, OnBytes&& on_bytes) {
  Sha256 hash;
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  for (uint64_t done = 0; done < length;) {
    const uint64_t step = length - done < kPiece ? length - done : kPiece;
    const MutableBytes piece{buffer.get(), step};
    source.read_at(offset + done, piece);
    hash.update(piece);
    done += step;
    on_bytes(step);
  }
  return hash.finish();
}

inline Sha256Digest sha256_of(const ByteSource& source) {
  return sha256_of(source, 0, source.size(), [](uint64_t) {});
}

}  // namespace tierpack
