// Products of one token with the grid types on AVX2. Codes that are used once need not be what codes for many tokens are:
// magnitudes keep no sign and no bias, and the activations take the signs instead, which leaves room in 16 bits for more sums.
//
// An entry costs a load of four or eight elements and a quarter of the load of its index; everything else is done for 32 elements
// at once. A column is read twice. First its indices, signs and scales are brought into the form in which they are used, and
// stored: an index that is needed right after its store comes too late, with hundreds of operations waiting for it. Then a loop
// over the blocks looks up and multiplies; unrolled, it would not fit the instruction caches. Columns for many tokens are decoded in
// the same two steps, into codes with a bias.
#pragma once

#include "runtime/kernels/group_matmul.h"

namespace tierpack::kernels {
namespace {

// Two 16-bit indices a lane.
struct IndexPairs {
  alignas(32) uint16_t half[16];
  TIERPACK_INLINE void put(Ints v) { _mm256_store_si256(reinterpret_cast<__m256i*>(half), v); }
};

// Entries at four indices that are loaded together and taken apart in registers: loads are what there is least of. GCC has to be
// kept from loading indices again one by one.
template <typename Entry>
struct FourEntries {
  const Entry* entry[4];
  TIERPACK_INLINE FourEntries(const Entry* table, const uint16_t* index) {
    uint64_t four;
    std::memcpy(&four, index, 8);
    asm("" : "+r"(four));
    uint32_t low = static_cast<uint32_t>(four), high = static_cast<uint32_t>(four >> 32);
    asm("" : "+r"(low), "+r"(high));
    entry[0] = table + (low & 0xFFFF);
    entry[1] = table + (low >> 16);
    entry[2] = table + (high & 0xFFFF);
    entry[3] = table + (high >> 16);
  }
};

// Entries of four elements at the low and at the high indices.
TIERPACK_INLINE void look_up(const uint32_t* table, const IndexPairs& index, Ints& low, Ints& high) {
  __m128i l[2], h[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const FourEntries<uint32_t> a(table, index.half + 8 * i), b(table, index.half + 8 * i + 4);
    const auto four = [&](int k) __attribute__((always_inline)) {
      __m128i v = _mm_cvtsi32_si128(static_cast<int>(*a.entry[k]));
      v = _mm_insert_epi32(v, static_cast<int>(*a.entry[k + 2]), 1);
      v = _mm_insert_epi32(v, static_cast<int>(*b.entry[k]), 2);
      return _mm_insert_epi32(v, static_cast<int>(*b.entry[k + 2]), 3);
    };
    l[i] = four(0);
    h[i] = four(1);
  }
  low = _mm256_set_m128i(l[1], l[0]);
  high = _mm256_set_m128i(h[1], h[0]);
}

// Entries of eight elements: low[0] and low[1] are the halves of those at the low indices.
TIERPACK_INLINE void look_up(const uint64_t* table, const IndexPairs& index, Ints (&low)[2], Ints (&high)[2]) {
  __m256 l[2], h[2];
  const auto two = [](const uint64_t* first, const uint64_t* second) __attribute__((always_inline)) {
    const __m128 v = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(first)));
    return _mm_loadh_pi(v, reinterpret_cast<const __m64*>(second));
  };
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const FourEntries<uint64_t> a(table, index.half + 4 * i), b(table, index.half + 4 * i + 8);
    l[i] = _mm256_set_m128(two(b.entry[0], b.entry[2]), two(a.entry[0], a.entry[2]));
    h[i] = _mm256_set_m128(two(b.entry[1], b.entry[3]), two(a.entry[1], a.entry[3]));
  }
  low[0] = _mm256_castps_si256(_mm256_shuffle_ps(l[0], l[1], 0x88));
  low[1] = _mm256_castps_si256(_mm256_shuffle_ps(l[0], l[1], 0xDD));
  high[0] = _mm256_castps_si256(_mm256_shuffle_ps(h[0], h[1], 0x88));
  high[1] = _mm256_castps_si256(_mm256_shuffle_ps(h[0], h[1], 0xDD));
}

