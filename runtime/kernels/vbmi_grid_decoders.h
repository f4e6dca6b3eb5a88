// Decoders of the grid types for CPUs that look up bytes in registers (AVX-512 VBMI, BITALG, GFNI); see group_decoders.h for what a
// decoder is.
//
// 64 indices, four of each of 16 rows, are looked up at once in tables of bytes. An entry's elements are packed: two of a
// grid of four take three bits each of a byte, four of a grid of eight two bits; a second table has the other half. Two
// sign bits are moved beside the numbers of two elements, and six such bits are looked up again: what comes out is a signed code.
// Byte k of a vector holds element 4k + j of its 16: activations are permuted to match, not codes.
#pragma once

#include <algorithm>

#include "runtime/kernels/group_matmul.h"

namespace tierpack::kernels {
namespace {

// Entries of a grid taken apart: elements of the first and the second half, as numbers of values. vpermb reads six bits of an
// index: `first` and `second` have the codes of the two elements in them, whatever the bits say that are not theirs.
template <size_t N>
struct PackedGrid {
  alignas(64) uint8_t half[2][N];
  alignas(64) uint8_t first[64], second[64];
};

// Four elements an entry, up to 8 values. A byte holds the number of its first element in bits 0 .. 2 and that of its second in bits 5 .. 7;
// between them come their signs. The index of the second element is the byte's upper half.
template <size_t N>
PackedGrid<N> pack(const std::array<uint32_t, N>& grid) {
  PackedGrid<N> packed{};
  uint32_t values[8] = {};
  int count = 0;
  const auto number = [&](uint32_t value) {
    for (int i = 0; i < count; ++i) {
      if (values[i] == value) return i;
    }
    TIERPACK_CHECK(count < 8);
    values[count] = value;
    return count++;
  };
  for (size_t i = 0; i < N; ++i) {
    for (int k = 0; k < 4; ++k) packed.half[k / 2][i] |= static_cast<uint8_t>(number(grid[i] >> (8 * k) & 255) << (k % 2 * 5));
  }
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t value = values[i % 8], other = values[i / 2 % 8];
    packed.first[i] = static_cast<uint8_t>(i & 8 ? 128 - value : 128 + value);
    packed.second[i] = static_cast<uint8_t>(i & 1 ? 128 - other : 128 + other);
  }
  return packed;
}

// Eight elements an entry, three values with the codes of either sign. An index holds the numbers of two elements in bits 0 .. 3 and
// their signs in bits 4 and 5.
template <size_t N>
PackedGrid<N> pack(const std::array<uint64_t, N>& grid, const uint8_t (&value)[3], const uint8_t (&positive)[3],
                   const uint8_t (&negative)[3]) {
  PackedGrid<N> packed{};
  for (size_t i = 0; i < N; ++i) {
    for (int k = 0; k < 8; ++k) {
      const auto number = std::find(value, value + 3, static_cast<uint8_t>(grid[i] >> (8 * k))) - value;
      TIERPACK_CHECK(number < 3);
      packed.half[k / 4][i] |= static_cast<uint8_t>(number << (2 * (k % 4)));
    }
  }
  for (size_t i = 0; i < 64; ++i) {
    const size_t first = std::min<size_t>(i % 4, 2), second = std::min<size_t>(i / 4 % 4, 2);
    packed.first[i] = i & 16 ? negative[first] : positive[first];
    packed.second[i] = i & 32 ? negative[second] : positive[second];
  }
  return packed;
}

// Bits of a lane by number, one for each of its bytes, as vpshufbitqmb wants them: two lanes share 64 bits.
TIERPACK_INLINE Ints bit_numbers(int b0, int b1, int b2, int b3) {
  const uint32_t even = static_cast<uint32_t>(b0 | b1 << 8 | b2 << 16 | b3 << 24);
  return _mm512_set1_epi64(static_cast<int64_t>(uint64_t{even + 0x20202020u} << 32 | even));
}
TIERPACK_INLINE __mmask64 bits_of(Ints lanes, Ints numbers) { return _mm512_bitshuffle_epi64_mask(lanes, numbers); }

// For vpmultishiftqb: byte k of a lane becomes the eight bits from number b_k of the lane on. Bits around it come from beyond.
TIERPACK_INLINE Ints bits_from(int b0, int b1, int b2, int b3) { return bit_numbers(b0 & 63, b1 & 63, b2 & 63, b3 & 63); }

// Bits of `yes` where the mask has ones, of `no` elsewhere.
TIERPACK_INLINE Ints either(Ints mask, Ints yes, Ints no) { return _mm512_ternarylogic_epi32(mask, yes, no, 0xCA); }

// table[index + 256 * high...]: the bits of an index from 8 on are masks.
template <int N>
TIERPACK_INLINE Ints looked_up(const uint8_t* table, Ints index, const __mmask64 (&high)[3]) {
  const __mmask64 bit7 = _mm512_movepi8_mask(index);
  Ints found[N / 128];
#pragma GCC unroll 16
  for (int i = 0; i < N / 128; ++i) {
    found[i] = _mm512_permutex2var_epi8(load_ints(table + 128 * i), index, load_ints(table + 128 * i + 64));
  }
#pragma GCC unroll 4
  for (int bit = 7, left = N / 256; left > 0; ++bit, left /= 2) {
    const __mmask64 k = bit == 7 ? bit7 : high[bit - 8 < 0 ? 0 : bit - 8];
#pragma GCC unroll 8
    for (int i = 0; i < left; ++i) found[i] = _mm512_mask_blend_epi8(k, found[2 * i], found[2 * i + 1]);
  }
  return found[0];
}

template <BlockForm Form, size_t Bytes, int Bias, size_t N>
struct VbmiDecoder : ColumnDecoder<Form, 8, Bytes, Bias, 255> {
  using Base = ColumnDecoder<Form, 8, Bytes, Bias, 255>;
  static constexpr bool transposed = true;
  static constexpr bool in_order = false;
  const PackedGrid<N>& grid;
  Ints codes[8];

