// The n-gram embedding: gates of every stream, and the dilated convolution that adds it to the streams.
#include <cmath>

#include "base/error.h"
#include "runtime/kernels/cuda/float.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/rows.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kGateThreads = 256;
constexpr unsigned kConvThreads = 128;

// sigmoid(sign(s) sqrt(max(|s|, 1e-6))); a NaN has no sign.
__device__ float gate_of(float score) {
  const float magnitude = score < 0.0f ? -score : score;
  const float size = sqrtf(magnitude < 1e-6f ? 1e-6f : magnitude);
  return sigmoid(score > 0.0f ? size : score < 0.0f ? -size : 0.0f);
}

// A block for a stream of a token. Its key and query rows lie in shared memory; single warps sum, all threads do the elements.
template <unsigned W>
__global__ void ngram_gate_kernel(const float* __restrict__ key, const float* __restrict__ streams, const float* __restrict__ value,
                                  const float* __restrict__ norm_key, const float* __restrict__ norm_query,
                                  const float* __restrict__ norm_conv, float eps, uint32_t n_streams, uint32_t dim, float root_dim,
                                  float* __restrict__ gated, float* __restrict__ conv_input) {
  TIERPACK_DYNAMIC_SHARED(float, rows);
  const auto k = rows;
  const auto q = rows + dim;
  const auto factors = rows + 2 * dim;
  const size_t token = blockIdx.x;
  const size_t at = (token * n_streams + blockIdx.y) * dim;
  const size_t gamma = static_cast<size_t>(blockIdx.y) * dim;
  const uint32_t warp = threadIdx.x / kWarp;
  const bool first_lane = threadIdx.x % kWarp == 0;
  stage_row<W>(key + at, dim, k);
  stage_row<W>(streams + at, dim, q);
  __syncthreads();

  if (warp < 2) {
    const auto row = warp == 0 ? k : q;
    const float r = rms_factor(warp_dot(row, row, dim), dim, eps);
    if (first_lane) factors[warp] = r;
  }
  __syncthreads();
  const float key_factor = factors[0];
  const float query_factor = factors[1];
  for (uint32_t e = threadIdx.x; e < dim; e += kGateThreads) {
    k[e] = k[e] * key_factor * norm_key[gamma + e];
    q[e] = q[e] * query_factor * norm_query[gamma + e];
  }
  __syncthreads();

  if (warp == 0) {
    const float gate = gate_of(warp_dot(k, q, dim) / root_dim);
    if (first_lane) factors[2] = gate;
  }
  __syncthreads();
  const float gate = factors[2];
  for (uint32_t e = threadIdx.x; e < dim; e += kGateThreads) {
    const float g = value[token * dim + e] * gate;
    k[e] = g;
    gated[at + e] = g;
  }
  __syncthreads();

  if (warp == 0) {
    const float r = rms_factor(warp_dot(k, k, dim), dim, eps);
    if (first_lane) factors[3] = r;
  }
  __syncthreads();
  const float r = factors[3];
  for (uint32_t e = threadIdx.x; e < dim; e += kGateThreads) conv_input[at + e] = k[e] * r * norm_conv[gamma + e];
}

__global__ void ngram_conv_kernel(const float* __restrict__ input, const float* __restrict__ weight, uint32_t taps, uint32_t dilation,
                                  uint32_t wide, const float* __restrict__ gated, float* __restrict__ streams) {
  const size_t token = blockIdx.x;
  const uint32_t c = blockIdx.y * kConvThreads + threadIdx.x;
  if (c >= wide) return;
  float s = 0.0f;
#pragma unroll 4
  for (uint32_t k = 0; k < taps; ++k) {
    s = __fmaf_rn(weight[static_cast<size_t>(c) * taps + k], input[(token + static_cast<size_t>(k) * dilation) * wide + c], s);
  }
  const size_t at = token * wide + c;
  streams[at] = streams[at] + (silu(s) + gated[at]);
}

}  // namespace

void ngram_gate(Stream& s, const float* key, const float* streams, const float* value, const float* norm_key, const float* norm_query,
                const float* norm_conv, float eps, uint32_t tokens, uint32_t n_streams, uint32_t dim, float* gated, float* conv_input) {
  if (tokens == 0 || n_streams == 0 || dim == 0) return;
  const auto kernel = in_fours(dim, {key, streams}) ? ngram_gate_kernel<4> : ngram_gate_kernel<1>;
  const auto root_dim = static_cast<float>(std::sqrt(static_cast<double>(dim)));
  launch(s, "ngram_gate", dim3(tokens, n_streams), kGateThreads, (2 * size_t{dim} + 4) * sizeof(float), kernel, key, streams, value,
         norm_key, norm_query, norm_conv, eps, n_streams, dim, root_dim, gated, conv_input);
}

void ngram_conv(Stream& s, const float* input, const float* weight, uint32_t taps, uint32_t dilation, uint32_t tokens, uint32_t wide,
                const float* gated, float* streams) {
  if (tokens == 0 || wide == 0) return;
  launch(s, "ngram_conv", dim3(tokens, (wide + kConvThreads - 1) / kConvThreads), kConvThreads, 0, ngram_conv_kernel, input, weight, taps,
         dilation, wide, gated, streams);
}

}  // namespace tierpack::kernels::cuda
