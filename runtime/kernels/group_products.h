// Products of row groups with one token, and the steps that those with many tokens (token_tile.h) share: one body for all types and
// instruction sets. The including file chose the vectors (avx2_lanes.h or avx512_lanes.h); everything is in an unnamed namespace.
//
// A lane is a row: activations are broadcast four at a time, integer sums never cross lanes, and the 8 partial sums of a row are
// the same lane of 8 vectors, added by the tree in the end. One token reads the weights once and decodes as it goes; more
// tokens share the decoding of a column of blocks, which stays in the L1 cache together with the partial sums of a tile.
#pragma once

#include <algorithm>
#include <array>

#include "base/error.h"
#include "formats/row_groups.h"
#include "runtime/kernels/avx2.h"
#include "runtime/kernels/group_iq_decoders.h"
#include "runtime/kernels/reference.h"

namespace tierpack::kernels {
namespace {

constexpr int kGroup = static_cast<int>(kGroupRows);
constexpr int kHalves = kGroup / kLanes;  // vectors of a group
constexpr uint32_t kTokenTile = 48;       // tokens that meet one decoding, at most
constexpr uint32_t kBlockSums = 8;
constexpr size_t kPrefetchBytes = 8192;  // ahead of where one token reads
constexpr size_t kTailBytes = 256 << 10;  // of the stack, for a padded group

constexpr bool has_sub_scales(BlockForm form) { return form == kSubScale || form == kSubScaleOffset; }

// Makes the compiler read `object` from memory, where broadcasting costs nothing; from a register it takes two shuffles.
template <typename T>
TIERPACK_INLINE void in_memory(T& object) {
  asm("" : "+m"(object));
}

// What is made of an activation block's sums and scale for one type of weights; the same for all rows.
enum class SumUse {
  kNone,
  kStart,   // -bias * (X_0 + X_1): integer sums begin there, which takes the bias of the codes off again
  kStarts,  // -bias * X_0 and -bias * X_1, where the halves have integer sums of their own
  kOffset   // f32(xsum) * xs, which offsets are multiplied with
};

template <typename D>
constexpr SumUse sum_use() {
  if (D::form == kScaleOffset) return SumUse::kOffset;
  if (D::bias <= 0) return SumUse::kNone;
  if (D::form == kScale) return SumUse::kStart;
  return D::form == kTwoScales || (kExactBytes && D::form == kSubScale) ? SumUse::kStarts : SumUse::kNone;
}

// Whether integer sums hold a bias that a factor of the row has to take off.
template <typename D>
constexpr bool kBiasLeft = has_sub_scales(D::form) && D::bias > 0 && sum_use<D>() == SumUse::kNone;

// That for blocks [at, at + count) of a view, count at most 8: integers, or the bits of floats; `high` for the second halves. Writes eight.
template <typename D>
TIERPACK_INLINE void prepare_sums(const ActivationView& x, size_t at, uint32_t count, int32_t* low, int32_t* high) {
  constexpr SumUse kUse = sum_use<D>();
  static_assert(D::form != kScaleOffset || D::bias == 0);
  if constexpr (kUse == SumUse::kNone) return;
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i sums = _mm256_maskload_epi32(x.sum + at, mask);
  constexpr int kFactor = kUse == SumUse::kOffset ? 1 : -D::bias;
  __m256i made = _mm256_madd_epi16(sums, _mm256_set1_epi32(kUse == SumUse::kStarts ? kFactor & 0xFFFF : kFactor << 16 | (kFactor & 0xFFFF)));
  if constexpr (kUse == SumUse::kOffset) {
    made = _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(made), _mm256_maskload_ps(x.scale + at, mask)));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), made);
  if constexpr (kUse == SumUse::kStarts) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), _mm256_madd_epi16(sums, _mm256_set1_epi32(kFactor << 16)));
  }
}

// Columns of a decoder for the vectors of a group.
template <typename D>
TIERPACK_INLINE auto halves_of(const std::byte* column) {
  if constexpr (kHalves == 1) return std::array<D, 1>{D(column, 0)};
  else return std::array<D, 2>{D(column, 0), D(column, 8)};
}

