// Rotation tables in double precision from IEEE operations alone (docs/arithmetic.md, section 7). The series are Taylor's, cut where
// the next term is below 2^-56 of the result on the reduced range.
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/sine_cosine.h"

namespace tierpack::kernels {
namespace {

constexpr double kLn2High = 0x1.62e42fefa38p-1;   // 43 bits: products with a binary exponent are exact
constexpr double kLn2Low = 0x1.ef35793c7673p-45;

// ln(x) for normal x > 0.
double natural_log(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t k = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | (1023ull << 52));  // [1, 2)
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    ++k;
  }
  // ln m = 2 artanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| < 0.1716
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  const double odd = horner(square, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21);
  const double tail = 2.0 * (s * square) * odd;
  const double exponent = static_cast<double>(k);
  return fused(exponent, kLn2High, fused(exponent, kLn2Low, fused(2.0, s, tail)));
}

// e^x for |x| < 700.
double exponential(double x) {
  const double n = fused(x, 0x1.71547652b82fep+0, kRoundingShift) - kRoundingShift;
  const double r = fused(n, -kLn2Low, fused(n, -kLn2High, x));
  const uint64_t scale = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  const double power = horner(r, 1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
                              1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0);
  return power * std::bit_cast<double>(scale);
}

}  // namespace

void rope_inv_freq(float base, uint32_t rotary_dim, float* inv_freq) {
  TIERPACK_CHECK(base >= 1.0f && std::isfinite(base) && rotary_dim > 0 && rotary_dim % 2 == 0);
  const double log_base = natural_log(base);
  for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double exponent = -(2.0 * i) / rotary_dim;
    inv_freq[i] = static_cast<float>(exponential(exponent * log_base));
  }
}

void rope_row(const float* inv_freq, uint32_t pairs, uint32_t position, float* cos, float* sin) {
  for (uint32_t i = 0; i < pairs; ++i) sine_cosine(static_cast<float>(position) * inv_freq[i], &sin[i], &cos[i]);
}

}  // namespace tierpack::kernels
