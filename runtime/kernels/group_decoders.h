// Decoders of row groups (formats/row_groups.h): the codes and scales of a column of packed blocks, one row a lane. Written in
// the vectors of avx2_lanes.h or avx512_lanes.h, whichever the file included first; everything is in an unnamed namespace.
//
// A decoder D of a type is constructed from a column and the first row of the vector (0 or 8), and has
//   form, blocks, block_bytes   as the BlockFormat of the type
//   bias, code_max              codes are c + bias, 0 .. code_max; or bias = kSigned: c itself, |c| <= code_max
//   transposed                  byte k of vector j holds element 4k + j of its 16, not element 4j + k
//   in_order                    a column is read about in the order of addresses
//   prepare(b)                  work shared by the vectors of block b; called before code(b, ...)
//   code(b, j)                  codes of elements 4j .. 4j + 3 of block b
//   scale(b), scale_high(b), offset(b), sub_scales(b), sub_offsets(b)
//                               what the form needs; pairs lie as two i16 in a lane
//   sub_scale(b, h)             instead of sub_scales(b), where products of bytes are exact: one, as i32
#pragma once

#include "formats/dtype_blocks.h"
#include "formats/iq_grids.h"
#include "runtime/kernels/block_decoder.h"

namespace tierpack::kernels {
namespace {

constexpr int kSigned = -1;

// Byte k of each lane, zero-extended.
TIERPACK_INLINE Ints byte_of_lane(Ints v, int k) {
  return k == 3 ? shift_right(v, 24) : (k == 0 ? v : shift_right(v, 8 * k)) & all_ints(255);
}

// Indices for shuffle_bytes: the same four bytes of each lane, given by their numbers in it; 0x80 gives 0.
TIERPACK_INLINE Ints in_each_lane(int b0, int b1, int b2, int b3) {
  alignas(16) int8_t index[16];
  const int of_lane[4] = {b0, b1, b2, b3};
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) index[i] = static_cast<int8_t>(of_lane[i % 4] & 0x80 ? 0x80 : i / 4 * 4 + of_lane[i % 4]);
  return repeat16(index);
}

template <BlockForm Form, int Blocks, size_t Bytes, int Bias, int CodeMax>
struct ColumnDecoder {
  static constexpr BlockForm form = Form;
  static constexpr int blocks = Blocks;
  static constexpr size_t block_bytes = Bytes;
  static constexpr int bias = Bias;
  static constexpr int code_max = CodeMax;
  static constexpr bool transposed = false;
  static constexpr bool in_order = true;

  const std::byte* column;
  uint32_t row;

  TIERPACK_INLINE ColumnDecoder(const std::byte* c, uint32_t r) : column(c), row(r) {}

  // Unit u of the field at byte `offset` of the block, or a field of two bytes or one.
  TIERPACK_INLINE Ints unit(size_t offset, int u) const {
    return load_ints(column + 16 * offset + 64 * static_cast<size_t>(u) + 4 * row);
  }
  TIERPACK_INLINE Floats half(size_t offset) const { return load_halves(column + 16 * offset + 2 * row); }
  TIERPACK_INLINE Ints shorts(size_t offset) const { return load_shorts(column + 16 * offset + 2 * row); }
  TIERPACK_INLINE Ints single_bytes(size_t offset) const { return load_bytes(column + 16 * offset + row); }
  TIERPACK_INLINE void prepare(int) {}

  // The layout of 32 elements: low nibbles of four units, then high ones.
  TIERPACK_INLINE Ints nibbles(size_t offset, int j) const {
    const Ints v = unit(offset, j % 4);
    return (j < 4 ? v : shift_right(v, 4)) & all_bytes(15);
  }

  // Bit 4j + k of `bits` as 16 in byte k.
  TIERPACK_INLINE static Ints fifth_bits(Ints bits, int j) {
    const int from = j / 2;
    const Ints moved = j % 2 == 0 ? shift_left(bits, 4) : bits;  // within a byte: bits 4 .. 7
    const Ints spread = shuffle_bytes(moved, in_each_lane(from, from, from, from)) & all_ints(0x80402010);
    return min_bytes(spread, all_bytes(16));
  }
};

using enum BlockForm;

// --- 32 elements ---

struct DecodeQ4_0 : ColumnDecoder<kScale, 1, sizeof(BlockQ4_0), 8, 15> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int, int j) const { return nibbles(offsetof(BlockQ4_0, qs), j); }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockQ4_0, d)); }
};

struct DecodeQ4_1 : ColumnDecoder<kScaleOffset, 1, sizeof(BlockQ4_1), 0, 15> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int, int j) const { return nibbles(offsetof(BlockQ4_1, qs), j); }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockQ4_1, d)); }
  TIERPACK_INLINE Floats offset(int) const { return half(offsetof(BlockQ4_1, m)); }
};

