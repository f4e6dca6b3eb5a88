// The k first of section 11's order among n values, by one block: a radix select finds the k-th key, a stable compaction
// hands out those that are in. Exact, and the same whatever the number of threads.
#pragma once

#include "runtime/kernels/cuda/dialect.cuh"

namespace tierpack::kernels::cuda {

// Larger for values that come earlier; equal for +0 and -0; 0, less than for any number, for NaN.
__device__ __forceinline__ uint32_t order_key(float x) {
  const uint32_t bits = x == 0.0f ? 0u : __float_as_uint(x);
  if (x != x) return 0;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// use(value, index) for this thread's share of x (n), ascending; several loads at a time.
template <typename Use>
__device__ __forceinline__ void for_each_value(const float* x, uint32_t n, Use use) {
  constexpr unsigned kLoads = 8;
  uint32_t i = threadIdx.x;
  for (; static_cast<size_t>(i) + (kLoads - 1) * blockDim.x < n; i += kLoads * blockDim.x) {
    float values[kLoads];
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) values[k] = __ldg(x + i + k * blockDim.x);
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) use(values[k], i + k * blockDim.x);
  }
  for (; i < n; i += blockDim.x) use(__ldg(x + i), i);
}

inline constexpr unsigned kSelectBins = 256;
inline constexpr unsigned kSelectCopies = 8;  // of the histogram, against lanes that wait for each other
inline constexpr unsigned kSelectThreadsMost = 1024;
inline constexpr unsigned kSelectWords = kSelectBins * kSelectCopies + kSelectBins + 2;  // of shared memory

// The keys that are in: all above `key`, and the first `equal` of those that are `key`.
struct Selection {
  uint32_t key;
  uint32_t equal;
};

// x (n), 1 <= k <= n; the whole block, at least kSelectBins threads, a multiple of a warp. shared: kSelectWords.
__device__ __forceinline__ Selection select_key(const float* x, uint32_t n, uint32_t k, SharedPointer<uint32_t> shared) {
  const SharedPointer<uint32_t> totals = shared + kSelectBins * kSelectCopies;
  const SharedPointer<uint32_t> chosen = totals + kSelectBins;  // digit, how many of it are in
  uint32_t prefix = 0;
  uint32_t wanted = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint32_t i = threadIdx.x; i < kSelectBins * kSelectCopies; i += blockDim.x) shared[i] = 0;
    __syncthreads();
    const uint32_t known = shift == 24 ? 0 : ~0u << (shift + 8);
    for_each_value(x, n, [&](float value, uint32_t) {
      const uint32_t key = order_key(value);
      if (((key ^ prefix) & known) == 0) {
        atomicAdd(shared + ((key >> shift & (kSelectBins - 1)) * kSelectCopies + threadIdx.x % kSelectCopies), 1u);
      }
    });
    __syncthreads();
    if (threadIdx.x < kSelectBins) {
      uint32_t total = 0;
      for (unsigned i = 0; i < kSelectCopies; ++i) total += shared[threadIdx.x * kSelectCopies + i];
      totals[threadIdx.x] = total;
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {  // a lane has 8 bins, the largest first
      const unsigned top = kSelectBins - 1 - threadIdx.x * (kSelectBins / kWarp);
      uint32_t sum = 0;
      for (unsigned i = 0; i < kSelectBins / kWarp; ++i) sum += totals[top - i];
      uint32_t before = sum;  // inclusive, then exclusive prefix
#pragma unroll
      for (unsigned step = 1; step < kWarp; step *= 2) {
        const uint32_t other = __shfl_up_sync(kFullWarp, before, step);
        if (threadIdx.x >= step) before += other;
      }
      before -= sum;
      if (before < wanted && wanted <= before + sum) {
        unsigned bin = top;
        for (;; --bin) {
          const uint32_t here = totals[bin];
          if (before + here >= wanted) break;
          before += here;
        }
        chosen[0] = bin;
        chosen[1] = wanted - before;
      }
    }
    __syncthreads();
    prefix |= static_cast<uint32_t>(chosen[0]) << shift;
    wanted = chosen[1];
    __syncthreads();
  }
  return {prefix, wanted};
}

// Calls take(rank, index) for every value that is in, rank 0 .. k - 1 by ascending index. shared: 2 words for each warp.
template <typename Take>
__device__ __forceinline__ void for_selected(const float* x, uint32_t n, Selection selection, SharedPointer<uint32_t> shared, Take take) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned warps = blockDim.x / kWarp;
  // A warp has one stretch of the values, a multiple of its lanes.
  const uint32_t stretch = (n + blockDim.x - 1) / blockDim.x * kWarp;
  const uint32_t begin = min(warp * stretch, n);
  const uint32_t end = min(begin + stretch, n);
  uint32_t above = 0;
  uint32_t equal = 0;
#pragma unroll 4
  for (uint32_t i = begin; i < end; i += kWarp) {
    const uint32_t key = i + lane < end ? order_key(__ldg(x + i + lane)) : 0;
    const bool valid = i + lane < end;
    above += static_cast<uint32_t>(__popc(__ballot_sync(kFullWarp, valid && key > selection.key)));
    equal += static_cast<uint32_t>(__popc(__ballot_sync(kFullWarp, valid && key == selection.key)));
  }
  if (lane == 0) {
    shared[2 * warp] = above;
    shared[2 * warp + 1] = equal;
  }
  __syncthreads();
  above = 0;
  equal = 0;
  for (unsigned w = 0; w < warps; ++w) {
    if (w >= warp) break;
    above += shared[2 * w];
    equal += shared[2 * w + 1];
  }
  const uint32_t earlier = (1u << lane) - 1;
#pragma unroll 2
  for (uint32_t i = begin; i < end; i += kWarp) {
    const bool valid = i + lane < end;
    const uint32_t key = valid ? order_key(__ldg(x + i + lane)) : 0;
    const uint32_t larger = __ballot_sync(kFullWarp, valid && key > selection.key);
    const uint32_t same = __ballot_sync(kFullWarp, valid && key == selection.key);
    const uint32_t same_before = equal + static_cast<uint32_t>(__popc(same & earlier));
    const uint32_t rank = above + static_cast<uint32_t>(__popc(larger & earlier)) + min(same_before, selection.equal);
    if ((larger >> lane & 1) != 0 || ((same >> lane & 1) != 0 && same_before < selection.equal)) take(rank, i + lane);
    above += static_cast<uint32_t>(__popc(larger));
    equal += static_cast<uint32_t>(__popc(same));
  }
}

}  // namespace tierpack::kernels::cuda