// What the integer sums of a block are multiplied with, one row a lane.
template <typename D>
struct Factors {
  Floats scale, scale_high, offset;
  Ints sub_scale[2];  // k_h: as two i16, or as i32 where products of bytes are exact
  Ints bias_pair;     // -bias * (k_0, k_1) as i16
  Ints sub_offset;    // (j_0, j_1) as i16

  TIERPACK_INLINE void load(const D& d, int b) {
    scale = d.scale(b);
    if constexpr (D::form == kTwoScales) scale_high = d.scale_high(b);
    if constexpr (D::form == kScaleOffset || D::form == kSubScaleOffset) offset = d.offset(b);
    if constexpr (D::form == kSubScaleOffset) sub_offset = d.sub_offsets(b);
    if constexpr (has_sub_scales(D::form)) {
      if constexpr (requires { d.sub_scale(b, 0); }) {
        sub_scale[0] = d.sub_scale(b, 0), sub_scale[1] = d.sub_scale(b, 1);
      } else {
        const Ints pair = d.sub_scales(b);
        if constexpr (kExactBytes) {
          sub_scale[0] = shift_right_signed(shift_left(pair, 16), 16);
          sub_scale[1] = shift_right_signed(pair, 16);
        } else {
          sub_scale[0] = shuffle_bytes(pair, in_each_lane(0, 1, 0, 1));
          sub_scale[1] = shuffle_bytes(pair, in_each_lane(2, 3, 2, 3));
        }
        if constexpr (kBiasLeft<D>) bias_pair = mul_shorts(pair, all_shorts(-D::bias));
      }
    }
  }
};

// One token's share of a block.
struct BlockInput {
  const int8_t* q;
  const float* scale;
  const int32_t* sum;
  const int32_t* low;   // what prepare_sums made
  const int32_t* high;

  // Where the integer sum of half h begins.
  template <SumUse Use>
  TIERPACK_INLINE Ints start(int h) const {
    if constexpr (Use == SumUse::kStart) return broadcast_int(low);
    if constexpr (Use == SumUse::kStarts) return broadcast_int(h == 0 ? low : high);
    return zero_ints();
  }
};

// Partial sums before a block is added: zero, or what is in memory.
enum class Sums { kZero, kSoFar };

// The integer sums of Count tokens with a block, by h where the form keeps them apart. code(half, j) gives the decoder's vectors,
// magnitude(half, j) their |c| where they are signed.
template <typename D, int Count>
struct IntegerSums {
  static constexpr int kSums = D::form == kTwoScales || (kExactBytes && has_sub_scales(D::form)) ? 2 : 1;
  Ints sum[Count][kHalves][kSums];

  // Sums of the products, biases included. One vector of codes meets all tokens before the next is needed.
  template <typename Code, typename Magnitude>
  TIERPACK_INLINE void add(Code&& code, Magnitude&& magnitude, const Factors<D> (&f)[kHalves], const int8_t* const (&q)[Count],
                           [[maybe_unused]] const BlockInput (&x)[Count]) {
    constexpr SumUse kUse = sum_use<D>();
#ifdef TIERPACK_VNNI
    (void)magnitude, (void)f;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      Ints c[kHalves];
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) c[h] = code(h, j);
#pragma GCC unroll 4
      for (int t = 0; t < Count; ++t) {
        const Ints broadcast = broadcast_int(q[t] + 4 * j);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          Ints& s = sum[t][h][kSums == 2 ? j / 4 : 0];
          s = dot_bytes(j % (8 / kSums) == 0 ? x[t].template start<kUse>(j / 4) : s, c[h], broadcast);
        }
      }
    }
