// The vector tables of x86-64, and the functions that their source files share.
#pragma once

#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {

const KernelTable& avx2();
const KernelTable& avx_vnni();
const KernelTable& avx512();
const KernelTable& avx512_vbmi();
bool cpu_has_avx2();    // with FMA and F16C
bool cpu_has_avx_vnni();  // AVX2 and AVX-VNNI
bool cpu_has_avx512();  // F, BW, DQ, VL and VNNI
bool cpu_has_avx512_vbmi();  // these, and VBMI, BITALG and GFNI

namespace avx2_ops {

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride);
void matmul_plain(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride);
void attention(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale);
void delta_rule(float* state, const float* q, const float* k, const float* v, float decay, float beta, uint32_t dk, uint32_t dv,
                float* out);

}  // namespace avx2_ops

namespace avx512_ops {

void attention(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale);
void delta_rule(float* state, const float* q, const float* k, const float* v, float decay, float beta, uint32_t dk, uint32_t dv,
                float* out);

}  // namespace avx512_ops
}  // namespace tierpack::kernels
