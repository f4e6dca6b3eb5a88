// Dot products of docs/arithmetic.md, section 1, several at a time: 8 lanes share one vector pair. Lane c of the 8 holds the 4 partial
// sums 4c .. 4c + 3, so that it reads 4 elements at once; a warp works on 4 vectors ("keys") at a time, 8 lanes each.
#pragma once

#include "runtime/kernels/cuda/dialect.cuh"

namespace tierpack::kernels::cuda {

inline constexpr unsigned kDotLanes = 8;                    // of one dot product
inline constexpr unsigned kDotGroups = kWarp / kDotLanes;   // side by side in a warp

// 4 partial sums of one dot product.
struct Quad {
  float v[4];
};

__device__ __forceinline__ void multiply_add(Quad& sum, const Quad& a, const Quad& b) {
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) sum.v[i] = __fmaf_rn(a.v[i], b.v[i], sum.v[i]);
}

// Adds up N dot products (1, 2, 4 or 8) that the 8 lanes hold the partial sums of. With each step of the tree a lane keeps half of the
// products it still has. Lane c returns product c * N / 8.
template <unsigned N>
__device__ __forceinline__ float add_quads(Quad (&sums)[N], unsigned c) {
  unsigned left = N;
#pragma unroll
  for (unsigned half = kDotLanes / 2; half > 0; half /= 2) {
    const bool upper = (c & half) != 0;
    if (left > 1) {
      left /= 2;
#pragma unroll
      for (unsigned i = 0; i < N / 2; ++i) {
        if (i >= left) break;
#pragma unroll
        for (unsigned v = 0; v < 4; ++v) {
          const float give = upper ? sums[i].v[v] : sums[i + left].v[v];
          const float keep = upper ? sums[i + left].v[v] : sums[i].v[v];
          sums[i].v[v] = keep + __shfl_xor_sync(kFullWarp, give, static_cast<int>(half));
        }
      }
    } else {
#pragma unroll
      for (unsigned v = 0; v < 4; ++v) sums[0].v[v] = sums[0].v[v] + __shfl_xor_sync(kFullWarp, sums[0].v[v], static_cast<int>(half));
    }
  }
  return (sums[0].v[0] + sums[0].v[2]) + (sums[0].v[1] + sums[0].v[3]);
}

}  // namespace tierpack::kernels::cuda
