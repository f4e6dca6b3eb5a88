// Weights of a safetensors checkpoint as f32: the decoder that repacking is checked against. Every rule is that of
// quant_scheme.h, computed in f32 with one rounding for each product written there; a code times its block scale is
// exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/quant_scheme.h"

namespace tierpack {

// How compressed-tensors' global scale is applied. Readers disagree by one unit in the last place: the format's own
// definition divides; runtimes that keep a multiplier (vLLM, ggml) multiply by the rounded reciprocal.
enum class GlobalScale { kDivide, kMultiplyByReciprocal };

// Decodes rows [first_row, first_row + row_count) of `weight` into `out`, (row_count, columns). Rows are lines of the
// last dimension, counted over a whole stack: row r of matrix e is e * matrix_rows() + r. Reads about 1 MiB at a time,
// or a row when that is longer. Thread-safe. kUnsupported for types that are no numbers here (C64, F4, F6, FNUZ).
void decode_rows(const SafetensorsSource& source, const QuantWeight& weight, uint64_t first_row, uint64_t row_count,
                 std::span<float> out, GlobalScale global = GlobalScale::kDivide);

// The second-level scales of a kNvfp4 weight as multipliers, one for each scale_2_rows rows: weight_scale_2 as stored,
// or f32(1 / weight_global_scale).
std::vector<float> second_scale_multipliers(const SafetensorsSource& source, const QuantWeight& weight);

// `count` numbers of a plain type to f32, integers and F64 rounded to nearest. kUnsupported as above.
void decode_plain(HfType type, const std::byte* from, float* to, uint64_t count);
// Whether decode_plain knows the type.
bool is_decodable(HfType type);

}  // namespace tierpack
