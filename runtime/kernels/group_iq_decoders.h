// Decoders of the types whose codes come from grids, for row groups; see group_decoders.h for what a decoder is. Grid entries
// are looked up one by one, four or eight elements each.
#pragma once

#include "runtime/kernels/group_decoders.h"

namespace tierpack::kernels {
namespace {

// What the grid types share: the codes of a block, looked up before they are used.
template <BlockForm Form, size_t Bytes, int Largest>
struct GridDecoder : ColumnDecoder<Form, 8, Bytes, Largest, 2 * Largest> {
  using Base = ColumnDecoder<Form, 8, Bytes, Largest, 2 * Largest>;
  static constexpr bool in_order = false;
  Ints codes[8];

  using Base::Base;
  TIERPACK_INLINE Ints code(int, int j) const { return codes[j]; }

  // Magnitudes of elements 4j .. 4j + 3, negative where bits 4 (j % 2) + k of byte `from` of `signs` are set.
  TIERPACK_INLINE void put(int j, Ints magnitudes, Ints signs, int from) {
    const Ints bit = all_ints(j % 2 == 0 ? 0x08040201 : 0x80402010);
    const Ints mask = equal_bytes(shuffle_bytes(signs, in_each_lane(from, from, from, from)) & bit, bit);
    codes[j] = add_bytes(sub_bytes(magnitudes ^ mask, mask), all_bytes(Largest));
  }

  // Eight elements, l = 0 .. 3.
  TIERPACK_INLINE void put_octet(int l, const uint64_t* grid, Ints index, Ints signs, int from) {
    Ints low, high;
    gather(grid, index, low, high);
    put(2 * l, low, signs, from);
    put(2 * l + 1, high, signs, from);
  }
};

// Explicit signs of four 7-bit indices, one a byte: bit 7 makes the number of set bits even.
TIERPACK_INLINE Ints with_parity(Ints seven) {
  alignas(16) static constexpr uint8_t kOdd[16] = {0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0};
  const Ints odd = repeat16(kOdd);
  const Ints low = shuffle_bytes(odd, seven & all_bytes(15)), high = shuffle_bytes(odd, shift_right(seven, 4) & all_bytes(15));
  return seven | (low ^ high);
}

// Four 7-bit indices in the low 28 bits of each lane.
TIERPACK_INLINE Ints signs_of_28_bits(Ints word) {
  const Ints seven = (word & all_ints(0x7F)) | (shift_left(word, 1) & all_ints(0x7F00)) |
                     (shift_left(word, 2) & all_ints(0x7F0000)) | (shift_left(word, 3) & all_ints(0x7F000000));
  return with_parity(seven);
}

// d * (0.5 + top four bits) * factor.
TIERPACK_INLINE Floats top_bits_scale(Floats d, Ints word, float factor) {
  return mul(mul(d, add(all_floats(0.5f), to_floats(shift_right(word, 28)))), all_floats(factor));
}

// 2 s + 1 for the nibbles s of byte b % 4, as an i16 pair.
TIERPACK_INLINE Ints odd_nibbles(Ints unit, int b) {
  const Ints twice = shuffle_bytes(unit, in_each_lane(b % 4, 0x80, b % 4, 0x80));
  const Ints pair = (twice & all_ints(0x0000000F)) | (shift_right(twice, 4) & all_ints(0x000F0000));
  return shift_left(pair, 1) | all_ints(0x00010001);
}

struct DecodeIQ3_XXS : GridDecoder<kScale, sizeof(BlockIQ3_XXS), 62> {
  using GridDecoder::GridDecoder;
  TIERPACK_INLINE Ints word(int b) const { return unit(offsetof(BlockIQ3_XXS, scales_and_signs), b); }
  TIERPACK_INLINE void prepare(int b) {
    const Ints signs = signs_of_28_bits(word(b));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const Ints index = byte_of_lane(unit(offsetof(BlockIQ3_XXS, qs), 2 * b + j / 4), j % 4);
      put(j, gather(kIq3xxsGrid.data(), index), signs, j / 2);
    }
  }
  TIERPACK_INLINE Floats scale(int b) const { return top_bits_scale(half(offsetof(BlockIQ3_XXS, d)), word(b), 0.5f); }
};

struct DecodeIQ3_S : GridDecoder<kScale, sizeof(BlockIQ3_S), 15> {
  using GridDecoder::GridDecoder;
  TIERPACK_INLINE void prepare(int b) {
    const Ints signs = unit(offsetof(BlockIQ3_S, signs), b);
    const Ints high = byte_of_lane(unit(offsetof(BlockIQ3_S, qh), b / 4), b % 4);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const Ints low = byte_of_lane(unit(offsetof(BlockIQ3_S, qs), 2 * b + j / 4), j % 4);
      const Ints index = low | (shift_left(high, 8 - j) & all_ints(256));
      put(j, gather(kIq3sGrid.data(), index), signs, j / 2);
    }
  }
  TIERPACK_INLINE Floats scale(int b) const {
    const Ints s = shift_right(unit(offsetof(BlockIQ3_S, scales), 0), 4 * b) & all_ints(15);
    return mul(half(offsetof(BlockIQ3_S, d)), to_floats(shift_left(s, 1) | all_ints(1)));
  }
};