// Bytes 0 and 2, or 1 and 3, of each lane as indices.
TIERPACK_INLINE Ints even_bytes(Ints v) { return v & all_ints(0x00FF00FF); }
TIERPACK_INLINE Ints odd_bytes(Ints v) { return _mm256_srli_epi16(v, 8); }
// Bits of indices from 8 on: the two halves of each lane times `low` and `high`, without what is not in `mask`.
TIERPACK_INLINE Ints index_bits(Ints halves, uint32_t low, uint32_t high, uint32_t mask) {
  return mul_shorts(halves, all_ints(high << 16 | low)) & all_ints(mask << 16 | mask);
}

// What eight rows of a block are multiplied from; types use what they need.
template <int Pairs>
struct BlockShare {
  IndexPairs index[Pairs];
  Ints signs;         // eight elements a byte
  Ints sub_scale[2];  // k_h as two i16
  Ints bias_pair;     // what the activations' sums are multiplied with, as i16
  Floats scale;
};

// A type: its decoder, indices in pairs, bytes an element at most, and whether there are biases instead of signs.
template <typename D, int Pairs, int CodeMax, bool Ternary = false>
struct GridType {
  using Decoder = D;
  using Share = BlockShare<Pairs>;
  static constexpr bool ternary = Ternary;
  static constexpr bool scaled = D::form == kSubScale;
  static constexpr int fits = 32767 / (2 * 127 * CodeMax);  // so many i16 pair sums stay below 2^15 when added
  static_assert(fits >= 2);
  static constexpr int run = scaled || fits < 4 ? 1 : fits < 8 ? 2 : 4;  // added by twos

  // The products of a block, from a grid of four elements an entry or of eight with indices by even and odd bytes. Types that lie
  // otherwise have their own.
  template <typename To>
  TIERPACK_INLINE static void multiply(const uint32_t* table, To& sum) {
    sum.add_quads(table);
  }
  template <typename To>
  TIERPACK_INLINE static void multiply(const uint64_t* table, To& sum) {
    sum.add_octets(0, table, 0, 2, 0, 2);
    sum.add_octets(1, table, 1, 3, 1, 3);
  }
};

// The sum of a block's products with eight rows, as it grows.
template <typename T>
struct GridSum {
  const typename T::Share& share;
  const int8_t* q;
  Ints run, sum;

  TIERPACK_INLINE Ints sub_scale(int h) const { return T::scaled ? share.sub_scale[h] : all_shorts(1); }
  // Two vectors of products, i = 0 .. 3 times.
  TIERPACK_INLINE void add(int i, Ints a, Ints b, Ints k) {
    const Ints both = _mm256_add_epi16(a, b);
    run = i % T::run == 0 ? both : _mm256_add_epi16(run, both);
    if (i % T::run != T::run - 1) return;
    const Ints scaled = _mm256_madd_epi16(run, k);
    sum = i < T::run ? scaled : add_ints(sum, scaled);
  }

  // Products of elements 4j .. 4j + 3, whose signs are bits 4 (j % 2) + k of byte `from`.
  TIERPACK_INLINE Ints products(int j, Ints magnitude, int from) const {
    const Ints signs = j % 2 == 0 ? shift_left(share.signs, 4) : share.signs;
    const Ints bits = shuffle_bytes(signs, in_each_lane(from, from, from, from)) & all_ints(0x80402010);
    const Ints sign = sub_bytes(all_ints(0x40201008), bits);  // half a bit less the bit
    return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(broadcast_int(q + 4 * j), sign));
  }
  // Pairs of indices of elements 0 and 8, 4 and 12, and the same of the second half.
  TIERPACK_INLINE void add_quads(const uint32_t* table) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int j = i / 2 * 4 + i % 2;
      Ints a, b;
      look_up(table, share.index[i], a, b);
      add(i, products(j, a, j / 2), products(j + 2, b, j / 2 + 1), all_shorts(1));
    }
  }
  // Pair i of the indices: octets `first` and `second`, whose signs are bytes f and s.
  TIERPACK_INLINE void add_octets(int i, const uint64_t* table, int first, int second, int f, int s) {
    Ints a[2], b[2];
    look_up(table, share.index[i], a, b);
    add(2 * i, products(2 * first, a[0], f), products(2 * first + 1, a[1], f), sub_scale(first / 2));
    add(2 * i + 1, products(2 * second, b[0], s), products(2 * second + 1, b[1], s), sub_scale(second / 2));
  }

  // Eight elements without signs; `minus` lowers codes.
  TIERPACK_INLINE void add_codes(int i, int l, const Ints (&code)[2], Ints minus) {
    Ints pairs[2];
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      pairs[k] = _mm256_maddubs_epi16(sub_bytes(code[k], minus), broadcast_int(q + 8 * l + 4 * k));
    }
    add(i, pairs[0], pairs[1], sub_scale(l / 2));
  }
};

