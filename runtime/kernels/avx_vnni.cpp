// The table of CPUs with AVX-VNNI and no AVX-512 (Intel's 12th to 14th generation): products with quantised weights use vpdpbusd on
// vectors of eight rows, everything else, grid types with one token too, is as with AVX2. The tests compile this file for AVX-512 VL as well, which has the same instruction in
// another encoding: so it is tested on CPUs that have only that.
#include "runtime/kernels/avx2.h"
#define TIERPACK_VNNI
#include "runtime/kernels/avx2_lanes.h"

#include "runtime/kernels/group_types.h"

#ifndef TIERPACK_AVX_VNNI_TABLE
#define TIERPACK_AVX_VNNI_TABLE avx_vnni
#endif

namespace tierpack::kernels {
namespace {

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  if (x.tokens == 1 && has_grid(w.dtype)) return avx2_ops::matmul(w, row_begin, row_end, x, y, y_stride);
  group_matmul({w, row_begin, row_end, x, y, y_stride}, multiply_groups_of, reference_ops::matmul);
}

}  // namespace

const KernelTable& TIERPACK_AVX_VNNI_TABLE() {
  static const KernelTable table = [] {
    KernelTable t = avx2();
    t.name = "avx_vnni";
    t.matmul = matmul;
    return t;
  }();
  return table;
}

}  // namespace tierpack::kernels
