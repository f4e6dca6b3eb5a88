// Decoders of packed blocks of 256 elements without grids; see device_decoders.cuh.
#pragma once

#include "runtime/kernels/cuda/device_decoders.cuh"

namespace tierpack::kernels::cuda {

// Byte `k` of a word with its sign.
TIERPACK_DEVICE int signed_byte(uint32_t word, unsigned k) { return static_cast<int8_t>(static_cast<uint8_t>(word >> (8 * k))); }

struct DeviceQ2_K : DeviceDecoder<BlockQ2_K, BlockForm::kSubScaleOffset, 8, 0, 182'880> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = s.unit(offsetof(BlockQ2_K, qs), 8 * (b / 4) + j);
    const auto second = s.unit(offsetof(BlockQ2_K, qs), 8 * (b / 4) + j + 4);
    return pair_of((first >> (2 * (b % 4))) & 0x03030303u, (second >> (2 * (b % 4))) & 0x03030303u);
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto bytes = s.unit(offsetof(BlockQ2_K, scales), b / 2) >> (16 * (b % 2));
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        out.sub_scale[h][r] = static_cast<int>((bytes.of[r] >> (8 * h)) & 15u);
        out.sub_offset[h][r] = static_cast<int>((bytes.of[r] >> (8 * h + 4)) & 15u);
      }
    }
    out.scale = from_halves(s.shorts(offsetof(BlockQ2_K, d)));
    out.offset = map_float(s.shorts(offsetof(BlockQ2_K, dmin)), [](uint32_t m) { return -half_to_float(static_cast<uint16_t>(m)); });
  }
};

struct DeviceQ3_K : DeviceDecoder<BlockQ3_K, BlockForm::kSubScale, 8, 4, 520'192> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = three_bits(s, b, j);
    return pair_of(first, three_bits(s, b, j + 4));
  }
  // Six bits i = 2b + h: the low four are a nibble of byte i % 8, the others bits 2 (i / 4) of byte 8 + i % 4.
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto low = (s.unit(offsetof(BlockQ3_K, scales), b % 4 / 2) >> (16 * (b % 2) + 4 * (b / 4))) & 0x0F0Fu;
    const auto high = (s.unit(offsetof(BlockQ3_K, scales), 2) >> (16 * (b % 2) + 2 * (b / 2))) & 0x0303u;
    const auto six = low | high << 4;
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) out.sub_scale[h][r] = static_cast<int>((six.of[r] >> (8 * h)) & 63u) - 32;
    }
    out.scale = from_halves(s.shorts(offsetof(BlockQ3_K, d)));
  }

 private:
  TIERPACK_DEVICE static auto three_bits(const auto& s, unsigned b, unsigned j) {
    const auto low = s.unit(offsetof(BlockQ3_K, qs), 8 * (b / 4) + j);
    const auto high = s.unit(offsetof(BlockQ3_K, hmask), j);
    return ((low >> (2 * (b % 4))) & 0x03030303u) | ((high >> b) & 0x01010101u) << 2;
  }
};

// The 6-bit scales and minima of Q4_K and Q5_K, g = b % 4: those of b < 4 are the low bits of bytes g of units 0 and 1, those of the
// others nibbles of unit 2 under the high bits of units 0 and 1.
template <typename Block, int Largest>
struct ScaledNibbles : DeviceDecoder<Block, BlockForm::kScaleOffset, 8, 0, Largest> {
  TIERPACK_DEVICE static auto nibble_codes(const auto& s, unsigned b, unsigned j) {
    return (s.unit(offsetof(Block, qs), 8 * (b / 2) + j) >> (4 * (b % 2))) & 0x0F0F0F0Fu;
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.shorts(offsetof(Block, d));
    const auto dmin = s.shorts(offsetof(Block, dmin));
    const auto u0 = s.unit(offsetof(Block, scales), 0) >> (8 * (b % 4));
    const auto u1 = s.unit(offsetof(Block, scales), 1) >> (8 * (b % 4));
    const auto u2 = s.unit(offsetof(Block, scales), 2) >> (8 * (b % 4));
    const auto scale = select(b < 4, u0 & 63u, (u2 & 15u) | ((u0 >> 2) & 0x30u));
    const auto minimum = select(b < 4, u1 & 63u, ((u2 >> 4) & 15u) | ((u1 >> 2) & 0x30u));
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
      out.scale.of[r] = half_to_float(static_cast<uint16_t>(d.of[r])) * static_cast<float>(static_cast<int>(scale.of[r]));
      out.offset.of[r] = -(half_to_float(static_cast<uint16_t>(dmin.of[r])) * static_cast<float>(static_cast<int>(minimum.of[r])));
    }
  }
};

