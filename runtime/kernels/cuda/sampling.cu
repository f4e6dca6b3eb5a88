// The first of a row of logits, and the k first (docs/arithmetic.md, section 11).
#include "base/error.h"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/radix_select.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 1024;
constexpr unsigned kMost = 1024;  // values of top_k

__global__ void __launch_bounds__(kThreads) argmax_kernel(const float* x, uint32_t n, uint32_t* best) {
  TIERPACK_SHARED(uint32_t, found, 2 * kThreads / kWarp);
  x += static_cast<size_t>(blockIdx.x) * n;
  uint32_t key = 0;
  uint32_t index = UINT32_MAX;
  const auto offer = [&](uint32_t other_key, uint32_t other_index) {
    if (other_key > key || (other_key == key && other_index < index)) {
      key = other_key;
      index = other_index;
    }
  };
  for_each_value(x, n, [&](float value, uint32_t i) { offer(order_key(value), i); });
  const auto offer_lanes = [&] {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
      const uint32_t other_key = __shfl_xor_sync(kFullWarp, key, half);
      const uint32_t other_index = __shfl_xor_sync(kFullWarp, index, half);
      offer(other_key, other_index);
    }
  };
  offer_lanes();
  if (threadIdx.x % kWarp == 0) {
    found[2 * (threadIdx.x / kWarp)] = key;
    found[2 * (threadIdx.x / kWarp) + 1] = index;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  key = found[2 * threadIdx.x];
  index = found[2 * threadIdx.x + 1];
  offer_lanes();
  if (threadIdx.x == 0) best[blockIdx.x] = index;
}

// One block. `padded`: k rounded up to a power of two.
__global__ void __launch_bounds__(kThreads)
    top_k_kernel(const float* x, uint32_t n, uint32_t k, uint32_t padded, uint32_t* ids, float* values) {
  TIERPACK_SHARED(uint32_t, words, kSelectWords);
  TIERPACK_SHARED(unsigned long long, picked, kMost);  // key, inverted, above index: ascending in the wanted order
  const Selection selection = select_key(x, n, k, words);
  for (uint32_t i = k + threadIdx.x; i < padded; i += kThreads) picked[i] = ~0ull;
  for_selected(x, n, selection, words, [&](uint32_t rank, uint32_t index) {
    picked[rank] = static_cast<unsigned long long>(~order_key(x[index])) << 32 | index;
  });
  for (uint32_t length = 2; length <= padded; length *= 2) {  // a bitonic sort
    for (uint32_t step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < padded / 2; i += kThreads) {
        const uint32_t low = (i & ~(step - 1)) * 2 + (i & (step - 1));
        const unsigned long long a = picked[low];
        const unsigned long long b = picked[low + step];
        if ((a > b) == ((low & length) == 0)) {
          picked[low] = b;
          picked[low + step] = a;
        }
      }
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < k; i += kThreads) {
    const auto index = static_cast<uint32_t>(picked[i]);
    ids[i] = index;
    values[i] = x[index];
  }
}

}  // namespace

void argmax(Stream& s, const float* x, uint32_t rows, uint32_t n, uint32_t* best) {
  TIERPACK_CHECK(n > 0);
  if (rows > 0) launch(s, "argmax", dim3(rows), kThreads, 0, argmax_kernel, x, n, best);
}

void top_k(Stream& s, const float* x, uint32_t n, uint32_t k, uint32_t* ids, float* values) {
  TIERPACK_CHECK(k <= n && k <= kMost);
  uint32_t padded = 1;
  while (padded < k) padded *= 2;
  if (k > 0) launch(s, "top_k", dim3(1), kThreads, 0, top_k_kernel, x, n, k, padded, ids, values);
}

}  // namespace tierpack::kernels::cuda
