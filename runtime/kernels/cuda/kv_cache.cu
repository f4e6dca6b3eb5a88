// Keys and values into their cache, as f32, f16 or codes with scales (docs/arithmetic.md, sections 2 and 10). A warp writes a row.
#include "base/error.h"
#include "runtime/kernels/cuda/dialect.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kRowsPerBlock = 8;

__device__ void store_codes(const float* x, uint32_t dim, std::byte* row, unsigned lane) {
  int8_t* const codes = reinterpret_cast<int8_t*>(row);
  float* const scales = reinterpret_cast<float*>(row + dim);
  for (uint32_t block = 0; block < dim / 32; ++block) {
    const float value = x[block * 32 + lane];
    // Of non-negative floats the bit patterns order as the values do, with infinity and NaN above all numbers.
    uint32_t largest = __float_as_uint(value) & 0x7FFFFFFFu;
#pragma unroll
    for (int half = 16; half > 0; half /= 2) largest = max(largest, __shfl_xor_sync(kFullWarp, largest, half));
    const float amax = __uint_as_float(largest);
    const bool broken = largest >= 0x7F800000u;
    const bool zero = broken || amax < 0x1p-100f;
    const float inverse = 127.0f / amax;
    codes[block * 32 + lane] = zero ? int8_t{0} : static_cast<int8_t>(__float2int_rn(value * inverse));
    if (lane == 0) scales[block] = broken ? __uint_as_float(0x7FC00000u) : zero ? 0.0f : amax / 127.0f;
  }
}

__global__ void store_kv_kernel(const float* k, const float* v, uint32_t rows, uint32_t kv_heads, uint32_t dim, KvType type,
                                uint32_t first, uint32_t capacity, uint32_t row_bytes, std::byte* keys, std::byte* values) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t row = blockIdx.x * kRowsPerBlock + threadIdx.x / kWarp;  // token * kv_heads + head
  if (row >= rows) return;
  const float* const x = (blockIdx.y == 0 ? k : v) + static_cast<size_t>(row) * dim;
  const size_t place = static_cast<size_t>(row % kv_heads) * capacity + first + row / kv_heads;
  std::byte* const out = (blockIdx.y == 0 ? keys : values) + place * row_bytes;
  if (type == KvType::kQ8) {
    store_codes(x, dim, out, lane);
  } else if (type == KvType::kF16) {
    for (uint32_t d = lane; d < dim; d += kWarp) reinterpret_cast<uint16_t*>(out)[d] = float_to_half(x[d]);
  } else {
    for (uint32_t d = lane; d < dim; d += kWarp) reinterpret_cast<float*>(out)[d] = x[d];
  }
}

}  // namespace

void store_kv(Stream& s, const float* k, const float* v, uint32_t tokens, uint32_t kv_heads, uint32_t dim, KvType type, uint32_t first,
              uint32_t capacity, std::byte* keys, std::byte* values) {
  TIERPACK_CHECK(uint64_t{first} + tokens <= capacity && (type != KvType::kQ8 || dim % 32 == 0));
  const uint32_t rows = tokens * kv_heads;
  if (rows == 0) return;
  const dim3 grid((rows + kRowsPerBlock - 1) / kRowsPerBlock, 2);
  launch(s, "store_kv", grid, kRowsPerBlock * kWarp, 0, store_kv_kernel, k, v, rows, kv_heads, dim, type, first, capacity,
         static_cast<uint32_t>(kv_row_bytes(type, dim)), keys, values);
}

}  // namespace tierpack::kernels::cuda
