#include "runtime/kernels/block_decoder.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/dtype_blocks.h"
#include "formats/iq_grids.h"

namespace tierpack::kernels {
namespace {

// Codes of the 32-element layout: element j from the low nibble of qs[j], j + 16 from the high one.
void nibbles(const uint8_t* qs, int bias, int8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = static_cast<int8_t>((qs[j] & 15) - bias);
    code[j + 16] = static_cast<int8_t>((qs[j] >> 4) - bias);
  }
}

void add_fifth_bits(uint32_t qh, int8_t* code) {
  for (int e = 0; e < 32; ++e) code[e] = static_cast<int8_t>(code[e] + 16 * ((qh >> e) & 1));
}

void looked_up(const uint8_t* qs, const int8_t* table, int8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = table[qs[j] & 15];
    code[j + 16] = table[qs[j] >> 4];
  }
}

// Eight codes: the bytes of a grid entry, negated where `signs` has a bit.
void signed_octet(uint64_t magnitudes, uint32_t signs, int8_t* code) {
  for (int k = 0; k < 8; ++k) {
    const int magnitude = static_cast<int>((magnitudes >> (8 * k)) & 255);
    code[k] = static_cast<int8_t>((signs >> k) & 1 ? -magnitude : magnitude);
  }
}

uint64_t quad_pair(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

// Eight codes 8 * g + delta, delta = +-1, from a ternary grid entry: IQ1's value is dl * (g + delta / 8).
void shifted_octet(uint64_t grid, int delta, int8_t* code) {
  for (int k = 0; k < 8; ++k) {
    const int g = static_cast<int8_t>(static_cast<uint8_t>(grid >> (8 * k)));
    code[k] = static_cast<int8_t>(8 * g + delta);
  }
}

// The 6-bit (scale, minimum) pair g of Q4_K and Q5_K.
void scale_and_minimum(const uint8_t* s, int g, int& scale, int& minimum) {
  if (g < 4) {
    scale = s[g] & 63;
    minimum = s[g + 4] & 63;
  } else {
    scale = (s[g + 4] & 15) | ((s[g - 4] >> 6) << 4);
    minimum = (s[g + 4] >> 4) | ((s[g] >> 6) << 4);
  }
}

void decode(const BlockQ4_0& w, Block* out) {
  nibbles(w.qs, 8, out->code);
  out->scale = f16_to_f32(w.d);
}

void decode(const BlockQ4_1& w, Block* out) {
  nibbles(w.qs, 0, out->code);
  out->scale = f16_to_f32(w.d);
  out->offset = f16_to_f32(w.m);
}

void decode(const BlockQ5_0& w, Block* out) {
  nibbles(w.qs, 16, out->code);
  add_fifth_bits(w.qh, out->code);
  out->scale = f16_to_f32(w.d);
}

void decode(const BlockQ5_1& w, Block* out) {
  nibbles(w.qs, 0, out->code);
  add_fifth_bits(w.qh, out->code);
  out->scale = f16_to_f32(w.d);
  out->offset = f16_to_f32(w.m);
}

void decode(const BlockQ8_0& w, Block* out) {
  std::memcpy(out->code, w.qs, 32);
  out->scale = f16_to_f32(w.d);
}

void decode(const BlockQ8_1& w, Block* out) {
  std::memcpy(out->code, w.qs, 32);
  out->scale = f16_to_f32(w.d);
}

void decode(const BlockIQ4_NL& w, Block* out) {
  looked_up(w.qs, kIq4nlValues.data(), out->code);
  out->scale = f16_to_f32(w.d);
}

void decode(const BlockMXFP4& w, Block* out) {
  looked_up(w.qs, kFp4Values.data(), out->code);
  out->scale = e8m0_half_to_f32(w.e);
}

void decode(const BlockNVFP4& w, Block* out) {
  for (int s = 0; s < 4; ++s) {
    Block& block = out[s / 2];
    (s % 2 ? block.scale_high : block.scale) = ue4m3_half_to_f32(w.d[s]);
    for (int j = 0; j < 8; ++j) {
      block.code[16 * (s % 2) + j] = kFp4Values[w.qs[8 * s + j] & 15];
      block.code[16 * (s % 2) + j + 8] = kFp4Values[w.qs[8 * s + j] >> 4];
    }
  }
}

void decode(const BlockQ1_0& w, Block* out) {
  for (int e = 0; e < 128; ++e) out[e / 32].code[e % 32] = (w.qs[e / 8] >> (e % 8)) & 1 ? 1 : -1;
  for (int b = 0; b < 4; ++b) out[b].scale = f16_to_f32(w.d);
}

void decode(const BlockQ2_0& w, Block* out) {
  for (int e = 0; e < 64; ++e) out[e / 32].code[e % 32] = static_cast<int8_t>(((w.qs[e / 4] >> (2 * (e % 4))) & 3) - 1);
  for (int b = 0; b < 2; ++b) out[b].scale = f16_to_f32(w.d);
}

void decode(const BlockQ2_K& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    const uint8_t* qs = w.qs + 32 * (b / 4);
    for (int l = 0; l < 32; ++l) out[b].code[l] = static_cast<int8_t>((qs[l] >> (2 * (b % 4))) & 3);
    for (int h = 0; h < 2; ++h) {
      out[b].sub_scale[h] = w.scales[2 * b + h] & 15;
      out[b].sub_offset[h] = w.scales[2 * b + h] >> 4;
    }
    out[b].scale = f16_to_f32(w.d);
    out[b].offset = -f16_to_f32(w.dmin);
  }
}

