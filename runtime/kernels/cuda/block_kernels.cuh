// Kernels of quantised products with weights that are read once: one token, and few tokens. Both read the fields of a block ahead of the
// block they compute, so that loads of two blocks are under way. Only *.cu and *.cuh include this.
#pragma once

#include "runtime/kernels/cuda/block_products.cuh"

namespace tierpack::kernels::cuda {

// The 32 codes of an activation block, their scale and sums.
struct ActivationBlock {
  uint4 low, high;
  float scale;
  int sums;
};
template <class D>
TIERPACK_DEVICE ActivationBlock activation_block(const ProductParameters& w, size_t block) {
  const uint4* codes = reinterpret_cast<const uint4*>(static_cast<const int8_t*>(w.x) + 32 * block);
  return {__ldg(codes), __ldg(codes + 1), __ldg(w.x_scale + block), kReadsSums<D> ? __ldg(w.x_sum + block) : 0};
}
TIERPACK_DEVICE uint32_t word_of(uint4 v, unsigned j) { return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w; }
TIERPACK_DEVICE int dot4(uint32_t codes, uint32_t x, int sum) { return __dp4a(static_cast<int>(codes), static_cast<int>(x), sum); }

// A block's codes times those of one activation block, for the source's rows.
template <class D, class Source>
TIERPACK_DEVICE void multiply_block(const Source& source, unsigned b, const ActivationBlock& x, BlockTerms<D> (&terms)[Source::rows]) {
  int i0[Source::rows], i1[Source::rows];
#pragma unroll
  for (unsigned r = 0; r < Source::rows; ++r) {
    i0[r] = first_value<D>(x.sums, 0);
    i1[r] = kHalves<D> ? first_value<D>(x.sums, 1) : 0;
  }
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) {
    const auto words = D::words(source, b, j);
#pragma unroll
    for (unsigned r = 0; r < Source::rows; ++r) {
      i0[r] = dot4(words.first.of[r], word_of(x.low, j), i0[r]);
      int& second = kHalves<D> ? i1[r] : i0[r];
      second = dot4(words.second.of[r], word_of(x.high, j), second);
    }
  }
  BlockScales<Source::rows> scales;
  D::scales(source, b, scales);
#pragma unroll
  for (unsigned r = 0; r < Source::rows; ++r) terms[r] = terms_of<D>(scales, r, i0[r], i1[r], x.scale, x.sums);
}

// Asks a recording source for what multiply_block asks for.
template <class D, class Source>
TIERPACK_DEVICE void read_block(const Source& source, unsigned b) {
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) D::words(source, b, j);
  BlockScales<Source::rows> unused;
  D::scales(source, b, unused);
}

// Warps of a block that go through the columns of a row group in turns, 256 elements each, hand what their blocks add to the first of
// them, which adds it in order. For a part of the turn and a lane: kTerms times a of four rows and b of four rows.
template <class D>
inline constexpr unsigned kTurnWords = 8 * kTerms<D> * kWarp;

template <class D>
TIERPACK_DEVICE void hand_over(SharedPointer<float> words, unsigned lane, const BlockTerms<D> (&terms)[4]) {
#pragma unroll
  for (unsigned k = 0; k < kTerms<D>; ++k) {
    store_shared(words, (2 * k * kWarp + lane) * 4, make_float4(terms[0].a[k], terms[1].a[k], terms[2].a[k], terms[3].a[k]));
    store_shared(words, ((2 * k + 1) * kWarp + lane) * 4, make_float4(terms[0].b[k], terms[1].b[k], terms[2].b[k], terms[3].b[k]));
  }
}
template <class D>
TIERPACK_DEVICE void take_over(SharedPointer<float> words, unsigned lane, Floats<4>& s) {
#pragma unroll
  for (unsigned k = 0; k < kTerms<D>; ++k) {
    const float4 a = load_shared<float4>(words, (2 * k * kWarp + lane) * 4), b = load_shared<float4>(words, ((2 * k + 1) * kWarp + lane) * 4);
    s.of[0] = __fmaf_rn(a.x, b.x, s.of[0]);
    s.of[1] = __fmaf_rn(a.y, b.y, s.of[1]);
    s.of[2] = __fmaf_rn(a.z, b.z, s.of[2]);
    s.of[3] = __fmaf_rn(a.w, b.w, s.of[3]);
  }
}

