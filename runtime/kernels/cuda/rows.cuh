// Rows of floats: wide accesses to global memory and the sums of docs/arithmetic.md, section 1, by one warp whose lane l holds partial
// sum l.
#pragma once

#include <initializer_list>

#include "runtime/kernels/cuda/dialect.cuh"

namespace tierpack::kernels::cuda {

// W neighbouring floats: 4 are one access of 16 bytes.
template <unsigned W>
struct Floats {
  float v[W];
};

template <unsigned W>
__device__ __forceinline__ Floats<W> load_floats(const float* from) {
  if constexpr (W == 4) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    return {{x.x, x.y, x.z, x.w}};
  } else {
    static_assert(W == 1);
    return {{*from}};
  }
}

template <unsigned W>
__device__ __forceinline__ void store_floats(float* to, const Floats<W>& x) {
  if constexpr (W == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  } else {
    *to = x.v[0];
  }
}

// Whether rows of `n` floats can be read four at a time from all these addresses.
inline bool in_fours(size_t n, std::initializer_list<const void*> addresses) {
  bool fits = n % 4 == 0;
  for (const void* address : addresses) fits = fits && reinterpret_cast<uintptr_t>(address) % 16 == 0;
  return fits;
}

// dot(a, b) by a whole warp; every lane gets it.
__device__ __forceinline__ float warp_dot(SharedPointer<float> a, SharedPointer<float> b, uint32_t n) {
  float s = 0.0f;
#pragma unroll 8
  for (uint32_t e = threadIdx.x % kWarp; e < n; e += kWarp) s = __fmaf_rn(a[e], b[e], s);
  return warp_tree(s);
}

// sum(x) likewise.
__device__ __forceinline__ float warp_sum(SharedPointer<float> x, uint32_t n) {
  float s = 0.0f;
#pragma unroll 8
  for (uint32_t e = threadIdx.x % kWarp; e < n; e += kWarp) s = s + x[e];
  return warp_tree(s);
}

// 1 / sqrt(dot(x, x) / n + eps)
__device__ __forceinline__ float rms_factor(float squares, uint32_t n, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(n) + eps);
}

// A row of at most kShortRow values in the registers of a warp: lane l has elements l, l + 32, ...
inline constexpr uint32_t kShortRow = 256;
struct ShortRow {
  float v[kShortRow / kWarp];

  __device__ __forceinline__ void load(const float* x, uint32_t n) {
#pragma unroll
    for (uint32_t i = 0; i < kShortRow / kWarp; ++i) {
      const uint32_t e = threadIdx.x % kWarp + i * kWarp;
      v[i] = e < n ? x[e] : 0.0f;
    }
  }
  // dot(x, x). The zeros behind the row change nothing: no partial sum of squares is -0.
  __device__ __forceinline__ float squares() const {
    float s = 0.0f;
#pragma unroll
    for (const float x : v) s = __fmaf_rn(x, x, s);
    return warp_tree(s);
  }
  // f(element, value) of every element.
  template <typename F>
  __device__ __forceinline__ void each(uint32_t n, const F& f) const {
#pragma unroll
    for (uint32_t i = 0; i < kShortRow / kWarp; ++i) {
      const uint32_t e = threadIdx.x % kWarp + i * kWarp;
      if (e < n) f(e, v[i]);
    }
  }
};

// W neighbouring floats of a row in shared memory; `e` is a multiple of W.
template <unsigned W>
__device__ __forceinline__ Floats<W> staged_floats(SharedPointer<float> row, uint32_t e) {
  if constexpr (W == 4) {
    const float4 x = load_shared<float4>(row, e);
    return {{x.x, x.y, x.z, x.w}};
  } else {
    return {{row[e]}};
  }
}

// Copies a row to shared memory; readable behind a barrier.
template <unsigned W>
__device__ __forceinline__ void stage_row(const float* x, uint32_t n, SharedPointer<float> row) {
#pragma unroll 4
  for (uint32_t e = threadIdx.x * W; e < n; e += blockDim.x * W) {
    if constexpr (W == 4) {
      store_shared<float4>(row, e, *reinterpret_cast<const float4*>(x + e));
    } else {
      row[e] = x[e];
    }
  }
}

}  // namespace tierpack::kernels::cuda