struct DecodeQ5_0 : ColumnDecoder<kScale, 1, sizeof(BlockQ5_0), 16, 31> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int, int j) const {
    return nibbles(offsetof(BlockQ5_0, qs), j) | fifth_bits(unit(offsetof(BlockQ5_0, qh), 0), j);
  }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockQ5_0, d)); }
};

struct DecodeQ5_1 : ColumnDecoder<kScaleOffset, 1, sizeof(BlockQ5_1), 0, 31> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int, int j) const {
    return nibbles(offsetof(BlockQ5_1, qs), j) | fifth_bits(unit(offsetof(BlockQ5_1, qh), 0), j);
  }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockQ5_1, d)); }
  TIERPACK_INLINE Floats offset(int) const { return half(offsetof(BlockQ5_1, m)); }
};

// Signed bytes, from -128 on: made unsigned where products of bytes are exact.
template <typename Block>
struct DecodeBytes : ColumnDecoder<kScale, 1, sizeof(Block), kExactBytes ? 128 : kSigned, kExactBytes ? 255 : 128> {
  using Base = ColumnDecoder<kScale, 1, sizeof(Block), kExactBytes ? 128 : kSigned, kExactBytes ? 255 : 128>;
  using Base::Base;
  TIERPACK_INLINE Ints code(int, int j) const {
    const Ints c = this->unit(offsetof(Block, qs), j);
    return kExactBytes ? c ^ all_bytes(-128) : c;
  }
  TIERPACK_INLINE Floats scale(int) const { return this->half(offsetof(Block, d)); }
};

// A table of 16 codes plus a bias.
template <size_t N>
TIERPACK_INLINE Ints looked_up(const std::array<int8_t, N>& table, int bias, Ints index) {
  alignas(16) int8_t biased[16];
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) biased[i] = static_cast<int8_t>(table[i] + bias);
  return shuffle_bytes(repeat16(biased), index);
}

constexpr int kIq4Bias = kExactBytes ? 127 : kSigned;
constexpr int kIq4Max = kExactBytes ? 240 : 127;
constexpr int kFp4Bias = 12;

struct DecodeIQ4_NL : ColumnDecoder<kScale, 1, sizeof(BlockIQ4_NL), kIq4Bias, kIq4Max> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int, int j) const {
    return looked_up(kIq4nlValues, kExactBytes ? kIq4Bias : 0, nibbles(offsetof(BlockIQ4_NL, qs), j));
  }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockIQ4_NL, d)); }
};

struct DecodeMXFP4 : ColumnDecoder<kScale, 1, sizeof(BlockMXFP4), kFp4Bias, 24> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int, int j) const { return looked_up(kFp4Values, kFp4Bias, nibbles(offsetof(BlockMXFP4, qs), j)); }
  // 2^(e - 128); e = 0 and 1 are subnormal.
  TIERPACK_INLINE Floats scale(int) const {
    const Ints e = single_bytes(offsetof(BlockMXFP4, e));
    const Ints normal = shift_left(sub_ints(e, all_ints(1)), 23);
    const Ints first = equal_ints(e, zero_ints()), second = equal_ints(e, all_ints(1));
    return as_floats(select(first, all_ints(0x00200000), select(second, all_ints(0x00400000), normal)));
  }
};

// --- 64 elements ---

struct DecodeNVFP4 : ColumnDecoder<kTwoScales, 2, sizeof(BlockNVFP4), kFp4Bias, 24> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int b, int j) const {
    const Ints v = unit(offsetof(BlockNVFP4, qs), 4 * b + j / 4 * 2 + j % 2);
    return looked_up(kFp4Values, kFp4Bias, (j % 4 < 2 ? v : shift_right(v, 4)) & all_bytes(15));
  }
  TIERPACK_INLINE Floats scale(int b) const { return half_of_e4m3(2 * b); }
  TIERPACK_INLINE Floats scale_high(int b) const { return half_of_e4m3(2 * b + 1); }

 private:
  // Half the unsigned E4M3 value: (8 + M) 2^(E - 11), without exponent M 2^-10; code 0x7F is 0.
  TIERPACK_INLINE Floats half_of_e4m3(int s) const {
    const Ints whole = byte_of_lane(unit(offsetof(BlockNVFP4, d), 0), s);
    const Ints magnitude = whole & all_ints(127);
    const Ints normal = add_ints(shift_left(magnitude, 20), all_ints(119u << 23));
    const Ints small = as_ints(mul(to_floats(magnitude), all_floats(0x1p-10f)));
    const Ints none = equal_ints(magnitude & all_ints(0x78), zero_ints());
    const Ints value = select(none, small, normal);
    return as_floats(select(equal_ints(whole, all_ints(127)), zero_ints(), value));
  }
};

