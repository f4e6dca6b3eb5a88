// AVX2 decoders of weight rows: 8 blocks (256 elements) at a time into codes and scales, the same numbers as the scalar
// decoders of block_decoder.cpp. Included through vector_matmul.h (see avx2_vector.h about the
// unnamed namespace).
//
// A decoder D has
//   form        how values are built (block_decoder.h)
//   code_max    the largest magnitude of a stored code byte
//   bias        stored byte = code + bias, unsigned; kSigned: the byte is the code itself, in two's complement
//   decode(row, first, count, group)   blocks first .. first + count; first % 8 == 0, count 1 .. 8 (8 for 256-element
//                                      types). Bytes of blocks from `count` on are left as they are. Always inlined:
//                                      for speed, and because GCC 12's interprocedural analysis takes an outlined
//                                      decoder for a function without effects and drops the call.
#pragma once

#include <bit>

#include "formats/dequant.h"
#include "formats/dtype_blocks.h"
#include "formats/iq_grids.h"
#include "runtime/kernels/avx2_vector.h"
#include "runtime/kernels/block_decoder.h"

namespace tierpack::kernels {
namespace {

constexpr int kSigned = -1;

struct Group {
  __m256i code[8];            // 32 bytes a block
  __m256i sub_scale;          // sixteen i16: number 2 * b + h belongs to half h of block b
  __m256i sub_offset;
  // Zero where no block was decoded.
  alignas(32) float scale[8] = {};
  alignas(32) float scale_high[8] = {};
  alignas(32) float offset[8] = {};
};

template <typename Packed>
inline const Packed* blocks_of(const std::byte* row) {
  return reinterpret_cast<const Packed*>(row);
}

inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256i bytes(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
inline float half(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
inline void fill(float* out, float v) { _mm256_store_ps(out, _mm256_set1_ps(v)); }

// Element j of the low lane from the low nibble of byte j, of the high lane from the high nibble.
inline __m256i nibbles(const uint8_t* qs) {
  const __m128i packed = load16(qs);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed), bytes(15));
}

// 0xFF in byte e where bit e of `bits` is set.
inline __m256i mask_of_bits(uint32_t bits) {
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                                             _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

inline __m256i looked_up(const std::array<int8_t, 16>& table, __m256i index) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(table.data())), index);
}

// --- 32-element blocks ---

struct DecodeQ4_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 15, bias = 8;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ4_0* w = blocks_of<BlockQ4_0>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = nibbles(w[b].qs);
      g.scale[b] = half(w[b].d);
    }
  }
};

struct DecodeQ4_1 {
  static constexpr BlockForm form = BlockForm::kScaleOffset;
  static constexpr int code_max = 15, bias = 0;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ4_1* w = blocks_of<BlockQ4_1>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = nibbles(w[b].qs);
      g.scale[b] = half(w[b].d);
      g.offset[b] = half(w[b].m);
    }
  }
};

struct DecodeQ5_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 31, bias = 16;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ5_0* w = blocks_of<BlockQ5_0>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = _mm256_or_si256(nibbles(w[b].qs), _mm256_and_si256(mask_of_bits(w[b].qh), bytes(16)));
      g.scale[b] = half(w[b].d);
    }
  }
};

struct DecodeQ5_1 {
  static constexpr BlockForm form = BlockForm::kScaleOffset;
  static constexpr int code_max = 31, bias = 0;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ5_1* w = blocks_of<BlockQ5_1>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = _mm256_or_si256(nibbles(w[b].qs), _mm256_and_si256(mask_of_bits(w[b].qh), bytes(16)));
      g.scale[b] = half(w[b].d);
      g.offset[b] = half(w[b].m);
    }
  }
};

struct DecodeQ8_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 128, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ8_0* w = blocks_of<BlockQ8_0>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = load32(w[b].qs);
      g.scale[b] = half(w[b].d);
    }
  }
};

struct DecodeQ8_1 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 128, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ8_1* w = blocks_of<BlockQ8_1>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = load32(w[b].qs);
      g.scale[b] = half(w[b].d);
    }
  }
};

struct DecodeIQ4_NL {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 127, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockIQ4_NL* w = blocks_of<BlockIQ4_NL>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = looked_up(kIq4nlValues, nibbles(w[b].qs));
      g.scale[b] = half(w[b].d);
    }
  }
};

struct DecodeMXFP4 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 12, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockMXFP4* w = blocks_of<BlockMXFP4>(row) + first;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      g.code[b] = looked_up(kFp4Values, nibbles(w[b].qs));
      const uint32_t e = w[b].e;  // 2^(e - 128), subnormal for 0 and 1
      g.scale[b] = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
  }
};

