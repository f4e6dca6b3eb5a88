// The float of float_math.h that defines its results: one lane, plain C++. Included by the reference alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tierpack::kernels {

// Two's complement 32-bit integer with wrap-around and an arithmetic right shift.
struct ScalarInt {
  int32_t value;
  static ScalarInt of(int32_t v) { return {v}; }
};
inline ScalarInt wrap(uint32_t v) { return {static_cast<int32_t>(v)}; }
inline ScalarInt operator+(ScalarInt a, ScalarInt b) { return wrap(static_cast<uint32_t>(a.value) + static_cast<uint32_t>(b.value)); }
inline ScalarInt operator-(ScalarInt a, ScalarInt b) { return wrap(static_cast<uint32_t>(a.value) - static_cast<uint32_t>(b.value)); }
inline ScalarInt operator<<(ScalarInt a, int count) { return wrap(static_cast<uint32_t>(a.value) << count); }
inline ScalarInt operator>>(ScalarInt a, int count) { return {a.value >> count}; }

struct ScalarFloat {
  using Int = ScalarInt;
  float value;
  static ScalarFloat of(float v) { return {v}; }
};
inline ScalarFloat operator+(ScalarFloat a, ScalarFloat b) { return {a.value + b.value}; }
inline ScalarFloat operator-(ScalarFloat a, ScalarFloat b) { return {a.value - b.value}; }
inline ScalarFloat operator*(ScalarFloat a, ScalarFloat b) { return {a.value * b.value}; }
inline ScalarFloat operator/(ScalarFloat a, ScalarFloat b) { return {a.value / b.value}; }
inline ScalarFloat fma(ScalarFloat a, ScalarFloat b, ScalarFloat c) { return {std::fma(a.value, b.value, c.value)}; }
inline bool less(ScalarFloat a, ScalarFloat b) { return a.value < b.value; }
inline ScalarFloat select(bool mask, ScalarFloat yes, ScalarFloat no) { return mask ? yes : no; }
inline ScalarInt bits(ScalarFloat a) { return {std::bit_cast<int32_t>(a.value)}; }
inline ScalarFloat from_bits(ScalarInt a) { return {std::bit_cast<float>(a.value)}; }
inline ScalarFloat to_float(ScalarInt a) { return {static_cast<float>(a.value)}; }

}  // namespace tierpack::kernels