// Two bits an element: a shift by 2j leaves element 4k + j in byte k.
struct DecodeQ2_0 : ColumnDecoder<kScale, 2, sizeof(BlockQ2_0), 1, 3> {
  using ColumnDecoder::ColumnDecoder;
  static constexpr bool transposed = true;
  TIERPACK_INLINE Ints code(int b, int j) const {
    return shift_right(unit(offsetof(BlockQ2_0, qs), 2 * b + j / 4), 2 * (j % 4)) & all_bytes(3);
  }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockQ2_0, d)); }
};

// --- 256 elements ---

// Bytes 2b and 2b + 1 of four units as i16 pairs, zero-extended or with their signs.
TIERPACK_INLINE Ints byte_pair(const Ints (&units)[4], int b) {
  const int k = 2 * (b % 2);
  return shuffle_bytes(units[b / 2], in_each_lane(k, 0x80, k + 1, 0x80));
}
TIERPACK_INLINE Ints signed_byte_pair(const Ints (&units)[4], int b) {
  const int k = 2 * (b % 2);
  return shift_shorts_right_signed(shuffle_bytes(units[b / 2], in_each_lane(0x80, k, 0x80, k + 1)), 8);
}

struct DecodeQ2_K : ColumnDecoder<kSubScaleOffset, 8, sizeof(BlockQ2_K), 0, 3> {
  static constexpr bool in_order = false;
  Ints low[4], high[4];
  Floats d, minus_dmin;
  TIERPACK_INLINE DecodeQ2_K(const std::byte* c, uint32_t r)
      : ColumnDecoder(c, r), d(half(offsetof(BlockQ2_K, d))), minus_dmin(negate(half(offsetof(BlockQ2_K, dmin)))) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const Ints v = unit(offsetof(BlockQ2_K, scales), u);
      low[u] = v & all_bytes(15);
      high[u] = shift_right(v, 4) & all_bytes(15);
    }
  }
  TIERPACK_INLINE Ints code(int b, int j) const {
    return shift_right(unit(offsetof(BlockQ2_K, qs), 8 * (b / 4) + j), 2 * (b % 4)) & all_bytes(3);
  }
  TIERPACK_INLINE Floats scale(int) const { return d; }
  TIERPACK_INLINE Floats offset(int) const { return minus_dmin; }
  TIERPACK_INLINE Ints sub_scales(int b) const { return byte_pair(low, b); }
  TIERPACK_INLINE Ints sub_offsets(int b) const { return byte_pair(high, b); }
};

struct DecodeQ3_K : ColumnDecoder<kSubScale, 8, sizeof(BlockQ3_K), 4, 7> {
  static constexpr bool in_order = false;
  Ints scales[4];
  Floats d;
  TIERPACK_INLINE DecodeQ3_K(const std::byte* c, uint32_t r) : ColumnDecoder(c, r), d(half(offsetof(BlockQ3_K, d))) {
    const Ints high = unit(offsetof(BlockQ3_K, scales), 2);
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const Ints low = shift_right(unit(offsetof(BlockQ3_K, scales), u % 2), u < 2 ? 0 : 4) & all_bytes(15);
      const Ints top = (u < 2 ? shift_left(high, 4 - 2 * u) : shift_right(high, 2 * u - 4)) & all_bytes(0x30);
      scales[u] = sub_bytes(low | top, all_bytes(32));
    }
  }
  TIERPACK_INLINE Ints code(int b, int j) const {
    const Ints low = shift_right(unit(offsetof(BlockQ3_K, qs), 8 * (b / 4) + j), 2 * (b % 4)) & all_bytes(3);
    const Ints mask = unit(offsetof(BlockQ3_K, hmask), j);
    return low | ((b < 2 ? shift_left(mask, 2 - b) : shift_right(mask, b - 2)) & all_bytes(4));
  }
  TIERPACK_INLINE Floats scale(int) const { return d; }
  TIERPACK_INLINE Ints sub_scales(int b) const { return signed_byte_pair(scales, b); }
};

