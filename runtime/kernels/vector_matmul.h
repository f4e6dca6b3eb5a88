// Products with quantised weights on vectors of eight 32-bit lanes; compiled once by each instruction set's file, with
// the dot product of bytes that its CPUs have. Included by those files alone: everything is in an unnamed namespace.
//
// Both ways of going through a matrix give the reference's bits, because a block's dot
// product is an exact integer and the floating-point steps of one (row, token) pair are the same:
//
// - few tokens: row by row. The 8 blocks of a group are the 8 partial sums, one lane each; the horizontal sums of 8
//   integer products meet in one vector.
// - many tokens: 8 rows at once, one lane each. A group of 8 rows x 256 columns is decoded once, transposed so that a
//   vector holds the same 4 columns of 8 rows, and meets all tokens of a tile; nothing is summed across lanes.
#pragma once

#include "base/error.h"
#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx2_iq_decoders.h"
#include "runtime/kernels/reference.h"

namespace tierpack::kernels {
namespace {

constexpr uint32_t kLanes = 8;         // blocks of a group, rows of a tile
constexpr uint32_t kTokenTile = 32;    // tokens that meet one decoding; their partial sums stay in the L1 cache
constexpr uint32_t kManyTokens = 4;    // from here on the transposition pays

constexpr bool has_sub_scale(BlockForm form) { return form == BlockForm::kSubScale || form == BlockForm::kSubScaleOffset; }

// How a type's codes meet the activations:
//   unsigned codes, and codes made unsigned by a bias, multiply them as they are; bias * xsum is taken off the sum;
//   signed codes lend their sign to the activations: |c| * (q with the sign of c).
// Where products of bytes do not saturate (VNNI), one-scale types with signed codes use a bias of 128 instead.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
constexpr bool kExactBytes = true;
#else
constexpr bool kExactBytes = false;
#endif

template <typename D>
constexpr int bias_of() {
  return D::bias == kSigned && kExactBytes && D::form == BlockForm::kScale ? 128 : D::bias;
}

// The bytes to multiply: c, c + bias or |c|.
template <typename D>
[[gnu::always_inline]] inline __m256i multiplier(__m256i code) {
  if constexpr (bias_of<D>() == kSigned) return _mm256_sign_epi8(code, code);
  if constexpr (bias_of<D>() != D::bias) return _mm256_xor_si256(code, bytes(-128));
  return code;
}

// sum + products of four unsigned and four signed bytes in each lane. Without VNNI, pairs are added in i16: with
// |c| <= 128 and |q| <= 127 a pair is at most 2 * 128 * 127 = 32512.
[[gnu::always_inline]] inline __m256i add_bytes(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  return _mm256_dpbusd_epi32(sum, unsigned_bytes, signed_bytes);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned_bytes, signed_bytes), _mm256_set1_epi16(1)));
#endif
}

// --- row by row ---

// Sums of the low and the high 128-bit lane of eight vectors of four i32 each: low[b], high[b].
inline void sum_lanes(const __m256i (&v)[8], __m256i& low, __m256i& high) {
  const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i second = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  low = _mm256_permute2x128_si256(first, second, 0x20);
  high = _mm256_permute2x128_si256(first, second, 0x31);
}

// low * k_0 + high * k_1, where lane b of `pairs` holds (k_0, k_1) as two i16.
inline __m256i scaled_halves(__m256i low, __m256i high, __m256i pairs) {
  const __m256i first = _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16);
  return _mm256_add_epi32(_mm256_mullo_epi32(low, first), _mm256_mullo_epi32(high, _mm256_srai_epi32(pairs, 16)));
}

// The sums of the 16-element halves of 8 activation blocks, as i16 pairs in lane b.
inline __m256i half_sums(const int8_t* q) {
  __m256i h[8];
#pragma GCC unroll 8
  for (int b = 0; b < 8; ++b) h[b] = _mm256_maddubs_epi16(bytes(1), load32(q + 32 * b));
  const __m256i first = _mm256_hadd_epi16(_mm256_hadd_epi16(h[0], h[1]), _mm256_hadd_epi16(h[2], h[3]));
  const __m256i second = _mm256_hadd_epi16(_mm256_hadd_epi16(h[4], h[5]), _mm256_hadd_epi16(h[6], h[7]));
  const __m256i all = _mm256_hadd_epi16(first, second);  // first halves of blocks 0..7 in the low lane, second in the high
  const __m128i low = _mm256_castsi256_si128(all), high = _mm256_extracti128_si256(all, 1);
  return _mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high));
}