// A warp, or batch.turns of them, is a row group, and lane 4 p + q has partial sum p of the rows 4 q .. 4 q + 3: a unit is 64 contiguous
// bytes of four lanes.
template <class D>
__global__ void __launch_bounds__(kOneTokenWarps * kWarp, 2) one_token_kernel(const ProductBatch batch) {
  TIERPACK_SHARED(float, handed, 2 * kOneTokenWarps * kTurnWords<D>);
  const BlockOfGrid at = block_of_grid(batch);
  const ProductParameters& w = batch.product[at.product];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, first_row = 4 * (lane % 4), p = lane / 4;
  const unsigned turns = batch.turns, turn = warp % turns, step = 8 * turns;
  const unsigned group = (at.block * kOneTokenWarps + warp) / turns;
  const MatrixPlace place = place_of(w);
  const uint8_t* rows = place.data + static_cast<size_t>(group) * 16 * w.row_bytes;
  const unsigned columns = w.columns / 32, b = p % D::blocks;
  const unsigned blocks = group < w.rows / 16 ? columns : 0;
  const size_t x_first = static_cast<size_t>(x_row(w, 0)) * columns;

  FieldsAhead<4> ahead;
  ActivationBlock x_ahead{};
  const auto read = [&](unsigned block) {
    const GroupColumn<4> column{rows + static_cast<size_t>(block / D::blocks) * (16 * D::block_bytes), first_row, batch.grids};
    const Recording<GroupColumn<4>> source(column, ahead);
    read_block<D>(source, b);
    x_ahead = activation_block<D>(w, x_first + block);
  };
  Floats<4> s{};
  if (8 * turn + p < blocks) read(8 * turn + p);
  for (unsigned first = 0, buffer = 0; first < columns; first += step, buffer ^= 1) {
    const unsigned block = first + 8 * turn + p;
    BlockTerms<D> terms[4] = {};
    if (block < blocks) {
      const FieldsAhead<4> fields = ahead;
      const ActivationBlock x = x_ahead;
      if (block + step < blocks) read(block + step);
      multiply_block<D>(Replaying<4>(fields, batch.grids), b, x, terms);
    }
    if (turns > 1) {
      // Two buffers: who writes the one has passed the barrier before which the other was read.
      const SharedPointer<float> words = handed + (buffer * kOneTokenWarps + warp) * kTurnWords<D>;
      if (turn != 0) hand_over<D>(words, lane, terms);
      __syncthreads();
      if (turn != 0) continue;
    }
    if (block >= blocks) continue;
#pragma unroll
    for (unsigned r = 0; r < 4; ++r) s.of[r] = with_terms<D>(s.of[r], terms[r]);
    for (unsigned other = 1; other < turns && block + 8 * other < blocks; ++other) {
      take_over<D>(handed + (buffer * kOneTokenWarps + warp + other) * kTurnWords<D>, lane, s);
    }
  }
#pragma unroll
  for (unsigned r = 0; r < 4; ++r) {
#pragma unroll
    for (int half = 16; half >= 4; half /= 2) s.of[r] = s.of[r] + __shfl_xor_sync(kFullWarp, s.of[r], half);
  }
  if (turn != 0 || p != 0 || blocks == 0) return;
#pragma unroll
  for (unsigned r = 0; r < 4; ++r) w.y[static_cast<size_t>(group) * 16 + first_row + r] = scaled_result(w, place, s.of[r]);
}

// The A fragment of a block: rows 2g and 2g + 1 of a group as rows g and g + 8, and its scales.
struct BlockFragment {
  WordPair<2> words;
  BlockScales<2> scales;
};
template <class D, class Source>
TIERPACK_DEVICE BlockFragment fragment_of(const Source& source, unsigned b, unsigned t) {
  BlockFragment fragment;
  fragment.words = D::words(source, b, t);
  D::scales(source, b, fragment.scales);
  return fragment;
}

// Adds a block's products with 8 tokens to the partial sums of rows 2g (s[0], s[1]) and 2g + 1, tokens 2t and 2t + 1; x_scale and
// x_sums are those of these tokens, b0 and b1 words t and t + 4 of token g.
template <class D>
TIERPACK_DEVICE void add_tile(const BlockFragment& a, uint32_t b0, uint32_t b1, const float (&x_scale)[2], const int (&x_sums)[2], float (&s)[4]) {
  int d[2][4];
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    d[0][i] = first_value<D>(x_sums[i % 2], 0);
    d[1][i] = kHalves<D> ? first_value<D>(x_sums[i % 2], 1) : 0;
  }
  if constexpr (kHalves<D>) {
    mma_s8_16x8x16(d[0], a.words.first.of[0], a.words.first.of[1], b0);
    mma_s8_16x8x16(d[1], a.words.second.of[0], a.words.second.of[1], b1);
  } else {
    const uint32_t fragment[4] = {a.words.first.of[0], a.words.first.of[1], a.words.second.of[0], a.words.second.of[1]};
    const uint32_t x[2] = {b0, b1};
    mma_s8_16x8x32(d[0], fragment, x);
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) s[i] = with_terms<D>(s[i], terms_of<D>(a.scales, i / 2, d[0][i], d[1][i], x_scale[i % 2], x_sums[i % 2]));
}

