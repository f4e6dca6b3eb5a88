// Products with plain numbers: docs/arithmetic.md, section 4. A lane has E consecutive ones of the 32 partial sums, so that it loads E
// weights at once; 32 / E lanes are a row and E rows a warp.
#include <type_traits>

#include "runtime/kernels/cuda/block_products.cuh"
#include "runtime/kernels/cuda/launch.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

// An E4M3 code: moved to where a binary32 has exponent and fraction, it is 2^-120 of its value.
TIERPACK_DEVICE float from_e4m3(uint32_t code) {
  const float value = __uint_as_float((code & 0x7Fu) << 20 | (code & 0x80u) << 24) * 0x1p120f;
  return (code & 0x7Fu) == 0x7Fu ? __uint_as_float(0x7FC00000u) : value;
}

// Bits: the unsigned integer of an element's size.
struct PlainF32 {
  using Bits = uint32_t;
  TIERPACK_DEVICE static float value(uint32_t bits) { return __uint_as_float(bits); }
};
struct PlainF16 {
  using Bits = uint16_t;
  TIERPACK_DEVICE static float value(uint32_t bits) { return half_to_float(static_cast<uint16_t>(bits)); }
};
struct PlainBf16 {
  using Bits = uint16_t;
  TIERPACK_DEVICE static float value(uint32_t bits) { return __uint_as_float(bits << 16); }
};
struct PlainE4m3 {
  using Bits = uint8_t;
  TIERPACK_DEVICE static float value(uint32_t bits) { return from_e4m3(bits & 255u); }
};

// E elements by one load of 16 or 8 bytes.
template <class Type, unsigned E>
struct Elements {
  static constexpr unsigned bytes = E * sizeof(typename Type::Bits);
  static_assert(bytes == 16 || bytes == 8);
  using Load = std::conditional_t<bytes == 16, uint4, uint2>;
  Load load;
  TIERPACK_DEVICE explicit Elements(const uint8_t* at) : load(__ldg(reinterpret_cast<const Load*>(at))) {}
  TIERPACK_DEVICE float operator[](unsigned i) const {
    constexpr unsigned in_word = 4 / sizeof(typename Type::Bits);
    uint32_t word = i / in_word == 0 ? load.x : load.y;
    if constexpr (bytes == 16) word = i / in_word < 2 ? word : i / in_word == 2 ? load.z : load.w;
    word >>= 32 / in_word * (i % in_word);
    if constexpr (sizeof(typename Type::Bits) == 2) word &= 0xFFFFu;
    return Type::value(word);
  }
};

TIERPACK_DEVICE bool is_aligned(const void* address, uint64_t step, unsigned bytes) {
  return ((reinterpret_cast<uint64_t>(address) | step) & (bytes - 1)) == 0;
}

