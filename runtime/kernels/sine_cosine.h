// Sine and cosine of a rotation angle, in double precision from IEEE operations alone, so that the CPU and kernels of the GPU give the
// same bits (docs/arithmetic.md, section 7). The series are Taylor's, cut where the next term is below 2^-56 of the result on the
// reduced range.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/kernels/float_math.h"

namespace tierpack::kernels {

// a * b + c, rounded once.
TIERPACK_HOST_DEVICE inline double fused(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// Horner's rule: c0 + x (c1 + x (c2 + ...)).
template <typename... More>
TIERPACK_HOST_DEVICE inline double horner(double x, double c0, More... more) {
  if constexpr (sizeof...(more) == 0) {
    return c0;
  } else {
    return fused(horner(x, more...), x, c0);
  }
}

inline constexpr double kRoundingShift = 0x1.8p52;  // adding it leaves the nearest integer in the low bits

// Of an angle >= 0 below 2^33, rounded to float.
TIERPACK_HOST_DEVICE inline void sine_cosine(float angle, float* sine, float* cosine) {
  const double a = angle;
  const double n = fused(a, 0x1.45f306dc9c883p-1, kRoundingShift) - kRoundingShift;  // nearest multiple of pi / 2
  double r = fused(n, -0x1.921fb54442d18p+0, a);                                     // pi / 2 in two doubles
  r = fused(n, -0x1.1a62633145c07p-54, r);
  const double square = r * r;
  const double sine_tail = horner(square, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0,
                                  -1.0 / 1307674368000.0);
  const double cosine_tail = horner(square, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600.0,
                                    -1.0 / 87178291200.0, 1.0 / 20922789888000.0);
  const double s = fused(r * square, sine_tail, r);
  const double c = fused(square, cosine_tail, 1.0);
  switch (static_cast<uint64_t>(n) & 3) {
    case 0: *sine = static_cast<float>(s); *cosine = static_cast<float>(c); break;
    case 1: *sine = static_cast<float>(c); *cosine = static_cast<float>(-s); break;
    case 2: *sine = static_cast<float>(-s); *cosine = static_cast<float>(-c); break;
    default: *sine = static_cast<float>(-c); *cosine = static_cast<float>(s); break;
  }
}

}  // namespace tierpack::kernels