// A block of the grid is 16 rows by 8 tokens; warp p has partial sums p.
template <class D>
__global__ void __launch_bounds__(8 * kWarp, 2) few_tokens_kernel(const ProductBatch batch) {
  TIERPACK_SHARED(float, partial, 8 * 128);
  const BlockOfGrid at = block_of_grid(batch);
  const ProductParameters& w = batch.product[at.product];
  const unsigned lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4, p = threadIdx.x / kWarp;
  const unsigned group = at.block / w.grid_tokens, first_token = at.block % w.grid_tokens * kFewTokens;
  const MatrixPlace place = place_of(w);
  const uint8_t* rows = place.data + static_cast<size_t>(group) * 16 * w.row_bytes;
  const unsigned blocks = w.columns / 32, b = p % D::blocks, last = w.tokens - 1;
  const size_t x_of_g = static_cast<size_t>(x_row(w, min(first_token + g, last))) * blocks;
  const size_t x_of_t[2] = {static_cast<size_t>(x_row(w, min(first_token + 2 * t, last))) * blocks,
                            static_cast<size_t>(x_row(w, min(first_token + 2 * t + 1, last))) * blocks};

  FieldsAhead<2> ahead;
  uint32_t x_ahead[2] = {};
  float scale_ahead[2] = {};
  int sums_ahead[2] = {};
  const auto read = [&](unsigned block) {
    const GroupColumn<2> column{rows + static_cast<size_t>(block / D::blocks) * (16 * D::block_bytes), 2 * g, batch.grids};
    const Recording<GroupColumn<2>> source(column, ahead);
    fragment_of<D>(source, b, t);
    const uint32_t* codes = static_cast<const uint32_t*>(w.x) + 8 * (x_of_g + block) + t;
    x_ahead[0] = __ldg(codes);
    x_ahead[1] = __ldg(codes + 4);
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      scale_ahead[i] = __ldg(w.x_scale + x_of_t[i] + block);
      if constexpr (kReadsSums<D>) sums_ahead[i] = __ldg(w.x_sum + x_of_t[i] + block);
    }
  };
  float s[4] = {};
  if (p < blocks) read(p);
  for (unsigned block = p; block < blocks; block += 8) {
    const FieldsAhead<2> fields = ahead;
    const uint32_t x[2] = {x_ahead[0], x_ahead[1]};
    const float scale[2] = {scale_ahead[0], scale_ahead[1]};
    const int sums[2] = {sums_ahead[0], sums_ahead[1]};
    if (block + 8 < blocks) read(block + 8);
    add_tile<D>(fragment_of<D>(Replaying<2>(fields, batch.grids), b, t), x[0], x[1], scale, sums, s);
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) partial[p * 128 + (2 * t + i % 2) * 16 + 2 * g + i / 2] = s[i];
  __syncthreads();
  const unsigned i = threadIdx.x;
  if (i >= 128 || first_token + i / 16 > last) return;
  float sum[8];
#pragma unroll
  for (unsigned k = 0; k < 8; ++k) sum[k] = partial[k * 128 + i];
#pragma unroll
  for (unsigned half = 4; half > 0; half /= 2) {
#pragma unroll
    for (unsigned k = 0; k < half; ++k) sum[k] = sum[k] + sum[k + half];
  }
  w.y[(first_token + i / 16) * w.y_stride + static_cast<size_t>(group) * 16 + i % 16] = scaled_result(w, place, sum[0]);
}

// Rows behind the last whole group, at most 15, by 4 tokens: thread 8 r + p has partial sum p of row r.
template <class D>
__global__ void __launch_bounds__(128, 4) tail_rows_kernel(const ProductBatch batch) {
  const BlockOfGrid at = block_of_grid(batch);
  const ProductParameters& w = batch.product[at.product];
  const unsigned p = threadIdx.x % 8, first_token = at.block * kTailTokens, last = w.tokens - 1;
  const unsigned own_row = w.rows / 16 * 16 + threadIdx.x / 8;
  const unsigned row = min(own_row, w.rows - 1);
  const MatrixPlace place = place_of(w);
  const uint8_t* data = place.data + row * w.row_bytes;
  const unsigned blocks = w.columns / 32, b = p % D::blocks;
  size_t x_first[kTailTokens];
#pragma unroll
  for (unsigned k = 0; k < kTailTokens; ++k) x_first[k] = static_cast<size_t>(x_row(w, min(first_token + k, last))) * blocks;

  float s[kTailTokens] = {};
  for (unsigned block = p; block < blocks; block += 8) {
    const PlainBlock source{data + static_cast<size_t>(block / D::blocks) * D::block_bytes, batch.grids};
#pragma unroll
    for (unsigned k = 0; k < kTailTokens; ++k) {
      BlockTerms<D> terms[1];
      multiply_block<D>(source, b, activation_block<D>(w, x_first[k] + block), terms);
      s[k] = with_terms<D>(s[k], terms[0]);
    }
  }
#pragma unroll
  for (unsigned k = 0; k < kTailTokens; ++k) {
    float y = s[k];
#pragma unroll
    for (int half = 4; half > 0; half /= 2) y = y + __shfl_xor_sync(kFullWarp, y, half);
    if (p == 0 && own_row < w.rows && first_token + k <= last) w.y[(first_token + k) * w.y_stride + own_row] = scaled_result(w, place, y);
  }
}

}  // namespace tierpack::kernels::cuda