struct DecodeIQ2_XXS : GridDecoder<kScale, sizeof(BlockIQ2_XXS), 43> {
  using GridDecoder::GridDecoder;
  TIERPACK_INLINE Ints word(int b) const { return unit(offsetof(BlockIQ2_XXS, qs), 2 * b + 1); }
  TIERPACK_INLINE void prepare(int b) {
    const Ints signs = signs_of_28_bits(word(b));
    const Ints indices = unit(offsetof(BlockIQ2_XXS, qs), 2 * b);
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) put_octet(l, kIq2xxsGrid.data(), byte_of_lane(indices, l), signs, l);
  }
  TIERPACK_INLINE Floats scale(int b) const { return top_bits_scale(half(offsetof(BlockIQ2_XXS, d)), word(b), 0.25f); }
};

struct DecodeIQ2_XS : GridDecoder<kSubScale, sizeof(BlockIQ2_XS), 43> {
  using GridDecoder::GridDecoder;
  // Of l = 0, 2, 1, 3, from the block's two units.
  TIERPACK_INLINE static Ints explicit_signs(Ints first, Ints second) {
    return with_parity((shift_right(first, 9) & all_ints(0x007F007F)) | (shift_right(second, 1) & all_ints(0x7F007F00)));
  }
  TIERPACK_INLINE void prepare(int b) {
    const Ints first = unit(offsetof(BlockIQ2_XS, qs), 2 * b), second = unit(offsetof(BlockIQ2_XS, qs), 2 * b + 1);
    const Ints signs = explicit_signs(first, second);
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) {
      const Ints pair = l < 2 ? first : second;
      const Ints index = (l % 2 == 0 ? pair : shift_right(pair, 16)) & all_ints(511);
      put_octet(l, kIq2xsGrid.data(), index, signs, l / 2 + l % 2 * 2);
    }
  }
  TIERPACK_INLINE Floats scale(int) const { return mul(half(offsetof(BlockIQ2_XS, d)), all_floats(0.125f)); }
  TIERPACK_INLINE Ints sub_scales(int b) const { return odd_nibbles(unit(offsetof(BlockIQ2_XS, scales), b / 4), b); }
};

struct DecodeIQ2_S : GridDecoder<kSubScale, sizeof(BlockIQ2_S), 43> {
  using GridDecoder::GridDecoder;
  TIERPACK_INLINE void prepare(int b) {
    const Ints signs = unit(offsetof(BlockIQ2_S, signs), b);
    const Ints low = unit(offsetof(BlockIQ2_S, qs), b);
    const Ints high = byte_of_lane(unit(offsetof(BlockIQ2_S, qh), b / 4), b % 4);
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) {
      const Ints index = byte_of_lane(low, l) | (shift_left(high, 8 - 2 * l) & all_ints(0x300));
      put_octet(l, kIq2sGrid.data(), index, signs, l);
    }
  }
  TIERPACK_INLINE Floats scale(int) const { return mul(half(offsetof(BlockIQ2_S, d)), all_floats(0.125f)); }
  TIERPACK_INLINE Ints sub_scales(int b) const { return odd_nibbles(unit(offsetof(BlockIQ2_S, scales), b / 4), b); }
};

