// The kernel of quantised products with many tokens, on int8 tensor cores. Only *.cu and *.cuh include this.
//
// A block of the grid is two row groups by 64 tokens, and 16 warps: warp p + 8 r has partial sums p of group r. It goes through the columns
// 256 elements at a time: the tokens' codes, scales and sums of the next 256 are on their way to shared memory, and the weights of
// the warp's next block to registers, while it computes. A token's codes are 68 words apart, which spreads the eight tokens of a
// fragment over all banks.
#pragma once

#include "runtime/kernels/cuda/block_kernels.cuh"
#include "runtime/kernels/cuda/launch.cuh"

namespace tierpack::kernels::cuda {

inline constexpr unsigned kManyThreads = kManyGroups * 8 * kWarp;
inline constexpr unsigned kManyTiles = kManyTokens / 8;
inline constexpr unsigned kTokenWords = 68;
inline constexpr unsigned kCodeWords = kManyTokens * kTokenWords;
// Scales and sums lie by block, then by token.
inline constexpr unsigned kBlockWords = kManyTokens + 4;
inline constexpr unsigned kScaleWords = 8 * kBlockWords;
inline constexpr unsigned kStageWords = kCodeWords + 2 * kScaleWords;
static_assert(kManyThreads == 8 * kManyTokens, "a thread copies a scale");
static_assert(4 * kManyGroups * 4 * kManyTiles * kWarp <= 2 * kStageWords, "partial sums meet where the stages were");

template <class D>
__global__ void __launch_bounds__(kManyThreads) many_tokens_kernel(const ProductBatch batch) {
  TIERPACK_SHARED(uint32_t, stages, 2 * kStageWords);
  const BlockOfGrid at = block_of_grid(batch);
  const ProductParameters& w = batch.product[at.product];
  const unsigned lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4, p = threadIdx.x / kWarp % 8, r = threadIdx.x / kWarp / 8;
  const unsigned group = at.block / w.grid_tokens * kManyGroups + r, first_token = at.block % w.grid_tokens * kManyTokens;
  const unsigned tokens = min(w.tokens - first_token, kManyTokens);
  const MatrixPlace place = place_of(w);
  const bool has_rows = group < w.rows / 16;
  const uint8_t* rows = place.data + (has_rows ? static_cast<size_t>(group) * 16 * w.row_bytes : 0);
  const unsigned blocks = w.columns / 32, b = p % D::blocks;

  // What this thread copies: 16 bytes of codes of two tokens, a scale and sums of a third.
  const unsigned part = threadIdx.x % 16, scale_token = threadIdx.x / 8, scale_block = threadIdx.x % 8;
  const int8_t* codes_of[2];
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned token = first_token + min(threadIdx.x / 16 + i * (kManyThreads / 16), tokens - 1);
    codes_of[i] = static_cast<const int8_t*>(w.x) + static_cast<size_t>(x_row(w, token)) * w.columns + 16 * part;
  }
  const size_t scale_first = static_cast<size_t>(x_row(w, first_token + min(scale_token, tokens - 1))) * blocks + scale_block;
  const auto copy_codes = [&](unsigned stage, unsigned first_block) {
    if (first_block + part / 2 < blocks) {
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned token = threadIdx.x / 16 + i * (kManyThreads / 16);
        copy_async_16(stages, stage * kStageWords + token * kTokenWords + 4 * part, codes_of[i] + static_cast<size_t>(first_block) * 32);
      }
    }
    copy_async_commit();
  };
  float next_scale = 0;
  int next_sums = 0;
  const auto read_scale = [&](unsigned first_block) {
    if (first_block + scale_block >= blocks) return;
    next_scale = __ldg(w.x_scale + scale_first + first_block);
    if constexpr (kReadsSums<D>) next_sums = __ldg(w.x_sum + scale_first + first_block);
  };
  const auto store_scale = [&](unsigned stage) {
    const unsigned word = stage * kStageWords + kCodeWords + scale_block * kBlockWords + scale_token;
    stages[word] = __float_as_uint(next_scale);
    if constexpr (kReadsSums<D>) stages[word + kScaleWords] = static_cast<uint32_t>(next_sums);
  };
  FieldsAhead<2> ahead;
  const auto read_fields = [&](unsigned block) {
    const GroupColumn<2> column{rows + static_cast<size_t>(block / D::blocks) * (16 * D::block_bytes), 2 * g, batch.grids};
    const Recording<GroupColumn<2>> source(column, ahead);
    fragment_of<D>(source, b, t);
  };

  float s[kManyTiles][4] = {};
  copy_codes(0, 0);
  read_scale(0);
  if (has_rows && p < blocks) read_fields(p);
  store_scale(0);
  for (unsigned first = 0, stage = 0; first < blocks; first += 8, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    const bool computes = has_rows && first + p < blocks;
    BlockFragment a{};
    if (computes) a = fragment_of<D>(Replaying<2>(ahead, batch.grids), b, t);
    if (first + 8 < blocks) {
      copy_codes(stage ^ 1, first + 8);
      read_scale(first + 8);
      if (has_rows && first + 8 + p < blocks) read_fields(first + 8 + p);
    }
    if (computes) {
      const unsigned codes = stage * kStageWords + g * kTokenWords + 8 * p + t;
      const unsigned scales = stage * kStageWords + kCodeWords + p * kBlockWords + 2 * t;
#pragma unroll
      for (unsigned tile = 0; tile < kManyTiles; ++tile) {
        if (8 * tile >= tokens) break;
        const uint2 two = load_shared<uint2>(stages, scales + 8 * tile);
        const float scale[2] = {__uint_as_float(two.x), __uint_as_float(two.y)};
        int sums[2] = {};
        if constexpr (kReadsSums<D>) {
          const uint2 both = load_shared<uint2>(stages, scales + kScaleWords + 8 * tile);
          sums[0] = static_cast<int>(both.x);
          sums[1] = static_cast<int>(both.y);
        }
        const uint32_t b0 = stages[codes + 8 * tile * kTokenWords], b1 = stages[codes + 8 * tile * kTokenWords + 4];
        add_tile<D>(a, b0, b1, scale, sums, s[tile]);
      }
    }
    if (first + 8 < blocks) store_scale(stage ^ 1);
  }
  // The tree over the warps.