// Adds the products of `count` blocks to their partial sums (lane b for block b).
template <typename D>
[[gnu::always_inline]] inline __m256 add_group(const Group& g, const int8_t* q, const float* scale, const int32_t* sum,
                                               uint32_t count, __m256 partial) {
  __m256i v[8];
#pragma GCC unroll 8
  for (uint32_t b = 0; b < 8; ++b) v[b] = _mm256_setzero_si256();
  const auto multiply = [&](uint32_t b) __attribute__((always_inline)) {
    const __m256i x = load32(q + 32 * b);
    v[b] = add_bytes(_mm256_setzero_si256(), multiplier<D>(g.code[b]), bias_of<D>() == kSigned ? _mm256_sign_epi8(x, g.code[b]) : x);
  };
  if (count == kLanes) {
#pragma GCC unroll 8
    for (uint32_t b = 0; b < 8; ++b) multiply(b);
  } else {
    for (uint32_t b = 0; b < count; ++b) multiply(b);
  }
  const __m256i mask = lane_mask(count);
  const __m256 x_scale = _mm256_maskload_ps(scale, mask);
  const __m256i x_sum = _mm256_maskload_epi32(sum, mask);
  __m256i low, high;
  sum_lanes(v, low, high);
  __m256 added = partial;
  if constexpr (D::form == BlockForm::kTwoScales) {
    added = _mm256_fmadd_ps(_mm256_cvtepi32_ps(low), _mm256_mul_ps(_mm256_load_ps(g.scale), x_scale), added);
    added = _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_mul_ps(_mm256_load_ps(g.scale_high), x_scale), added);
  } else {
    __m256i dot = has_sub_scale(D::form) ? scaled_halves(low, high, g.sub_scale) : _mm256_add_epi32(low, high);
    if constexpr (bias_of<D>() > 0) {
      dot = _mm256_sub_epi32(dot, _mm256_slli_epi32(x_sum, std::countr_zero(static_cast<unsigned>(bias_of<D>()))));
    }
    added = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(_mm256_load_ps(g.scale), x_scale), added);
  }
  if constexpr (D::form == BlockForm::kScaleOffset) {
    added = _mm256_fmadd_ps(_mm256_cvtepi32_ps(x_sum), _mm256_mul_ps(_mm256_load_ps(g.offset), x_scale), added);
  }
  if constexpr (D::form == BlockForm::kSubScaleOffset) {
    const __m256i offsets = _mm256_madd_epi16(half_sums(q), g.sub_offset);
    added = _mm256_fmadd_ps(_mm256_cvtepi32_ps(offsets), _mm256_mul_ps(_mm256_load_ps(g.offset), x_scale), added);
  }
  return count == kLanes ? added : _mm256_blendv_ps(partial, added, _mm256_castsi256_ps(mask));
}

// One row and Tokens tokens from `first` on.
template <typename D, uint32_t Tokens>
void one_row(const std::byte* row, const ActivationView& x, uint32_t first, float* y, size_t y_stride) {
  const uint32_t blocks = x.n / 32;
  __m256 partial[Tokens];
  for (__m256& p : partial) p = _mm256_setzero_ps();
  Group g;
  const size_t start = size_t{first} * blocks;
  uint32_t b = 0;
  for (; b + kLanes <= blocks; b += kLanes) {
    D::decode(row, b, kLanes, g);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < Tokens; ++t) {
      const size_t at = start + size_t{t} * blocks + b;
      partial[t] = add_group<D>(g, x.q + 32 * at, x.scale + at, x.sum + at, kLanes, partial[t]);
    }
  }
  if (b < blocks) {
    D::decode(row, b, blocks - b, g);
    for (uint32_t t = 0; t < Tokens; ++t) {
      const size_t at = start + size_t{t} * blocks + b;
      partial[t] = add_group<D>(g, x.q + 32 * at, x.scale + at, x.sum + at, blocks - b, partial[t]);
    }
  }
  for (uint32_t t = 0; t < Tokens; ++t) y[(first + t) * y_stride] = tree_sum(partial[t]);
}

// --- eight rows at a time ---