struct GridIQ3_XXS : GridType<DecodeIQ3_XXS, 4, 62> {
  static const uint32_t* table() { return kIq3xxsGrid.data(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Ints v = d.unit(offsetof(BlockIQ3_XXS, qs), 2 * b + h);
      share.index[2 * h].put(even_bytes(v));
      share.index[2 * h + 1].put(odd_bytes(v));
    }
    share.signs = signs_of_28_bits(d.word(b));
  }
};

struct GridIQ3_S : GridType<DecodeIQ3_S, 4, 15> {
  static const uint32_t* table() { return kIq3sGrid.data(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
    const Ints high = shuffle_bytes(d.unit(offsetof(BlockIQ3_S, qh), b / 4), in_each_lane(b % 4, 0x80, b % 4, 0x80));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Ints v = d.unit(offsetof(BlockIQ3_S, qs), 2 * b + h);
      share.index[2 * h].put(even_bytes(v) | index_bits(high, 256 >> (4 * h), 64 >> (4 * h), 256));
      share.index[2 * h + 1].put(odd_bytes(v) | index_bits(high, 128 >> (4 * h), 32 >> (4 * h), 256));
    }
    share.signs = d.unit(offsetof(BlockIQ3_S, signs), b);
  }
};

struct GridIQ2_XXS : GridType<DecodeIQ2_XXS, 2, 43> {
  static const uint64_t* table() { return kIq2xxsGrid.data(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
    const Ints v = d.unit(offsetof(BlockIQ2_XXS, qs), 2 * b);
    share.index[0].put(even_bytes(v));
    share.index[1].put(odd_bytes(v));
    share.signs = signs_of_28_bits(d.word(b));
  }
};

struct GridIQ2_XS : GridType<DecodeIQ2_XS, 2, 43> {
  static const uint64_t* table() { return kIq2xsGrid.data(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
    const Ints first = d.unit(offsetof(BlockIQ2_XS, qs), 2 * b), second = d.unit(offsetof(BlockIQ2_XS, qs), 2 * b + 1);
    share.index[0].put(first & all_shorts(511));
    share.index[1].put(second & all_shorts(511));
    share.signs = DecodeIQ2_XS::explicit_signs(first, second);
  }
  template <typename To>
  TIERPACK_INLINE static void multiply(const uint64_t* table, To& sum) {
    sum.add_octets(0, table, 0, 1, 0, 2);
    sum.add_octets(1, table, 2, 3, 1, 3);
  }
};

struct GridIQ2_S : GridType<DecodeIQ2_S, 2, 43> {
  static const uint64_t* table() { return kIq2sGrid.data(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
    const Ints v = d.unit(offsetof(BlockIQ2_S, qs), b);
    const Ints high = shuffle_bytes(d.unit(offsetof(BlockIQ2_S, qh), b / 4), in_each_lane(b % 4, 0x80, b % 4, 0x80));
    share.index[0].put(even_bytes(v) | index_bits(high, 256, 16, 0x300));
    share.index[1].put(odd_bytes(v) | index_bits(high, 64, 4, 0x300));
    share.signs = d.unit(offsetof(BlockIQ2_S, signs), b);
  }
};

// Ternary codes 8 g + delta plus a bias: the table has 8 g + 10.
constexpr int kIq1CodeMax = 18;
inline const uint64_t* iq1_codes() {
  static const auto codes = [] {
    std::array<uint64_t, kIq1sGrid.size()> made{};
    for (size_t i = 0; i < made.size(); ++i) {
      for (int k = 0; k < 8; ++k) {
        const auto g = static_cast<int8_t>(kIq1sGrid[i] >> (8 * k));
        made[i] |= static_cast<uint64_t>(8 * g + 10) << (8 * k);
      }
    }
    return made;
  }();
  return codes.data();
}

// delta moves all codes of a block alike: left to the sums of the activations.
struct GridIQ1_S : GridType<DecodeIQ1_S, 2, kIq1CodeMax, true> {
  static const uint64_t* table() { return iq1_codes(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
    const Ints v = d.unit(offsetof(BlockIQ1_S, qs), b);
    const int k = b % 2 * 2;
    const Ints high = shuffle_bytes(d.unit(offsetof(BlockIQ1_S, qh), b / 2), in_each_lane(k, k + 1, k, k + 1));
    share.index[0].put(even_bytes(v) | index_bits(high, 256, 4, 0x700));
    share.index[1].put(odd_bytes(v) | index_bits(shift_right(high, 1), 64, 1, 0x700));
    // delta - 10, which is -9 or -11.
    share.bias_pair = _mm256_sub_epi16(all_shorts(-9), _mm256_srli_epi16(high, 14) & all_shorts(2));
  }
  TIERPACK_INLINE static void multiply(const uint64_t* table, GridSum<GridIQ1_S>& sum) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      Ints low[2], high[2];
      look_up(table, sum.share.index[i], low, high);
      sum.add_codes(2 * i, i, low, zero_ints());
      sum.add_codes(2 * i + 1, i + 2, high, zero_ints());
    }
  }
};

struct GridIQ1_M : GridType<DecodeIQ1_M, 2, kIq1CodeMax, true> {
  static const uint64_t* table() { return iq1_codes(); }
  TIERPACK_INLINE static void prepare(const Decoder& d, int b, Share& share) {
    const Ints v = d.unit(offsetof(BlockIQ1_M, qs), b);
    const int k = b % 2 * 2;
    const Ints high = shuffle_bytes(d.unit(offsetof(BlockIQ1_M, qh), b / 2), in_each_lane(k, k + 1, k, k + 1));
    share.index[0].put(even_bytes(v) | index_bits(high, 256, 1, 0x700));
    share.index[1].put(odd_bytes(v) | index_bits(shift_right(high, 4), 256, 1, 0x700));
    share.signs = high;
    share.bias_pair = mul_shorts(d.sub_scales(b), all_shorts(-9));
  }
  TIERPACK_INLINE static void multiply(const uint64_t* table, GridSum<GridIQ1_M>& sum) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      Ints low[2], high[2];
      look_up(table, sum.share.index[i], low, high);
      // Bit 3 or 7 of a byte, as 2.
      const Ints minus = shift_right(sum.share.signs, 2 + 4 * i);
      sum.add_codes(2 * i, i, low, shuffle_bytes(minus, in_each_lane(0, 0, 0, 0)) & all_bytes(2));
      sum.add_codes(2 * i + 1, i + 2, high, shuffle_bytes(minus, in_each_lane(1, 1, 1, 1)) & all_bytes(2));
    }
  }
};

