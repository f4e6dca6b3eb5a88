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

// E elements by one load of 16, 8 or 4 bytes.
template <class Type, unsigned E>
struct Elements {
  static constexpr unsigned bytes = E * sizeof(typename Type::Bits);
  static_assert(bytes == 16 || bytes == 8 || bytes == 4);
  using Load = std::conditional_t<bytes == 16, uint4, std::conditional_t<bytes == 8, uint2, uint32_t>>;
  Load load;
  TIERPACK_DEVICE void read(const uint8_t* at) { load = __ldg(reinterpret_cast<const Load*>(at)); }
  TIERPACK_DEVICE float operator[](unsigned i) const {
    constexpr unsigned in_word = 4 / sizeof(typename Type::Bits);
    const unsigned k = i / in_word;
    uint32_t word;
    if constexpr (bytes == 16) word = k == 0 ? load.x : k == 1 ? load.y : k == 2 ? load.z : load.w;
    else if constexpr (bytes == 8) word = k == 0 ? load.x : load.y;
    else word = load;
    word >>= 32 / in_word * (i % in_word);
    if constexpr (sizeof(typename Type::Bits) == 2) word &= 0xFFFFu;
    return Type::value(word);
  }
};

TIERPACK_DEVICE bool is_aligned(const void* address, uint64_t step, unsigned bytes) {
  return ((reinterpret_cast<uint64_t>(address) | step) & (bytes - 1)) == 0;
}

// The tree over 32 sums, E in each of the lanes of a row: from this half on. A template, so that no array is indexed by a variable.
template <unsigned Half, unsigned E>
TIERPACK_DEVICE float tree_of_lanes(float (&s)[E]) {
  constexpr unsigned count = Half >= E ? E : Half;
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    if constexpr (Half >= E) s[i] = s[i] + __shfl_xor_sync(kFullWarp, s[i], static_cast<int>(Half / E));
    else s[i] = s[i] + s[i + Half];
  }
  if constexpr (Half > 1) return tree_of_lanes<Half / 2>(s);
  else return s[0];
}

// A lane has Rows rows, E apart, by Tokens tokens.
template <class Type, unsigned E, unsigned Rows, unsigned Tokens>
__global__ void __launch_bounds__(kWarps * kWarp, 4) plain_kernel(const ProductBatch batch) {
  constexpr unsigned lanes = 32 / E;
  const BlockOfGrid at = block_of_grid(batch);
  const ProductParameters& w = batch.product[at.product];
  const unsigned lane = threadIdx.x % kWarp, first_sum = lane % lanes * E, n = w.columns;
  const unsigned first_row = (at.block / w.grid_tokens * kWarps + threadIdx.x / kWarp) * (E * Rows) + lane / lanes;
  const unsigned first_token = at.block % w.grid_tokens * Tokens, last = w.tokens - 1;
  const MatrixPlace place = place_of(w);
  const bool aligned = is_aligned(place.data, w.row_bytes, Elements<Type, E>::bytes) && is_aligned(w.x, sizeof(float) * uint64_t{n}, 16);
  const bool scaled = place.scales != nullptr;
  const unsigned scales_of_line = scaled ? n / w.scale_columns + (n % w.scale_columns != 0) : 0;
  const uint8_t* data[Rows];
  const float* scale[Rows];
  const float* x[Tokens];
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) {
    const unsigned row = min(first_row + r * E, w.rows - 1);
    data[r] = place.data + row * w.row_bytes;
    scale[r] = scaled ? place.scales + static_cast<size_t>(row / w.scale_rows) * scales_of_line : nullptr;
  }