// A group of 8 rows: for block b, vector i holds columns 4i .. 4i + 3 of row r in lane r.
struct RowTile {
  __m256i multiplier[8][8];
  __m256i code[8][8];       // where they lend their sign
  __m256i sub_scale[8][2];  // lane r: the scale of a half of row r, twice in i16 (VNNI: in i32)
  __m256i sub_offset[8];    // lane r: the two offsets of row r in i16
  __m256 scale[8], scale_high[8], offset[8];
};

// Transposes an 8 x 8 matrix of 32-bit lanes.
inline void transpose(const __m256i (&row)[8], __m256i* column) {
  __m256i pair[8], quad[8];
  for (int i = 0; i < 4; ++i) {
    pair[2 * i] = _mm256_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
    pair[2 * i + 1] = _mm256_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    quad[4 * i] = _mm256_unpacklo_epi64(pair[4 * i], pair[4 * i + 2]);
    quad[4 * i + 1] = _mm256_unpackhi_epi64(pair[4 * i], pair[4 * i + 2]);
    quad[4 * i + 2] = _mm256_unpacklo_epi64(pair[4 * i + 1], pair[4 * i + 3]);
    quad[4 * i + 3] = _mm256_unpackhi_epi64(pair[4 * i + 1], pair[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    column[i] = _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x20);
    column[i + 4] = _mm256_permute2x128_si256(quad[i], quad[i + 4], 0x31);
  }
}

inline void transpose_floats(const Group* g, float (Group::*field)[8], __m256* column) {
  __m256i rows[8], columns[8];
  for (int r = 0; r < 8; ++r) rows[r] = _mm256_castps_si256(_mm256_load_ps(g[r].*field));
  transpose(rows, columns);
  for (int b = 0; b < 8; ++b) column[b] = _mm256_castsi256_ps(columns[b]);
}

template <typename D>
void decode_tile(const std::byte* const (&row)[8], uint32_t first, uint32_t count, Group (&g)[8], RowTile& tile) {
  for (int r = 0; r < 8; ++r) D::decode(row[r], first, count, g[r]);
  __m256i rows[8];
  for (uint32_t b = 0; b < count; ++b) {
    for (int r = 0; r < 8; ++r) rows[r] = g[r].code[b];
    transpose(rows, tile.code[b]);
    for (int i = 0; i < 8; ++i) tile.multiplier[b][i] = multiplier<D>(tile.code[b][i]);
  }
  if constexpr (has_sub_scale(D::form)) {
    __m256i pairs[8];
    for (int r = 0; r < 8; ++r) rows[r] = g[r].sub_scale;
    transpose(rows, pairs);
    for (uint32_t b = 0; b < count; ++b) {
      const __m256i low = _mm256_srai_epi32(_mm256_slli_epi32(pairs[b], 16), 16), high = _mm256_srai_epi32(pairs[b], 16);
      tile.sub_scale[b][0] = kExactBytes ? low : _mm256_blend_epi16(low, _mm256_slli_epi32(low, 16), 0xAA);
      tile.sub_scale[b][1] = kExactBytes ? high : _mm256_blend_epi16(high, _mm256_slli_epi32(high, 16), 0xAA);
    }
  }
  if constexpr (D::form == BlockForm::kSubScaleOffset) {
    for (int r = 0; r < 8; ++r) rows[r] = g[r].sub_offset;
    transpose(rows, tile.sub_offset);
  }
  transpose_floats(g, &Group::scale, tile.scale);
  if constexpr (D::form == BlockForm::kTwoScales) transpose_floats(g, &Group::scale_high, tile.scale_high);
  if constexpr (D::form == BlockForm::kScaleOffset || D::form == BlockForm::kSubScaleOffset) {
    transpose_floats(g, &Group::offset, tile.offset);
  }
}

// scale times the dot products of Count vectors of a block with the bytes at q, one row a lane.
template <typename D, int Count>
[[gnu::always_inline]] inline __m256i tile_dot(const __m256i* factor, const __m256i* code, const int8_t* q, const __m256i* scale) {
  // Without VNNI, so many i16 pair sums stay below 2^15 when added.
  constexpr int kFits = 32767 / (2 * 127 * D::code_max);
  static_assert(kFits >= 1);
  constexpr int kRun = kFits >= 8 ? 8 : kFits >= 4 ? 4 : kFits >= 2 ? 2 : 1;
  __m256i total = _mm256_setzero_si256();
  __m256i run = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    int32_t four;
    std::memcpy(&four, q + 4 * i, 4);
    const __m256i broadcast = _mm256_set1_epi32(four);
    const __m256i x = bias_of<D>() == kSigned ? _mm256_sign_epi8(broadcast, code[i]) : broadcast;
    if constexpr (kExactBytes) {
      total = add_bytes(total, factor[i], x);
    } else {
      const __m256i pairs = _mm256_maddubs_epi16(factor[i], x);
      run = i % kRun == 0 ? pairs : _mm256_add_epi16(run, pairs);
      if (i % kRun == kRun - 1 || i == Count - 1) {
        const __m256i scaled = _mm256_madd_epi16(run, scale ? *scale : _mm256_set1_epi16(1));
        total = i < kRun ? scaled : _mm256_add_epi32(total, scaled);
      }
    }
  }
  return kExactBytes && scale ? _mm256_mullo_epi32(total, *scale) : total;
}