// --- 64 and 128 elements ---

struct DecodeNVFP4 {
  static constexpr BlockForm form = BlockForm::kTwoScales;
  static constexpr int code_max = 12, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockNVFP4* w = blocks_of<BlockNVFP4>(row) + first / 2;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      const BlockNVFP4& pair = w[b / 2];
      const int s = 2 * (b % 2);
      const __m128i packed = load16(pair.qs + 8 * s);
      const __m128i low = _mm_and_si128(packed, _mm_set1_epi8(15));
      const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), _mm_set1_epi8(15));
      g.code[b] = looked_up(kFp4Values, _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high)));
    }
    // Half of UE4M3 is 128 times the binary16 with the same exponent and mantissa bits, subnormals included.
    uint32_t d[4] = {};
    for (uint32_t b = 0; b < count; b += 2) std::memcpy(&d[b / 2], w[b / 2].d, 4);
    const __m128i codes = load16(d);
    const __m128i finite = _mm_andnot_si128(_mm_cmpeq_epi8(codes, _mm_set1_epi8(0x7F)), _mm_set1_epi8(0x7F));
    const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_and_si128(codes, finite)), 7);
    const __m256 factor = _mm256_set1_ps(128.0f);
    const __m256 low = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor);  // blocks 0..3
    const __m256 high = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), factor);
    const auto ordered = [](__m256 v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8)); };
    _mm256_store_ps(g.scale, ordered(_mm256_shuffle_ps(low, high, 0x88)));
    _mm256_store_ps(g.scale_high, ordered(_mm256_shuffle_ps(low, high, 0xDD)));
  }
};

struct DecodeQ1_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 1, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ1_0* w = blocks_of<BlockQ1_0>(row) + first / 4;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      uint32_t signs;
      std::memcpy(&signs, w[b / 4].qs + 4 * (b % 4), 4);
      g.code[b] = _mm256_or_si256(mask_of_bits(~signs), bytes(1));
      g.scale[b] = half(w[b / 4].d);
    }
  }
};

struct DecodeQ2_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 3, bias = 1;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t count, Group& g) {
    const BlockQ2_0* w = blocks_of<BlockQ2_0>(row) + first / 2;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      // Byte j / 4 to element j, then the pair of bits that j % 4 names, by a multiplication of 16-bit lanes.
      int64_t packed;
      std::memcpy(&packed, w[b / 2].qs + 8 * (b % 2), 8);
      const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi64x(packed),
          _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202, 0x0505050504040404, 0x0707070706060606));
      const __m256i even = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_and_si256(spread, _mm256_set1_epi32(0x00300003)),
                                                                _mm256_set1_epi32(0x00010010)), 4);
      const __m256i odd = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_and_si256(_mm256_srli_epi16(spread, 2), _mm256_set1_epi32(0x00300003)),
                                                               _mm256_set1_epi32(0x00010010)), 4);
      g.code[b] = _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
      g.scale[b] = half(w[b / 2].d);
    }
  }
};

// --- 256 elements ---

struct DecodeQ2_K {
  static constexpr BlockForm form = BlockForm::kSubScaleOffset;
  static constexpr int code_max = 3, bias = 0;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockQ2_K& w = blocks_of<BlockQ2_K>(row)[first / 8];
#pragma GCC unroll 8
    for (int h = 0; h < 2; ++h) {
      const __m256i packed = load32(w.qs + 32 * h);
      g.code[4 * h] = _mm256_and_si256(packed, bytes(3));
      g.code[4 * h + 1] = _mm256_and_si256(_mm256_srli_epi16(packed, 2), bytes(3));
      g.code[4 * h + 2] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), bytes(3));
      g.code[4 * h + 3] = _mm256_and_si256(_mm256_srli_epi16(packed, 6), bytes(3));
    }
    const __m128i scales = load16(w.scales);
    g.sub_scale = _mm256_cvtepu8_epi16(_mm_and_si128(scales, _mm_set1_epi8(15)));
    g.sub_offset = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(scales, 4), _mm_set1_epi8(15)));
    fill(g.scale, half(w.d));
    fill(g.offset, -half(w.dmin));
  }
};

