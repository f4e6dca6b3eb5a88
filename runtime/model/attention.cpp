#include "runtime/model/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/engine.h"
#include "runtime/model/sparse_attention.h"

namespace tierpack::model {

namespace {

// Projections of the chunk, into the attention scratch.
void project(const Pass& pass, const AttentionWeights& w, const AttentionState& state, bool sparse) {
  const ModelConfig& c = pass.config;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t tokens = pass.chunk.tokens;
  quantize_for(pass.compute, pass.ws.x, tokens, w.q, w.k, w.v, w.indexer.q, w.indexer.k);
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  const size_t key = size_t{c.kv_heads} * c.head_dim;
  Product products[5] = {{&w.q, x, s.q, w.q.rows}, {&w.k, x, s.k, key}, {&w.v, x, s.v, key}};
  size_t count = 3;
  if (w.compress_ratio > 0) {
    const size_t dim = c.indexer.head_dim;
    const size_t tail = tail_tokens(pass.chunk, w.compress_ratio) * dim;
    std::copy_n(state.index_tail, tail, s.index_raw);
    products[count++] = {&w.indexer.k, x, s.index_raw + tail, dim};
    if (sparse) products[count++] = {&w.indexer.q, x, s.index_q, w.indexer.q.rows};
  }
  run_products(pass.compute, std::span(products, count));
}

// RMSNorm and rotation of every head; keys and values into the cache.
void normalise_and_store(const Pass& pass, const AttentionWeights& w, const AttentionState& state,
                         kernels::KvType kv_type) {
  const ModelConfig& c = pass.config;
  const kernels::KernelTable& k = pass.compute.k;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t dim = c.head_dim;
  const uint32_t pairs = c.rotary_dim / 2;
  const size_t query_stride = w.gated ? 2 * size_t{dim} : dim;
  const uint64_t row_bytes = kernels::kv_row_bytes(kv_type, dim);
  for_ranges(pass.compute, pass.chunk.tokens, (size_t{c.heads} + 2 * c.kv_heads) * dim * kElementCost,
             [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const float* const cos = pass.ws.cos + t * pairs;
      const float* const sin = pass.ws.sin + t * pairs;
      for (uint32_t h = 0; h < c.heads; ++h) {
        float* const q = s.q + (t * c.heads + h) * query_stride;
        k.rms_norm(q, w.q_norm, c.norm_eps, dim, q);
        k.rope(q, cos, sin, pairs);
      }
      for (uint32_t h = 0; h < c.kv_heads; ++h) {
        const size_t head = t * c.kv_heads + h;
        float* const key = s.k + head * dim;
        k.rms_norm(key, w.k_norm, c.norm_eps, dim, key);
        k.rope(key, cos, sin, pairs);
        const uint64_t at = (uint64_t{h} * state.capacity + pass.chunk.position(t)) * row_bytes;
        k.store_kv(key, dim, kv_type, state.keys + at);
        k.store_kv(s.v + head * dim, dim, kv_type, state.values + at);
      }
    }
  });
}

// The work of attend_heads in pieces: some query heads of one KV head, at some consecutive tokens that see the same list.
struct Pieces {
  Pieces(const Compute& compute, const ModelConfig& c, uint32_t tokens, bool listed)
      : group(c.heads / c.kv_heads) {
    // Every head of the KV head together, unless there are fewer such pieces than threads.
    const uint32_t groups = (listed ? tokens : (tokens + 1) / 2) * c.kv_heads;
    const auto threads = static_cast<uint32_t>(compute.team.size());
    const uint32_t splits = std::min(group, groups < threads ? (threads + groups - 1) / groups : 1);
    heads = std::min((group + splits - 1) / splits, kernels::kAttentionQueries);
    head_pieces = (group + heads - 1) / heads;
    piece_tokens = listed ? 1 : std::clamp(kernels::kAttentionQueries / heads, 1u, tokens);
    token_pieces = (tokens + piece_tokens - 1) / piece_tokens;
    count = size_t{c.kv_heads} * head_pieces * token_pieces;
  }
  uint32_t group;         // query heads of a KV head
  uint32_t heads;         // of them in a piece
  uint32_t head_pieces;
  uint32_t piece_tokens;  // tokens in a piece
  uint32_t token_pieces;
  size_t count;           // token pieces run fastest, so that one thread stays with one KV head
};

// Softmax attention and output gate of queries [first, first + count), every head. `visible` row i belongs to query
// first + i; null = everything up to the query.
void attend_heads(const Pass& pass, const AttentionWeights& w, const AttentionState& state, kernels::KvType kv_type,
                  uint32_t first, uint32_t count, const uint32_t* visible, const uint32_t* visible_count) {
  const ModelConfig& c = pass.config;
  const kernels::KernelTable& k = pass.compute.k;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t dim = c.head_dim;
  const size_t query_stride = w.gated ? 2 * size_t{dim} : dim;
  const uint64_t row_bytes = kernels::kv_row_bytes(kv_type, dim);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const uint64_t seen = visible != nullptr ? s.visible_stride : pass.chunk.position(first + count - 1) + 1;
  const Pieces pieces(pass.compute, c, count, visible != nullptr);
  const uint64_t cost = uint64_t{pieces.heads} * pieces.piece_tokens * seen * dim * kElementCost / 4;
  for_ranges(pass.compute, pieces.count, cost, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto token_begin = static_cast<uint32_t>(i % pieces.token_pieces) * pieces.piece_tokens;
      const uint32_t token_end = std::min(token_begin + pieces.piece_tokens, count);
      const size_t head_piece = i / pieces.token_pieces;
      const size_t kv_head = head_piece / pieces.head_pieces;
      const auto head_begin = static_cast<uint32_t>(head_piece % pieces.head_pieces) * pieces.heads;
      const uint32_t head_end = std::min(head_begin + pieces.heads, pieces.group);

      std::array<kernels::AttentionQuery, kernels::kAttentionQueries> queries;
      uint32_t n = 0;
      for (uint32_t t = token_begin; t < token_end; ++t) {
        const size_t token = size_t{first} + t;
        const uint32_t sees = visible == nullptr ? pass.chunk.position(token) + 1 : visible_count[t];
        for (uint32_t h = head_begin; h < head_end; ++h) {
          const size_t head = kv_head * pieces.group + h;
          queries[n++] = {s.q + (token * c.heads + head) * query_stride, s.heads.row(token) + head * dim, sees};
        }
      }
      const uint64_t at = kv_head * state.capacity * row_bytes;
      const kernels::KvView cache{kv_type, state.keys + at, state.values + at, row_bytes, dim};
      k.attention(queries.data(), n, cache, visible == nullptr ? nullptr : visible + token_begin * s.visible_stride, scale);
      if (!w.gated) continue;
      for (uint32_t q = 0; q < n; ++q) k.sigmoid_mul(queries[q].q + dim, queries[q].out, dim, queries[q].out);
    }
  });
}

