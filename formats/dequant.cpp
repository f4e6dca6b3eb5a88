// Scalar decoders, one function a block type. Every operation is rounded to f32 in the order written (the build forbids
// contraction), which makes results equal to ggml's bit for bit; the order is therefore part of each formula.
#include "formats/dequant.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "formats/dtype_blocks.h"
#include "formats/iq_grids.h"
#include "formats/small_floats.h"

namespace tierpack {
namespace {

constexpr int low(uint8_t byte) { return byte & 15; }
constexpr int high(uint8_t byte) { return byte >> 4; }
constexpr int bit(uint32_t bits, int index) { return static_cast<int>((bits >> index) & 1); }

// --- 32-element blocks

void decode(const BlockQ4_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(b.qs[j]) - 8) * d;
    y[j + 16] = static_cast<float>(high(b.qs[j]) - 8) * d;
  }
}

void decode(const BlockQ4_1& b, float* y) {
  const float d = f16_to_f32(b.d);
  const float m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(b.qs[j])) * d + m;
    y[j + 16] = static_cast<float>(high(b.qs[j])) * d + m;
  }
}

void decode(const BlockQ5_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  const uint32_t qh = b.qh;
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(b.qs[j]) + 16 * bit(qh, j) - 16) * d;
    y[j + 16] = static_cast<float>(high(b.qs[j]) + 16 * bit(qh, j + 16) - 16) * d;
  }
}

void decode(const BlockQ5_1& b, float* y) {
  const float d = f16_to_f32(b.d);
  const float m = f16_to_f32(b.m);
  const uint32_t qh = b.qh;
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(b.qs[j]) + 16 * bit(qh, j)) * d + m;
    y[j + 16] = static_cast<float>(high(b.qs[j]) + 16 * bit(qh, j + 16)) * d + m;
  }
}

void decode(const BlockQ8_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(b.qs[j]) * d;
}

void decode(const BlockQ8_1& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(b.qs[j]) * d;
}

void decode(const BlockIQ4_NL& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * kIq4nlValues[low(b.qs[j])];
    y[j + 16] = d * kIq4nlValues[high(b.qs[j])];
  }
}

void decode(const BlockMXFP4& b, float* y) {
  const float d = e8m0_half_to_f32(b.e);
  for (int j = 0; j < 16; ++j) {
    y[j] = kFp4Values[low(b.qs[j])] * d;
    y[j + 16] = kFp4Values[high(b.qs[j])] * d;
  }
}

// --- 64 and 128 elements

void decode(const BlockNVFP4& b, float* y) {
  for (int s = 0; s < 4; ++s) {
    const float d = ue4m3_half_to_f32(b.d[s]);
    for (int j = 0; j < 8; ++j) {
      const uint8_t q = b.qs[8 * s + j];
      y[16 * s + j] = kFp4Values[low(q)] * d;
      y[16 * s + j + 8] = kFp4Values[high(q)] * d;
    }
  }
}

void decode(const BlockQ2_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 64; ++j) y[j] = static_cast<float>(((b.qs[j / 4] >> (2 * (j % 4))) & 3) - 1) * d;
}

void decode(const BlockQ1_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 128; ++j) y[j] = bit(b.qs[j / 8], j % 8) ? d : -d;
}

// --- K-quants: 256 elements, sub-blocks with scales of their own

// Two bits of element e in Q2_K and Q3_K: four shifts over 32 bytes for each half.
template <typename Block>
int two_bits(const Block& b, int e) {
  return (b.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
}

void decode(const BlockQ2_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int e = 0; e < 256; ++e) {
    const uint8_t scale = b.scales[e / 16];
    const float dl = d * static_cast<float>(low(scale));
    const float ml = dmin * static_cast<float>(high(scale));
    y[e] = dl * static_cast<float>(two_bits(b, e)) - ml;
  }
}