struct DeviceQ4_K : ScaledNibbles<BlockQ4_K, 60'960> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = nibble_codes(s, b, j);
    return pair_of(first, nibble_codes(s, b, j + 4));
  }
};

struct DeviceQ5_K : ScaledNibbles<BlockQ5_K, 125'984> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = five_bits(s, b, j);
    return pair_of(first, five_bits(s, b, j + 4));
  }

 private:
  TIERPACK_DEVICE static auto five_bits(const auto& s, unsigned b, unsigned j) {
    const auto low = nibble_codes(s, b, j);
    return low | ((s.unit(offsetof(BlockQ5_K, qh), j) >> b) & 0x01010101u) << 4;
  }
};

struct DeviceQ6_K : DeviceDecoder<BlockQ6_K, BlockForm::kSubScale, 8, 32, 16'646'144> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = six_bits(s, b, j);
    return pair_of(first, six_bits(s, b, j + 4));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto bytes = s.unit(offsetof(BlockQ6_K, scales), b / 2) >> (16 * (b % 2));
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) out.sub_scale[h][r] = signed_byte(bytes.of[r], h);
    }
    out.scale = from_halves(s.shorts(offsetof(BlockQ6_K, d)));
  }

 private:
  TIERPACK_DEVICE static auto six_bits(const auto& s, unsigned b, unsigned j) {
    const unsigned g = b % 4;
    const auto low = s.unit(offsetof(BlockQ6_K, ql), 16 * (b / 4) + 8 * (g % 2) + j);
    const auto high = s.unit(offsetof(BlockQ6_K, qh), 8 * (b / 4) + j);
    return ((low >> (4 * (g / 2))) & 0x0F0F0F0Fu) | ((high >> (2 * g)) & 0x03030303u) << 4;
  }
};

struct DeviceTQ2_0 : DeviceDecoder<BlockTQ2_0, BlockForm::kScale, 8, 1, 8'128> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = s.unit(offsetof(BlockTQ2_0, qs), 8 * (b / 4) + j);
    const auto second = s.unit(offsetof(BlockTQ2_0, qs), 8 * (b / 4) + j + 4);
    return pair_of((first >> (2 * (b % 4))) & 0x03030303u, (second >> (2 * (b % 4))) & 0x03030303u);
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockTQ2_0, d))); }
};

// Base-3 digits: digit b of 32 bytes for blocks 0 .. 4; then two digits of 16 bytes for each block, but that the second half of block 7 is
// digit j of the four bytes of qh, which lie behind qs.
struct DeviceTQ1_0 : DeviceDecoder<BlockTQ1_0, BlockForm::kScale, 8, 1, 8'128> {
  static_assert(offsetof(BlockTQ1_0, qs) == 0 && offsetof(BlockTQ1_0, qh) == 48);
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const bool wide = b < 5;
    const auto first = s.unit(0, wide ? j : 8 + j);
    const auto second = s.unit(0, wide ? 4 + j : b < 7 ? 8 + j : 12);
    return pair_of(digits(first, wide ? b : 2 * (b - 5)), digits(second, wide ? b : b < 7 ? 2 * (b - 5) + 1 : j));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned, auto& out) { out.scale = from_halves(s.shorts(offsetof(BlockTQ1_0, d))); }

 private:
  // Of every byte: the upper byte of 3 * (byte * 3^digit mod 256).
  template <unsigned N>
  TIERPACK_DEVICE static Words<N> digits(Words<N> unit, unsigned digit) {
    const uint32_t power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    return map(unit, [&](uint32_t bytes) {
      const uint32_t even = ((bytes & 0x00FF00FFu) * power) & 0x00FF00FFu;
      const uint32_t odd = (((bytes >> 8) & 0x00FF00FFu) * power) & 0x00FF00FFu;
      return (((even * 3) >> 8) & 0x00030003u) | ((odd * 3) & 0x03000300u);
    });
  }
};

struct DeviceIQ4_XS : DeviceDecoder<BlockIQ4_XS, BlockForm::kScale, 8, 0, 516'128> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    return looked_up<Iq4Table>(s.unit(offsetof(BlockIQ4_XS, qs), 4 * b + j));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.shorts(offsetof(BlockIQ4_XS, d));
    const auto low = (s.unit(offsetof(BlockIQ4_XS, scales_l), 0) >> (4 * b)) & 15u;
    const auto high = (s.shorts(offsetof(BlockIQ4_XS, scales_h)) >> (2 * b)) & 3u;
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
      const int scale = static_cast<int>(low.of[r] | high.of[r] << 4) - 32;
      out.scale.of[r] = half_to_float(static_cast<uint16_t>(d.of[r])) * static_cast<float>(scale);
    }
  }
};

}  // namespace tierpack::kernels::cuda
