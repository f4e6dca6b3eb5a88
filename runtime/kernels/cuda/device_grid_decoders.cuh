// Decoders of packed blocks whose codes come from grids; see device_decoders.cuh. grid_layout.h has the tables.
#pragma once

#include "runtime/kernels/cuda/device_k_decoders.cuh"
#include "runtime/kernels/cuda/grid_layout.h"

namespace tierpack::kernels::cuda {

// Bytes for four numbers of values, in the low half of `numbers`.
template <class Grid>
TIERPACK_DEVICE uint32_t grid_bytes(uint32_t numbers) {
  return __byte_perm(Grid::low, Grid::high, numbers & 0x7777u);
}
struct Iq2Grid {
  static constexpr uint32_t low = values_word(kIq2Values, 0), high = values_word(kIq2Values, 1);
};
struct Iq3XxsGrid {
  static constexpr uint32_t low = values_word(kIq3XxsValues, 0), high = values_word(kIq3XxsValues, 1);
};
struct Iq3SGrid {
  static constexpr uint32_t low = values_word(kIq3SValues, 0), high = values_word(kIq3SValues, 1);
};
struct Iq1Grid {
  static constexpr uint32_t low = values_word(kIq1Values, 0), high = values_word(kIq1Values, 1);
};
// Word j of a block is half j % 2 of the octet l = j / 2, word j + 4 the same of the octet l + 2. Of entry `index` of the table that begins at
// `table`:
template <class Grid>
TIERPACK_DEVICE uint32_t octet_word(const auto& s, uint32_t table, uint32_t index, unsigned j) {
  return grid_bytes<Grid>(s.grid_word(table + index) >> (16 * (j % 2)));
}

// The magnitudes, negative where the four lowest bits of `signs` are set. No magnitude is 0, so that no byte carries.
TIERPACK_DEVICE uint32_t with_signs(uint32_t magnitudes, uint32_t signs) {
  const uint32_t ones = spread_bits(signs);
  return (magnitudes ^ byte_mask(ones)) + ones;
}
// A 7-bit index of signs with the bit that makes their number even.
TIERPACK_DEVICE uint32_t with_parity(uint32_t seven) { return seven | (static_cast<uint32_t>(__popc(seven)) & 1u) << 7; }

// d * (0.5 + top four bits) * factor.
TIERPACK_DEVICE float top_bits_scale(uint32_t d, uint32_t word, float factor) {
  return (half_to_float(static_cast<uint16_t>(d)) * (0.5f + static_cast<float>(static_cast<int>(word >> 28)))) * factor;
}

// Scales of IQ2_XS and IQ2_S: 2 s + 1 for the nibbles of byte b.
template <typename Block>
struct OddNibbles : DeviceDecoder<Block, BlockForm::kSubScale, 8, 0, 5'417'312> {
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto byte = s.unit(offsetof(Block, scales), b / 4) >> (8 * (b % 4));
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
      out.sub_scale[0][r] = static_cast<int>(2 * (byte.of[r] & 15u) + 1);
      out.sub_scale[1][r] = static_cast<int>(2 * ((byte.of[r] >> 4) & 15u) + 1);
    }
    out.scale = map_float(s.shorts(offsetof(Block, d)), [](uint32_t d) { return half_to_float(static_cast<uint16_t>(d)) * 0.125f; });
  }
};

struct DeviceIQ2_XXS : DeviceDecoder<BlockIQ2_XXS, BlockForm::kScale, 8, 0, 174'752> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto index = s.unit(offsetof(BlockIQ2_XXS, qs), 2 * b);
    const auto signs = s.unit(offsetof(BlockIQ2_XXS, qs), 2 * b + 1);
    const auto word = [&](unsigned l, unsigned r) {
      const uint32_t magnitudes = octet_word<Iq2Grid>(s, kGridIq2Xxs, (index.of[r] >> (8 * l)) & 255u, j);
      return with_signs(magnitudes, with_parity((signs.of[r] >> (7 * l)) & 127u) >> (4 * (j % 2)));
    };
    return pair_of(each_row(index, [&](unsigned r) { return word(j / 2, r); }), each_row(index, [&](unsigned r) { return word(j / 2 + 2, r); }));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.shorts(offsetof(BlockIQ2_XXS, d));
    const auto word = s.unit(offsetof(BlockIQ2_XXS, qs), 2 * b + 1);
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) out.scale.of[r] = top_bits_scale(d.of[r], word.of[r], 0.25f);
  }
};

