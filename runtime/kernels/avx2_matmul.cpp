#include "runtime/kernels/vector_matmul.h"

namespace tierpack::kernels::avx2_ops {

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  vector_matmul(w, row_begin, row_end, x, y, y_stride);
}

}  // namespace tierpack::kernels::avx2_ops