#pragma unroll
  for (unsigned half = 4; half > 0; half /= 2) {
    __syncthreads();
    const unsigned word = ((p % half) * kManyGroups + r) * (4 * kManyTiles * kWarp) + lane;
    if (p >= half && p < 2 * half) {
#pragma unroll
      for (unsigned i = 0; i < 4 * kManyTiles; ++i) stages[word + i * kWarp] = __float_as_uint(s[i / 4][i % 4]);
    }
    __syncthreads();
    if (p < half) {
#pragma unroll
      for (unsigned i = 0; i < 4 * kManyTiles; ++i) s[i / 4][i % 4] = s[i / 4][i % 4] + __uint_as_float(stages[word + i * kWarp]);
    }
  }
  if (p != 0 || !has_rows) return;
#pragma unroll
  for (unsigned i = 0; i < 4 * kManyTiles; ++i) {
    const unsigned token = 8 * (i / 4) + 2 * t + i % 2;
    if (token >= tokens) continue;
    w.y[(first_token + token) * w.y_stride + static_cast<size_t>(group) * 16 + 2 * g + i % 4 / 2] = scaled_result(w, place, s[i / 4][i % 4]);
  }
}

// Queues a batch of the type of decoder D.
template <class D>
void launch_blocks(device::Stream& stream, ProductKernel kernel, const ProductBatch& batch) {
  const dim3 grid(batch.first[batch.count]);
  switch (kernel) {
    case ProductKernel::kOneToken: return launch(stream, "product", grid, kOneTokenWarps * kWarp, 0, one_token_kernel<D>, batch);
    case ProductKernel::kFewTokens: return launch(stream, "product of few tokens", grid, 8 * kWarp, 0, few_tokens_kernel<D>, batch);
    case ProductKernel::kManyTokens: return launch(stream, "product of many tokens", grid, kManyThreads, 0, many_tokens_kernel<D>, batch);
    case ProductKernel::kTailRows: return launch(stream, "product of tail rows", grid, 128, 0, tail_rows_kernel<D>, batch);
  }
}

}  // namespace tierpack::kernels::cuda
