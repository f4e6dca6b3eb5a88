// Sixteen rows at a time, a whole group: the vectors of avx2_lanes.h for AVX-512 with VNNI.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define TIERPACK_INLINE [[gnu::always_inline]] inline

namespace tierpack::kernels {
namespace {

using Ints = __m512i;
using Floats = __m512;
constexpr int kLanes = 16;

// vpdpbusd adds the products of unsigned and signed bytes in 32 bits.
#define TIERPACK_VNNI
constexpr bool kExactBytes = true;

TIERPACK_INLINE Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
TIERPACK_INLINE Floats load_halves(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
TIERPACK_INLINE Ints load_bytes(const void* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
TIERPACK_INLINE Ints load_shorts(const void* p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
TIERPACK_INLINE Floats load_floats(const float* p) { return _mm512_load_ps(p); }
TIERPACK_INLINE void store_floats(float* p, Floats v) { _mm512_storeu_ps(p, v); }

TIERPACK_INLINE Ints zero_ints() { return _mm512_setzero_si512(); }
TIERPACK_INLINE Ints all_bytes(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
TIERPACK_INLINE Ints all_shorts(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }
TIERPACK_INLINE Ints all_ints(uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
TIERPACK_INLINE Floats all_floats(float v) { return _mm512_set1_ps(v); }
TIERPACK_INLINE Ints broadcast_int(const void* p) {
  int v;
  std::memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}

TIERPACK_INLINE Ints shift_left(Ints v, int n) { return _mm512_slli_epi32(v, static_cast<unsigned>(n)); }
TIERPACK_INLINE Ints shift_right(Ints v, int n) { return _mm512_srli_epi32(v, static_cast<unsigned>(n)); }
TIERPACK_INLINE Ints shift_right_signed(Ints v, int n) { return _mm512_srai_epi32(v, static_cast<unsigned>(n)); }
TIERPACK_INLINE Ints shift_shorts_right_signed(Ints v, int n) { return _mm512_srai_epi16(v, static_cast<unsigned>(n)); }
TIERPACK_INLINE Ints add_bytes(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
TIERPACK_INLINE Ints sub_bytes(Ints a, Ints b) { return _mm512_sub_epi8(a, b); }
TIERPACK_INLINE Ints min_bytes(Ints a, Ints b) { return _mm512_min_epu8(a, b); }
TIERPACK_INLINE Ints equal_bytes(Ints a, Ints b) { return _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(a, b)); }
TIERPACK_INLINE Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
TIERPACK_INLINE Ints sub_ints(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
TIERPACK_INLINE Ints absolute(Ints v) { return _mm512_abs_epi8(v); }
TIERPACK_INLINE Ints mul_ints(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
TIERPACK_INLINE Ints mul_shorts(Ints a, Ints b) { return _mm512_mullo_epi16(a, b); }
TIERPACK_INLINE Ints equal_ints(Ints a, Ints b) { return _mm512_movm_epi32(_mm512_cmpeq_epi32_mask(a, b)); }
TIERPACK_INLINE Ints select(Ints mask, Ints yes, Ints no) { return _mm512_mask_blend_epi8(_mm512_movepi8_mask(mask), no, yes); }
TIERPACK_INLINE Ints shuffle_bytes(Ints v, Ints index) { return _mm512_shuffle_epi8(v, index); }
TIERPACK_INLINE Ints repeat16(const void* p) { return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p))); }

TIERPACK_INLINE Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
TIERPACK_INLINE Floats as_floats(Ints v) { return _mm512_castsi512_ps(v); }
TIERPACK_INLINE Ints as_ints(Floats v) { return _mm512_castps_si512(v); }
TIERPACK_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
TIERPACK_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
TIERPACK_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
TIERPACK_INLINE Floats negate(Floats v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }

TIERPACK_INLINE Ints add_pairs(Ints sum, Ints a, Ints b) { return _mm512_dpwssd_epi32(sum, a, b); }
TIERPACK_INLINE Ints dot_bytes(Ints sum, Ints a, Ints b) { return _mm512_dpbusd_epi32(sum, a, b); }

TIERPACK_INLINE Floats from_halves(Ints v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }

TIERPACK_INLINE Ints gather(const uint32_t* table, Ints index) { return _mm512_i32gather_epi32(index, table, 4); }
TIERPACK_INLINE void gather(const uint64_t* table, Ints index, Ints& low, Ints& high) {
  low = _mm512_i32gather_epi32(index, table, 8);
  high = _mm512_i32gather_epi32(index, reinterpret_cast<const std::byte*>(table) + 4, 8);
}

}  // namespace
}  // namespace tierpack::kernels
