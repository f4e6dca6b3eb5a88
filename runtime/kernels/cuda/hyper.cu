// Hyper-connections: several residual streams for a token, read as a gated mean and written with a weight each.
#include "runtime/kernels/cuda/float.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/rows.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A block for kThreads * W elements of one token's (D).
dim3 token_grid(uint32_t tokens, uint32_t dim, unsigned width) {
  const unsigned step = kThreads * width;
  return dim3(tokens, (dim + step - 1) / step);
}
template <unsigned W>
__device__ uint32_t token_element() {
  return (blockIdx.y * kThreads + threadIdx.x) * W;
}
dim3 blocks_for(size_t count) { return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)); }

template <unsigned W>
__global__ void start_streams_kernel(const float* x, uint32_t streams, uint32_t dim, float* out) {
  const size_t token = blockIdx.x;
  const uint32_t d = token_element<W>();
  if (d >= dim) return;
  const Floats<W> values = load_floats<W>(x + token * dim + d);
  for (uint32_t stream = 0; stream < streams; ++stream) store_floats<W>(out + (token * streams + stream) * dim + d, values);
}

__global__ void hyper_low_kernel(float* low, size_t count, float share) {
  const size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) low[i] = silu(low[i] * share);
}

template <unsigned W>
__global__ void hyper_mean_kernel(const float* __restrict__ up, const float* __restrict__ normed, uint32_t streams, uint32_t dim,
                                  float share, float* __restrict__ x) {
  const size_t token = blockIdx.x;
  const uint32_t d = token_element<W>();
  if (d >= dim) return;
  Floats<W> sum = {};
#pragma unroll 4
  for (uint32_t stream = 0; stream < streams; ++stream) {
    const size_t at = (token * streams + stream) * dim + d;
    const Floats<W> gate = load_floats<W>(up + at);
    const Floats<W> value = load_floats<W>(normed + at);
#pragma unroll
    for (uint32_t j = 0; j < W; ++j) {
      const float gated = sigmoid(gate.v[j]) * value.v[j];
      sum.v[j] = stream == 0 ? gated : sum.v[j] + gated;
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < W; ++j) sum.v[j] = sum.v[j] * share;
  store_floats<W>(x + token * dim + d, sum);
}

__global__ void hyper_inject_kernel(float* inject, size_t count, float share) {
  const size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) inject[i] = sigmoid(inject[i] * share) * 2.0f;
}

template <unsigned W>
__global__ void combine_streams_kernel(const float* __restrict__ y, const float* __restrict__ inject, uint32_t streams, uint32_t dim,
                                       float* __restrict__ out) {
  const size_t token = blockIdx.x;
  const uint32_t d = token_element<W>();
  if (d >= dim) return;
  const Floats<W> values = load_floats<W>(y + token * dim + d);
#pragma unroll 4
  for (uint32_t stream = 0; stream < streams; ++stream) {
    float* const to = out + (token * streams + stream) * dim + d;
    const float weight = inject[token * streams + stream];
    Floats<W> r = load_floats<W>(to);
#pragma unroll
    for (uint32_t j = 0; j < W; ++j) r.v[j] = __fmaf_rn(weight, values.v[j], r.v[j]);
    store_floats<W>(to, r);
  }
}

}  // namespace

void start_streams(Stream& s, const float* x, uint32_t tokens, uint32_t streams, uint32_t dim, float* out) {
  if (tokens == 0 || streams == 0 || dim == 0) return;
  const bool fours = in_fours(dim, {x, out});
  launch(s, "start_streams", token_grid(tokens, dim, fours ? 4 : 1), kThreads, 0, fours ? start_streams_kernel<4> : start_streams_kernel<1>,
         x, streams, dim, out);
}

void hyper_low(Stream& s, float* low, size_t count, float share) {
  if (count > 0) launch(s, "hyper_low", blocks_for(count), kThreads, 0, hyper_low_kernel, low, count, share);
}

void hyper_mean(Stream& s, const float* up, const float* normed, uint32_t tokens, uint32_t streams, uint32_t dim, float share, float* x) {
  if (tokens == 0 || streams == 0 || dim == 0) return;
  const bool fours = in_fours(dim, {up, normed, x});
  launch(s, "hyper_mean", token_grid(tokens, dim, fours ? 4 : 1), kThreads, 0, fours ? hyper_mean_kernel<4> : hyper_mean_kernel<1>, up,
         normed, streams, dim, share, x);
}

void hyper_inject(Stream& s, float* inject, size_t count, float share) {
  if (count > 0) launch(s, "hyper_inject", blocks_for(count), kThreads, 0, hyper_inject_kernel, inject, count, share);
}

void combine_streams(Stream& s, const float* y, const float* inject, uint32_t tokens, uint32_t streams, uint32_t dim, float* out) {
  if (tokens == 0 || streams == 0 || dim == 0) return;
  const bool fours = in_fours(dim, {y, out});
  launch(s, "combine_streams", token_grid(tokens, dim, fours ? 4 : 1), kThreads, 0,
         fours ? combine_streams_kernel<4> : combine_streams_kernel<1>, y, inject, streams, dim, out);
}

}  // namespace tierpack::kernels::cuda
