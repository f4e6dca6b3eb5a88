// Products with plain-number weights: 32 interleaved partial sums a (row, token) pair. One or two tokens stream through
// a row at a time. More meet the weights of a few rows and columns as f32, converted once for all of them, in tiles of 4
// rows and 3 tokens, so that every load feeds several multiplications.
#include <algorithm>

#include "base/error.h"
#include "formats/dequant.h"
#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx2_fp8.h"
#include "runtime/kernels/avx2_vector.h"

namespace tierpack::kernels::avx2_ops {
namespace {

// Readers of 32 weights from element e on.
struct F32Row {
  const std::byte* row;
  void load32(uint32_t e, __m256 (&w)[4]) const {
    for (uint32_t i = 0; i < 4; ++i) w[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(row) + e + 8 * i);
  }
};

struct F16Row {
  const std::byte* row;
  void load32(uint32_t e, __m256 (&w)[4]) const {
    for (uint32_t i = 0; i < 4; ++i) w[i] = half_to_float(reinterpret_cast<const uint16_t*>(row) + e + 8 * i);
  }
};

struct BF16Row {
  const std::byte* row;
  void load32(uint32_t e, __m256 (&w)[4]) const {
    for (uint32_t i = 0; i < 4; ++i) {
      const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + size_t{2} * (e + 8 * i)));
      w[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
    }
  }
};

struct F8Row {
  const std::byte* row;
  void load32(uint32_t e, __m256 (&w)[4]) const { e4m3_to_float(row + e, w); }
};

// The remaining types, through the decoder of formats.
struct DecodedRow {
  const std::byte* row;
  DType type;
  uint32_t element_bytes;
  void load32(uint32_t e, __m256 (&w)[4]) const {
    alignas(32) float values[32];
    dequantize_row(type, row + size_t{e} * element_bytes, values, 32);
    for (uint32_t i = 0; i < 4; ++i) w[i] = _mm256_load_ps(values + 8 * i);
  }
};

constexpr uint32_t kTileRows = 4;
constexpr uint32_t kTileTokens = 3;
constexpr uint32_t kSegment = 512;     // columns that are converted at a time: 4 rows of them stay in the L1 cache
constexpr uint32_t kFp8Block = 128;   // columns of the scale blocks of FP8 checkpoints
constexpr uint32_t kTokenBlock = 66;  // tokens that share a conversion; bounds the partial sums on the stack

// The matrix and what its rows have in common.
struct Shape {
  DType type;
  uint32_t element_bytes;
  uint32_t n;       // columns
  uint32_t whole;   // columns in whole stretches of 32
  uint32_t block;   // columns of a scale block; n without scales
  bool scaled;
};

// Adds the columns behind the last whole 32 to the partial sums.
void add_tail(const Shape& shape, const std::byte* row, const float* x, __m256 (&part)[4]) {
  alignas(32) float w[32] = {};
  dequantize_row(shape.type, row + size_t{shape.whole} * shape.element_bytes, w, shape.n - shape.whole);
  for (uint32_t e = shape.whole; e < shape.n; e += 8) {
    const uint32_t lanes = std::min(8u, shape.n - e);
    __m256& sum = part[e % 32 / 8];
    sum = fma_lanes(_mm256_load_ps(w + (e - shape.whole)), load_lanes(x + e, lanes).value, sum, lanes);
  }
}

// sums += block * scale
inline void fold(const Sums32& block, __m256 scale, Sums32& sums) {
  for (uint32_t i = 0; i < 4; ++i) sums.part[i] = _mm256_fmadd_ps(block.part[i], scale, sums.part[i]);
}

// One row, all four sums at once: a single stream through the weights.
template <uint32_t Tokens, bool Scaled, typename Row>
void one_row(const Row& row, const Shape& shape, const float* scale, const float* x, float* y, size_t y_stride) {
  Sums32 total[Tokens], block[Tokens];
  for (Sums32& s : total) s = Sums32::zero();
  for (Sums32& s : block) s = Sums32::zero();
  for (uint32_t begin = 0; begin < shape.n;) {
    const uint32_t end = Scaled ? begin + std::min(shape.block, shape.n - begin) : shape.n;
    const uint32_t whole = std::min(end, shape.whole);
    for (uint32_t e = begin; e < whole; e += 32) {
      __m256 w[4];
      row.load32(e, w);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < Tokens; ++t) {
          block[t].part[i] = _mm256_fmadd_ps(w[i], _mm256_loadu_ps(x + size_t{t} * shape.n + e + 8 * i), block[t].part[i]);
        }
      }
    }
    if (whole < end) {
      for (uint32_t t = 0; t < Tokens; ++t) add_tail(shape, row.row, x + size_t{t} * shape.n, block[t].part);
    }
    if (Scaled) {
      const __m256 factor = _mm256_set1_ps(*scale++);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < Tokens; ++t) {
        fold(block[t], factor, total[t]);
        block[t] = Sums32::zero();
      }
    }
    begin = end;
  }
  for (uint32_t t = 0; t < Tokens; ++t) y[t * y_stride] = (Scaled ? total[t] : block[t]).total();
}