void decode(const BlockQ3_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 256; ++e) {
    const int j = e / 16;
    const int scale_low = j < 8 ? low(b.scales[j]) : high(b.scales[j - 8]);
    const int scale_high = (b.scales[8 + j % 4] >> (2 * (j / 4))) & 3;
    const float dl = d * static_cast<float>((scale_low | scale_high << 4) - 32);
    const int third = bit(b.hmask[e % 32], e / 32) ? 0 : 4;
    y[e] = dl * static_cast<float>(two_bits(b, e) - third);
  }
}

struct ScaleMin {
  int scale;
  int min;
};

// Six-bit scale and minimum of sub-block g in Q4_K and Q5_K.
template <typename Block>
ScaleMin scale_min(const Block& b, int g) {
  const auto s = [&](int i) { return static_cast<int>(b.scales[i]); };
  if (g < 4) return {s(g) & 63, s(g + 4) & 63};
  return {(s(g + 4) & 15) | (s(g - 4) >> 6) << 4, (s(g + 4) >> 4) | (s(g) >> 6) << 4};
}

// Four low bits of element e in Q4_K and Q5_K: 32 bytes serve two sub-blocks.
template <typename Block>
int four_bits(const Block& b, int e) {
  const uint8_t byte = b.qs[32 * (e / 64) + e % 32];
  return e / 32 % 2 ? high(byte) : low(byte);
}

void decode(const BlockQ4_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int e = 0; e < 256; ++e) {
    const ScaleMin s = scale_min(b, e / 32);
    y[e] = d * static_cast<float>(s.scale) * static_cast<float>(four_bits(b, e)) - dmin * static_cast<float>(s.min);
  }
}

void decode(const BlockQ5_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int e = 0; e < 256; ++e) {
    const ScaleMin s = scale_min(b, e / 32);
    const int q = four_bits(b, e) + 16 * bit(b.qh[e % 32], e / 32);
    y[e] = d * static_cast<float>(s.scale) * static_cast<float>(q) - dmin * static_cast<float>(s.min);
  }
}

void decode(const BlockQ6_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128;
    const int g = e % 128 / 32;
    const uint8_t byte = b.ql[64 * half + e % 32 + 32 * (g & 1)];
    const int low_bits = g < 2 ? low(byte) : high(byte);
    const int high_bits = (b.qh[32 * half + e % 32] >> (2 * g)) & 3;
    y[e] = d * static_cast<float>(b.scales[e / 16]) * static_cast<float>((low_bits | high_bits << 4) - 32);
  }
}

void decode(const BlockQ8_K& b, float* y) {
  const float d = b.d;
  for (int e = 0; e < 256; ++e) y[e] = d * static_cast<float>(b.qs[e]);
}

// --- IQ types: groups of 8 elements from a code book. ib counts 32-element sub-blocks, l the groups in one.

// `count` magnitudes of a grid entry times the scale, with signs from the low bits of `signs`.
void put_signed(float* y, uint64_t magnitudes, uint32_t signs, float scale, int count) {
  for (int j = 0; j < count; ++j) {
    const float value = scale * static_cast<float>((magnitudes >> (8 * j)) & 255);
    y[j] = bit(signs, j) ? -value : value;
  }
}

// Eight elements of IQ1_S / IQ1_M: (-1, 0 or 1) + delta, times the scale.
void put_shifted(float* y, uint64_t signed_bytes, float delta, float scale) {
  for (int j = 0; j < 8; ++j) {
    const auto value = static_cast<int8_t>((signed_bytes >> (8 * j)) & 255);
    y[j] = scale * (static_cast<float>(value) + delta);
  }
}

// The scale of IQ2 types: a nibble for 16 elements.
float iq2_scale(float d, uint32_t nibble) { return d * (0.5f + static_cast<float>(nibble)) * 0.25f; }

