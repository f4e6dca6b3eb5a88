// AVX2 decoders of the 256-element IQ types; see avx2_decoders.h for what a decoder is.
#pragma once

#include "runtime/kernels/avx2_decoders.h"

namespace tierpack::kernels {
namespace {

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
