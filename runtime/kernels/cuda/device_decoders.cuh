// Decoders of packed blocks for the threads of a kernel: block b of 32 elements, b a value of the thread, so that nothing is
// indexed by it but memory. Only *.cu and *.cuh include this.
//
// A decoder D has
//   form, blocks, block_bytes   as the BlockFormat of the type
//   bias                        words hold c + bias, as signed bytes; `bias` times the sum of activations is taken off the integer
//   largest                     of all integers of docs/arithmetic.md, section 3
//   words(source, b, j)         words j and j + 4 of the block, j < 4: codes of elements 4j .. 4j + 3 and 16 + 4j .. 16 + 4j + 3
//   scales(source, b, out)      the fields of BlockScales that the form has
// Sources are those of packed_fields.cuh.
#pragma once

#include <cstddef>

#include "formats/dtype_blocks.h"
#include "formats/iq_grids.h"
#include "runtime/kernels/block_decoder.h"
#include "runtime/kernels/cuda/packed_fields.cuh"

namespace tierpack::kernels::cuda {

template <unsigned N>
struct WordPair {
  Words<N> first, second;
};
template <unsigned N>
TIERPACK_DEVICE WordPair<N> pair_of(Words<N> first, Words<N> second) {
  return {first, second};
}

// What BlockForm names, for N rows; [h] for the halves of a block.
template <unsigned N>
struct BlockScales {
  Floats<N> scale, scale_high, offset;
  int sub_scale[2][N], sub_offset[2][N];
};

template <typename Block, BlockForm Form, unsigned Blocks, int Bias, int Largest>
struct DeviceDecoder {
  static constexpr BlockForm form = Form;
  static constexpr unsigned blocks = Blocks;
  static constexpr unsigned block_bytes = sizeof(Block);
  static constexpr int bias = Bias;
  static constexpr int largest = Largest;
};

// Low and high nibbles of the bytes.
template <unsigned N>
TIERPACK_DEVICE WordPair<N> nibbles(Words<N> unit) {
  return {unit & 0x0F0F0F0Fu, (unit >> 4) & 0x0F0F0F0Fu};
}
// The four lowest bits as 1 or 0 in a byte each.
TIERPACK_DEVICE uint32_t spread_bits(uint32_t bits) { return ((bits & 15u) * 0x00204081u) & 0x01010101u; }
// 255 in the bytes of `ones` that are 1.
TIERPACK_DEVICE uint32_t byte_mask(uint32_t ones) { return ones * 255u; }

// Bits 4j .. 4j + 3 and 16 + 4j .. of the word as 16 in a byte.
template <unsigned N>
TIERPACK_DEVICE WordPair<N> with_fifth_bits(WordPair<N> codes, Words<N> bits, unsigned j) {
  return {codes.first | map(bits, [&](uint32_t word) { return spread_bits(word >> (4 * j)) << 4; }),
          codes.second | map(bits, [&](uint32_t word) { return spread_bits(word >> (4 * j + 16)) << 4; })};
}

// A table of 16 signed bytes as four words.
struct ByteTable {
  uint32_t word[4];
};
constexpr ByteTable byte_table(const std::array<int8_t, 16>& values) {
  ByteTable table{};
  for (unsigned i = 0; i < 16; ++i) table.word[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(values[i])) << (8 * (i % 4));
  return table;
}
struct Iq4Table {
  static constexpr ByteTable table = byte_table(kIq4nlValues);
};
struct Fp4Table {
  static constexpr ByteTable table = byte_table(kFp4Values);
};
// The table's bytes for the low and the high nibbles of a unit: __byte_perm selects by three bits, so each half of the table is looked up
// and bit 3 selects between them.
template <typename Table, unsigned N>
TIERPACK_DEVICE WordPair<N> looked_up(Words<N> unit) {
  constexpr uint32_t t0 = Table::table.word[0], t1 = Table::table.word[1], t2 = Table::table.word[2], t3 = Table::table.word[3];
  WordPair<N> result;
#pragma unroll
  for (unsigned r = 0; r < N; ++r) {
    const uint32_t v = unit.of[r];
    const uint32_t index = v & 0x77777777u;
    const uint32_t half = 0x32103210u | ((v & 0x88888888u) >> 1);
    const uint32_t low = __byte_perm(__byte_perm(t0, t1, index & 0xFFFFu), __byte_perm(t2, t3, index & 0xFFFFu), half & 0xFFFFu);
    const uint32_t high = __byte_perm(__byte_perm(t0, t1, index >> 16), __byte_perm(t2, t3, index >> 16), half >> 16);
    result.first.of[r] = __byte_perm(low, high, 0x6420u);
    result.second.of[r] = __byte_perm(low, high, 0x7531u);
  }
  return result;
}

// --- 32 elements ---

struct DeviceQ4_0 : DeviceDecoder<BlockQ4_0, BlockForm::kScale, 1, 8, 32'512> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) { return nibbles(s.unit(offsetof(BlockQ4_0, qs), j)); }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockQ4_0, d))); }
};

struct DeviceQ4_1 : DeviceDecoder<BlockQ4_1, BlockForm::kScaleOffset, 1, 0, 60'960> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) { return nibbles(s.unit(offsetof(BlockQ4_1, qs), j)); }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) {
    out.scale = from_halves(s.shorts(offsetof(BlockQ4_1, d)));
    out.offset = from_halves(s.shorts(offsetof(BlockQ4_1, m)));
  }
};