void decode(const BlockIQ2_XXS& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    const uint32_t indices = b.qs[4 * ib] | static_cast<uint32_t>(b.qs[4 * ib + 1]) << 16;
    const uint32_t signs = b.qs[4 * ib + 2] | static_cast<uint32_t>(b.qs[4 * ib + 3]) << 16;
    const float scale = iq2_scale(d, signs >> 28);
    for (int l = 0; l < 4; ++l) {
      const uint64_t entry = kIq2xxsGrid[(indices >> (8 * l)) & 255];
      put_signed(y + 32 * ib + 8 * l, entry, iq_signs((signs >> (7 * l)) & 127), scale, 8);
    }
  }
}

void decode(const BlockIQ2_XS& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    for (int l = 0; l < 4; ++l) {
      const uint16_t q = b.qs[4 * ib + l];
      const int nibble = l < 2 ? low(b.scales[ib]) : high(b.scales[ib]);
      put_signed(y + 32 * ib + 8 * l, kIq2xsGrid[q & 511], iq_signs(q >> 9),
                 iq2_scale(d, static_cast<uint32_t>(nibble)), 8);
    }
  }
}

void decode(const BlockIQ2_S& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    for (int l = 0; l < 4; ++l) {
      const int index = b.qs[4 * ib + l] | ((b.qh[ib] >> (2 * l)) & 3) << 8;
      const int nibble = l < 2 ? low(b.scales[ib]) : high(b.scales[ib]);
      put_signed(y + 32 * ib + 8 * l, kIq2sGrid[static_cast<size_t>(index)], b.signs[4 * ib + l],
                 iq2_scale(d, static_cast<uint32_t>(nibble)), 8);
    }
  }
}

void decode(const BlockIQ3_XXS& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    const uint32_t word = b.scales_and_signs[ib];
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int l = 0; l < 4; ++l) {
      const uint32_t signs = iq_signs((word >> (7 * l)) & 127);
      float* group = y + 32 * ib + 8 * l;
      put_signed(group, kIq3xxsGrid[b.qs[8 * ib + 2 * l]], signs, scale, 4);
      put_signed(group + 4, kIq3xxsGrid[b.qs[8 * ib + 2 * l + 1]], signs >> 4, scale, 4);
    }
  }
}

void decode(const BlockIQ3_S& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    const int nibble = ib % 2 ? high(b.scales[ib / 2]) : low(b.scales[ib / 2]);
    const float scale = d * static_cast<float>(1 + 2 * nibble);
    for (int l = 0; l < 4; ++l) {
      const uint32_t signs = b.signs[4 * ib + l];
      const auto entry = [&](int k) {
        const int index = b.qs[8 * ib + 2 * l + k] | bit(b.qh[ib], 2 * l + k) << 8;
        return kIq3sGrid[static_cast<size_t>(index)];
      };
      float* group = y + 32 * ib + 8 * l;
      put_signed(group, entry(0), signs, scale, 4);
      put_signed(group + 4, entry(1), signs >> 4, scale, 4);
    }
  }
}

void decode(const BlockIQ1_S& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    const uint16_t qh = b.qh[ib];
    const float scale = d * static_cast<float>(2 * ((qh >> 12) & 7) + 1);
    const float delta = qh & 0x8000 ? -0.125f : 0.125f;
    for (int l = 0; l < 4; ++l) {
      const int index = b.qs[4 * ib + l] | ((qh >> (3 * l)) & 7) << 8;
      put_shifted(y + 32 * ib + 8 * l, kIq1sGrid[static_cast<size_t>(index)], delta, scale);
    }
  }
}

void decode(const BlockIQ1_M& b, float* y) {
  // The four scale words give one nibble each to the block's f16 scale; their low 12 bits are four 3-bit scales.
  const auto bits = static_cast<uint16_t>(b.scales[0] >> 12 | ((b.scales[1] >> 8) & 0x00f0) |
                                          ((b.scales[2] >> 4) & 0x0f00) | (b.scales[3] & 0xf000));
  const float d = f16_to_f32(bits);
  for (int ib = 0; ib < 8; ++ib) {
    for (int l = 0; l < 4; ++l) {
      const int three_bits = (b.scales[ib / 2] >> (6 * (ib % 2) + (l < 2 ? 0 : 3))) & 7;
      const uint8_t pair = b.qh[2 * ib + l / 2];
      const int nibble = l % 2 ? high(pair) : low(pair);
      const int index = b.qs[4 * ib + l] | (nibble & 7) << 8;
      put_shifted(y + 32 * ib + 8 * l, kIq1sGrid[static_cast<size_t>(index)], nibble & 8 ? -0.125f : 0.125f,
                  d * static_cast<float>(2 * three_bits + 1));
    }
  }
}

