// The vector tables of x86-64, and the functions that their source files share.
#pragma once

#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {

const KernelTable& avx2();
const KernelTable& avx512();
bool cpu_has_avx2();    // with FMA and F16C
bool cpu_has_avx512();  // F, BW, DQ, VL and VNNI

namespace avx2_ops {

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride);
void matmul_plain(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride);
void attention(const float* q, const void* keys, const void* values, KvType type, size_t stride, uint32_t head_dim,
               const uint32_t* visible, uint32_t count, float scale, float* out);

}  // namespace avx2_ops
}  // namespace tierpack::kernels
