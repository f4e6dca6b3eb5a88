// What kernels of quantised products share: the product that a block works on, and the steps of docs/arithmetic.md, section 3.
// Only *.cu and *.cuh include this.
#pragma once

#include "runtime/kernels/cuda/device_decoders.cuh"
#include "runtime/kernels/cuda/product_batch.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::kernels::cuda {

// The product of this block of the grid, and the number of the block in it.
struct BlockOfGrid {
  unsigned product;
  unsigned block;
};
TIERPACK_DEVICE BlockOfGrid block_of_grid(const ProductBatch& batch) {
  unsigned product = 0;
#pragma unroll
  for (unsigned i = 1; i < kBatchProducts; ++i) product += blockIdx.x >= batch.first[i];
  return {product, blockIdx.x - batch.first[product]};
}

// Address of the matrix and of the factors beside it.
struct MatrixPlace {
  const uint8_t* data;
  const float* scales;
};
TIERPACK_DEVICE MatrixPlace place_of(const ProductParameters& w) {
  if (w.records == nullptr) return {w.data, w.scales};
  const uint64_t record = __ldg(w.records + __ldg(w.expert));
  return {reinterpret_cast<const uint8_t*>(record + reinterpret_cast<uint64_t>(w.data)),
          w.scales == nullptr ? nullptr : reinterpret_cast<const float*>(record + reinterpret_cast<uint64_t>(w.scales))};
}
// A result with its expert's factor.
TIERPACK_DEVICE float with_expert_scale(const ProductParameters& w, float y) {
  return w.expert_scales == nullptr ? y : y * __ldg(w.expert_scales + __ldg(w.expert));
}
// A result of a quantised matrix with its second-level scale.
TIERPACK_DEVICE float scaled_result(const ProductParameters& w, const MatrixPlace& place, float y) {
  return with_expert_scale(w, place.scales == nullptr ? y : y * __ldg(place.scales));
}
// The row of x that a token reads.
TIERPACK_DEVICE unsigned x_row(const ProductParameters& w, unsigned token) { return w.x_rows == nullptr ? token : __ldg(w.x_rows + token); }

// Integers below 2^22 in size become floats by an addition: of an accumulator that begins with the bits of 1.5 * 2^23.
inline constexpr int kFloatBits = 0x4B400000;
template <class D>
inline constexpr bool kByAddition = D::largest < (1 << 22);
template <class D>
TIERPACK_DEVICE float float_of(int accumulator) {
  if constexpr (kByAddition<D>) return __int_as_float(accumulator) - 12582912.0f;
  else return static_cast<float>(accumulator);
}

template <class D>
inline constexpr bool kHasOffset = D::form == BlockForm::kScaleOffset || D::form == BlockForm::kSubScaleOffset;
template <class D>
inline constexpr bool kReadsSums = kHasOffset<D> || D::bias != 0;
// Whether the integers of the halves stay apart.
template <class D>
inline constexpr bool kHalves = D::form != BlockForm::kScale && D::form != BlockForm::kScaleOffset;

TIERPACK_DEVICE int first_sum(int packed) { return static_cast<int16_t>(packed & 0xFFFF); }
TIERPACK_DEVICE int second_sum(int packed) { return packed >> 16; }

// What the accumulator of half h begins with (of both halves, where they are one).
template <class D>
TIERPACK_DEVICE int first_value(int sums, int h) {
  if constexpr (!kHalves<D>) return (kByAddition<D> ? kFloatBits : 0) - D::bias * (first_sum(sums) + second_sum(sums));
  else if constexpr (D::form == BlockForm::kTwoScales) return kByAddition<D> ? kFloatBits : 0;
  else return -D::bias * (h == 0 ? first_sum(sums) : second_sum(sums));
}

// What a block adds to its partial sum: s := fma(a[k], b[k], s), k ascending.
template <class D>
inline constexpr unsigned kTerms = D::form == BlockForm::kScale || D::form == BlockForm::kSubScale ? 1 : 2;
template <class D>
struct BlockTerms {
  float a[kTerms<D>], b[kTerms<D>];
};

// Of row r of w, from the accumulators of the halves (or one) and the scale and sums of the activations.
template <class D, unsigned N>
TIERPACK_DEVICE BlockTerms<D> terms_of(const BlockScales<N>& w, unsigned r, int i0, int i1, float x_scale, int x_sums) {
  BlockTerms<D> terms;
  const int both = !kHalves<D> || D::form == BlockForm::kTwoScales ? i0
                                                                   : (kByAddition<D> ? kFloatBits : 0) + w.sub_scale[0][r] * i0 + w.sub_scale[1][r] * i1;
  terms.a[0] = float_of<D>(both);
  terms.b[0] = w.scale.of[r] * x_scale;
  if constexpr (D::form == BlockForm::kTwoScales) {
    terms.a[1] = float_of<D>(i1);
    terms.b[1] = w.scale_high.of[r] * x_scale;
  } else if constexpr (D::form == BlockForm::kScaleOffset) {
    terms.a[1] = w.offset.of[r];
    terms.b[1] = static_cast<float>(first_sum(x_sums) + second_sum(x_sums)) * x_scale;
  } else if constexpr (D::form == BlockForm::kSubScaleOffset) {
    terms.a[1] = static_cast<float>(w.sub_offset[0][r] * first_sum(x_sums) + w.sub_offset[1][r] * second_sum(x_sums));
    terms.b[1] = w.offset.of[r] * x_scale;
  }
  return terms;
}
template <class D>
TIERPACK_DEVICE float with_terms(float s, const BlockTerms<D>& terms) {
#pragma unroll
  for (unsigned k = 0; k < kTerms<D>; ++k) s = __fmaf_rn(terms.a[k], terms.b[k], s);
  return s;
}

}  // namespace tierpack::kernels::cuda