// The shares of a column's blocks.
template <typename T>
TIERPACK_INLINE void prepare_shares(const std::byte* column, typename T::Share (&shares)[T::Decoder::blocks][kHalves]) {
  using D = typename T::Decoder;
#pragma GCC unroll 1
  for (uint32_t h = 0; h < kHalves; ++h) {
    const D d(column, h * kLanes);
#pragma GCC unroll 8
    for (int b = 0; b < D::blocks; ++b) {
      typename T::Share& share = shares[b][h];
      T::prepare(d, b, share);
      share.scale = d.scale(b);
      if constexpr (T::scaled) {
        const Ints pair = d.sub_scales(b);
        share.sub_scale[0] = shuffle_bytes(pair, in_each_lane(0, 1, 0, 1));
        share.sub_scale[1] = shuffle_bytes(pair, in_each_lane(2, 3, 2, 3));
      }
    }
  }
  in_memory(shares);  // GCC would take the vectors of indices apart, at two or three operations an index
}

// Codes for many tokens, put where GridSum would multiply.
template <typename T>
struct GridCodes {
  const typename T::Share& share;
  Ints* code;

  TIERPACK_INLINE void put(int j, Ints magnitude, int from) {
    const Ints bit = all_ints(j % 2 == 0 ? 0x08040201 : 0x80402010);
    const Ints mask = equal_bytes(shuffle_bytes(share.signs, in_each_lane(from, from, from, from)) & bit, bit);
    code[j] = add_bytes(sub_bytes(magnitude ^ mask, mask), all_bytes(T::Decoder::bias));
  }
  TIERPACK_INLINE void add_quads(const uint32_t* table) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int j = i / 2 * 4 + i % 2;
      Ints a, b;
      look_up(table, share.index[i], a, b);
      put(j, a, j / 2);
      put(j + 2, b, j / 2 + 1);
    }
  }
  TIERPACK_INLINE void add_octets(int i, const uint64_t* table, int first, int second, int f, int s) {
    Ints a[2], b[2];
    look_up(table, share.index[i], a, b);
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      put(2 * first + k, a[k], f);
      put(2 * second + k, b[k], s);
    }
  }
};