// Adds block b of the tile times the activation block to the partial sums of 8 rows.
template <typename D>
[[gnu::always_inline]] inline __m256 add_tile_block(const RowTile& tile, uint32_t b, const int8_t* q, float scale, int32_t sum,
                                                    __m256 partial) {
  const __m256 x_scale = _mm256_set1_ps(scale);
  const __m256i* factor = tile.multiplier[b];
  const __m256i* code = tile.code[b];
  if constexpr (D::form == BlockForm::kTwoScales) {
    const __m256i low = tile_dot<D, 4>(factor, code, q, nullptr);
    const __m256i high = tile_dot<D, 4>(factor + 4, code + 4, q + 16, nullptr);
    partial = _mm256_fmadd_ps(_mm256_cvtepi32_ps(low), _mm256_mul_ps(tile.scale[b], x_scale), partial);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_mul_ps(tile.scale_high[b], x_scale), partial);
  }
  __m256i dot;
  if constexpr (has_sub_scale(D::form)) {
    dot = _mm256_add_epi32(tile_dot<D, 4>(factor, code, q, &tile.sub_scale[b][0]),
                           tile_dot<D, 4>(factor + 4, code + 4, q + 16, &tile.sub_scale[b][1]));
  } else {
    dot = tile_dot<D, 8>(factor, code, q, nullptr);
  }
  if constexpr (bias_of<D>() > 0) dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(sum * bias_of<D>()));
  partial = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(tile.scale[b], x_scale), partial);
  if constexpr (D::form == BlockForm::kScaleOffset) {
    partial = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(sum)), _mm256_mul_ps(tile.offset[b], x_scale), partial);
  }
  if constexpr (D::form == BlockForm::kSubScaleOffset) {
    const __m256i halves = _mm256_maddubs_epi16(bytes(1), load32(q));  // pair sums of the activations
    const __m256i fours = _mm256_madd_epi16(halves, _mm256_set1_epi16(1));
    const __m256i eights = _mm256_hadd_epi32(fours, fours);
    const __m256i sixteens = _mm256_hadd_epi32(eights, eights);
    const uint32_t low = static_cast<uint16_t>(_mm256_extract_epi16(sixteens, 0));  // at most 16 * 127 in size
    const uint32_t high = static_cast<uint16_t>(_mm256_extract_epi16(sixteens, 8));
    const __m256i offsets = _mm256_madd_epi16(tile.sub_offset[b], _mm256_set1_epi32(static_cast<int32_t>(low | high << 16)));
    partial = _mm256_fmadd_ps(_mm256_cvtepi32_ps(offsets), _mm256_mul_ps(tile.offset[b], x_scale), partial);
  }
  return partial;
}

// Rows row[0..8) (the last ones may repeat) and tokens first .. first + tokens; out(t, sums of 8 rows).
template <typename D, typename Out>
void eight_rows(const std::byte* const (&row)[8], const ActivationView& x, uint32_t first, uint32_t tokens, Out&& out) {
  __m256 partial[kTokenTile][8];
  for (uint32_t t = 0; t < tokens; ++t) {
    for (__m256& p : partial[t]) p = _mm256_setzero_ps();
  }
  Group g[8];
  RowTile tile;
  const uint32_t blocks = x.n / 32;
  for (uint32_t start = 0; start < blocks; start += kLanes) {
    const uint32_t count = blocks - start < kLanes ? blocks - start : kLanes;
    decode_tile<D>(row, start, count, g, tile);
    for (uint32_t b = 0; b < count; ++b) {
      for (uint32_t t = 0; t < tokens; ++t) {
        const size_t at = size_t{first + t} * blocks + start + b;
        partial[t][b] = add_tile_block<D>(tile, b, x.q + 32 * at, x.scale[at], x.sum[at], partial[t][b]);
      }
    }
  }
  for (uint32_t t = 0; t < tokens; ++t) {
    const __m256* s = partial[t];
    out(first + t, _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6])),
                                 _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]))));
  }
}

