// Rotation tables in double precision from IEEE operations alone (docs/arithmetic.md, "Rotation tables"). The series
// are Taylor's, cut where the next term is below 2^-56 of the result on the reduced range.
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {
namespace {

constexpr double kLn2High = 0x1.62e42fefa38p-1;   // 43 bits: products with a binary exponent are exact
constexpr double kLn2Low = 0x1.ef35793c7673p-45;
constexpr double kShift = 0x1.8p52;               // adding it leaves the nearest integer in the low bits

// Horner's rule: c[0] + x (c[1] + x (c[2] + ...)).
template <size_t N>
double horner(const double (&c)[N], double x) {
  double sum = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, c[i]);
  return sum;
}

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
  static constexpr double kOdd[] = {1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  const double tail = 2.0 * (s * square) * horner(kOdd, square);
  const double exponent = static_cast<double>(k);
  return std::fma(exponent, kLn2High, std::fma(exponent, kLn2Low, std::fma(2.0, s, tail)));
}

// e^x for |x| < 700.
double exponential(double x) {
  static constexpr double kInverseFactorials[] = {
      1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
      1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  const double n = std::fma(x, 0x1.71547652b82fep+0, kShift) - kShift;
  const double r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  const uint64_t scale = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  return horner(kInverseFactorials, r) * std::bit_cast<double>(scale);
}

// Sine and cosine of a >= 0 below 2^33, rounded to float.
void sine_cosine(float angle, float* sine, float* cosine) {
  static constexpr double kSine[] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0,
                                     -1.0 / 1307674368000.0};
  static constexpr double kCosine[] = {-1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600.0,
                                       -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double a = angle;
  const double n = std::fma(a, 0x1.45f306dc9c883p-1, kShift) - kShift;  // nearest multiple of pi / 2
  double r = std::fma(n, -0x1.921fb54442d18p+0, a);                     // pi / 2 in two doubles
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  const double square = r * r;
  const double s = std::fma(r * square, horner(kSine, square), r);
  const double c = std::fma(square, horner(kCosine, square), 1.0);
  switch (static_cast<uint64_t>(n) & 3) {
    case 0: *sine = static_cast<float>(s); *cosine = static_cast<float>(c); break;
    case 1: *sine = static_cast<float>(c); *cosine = static_cast<float>(-s); break;
    case 2: *sine = static_cast<float>(-s); *cosine = static_cast<float>(-c); break;
    default: *sine = static_cast<float>(-c); *cosine = static_cast<float>(s); break;
  }
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