// Converted weights (kTileRows, kSegment) and the partial sums of their rows with a block of tokens.
struct Tiles {
  alignas(32) float w[kTileRows][kSegment];
  Sums32 block[kTokenBlock][kTileRows];  // of the scale block that is not complete yet
  Sums32 total[kTokenBlock][kTileRows];  // of the complete ones
};

// Adds the columns of the segment at w to the sums of `Tokens` tokens from x on, whose columns begin with the segment's. Fold:
// every `block` columns are a scale block, and go to `sums` times their row's scale. Block: the value of
// `block` and a divisor of `columns`, or 0.
//
// The tokens' columns come from the L2 cache, two lines for every 32 in the first and the third pass over them: those of `next`, the
// next tile's, are asked for here, a token's in each of the first passes (and the last token's once more: a request for a line that is
// there costs less than a branch).
template <uint32_t Tokens, bool Fold, uint32_t Block = 0>
void tile(const float (&w)[kTileRows][kSegment], uint32_t columns, uint32_t any_block, const float* const (&scales)[kTileRows], const float* x,
          size_t x_stride, const float* next, Sums32 (*sums)[kTileRows]) {
  const uint32_t block = Block > 0 ? Block : any_block;
  for (uint32_t begin = 0, index = 0; begin < columns; begin += block, ++index) {
    const uint32_t end = Block > 0 ? begin + Block : std::min(columns, begin + block);
    // The four eighths of a 32-element stretch are separate sums: one at a time, they fit the registers.
    for (uint32_t i = 0; i < 4; ++i) {
      __m256 part[kTileRows][Tokens];
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < Tokens; ++t) part[r][t] = Fold ? _mm256_setzero_ps() : sums[t][r].part[i];
      }
      const float* const weights = w[0] + begin + 8 * i;
      const float* values[Tokens];
      for (uint32_t t = 0; t < Tokens; ++t) values[t] = x + t * x_stride + begin + 8 * i;
      const float* const asked_for = next + std::min(i, Tokens - 1) * x_stride + begin;
      const auto step = [&](size_t e) __attribute__((always_inline)) {
        __m256 v[Tokens];
#pragma GCC unroll 4
        for (uint32_t t = 0; t < Tokens; ++t) v[t] = _mm256_loadu_ps(values[t] + e);
        _mm_prefetch(reinterpret_cast<const char*>(asked_for + e), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(asked_for + e + 16), _MM_HINT_T0);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < kTileRows; ++r) {
          const __m256 weight = _mm256_load_ps(weights + r * kSegment + e);
#pragma GCC unroll 4
          for (uint32_t t = 0; t < Tokens; ++t) part[r][t] = _mm256_fmadd_ps(weight, v[t], part[r][t]);
        }
      };
      if constexpr (Block > 0) {
#pragma GCC unroll 4
        for (size_t e = 0; e < Block; e += 32) step(e);
      } else {
        for (size_t e = 0; e < end - begin; e += 32) step(e);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kTileRows; ++r) {
        if (Fold) {
          const __m256 factor = _mm256_broadcast_ss(scales[r] + index);
#pragma GCC unroll 4
          for (uint32_t t = 0; t < Tokens; ++t) sums[t][r].part[i] = _mm256_fmadd_ps(part[r][t], factor, sums[t][r].part[i]);
        } else {
#pragma GCC unroll 4
          for (uint32_t t = 0; t < Tokens; ++t) sums[t][r].part[i] = part[r][t];
        }
      }
    }
  }
}