struct DeviceIQ2_XS : OddNibbles<BlockIQ2_XS> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = s.unit(offsetof(BlockIQ2_XS, qs), 2 * b) >> (16 * (j / 2));
    const auto second = s.unit(offsetof(BlockIQ2_XS, qs), 2 * b + 1) >> (16 * (j / 2));
    const auto word = [&](uint32_t code) {
      return with_signs(octet_word<Iq2Grid>(s, kGridIq2Xs, code & 511u, j), with_parity((code >> 9) & 127u) >> (4 * (j % 2)));
    };
    return pair_of(map(first, word), map(second, word));
  }
};

struct DeviceIQ2_S : OddNibbles<BlockIQ2_S> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto low = s.unit(offsetof(BlockIQ2_S, qs), b);
    const auto high = s.unit(offsetof(BlockIQ2_S, qh), b / 4) >> (8 * (b % 4));
    const auto signs = s.unit(offsetof(BlockIQ2_S, signs), b);
    const auto word = [&](unsigned l, unsigned r) {
      const uint32_t index = ((low.of[r] >> (8 * l)) & 255u) | ((high.of[r] >> (2 * l)) & 3u) << 8;
      return with_signs(octet_word<Iq2Grid>(s, kGridIq2S, index, j), signs.of[r] >> (8 * l + 4 * (j % 2)));
    };
    return pair_of(each_row(low, [&](unsigned r) { return word(j / 2, r); }), each_row(low, [&](unsigned r) { return word(j / 2 + 2, r); }));
  }
};

struct DeviceIQ3_XXS : DeviceDecoder<BlockIQ3_XXS, BlockForm::kScale, 8, 0, 251'968> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = s.unit(offsetof(BlockIQ3_XXS, qs), 2 * b);
    const auto second = s.unit(offsetof(BlockIQ3_XXS, qs), 2 * b + 1);
    const auto signs = s.unit(offsetof(BlockIQ3_XXS, scales_and_signs), b);
    const auto word = [&](uint32_t unit, unsigned l, uint32_t sign_word) {
      const uint32_t magnitudes = grid_bytes<Iq3XxsGrid>(s.grid_short(2 * kGridIq3Xxs + ((unit >> (8 * j)) & 255u)));
      return with_signs(magnitudes, with_parity((sign_word >> (7 * l)) & 127u) >> (4 * (j % 2)));
    };
    return pair_of(each_row(first, [&](unsigned r) { return word(first.of[r], j / 2, signs.of[r]); }),
                   each_row(first, [&](unsigned r) { return word(second.of[r], j / 2 + 2, signs.of[r]); }));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.shorts(offsetof(BlockIQ3_XXS, d));
    const auto word = s.unit(offsetof(BlockIQ3_XXS, scales_and_signs), b);
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) out.scale.of[r] = top_bits_scale(d.of[r], word.of[r], 0.5f);
  }
};

struct DeviceIQ3_S : DeviceDecoder<BlockIQ3_S, BlockForm::kScale, 8, 0, 60'960> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto first = s.unit(offsetof(BlockIQ3_S, qs), 2 * b);
    const auto second = s.unit(offsetof(BlockIQ3_S, qs), 2 * b + 1);
    const auto high = s.unit(offsetof(BlockIQ3_S, qh), b / 4) >> (8 * (b % 4));
    const auto signs = s.unit(offsetof(BlockIQ3_S, signs), b);
    const auto word = [&](uint32_t unit, uint32_t high_bits, uint32_t sign_bits) {
      const uint32_t index = ((unit >> (8 * j)) & 255u) | (high_bits & 1u) << 8;
      return with_signs(grid_bytes<Iq3SGrid>(s.grid_short(2 * kGridIq3S + index)), sign_bits);
    };
    return pair_of(each_row(first, [&](unsigned r) { return word(first.of[r], high.of[r] >> j, signs.of[r] >> (4 * j)); }),
                   each_row(first, [&](unsigned r) { return word(second.of[r], high.of[r] >> (j + 4), signs.of[r] >> (4 * j + 16)); }));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.shorts(offsetof(BlockIQ3_S, d));
    const auto nibble = (s.unit(offsetof(BlockIQ3_S, scales), 0) >> (4 * b)) & 15u;
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
      out.scale.of[r] = half_to_float(static_cast<uint16_t>(d.of[r])) * static_cast<float>(static_cast<int>(1 + 2 * nibble.of[r]));
    }
  }
};

