#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx2_lanes.h"

#include "runtime/kernels/group_types.h"

namespace tierpack::kernels::avx2_ops {

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  group_matmul({w, row_begin, row_end, x, y, y_stride}, multiply_groups_of, reference_ops::matmul);
}

}  // namespace tierpack::kernels::avx2_ops