// Four rows and at most kTokenBlock tokens.
template <typename Row>
void tiles(const Row (&row)[kTileRows], const Shape& shape, const float* const (&scales)[kTileRows], const float* x, uint32_t tokens,
           float* y, size_t y_stride) {
  Tiles s;
  const auto set_zero = [&](Sums32 (&sums)[kTokenBlock][kTileRows]) {
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t r = 0; r < kTileRows; ++r) sums[t][r] = Sums32::zero();
    }
  };
  const auto add = [&]<bool Fold>(uint32_t begin, uint32_t end, Sums32 (*sums)[kTileRows]) {
    for (uint32_t r = 0; r < kTileRows; ++r) {
      for (uint32_t e = begin; e < end; e += 32) {
        __m256 w[4];
        row[r].load32(e, w);
        for (uint32_t i = 0; i < 4; ++i) _mm256_store_ps(s.w[r] + (e - begin) + 8 * i, w[i]);
      }
    }
    const uint32_t columns = end - begin, block = Fold ? shape.block : columns;
    const uint32_t first = begin / shape.block;
    const float* const factors[kTileRows] = {Fold ? scales[0] + first : nullptr, Fold ? scales[1] + first : nullptr,
                                             Fold ? scales[2] + first : nullptr, Fold ? scales[3] + first : nullptr};
    const float* at = x + begin;
    const auto add_tokens = [&]<uint32_t Tokens>(uint32_t t) {
      const float* next = t + Tokens < tokens ? at + size_t{t + Tokens} * shape.n : at;
      const auto add_to = Fold && block == kFp8Block && columns % kFp8Block == 0 ? tile<Tokens, Fold, kFp8Block> : tile<Tokens, Fold, 0>;
      add_to(s.w, columns, block, factors, at + size_t{t} * shape.n, shape.n, next, sums + t);
    };
    uint32_t t = 0;
    for (; tokens - t == 3 || tokens - t > 4; t += 3) add_tokens.template operator()<3>(t);
    for (; tokens - t >= 2; t += 2) add_tokens.template operator()<2>(t);
    if (t < tokens) add_tokens.template operator()<1>(t);
  };
  // Small scale blocks are folded within the tile, as many as a segment holds; the one with the last odd columns is not among them.
  uint32_t begin = 0;
  if (shape.scaled) set_zero(s.total);
  if (shape.scaled && shape.block <= kSegment) {
    const uint32_t folded = shape.whole == shape.n ? shape.n : shape.whole / shape.block * shape.block;
    const uint32_t step = kSegment / shape.block * shape.block;
    for (; begin < folded; begin += std::min(step, folded - begin)) add.template operator()<true>(begin, std::min(folded, begin + step), s.total);
  }
  if (begin < shape.n || !shape.scaled) set_zero(s.block);
  while (begin < shape.n) {
    const uint32_t block_end = begin - begin % shape.block + std::min(shape.block, shape.n - (begin - begin % shape.block));
    const uint32_t end = std::min({begin + kSegment, block_end, shape.whole});
    if (begin < end) add.template operator()<false>(begin, end, s.block);
    begin = end;
    const bool tail = begin == shape.whole && block_end > shape.whole;
    if (!tail && begin < block_end) continue;
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t r = 0; r < kTileRows; ++r) {
        if (tail) add_tail(shape, row[r].row, x + size_t{t} * shape.n, s.block[t][r].part);
        if (!shape.scaled) continue;
        fold(s.block[t][r], _mm256_set1_ps(scales[r][(block_end - 1) / shape.block]), s.total[t][r]);
        s.block[t][r] = Sums32::zero();
      }
    }
    begin = block_end;
  }
  const auto& sums = shape.scaled ? s.total : s.block;
  for (uint32_t t = 0; t < tokens; t += 2) {
    const bool pair = t + 1 < tokens;
    F32x8 eights[2 * kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r) {
      eights[r] = {sums[t][r].eight()};
      eights[r + kTileRows] = {sums[t + pair][r].eight()};
    }
    const __m256 results = tree_sums(eights).value;
    _mm_storeu_ps(y + t * y_stride, _mm256_castps256_ps128(results));
    if (pair) _mm_storeu_ps(y + (t + 1) * y_stride, _mm256_extractf128_ps(results, 1));
  }
}

