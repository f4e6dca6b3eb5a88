// Quantisation: rows of f32 values to blocks, for explicit transcoding. formats/dequant.h is the other direction.
//
// Every block type is written by a search for the scales (and minima, where the type has them) whose nearest codes have
// the smallest squared error; the error of a column counts as much as its importance. A block's bytes depend on its own
// values and importances alone, and every float operation is an IEEE operation in a fixed order, so that the same rows
// give the same bytes on every machine, with every compiler and however many threads share the rows.
//
// Values that blocks can hold exactly come back exactly when their codes use the whole range. Values beyond a type's
// reach are refused, never saturated.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "formats/dtype.h"

namespace tierpack {

// Whether quantize_rows writes the type: F32, F16, BF16 (round to nearest even), Q8_0, Q6_K, Q5_K, Q4_K, IQ4_NL, NVFP4.
bool is_quantize_target(DType type);

// The largest magnitude that quantize_rows accepts for the type: F16 reaches 65504, NVFP4 2688, the others further than
// any weight.
float quantize_limit(DType type);

// Writes `rows` rows of `cols` values, row by row, as blocks of `type` to `out` (rows * row_bytes(type, cols) bytes,
// any alignment). `importance` is empty (all columns alike) or holds `cols` weights, usually the mean squared
// activations of an importance matrix (formats/imatrix.h); only their ratios within a block matter, and a weight of 0
// counts as 2^-20 of the block's largest. Not for the plain types, whose values are rounded one by one.
//
// Throws kCorrupt naming the row for a NaN or an infinity, and for an importance that is negative or not finite;
// kUnsupported for a type that is not a target, for `cols` that are not whole blocks, and naming the row for a value
// beyond quantize_limit.
void quantize_rows(DType type, uint64_t rows, uint64_t cols, std::span<const float> values,
                   std::span<const float> importance, MutableBytes out);

// NVFP4's block scales span 2^-9 to 448, so that weights need a second, per-tensor scale, kept beside the tensor:
// divide by this before quantize_rows. `largest` is the largest magnitude of the tensor; 1 for a tensor of zeros.
float nvfp4_tensor_scale(float largest);

}  // namespace tierpack
