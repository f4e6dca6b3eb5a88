// Floats of 4 and 8 bits, as checkpoints and block scales store them, decoded to f32 exactly.
//
//   E2M1    sign, 2 exponent bits (bias 1), 1 mantissa bit: 0 .5 1 1.5 2 3 4 6 and their negatives; no infinity, no NaN
//   E4M3FN  sign, 4 exponent bits (bias 7), 3 mantissa bits; 0x7F and 0xFF are NaN, no infinity, largest 448
//   E5M2    sign, 5 exponent bits (bias 15), 2 mantissa bits; infinities and NaN as in IEEE 754
//   E8M0    8 exponent bits (bias 127), always positive, 0xFF is NaN; 0x00 is 2^-127, a subnormal of f32
//   UE4M3   block scale of ggml's NVFP4: E4M3 without sign, 0x7F counts as 0
//
// Sources: OCP 8-bit floating point (OFP8) 1.0, OCP microscaling (MX) formats 1.0, ggml (src/ggml-common.h).
// Everything here is constexpr; the tables are what loops over whole tensors use.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tierpack {

namespace detail {

// sign, exponent field and mantissa field of an IEEE-like float without its special codes.
constexpr float small_float(uint32_t sign, uint32_t exponent, uint32_t mantissa, uint32_t bias,
                            uint32_t mantissa_bits) {
  if (exponent == 0) {  // mantissa * 2^(1 - bias - mantissa_bits); both factors and the product are exact
    const float unit = std::bit_cast<float>((128 - bias - mantissa_bits) << 23);
    const float value = static_cast<float>(mantissa) * unit;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign << 31 | (exponent + 127 - bias) << 23 | mantissa << (23 - mantissa_bits));
}

inline constexpr uint32_t kQuietNan = 0x7FC00000;

}  // namespace detail

// The low 4 bits of `code`; code 8 is -0.
constexpr float e2m1_to_f32(uint8_t code) {
  return detail::small_float((code >> 3) & 1u, (code >> 1) & 3u, code & 1u, 1, 1);
}

constexpr float e4m3_to_f32(uint8_t code) {
  if ((code & 0x7F) == 0x7F) return std::bit_cast<float>(uint32_t{code & 0x80u} << 24 | detail::kQuietNan);
  return detail::small_float(code >> 7, (code >> 3) & 15u, code & 7u, 7, 3);
}

constexpr float e5m2_to_f32(uint8_t code) {
  const uint32_t exponent = (code >> 2) & 31u, mantissa = code & 3u;
  if (exponent == 31) {
    const uint32_t special = mantissa != 0 ? detail::kQuietNan : 0x7F800000u;
    return std::bit_cast<float>(uint32_t{code & 0x80u} << 24 | special);
  }
  return detail::small_float(code >> 7, exponent, mantissa, 15, 2);
}

constexpr float e8m0_to_f32(uint8_t code) {
  if (code == 0xFF) return std::bit_cast<float>(detail::kQuietNan);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : uint32_t{code} << 23);
}

// Bit 7 is ignored, except that only the byte 0x7F itself counts as 0 (ggml's behaviour).
constexpr float ue4m3_to_f32(uint8_t code) {
  if (code == 0x7F) return 0.0f;
  return detail::small_float(0, (code >> 3) & 15u, code & 7u, 7, 3);
}

namespace detail {
template <size_t N>
constexpr std::array<float, N> tabulate(float (*decode)(uint8_t)) {
  std::array<float, N> table{};
  for (size_t code = 0; code < N; ++code) table[code] = decode(static_cast<uint8_t>(code));
  return table;
}
}  // namespace detail

inline constexpr std::array<float, 16> kE2m1Values = detail::tabulate<16>(e2m1_to_f32);
inline constexpr std::array<float, 256> kE4m3Values = detail::tabulate<256>(e4m3_to_f32);
inline constexpr std::array<float, 256> kE5m2Values = detail::tabulate<256>(e5m2_to_f32);
inline constexpr std::array<float, 256> kE8m0Values = detail::tabulate<256>(e8m0_to_f32);
inline constexpr std::array<float, 256> kUe4m3Values = detail::tabulate<256>(ue4m3_to_f32);

}  // namespace tierpack