  TIERPACK_INLINE VbmiDecoder(const std::byte* c, uint32_t r, const PackedGrid<N>& g) : Base(c, r), grid(g) {}
  TIERPACK_INLINE Ints code(int, int j) const { return codes[j]; }

  // Codes of the elements that an index has first and second.
  TIERPACK_INLINE void put_pair(int j, Ints first_index, Ints second_index) {
    codes[j] = _mm512_permutexvar_epi8(first_index, load_ints(grid.first));
    codes[j + 1] = _mm512_permutexvar_epi8(second_index, load_ints(grid.second));
  }

  // Half h of the block from four indices a lane, four elements each; sign e of the block is bit e of `signs`.
  TIERPACK_INLINE void put_quads(int h, Ints index, const __mmask64 (&high)[3], Ints signs) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int e = 16 * h + 2 * i;
      const Ints moved = _mm512_multishift_epi64_epi8(bits_from(e - 3, e + 1, e + 5, e + 9), signs);
      const Ints pair = either(all_bytes(0x18), moved, looked_up<N>(grid.half[i], index, high));
      put_pair(4 * h + 2 * i, pair, shift_right(pair, 4));
    }
  }

  // The block from indices of l = 0, 2, 1, 3, eight elements each. signs(h, j) has the signs of elements j and j + 1 of the four of each
  // byte of half h in bits 4 and 5.
  template <typename Signs>
  TIERPACK_INLINE void put_octets(Ints index, const __mmask64 (&high)[3], Signs&& signs) {
    const Ints a = looked_up<N>(grid.half[0], index, high), b = looked_up<N>(grid.half[1], index, high);
    const Ints even = all_ints(0x00FF00FF), numbers = all_bytes(0x0F);
    const Ints half[2] = {either(even, a, shift_left(b, 8)), either(even, shift_right(a, 8), b)};
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Ints first = either(numbers, half[h], signs(h, 0)), second = either(numbers, shift_right(half[h], 4), signs(h, 2));
      put_pair(4 * h, first, first);
      put_pair(4 * h + 2, second, second);
    }
  }

  // The same with the signs of octet l in byte `byte[l]` of each lane.
  TIERPACK_INLINE void put_octets(Ints index, const __mmask64 (&high)[3], Ints signs, const int (&byte)[4]) {
    put_octets(index, high, [&](int h, int j) __attribute__((always_inline)) {
      const int first = 8 * byte[2 * h] + j - 4, second = 8 * byte[2 * h + 1] + j - 4;
      return _mm512_multishift_epi64_epi8(bits_from(first, first + 4, second, second + 4), signs);
    });
  }

  TIERPACK_INLINE static Ints in_octet_order(Ints four) { return shuffle_bytes(four, in_each_lane(0, 2, 1, 3)); }
};