struct DeviceQ5_0 : DeviceDecoder<BlockQ5_0, BlockForm::kScale, 1, 16, 65'024> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) {
    const auto codes = nibbles(s.unit(offsetof(BlockQ5_0, qs), j));
    return with_fifth_bits(codes, s.unit(offsetof(BlockQ5_0, qh), 0), j);
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockQ5_0, d))); }
};

struct DeviceQ5_1 : DeviceDecoder<BlockQ5_1, BlockForm::kScaleOffset, 1, 0, 125'984> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) {
    const auto codes = nibbles(s.unit(offsetof(BlockQ5_1, qs), j));
    return with_fifth_bits(codes, s.unit(offsetof(BlockQ5_1, qh), 0), j);
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) {
    out.scale = from_halves(s.shorts(offsetof(BlockQ5_1, d)));
    out.offset = from_halves(s.shorts(offsetof(BlockQ5_1, m)));
  }
};

struct DeviceQ8_0 : DeviceDecoder<BlockQ8_0, BlockForm::kScale, 1, 0, 520'192> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) {
    const auto first = s.unit(offsetof(BlockQ8_0, qs), j);
    return pair_of(first, s.unit(offsetof(BlockQ8_0, qs), j + 4));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockQ8_0, d))); }
};

struct DeviceIQ4_NL : DeviceDecoder<BlockIQ4_NL, BlockForm::kScale, 1, 0, 516'128> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) {
    return looked_up<Iq4Table>(s.unit(offsetof(BlockIQ4_NL, qs), j));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockIQ4_NL, d))); }
};

struct DeviceMXFP4 : DeviceDecoder<BlockMXFP4, BlockForm::kScale, 1, 0, 48'768> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned, unsigned j) {
    return looked_up<Fp4Table>(s.unit(offsetof(BlockMXFP4, qs), j));
  }
  // 2^(e - 128); e = 0 and 1 are subnormal.
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) {
    const auto e = s.single_bytes(offsetof(BlockMXFP4, e));
    out.scale = map_float(e, [](uint32_t code) { return __uint_as_float(code < 2 ? 0x00200000u << code : (code - 1) << 23); });
  }
};

// --- 64 elements ---

// Half the unsigned E4M3 value: (8 + M) 2^(E - 11), without exponent M 2^-10; code 0x7F is 0, bit 7 is ignored.
TIERPACK_DEVICE float half_of_ue4m3(uint32_t code) {
  const uint32_t magnitude = code & 127u;
  const float normal = __uint_as_float((magnitude << 20) + (119u << 23));
  const float small = static_cast<float>(static_cast<int>(magnitude)) * 0x1p-10f;
  return (code & 255u) == 127u ? 0.0f : magnitude < 8 ? small : normal;
}

struct DeviceNVFP4 : DeviceDecoder<BlockNVFP4, BlockForm::kTwoScales, 2, 0, 24'384> {
  // Eight bytes for each half of a block: low nibbles are its elements 0 .. 7, high ones 8 .. 15.
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = looked_up<Fp4Table>(s.unit(offsetof(BlockNVFP4, qs), 4 * b + j % 2));
    const auto second = looked_up<Fp4Table>(s.unit(offsetof(BlockNVFP4, qs), 4 * b + 2 + j % 2));
    return pair_of(select(j < 2, first.first, first.second), select(j < 2, second.first, second.second));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.unit(offsetof(BlockNVFP4, d), 0) >> (16 * b);
    out.scale = map_float(d, [](uint32_t codes) { return half_of_ue4m3(codes & 255u); });
    out.scale_high = map_float(d, [](uint32_t codes) { return half_of_ue4m3((codes >> 8) & 255u); });
  }
};

struct DeviceQ2_0 : DeviceDecoder<BlockQ2_0, BlockForm::kScale, 2, 1, 8'128> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = s.unit(offsetof(BlockQ2_0, qs), 2 * b);
    const auto second = s.unit(offsetof(BlockQ2_0, qs), 2 * b + 1);
    return pair_of(spread_pairs(first, j), spread_pairs(second, j));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockQ2_0, d))); }

 private:
  // Two bits each of byte j.
  template <unsigned N>
  TIERPACK_DEVICE static Words<N> spread_pairs(Words<N> unit, unsigned j) {
    return map(unit, [&](uint32_t word) {
      const uint32_t byte = (word >> (8 * j)) & 255u;
      const uint32_t apart = (byte | byte << 12) & 0x000F000Fu;
      return (apart | apart << 6) & 0x03030303u;
    });
  }
};

// --- 128 elements ---

struct DeviceQ1_0 : DeviceDecoder<BlockQ1_0, BlockForm::kScale, 4, 0, 4'064> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto bits = s.unit(offsetof(BlockQ1_0, qs), b);
    return pair_of(signs(bits >> (4 * j)), signs(bits >> (4 * j + 16)));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockQ1_0, d))); }

 private:
  // 1 where a bit is set, else -1.
  template <unsigned N>
  TIERPACK_DEVICE static Words<N> signs(Words<N> bits) {
    return map(bits, [](uint32_t word) { return byte_mask(spread_bits(~word)) | 0x01010101u; });
  }
};

}  // namespace tierpack::kernels::cuda