struct DecodeQ3_K {
  static constexpr BlockForm form = BlockForm::kSubScale;
  static constexpr int code_max = 4, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockQ3_K& w = blocks_of<BlockQ3_K>(row)[first / 8];
    const __m256i hmask = load32(w.hmask);
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const __m256i low = _mm256_and_si256(_mm256_srli_epi16(load32(w.qs + 32 * (b / 4)), 2 * (b % 4)), bytes(3));
      const __m256i bit = bytes(1 << b);
      const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(hmask, bit), bit);
      g.code[b] = _mm256_sub_epi8(low, _mm256_andnot_si256(set, bytes(4)));
    }
    uint32_t s[3];
    std::memcpy(s, w.scales, 12);
    const uint32_t nibble = 0x0F0F0F0F, two = 0x03030303;
    const __m128i six = _mm_setr_epi32(
        static_cast<int>((s[0] & nibble) | (s[2] & two) << 4), static_cast<int>((s[1] & nibble) | ((s[2] >> 2) & two) << 4),
        static_cast<int>(((s[0] >> 4) & nibble) | ((s[2] >> 4) & two) << 4),
        static_cast<int>(((s[1] >> 4) & nibble) | ((s[2] >> 6) & two) << 4));
    g.sub_scale = _mm256_cvtepi8_epi16(_mm_sub_epi8(six, _mm_set1_epi8(32)));
    fill(g.scale, half(w.d));
  }
};

// The eight 6-bit (scale, minimum) pairs of Q4_K and Q5_K as d * scale and -(dmin * minimum).
inline void scales_and_minimums(const uint8_t* packed, float d, float dmin, Group& g) {
  uint32_t s[3];
  std::memcpy(s, packed, 12);
  const uint32_t six = 0x3F3F3F3F, nibble = 0x0F0F0F0F, two = 0x03030303;
  const uint64_t scales = (s[0] & six) | static_cast<uint64_t>((s[2] & nibble) | ((s[0] >> 6) & two) << 4) << 32;
  const uint64_t minimums = (s[1] & six) | static_cast<uint64_t>(((s[2] >> 4) & nibble) | ((s[1] >> 6) & two) << 4) << 32;
  const __m256 scale = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(scales))));
  const __m256 minimum = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(minimums))));
  _mm256_store_ps(g.scale, _mm256_mul_ps(_mm256_set1_ps(d), scale));
  _mm256_store_ps(g.offset, _mm256_xor_ps(_mm256_mul_ps(_mm256_set1_ps(dmin), minimum), _mm256_set1_ps(-0.0f)));
}

struct DecodeQ4_K {
  static constexpr BlockForm form = BlockForm::kScaleOffset;
  static constexpr int code_max = 15, bias = 0;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockQ4_K& w = blocks_of<BlockQ4_K>(row)[first / 8];
#pragma GCC unroll 8
    for (int p = 0; p < 4; ++p) {
      const __m256i packed = load32(w.qs + 32 * p);
      g.code[2 * p] = _mm256_and_si256(packed, bytes(15));
      g.code[2 * p + 1] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), bytes(15));
    }
    scales_and_minimums(w.scales, half(w.d), half(w.dmin), g);
  }
};

struct DecodeQ5_K {
  static constexpr BlockForm form = BlockForm::kScaleOffset;
  static constexpr int code_max = 31, bias = 0;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockQ5_K& w = blocks_of<BlockQ5_K>(row)[first / 8];
    const __m256i high = load32(w.qh);
#pragma GCC unroll 8
    for (int p = 0; p < 4; ++p) {
      const __m256i packed = load32(w.qs + 32 * p);
      const __m256i even_bit = bytes(1 << (2 * p)), odd_bit = bytes(2 << (2 * p));
      const __m256i even = _mm256_cmpeq_epi8(_mm256_and_si256(high, even_bit), even_bit);
      const __m256i odd = _mm256_cmpeq_epi8(_mm256_and_si256(high, odd_bit), odd_bit);
      g.code[2 * p] = _mm256_or_si256(_mm256_and_si256(packed, bytes(15)), _mm256_and_si256(even, bytes(16)));
      g.code[2 * p + 1] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(packed, 4), bytes(15)),
                                          _mm256_and_si256(odd, bytes(16)));
    }
    scales_and_minimums(w.scales, half(w.d), half(w.dmin), g);
  }
};