// The decoders whose columns for many tokens are decoded this way: those with signs.
template <typename D>
struct GridTypeOf;
template <> struct GridTypeOf<DecodeIQ3_XXS> { using Type = GridIQ3_XXS; };
template <> struct GridTypeOf<DecodeIQ3_S> { using Type = GridIQ3_S; };
template <> struct GridTypeOf<DecodeIQ2_XXS> { using Type = GridIQ2_XXS; };
template <> struct GridTypeOf<DecodeIQ2_XS> { using Type = GridIQ2_XS; };
template <> struct GridTypeOf<DecodeIQ2_S> { using Type = GridIQ2_S; };

template <typename D>
  requires requires { typename GridTypeOf<D>::Type; }
struct Decoded<D> {
  using T = typename GridTypeOf<D>::Type;
  Ints code[D::blocks][kHalves][8];
  Ints magnitude[1][kHalves][8];
  Factors<D> factors[D::blocks][kHalves];

  TIERPACK_INLINE void load(const std::byte* column) {
    typename T::Share shares[D::blocks][kHalves];
    prepare_shares<T>(column, shares);
    const auto* const table = T::table();
#pragma GCC unroll 1
    for (int b = 0; b < D::blocks; ++b) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        GridCodes<T> codes{shares[b][h], code[b][h]};
        T::multiply(table, codes);
        factors[b][h].scale = shares[b][h].scale;
        if constexpr (T::scaled) {
          factors[b][h].sub_scale[0] = shares[b][h].sub_scale[0];
          factors[b][h].sub_scale[1] = shares[b][h].sub_scale[1];
        }
        if constexpr (kBiasLeft<D>) {
          const Ints pair = _mm256_blend_epi16(shares[b][h].sub_scale[0], shares[b][h].sub_scale[1], 0xAA);
          factors[b][h].bias_pair = mul_shorts(pair, all_shorts(-D::bias));
        }
      }
    }
  }
};

template <typename T>
void grid_one_token(const std::byte* group, const ActivationView& x, float* y) {
  using D = typename T::Decoder;
  const auto* const table = T::table();
  alignas(64) float partial[kBlockSums][kGroup] = {};
  typename T::Share shares[D::blocks][kHalves];
  const uint32_t blocks = x.n / 32;
  const std::byte* column = group;
  for (uint32_t first = 0; first < blocks; first += D::blocks, column += D::block_bytes * kGroup) {
    prepare_shares<T>(column, shares);
#pragma GCC unroll 1
    for (uint32_t b = 0; b < D::blocks; ++b) {
      prefetch_share<D>(column, static_cast<int>(b));
      const uint32_t at = first + b;
      const Floats xs = all_floats(x.scale[at]);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const typename T::Share& share = shares[b][h];
        GridSum<T> sum{share, x.q + size_t{32} * at, {}, {}};
        T::multiply(table, sum);
        if constexpr (T::ternary) sum.sum = add_pairs(sum.sum, share.bias_pair, broadcast_int(x.sum + at));
        float* const p = partial[b] + h * kLanes;
        store_floats(p, fma(to_floats(sum.sum), mul(share.scale, xs), load_floats(p)));
      }
    }
  }
  store_tree(partial[0], kGroup, y);
}

}  // namespace
}  // namespace tierpack::kernels