#pragma unroll
  for (unsigned k = 0; k < Tokens; ++k) x[k] = static_cast<const float*>(w.x) + static_cast<size_t>(x_row(w, min(first_token + k, last))) * n;

  float s[Rows][Tokens][E] = {};
  unsigned block = 0;
  for (unsigned begin = 0; begin < n; ++block) {
    const unsigned end = scaled && w.scale_columns < n - begin ? begin + w.scale_columns : n;
    float sum[Rows][Tokens][E] = {};
    unsigned e = begin + first_sum;
    if (aligned) {
#pragma unroll(Rows * Tokens > 1 ? 1 : E > 8 ? 2 : 4)
      for (; e + E <= end; e += 32) {
        Elements<Type, E> weights[Rows];
#pragma unroll
        for (unsigned r = 0; r < Rows; ++r) weights[r].read(data[r] + e * sizeof(typename Type::Bits));
#pragma unroll
        for (unsigned i = 0; i < E; i += 4) {
          float4 values[Tokens];
#pragma unroll
          for (unsigned k = 0; k < Tokens; ++k) values[k] = __ldg(reinterpret_cast<const float4*>(x[k] + e + i));
#pragma unroll
          for (unsigned r = 0; r < Rows; ++r) {
            const float weight[4] = {weights[r][i], weights[r][i + 1], weights[r][i + 2], weights[r][i + 3]};
#pragma unroll
            for (unsigned k = 0; k < Tokens; ++k) {
              sum[r][k][i] = __fmaf_rn(weight[0], values[k].x, sum[r][k][i]);
              sum[r][k][i + 1] = __fmaf_rn(weight[1], values[k].y, sum[r][k][i + 1]);
              sum[r][k][i + 2] = __fmaf_rn(weight[2], values[k].z, sum[r][k][i + 2]);
              sum[r][k][i + 3] = __fmaf_rn(weight[3], values[k].w, sum[r][k][i + 3]);
            }
          }
        }
      }
    }
#pragma unroll 1
    for (; e < end; e += 32) {
#pragma unroll
      for (unsigned i = 0; i < E; ++i) {
        if (e + i >= end) break;
#pragma unroll
        for (unsigned r = 0; r < Rows; ++r) {
          const float weight = Type::value(__ldg(reinterpret_cast<const typename Type::Bits*>(data[r]) + e + i));
#pragma unroll
          for (unsigned k = 0; k < Tokens; ++k) sum[r][k][i] = __fmaf_rn(weight, __ldg(x[k] + e + i), sum[r][k][i]);
        }
      }
    }
#pragma unroll
    for (unsigned r = 0; r < Rows; ++r) {
      const float factor = scaled ? __ldg(scale[r] + block) : 0.0f;
#pragma unroll
      for (unsigned k = 0; k < Tokens; ++k) {
#pragma unroll
        for (unsigned i = 0; i < E; ++i) s[r][k][i] = scaled ? __fmaf_rn(sum[r][k][i], factor, s[r][k][i]) : sum[r][k][i];
      }
    }
    begin = end;
  }
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) {
#pragma unroll
    for (unsigned k = 0; k < Tokens; ++k) {
      const float y = with_expert_scale(w, tree_of_lanes<16>(s[r][k]));
      const unsigned row = first_row + r * E;
      if (lane % lanes == 0 && row < w.rows && first_token + k <= last) w.y[(first_token + k) * w.y_stride + row] = y;
    }
  }
}

// Where there are many tokens: rows and tokens that share their loads, and the partial sums of a lane.
constexpr unsigned kRowsOfMany = 2, kTokensOfMany = 4, kSumsOfMany = 4;

template <class Type, unsigned E>
void launch_type(device::Stream& stream, ProductKernel kernel, const ProductBatch& batch) {
  const dim3 grid(batch.first[batch.count]);
  if (kernel == ProductKernel::kOneToken) return launch(stream, "plain product", grid, kWarps * kWarp, 0, plain_kernel<Type, E, 1, 1>, batch);
  launch(stream, "plain product of many tokens", grid, kWarps * kWarp, 0, plain_kernel<Type, kSumsOfMany, kRowsOfMany, kTokensOfMany>, batch);
}

}  // namespace

BlockShape plain_block_shape(DType type, ProductKernel kernel) {
  if (kernel != ProductKernel::kOneToken) return {kWarps * kSumsOfMany * kRowsOfMany, kTokensOfMany};
  return {kWarps * 16 / traits(type).block_bytes, 1};
}

bool launch_plain(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  switch (type) {
    case DType::kF32: return launch_type<PlainF32, 4>(stream, kernel, batch), true;
    case DType::kF16: return launch_type<PlainF16, 8>(stream, kernel, batch), true;
    case DType::kBF16: return launch_type<PlainBf16, 8>(stream, kernel, batch), true;
    case DType::kF8_E4M3: return launch_type<PlainE4m3, 16>(stream, kernel, batch), true;
    default: return false;
  }
}

}  // namespace tierpack::kernels::cuda
