// SHA-256 of two files in step on one core. A single SHA-256 waits for its own last round most of the time; the SHA
// instructions of x86 work on a second, independent message in those gaps, so two files take little longer than one.
// Without these instructions a lane is OpenSSL's SHA-256.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/digest.h"

namespace tierpack {

class Sha256Lane {
 public:
  Sha256Lane();
  void update(Bytes data);
  // Both at once. The pieces have the same size, a multiple of 64, and so has everything the lanes were given before.
  static void update_pair(Sha256Lane& a, Bytes a_data, Sha256Lane& b, Bytes b_data);
  Sha256Digest finish();  // the object may not be updated afterwards

  // Whether update_pair is more than two updates.
  static bool has_pairs();

 private:
  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> pending_{};  // the beginning of a block
  uint64_t bytes_ = 0;                   // so far
  std::optional<Sha256> plain_;          // does all the work where there are no SHA instructions
};

}  // namespace tierpack
