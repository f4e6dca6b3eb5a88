#include "runtime/model/sparse_attention.h"

#include <algorithm>

namespace tierpack::model {

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

  // Scores of all queries over all blocks; a row per query, as long as the last query's blocks.
  const size_t blocks = complete_blocks(pass.chunk.position(first + count - 1), ratio);
  for_ranges(pass.compute, count * blocks, uint64_t{heads} * dim * kElementCost / 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t query = i / blocks;
      const float* const key = state.block_keys + i % blocks * dim;
      const float* const q = s.index_q + (first + query) * heads * dim;
      float score = 0;
      for (uint32_t h = 0; h < heads; ++h) score += std::max(k.dot(q + size_t{h} * dim, key, dim), 0.0f);
      s.scores[i] = score;
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