void decode(const BlockIQ4_XS& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int ib = 0; ib < 8; ++ib) {
    const int low_bits = ib % 2 ? high(b.scales_l[ib / 2]) : low(b.scales_l[ib / 2]);
    const int scale = low_bits | ((b.scales_h >> (2 * ib)) & 3) << 4;
    const float dl = d * static_cast<float>(scale - 32);
    for (int j = 0; j < 16; ++j) {
      const uint8_t q = b.qs[16 * ib + j];
      y[32 * ib + j] = dl * kIq4nlValues[low(q)];
      y[32 * ib + j + 16] = dl * kIq4nlValues[high(q)];
    }
  }
}

// --- Ternary

// Digit n (0..4, most significant first) of a byte that holds a base-3 fraction, as -1, 0 or 1.
float trit(uint8_t byte, int n) {
  constexpr uint8_t kPower[] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPower[n]);
  return static_cast<float>((shifted * 3 >> 8) - 1);
}

void decode(const BlockTQ1_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  const auto put = [&](const uint8_t* bytes, int count, int digits) {
    for (int n = 0; n < digits; ++n) {
      for (int i = 0; i < count; ++i) *y++ = trit(bytes[i], n) * d;
    }
  };
  put(b.qs, 32, 5);
  put(b.qs + 32, 16, 5);
  put(b.qh, 4, 4);
}

void decode(const BlockTQ2_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 256; ++e) y[e] = static_cast<float>(two_bits(b, e) - 1) * d;
}

// --- Rows

template <typename Block, int kElements>
void decode_blocks(const std::byte* row, float* out, uint64_t elements) {
  for (uint64_t e = 0; e < elements; e += kElements, row += sizeof(Block)) decode(load<Block>(row), out + e);
}

template <typename Number, typename Convert>
void convert_numbers(const std::byte* row, float* out, uint64_t elements, Convert convert) {
  for (uint64_t e = 0; e < elements; ++e) out[e] = convert(load<Number>(row + e * sizeof(Number)));
}

template <typename Number>
void convert_numbers(const std::byte* row, float* out, uint64_t elements) {
  convert_numbers<Number>(row, out, elements, [](Number n) { return static_cast<float>(n); });
}

}  // namespace