// Rows of a bit matrix for vgf2p8affineqb: bits `from` .. from + 6 of each byte, and their parity as bit 7.
TIERPACK_INLINE Ints parity_matrix(int from) {
  uint64_t rows = 0x7Full << from;
  for (int i = 0; i < 7; ++i) rows |= (uint64_t{1} << (i + from)) << (8 * (7 - i));
  return _mm512_set1_epi64(static_cast<int64_t>(rows));
}

// Explicit signs of the four 7-bit indices in the low 28 bits of each lane.
TIERPACK_INLINE Ints vbmi_signs_of_28_bits(Ints word) {
  const Ints from = bit_numbers(0, 7, 14, 21);
  return _mm512_gf2p8affine_epi64_epi8(_mm512_multishift_epi64_epi8(from, word), parity_matrix(0), 0);
}

// 2 s + 1 for nibble h of byte b % 4.
TIERPACK_INLINE Ints odd_nibble(Ints unit, int b, int h) {
  const int from = 8 * (b % 4) + 4 * h - 1;
  return _mm512_ternarylogic_epi32(from < 0 ? shift_left(unit, 1) : shift_right(unit, from), all_ints(30), all_ints(1), 0xEA);
}

constexpr __mmask64 kNoBits[3] = {0, 0, 0};
constexpr uint8_t kIq2Values[3] = {8, 25, 43};
constexpr uint8_t kIq2Positive[3] = {128 + 8, 128 + 25, 128 + 43}, kIq2Negative[3] = {128 - 8, 128 - 25, 128 - 43};
constexpr uint8_t kIq1Values[3] = {0xFF, 0, 1};
constexpr uint8_t kIq1Positive[3] = {2, 10, 18}, kIq1Negative[3] = {0, 8, 16};  // 8 g +- 1 + bias

inline const PackedGrid<256>& iq3xxs_packed() {
  static const PackedGrid<256> packed = pack(kIq3xxsGrid);
  return packed;
}
inline const PackedGrid<512>& iq3s_packed() {
  static const PackedGrid<512> packed = pack(kIq3sGrid);
  return packed;
}
inline const PackedGrid<256>& iq2xxs_packed() {
  static const PackedGrid<256> packed = pack(kIq2xxsGrid, kIq2Values, kIq2Positive, kIq2Negative);
  return packed;
}
inline const PackedGrid<512>& iq2xs_packed() {
  static const PackedGrid<512> packed = pack(kIq2xsGrid, kIq2Values, kIq2Positive, kIq2Negative);
  return packed;
}
inline const PackedGrid<1024>& iq2s_packed() {
  static const PackedGrid<1024> packed = pack(kIq2sGrid, kIq2Values, kIq2Positive, kIq2Negative);
  return packed;
}
inline const PackedGrid<2048>& iq1_packed() {
  static const PackedGrid<2048> packed = pack(kIq1sGrid, kIq1Values, kIq1Positive, kIq1Negative);
  return packed;
}

