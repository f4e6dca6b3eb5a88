// The functions of CUDA C++ that kernels use.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/support/cuda_on_cpu/fiber_engine.h"
#include "tests/support/cuda_on_cpu/shared_memory.h"

inline void __syncthreads() { tierpack::cuda_on_cpu::barrier(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  tierpack::cuda_on_cpu::Exchange exchange;
  tierpack::cuda_on_cpu::collective(tierpack::cuda_on_cpu::Collective::kSyncWarp, mask, exchange);
}

namespace tierpack::cuda_on_cpu {

template <typename T>
T shuffle(Collective kind, unsigned mask, T value, int argument, int width) {
  Exchange exchange;
  exchange.argument = argument;
  exchange.width = width;
  std::memcpy(&exchange.value, &value, sizeof(T));
  collective(kind, mask, exchange);
  std::memcpy(&value, &exchange.value, sizeof(T));
  return value;
}
inline unsigned vote(Collective kind, unsigned mask, int predicate) {
  Exchange exchange;
  exchange.value = predicate != 0;
  collective(kind, mask, exchange);
  return static_cast<unsigned>(exchange.value);
}

}  // namespace tierpack::cuda_on_cpu

#define TIERPACK_SHUFFLES(T)                                                                              \
  inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {                                \
    return tierpack::cuda_on_cpu::shuffle(tierpack::cuda_on_cpu::Collective::kShuffle, mask, value, lane, width); \
  }                                                                                                       \
  inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {                       \
    return tierpack::cuda_on_cpu::shuffle(tierpack::cuda_on_cpu::Collective::kShuffleXor, mask, value, lane_mask, width); \
  }                                                                                                       \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {                       \
    return tierpack::cuda_on_cpu::shuffle(tierpack::cuda_on_cpu::Collective::kShuffleUp, mask, value, static_cast<int>(delta), width); \
  }                                                                                                       \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {                     \
    return tierpack::cuda_on_cpu::shuffle(tierpack::cuda_on_cpu::Collective::kShuffleDown, mask, value, static_cast<int>(delta), width); \
  }
TIERPACK_SHUFFLES(int)
TIERPACK_SHUFFLES(unsigned)
TIERPACK_SHUFFLES(long)
TIERPACK_SHUFFLES(unsigned long)
TIERPACK_SHUFFLES(long long)
TIERPACK_SHUFFLES(unsigned long long)
TIERPACK_SHUFFLES(float)
TIERPACK_SHUFFLES(double)
#undef TIERPACK_SHUFFLES

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return tierpack::cuda_on_cpu::vote(tierpack::cuda_on_cpu::Collective::kBallot, mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(tierpack::cuda_on_cpu::vote(tierpack::cuda_on_cpu::Collective::kAny, mask, predicate));
}
inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(tierpack::cuda_on_cpu::vote(tierpack::cuda_on_cpu::Collective::kAll, mask, predicate));
}

inline int __dp4a(int a, int b, int c) {
  uint32_t sum = static_cast<uint32_t>(c);
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<uint32_t>(static_cast<int8_t>(a >> shift) * static_cast<int8_t>(b >> shift));
  }
  return static_cast<int>(sum);
}
// Byte i of the result is byte s.nibble[i] of (y, x); the instruction reads bit 3 of a nibble as "sign", which CUDA leaves open.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  if ((s & 0x8888u) != 0) tierpack::cuda_on_cpu::fail_thread("__byte_perm with bit 3 of a selector set");
  const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) result |= static_cast<unsigned>(both >> (8 * (s >> (4 * i) & 7)) & 0xFF) << (8 * i);
  return result;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
// To the nearest, halves to even; saturating, 0 for NaN.
inline int __float2int_rn(float x) {
  if (x != x) return 0;
  const float nearest = std::nearbyint(x);
  if (nearest >= 2147483648.0f) return INT32_MAX;
  if (nearest < -2147483648.0f) return INT32_MIN;
  return static_cast<int>(nearest);
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}

#define TIERPACK_ATOMICS(T)                                                                                   \
  inline T atomicAdd(T* address, T value) {                                                                   \
    const T before = *address;                                                                                \
    *address = static_cast<T>(static_cast<std::make_unsigned_t<T>>(before) + static_cast<std::make_unsigned_t<T>>(value)); \
    return before;                                                                                            \
  }                                                                                                           \
  inline T atomicMax(T* address, T value) {                                                                   \
    const T before = *address;                                                                                \
    *address = std::max(before, value);                                                                       \
    return before;                                                                                            \
  }                                                                                                           \
  inline T atomicAdd(tierpack::cuda_on_cpu::SharedPointer<T> address, T value) {                              \
    return atomicAdd(reinterpret_cast<T*>(tierpack::cuda_on_cpu::update_shared(address.array(), address.offset(), sizeof(T))), value); \
  }                                                                                                           \
  inline T atomicMax(tierpack::cuda_on_cpu::SharedPointer<T> address, T value) {                              \
    return atomicMax(reinterpret_cast<T*>(tierpack::cuda_on_cpu::update_shared(address.array(), address.offset(), sizeof(T))), value); \
  }
TIERPACK_ATOMICS(int)
TIERPACK_ATOMICS(unsigned)
TIERPACK_ATOMICS(unsigned long long)
#undef TIERPACK_ATOMICS

#define TIERPACK_MIN_MAX(T)                        \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
TIERPACK_MIN_MAX(int)
TIERPACK_MIN_MAX(unsigned)
TIERPACK_MIN_MAX(long)
TIERPACK_MIN_MAX(unsigned long)
TIERPACK_MIN_MAX(long long)
TIERPACK_MIN_MAX(unsigned long long)
#undef TIERPACK_MIN_MAX
#define TIERPACK_MIN_MAX(A, B)                                              \
  inline A min(A a, B b) { return min(a, static_cast<A>(b)); }              \
  inline A max(A a, B b) { return max(a, static_cast<A>(b)); }
TIERPACK_MIN_MAX(unsigned, int)
#undef TIERPACK_MIN_MAX

namespace tierpack::kernels::cuda {

float half_to_float(uint16_t bits);
// To the nearest, halves to even.
uint16_t float_to_half(float x);

inline void mma_s8_16x8x16(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  const uint32_t a[2] = {a0, a1};
  cuda_on_cpu::Exchange exchange;
  exchange.argument = 16;
  exchange.d = d;
  exchange.a = a;
  exchange.b = &b;
  cuda_on_cpu::collective(cuda_on_cpu::Collective::kMma, 0xFFFFFFFFu, exchange);
}
inline void mma_s8_16x8x32(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  cuda_on_cpu::Exchange exchange;
  exchange.argument = 32;
  exchange.d = d;
  exchange.a = a;
  exchange.b = b;
  cuda_on_cpu::collective(cuda_on_cpu::Collective::kMma, 0xFFFFFFFFu, exchange);
}

}  // namespace tierpack::kernels::cuda