#else
    // So many i16 pair sums stay below 2^15 when added.
    constexpr int kFits = 32767 / (2 * 127 * D::code_max);
    static_assert(kFits >= 1);
    constexpr bool kScaled = has_sub_scales(D::form);
    constexpr int kApart = D::form == kTwoScales || kScaled ? 4 : 8;
    constexpr int kRun = kFits >= 8 && kApart == 8 ? 8 : kFits >= 4 ? 4 : kFits >= 2 ? 2 : 1;
    Ints run[Count][kHalves];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const Ints c[kHalves] = {code(0, j), code(1, j)};
      Ints m[kHalves] = {c[0], c[1]};
      if constexpr (D::bias == kSigned) m[0] = magnitude(0, j), m[1] = magnitude(1, j);
      // Looks as if it changed them: the compiler would load the codes from memory again for every second token.
      if constexpr (Count > 1) asm("" : "+x"(m[0]), "+x"(m[1]));
#pragma GCC unroll 4
      for (int t = 0; t < Count; ++t) {
        const Ints broadcast = broadcast_int(q[t] + 4 * j);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          const Ints activations = D::bias == kSigned ? _mm256_sign_epi8(broadcast, c[h]) : broadcast;
          const Ints pairs = _mm256_maddubs_epi16(m[h], activations);
          run[t][h] = j % kRun == 0 ? pairs : _mm256_add_epi16(run[t][h], pairs);
          if (j % kRun != kRun - 1) continue;
          const Ints scaled = _mm256_madd_epi16(run[t][h], kScaled ? f[h].sub_scale[j / 4] : all_shorts(1));
          Ints& s = sum[t][h][kSums == 2 ? j / 4 : 0];
          if (j % (8 / kSums) >= kRun) s = add_ints(s, scaled);
          else s = kUse == SumUse::kStart || kUse == SumUse::kStarts ? add_ints(x[t].template start<kUse>(j / 4), scaled) : scaled;
        }
      }
    }
#endif
  }

  // Adds the block to `Count` times 16 partial sums, after taking off what a bias added too much where the sums did not start so.
  template <Sums From>
  TIERPACK_INLINE void finish(const Factors<D> (&f)[kHalves], const BlockInput (&x)[Count], float* partial) const {
#pragma GCC unroll 4
    for (int t = 0; t < Count; ++t) {
      const Floats xs = all_floats(*x[t].scale);
      [[maybe_unused]] const Ints x_sums = broadcast_int(x[t].sum);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        float* const at = partial + t * kGroup + h * kLanes;
        Floats p = From == Sums::kZero ? all_floats(0.0f) : load_floats(at);
        [[maybe_unused]] Ints dot = sum[t][h][0];
        if constexpr (D::form == kTwoScales) {
          p = fma(to_floats(dot), mul(f[h].scale, xs), p);
          store_floats(at, fma(to_floats(sum[t][h][kSums - 1]), mul(f[h].scale_high, xs), p));
          continue;
        }
        if constexpr (has_sub_scales(D::form)) {
          if constexpr (kExactBytes) {
            dot = add_ints(mul_ints(dot, f[h].sub_scale[0]), mul_ints(sum[t][h][kSums - 1], f[h].sub_scale[1]));
          }
          if constexpr (kBiasLeft<D>) dot = add_pairs(dot, f[h].bias_pair, x_sums);
        }
        p = fma(to_floats(dot), mul(f[h].scale, xs), p);
        if constexpr (D::form == kScaleOffset) p = fma(f[h].offset, as_floats(broadcast_int(x[t].low)), p);
        if constexpr (D::form == kSubScaleOffset) {
          p = fma(to_floats(add_pairs(zero_ints(), f[h].sub_offset, x_sums)), mul(f[h].offset, xs), p);
        }
        store_floats(at, p);
      }
    }
  }
};

