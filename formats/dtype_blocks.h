// One packed struct per quantised block, fields in byte order (docs/dtypes.md). Blocks lie back to back at any address,
// so decoders copy a block out (base/bytes.h load<>) or read fields through these alignment-1 structs; they never take
// the address of a wider field. `f16` marks IEEE binary16 bits.
#pragma once

#include <cstdint>

namespace tierpack {

using f16_bits = uint16_t;

#define TIERPACK_PACKED __attribute__((packed))
// clang-format off

// --- 32 elements. Element j < 16 is the low nibble of qs[j], element j + 16 the high one.
struct TIERPACK_PACKED BlockQ4_0 { f16_bits d; uint8_t qs[16]; };              // d * (q - 8)
struct TIERPACK_PACKED BlockQ4_1 { f16_bits d; f16_bits m; uint8_t qs[16]; };  // q * d + m
struct TIERPACK_PACKED BlockQ5_0 { f16_bits d; uint32_t qh; uint8_t qs[16]; };  // bit e of qh = bit 4 of q; d * (q - 16)
struct TIERPACK_PACKED BlockQ5_1 { f16_bits d; f16_bits m; uint32_t qh; uint8_t qs[16]; };  // q * d + m
struct TIERPACK_PACKED BlockQ8_0 { f16_bits d; int8_t qs[32]; };
struct TIERPACK_PACKED BlockQ8_1 { f16_bits d; f16_bits s; int8_t qs[32]; };  // activations: s = d * sum(qs)
struct TIERPACK_PACKED BlockIQ4_NL { f16_bits d; uint8_t qs[16]; };           // d * kIq4nlValues[q]
struct TIERPACK_PACKED BlockMXFP4 { uint8_t e; uint8_t qs[16]; };             // 2^(e - 128) * kFp4Values[q]

// --- 64 elements: four sub-blocks of 16, each with a UE4M3 scale; low nibbles are elements 0..7 of a sub-block.
struct TIERPACK_PACKED BlockNVFP4 { uint8_t d[4]; uint8_t qs[32]; };
struct TIERPACK_PACKED BlockQ2_0 { f16_bits d; uint8_t qs[16]; };  // 2 bits an element, d * (q - 1)

// --- 128 elements.
struct TIERPACK_PACKED BlockQ1_0 { f16_bits d; uint8_t qs[16]; };  // bit set: +d, else -d

// --- 256 elements.
struct TIERPACK_PACKED BlockQ2_K { uint8_t scales[16]; uint8_t qs[64]; f16_bits d; f16_bits dmin; };
struct TIERPACK_PACKED BlockQ3_K { uint8_t hmask[32]; uint8_t qs[64]; uint8_t scales[12]; f16_bits d; };
struct TIERPACK_PACKED BlockQ4_K { f16_bits d; f16_bits dmin; uint8_t scales[12]; uint8_t qs[128]; };
struct TIERPACK_PACKED BlockQ5_K { f16_bits d; f16_bits dmin; uint8_t scales[12]; uint8_t qh[32]; uint8_t qs[128]; };
struct TIERPACK_PACKED BlockQ6_K { uint8_t ql[128]; uint8_t qh[64]; int8_t scales[16]; f16_bits d; };
struct TIERPACK_PACKED BlockQ8_K { float d; int8_t qs[256]; int16_t bsums[16]; };  // activations
struct TIERPACK_PACKED BlockIQ2_XXS { f16_bits d; uint16_t qs[32]; };
struct TIERPACK_PACKED BlockIQ2_XS { f16_bits d; uint16_t qs[32]; uint8_t scales[8]; };
struct TIERPACK_PACKED BlockIQ2_S { f16_bits d; uint8_t qs[32]; uint8_t signs[32]; uint8_t qh[8]; uint8_t scales[8]; };
struct TIERPACK_PACKED BlockIQ3_XXS { f16_bits d; uint8_t qs[64]; uint32_t scales_and_signs[8]; };
struct TIERPACK_PACKED BlockIQ3_S { f16_bits d; uint8_t qs[64]; uint8_t qh[8]; uint8_t signs[32]; uint8_t scales[4]; };
struct TIERPACK_PACKED BlockIQ1_S { f16_bits d; uint8_t qs[32]; uint16_t qh[8]; };
struct TIERPACK_PACKED BlockIQ1_M { uint8_t qs[32]; uint8_t qh[16]; uint16_t scales[4]; };  // d is in scales' top nibbles
struct TIERPACK_PACKED BlockIQ4_XS { f16_bits d; uint16_t scales_h; uint8_t scales_l[4]; uint8_t qs[128]; };
struct TIERPACK_PACKED BlockTQ1_0 { uint8_t qs[48]; uint8_t qh[4]; f16_bits d; };  // five base-3 digits a byte (qh: four)
struct TIERPACK_PACKED BlockTQ2_0 { uint8_t qs[64]; f16_bits d; };

// clang-format on
#undef TIERPACK_PACKED

static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 1);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ8_1) == 36);
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockNVFP4) == 36);
static_assert(sizeof(BlockQ2_0) == 18);
static_assert(sizeof(BlockQ1_0) == 18);
static_assert(sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockQ8_K) == 292);
static_assert(sizeof(BlockIQ2_XXS) == 66);
static_assert(sizeof(BlockIQ2_XS) == 74);
static_assert(sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98);
static_assert(sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50);
static_assert(sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockTQ1_0) == 54);
static_assert(sizeof(BlockTQ2_0) == 66);

}  // namespace tierpack
