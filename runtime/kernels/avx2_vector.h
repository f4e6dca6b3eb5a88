// Eight floats as the F of float_math.h, and the fixed summation trees. Included only by the avx2_*.cpp files, which are
// compiled with -mavx2 -mfma -mf16c; the unnamed namespace keeps their instances out of every other object.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace tierpack::kernels {
namespace {

struct I32x8 {
  __m256i value;
  static I32x8 of(int32_t v) { return {_mm256_set1_epi32(v)}; }
};
inline I32x8 operator+(I32x8 a, I32x8 b) { return {_mm256_add_epi32(a.value, b.value)}; }
inline I32x8 operator-(I32x8 a, I32x8 b) { return {_mm256_sub_epi32(a.value, b.value)}; }
inline I32x8 operator<<(I32x8 a, int count) { return {_mm256_slli_epi32(a.value, count)}; }
inline I32x8 operator>>(I32x8 a, int count) { return {_mm256_srai_epi32(a.value, count)}; }

struct Mask8 {
  __m256 value;
};

struct F32x8 {
  using Int = I32x8;
  __m256 value;
  static F32x8 of(float v) { return {_mm256_set1_ps(v)}; }
};
inline F32x8 operator+(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.value, b.value)}; }
inline F32x8 operator-(F32x8 a, F32x8 b) { return {_mm256_sub_ps(a.value, b.value)}; }
inline F32x8 operator*(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.value, b.value)}; }
inline F32x8 operator/(F32x8 a, F32x8 b) { return {_mm256_div_ps(a.value, b.value)}; }
inline F32x8 fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.value, b.value, c.value)}; }
inline Mask8 less(F32x8 a, F32x8 b) { return {_mm256_cmp_ps(a.value, b.value, _CMP_LT_OQ)}; }
inline F32x8 select(Mask8 mask, F32x8 yes, F32x8 no) { return {_mm256_blendv_ps(no.value, yes.value, mask.value)}; }
inline I32x8 bits(F32x8 a) { return {_mm256_castps_si256(a.value)}; }
inline F32x8 from_bits(I32x8 a) { return {_mm256_castsi256_ps(a.value)}; }
inline F32x8 to_float(I32x8 a) { return {_mm256_cvtepi32_ps(a.value)}; }

// The widest float vector of the file's instruction set, for the headers that several sets compile.
using Wide = F32x8;
constexpr uint32_t kWideLanes = 8;

inline F32x8 load(const float* x) { return {_mm256_loadu_ps(x)}; }
inline void store(float* x, F32x8 v) { _mm256_storeu_ps(x, v.value); }

// The first `count` < 8 lanes; the others read as 0 and are not written.
inline __m256i lane_mask(uint32_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F32x8 load_part(const float* x, uint32_t count) { return {_mm256_maskload_ps(x, lane_mask(count))}; }
inline void store_part(float* x, uint32_t count, F32x8 v) { _mm256_maskstore_ps(x, lane_mask(count), v.value); }

// ((s0+s4)+(s2+s6)) + ((s1+s5)+(s3+s7)).
inline float tree_sum(__m256 s) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Thirty-two interleaved partial sums: element e belongs to lane e % 8 of part[e % 32 / 8].
struct Sums32 {
  __m256 part[4];
  static Sums32 zero() { return {{_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()}}; }
  // The tree down to eight.
  __m256 eight() const { return _mm256_add_ps(_mm256_add_ps(part[0], part[2]), _mm256_add_ps(part[1], part[3])); }
  float total() const { return tree_sum(eight()); }
};

// Calls step(part, index, lanes) over n elements for each group of 8, the last one perhaps with fewer lanes.
template <typename Step>
inline void for_each_8(uint32_t n, Step&& step) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) step(i, 8u);
  if (i < n) step(i, n - i);
}

// As for_each_8 over the interleaved partial sums: step(index, part, lanes) with part = index % 32 / 8, a constant at each
// call, so that the sums live in registers.
template <typename Step>
[[gnu::always_inline]] inline void for_each_part(uint32_t n, Step&& step) {
  uint32_t i = 0;
  for (; i + 32 <= n; i += 32) {
    step(i, 0, 8u);
    step(i + 8, 1, 8u);
    step(i + 16, 2, 8u);
    step(i + 24, 3, 8u);
  }
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part, i += 8) {
    if (i < n) step(i, part, n - i < 8 ? n - i : 8u);
  }
}

inline F32x8 load_lanes(const float* x, uint32_t lanes) { return lanes == 8 ? load(x) : load_part(x, lanes); }
inline void store_lanes(float* x, uint32_t lanes, F32x8 v) {
  if (lanes == 8) store(x, v);
  else store_part(x, lanes, v);
}

// part = fma(a, b, part) in the first `lanes` lanes; the others keep their bits (adding 0 would turn -0 into +0).
inline __m256 fma_lanes(__m256 a, __m256 b, __m256 part, uint32_t lanes) {
  const __m256 sum = _mm256_fmadd_ps(a, b, part);
  return lanes == 8 ? sum : _mm256_blendv_ps(part, sum, _mm256_castsi256_ps(lane_mask(lanes)));
}
inline __m256 add_lanes(__m256 a, __m256 part, uint32_t lanes) {
  const __m256 sum = _mm256_add_ps(a, part);
  return lanes == 8 ? sum : _mm256_blendv_ps(part, sum, _mm256_castsi256_ps(lane_mask(lanes)));
}

// Larger of two; the second where one is NaN.
inline F32x8 larger(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.value, b.value)}; }
inline float largest_lane(F32x8 a) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.value), _mm256_extractf128_ps(a.value, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// Lane i is the tree sum of v[i]: the vectors are added in pairs while they are transposed.
inline F32x8 tree_sums(const F32x8 (&v)[8]) {
  __m256 four[4];
  for (int i = 0; i < 4; ++i) {
    const __m256 a = v[2 * i].value;
    const __m256 b = v[2 * i + 1].value;
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  __m256 two[2];
  for (int i = 0; i < 2; ++i) {
    const __m256 a = four[2 * i];
    const __m256 b = four[2 * i + 1];
    two[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
  }
  const __m256 sums = _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xDD));
  return {_mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))};
}

inline __m256 half_to_float(const uint16_t* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}

// Fewer than 8 halves.
inline __m256 half_to_float_part(const uint16_t* x, uint32_t count) {
  alignas(16) uint16_t padded[8] = {};
  std::memcpy(padded, x, count * sizeof(uint16_t));
  return half_to_float(padded);
}

inline F32x8 code_to_float(const int8_t* x) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))))};
}

}  // namespace
}  // namespace tierpack::kernels
