// The table of CPUs with VBMI, BITALG and GFNI besides VNNI: grids looked up in registers, everything else as avx512.
#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx512_lanes.h"

#include "runtime/kernels/vbmi_grid_decoders.h"

namespace tierpack::kernels {
namespace {

bool multiply_groups_of(const Product& p) {
  // Entries of the largest grid are found faster one by one as long as there is one token.
  if (p.x.tokens == 1 && (p.w.dtype == DType::kIQ1_S || p.w.dtype == DType::kIQ1_M)) return false;
  switch (p.w.dtype) {
    case DType::kIQ3_XXS: return multiply_groups<VbmiIQ3_XXS>(p);
    case DType::kIQ3_S: return multiply_groups<VbmiIQ3_S>(p);
    case DType::kIQ2_XXS: return multiply_groups<VbmiIQ2_XXS>(p);
    case DType::kIQ2_XS: return multiply_groups<VbmiIQ2_XS>(p);
    case DType::kIQ2_S: return multiply_groups<VbmiIQ2_S>(p);
    case DType::kIQ1_S: return multiply_groups<VbmiIQ1_S>(p);
    case DType::kIQ1_M: return multiply_groups<VbmiIQ1_M>(p);
    default: return false;
  }
}

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  group_matmul({w, row_begin, row_end, x, y, y_stride}, multiply_groups_of, avx512().matmul);
}

}  // namespace

const KernelTable& avx512_vbmi() {
  static const KernelTable table = [] {
    KernelTable t = avx512();
    t.name = "avx512_vbmi";
    t.matmul = matmul;
    return t;
  }();
  return table;
}

}  // namespace tierpack::kernels