void decode(const BlockQ3_K& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    const uint8_t* qs = w.qs + 32 * (b / 4);
    for (int l = 0; l < 32; ++l) {
      const int high = (w.hmask[l] >> b) & 1;
      out[b].code[l] = static_cast<int8_t>(((qs[l] >> (2 * (b % 4))) & 3) - (high ? 0 : 4));
    }
    for (int h = 0; h < 2; ++h) {
      const int j = 2 * b + h;
      const int low = j < 8 ? w.scales[j] & 15 : w.scales[j - 8] >> 4;
      const int high = (w.scales[8 + j % 4] >> (2 * (j / 4))) & 3;
      out[b].sub_scale[h] = static_cast<int16_t>((low | high << 4) - 32);
    }
    out[b].scale = f16_to_f32(w.d);
  }
}

void decode_scaled_nibbles(const uint8_t* qs, const uint8_t* scales, float d, float dmin, Block* out) {
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = qs[32 * (b / 2) + l];
      out[b].code[l] = static_cast<int8_t>(b % 2 ? byte >> 4 : byte & 15);
    }
    int scale = 0;
    int minimum = 0;
    scale_and_minimum(scales, b, scale, minimum);
    out[b].scale = d * static_cast<float>(scale);
    out[b].offset = -(dmin * static_cast<float>(minimum));
  }
}

void decode(const BlockQ4_K& w, Block* out) {
  decode_scaled_nibbles(w.qs, w.scales, f16_to_f32(w.d), f16_to_f32(w.dmin), out);
}

void decode(const BlockQ5_K& w, Block* out) {
  decode_scaled_nibbles(w.qs, w.scales, f16_to_f32(w.d), f16_to_f32(w.dmin), out);
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 32; ++l) out[b].code[l] = static_cast<int8_t>(out[b].code[l] + 16 * ((w.qh[l] >> b) & 1));
  }
}

void decode(const BlockQ6_K& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    const int half = b / 4;
    const int g = b % 4;
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = w.ql[64 * half + l + 32 * (g & 1)];
      const int low = g < 2 ? byte & 15 : byte >> 4;
      const int high = (w.qh[32 * half + l] >> (2 * g)) & 3;
      out[b].code[l] = static_cast<int8_t>(low + 16 * high - 32);
    }
    out[b].sub_scale[0] = w.scales[2 * b];
    out[b].sub_scale[1] = w.scales[2 * b + 1];
    out[b].scale = f16_to_f32(w.d);
  }
}

void decode(const BlockQ8_K& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    std::memcpy(out[b].code, w.qs + 32 * b, 32);
    out[b].scale = w.d;
  }
}

void decode(const BlockIQ2_XXS& w, Block* out) {
  const float d = f16_to_f32(w.d);
  for (int b = 0; b < 8; ++b) {
    const uint32_t signs = w.qs[4 * b + 2] | static_cast<uint32_t>(w.qs[4 * b + 3]) << 16;
    for (int l = 0; l < 4; ++l) {
      const uint32_t index = (w.qs[4 * b + l / 2] >> (8 * (l % 2))) & 255;
      signed_octet(kIq2xxsGrid[index], iq_signs((signs >> (7 * l)) & 127), out[b].code + 8 * l);
    }
    out[b].scale = (d * (0.5f + static_cast<float>(signs >> 28))) * 0.25f;
  }
}

