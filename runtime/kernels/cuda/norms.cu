// RMS norm of rows: a warp for a short one, a block for a long one.
#include "base/error.h"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/rows.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kShortThreads = 128;
constexpr unsigned kLongThreads = 256;

__global__ void short_rows_kernel(const float* x, size_t x_stride, const float* weight, uint32_t weight_rows, float eps, uint32_t n,
                                  uint32_t rows, float* out) {
  const uint32_t i = blockIdx.x * (kShortThreads / kWarp) + threadIdx.x / kWarp;
  if (i >= rows) return;
  ShortRow row;
  row.load(x + i * x_stride, n);
  const float r = rms_factor(row.squares(), n, eps);
  const float* const w = weight != nullptr ? weight + static_cast<size_t>(i % weight_rows) * n : nullptr;
  float* const to = out + static_cast<size_t>(i) * n;
  row.each(n, [&](uint32_t e, float value) {
    const float scaled = value * r;
    to[e] = w != nullptr ? scaled * w[e] : scaled;
  });
}

template <unsigned W>
__global__ void long_rows_kernel(const float* x, size_t x_stride, const float* weight, uint32_t weight_rows, float eps, uint32_t n,
                                 float* out) {
  TIERPACK_DYNAMIC_SHARED(float, row);
  const auto factor = row + n;
  const uint32_t i = blockIdx.x;
  stage_row<W>(x + i * x_stride, n, row);
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const float r = rms_factor(warp_dot(row, row, n), n, eps);
    if (threadIdx.x == 0) factor[0] = r;
  }
  __syncthreads();
  const float r = factor[0];
  const float* const w = weight != nullptr ? weight + static_cast<size_t>(i % weight_rows) * n : nullptr;
  for (uint32_t e = threadIdx.x * W; e < n; e += kLongThreads * W) {
    Floats<W> values = staged_floats<W>(row, e);
#pragma unroll
    for (uint32_t j = 0; j < W; ++j) values.v[j] = values.v[j] * r;
    if (w != nullptr) {
      const Floats<W> factors = load_floats<W>(w + e);
#pragma unroll
      for (uint32_t j = 0; j < W; ++j) values.v[j] = values.v[j] * factors.v[j];
    }
    store_floats<W>(out + static_cast<size_t>(i) * n + e, values);
  }
}

}  // namespace

void rms_norm(Stream& s, const float* x, size_t x_stride, const float* weight, uint32_t weight_rows, float eps, uint32_t n, size_t rows,
              float* out) {
  TIERPACK_CHECK((weight == nullptr || weight_rows > 0) && rows <= INT32_MAX);
  if (rows == 0 || n == 0) return;
  if (n <= kShortRow) {
    const size_t per_block = kShortThreads / kWarp;
    launch(s, "rms_norm", dim3(static_cast<unsigned>((rows + per_block - 1) / per_block)), kShortThreads, 0, short_rows_kernel, x,
           x_stride, weight, weight_rows, eps, n, static_cast<uint32_t>(rows), out);
    return;
  }
  const auto kernel = in_fours(n, {x, weight, out}) && x_stride % 4 == 0 ? long_rows_kernel<4> : long_rows_kernel<1>;
  launch(s, "rms_norm", dim3(static_cast<unsigned>(rows)), kLongThreads, (size_t{n} + 1) * sizeof(float), kernel, x, x_stride, weight,
         weight_rows, eps, n, out);
}

}  // namespace tierpack::kernels::cuda