struct VbmiIQ3_XXS : VbmiDecoder<kScale, sizeof(BlockIQ3_XXS), 128, 256> {
  TIERPACK_INLINE VbmiIQ3_XXS(const std::byte* c, uint32_t r) : VbmiDecoder(c, r, iq3xxs_packed()) {}
  TIERPACK_INLINE Ints word(int b) const { return unit(offsetof(BlockIQ3_XXS, scales_and_signs), b); }
  TIERPACK_INLINE void prepare(int b) {
    const Ints signs = vbmi_signs_of_28_bits(word(b));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) put_quads(h, unit(offsetof(BlockIQ3_XXS, qs), 2 * b + h), kNoBits, signs);
  }
  TIERPACK_INLINE Floats scale(int b) const { return top_bits_scale(half(offsetof(BlockIQ3_XXS, d)), word(b), 0.5f); }
};

struct VbmiIQ3_S : VbmiDecoder<kScale, sizeof(BlockIQ3_S), 128, 512> {
  TIERPACK_INLINE VbmiIQ3_S(const std::byte* c, uint32_t r) : VbmiDecoder(c, r, iq3s_packed()) {}
  TIERPACK_INLINE void prepare(int b) {
    const Ints signs = unit(offsetof(BlockIQ3_S, signs), b);
    const Ints qh = unit(offsetof(BlockIQ3_S, qh), b / 4);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const int n = 8 * (b % 4) + 4 * h;
      const __mmask64 high[3] = {bits_of(qh, bit_numbers(n, n + 1, n + 2, n + 3)), 0, 0};
      put_quads(h, unit(offsetof(BlockIQ3_S, qs), 2 * b + h), high, signs);
    }
  }
  TIERPACK_INLINE Floats scale(int b) const {
    const Ints s = shift_right(unit(offsetof(BlockIQ3_S, scales), 0), 4 * b) & all_ints(15);
    return mul(half(offsetof(BlockIQ3_S, d)), to_floats(shift_left(s, 1) | all_ints(1)));
  }
};

struct VbmiIQ2_XXS : VbmiDecoder<kScale, sizeof(BlockIQ2_XXS), 128, 256> {
  TIERPACK_INLINE VbmiIQ2_XXS(const std::byte* c, uint32_t r) : VbmiDecoder(c, r, iq2xxs_packed()) {}
  TIERPACK_INLINE Ints word(int b) const { return unit(offsetof(BlockIQ2_XXS, qs), 2 * b + 1); }
  TIERPACK_INLINE void prepare(int b) {
    put_octets(in_octet_order(unit(offsetof(BlockIQ2_XXS, qs), 2 * b)), kNoBits, vbmi_signs_of_28_bits(word(b)), {0, 1, 2, 3});
  }
  TIERPACK_INLINE Floats scale(int b) const { return top_bits_scale(half(offsetof(BlockIQ2_XXS, d)), word(b), 0.25f); }
};

struct VbmiIQ2_XS : VbmiDecoder<kSubScale, sizeof(BlockIQ2_XS), 128, 512> {
  TIERPACK_INLINE VbmiIQ2_XS(const std::byte* c, uint32_t r) : VbmiDecoder(c, r, iq2xs_packed()) {}
  TIERPACK_INLINE void prepare(int b) {
    const Ints first = unit(offsetof(BlockIQ2_XS, qs), 2 * b), second = unit(offsetof(BlockIQ2_XS, qs), 2 * b + 1);
    const Ints even = all_ints(0x00FF00FF);
    // Of l = 0, 2, 1, 3: the low bytes of the words, and the high ones with the ninth bit and the signs.
    const Ints low = either(even, first, shift_left(second, 8)), high = either(even, shift_right(first, 8), second);
    const __mmask64 ninth[3] = {_mm512_test_epi8_mask(high, all_bytes(1)), 0, 0};
    put_octets(low, ninth, _mm512_gf2p8affine_epi64_epi8(high, parity_matrix(1), 0), {0, 2, 1, 3});
  }
  TIERPACK_INLINE Floats scale(int) const { return mul(half(offsetof(BlockIQ2_XS, d)), all_floats(0.125f)); }
  TIERPACK_INLINE Ints sub_scale(int b, int h) const { return odd_nibble(unit(offsetof(BlockIQ2_XS, scales), b / 4), b, h); }
};

