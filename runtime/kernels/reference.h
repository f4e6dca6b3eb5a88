// Functions of the reference that its two source files share. Everyone else goes through kernels.h.
#pragma once

#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {

// An activation block whose largest magnitude is below this quantises to zeros: 2^-100, far above the range where
// 127 / amax or amax / 127 would leave the normal numbers.
inline constexpr float kQuantizeFloor = 0x1p-100f;

namespace reference_ops {

void quantize(const float* x, uint32_t n, int8_t* q, float* scale, int32_t* sum);
void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride);
float dot(const float* a, const float* b, uint32_t n);
float sum(const float* x, uint32_t n);  // 32 interleaved partial sums, as dot
void decode_row(DType dtype, const std::byte* row, uint32_t n, float* out);

// The scale of a quantised matrix, which multiplies results: rows [row_begin, row_end) of every token.
void scale_results(const MatrixView& w, uint32_t row_begin, uint32_t row_end, uint32_t tokens, float* y, size_t y_stride);

}  // namespace reference_ops
}  // namespace tierpack::kernels