// The 6-bit scales and minima of Q4_K and Q5_K: byte b % 4 of scale[b / 4] and minimum[b / 4].
template <typename Block, int CodeMax>
struct DecodeScaledNibbles : ColumnDecoder<kScaleOffset, 8, sizeof(Block), 0, CodeMax> {
  using Base = ColumnDecoder<kScaleOffset, 8, sizeof(Block), 0, CodeMax>;
  Ints scales[2], minima[2];
  Floats d, minus_dmin;
  TIERPACK_INLINE DecodeScaledNibbles(const std::byte* c, uint32_t r)
      : Base(c, r), d(this->half(offsetof(Block, d))), minus_dmin(negate(this->half(offsetof(Block, dmin)))) {
    const Ints u0 = this->unit(offsetof(Block, scales), 0);
    const Ints u1 = this->unit(offsetof(Block, scales), 1);
    const Ints u2 = this->unit(offsetof(Block, scales), 2);
    scales[0] = u0 & all_bytes(63);
    minima[0] = u1 & all_bytes(63);
    scales[1] = (u2 & all_bytes(15)) | (shift_right(u0, 2) & all_bytes(0x30));
    minima[1] = (shift_right(u2, 4) & all_bytes(15)) | (shift_right(u1, 2) & all_bytes(0x30));
  }
  TIERPACK_INLINE Ints nibble_codes(int b, int j) const {
    const Ints v = this->unit(offsetof(Block, qs), 8 * (b / 2) + j);
    return (b % 2 == 0 ? v : shift_right(v, 4)) & all_bytes(15);
  }
  TIERPACK_INLINE Floats scale(int b) const { return mul(d, to_floats(byte_of_lane(scales[b / 4], b % 4))); }
  TIERPACK_INLINE Floats offset(int b) const { return mul(minus_dmin, to_floats(byte_of_lane(minima[b / 4], b % 4))); }
};

struct DecodeQ4_K : DecodeScaledNibbles<BlockQ4_K, 15> {
  using DecodeScaledNibbles::DecodeScaledNibbles;
  TIERPACK_INLINE Ints code(int b, int j) const { return nibble_codes(b, j); }
};

struct DecodeQ5_K : DecodeScaledNibbles<BlockQ5_K, 31> {
  static constexpr bool in_order = false;
  using DecodeScaledNibbles::DecodeScaledNibbles;
  TIERPACK_INLINE Ints code(int b, int j) const {
    const Ints high = unit(offsetof(BlockQ5_K, qh), j);
    return nibble_codes(b, j) | ((b < 4 ? shift_left(high, 4 - b) : shift_right(high, b - 4)) & all_bytes(16));
  }
};

struct DecodeQ6_K : ColumnDecoder<kSubScale, 8, sizeof(BlockQ6_K), 32, 63> {
  static constexpr bool in_order = false;
  Ints scales[4];
  Floats d;
  TIERPACK_INLINE DecodeQ6_K(const std::byte* c, uint32_t r) : ColumnDecoder(c, r), d(half(offsetof(BlockQ6_K, d))) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) scales[u] = unit(offsetof(BlockQ6_K, scales), u);
  }
  TIERPACK_INLINE Ints code(int b, int j) const {
    const int g = b % 4;
    const Ints low = unit(offsetof(BlockQ6_K, ql), 16 * (b / 4) + 8 * (g % 2) + j);
    const Ints high = unit(offsetof(BlockQ6_K, qh), 8 * (b / 4) + j);
    const Ints top = (g < 2 ? shift_left(high, 4 - 2 * g) : shift_right(high, 2 * g - 4)) & all_bytes(0x30);
    return ((g < 2 ? low : shift_right(low, 4)) & all_bytes(15)) | top;
  }
  TIERPACK_INLINE Floats scale(int) const { return d; }
  TIERPACK_INLINE Ints sub_scales(int b) const { return signed_byte_pair(scales, b); }
};

struct DecodeTQ2_0 : ColumnDecoder<kScale, 8, sizeof(BlockTQ2_0), 1, 3> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int b, int j) const {
    return shift_right(unit(offsetof(BlockTQ2_0, qs), 8 * (b / 4) + j), 2 * (b % 4)) & all_bytes(3);
  }
  TIERPACK_INLINE Floats scale(int) const { return half(offsetof(BlockTQ2_0, d)); }
};

struct DecodeIQ4_XS : ColumnDecoder<kScale, 8, sizeof(BlockIQ4_XS), kIq4Bias, kIq4Max> {
  using ColumnDecoder::ColumnDecoder;
  TIERPACK_INLINE Ints code(int b, int j) const {
    return looked_up(kIq4nlValues, kExactBytes ? kIq4Bias : 0, nibbles(offsetof(BlockIQ4_XS, qs) + 16 * static_cast<size_t>(b), j));
  }
  TIERPACK_INLINE Floats scale(int b) const {
    const Ints low = shift_right(unit(offsetof(BlockIQ4_XS, scales_l), 0), 4 * b) & all_ints(15);
    const Ints all_high = shorts(offsetof(BlockIQ4_XS, scales_h));
    const Ints high = (b < 2 ? shift_left(all_high, 4 - 2 * b) : shift_right(all_high, 2 * b - 4)) & all_ints(0x30);
    return mul(half(offsetof(BlockIQ4_XS, d)), to_floats(sub_ints(low | high, all_ints(32))));
  }
};

}  // namespace
}  // namespace tierpack::kernels