// Ternary grids: codes 8 g + delta, delta = +-1.
template <BlockForm Form, size_t Bytes>
struct TernaryDecoder : GridDecoder<Form, Bytes, 9> {
  using GridDecoder<Form, Bytes, 9>::GridDecoder;
  // `minus` has all bits of the lanes where delta is -1.
  TIERPACK_INLINE void put_ternary(int l, Ints index, Ints minus) {
    const Ints moved = sub_bytes(all_bytes(9 + 1), minus & all_bytes(2));
    Ints low, high;
    gather(kIq1sGrid.data(), index, low, high);
    this->codes[2 * l] = add_bytes(shift_left(low, 3) & all_bytes(0xF8), moved);
    this->codes[2 * l + 1] = add_bytes(shift_left(high, 3) & all_bytes(0xF8), moved);
  }
};

struct DecodeIQ1_S : TernaryDecoder<kScale, sizeof(BlockIQ1_S)> {
  using TernaryDecoder::TernaryDecoder;
  TIERPACK_INLINE Ints high(int b) const {  // qh[b] in the upper half of the lane
    const Ints pair = unit(offsetof(BlockIQ1_S, qh), b / 2);
    return b % 2 == 0 ? shift_left(pair, 16) : pair;
  }
  TIERPACK_INLINE void prepare(int b) {
    const Ints low = unit(offsetof(BlockIQ1_S, qs), b), h = high(b);
    const Ints minus = shift_right_signed(h, 31);
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) put_ternary(l, byte_of_lane(low, l) | (shift_right(h, 8 + 3 * l) & all_ints(0x700)), minus);
  }
  TIERPACK_INLINE Floats scale(int b) const {
    const Ints odd = (shift_right(high(b), 27) & all_ints(14)) | all_ints(1);
    return mul(mul(half(offsetof(BlockIQ1_S, d)), to_floats(odd)), all_floats(0.125f));
  }
};

struct DecodeIQ1_M : TernaryDecoder<kSubScale, sizeof(BlockIQ1_M)> {
  using TernaryDecoder::TernaryDecoder;
  TIERPACK_INLINE void prepare(int b) {
    const Ints low = unit(offsetof(BlockIQ1_M, qs), b);
    const Ints pair = unit(offsetof(BlockIQ1_M, qh), b / 2);
    const Ints h = b % 2 == 0 ? shift_left(pair, 16) : pair;  // four nibbles in the upper half
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) {
      const Ints minus = shift_right_signed(shift_left(h, 12 - 4 * l), 31);
      put_ternary(l, byte_of_lane(low, l) | (shift_right(h, 8 + 4 * l) & all_ints(0x700)), minus);
    }
  }
  TIERPACK_INLINE Floats scale(int) const {
    const Ints u0 = unit(offsetof(BlockIQ1_M, scales), 0), u1 = unit(offsetof(BlockIQ1_M, scales), 1);
    const Ints d = (shift_right(u0, 12) & all_ints(0xF)) | (shift_right(u0, 24) & all_ints(0xF0)) |
                   (shift_right(u1, 4) & all_ints(0xF00)) | (shift_right(u1, 16) & all_ints(0xF000));
    return mul(from_halves(d), all_floats(0.125f));
  }
  // 2 t + 1, t = bits 6 (b % 2) + 3 h of word b / 2.
  TIERPACK_INLINE Ints sub_scales(int b) const {
    const Ints s = shift_right(unit(offsetof(BlockIQ1_M, scales), b / 4), 16 * (b / 2 % 2) + 6 * (b % 2));
    const Ints pair = (s & all_ints(7)) | (shift_left(s, 13) & all_ints(0x00070000));
    return shift_left(pair, 1) | all_ints(0x00010001);
  }
};

}  // namespace
}  // namespace tierpack::kernels
