// Rotation: its tables, and norm and rotation of query and key heads in one pass.
#include "base/error.h"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/rows.cuh"
#include "runtime/kernels/sine_cosine.h"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kWarp;

__global__ void rope_table_kernel(const float* inv_freq, uint32_t pairs, uint32_t first, uint32_t step, float* cos, float* sin) {
  const uint32_t row = blockIdx.x;
  const uint32_t i = blockIdx.y * kThreads + threadIdx.x;
  if (i >= pairs) return;
  const size_t at = static_cast<size_t>(row) * pairs + i;
  sine_cosine(static_cast<float>(first + row * step) * inv_freq[i], &sin[at], &cos[at]);
}

// A warp for a head. The head passes through shared memory, because the two values of a pair are in different lanes unless `pairs` is
// a multiple of 32.
__global__ void norm_rope_kernel(float* x, size_t head_stride, uint32_t rows, uint32_t heads, uint32_t dim, const float* weight, float eps,
                                 const float* cos, const float* sin, uint32_t pairs) {
  TIERPACK_DYNAMIC_SHARED(float, staged);
  const uint32_t i = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (i >= rows) return;
  const uint32_t lane = threadIdx.x % kWarp;
  const auto row = staged + threadIdx.x / kWarp * dim;
  float* const head = x + i * head_stride;
  float s = 0.0f;
#pragma unroll 8
  for (uint32_t e = lane; e < dim; e += kWarp) {
    const float value = head[e];
    row[e] = value;
    s = __fmaf_rn(value, value, s);
  }
  const float r = rms_factor(warp_tree(s), dim, eps);
  __syncwarp();
  const size_t table = static_cast<size_t>(i / heads) * pairs;
  for (uint32_t e = lane; e < pairs; e += kWarp) {
    const float a = row[e] * r * weight[e];
    const float b = row[e + pairs] * r * weight[e + pairs];
    const float c = cos[table + e];
    const float d = sin[table + e];
    head[e] = __fmaf_rn(a, c, -(b * d));
    head[e + pairs] = __fmaf_rn(a, d, b * c);
  }
  for (uint32_t e = 2 * pairs + lane; e < dim; e += kWarp) head[e] = row[e] * r * weight[e];
}

}  // namespace

void rope_table(Stream& s, const float* inv_freq, uint32_t pairs, uint32_t first, uint32_t step, uint32_t rows, float* cos, float* sin) {
  if (rows == 0 || pairs == 0) return;
  launch(s, "rope_table", dim3(rows, (pairs + kThreads - 1) / kThreads), kThreads, 0, rope_table_kernel, inv_freq, pairs, first, step, cos,
         sin);
}

void norm_rope(Stream& s, float* x, size_t head_stride, uint32_t tokens, uint32_t heads, uint32_t dim, const float* weight, float eps,
               const float* cos, const float* sin, uint32_t pairs) {
  TIERPACK_CHECK(2 * size_t{pairs} <= dim && dim <= kAttentionDimMax);
  const size_t rows = size_t{tokens} * heads;
  TIERPACK_CHECK(rows <= INT32_MAX);
  if (rows == 0) return;
  launch(s, "norm_rope", dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), kThreads, kWarps * dim * sizeof(float),
         norm_rope_kernel, x, head_stride, static_cast<uint32_t>(rows), heads, dim, weight, eps, cos, sin, pairs);
}

}  // namespace tierpack::kernels::cuda