// IQ2_XS and IQ2_S: scales of 16 elements, d * (2s + 1) / 8.
void split_scales(const uint8_t* scales, float d, Block* out) {
  for (int b = 0; b < 8; ++b) {
    out[b].sub_scale[0] = static_cast<int16_t>(2 * (scales[b] & 15) + 1);
    out[b].sub_scale[1] = static_cast<int16_t>(2 * (scales[b] >> 4) + 1);
    out[b].scale = d * 0.125f;
  }
}

void decode(const BlockIQ2_XS& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 4; ++l) {
      const uint16_t word = w.qs[4 * b + l];
      signed_octet(kIq2xsGrid[word & 511], iq_signs(word >> 9), out[b].code + 8 * l);
    }
  }
  split_scales(w.scales, f16_to_f32(w.d), out);
}

void decode(const BlockIQ2_S& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 4; ++l) {
      const int index = w.qs[4 * b + l] + 256 * ((w.qh[b] >> (2 * l)) & 3);
      signed_octet(kIq2sGrid[index], w.signs[4 * b + l], out[b].code + 8 * l);
    }
  }
  split_scales(w.scales, f16_to_f32(w.d), out);
}

void decode(const BlockIQ3_XXS& w, Block* out) {
  const float d = f16_to_f32(w.d);
  for (int b = 0; b < 8; ++b) {
    const uint32_t word = w.scales_and_signs[b];
    for (int l = 0; l < 4; ++l) {
      const uint64_t grid = quad_pair(kIq3xxsGrid[w.qs[8 * b + 2 * l]], kIq3xxsGrid[w.qs[8 * b + 2 * l + 1]]);
      signed_octet(grid, iq_signs((word >> (7 * l)) & 127), out[b].code + 8 * l);
    }
    out[b].scale = (d * (0.5f + static_cast<float>(word >> 28))) * 0.5f;
  }
}

void decode(const BlockIQ3_S& w, Block* out) {
  const float d = f16_to_f32(w.d);
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 4; ++l) {
      const int first = w.qs[8 * b + 2 * l] + 256 * ((w.qh[b] >> (2 * l)) & 1);
      const int second = w.qs[8 * b + 2 * l + 1] + 256 * ((w.qh[b] >> (2 * l + 1)) & 1);
      signed_octet(quad_pair(kIq3sGrid[first], kIq3sGrid[second]), w.signs[4 * b + l], out[b].code + 8 * l);
    }
    const int s = b % 2 ? w.scales[b / 2] >> 4 : w.scales[b / 2] & 15;
    out[b].scale = d * static_cast<float>(1 + 2 * s);
  }
}

void decode(const BlockIQ1_S& w, Block* out) {
  const float d = f16_to_f32(w.d);
  for (int b = 0; b < 8; ++b) {
    const uint16_t qh = w.qh[b];
    const int delta = qh & 0x8000 ? -1 : 1;
    for (int l = 0; l < 4; ++l) {
      shifted_octet(kIq1sGrid[w.qs[4 * b + l] + 256 * ((qh >> (3 * l)) & 7)], delta, out[b].code + 8 * l);
    }
    out[b].scale = (d * static_cast<float>(2 * ((qh >> 12) & 7) + 1)) * 0.125f;
  }
}

void decode(const BlockIQ1_M& w, Block* out) {
  uint16_t s[4];
  std::memcpy(s, w.scales, sizeof(s));
  const uint16_t d_bits = static_cast<uint16_t>((s[0] >> 12) | ((s[1] >> 8) & 0xF0) | ((s[2] >> 4) & 0xF00) | (s[3] & 0xF000));
  const float d = f16_to_f32(d_bits);
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 4; ++l) {
      const int nibble = (w.qh[2 * b + l / 2] >> (4 * (l & 1))) & 15;
      shifted_octet(kIq1sGrid[w.qs[4 * b + l] + 256 * (nibble & 7)], nibble & 8 ? -1 : 1, out[b].code + 8 * l);
    }
    for (int h = 0; h < 2; ++h) {
      const int t = (s[b / 2] >> (6 * (b % 2) + 3 * h)) & 7;
      out[b].sub_scale[h] = static_cast<int16_t>(2 * t + 1);
    }
    out[b].scale = d * 0.125f;
  }
}