// Adds the products of Count tokens with a block to their partial sums. Transposed codes meet transposed activations.
template <typename D, bool Transposed, Sums From, int Count, typename Code, typename Magnitude>
TIERPACK_INLINE void multiply(Code&& code, Magnitude&& magnitude, const Factors<D> (&f)[kHalves], const BlockInput (&x)[Count],
                              float* partial) {
  IntegerSums<D, Count> sums;
  const int8_t* q[Count];
  alignas(32) int8_t moved[Transposed ? Count : 1][32];
#pragma GCC unroll 4
  for (int t = 0; t < Count; ++t) {
    q[t] = x[t].q;
    if constexpr (Transposed) {
      const __m256i index = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q[t]));
      _mm256_store_si256(reinterpret_cast<__m256i*>(moved[t]), _mm256_shuffle_epi8(v, index));
      in_memory(moved[t]);
      q[t] = moved[t];
    }
  }
  sums.add(code, magnitude, f, q, x);
  sums.template finish<From>(f, x, partial);
}

// The tree of docs/arithmetic.md over the 8 partial sums of 16 rows; `stride` floats from one to the next.
TIERPACK_INLINE void store_tree(const float* partial, size_t stride, float* y) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    Floats s[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) s[i] = load_floats(partial + i * stride + static_cast<size_t>(h * kLanes));
    const Floats even = add(add(s[0], s[4]), add(s[2], s[6]));
    const Floats odd = add(add(s[1], s[5]), add(s[3], s[7]));
    store_floats(y + h * kLanes, add(even, odd));
  }
}

// Asks for what lies kPrefetchBytes behind block b's share of the column, where decoders jump between fields: the CPU's own
// prefetching follows that badly. Into the L2 cache, which has many more requests under way than the L1. A loop, because
// unrolled the requests are moved among the loads of the block and come too late.
template <typename D>
TIERPACK_INLINE void prefetch_share(const std::byte* column, int b) {
  constexpr size_t kShare = D::block_bytes * kGroup / D::blocks;
  const std::byte* const share = column + kPrefetchBytes + static_cast<size_t>(b) * kShare;
#pragma GCC unroll 1
  for (size_t at = 0; at < kShare; at += 64) _mm_prefetch(reinterpret_cast<const char*>(share + at), _MM_HINT_T1);
}

// While many tokens meet a column, the memory fetches what lies about `kAhead` bytes on: a whole number of columns.
template <typename D>
TIERPACK_INLINE void prefetch_column(const std::byte* column) {
  constexpr size_t kColumn = D::block_bytes * kGroup;
  constexpr size_t kAhead = (2048 + kColumn - 1) / kColumn * kColumn;
#pragma GCC unroll 1
  for (size_t at = 0; at < kColumn; at += 64) _mm_prefetch(reinterpret_cast<const char*>(column + kAhead + at), _MM_HINT_T1);
}

template <typename D>
void one_token(const std::byte* group, const ActivationView& x, float* y) {
  alignas(64) float partial[kBlockSums][kGroup] = {};
  const uint32_t blocks = x.n / 32;
  const std::byte* column = group;
  alignas(32) int32_t prepared[2][8];
  for (uint32_t first = 0; first < blocks; first += D::blocks, column += D::block_bytes * kGroup) {
    if (D::blocks == 8 || first % 8 == 0) {
      prepare_sums<D>(x, first, std::min(8u, blocks - first), prepared[0], prepared[1]);
      in_memory(prepared);
    }
    auto d = halves_of<D>(column);
#pragma GCC unroll 8
    for (int b = 0; b < D::blocks; ++b) {
      if constexpr (!D::in_order) prefetch_share<D>(column, b);
      Factors<D> f[kHalves];
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        d[h].prepare(b);
        f[h].load(d[h], b);
      }
      const uint32_t at = first + static_cast<uint32_t>(b);
      const BlockInput input[1] = {{x.q + size_t{32} * at, x.scale + at, x.sum + at, prepared[0] + at % 8, prepared[1] + at % 8}};
      const auto code = [&](int h, int j) __attribute__((always_inline)) { return d[h].code(b, j); };
      const auto magnitude = [&](int h, int j) __attribute__((always_inline)) { return absolute(d[h].code(b, j)); };
      multiply<D, D::transposed, Sums::kSoFar, 1>(code, magnitude, f, input, partial[D::blocks == 8 ? b : at % kBlockSums]);
    }
  }
  store_tree(partial[0], kGroup, y);
}

}  // namespace
}  // namespace tierpack::kernels