void report(const Pass& pass, uint32_t block, uint32_t first, uint32_t count, const uint32_t* visible, size_t stride,
            const uint32_t* visible_count) {
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t position = pass.chunk.position(first + i);
    if (visible != nullptr) {
      pass.chunk.observer->on_attend(block, position, std::span(visible + i * stride, visible_count[i]));
      continue;
    }
    all.resize(size_t{position} + 1);
    std::iota(all.begin(), all.end(), 0u);
    pass.chunk.observer->on_attend(block, position, all);
  }
}

}  // namespace

void attend(const Pass& pass, const AttentionWeights& w, const AttentionState& state, kernels::KvType kv_type,
            uint32_t block) {
  const ModelConfig& c = pass.config;
  const uint32_t tokens = pass.chunk.tokens;
  const uint32_t ratio = w.compress_ratio;
  const bool observed = pass.chunk.observer != nullptr && pass.chunk.observer->wants_attention();
  const uint32_t dense = dense_tokens(pass.chunk, ratio, c.indexer.budget);

  project(pass, w, state, dense < tokens);
  normalise_and_store(pass, w, state, kv_type);
  if (ratio > 0) update_block_keys(pass, w, state);

  if (dense > 0) {
    attend_heads(pass, w, state, kv_type, 0, dense, nullptr, nullptr);
    if (observed) report(pass, block, 0, dense, nullptr, 0, nullptr);
  }
  if (dense < tokens) prepare_index_queries(pass, w);
  AttentionScratch& s = pass.ws.attention;
  for (uint32_t first = dense; first < tokens; first += kSparseQueries) {
    const uint32_t count = std::min(kSparseQueries, tokens - first);
    select_visible(pass, w, state, first, count);
    attend_heads(pass, w, state, kv_type, first, count, s.visible, s.visible_count);
    if (observed) {
      report(pass, block, first, count, s.visible, s.visible_stride, s.visible_count);
    }
  }

  quantize_for(pass.compute, s.heads, tokens, w.output);
  const Product output[] = {{&w.output, s.heads.view(0, tokens), pass.ws.y, c.hidden}};
  run_products(pass.compute, output);
}

void prepare_rotation(const Pass& pass) {
  const uint32_t pairs = pass.config.rotary_dim / 2;
  for_ranges(pass.compute, pass.chunk.tokens, uint64_t{pairs} * 400, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      kernels::rope_row(pass.inv_freq, pairs, pass.chunk.position(t), pass.ws.cos + t * pairs, pass.ws.sin + t * pairs);
    }
  });
}

}  // namespace tierpack::model
