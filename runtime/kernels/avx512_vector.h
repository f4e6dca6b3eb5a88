// Sixteen floats as the F of float_math.h, and what vector_attention.h and vector_delta_rule.h need: the twin of
// avx2_vector.h. Included only by the avx512_*.cpp files; the unnamed namespace keeps its instances out of every other object.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace tierpack::kernels {
namespace {

struct I32x16 {
  __m512i value;
  static I32x16 of(int32_t v) { return {_mm512_set1_epi32(v)}; }
};
inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.value, b.value)}; }
inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.value, b.value)}; }
inline I32x16 operator<<(I32x16 a, int count) { return {_mm512_slli_epi32(a.value, static_cast<unsigned>(count))}; }
inline I32x16 operator>>(I32x16 a, int count) { return {_mm512_srai_epi32(a.value, static_cast<unsigned>(count))}; }

struct F32x16 {
  using Int = I32x16;
  __m512 value;
  static F32x16 of(float v) { return {_mm512_set1_ps(v)}; }
};
inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.value, b.value)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.value, b.value)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.value, b.value)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.value, b.value)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.value, b.value, c.value)}; }
inline __mmask16 less(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.value, b.value, _CMP_LT_OQ); }
inline F32x16 select(__mmask16 mask, F32x16 yes, F32x16 no) { return {_mm512_mask_blend_ps(mask, no.value, yes.value)}; }
inline I32x16 bits(F32x16 a) { return {_mm512_castps_si512(a.value)}; }
inline F32x16 from_bits(I32x16 a) { return {_mm512_castsi512_ps(a.value)}; }
inline F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.value)}; }

using Wide = F32x16;
constexpr uint32_t kWideLanes = 16;

// The first `count` <= 16 lanes; the others read as 0 and are not written.
inline __mmask16 first_lanes(uint32_t count) { return static_cast<__mmask16>((1u << count) - 1); }
inline F32x16 load(const float* x) { return {_mm512_loadu_ps(x)}; }
inline F32x16 load_part(const float* x, uint32_t count) { return {_mm512_maskz_loadu_ps(first_lanes(count), x)}; }
inline F32x16 load_lanes(const float* x, uint32_t lanes) { return lanes == 16 ? load(x) : load_part(x, lanes); }
inline void store(float* x, F32x16 v) { _mm512_storeu_ps(x, v.value); }
inline void store_part(float* x, uint32_t count, F32x16 v) { _mm512_mask_storeu_ps(x, first_lanes(count), v.value); }
inline void store_lanes(float* x, uint32_t lanes, F32x16 v) {
  if (lanes == 16) store(x, v);
  else store_part(x, lanes, v);
}

// part = fma(a, b, part) or a + part in the first `lanes` lanes; the others keep their bits.
inline __m512 fma_lanes(__m512 a, __m512 b, __m512 part, uint32_t lanes) {
  return lanes == 16 ? _mm512_fmadd_ps(a, b, part) : _mm512_mask3_fmadd_ps(a, b, part, first_lanes(lanes));
}
inline __m512 add_lanes(__m512 a, __m512 part, uint32_t lanes) { return _mm512_mask_add_ps(part, first_lanes(lanes), a, part); }

// ((s0+s8) + (s4+s12)) + ..., the tree of docs/arithmetic.md for 16 sums.
inline float tree_sum(__m512 s) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Thirty-two interleaved partial sums: element e belongs to lane e % 16 of part[e % 32 / 16].
struct Sums32 {
  __m512 part[2];
  static Sums32 zero() { return {{_mm512_setzero_ps(), _mm512_setzero_ps()}}; }
  float total() const { return tree_sum(_mm512_add_ps(part[0], part[1])); }
};

// Larger of two; the second where one is NaN.
inline F32x16 larger(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.value, b.value)}; }
inline float largest_lane(F32x16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.value), _mm512_extractf32x8_ps(a.value, 1));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// Steps of a tree over vectors that are transposed while they are added. Each halves the partial sums of every source.
inline __m512 add_halves(__m512 a, __m512 b) {  // 16 -> 8: a's in the low half, b's in the high one
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
inline __m512 add_quarters(__m512 a, __m512 b) {  // 8 -> 4: one source a quarter
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
inline __m512 add_pairs(__m512 a, __m512 b) {  // 4 -> 2 within quarters
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
}
inline __m512 add_neighbours(__m512 a, __m512 b) {  // 2 -> 1 within quarters
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
// Source 4 i + q lies at element i of quarter q; in order again.
inline __m512 in_order(__m512 sums) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
}
inline __m512 pair_sums(const F32x16* v) {  // 8 vectors
  const __m512 low = add_quarters(add_halves(v[0].value, v[1].value), add_halves(v[2].value, v[3].value));
  const __m512 high = add_quarters(add_halves(v[4].value, v[5].value), add_halves(v[6].value, v[7].value));
  return add_pairs(low, high);
}

// Lane i < 8 is the tree sum of v[i]; the upper lanes repeat.
inline F32x16 tree_sums(const F32x16 (&v)[8]) {
  const __m512 pairs = pair_sums(v);
  return {in_order(add_neighbours(pairs, pairs))};
}

inline __m512 half_to_float(const uint16_t* x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}
inline __m512 half_to_float_part(const uint16_t* x, uint32_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(count), x));
}
inline F32x16 code_to_float(const int8_t* x) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))))};
}

}  // namespace
}  // namespace tierpack::kernels
