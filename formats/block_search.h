// What the quantisers of formats/quantize.cpp are made of: sums over a block in four lanes, always in the same order,
// and the block encoders themselves. Internal to formats/.
//
// Encoders get normalised values: the caller multiplied them by the power of two that brings the block's largest
// magnitude into [1, 2), so that no square overflows or vanishes. `Unit` converts scales between both worlds. Weights
// are in [2^-20, 1].
#pragma once

#include <cstdint>
#include <cstring>

#include "formats/dequant.h"
#include "formats/dtype_blocks.h"

namespace tierpack::block_search {

using Lanes = float __attribute__((vector_size(16)));

inline Lanes all(float v) { return Lanes{v, v, v, v}; }

inline Lanes load(const float* from) {
  Lanes v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline void store(float* to, Lanes v) { std::memcpy(to, &v, sizeof v); }

// To the nearest integer, ties to even, for magnitudes below 2^22.
inline Lanes round(Lanes v) {
  const Lanes shift = all(12582912.0f);  // 1.5 * 2^23: the sum has no room for a fraction
  return (v + shift) - shift;
}

inline float round(float v) { return (v + 12582912.0f) - 12582912.0f; }

inline Lanes clamp(Lanes v, Lanes low, Lanes high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}

inline float sum(Lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// A power of two between the values of a file and normalised ones: normalised = value * down, value = normalised * up.
struct Unit {
  float up = 1;
  float down = 1;
};

// A block scale as it is stored, and its normalised value.
struct Scale {
  uint16_t bits = 0;
  float value = 0;
};

inline Scale scale_of_bits(uint16_t bits, const Unit& unit) { return {bits, f16_to_f32(bits) * unit.down}; }

// The nearest f16, at most the largest finite one; never 0 for anything else.
inline Scale nearest_scale(float normalised, const Unit& unit) {
  constexpr uint16_t kLargest = 0x7BFF;
  uint16_t bits = f32_to_f16(normalised * unit.up);
  if ((bits & 0x7FFF) > kLargest) bits = static_cast<uint16_t>((bits & 0x8000) | kLargest);
  if ((bits & 0x7FFF) == 0 && normalised != 0) bits |= 1;
  return scale_of_bits(bits, unit);
}

// The sums that decide about codes q: sum w*x*q and sum w*q*q. The best scale is xq / qq, and the error falls by
// xq^2 / qq against that of zeros.
struct Fit {
  float xq = 0;
  float qq = 0;
  double gain() const { return qq > 0 ? double{xq} * xq / qq : 0; }
  float scale() const { return qq > 0 ? xq / qq : 0; }
};

// `codes(lanes)` gives the lanes' nearest codes as floats; `inverse` is 1 / scale.
template <int kCount, typename Codes>
Fit fit(const float* x, const float* w, float inverse, const Codes& codes) {
  Lanes xq{}, qq{};
  for (int i = 0; i < kCount; i += 4) {
    const Lanes v = load(x + i);
    const Lanes q = codes(v * inverse);
    const Lanes wq = load(w + i) * q;
    xq += wq * v;
    qq += wq * q;
  }
  return {sum(xq), sum(qq)};
}

// sum w * (x - scale * codes(x / scale))^2; a scale of 0 gives zeros.
template <int kCount, typename Codes>
float error_of(const float* x, const float* w, float scale, const Codes& codes) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  Lanes error{};
  for (int i = 0; i < kCount; i += 4) {
    const Lanes v = load(x + i);
    const Lanes off = v - codes(v * inverse) * scale;
    error += load(w + i) * off * off;
  }
  return sum(error);
}

// Element of the largest magnitude, the first one of equals.
template <int kCount>
float signed_largest(const float* x) {
  float largest = 0, magnitude = 0;
  for (int i = 0; i < kCount; ++i) {
    const float m = x[i] < 0 ? -x[i] : x[i];
    if (m > magnitude) magnitude = m, largest = x[i];
  }
  return largest;
}

// --- Encoders: x and w hold one block of normalised values and weights, with at least one value that is not 0.
void encode(const float* x, const float* w, const Unit& unit, BlockQ8_0& out);
void encode(const float* x, const float* w, const Unit& unit, BlockIQ4_NL& out);
void encode(const float* x, const float* w, const Unit& unit, BlockNVFP4& out);
void encode(const float* x, const float* w, const Unit& unit, BlockQ4_K& out);
void encode(const float* x, const float* w, const Unit& unit, BlockQ5_K& out);
void encode(const float* x, const float* w, const Unit& unit, BlockQ6_K& out);

}  // namespace tierpack::block_search
