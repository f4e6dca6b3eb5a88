// exp, log1p, sigmoid, silu and softplus from IEEE add, multiply, divide and fma alone, so that every machine gives the
// same bits; docs/arithmetic.md states each step. One source for all instruction sets: F is a float or a vector of
// floats with operators + - * /, fma, less, select, and an integer twin F::Int (see reference_float.h). Each set
// instantiates the templates with its own F only, so that no instance built for one CPU is linked for another.
//
// Polynomials are minimax fits to the relative error of the result, computed for this file: exp 3e-9 on
// [-ln2/2, ln2/2], log1p 6e-9 on [sqrt(1/2) - 1, sqrt(2) - 1].
#pragma once

// Before functions that kernels of the GPU call as well.
#ifdef __CUDACC__
#define TIERPACK_HOST_DEVICE __host__ __device__
#else
#define TIERPACK_HOST_DEVICE
#endif

namespace tierpack::kernels {

// 2^k for k in [-126, 127].
template <typename F>
TIERPACK_HOST_DEVICE inline F power_of_two(typename F::Int k) {
  return from_bits((k + F::Int::of(127)) << 23);
}

// e^x: within 1 ulp, +inf above 88.73, gradual underflow to 0 below -87.34, NaN for NaN.
template <typename F>
TIERPACK_HOST_DEVICE inline F exp(F x) {
  const F magic = F::of(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = select(less(x, F::of(-110.0f)), F::of(-110.0f), x);
  x = select(less(F::of(100.0f), x), F::of(100.0f), x);
  const F shifted = fma(x, F::of(0x1.715476p+0f), magic);
  const F n = shifted - magic;
  F r = fma(n, F::of(-0x1.62e4p-1f), x);
  r = fma(n, F::of(-0x1.7f7d1cp-20f), r);
  F p = F::of(0x1.6a23ccp-10f);
  p = fma(p, r, F::of(0x1.123a2p-7f));
  p = fma(p, r, F::of(0x1.5558f2p-5f));
  p = fma(p, r, F::of(0x1.555492p-3f));
  p = fma(p, r, F::of(0x1.fffffcp-2f));
  p = fma(r * r, p, r) + F::of(1.0f);
  // Two factors, because 2^n itself may be out of range where the product is not.
  const typename F::Int k = bits(shifted) - bits(magic);
  const typename F::Int half = k >> 1;
  return (p * power_of_two<F>(half)) * power_of_two<F>(k - half);
}

// ln(1 + u) for u >= 0 and below 2^126: within 1 ulp.
template <typename F>
TIERPACK_HOST_DEVICE inline F log1p(F u) {
  const F one = F::of(1.0f);
  const F w = one + u;
  const F lost = select(less(u, one), u - (w - one), one - (w - u));  // 1 + u == w + lost exactly
  const typename F::Int k = (bits(w) - bits(F::of(0x1.6a09e6p-1f))) >> 23;  // w = 2^k m, m in [sqrt(1/2), sqrt(2))
  const F m = from_bits(bits(w) - (k << 23));
  const F f = (m - one) + lost * power_of_two<F>(F::Int::of(0) - k);
  F p = F::of(-0x1.38b3a8p-4f);
  p = fma(p, f, F::of(0x1.056f78p-3f));
  p = fma(p, f, F::of(-0x1.0d8eep-3f));
  p = fma(p, f, F::of(0x1.22d818p-3f));
  p = fma(p, f, F::of(-0x1.547126p-3f));
  p = fma(p, f, F::of(0x1.99a014p-3f));
  p = fma(p, f, F::of(-0x1.00022ap-2f));
  p = fma(p, f, F::of(0x1.555554p-2f));
  const F square = f * f;
  F y = fma(square * f, p, square * F::of(-0.5f));
  const F exponent = to_float(k);
  y = fma(exponent, F::of(0x1.7f7d1cp-20f), y);
  return fma(exponent, F::of(0x1.62e4p-1f), y + f);
}

template <typename F>
TIERPACK_HOST_DEVICE inline F sigmoid(F x) {
  return F::of(1.0f) / (F::of(1.0f) + exp(F::of(0.0f) - x));
}

template <typename F>
TIERPACK_HOST_DEVICE inline F silu(F x) {
  return x / (F::of(1.0f) + exp(F::of(0.0f) - x));
}

// ln(1 + e^x); x itself above 20.
template <typename F>
TIERPACK_HOST_DEVICE inline F softplus(F x) {
  const F limit = F::of(20.0f);
  const auto large = less(limit, x);
  return select(large, x, log1p(exp(select(large, limit, x))));
}

}  // namespace tierpack::kernels
