// FP8 (E4M3) codes to f32 by integer operations alone: no subnormal ever meets the arithmetic of floats. Included only by
// the avx2_*.cpp files.
//
// An E4M3 value is exact in 16 bits of an f32: for a code s eeee mmm with e > 0 they are s, e + 120, mmm0000, so that the upper byte
// depends on the code's upper nibble and the lower byte is the code's lower nibble times 16. Codes with e = 0 (multiples of 2^-9) differ from
// that by the exclusive or with an entry of a table of eight.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace tierpack::kernels {
namespace {

inline __m256i both_halves(char a0, char a1, char a2, char a3, char a4, char a5, char a6, char a7, char a8, char a9, char a10, char a11,
                           char a12, char a13, char a14, char a15) {
  return _mm256_broadcastsi128_si256(_mm_setr_epi8(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15));
}

// 32 codes; value e is lane e % 8 of out[e / 8]. NaN codes give a NaN.
inline void e4m3_to_float(const std::byte* codes, __m256 (&out)[4]) {
  // The exponent's upper seven bits, below the sign: (e + 120) >> 1 for e = 2k and 2k + 1.
  const __m256i upper_of_normal = both_halves(0x3C, 0x3D, 0x3E, 0x3F, 0x40, 0x41, 0x42, 0x43, '\xBC', '\xBD', '\xBE', '\xBF', '\xC0', '\xC1',
                                              '\xC2', '\xC3');
  // The exponent's last bit and the mantissa: of the lower nibble, which a lookup of the magnitude takes by itself.
  const __m256i lower_of_normal = both_halves(0, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, '\x80', '\x90', '\xA0', '\xB0', '\xC0', '\xD0',
                                              '\xE0', '\xF0');
  // Of m * 2^-9 for m = 0 .. 7, in the places 8 .. 15: 0x0000 3B00 3B80 3BC0 3C00 3C20 3C40 3C60, less 0x3C00 and m * 0x10.
  const __m256i upper_of_subnormal = both_halves(0, 0, 0, 0, 0, 0, 0, 0, 0x3C, 0x07, 0x07, 0x07, 0, 0, 0, 0);
  const __m256i lower_of_subnormal =
      both_halves(0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, '\xA0', '\xF0', 0x40, 0x70, 0x20, 0x10);
  // Four bytes of every eight into the lower half, so that the interleavings below leave eight in a row side by side.
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256i code = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), order);
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi8(0x7F));
  // 0x78 + m where e = 0; elsewhere bit 7 is set, for which a table lookup gives 0.
  const __m256i place = _mm256_adds_epu8(magnitude, _mm256_set1_epi8(0x78));
  const __m256i nibble = _mm256_and_si256(_mm256_srli_epi16(code, 4), _mm256_set1_epi8(0x0F));
  const __m256i nan = _mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(0x7F));
  const __m256i upper = _mm256_or_si256(
      nan, _mm256_xor_si256(_mm256_shuffle_epi8(upper_of_normal, nibble), _mm256_shuffle_epi8(upper_of_subnormal, place)));
  const __m256i lower = _mm256_xor_si256(_mm256_shuffle_epi8(lower_of_normal, magnitude), _mm256_shuffle_epi8(lower_of_subnormal, place));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i first = _mm256_unpacklo_epi8(lower, upper), second = _mm256_unpackhi_epi8(lower, upper);
  out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, first));
  out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, first));
  out[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, second));
  out[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, second));
}

}  // namespace
}  // namespace tierpack::kernels
