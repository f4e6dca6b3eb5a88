#include "formats/float_scan.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/error.h"
#include "formats/dtype_blocks.h"

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

// Where a block keeps its f16 scales.
struct HalfScales {
  size_t block_bytes;
  std::array<size_t, 2> offsets;
  size_t count;
};

#define TIERPACK_SCALES(BLOCK, FIELD) HalfScales{sizeof(BLOCK), {offsetof(BLOCK, FIELD), 0}, 1}
#define TIERPACK_SCALES2(BLOCK, FIRST, SECOND) HalfScales{sizeof(BLOCK), {offsetof(BLOCK, FIRST), offsetof(BLOCK, SECOND)}, 2}

// count 0: the type has none.
HalfScales half_scales(DType type) {
  switch (type) {
    case DType::kQ4_0: return TIERPACK_SCALES(BlockQ4_0, d);
    case DType::kQ4_1: return TIERPACK_SCALES2(BlockQ4_1, d, m);
    case DType::kQ5_0: return TIERPACK_SCALES(BlockQ5_0, d);
    case DType::kQ5_1: return TIERPACK_SCALES2(BlockQ5_1, d, m);
    case DType::kQ8_0: return TIERPACK_SCALES(BlockQ8_0, d);
    case DType::kQ8_1: return TIERPACK_SCALES2(BlockQ8_1, d, s);
    case DType::kQ2_K: return TIERPACK_SCALES2(BlockQ2_K, d, dmin);
    case DType::kQ3_K: return TIERPACK_SCALES(BlockQ3_K, d);
    case DType::kQ4_K: return TIERPACK_SCALES2(BlockQ4_K, d, dmin);
    case DType::kQ5_K: return TIERPACK_SCALES2(BlockQ5_K, d, dmin);
    case DType::kQ6_K: return TIERPACK_SCALES(BlockQ6_K, d);
    case DType::kIQ2_XXS: return TIERPACK_SCALES(BlockIQ2_XXS, d);
    case DType::kIQ2_XS: return TIERPACK_SCALES(BlockIQ2_XS, d);
    case DType::kIQ2_S: return TIERPACK_SCALES(BlockIQ2_S, d);
    case DType::kIQ3_XXS: return TIERPACK_SCALES(BlockIQ3_XXS, d);
    case DType::kIQ3_S: return TIERPACK_SCALES(BlockIQ3_S, d);
    case DType::kIQ1_S: return TIERPACK_SCALES(BlockIQ1_S, d);
    case DType::kIQ4_NL: return TIERPACK_SCALES(BlockIQ4_NL, d);
    case DType::kIQ4_XS: return TIERPACK_SCALES(BlockIQ4_XS, d);
    case DType::kTQ1_0: return TIERPACK_SCALES(BlockTQ1_0, d);
    case DType::kTQ2_0: return TIERPACK_SCALES(BlockTQ2_0, d);
    case DType::kQ1_0: return TIERPACK_SCALES(BlockQ1_0, d);
    case DType::kQ2_0: return TIERPACK_SCALES(BlockQ2_0, d);
    default: return {0, {}, 0};
  }
}

#undef TIERPACK_SCALES
#undef TIERPACK_SCALES2

void count_half(uint16_t bits, FloatScan& found) {
  const unsigned magnitude = bits & 0x7FFFu;
  found.nan += magnitude > 0x7C00;
  found.inf += magnitude == 0x7C00;
}

FloatScan scan_half_scales(const HalfScales& scales, Bytes data) {
  FloatScan found;
  for (size_t at = 0; at < data.size(); at += scales.block_bytes) {
    for (size_t i = 0; i < scales.count; ++i) count_half(load<uint16_t>(data.data() + at + scales.offsets[i]), found);
  }
  return found;
}

// The f16 scale of an IQ1_M block is spread over the top nibbles of four words.
FloatScan scan_iq1_m(Bytes data) {
  FloatScan found;
  for (size_t at = 0; at < data.size(); at += sizeof(BlockIQ1_M)) {
    const auto block = load<BlockIQ1_M>(data.data() + at);
    unsigned bits = 0;
    for (unsigned i = 0; i < 4; ++i) bits |= static_cast<unsigned>(block.scales[i] >> 12) << (4 * i);
    count_half(static_cast<uint16_t>(bits), found);
  }
  return found;
}

FloatScan scan_q8_k(Bytes data) {
  FloatScan found;
  for (size_t at = 0; at < data.size(); at += sizeof(BlockQ8_K)) {
    found += scan_words<int32_t>(data.subspan(at + offsetof(BlockQ8_K, d), sizeof(float)), 0x7F800000);
  }
  return found;
}

// `count` byte scales at `offset` of each block; those whose bits under `mask` equal `code` are NaN.
FloatScan scan_byte_scales(Bytes data, size_t block_bytes, size_t offset, size_t count, uint8_t mask, uint8_t code) {
  FloatScan found;
  for (size_t at = 0; at < data.size(); at += block_bytes) {
    for (size_t i = 0; i < count; ++i) found.nan += (static_cast<uint8_t>(data[at + offset + i]) & mask) == code;
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

bool has_nonfinite_codes(DType type) {
  switch (type) {
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64: return false;
    default: return true;
  }
}

FloatScan scan_floats(DType type, Bytes data) {
  TIERPACK_CHECK(data.size() % traits(type).block_bytes == 0);
  switch (type) {
    case DType::kF32: return scan_floats(HfType::kF32, data);
    case DType::kF16: return scan_floats(HfType::kF16, data);
    case DType::kBF16: return scan_floats(HfType::kBF16, data);
    case DType::kF64: return scan_floats(HfType::kF64, data);
    case DType::kF8_E4M3: return scan_floats(HfType::kF8E4M3, data);
    case DType::kIQ1_M: return scan_iq1_m(data);
    case DType::kQ8_K: return scan_q8_k(data);
    case DType::kMXFP4: return scan_byte_scales(data, sizeof(BlockMXFP4), offsetof(BlockMXFP4, e), 1, 0xFF, 0xFF);
    case DType::kNVFP4: return scan_byte_scales(data, sizeof(BlockNVFP4), offsetof(BlockNVFP4, d), 4, 0x7F, 0x7F);
    default: break;
  }
  const HalfScales scales = half_scales(type);
  return scales.count > 0 ? scan_half_scales(scales, data) : FloatScan{};
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