struct VbmiIQ2_S : VbmiDecoder<kSubScale, sizeof(BlockIQ2_S), 128, 1024> {
  TIERPACK_INLINE VbmiIQ2_S(const std::byte* c, uint32_t r) : VbmiDecoder(c, r, iq2s_packed()) {}
  TIERPACK_INLINE void prepare(int b) {
    const Ints qh = unit(offsetof(BlockIQ2_S, qh), b / 4);
    const int n = 8 * (b % 4);
    const __mmask64 high[3] = {bits_of(qh, bit_numbers(n, n + 4, n + 2, n + 6)), bits_of(qh, bit_numbers(n + 1, n + 5, n + 3, n + 7)), 0};
    put_octets(in_octet_order(unit(offsetof(BlockIQ2_S, qs), b)), high, unit(offsetof(BlockIQ2_S, signs), b), {0, 1, 2, 3});
  }
  TIERPACK_INLINE Floats scale(int) const { return mul(half(offsetof(BlockIQ2_S, d)), all_floats(0.125f)); }
  TIERPACK_INLINE Ints sub_scale(int b, int h) const { return odd_nibble(unit(offsetof(BlockIQ2_S, scales), b / 4), b, h); }
};

// Codes 8 g + delta + 9 of the ternary grids: delta takes the place of signs.
template <typename Base>
struct VbmiTernary : VbmiDecoder<Base::form, Base::block_bytes, 9, 2048> {
  using Decoder = VbmiDecoder<Base::form, Base::block_bytes, 9, 2048>;
  TIERPACK_INLINE VbmiTernary(const std::byte* c, uint32_t r) : Decoder(c, r, iq1_packed()) {}

  // Index bits 8 .. 10 of octet l are bits `first` + step * l of `high` and the next two; `delta` of octets 2h and 2h + 1.
  TIERPACK_INLINE void put_ternary(Ints low, Ints high, int first, int step, const int (&delta)[4]) {
    __mmask64 bits[3];
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const int n = first + i;
      bits[i] = bits_of(high, bit_numbers(n, n + 2 * step, n + step, n + 3 * step));
    }
    this->put_octets(this->in_octet_order(low), bits, [&](int h, int) __attribute__((always_inline)) {
      const int a = first + delta[2 * h], b = first + delta[2 * h + 1];
      return _mm512_maskz_mov_epi8(bits_of(high, bit_numbers(a, a, b, b)), all_bytes(0x30));
    });
  }
};

struct VbmiIQ1_S : VbmiTernary<DecodeIQ1_S> {
  using VbmiTernary::VbmiTernary;
  TIERPACK_INLINE void prepare(int b) {
    put_ternary(unit(offsetof(BlockIQ1_S, qs), b), unit(offsetof(BlockIQ1_S, qh), b / 2), 16 * (b % 2), 3, {15, 15, 15, 15});
  }
  TIERPACK_INLINE Floats scale(int b) const { return DecodeIQ1_S(column, row).scale(b); }
};

struct VbmiIQ1_M : VbmiTernary<DecodeIQ1_M> {
  using VbmiTernary::VbmiTernary;
  TIERPACK_INLINE void prepare(int b) {
    put_ternary(unit(offsetof(BlockIQ1_M, qs), b), unit(offsetof(BlockIQ1_M, qh), b / 2), 16 * (b % 2), 4, {3, 7, 11, 15});
  }
  TIERPACK_INLINE Floats scale(int b) const { return DecodeIQ1_M(column, row).scale(b); }
  TIERPACK_INLINE Ints sub_scales(int b) const { return DecodeIQ1_M(column, row).sub_scales(b); }
};

}  // namespace
}  // namespace tierpack::kernels