struct DecodeQ6_K {
  static constexpr BlockForm form = BlockForm::kSubScale;
  static constexpr int code_max = 32, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockQ6_K& w = blocks_of<BlockQ6_K>(row)[first / 8];
#pragma GCC unroll 8
    for (int h = 0; h < 2; ++h) {
      const __m256i low0 = load32(w.ql + 64 * h);
      const __m256i low1 = load32(w.ql + 64 * h + 32);
      const __m256i high = load32(w.qh + 32 * h);
      const __m256i bits[4] = {_mm256_slli_epi16(_mm256_and_si256(high, bytes(3)), 4),
                               _mm256_slli_epi16(_mm256_and_si256(high, bytes(12)), 2), _mm256_and_si256(high, bytes(48)),
                               _mm256_and_si256(_mm256_srli_epi16(high, 2), bytes(48))};
      const __m256i low[4] = {_mm256_and_si256(low0, bytes(15)), _mm256_and_si256(low1, bytes(15)),
                              _mm256_and_si256(_mm256_srli_epi16(low0, 4), bytes(15)),
                              _mm256_and_si256(_mm256_srli_epi16(low1, 4), bytes(15))};
#pragma GCC unroll 8
      for (int i = 0; i < 4; ++i) g.code[4 * h + i] = _mm256_sub_epi8(_mm256_or_si256(low[i], bits[i]), bytes(32));
    }
    g.sub_scale = _mm256_cvtepi8_epi16(load16(w.scales));
    fill(g.scale, half(w.d));
  }
};

struct DecodeQ8_K {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 128, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockQ8_K& w = blocks_of<BlockQ8_K>(row)[first / 8];
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) g.code[b] = load32(w.qs + 32 * b);
    fill(g.scale, w.d);
  }
};

// The leading base-3 digit of each byte, (byte * 3) >> 8, minus one.
inline __m256i leading_digit(__m256i byte) {
  const __m256i at_least_one = _mm256_cmpeq_epi8(_mm256_max_epu8(byte, bytes(86)), byte);
  const __m256i at_least_two = _mm256_cmpeq_epi8(_mm256_max_epu8(byte, bytes(171)), byte);
  return _mm256_sub_epi8(bytes(-1), _mm256_add_epi8(at_least_one, at_least_two));
}

inline __m256i tripled(__m256i byte) { return _mm256_add_epi8(_mm256_add_epi8(byte, byte), byte); }

struct DecodeTQ1_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 1, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockTQ1_0& w = blocks_of<BlockTQ1_0>(row)[first / 8];
    __m256i shifted = load32(w.qs);
#pragma GCC unroll 8
    for (int b = 0; b < 5; ++b) {
      g.code[b] = leading_digit(shifted);
      shifted = tripled(shifted);
    }
    // Sixteen bytes with five digits, then four bytes with four: one half of a block for each digit.
    const __m128i once = load16(w.qs + 32);
    __m256i halves = _mm256_set_m128i(_mm256_castsi256_si128(tripled(_mm256_castsi128_si256(once))), once);
    const __m256i nine = _mm256_set1_epi16(9);
    const auto ninefold = [nine](__m256i v) __attribute__((always_inline)) {  // low bytes of the 16-bit products
      const __m256i even = _mm256_and_si256(_mm256_mullo_epi16(v, nine), _mm256_set1_epi16(0xFF));
      const __m256i odd = _mm256_slli_epi16(_mm256_mullo_epi16(_mm256_srli_epi16(v, 8), nine), 8);
      return _mm256_or_si256(even, odd);
    };
    g.code[5] = leading_digit(halves);
    halves = ninefold(halves);
    g.code[6] = leading_digit(halves);
    halves = ninefold(halves);
    uint32_t last;
    std::memcpy(&last, w.qh, 4);
    const __m128i four = _mm_set1_epi32(static_cast<int>(last));
    const __m256i wide = _mm256_mullo_epi16(_mm256_cvtepu8_epi16(four),
                                            _mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27));
    const __m256i low = _mm256_and_si256(wide, _mm256_set1_epi16(0xFF));
    const __m128i tail = _mm_packus_epi16(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    g.code[7] = leading_digit(_mm256_set_m128i(tail, _mm256_castsi256_si128(halves)));
    fill(g.scale, half(w.d));
  }
};

struct DecodeTQ2_0 {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 3, bias = 1;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockTQ2_0& w = blocks_of<BlockTQ2_0>(row)[first / 8];
#pragma GCC unroll 8
    for (int h = 0; h < 2; ++h) {
      const __m256i packed = load32(w.qs + 32 * h);
      g.code[4 * h] = _mm256_and_si256(packed, bytes(3));
      g.code[4 * h + 1] = _mm256_and_si256(_mm256_srli_epi16(packed, 2), bytes(3));
      g.code[4 * h + 2] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), bytes(3));
      g.code[4 * h + 3] = _mm256_and_si256(_mm256_srli_epi16(packed, 6), bytes(3));
    }
    fill(g.scale, half(w.d));
  }
};

}  // namespace
}  // namespace tierpack::kernels