void dequantize_row(DType type, const std::byte* row, float* out, uint64_t elements) {
  TIERPACK_CHECK(elements == 0 || makes_rows(type, elements));
  switch (type) {
    case DType::kF32:
      if (elements != 0) std::memcpy(out, row, elements * sizeof(float));
      return;
    case DType::kF16: return convert_numbers<uint16_t>(row, out, elements, f16_to_f32);
    case DType::kBF16: return convert_numbers<uint16_t>(row, out, elements, bf16_to_f32);
    case DType::kF64: return convert_numbers<double>(row, out, elements);
    case DType::kF8_E4M3: return convert_numbers<uint8_t>(row, out, elements, [](uint8_t code) { return kE4m3Values[code]; });
    case DType::kI8: return convert_numbers<int8_t>(row, out, elements);
    case DType::kI16: return convert_numbers<int16_t>(row, out, elements);
    case DType::kI32: return convert_numbers<int32_t>(row, out, elements);
    case DType::kI64: return convert_numbers<int64_t>(row, out, elements);
    case DType::kQ4_0: return decode_blocks<BlockQ4_0, 32>(row, out, elements);
    case DType::kQ4_1: return decode_blocks<BlockQ4_1, 32>(row, out, elements);
    case DType::kQ5_0: return decode_blocks<BlockQ5_0, 32>(row, out, elements);
    case DType::kQ5_1: return decode_blocks<BlockQ5_1, 32>(row, out, elements);
    case DType::kQ8_0: return decode_blocks<BlockQ8_0, 32>(row, out, elements);
    case DType::kQ8_1: return decode_blocks<BlockQ8_1, 32>(row, out, elements);
    case DType::kQ2_K: return decode_blocks<BlockQ2_K, 256>(row, out, elements);
    case DType::kQ3_K: return decode_blocks<BlockQ3_K, 256>(row, out, elements);
    case DType::kQ4_K: return decode_blocks<BlockQ4_K, 256>(row, out, elements);
    case DType::kQ5_K: return decode_blocks<BlockQ5_K, 256>(row, out, elements);
    case DType::kQ6_K: return decode_blocks<BlockQ6_K, 256>(row, out, elements);
    case DType::kQ8_K: return decode_blocks<BlockQ8_K, 256>(row, out, elements);
    case DType::kIQ2_XXS: return decode_blocks<BlockIQ2_XXS, 256>(row, out, elements);
    case DType::kIQ2_XS: return decode_blocks<BlockIQ2_XS, 256>(row, out, elements);
    case DType::kIQ3_XXS: return decode_blocks<BlockIQ3_XXS, 256>(row, out, elements);
    case DType::kIQ1_S: return decode_blocks<BlockIQ1_S, 256>(row, out, elements);
    case DType::kIQ4_NL: return decode_blocks<BlockIQ4_NL, 32>(row, out, elements);
    case DType::kIQ3_S: return decode_blocks<BlockIQ3_S, 256>(row, out, elements);
    case DType::kIQ2_S: return decode_blocks<BlockIQ2_S, 256>(row, out, elements);
    case DType::kIQ4_XS: return decode_blocks<BlockIQ4_XS, 256>(row, out, elements);
    case DType::kIQ1_M: return decode_blocks<BlockIQ1_M, 256>(row, out, elements);
    case DType::kTQ1_0: return decode_blocks<BlockTQ1_0, 256>(row, out, elements);
    case DType::kTQ2_0: return decode_blocks<BlockTQ2_0, 256>(row, out, elements);
    case DType::kMXFP4: return decode_blocks<BlockMXFP4, 32>(row, out, elements);
    case DType::kNVFP4: {
      const uint64_t whole = elements / 64 * 64;
      decode_blocks<BlockNVFP4, 64>(row, out, whole);
      if (whole == elements) return;
      float last[64];
      decode_blocks<BlockNVFP4, 64>(row + row_bytes(type, whole), last, 64);
      std::copy_n(last, elements - whole, out + whole);
      return;
    }
    case DType::kQ1_0: return decode_blocks<BlockQ1_0, 128>(row, out, elements);
    case DType::kQ2_0: return decode_blocks<BlockQ2_0, 64>(row, out, elements);
  }
  TIERPACK_CHECK(!"a decoder for every type");
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {
    // mantissa * 2^-24, exact.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa ? 0x400000u : 0u;  // a signalling NaN becomes quiet, as the hardware does it
    return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13 | quiet);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14 results are multiples of 2^-24: adding 0.5 makes the f32 unit exactly that, so the sum rounds right.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 64);  // a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float e8m0_half_to_f32(uint8_t code) {
  // 2^-128 and 2^-127 are subnormal in f32.
  if (code < 2) return std::bit_cast<float>(0x00200000u << code);
  return std::bit_cast<float>(static_cast<uint32_t>(code - 1) << 23);
}

float ue4m3_half_to_f32(uint8_t code) {
  if (code == 0 || code == 0x7f) return 0;
  const uint32_t exponent = (code >> 3) & 15;
  const uint32_t mantissa = code & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 119) << 23 | mantissa << 20);
}

}  // namespace tierpack
