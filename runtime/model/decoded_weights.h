// Weights of a matrix as f32 values with their scales, and products with them: lookups of embedding rows, and quantised
// weights whose activations stay f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/pack.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::model {

// Row `row` of a matrix as a pack holds it: (cols) values, each times the scale of its block, rounded once.
void decode_matrix_row(const kernels::KernelTable& k, const kernels::MatrixView& matrix, uint64_t row, float* out);

// KernelTable::matmul of the decoded matrix: y = dot(decoded row, x) with the f32 activations of x. Uses memory of its
// thread, kept for the next call: decoded_weights_bytes() at most.
void multiply_decoded(const kernels::KernelTable& k, const kernels::MatrixView& w, uint32_t row_begin, uint32_t row_end,
                      const kernels::ActivationView& x, float* y, size_t y_stride);
uint64_t decoded_weights_bytes(const PackManifest& manifest);

// Says what the scales beside a matrix cover: `scale_rows` x `scale_columns` of them, one for the matrix (1 x 1), one a
// row (rows x 1) or one for each 128 x 128 weights. A quantised matrix takes one alone. Returns false for any other
// count.
bool set_scales(kernels::MatrixView& w, const float* scales, uint64_t scale_rows, uint64_t scale_columns);

}  // namespace tierpack::model
