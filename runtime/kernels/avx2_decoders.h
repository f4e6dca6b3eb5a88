// AVX2 decoders of weight rows: 8 blocks (256 elements) at a time into codes and scales, the same numbers as the scalar
// decoders of block_decoder.cpp. Included by avx2_matmul.cpp alone (see avx2_vector.h about the unnamed namespace).
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
  alignas(32) float scale[8];
  alignas(32) float scale_high[8];
  alignas(32) float offset[8];
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

struct DecodeIQ4_XS {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 127, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ4_XS& w = blocks_of<BlockIQ4_XS>(row)[first / 8];
    const float d = half(w.d);
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      g.code[b] = looked_up(kIq4nlValues, nibbles(w.qs + 16 * b));
      const int low = (w.scales_l[b / 2] >> (4 * (b % 2))) & 15;
      g.scale[b] = d * static_cast<float>((low | ((w.scales_h >> (2 * b)) & 3) << 4) - 32);
    }
  }
};

// Byte k of entry i is 0xFF where the explicit mask of sign index i has bit k.
struct SignBytes {
  uint64_t mask[128];
};
constexpr SignBytes make_sign_bytes() {
  SignBytes table{};
  for (uint32_t i = 0; i < 128; ++i) {
    for (uint32_t k = 0; k < 8; ++k) table.mask[i] |= (iq_signs(i) >> k & 1) ? uint64_t{0xFF} << (8 * k) : 0;
  }
  return table;
}
constexpr SignBytes kSignBytes = make_sign_bytes();

inline __m256i octets(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return _mm256_setr_epi64x(static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c), static_cast<int64_t>(d));
}

// Magnitudes, negated where the mask byte is 0xFF.
inline __m256i negated(__m256i magnitudes, __m256i mask) {
  return _mm256_sub_epi8(_mm256_xor_si256(magnitudes, mask), mask);
}

// The masks of four 7-bit sign indices, 7 bits apart.
inline __m256i sign_masks(uint32_t indices) {
  return octets(kSignBytes.mask[indices & 127], kSignBytes.mask[indices >> 7 & 127], kSignBytes.mask[indices >> 14 & 127],
                kSignBytes.mask[indices >> 21 & 127]);
}

struct DecodeIQ2_XXS {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 43, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ2_XXS& w = blocks_of<BlockIQ2_XXS>(row)[first / 8];
    const float d = half(w.d);
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      uint32_t word[2];
      std::memcpy(word, reinterpret_cast<const std::byte*>(&w) + offsetof(BlockIQ2_XXS, qs) + 8 * b, 8);
      g.code[b] = negated(octets(kIq2xxsGrid[word[0] & 255], kIq2xxsGrid[word[0] >> 8 & 255], kIq2xxsGrid[word[0] >> 16 & 255],
                                 kIq2xxsGrid[word[0] >> 24]), sign_masks(word[1]));
      g.scale[b] = (d * (0.5f + static_cast<float>(word[1] >> 28))) * 0.25f;
    }
  }
};

// IQ2_XS and IQ2_S: 2 * nibble + 1 for the two halves of each block.
inline void split_scales(const uint8_t* scales, float d, Group& g) {
  const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
  const __m128i nibbles = _mm_and_si128(_mm_unpacklo_epi8(packed, _mm_srli_epi16(packed, 4)), _mm_set1_epi8(15));
  const __m256i s = _mm256_cvtepu8_epi16(nibbles);
  g.sub_scale = _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1));
  fill(g.scale, d * 0.125f);
}

struct DecodeIQ2_XS {
  static constexpr BlockForm form = BlockForm::kSubScale;
  static constexpr int code_max = 43, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ2_XS& w = blocks_of<BlockIQ2_XS>(row)[first / 8];
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      uint16_t q[4];
      std::memcpy(q, reinterpret_cast<const std::byte*>(&w) + offsetof(BlockIQ2_XS, qs) + 8 * b, 8);
      g.code[b] = negated(octets(kIq2xsGrid[q[0] & 511], kIq2xsGrid[q[1] & 511], kIq2xsGrid[q[2] & 511], kIq2xsGrid[q[3] & 511]),
                          octets(kSignBytes.mask[q[0] >> 9], kSignBytes.mask[q[1] >> 9], kSignBytes.mask[q[2] >> 9],
                                 kSignBytes.mask[q[3] >> 9]));
    }
    split_scales(w.scales, half(w.d), g);
  }
};

struct DecodeIQ2_S {
  static constexpr BlockForm form = BlockForm::kSubScale;
  static constexpr int code_max = 43, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ2_S& w = blocks_of<BlockIQ2_S>(row)[first / 8];
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8_t* q = w.qs + 4 * b;
      const uint32_t h = w.qh[b];
      uint32_t signs;
      std::memcpy(&signs, w.signs + 4 * b, 4);
      g.code[b] = negated(octets(kIq2sGrid[q[0] | (h << 8 & 0x300)], kIq2sGrid[q[1] | (h << 6 & 0x300)],
                                 kIq2sGrid[q[2] | (h << 4 & 0x300)], kIq2sGrid[q[3] | (h << 2 & 0x300)]), mask_of_bits(signs));
    }
    split_scales(w.scales, half(w.d), g);
  }
};

inline __m256i quads(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f, uint32_t g, uint32_t h) {
  return _mm256_setr_epi32(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c), static_cast<int>(d), static_cast<int>(e),
                           static_cast<int>(f), static_cast<int>(g), static_cast<int>(h));
}

