// Scalar dequantisation of every type: the decoder that repack, verify and the kernels are checked against. Results
// equal ggml's to_float bit for bit (tests/formats/dequant_test.cpp holds them to golden data).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "formats/dtype.h"

namespace tierpack {

// Decodes `elements` values (a multiple of the block) from `row` (row_bytes(type, elements) bytes, any alignment) into
// out[0 .. elements). Integer and F64 types are converted to float.
void dequantize_row(DType type, const std::byte* row, float* out, uint64_t elements);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // round to nearest even
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);  // round to nearest even

// Block scales, halved to go with the doubled values of kFp4Values.
float e8m0_half_to_f32(uint8_t code);   // MXFP4: 2^(code - 128); 255 gives 2^127
float ue4m3_half_to_f32(uint8_t code);  // NVFP4: half of an E4M3 value without sign; 0x7f gives 0, bit 7 is ignored

}  // namespace tierpack
