// The types that have a decoder of row groups, with the body of group_matmul.h for each: the list of instances.
#pragma once

#include "runtime/kernels/group_matmul.h"
#if !defined(__AVX512F__) && !defined(TIERPACK_VNNI)
#include "runtime/kernels/avx2_grid_products.h"
#endif

namespace tierpack::kernels {
namespace {

// Whole groups of a type that has a decoder here; false for the others.
bool multiply_groups_of(const Product& p) {
  switch (p.w.dtype) {
    case DType::kQ4_0: return multiply_groups<DecodeQ4_0>(p);
    case DType::kQ4_1: return multiply_groups<DecodeQ4_1>(p);
    case DType::kQ5_0: return multiply_groups<DecodeQ5_0>(p);
    case DType::kQ5_1: return multiply_groups<DecodeQ5_1>(p);
    case DType::kQ8_0: return multiply_groups<DecodeBytes<BlockQ8_0>>(p);
    case DType::kQ8_1: return multiply_groups<DecodeBytes<BlockQ8_1>>(p);
    case DType::kIQ4_NL: return multiply_groups<DecodeIQ4_NL>(p);
    case DType::kMXFP4: return multiply_groups<DecodeMXFP4>(p);
    case DType::kNVFP4: return multiply_groups<DecodeNVFP4>(p);
    case DType::kQ2_0: return multiply_groups<DecodeQ2_0>(p);
    case DType::kQ2_K: return multiply_groups<DecodeQ2_K>(p);
    case DType::kQ3_K: return multiply_groups<DecodeQ3_K>(p);
    case DType::kQ4_K: return multiply_groups<DecodeQ4_K>(p);
    case DType::kQ5_K: return multiply_groups<DecodeQ5_K>(p);
    case DType::kQ6_K: return multiply_groups<DecodeQ6_K>(p);
    case DType::kTQ2_0: return multiply_groups<DecodeTQ2_0>(p);
    case DType::kIQ4_XS: return multiply_groups<DecodeIQ4_XS>(p);
#if defined(__AVX512F__) || defined(TIERPACK_VNNI)
    case DType::kIQ3_XXS: return multiply_groups<DecodeIQ3_XXS>(p);
    case DType::kIQ3_S: return multiply_groups<DecodeIQ3_S>(p);
    case DType::kIQ2_XXS: return multiply_groups<DecodeIQ2_XXS>(p);
    case DType::kIQ2_XS: return multiply_groups<DecodeIQ2_XS>(p);
    case DType::kIQ2_S: return multiply_groups<DecodeIQ2_S>(p);
    case DType::kIQ1_S: return multiply_groups<DecodeIQ1_S>(p);
    case DType::kIQ1_M: return multiply_groups<DecodeIQ1_M>(p);
#else
    case DType::kIQ3_XXS: return multiply_groups<DecodeIQ3_XXS, grid_one_token<GridIQ3_XXS>>(p);
    case DType::kIQ3_S: return multiply_groups<DecodeIQ3_S, grid_one_token<GridIQ3_S>>(p);
    case DType::kIQ2_XXS: return multiply_groups<DecodeIQ2_XXS, grid_one_token<GridIQ2_XXS>>(p);
    case DType::kIQ2_XS: return multiply_groups<DecodeIQ2_XS, grid_one_token<GridIQ2_XS>>(p);
    case DType::kIQ2_S: return multiply_groups<DecodeIQ2_S, grid_one_token<GridIQ2_S>>(p);
    case DType::kIQ1_S: return multiply_groups<DecodeIQ1_S, grid_one_token<GridIQ1_S>>(p);
    case DType::kIQ1_M: return multiply_groups<DecodeIQ1_M, grid_one_token<GridIQ1_M>>(p);
#endif
    default: return false;
  }
}

#ifdef TIERPACK_VNNI
// Types whose codes are looked up one by one. With one token the looking up is what takes time, and avx2 does it in a way of its own.
bool has_grid(DType type) {
  switch (type) {
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S:
    case DType::kIQ1_M: return true;
    default: return false;
  }
}

// The matmul of the tables with vpdpbusd.
void vnni_matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y,
                 size_t y_stride) {
  if (x.tokens == 1 && has_grid(w.dtype)) return avx2_ops::matmul(w, row_begin, row_end, x, y, y_stride);
  group_matmul({w, row_begin, row_end, x, y, y_stride}, multiply_groups_of, reference_ops::matmul);
}
#endif

}  // namespace
}  // namespace tierpack::kernels
