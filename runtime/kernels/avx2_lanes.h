// Eight rows at a time: the vectors that the decoders of row groups and their products are written in, for AVX2. The
// twin for AVX-512 is avx512_lanes.h; a file with vector code includes one of them, then group_matmul.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define TIERPACK_INLINE [[gnu::always_inline]] inline

namespace tierpack::kernels {
namespace {

using Ints = __m256i;   // one row a lane of 32 bits, or four bytes of a row; & | ^ work on them
using Floats = __m256;  // one row a lane
constexpr int kLanes = 8;

// With AVX-VNNI (TIERPACK_VNNI) vpdpbusd adds the products of unsigned and signed bytes in 32 bits. Without it they are added in 16 bits
// and can overflow there: codes stay small, or lend their sign to the activations.
#ifdef TIERPACK_VNNI
constexpr bool kExactBytes = true;
#else
constexpr bool kExactBytes = false;
#endif

TIERPACK_INLINE Ints load_ints(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
TIERPACK_INLINE Floats load_halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
// Eight bytes or shorts, each zero-extended to its lane.
TIERPACK_INLINE Ints load_bytes(const void* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))); }
TIERPACK_INLINE Ints load_shorts(const void* p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
TIERPACK_INLINE Floats load_floats(const float* p) { return _mm256_load_ps(p); }
TIERPACK_INLINE void store_floats(float* p, Floats v) { _mm256_storeu_ps(p, v); }

TIERPACK_INLINE Ints zero_ints() { return _mm256_setzero_si256(); }
TIERPACK_INLINE Ints all_bytes(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
TIERPACK_INLINE Ints all_shorts(int v) { return _mm256_set1_epi16(static_cast<short>(v)); }
TIERPACK_INLINE Ints all_ints(uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
TIERPACK_INLINE Floats all_floats(float v) { return _mm256_set1_ps(v); }
TIERPACK_INLINE Ints broadcast_int(const void* p) {
  int v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

TIERPACK_INLINE Ints shift_left(Ints v, int n) { return _mm256_slli_epi32(v, n); }
TIERPACK_INLINE Ints shift_right(Ints v, int n) { return _mm256_srli_epi32(v, n); }
TIERPACK_INLINE Ints shift_right_signed(Ints v, int n) { return _mm256_srai_epi32(v, n); }
TIERPACK_INLINE Ints shift_shorts_right_signed(Ints v, int n) { return _mm256_srai_epi16(v, n); }
TIERPACK_INLINE Ints add_bytes(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
TIERPACK_INLINE Ints sub_bytes(Ints a, Ints b) { return _mm256_sub_epi8(a, b); }
TIERPACK_INLINE Ints min_bytes(Ints a, Ints b) { return _mm256_min_epu8(a, b); }
TIERPACK_INLINE Ints equal_bytes(Ints a, Ints b) { return _mm256_cmpeq_epi8(a, b); }
TIERPACK_INLINE Ints add_ints(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
TIERPACK_INLINE Ints sub_ints(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
TIERPACK_INLINE Ints absolute(Ints v) { return _mm256_abs_epi8(v); }
TIERPACK_INLINE Ints mul_ints(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
TIERPACK_INLINE Ints mul_shorts(Ints a, Ints b) { return _mm256_mullo_epi16(a, b); }
TIERPACK_INLINE Ints equal_ints(Ints a, Ints b) { return _mm256_cmpeq_epi32(a, b); }
// `yes` where the mask's bytes are 0xFF, else `no`.
TIERPACK_INLINE Ints select(Ints mask, Ints yes, Ints no) { return _mm256_blendv_epi8(no, yes, mask); }
// Bytes of each 16 by index; an index with the top bit set gives 0.
TIERPACK_INLINE Ints shuffle_bytes(Ints v, Ints index) { return _mm256_shuffle_epi8(v, index); }
// The same 16 bytes in all 128-bit lanes.
TIERPACK_INLINE Ints repeat16(const void* p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p))); }

TIERPACK_INLINE Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
TIERPACK_INLINE Floats as_floats(Ints v) { return _mm256_castsi256_ps(v); }
TIERPACK_INLINE Ints as_ints(Floats v) { return _mm256_castps_si256(v); }
TIERPACK_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
TIERPACK_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
TIERPACK_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
TIERPACK_INLINE Floats negate(Floats v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

// a0 * b0 + a1 * b1 of the i16 pairs of a lane, added to `sum`.
TIERPACK_INLINE Ints add_pairs(Ints sum, Ints a, Ints b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

#ifdef TIERPACK_VNNI
// The four products of unsigned bytes of `a` and signed bytes of `b` of a lane, added to `sum`.
TIERPACK_INLINE Ints dot_bytes(Ints sum, Ints a, Ints b) {
#ifdef __AVXVNNI__
  return _mm256_dpbusd_avx_epi32(sum, a, b);
#else
  return _mm256_dpbusd_epi32(sum, a, b);
#endif
}
#endif

// The f16 in the low 16 bits of each lane, whose high bits are 0.
TIERPACK_INLINE Floats from_halves(Ints v) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

// table[index] for each lane; loads and inserts, because vpgatherdd costs more on many CPUs.
TIERPACK_INLINE Ints gather(const uint32_t* table, Ints index) {
  alignas(32) uint32_t i[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(i), index);
  const auto four = [table](const uint32_t* of) __attribute__((always_inline)) {
    __m128i v = _mm_cvtsi32_si128(static_cast<int>(table[of[0]]));
    v = _mm_insert_epi32(v, static_cast<int>(table[of[1]]), 1);
    v = _mm_insert_epi32(v, static_cast<int>(table[of[2]]), 2);
    return _mm_insert_epi32(v, static_cast<int>(table[of[3]]), 3);
  };
  return _mm256_set_m128i(four(i + 4), four(i));
}

// The low and the high half of table[index] for each lane.
TIERPACK_INLINE void gather(const uint64_t* table, Ints index, Ints& low, Ints& high) {
  alignas(32) uint32_t i[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(i), index);
  const auto two = [table](const uint32_t* of) __attribute__((always_inline)) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + of[0]));
    return _mm_castsi128_ps(_mm_insert_epi64(first, static_cast<int64_t>(table[of[1]]), 1));
  };
  const __m256 a = _mm256_set_m128(two(i + 4), two(i)), b = _mm256_set_m128(two(i + 6), two(i + 2));
  low = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
  high = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
}

}  // namespace
}  // namespace tierpack::kernels