template <class Type, unsigned E, unsigned Tokens>
__global__ void __launch_bounds__(kWarps * kWarp) plain_kernel(const ProductBatch batch) {
  constexpr unsigned lanes = 32 / E;
  const BlockOfGrid at = block_of_grid(batch);
  const ProductParameters& w = batch.product[at.product];
  const unsigned lane = threadIdx.x % kWarp, first_sum = lane % lanes * E, n = w.columns;
  const unsigned own_row = (at.block % w.grid_rows * kWarps + threadIdx.x / kWarp) * E + lane / lanes;
  const unsigned row = min(own_row, w.rows - 1);
  const unsigned first_token = at.block / w.grid_rows * Tokens, last = w.tokens - 1;
  const MatrixPlace place = place_of(w);
  const uint8_t* data = place.data + row * w.row_bytes;
  const bool aligned = is_aligned(place.data, w.row_bytes, Elements<Type, E>::bytes) && is_aligned(w.x, sizeof(float) * uint64_t{n}, 16);
  const float* scale = place.scales;
  if (scale != nullptr) scale += static_cast<size_t>(row / w.scale_rows) * (n / w.scale_columns + (n % w.scale_columns != 0));
  const float* x[Tokens];
#pragma unroll
  for (unsigned k = 0; k < Tokens; ++k) x[k] = static_cast<const float*>(w.x) + static_cast<size_t>(x_row(w, min(first_token + k, last))) * n;

  float s[Tokens][E] = {};
  for (unsigned begin = 0; begin < n;) {
    const unsigned end = scale != nullptr && w.scale_columns < n - begin ? begin + w.scale_columns : n;
    float sum[Tokens][E] = {};
    unsigned e = begin + first_sum;
    if (aligned) {
#pragma unroll(Tokens == 1 ? 4 : 1)
      for (; e + E <= end; e += 32) {
        const Elements<Type, E> weights(data + e * sizeof(typename Type::Bits));
#pragma unroll
        for (unsigned k = 0; k < Tokens; ++k) {
#pragma unroll
          for (unsigned i = 0; i < E; i += 4) {
            const float4 values = __ldg(reinterpret_cast<const float4*>(x[k] + e + i));
            sum[k][i] = __fmaf_rn(weights[i], values.x, sum[k][i]);
            sum[k][i + 1] = __fmaf_rn(weights[i + 1], values.y, sum[k][i + 1]);
            sum[k][i + 2] = __fmaf_rn(weights[i + 2], values.z, sum[k][i + 2]);
            sum[k][i + 3] = __fmaf_rn(weights[i + 3], values.w, sum[k][i + 3]);
          }
        }
      }
    }
    for (; e < end; e += 32) {
#pragma unroll
      for (unsigned i = 0; i < E; ++i) {
        if (e + i >= end) continue;
        const float weight = Type::value(__ldg(reinterpret_cast<const typename Type::Bits*>(data) + e + i));
#pragma unroll
        for (unsigned k = 0; k < Tokens; ++k) sum[k][i] = __fmaf_rn(weight, __ldg(x[k] + e + i), sum[k][i]);
      }
    }
    const float factor = scale != nullptr ? __ldg(scale) : 0.0f;
#pragma unroll
    for (unsigned k = 0; k < Tokens; ++k) {
#pragma unroll
      for (unsigned i = 0; i < E; ++i) s[k][i] = scale != nullptr ? __fmaf_rn(sum[k][i], factor, s[k][i]) : sum[k][i];
    }
    if (scale != nullptr) ++scale;
    begin = end;
  }
#pragma unroll
  for (unsigned k = 0; k < Tokens; ++k) {
#pragma unroll
    for (unsigned half = 16; half >= E; half /= 2) {
#pragma unroll
      for (unsigned i = 0; i < E; ++i) s[k][i] = s[k][i] + __shfl_xor_sync(kFullWarp, s[k][i], static_cast<int>(half / E));
    }
#pragma unroll
    for (unsigned half = E / 2; half > 0; half /= 2) {
#pragma unroll
      for (unsigned i = 0; i < half; ++i) s[k][i] = s[k][i] + s[k][i + half];
    }
    if (lane % lanes == 0 && own_row < w.rows && first_token + k <= last) {
      w.y[(first_token + k) * w.y_stride + own_row] = with_expert_scale(w, s[k][0]);
    }
  }
}

// Tokens that share a load of weights, where there are many.
constexpr unsigned kSharing = 4;

template <class Type, unsigned EOfOne, unsigned EOfMany>
void launch_type(device::Stream& stream, ProductKernel kernel, const ProductBatch& batch) {
  const dim3 grid(batch.first[batch.count]);
  if (kernel == ProductKernel::kOneToken) return launch(stream, "plain product", grid, kWarps * kWarp, 0, plain_kernel<Type, EOfOne, 1>, batch);
  launch(stream, "plain product of many tokens", grid, kWarps * kWarp, 0, plain_kernel<Type, EOfMany, kSharing>, batch);
}

}  // namespace

BlockShape plain_block_shape(DType type, ProductKernel kernel) {
  const bool one = kernel == ProductKernel::kOneToken;
  const unsigned e = type == DType::kF32 ? 4 : type == DType::kF8_E4M3 && one ? 16 : 8;
  return {kWarps * e, one ? 1 : kSharing};
}

bool launch_plain(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  switch (type) {
    case DType::kF32: return launch_type<PlainF32, 4, 4>(stream, kernel, batch), true;
    case DType::kF16: return launch_type<PlainF16, 8, 8>(stream, kernel, batch), true;
    case DType::kBF16: return launch_type<PlainBf16, 8, 8>(stream, kernel, batch), true;
    case DType::kF8_E4M3: return launch_type<PlainE4m3, 16, 8>(stream, kernel, batch), true;
    default: return false;
  }
}

}  // namespace tierpack::kernels::cuda