template <typename D>
void product(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  const size_t row_stride = row_bytes(w.dtype, w.cols);
  if (x.tokens < kManyTokens) {
    for (uint32_t r = row_begin; r < row_end; ++r) {
      const std::byte* row = w.data + r * row_stride;
      switch (x.tokens) {
        case 1: one_row<D, 1>(row, x, 0, y + r, y_stride); break;
        case 2: one_row<D, 2>(row, x, 0, y + r, y_stride); break;
        case 3: one_row<D, 3>(row, x, 0, y + r, y_stride); break;
        default: break;
      }
    }
    return;
  }
  for (uint32_t r = row_begin; r < row_end; r += kLanes) {
    const uint32_t rows = row_end - r < kLanes ? row_end - r : kLanes;
    const std::byte* row[8];
    for (uint32_t i = 0; i < 8; ++i) row[i] = w.data + (r + (i < rows ? i : rows - 1)) * row_stride;
    for (uint32_t t = 0; t < x.tokens; t += kTokenTile) {
      const uint32_t tokens = x.tokens - t < kTokenTile ? x.tokens - t : kTokenTile;
      eight_rows<D>(row, x, t, tokens, [&](uint32_t token, __m256 sums) {
        store_lanes(y + token * y_stride + r, rows, {sums});
      });
    }
  }
}

using Product = void (*)(const MatrixView&, uint32_t, uint32_t, const ActivationView&, float*, size_t);

// The list of instances.
Product product_of(DType type) {
  switch (type) {
    case DType::kQ4_0: return product<DecodeQ4_0>;
    case DType::kQ4_1: return product<DecodeQ4_1>;
    case DType::kQ5_0: return product<DecodeQ5_0>;
    case DType::kQ5_1: return product<DecodeQ5_1>;
    case DType::kQ8_0: return product<DecodeQ8_0>;
    case DType::kQ8_1: return product<DecodeQ8_1>;
    case DType::kQ2_K: return product<DecodeQ2_K>;
    case DType::kQ3_K: return product<DecodeQ3_K>;
    case DType::kQ4_K: return product<DecodeQ4_K>;
    case DType::kQ5_K: return product<DecodeQ5_K>;
    case DType::kQ6_K: return product<DecodeQ6_K>;
    case DType::kQ8_K: return product<DecodeQ8_K>;
    case DType::kIQ2_XXS: return product<DecodeIQ2_XXS>;
    case DType::kIQ2_XS: return product<DecodeIQ2_XS>;
    case DType::kIQ2_S: return product<DecodeIQ2_S>;
    case DType::kIQ3_XXS: return product<DecodeIQ3_XXS>;
    case DType::kIQ3_S: return product<DecodeIQ3_S>;
    case DType::kIQ1_S: return product<DecodeIQ1_S>;
    case DType::kIQ1_M: return product<DecodeIQ1_M>;
    case DType::kIQ4_NL: return product<DecodeIQ4_NL>;
    case DType::kIQ4_XS: return product<DecodeIQ4_XS>;
    case DType::kTQ1_0: return product<DecodeTQ1_0>;
    case DType::kTQ2_0: return product<DecodeTQ2_0>;
    case DType::kMXFP4: return product<DecodeMXFP4>;
    case DType::kNVFP4: return product<DecodeNVFP4>;
    case DType::kQ1_0: return product<DecodeQ1_0>;
    case DType::kQ2_0: return product<DecodeQ2_0>;
    default: return avx2_ops::matmul_plain;
  }
}

void vector_matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  TIERPACK_CHECK(x.n == w.cols && row_begin <= row_end && row_end <= w.rows);
  if (traits(w.dtype).quantised) return reference_ops::matmul(w, row_begin, row_end, x, y, y_stride);
  product_of(w.dtype)(w, row_begin, row_end, x, y, y_stride);
}

}  // namespace
}  // namespace tierpack::kernels