struct DecodeIQ3_XXS {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 62, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ3_XXS& w = blocks_of<BlockIQ3_XXS>(row)[first / 8];
    const float d = half(w.d);
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8_t* q = w.qs + 8 * b;
      const uint32_t word = w.scales_and_signs[b];
      g.code[b] = negated(quads(kIq3xxsGrid[q[0]], kIq3xxsGrid[q[1]], kIq3xxsGrid[q[2]], kIq3xxsGrid[q[3]], kIq3xxsGrid[q[4]],
                                kIq3xxsGrid[q[5]], kIq3xxsGrid[q[6]], kIq3xxsGrid[q[7]]), sign_masks(word));
      g.scale[b] = (d * (0.5f + static_cast<float>(word >> 28))) * 0.5f;
    }
  }
};

struct DecodeIQ3_S {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 15, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ3_S& w = blocks_of<BlockIQ3_S>(row)[first / 8];
    const float d = half(w.d);
    alignas(32) uint32_t index[64];  // all first: the lookups then find them in the store buffer, far apart from the stores
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const __m256i high = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(w.qh[b]), _mm256_setr_epi32(8, 7, 6, 5, 4, 3, 2, 1)),
                                            _mm256_set1_epi32(256));
      const __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(w.qs + 8 * b)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(index + 8 * b), _mm256_or_si256(high, low));
    }
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint32_t* i = index + 8 * b;
      uint32_t signs;
      std::memcpy(&signs, w.signs + 4 * b, 4);
      g.code[b] = negated(quads(kIq3sGrid[i[0]], kIq3sGrid[i[1]], kIq3sGrid[i[2]], kIq3sGrid[i[3]], kIq3sGrid[i[4]], kIq3sGrid[i[5]],
                                kIq3sGrid[i[6]], kIq3sGrid[i[7]]), mask_of_bits(signs));
      g.scale[b] = d * static_cast<float>(1 + 2 * ((w.scales[b / 2] >> (4 * (b % 2))) & 15));
    }
  }
};

// 8 * g + delta for four octets of ternary bytes.
inline __m256i shifted_octets(uint64_t a, uint64_t b, uint64_t c, uint64_t d, __m256i delta) {
  __m256i g = octets(a, b, c, d);
  g = _mm256_add_epi8(g, g);
  g = _mm256_add_epi8(g, g);
  return _mm256_add_epi8(_mm256_add_epi8(g, g), delta);
}

struct DecodeIQ1_S {
  static constexpr BlockForm form = BlockForm::kScale;
  static constexpr int code_max = 9, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ1_S& w = blocks_of<BlockIQ1_S>(row)[first / 8];
    const float d = half(w.d);
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8_t* q = w.qs + 4 * b;
      const uint32_t h = w.qh[b];
      g.code[b] = shifted_octets(kIq1sGrid[q[0] | (h << 8 & 0x700)], kIq1sGrid[q[1] | (h << 5 & 0x700)],
                                 kIq1sGrid[q[2] | (h << 2 & 0x700)], kIq1sGrid[q[3] | (h >> 1 & 0x700)],
                                 bytes(h & 0x8000 ? -1 : 1));
      g.scale[b] = (d * static_cast<float>(2 * (h >> 12 & 7) + 1)) * 0.125f;
    }
  }
};

struct DecodeIQ1_M {
  static constexpr BlockForm form = BlockForm::kSubScale;
  static constexpr int code_max = 9, bias = kSigned;
  [[gnu::always_inline]] static inline void decode(const std::byte* row, uint32_t first, uint32_t, Group& g) {
    const BlockIQ1_M& w = blocks_of<BlockIQ1_M>(row)[first / 8];
    uint16_t s[4];
    std::memcpy(s, reinterpret_cast<const std::byte*>(&w) + offsetof(BlockIQ1_M, scales), 8);
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const uint8_t* q = w.qs + 4 * b;
      const uint32_t h0 = w.qh[2 * b], h1 = w.qh[2 * b + 1];
      const auto delta = [](uint32_t nibble) __attribute__((always_inline)) {
        return nibble & 8 ? ~uint64_t{0} : uint64_t{0x0101010101010101};
      };
      g.code[b] = shifted_octets(kIq1sGrid[q[0] | (h0 << 8 & 0x700)], kIq1sGrid[q[1] | (h0 << 4 & 0x700)],
                                 kIq1sGrid[q[2] | (h1 << 8 & 0x700)], kIq1sGrid[q[3] | (h1 << 4 & 0x700)],
                                 octets(delta(h0), delta(h0 >> 4), delta(h1), delta(h1 >> 4)));
    }
    // Four 3-bit fields in the low 12 bits of each word: blocks 2i and 2i + 1.
    const __m256i words = _mm256_setr_epi16(s[0], s[0] >> 3, s[0] >> 6, s[0] >> 9, s[1], s[1] >> 3, s[1] >> 6, s[1] >> 9,
                                            s[2], s[2] >> 3, s[2] >> 6, s[2] >> 9, s[3], s[3] >> 3, s[3] >> 6, s[3] >> 9);
    const __m256i t = _mm256_and_si256(words, _mm256_set1_epi16(7));
    g.sub_scale = _mm256_add_epi16(_mm256_add_epi16(t, t), _mm256_set1_epi16(1));
    const auto d = static_cast<uint16_t>((s[0] >> 12) | ((s[1] >> 8) & 0xF0) | ((s[2] >> 4) & 0xF00) | (s[3] & 0xF000));
    fill(g.scale, half(d) * 0.125f);
  }
};

}  // namespace
}  // namespace tierpack::kernels
