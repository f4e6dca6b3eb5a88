// One block of 32 activations quantised by eight neighbouring lanes with four elements each: docs/arithmetic.md, section 2.
#pragma once

#include "runtime/kernels/cuda/dialect.cuh"
#include "runtime/kernels/reference.h"

namespace tierpack::kernels::cuda {

inline constexpr unsigned kQuantizeLanes = 8;

struct QuantizedFour {
  uint32_t codes;  // int8 of this lane's elements, the first in the low byte
  float scale;     // of the block, in every lane
  int32_t sum;     // likewise, as kernels::pack_half_sums
};

// Lane l % 8 of a block has its elements 4 * (l % 8) ... Every lane of the warp calls it.
__device__ __forceinline__ QuantizedFour quantize_block(const float (&x)[4]) {
  // Of non-negative floats the bits order as the values do, with infinity and NaN above all numbers.
  int32_t amax_bits = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) amax_bits = max(amax_bits, __float_as_int(x[j]) & 0x7FFFFFFF);
#pragma unroll
  for (int half = kQuantizeLanes / 2; half > 0; half /= 2) amax_bits = max(amax_bits, __shfl_xor_sync(kFullWarp, amax_bits, half));
  const float amax = __int_as_float(amax_bits);
  const bool broken = amax_bits >= 0x7F800000;
  const bool empty = broken || amax < kQuantizeFloor;
  const float inverse = 127.0f / amax;
  QuantizedFour result = {0, broken ? __int_as_float(0x7FC00000) : 0.0f, 0};
  int32_t sum = 0;
  if (!empty) {
    result.scale = amax / 127.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int32_t q = __float2int_rn(x[j] * inverse);
      result.codes |= (static_cast<uint32_t>(q) & 0xFFu) << (8 * j);
      sum += q;
    }
  }
  // Lanes 0 .. 3 have the first 16 elements.
  sum += __shfl_xor_sync(kFullWarp, sum, 1);
  sum += __shfl_xor_sync(kFullWarp, sum, 2);
  const int32_t other = __shfl_xor_sync(kFullWarp, sum, 4);
  const bool first = (threadIdx.x & 4) == 0;
  result.sum = pack_half_sums(first ? sum : other, first ? other : sum);
  return result;
}

}  // namespace tierpack::kernels::cuda