void decode(const BlockIQ4_XS& w, Block* out) {
  const float d = f16_to_f32(w.d);
  for (int b = 0; b < 8; ++b) {
    looked_up(w.qs + 16 * b, kIq4nlValues.data(), out[b].code);
    const int low = b % 2 ? w.scales_l[b / 2] >> 4 : w.scales_l[b / 2] & 15;
    out[b].scale = d * static_cast<float>((low | ((w.scales_h >> (2 * b)) & 3) << 4) - 32);
  }
}

void decode(const BlockTQ1_0& w, Block* out) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  int e = 0;
  const auto digits = [&](const uint8_t* bytes, int count, int digits_each) {
    for (int n = 0; n < digits_each; ++n) {
      for (int i = 0; i < count; ++i, ++e) {
        const uint8_t shifted = static_cast<uint8_t>(bytes[i] * kPowers[n]);
        out[e / 32].code[e % 32] = static_cast<int8_t>(((shifted * 3) >> 8) - 1);
      }
    }
  };
  digits(w.qs, 32, 5);
  digits(w.qs + 32, 16, 5);
  digits(w.qh, 4, 4);
  for (int b = 0; b < 8; ++b) out[b].scale = f16_to_f32(w.d);
}

void decode(const BlockTQ2_0& w, Block* out) {
  for (int b = 0; b < 8; ++b) {
    const uint8_t* qs = w.qs + 32 * (b / 4);
    for (int l = 0; l < 32; ++l) out[b].code[l] = static_cast<int8_t>(((qs[l] >> (2 * (b % 4))) & 3) - 1);
    out[b].scale = f16_to_f32(w.d);
  }
}

template <typename Packed>
constexpr BlockFormat format(DType type, BlockForm form, int blocks, int code_max) {
  return {type, form, static_cast<uint8_t>(blocks), sizeof(Packed), static_cast<int16_t>(code_max),
          [](const std::byte* packed, Block* out) { decode(*reinterpret_cast<const Packed*>(packed), out); }};
}

using enum BlockForm;

constexpr std::array kFormats = {
    format<BlockQ4_0>(DType::kQ4_0, kScale, 1, 8),
    format<BlockQ4_1>(DType::kQ4_1, kScaleOffset, 1, 15),
    format<BlockQ5_0>(DType::kQ5_0, kScale, 1, 16),
    format<BlockQ5_1>(DType::kQ5_1, kScaleOffset, 1, 31),
    format<BlockQ8_0>(DType::kQ8_0, kScale, 1, 128),
    format<BlockQ8_1>(DType::kQ8_1, kScale, 1, 128),
    format<BlockQ2_K>(DType::kQ2_K, kSubScaleOffset, 8, 3),
    format<BlockQ3_K>(DType::kQ3_K, kSubScale, 8, 4),
    format<BlockQ4_K>(DType::kQ4_K, kScaleOffset, 8, 15),
    format<BlockQ5_K>(DType::kQ5_K, kScaleOffset, 8, 31),
    format<BlockQ6_K>(DType::kQ6_K, kSubScale, 8, 32),
    format<BlockQ8_K>(DType::kQ8_K, kScale, 8, 128),
    format<BlockIQ2_XXS>(DType::kIQ2_XXS, kScale, 8, 43),
    format<BlockIQ2_XS>(DType::kIQ2_XS, kSubScale, 8, 43),
    format<BlockIQ3_XXS>(DType::kIQ3_XXS, kScale, 8, 62),
    format<BlockIQ1_S>(DType::kIQ1_S, kScale, 8, 9),
    format<BlockIQ4_NL>(DType::kIQ4_NL, kScale, 1, 127),
    format<BlockIQ3_S>(DType::kIQ3_S, kScale, 8, 15),
    format<BlockIQ2_S>(DType::kIQ2_S, kSubScale, 8, 43),
    format<BlockIQ4_XS>(DType::kIQ4_XS, kScale, 8, 127),
    format<BlockIQ1_M>(DType::kIQ1_M, kSubScale, 8, 9),
    format<BlockTQ1_0>(DType::kTQ1_0, kScale, 8, 1),
    format<BlockTQ2_0>(DType::kTQ2_0, kScale, 8, 2),
    format<BlockMXFP4>(DType::kMXFP4, kScale, 1, 12),
    format<BlockNVFP4>(DType::kNVFP4, kTwoScales, 2, 12),
    format<BlockQ1_0>(DType::kQ1_0, kScale, 4, 1),
    format<BlockQ2_0>(DType::kQ2_0, kScale, 2, 2),
};

}  // namespace

const BlockFormat* block_format(DType type) {
  for (const BlockFormat& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

}  // namespace tierpack::kernels
