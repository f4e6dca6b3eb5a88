#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx2_lanes.h"

#include "runtime/kernels/group_matmul.h"

namespace tierpack::kernels::avx2_ops {

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  group_matmul(w, row_begin, row_end, x, y, y_stride);
}

}  // namespace tierpack::kernels::avx2_ops