template <typename MakeRow>
void product(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride,
             MakeRow&& make_row) {
  const size_t row_stride = row_bytes(w.dtype, w.cols);
  const bool scaled = w.scales != nullptr;
  const Shape shape{w.dtype, traits(w.dtype).block_bytes, x.n, x.n / 32 * 32, scaled ? std::min(w.scale_cols, x.n) : x.n, scaled};
  // Blocks of tokens of about one size: a small last one would pay for a conversion of its own.
  const uint32_t token_blocks = (x.tokens + kTokenBlock - 1) / kTokenBlock;
  const uint32_t at_once = token_blocks > 0 ? (x.tokens + token_blocks - 1) / token_blocks : 0;
  uint32_t r = row_begin;
  for (; x.tokens >= kTileTokens && r + kTileRows <= row_end; r += kTileRows) {
    const std::byte* data = w.data + r * row_stride;
    const decltype(make_row(data)) rows[kTileRows] = {make_row(data), make_row(data + row_stride), make_row(data + 2 * row_stride),
                                                      make_row(data + 3 * row_stride)};
    const float* const scales[kTileRows] = {row_scales(w, r), row_scales(w, r + 1), row_scales(w, r + 2), row_scales(w, r + 3)};
    for (uint32_t t = 0; t < x.tokens; t += at_once) {
      tiles(rows, shape, scales, x.x + size_t{t} * x.n, std::min(at_once, x.tokens - t), y + t * y_stride + r, y_stride);
    }
  }
  for (; r < row_end; ++r) {
    const auto row = make_row(w.data + r * row_stride);
    const float* scale = row_scales(w, r);
    for (uint32_t t = 0; t < x.tokens;) {
      const float* values = x.x + size_t{t} * x.n;
      float* const out = y + t * y_stride + r;
      if (x.tokens - t >= 2) {
        scaled ? one_row<2, true>(row, shape, scale, values, out, y_stride) : one_row<2, false>(row, shape, scale, values, out, y_stride);
        t += 2;
      } else {
        scaled ? one_row<1, true>(row, shape, scale, values, out, y_stride) : one_row<1, false>(row, shape, scale, values, out, y_stride);
        ++t;
      }
    }
  }
}

}  // namespace

void matmul_plain(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  TIERPACK_CHECK(scales_fit(w));
  const auto run = [&](auto make_row) { product(w, row_begin, row_end, x, y, y_stride, make_row); };
  switch (w.dtype) {
    case DType::kF32: return run([](const std::byte* row) { return F32Row{row}; });
    case DType::kF16: return run([](const std::byte* row) { return F16Row{row}; });
    case DType::kBF16: return run([](const std::byte* row) { return BF16Row{row}; });
    case DType::kF8_E4M3: return run([](const std::byte* row) { return F8Row{row}; });
    default:
      return run([&](const std::byte* row) { return DecodedRow{row, w.dtype, traits(w.dtype).block_bytes}; });
  }
}

}  // namespace tierpack::kernels::avx2_ops
