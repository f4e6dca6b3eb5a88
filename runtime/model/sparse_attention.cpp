#include "runtime/model/sparse_attention.h"

#include <algorithm>
#include <array>

namespace tierpack::model {

namespace {

constexpr uint32_t kKeysPerPiece = 32;

}  // namespace

void update_block_keys(const Pass& pass, const AttentionWeights& weights, const AttentionState& state) {
  const kernels::KernelTable& k = pass.compute.k;
  const uint32_t dim = pass.config.indexer.head_dim;
  const uint32_t ratio = weights.compress_ratio;
  const uint32_t pairs = pass.config.rotary_dim / 2;
  const uint32_t rows = tail_tokens(pass.chunk, ratio) + pass.chunk.tokens;
  const uint32_t first_block = pass.chunk.first / ratio;
  const float* const raw = pass.ws.attention.index_raw;
  for_ranges(pass.compute, rows / ratio, uint64_t{ratio} * dim * kElementCost + pairs * 400, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const float* const first = raw + b * ratio * dim;
      float* const key = state.block_keys + (first_block + b) * dim;
      std::copy_n(first, dim, key);
      for (uint32_t i = 1; i < ratio; ++i) k.add(key, first + size_t{i} * dim, dim, key);
      k.scale(key, 1.0f / static_cast<float>(ratio), dim, key);
      k.rms_norm(key, weights.indexer.k_norm, pass.config.norm_eps, dim, key);
      float cos[kMaxRotaryPairs];
      float sin[kMaxRotaryPairs];
      kernels::rope_row(pass.inv_freq, pairs, static_cast<uint32_t>((first_block + b) * ratio), cos, sin);
      k.rope(key, cos, sin, pairs);
    }
  });
  const uint32_t left = rows % ratio;
  std::copy_n(raw + size_t{rows - left} * dim, size_t{left} * dim, state.index_tail);
}

void prepare_index_queries(const Pass& pass, const AttentionWeights& weights) {
  const kernels::KernelTable& k = pass.compute.k;
  const uint32_t heads = pass.config.indexer.heads;
  const uint32_t dim = pass.config.indexer.head_dim;
  const uint32_t pairs = pass.config.rotary_dim / 2;
  for_ranges(pass.compute, size_t{pass.chunk.tokens} * heads, dim * kElementCost, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      float* const q = pass.ws.attention.index_q + i * dim;
      const size_t token = i / heads;
      k.rms_norm(q, weights.indexer.q_norm, pass.config.norm_eps, dim, q);
      k.rope(q, pass.ws.cos + token * pairs, pass.ws.sin + token * pairs, pairs);
    }
  });
}

void select_visible(const Pass& pass, const AttentionWeights& weights, const AttentionState& state, uint32_t first,
                    uint32_t count) {
  const kernels::KernelTable& k = pass.compute.k;
  const uint32_t heads = pass.config.indexer.heads;
  const uint32_t dim = pass.config.indexer.head_dim;
  const uint32_t ratio = weights.compress_ratio;
  const uint32_t keep = pass.config.indexer.budget / ratio;
  AttentionScratch& s = pass.ws.attention;

  // Scores of all queries over all blocks: a product of the block keys with every query's heads, some keys at a time, so that
  // its results stay near. A row per query, as long as the last query's blocks.
  const size_t blocks = complete_blocks(pass.chunk.position(first + count - 1), ratio);
  kernels::ActivationView queries;
  queries.tokens = count * heads;
  queries.n = dim;
  queries.x = s.index_q + size_t{first} * heads * dim;
  const size_t pieces = (blocks + kKeysPerPiece - 1) / kKeysPerPiece;
  for_ranges(pass.compute, pieces, uint64_t{kKeysPerPiece} * queries.tokens * dim * kElementCost / 4, [&](size_t begin, size_t end) {
    std::array<float, size_t{kKeysPerPiece} * kSparseQueries * kMaxIndexHeads> dots;
    for (size_t piece = begin; piece < end; ++piece) {
      const size_t first_block = piece * kKeysPerPiece;
      const auto rows = static_cast<uint32_t>(std::min<size_t>(kKeysPerPiece, blocks - first_block));
      const MatrixView keys{DType::kF32, reinterpret_cast<const std::byte*>(state.block_keys + first_block * dim), rows, dim};
      k.matmul(keys, 0, rows, queries, dots.data(), kKeysPerPiece);
      for (uint32_t query = 0; query < count; ++query) {
        float* const scores = s.scores + query * blocks + first_block;
        for (uint32_t b = 0; b < rows; ++b) {
          const float* const dot = dots.data() + size_t{query} * heads * kKeysPerPiece + b;
          float score = 0;
          for (uint32_t h = 0; h < heads; ++h) score += std::max(dot[size_t{h} * kKeysPerPiece], 0.0f);
          scores[b] = score;
        }
      }
    }
  });

  for_ranges(pass.compute, count, blocks * kElementCost, [&](size_t begin, size_t end) {
    for (size_t query = begin; query < end; ++query) {
      const uint32_t position = pass.chunk.position(first + query);
      const uint32_t seen = complete_blocks(position, ratio);
      uint32_t* const picked = s.picked + query * keep;
      kernels::top_k(s.scores + query * blocks, seen, keep, picked);
      std::sort(picked, picked + keep);
      uint32_t* const visible = s.visible + query * s.visible_stride;
      uint32_t n = 0;
      for (uint32_t b = 0; b < keep; ++b) {
        for (uint32_t i = 0; i < ratio; ++i) visible[n++] = picked[b] * ratio + i;
      }
      for (uint32_t p = seen * ratio; p <= position; ++p) visible[n++] = p;
      s.visible_count[query] = n;
    }
  });
}

}  // namespace tierpack::model
