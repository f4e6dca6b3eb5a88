// Quantised activations: docs/arithmetic.md, section 2. Eight lanes are a block of 32, four elements each.
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/product_batch.h"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kLanes = 8;

__global__ void quantize_kernel(const float* x, size_t blocks, int8_t* q, float* scale, int32_t* sum) {
  const size_t own_block = static_cast<size_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool inside = own_block < blocks;
  const size_t block = inside ? own_block : blocks - 1;
  const unsigned part = threadIdx.x % kLanes;
  const float4 v = __ldg(reinterpret_cast<const float4*>(x + 32 * block) + part);
  const float values[4] = {v.x, v.y, v.z, v.w};
  // Bits of non-negative floats order as the values do, with infinity and NaN above all numbers.
  unsigned most = 0;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) most = max(most, __float_as_uint(values[i]) & 0x7FFFFFFFu);
#pragma unroll
  for (int step = 4; step > 0; step /= 2) most = max(most, __shfl_xor_sync(kFullWarp, most, step));
  const float amax = __uint_as_float(most);
  const bool broken = most >= 0x7F800000u, none = broken || amax < 0x1p-100f;
  const float inverse = 127.0f / amax;
  int codes[4];
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) codes[i] = none ? 0 : __float2int_rn(values[i] * inverse);
  // Of the lane's half of the block.
  int half_sum = (codes[0] + codes[1]) + (codes[2] + codes[3]);
#pragma unroll
  for (int step = 2; step > 0; step /= 2) half_sum += __shfl_xor_sync(kFullWarp, half_sum, step);
  const int other = __shfl_xor_sync(kFullWarp, half_sum, 4);
  if (!inside) return;
  uint32_t word = 0;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) word |= (static_cast<uint32_t>(codes[i]) & 255u) << (8 * i);
  reinterpret_cast<uint32_t*>(q + 32 * block)[part] = word;
  if (part != 0) return;
  scale[block] = broken ? __uint_as_float(0x7FC00000u) : none ? 0.0f : amax / 127.0f;
  sum[block] = static_cast<int32_t>((static_cast<uint32_t>(half_sum) & 0xFFFFu) | static_cast<uint32_t>(other) << 16);
}

}  // namespace

void launch_quantize(device::Stream& stream, const float* x, size_t blocks, int8_t* q, float* scale, int32_t* sum) {
  const size_t in_grid_block = kThreads / kLanes;
  launch(stream, "quantize", dim3(static_cast<unsigned>((blocks + in_grid_block - 1) / in_grid_block)), kThreads, 0, quantize_kernel, x, blocks, q,
         scale, sum);
}

}  // namespace tierpack::kernels::cuda