// Values of the ternary grid are 8 g + 8; codes are 8 g + delta, delta = +-1, with a bias of 9.
TIERPACK_DEVICE uint32_t with_delta(uint32_t entry, bool minus) { return minus ? entry : entry + 0x02020202u; }

struct DeviceIQ1_S : DeviceDecoder<BlockIQ1_S, BlockForm::kScale, 8, 9, 36'576> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto low = s.unit(offsetof(BlockIQ1_S, qs), b);
    const auto high = s.unit(offsetof(BlockIQ1_S, qh), b / 2) >> (16 * (b % 2));
    const auto word = [&](unsigned l, unsigned r) {
      const uint32_t index = ((low.of[r] >> (8 * l)) & 255u) | ((high.of[r] >> (3 * l)) & 7u) << 8;
      return with_delta(octet_word<Iq1Grid>(s, kGridIq1, index, j), (high.of[r] & 0x8000u) != 0);
    };
    return pair_of(each_row(low, [&](unsigned r) { return word(j / 2, r); }), each_row(low, [&](unsigned r) { return word(j / 2 + 2, r); }));
  }
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto d = s.shorts(offsetof(BlockIQ1_S, d));
    const auto high = s.unit(offsetof(BlockIQ1_S, qh), b / 2) >> (16 * (b % 2));
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
      const float odd = static_cast<float>(static_cast<int>(2 * ((high.of[r] >> 12) & 7u) + 1));
      out.scale.of[r] = (half_to_float(static_cast<uint16_t>(d.of[r])) * odd) * 0.125f;
    }
  }
};

struct DeviceIQ1_M : DeviceDecoder<BlockIQ1_M, BlockForm::kSubScale, 8, 9, 548'640> {
  TIERPACK_DEVICE static auto words(const auto& s, unsigned b, unsigned j) {
    const auto low = s.unit(offsetof(BlockIQ1_M, qs), b);
    const auto high = s.unit(offsetof(BlockIQ1_M, qh), b / 2) >> (16 * (b % 2));
    const auto word = [&](unsigned l, unsigned r) {
      const uint32_t nibble = (high.of[r] >> (4 * l)) & 15u;
      const uint32_t index = ((low.of[r] >> (8 * l)) & 255u) | (nibble & 7u) << 8;
      return with_delta(octet_word<Iq1Grid>(s, kGridIq1, index, j), (nibble & 8u) != 0);
    };
    return pair_of(each_row(low, [&](unsigned r) { return word(j / 2, r); }), each_row(low, [&](unsigned r) { return word(j / 2 + 2, r); }));
  }
  // d is the top nibbles of four 16-bit words; t = bits 6 (b % 2) + 3 h of word b / 2.
  TIERPACK_DEVICE static void scales(const auto& s, unsigned b, auto& out) {
    const auto u0 = s.unit(offsetof(BlockIQ1_M, scales), 0);
    const auto u1 = s.unit(offsetof(BlockIQ1_M, scales), 1);
    const auto t = select(b < 4, u0, u1) >> (16 * (b / 2 % 2) + 6 * (b % 2));
#pragma unroll
    for (unsigned r = 0; r < s.rows; ++r) {
      const uint32_t d = ((u0.of[r] >> 12) & 0xFu) | ((u0.of[r] >> 24) & 0xF0u) | ((u1.of[r] >> 4) & 0xF00u) | ((u1.of[r] >> 16) & 0xF000u);
      out.scale.of[r] = half_to_float(static_cast<uint16_t>(d)) * 0.125f;
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) out.sub_scale[h][r] = static_cast<int>(2 * ((t.of[r] >> (3 * h)) & 7u) + 1);
    }
  }
};

}  // namespace tierpack::kernels::cuda
