#include "formats/float_scan.h"

#include <algorithm>

#include "base/error.h"

namespace tierpack {

namespace {

// Nearly every block is clean, so a block is first reduced to its largest magnitude, a loop that compilers turn into
// SIMD, and looked at element by element only when that reaches the codes of infinity and NaN.
constexpr size_t kBlock = 256;

// An IEEE-like type: magnitudes above `infinity` are NaN, equal to it are infinite.
template <typename Word>
FloatScan scan_words(Bytes data, Word infinity) {
  using Unsigned = std::make_unsigned_t<Word>;
  constexpr auto kMagnitude = static_cast<Word>(static_cast<Unsigned>(~Unsigned{0}) >> 1);
  FloatScan found;
  const size_t count = data.size() / sizeof(Word);
  Word block[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    if (n < kBlock) std::fill_n(block, kBlock, Word{0});
    std::memcpy(block, data.data() + at * sizeof(Word), n * sizeof(Word));
    Word largest = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      block[i] = static_cast<Word>(block[i] & kMagnitude);
      largest = std::max(largest, block[i]);
    }
    if (largest < infinity) continue;
    for (size_t i = 0; i < n; ++i) {
      found.nan += block[i] > infinity;
      found.inf += block[i] == infinity;
    }
  }
  return found;
}

// Bytes whose bits under `mask` equal `code` are NaN.
FloatScan scan_bytes(Bytes data, uint8_t mask, uint8_t code) {
  FloatScan found;
  for (size_t at = 0; at < data.size(); at += kBlock) {
    uint8_t block[kBlock];
    const size_t n = std::min(kBlock, data.size() - at);
    if (n < kBlock) std::fill_n(block, kBlock, static_cast<uint8_t>(~code));
    std::memcpy(block, data.data() + at, n);
    uint8_t any = 0;
    for (size_t i = 0; i < kBlock; ++i) any = static_cast<uint8_t>(any | ((block[i] & mask) == code ? 1 : 0));
    if (any == 0) continue;
    for (size_t i = 0; i < n; ++i) found.nan += (block[i] & mask) == code;
  }
  return found;
}

}  // namespace

bool has_nonfinite_codes(HfType type) {
  switch (type) {
    case HfType::kF8E5M2:
    case HfType::kF8E4M3:
    case HfType::kF8E8M0:
    case HfType::kF8E4M3Fnuz:
    case HfType::kF8E5M2Fnuz:
    case HfType::kF16:
    case HfType::kBF16:
    case HfType::kF32:
    case HfType::kC64:
    case HfType::kF64: return true;
    default: return false;
  }
}

FloatScan scan_floats(HfType type, Bytes data) {
  TIERPACK_CHECK(data.size() * 8 % hf_traits(type).bits == 0);
  switch (type) {
    case HfType::kF8E5M2: return scan_words<int8_t>(data, 0x7C);
    case HfType::kF8E4M3: return scan_bytes(data, 0x7F, 0x7F);
    case HfType::kF8E8M0: return scan_bytes(data, 0xFF, 0xFF);
    case HfType::kF8E4M3Fnuz:
    case HfType::kF8E5M2Fnuz: return scan_bytes(data, 0xFF, 0x80);  // what would be -0
    case HfType::kF16: return scan_words<int16_t>(data, 0x7C00);
    case HfType::kBF16: return scan_words<int16_t>(data, 0x7F80);
    case HfType::kF32:
    case HfType::kC64: return scan_words<int32_t>(data, 0x7F800000);
    case HfType::kF64: return scan_words<int64_t>(data, 0x7FF0000000000000);
    default: return {};
  }
}

FloatScan scan_tensor(const SafetensorsSource& source, const SafetensorsTensor& tensor, MutableBytes buffer) {
  TIERPACK_CHECK(buffer.size() >= 8);
  FloatScan found;
  if (!has_nonfinite_codes(tensor.dtype)) return found;
  const uint64_t step = buffer.size() / 8 * 8;
  for (uint64_t at = 0; at < tensor.bytes; at += step) {
    const MutableBytes piece = buffer.first(std::min(step, tensor.bytes - at));
    source.read(tensor, at, piece);
    found += scan_floats(tensor.dtype, piece);
  }
  return found;
}

}  // namespace tierpack
