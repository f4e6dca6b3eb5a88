#include "runtime/model/attention.h"

#include <algorithm>
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
  const size_t key = size_t{c.kv_heads} * dim;
  const uint64_t element = kv_element_bytes(kv_type);
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
        float* const head = s.k + t * key + size_t{h} * dim;
        k.rms_norm(head, w.k_norm, c.norm_eps, dim, head);
        k.rope(head, cos, sin, pairs);
      }
      const uint64_t at = pass.chunk.position(t) * key * element;
      k.store_kv(s.k + t * key, static_cast<uint32_t>(key), kv_type, state.keys + at);
      k.store_kv(s.v + t * key, static_cast<uint32_t>(key), kv_type, state.values + at);
    }
  });
}

// Softmax attention and output gate of queries [first, first + count), every head. `visible` row i belongs to query
// first + i; null = everything up to the query.
void attend_heads(const Pass& pass, const AttentionWeights& w, const AttentionState& state, kernels::KvType kv_type,
                  uint32_t first, uint32_t count, const uint32_t* visible, const uint32_t* visible_count) {
  const ModelConfig& c = pass.config;
  const kernels::KernelTable& k = pass.compute.k;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t dim = c.head_dim;
  const uint32_t group = c.heads / c.kv_heads;
  const size_t query_stride = w.gated ? 2 * size_t{dim} : dim;
  const size_t key = size_t{c.kv_heads} * dim;
  const uint64_t element = kv_element_bytes(kv_type);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const size_t stride = s.visible_stride;
  const uint64_t seen = visible != nullptr ? stride : pass.chunk.position(first + count - 1) + 1;
  for_ranges(pass.compute, size_t{count} * c.heads, seen * dim * kElementCost / 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t query = i / c.heads;
      const size_t h = i % c.heads;
      const size_t token = first + query;
      const float* const q = s.q + (token * c.heads + h) * query_stride;
      const uint64_t head_at = h / group * dim * element;
      float* const out = s.heads.row(token) + h * dim;
      const uint32_t* const list = visible == nullptr ? nullptr : visible + query * stride;
      const uint32_t n = visible == nullptr ? pass.chunk.position(token) + 1 : visible_count[query];
      k.attention(q, state.keys + head_at, state.values + head_at, kv_type, key, dim, list, n, scale, out);
      if (w.gated) k.sigmoid_mul(q + dim, out, dim, out);
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
  const uint32_t budget = c.indexer.budget;
  // Queries see more the later they are: the first `dense` of the chunk see everything.
  uint32_t dense = tokens;
  while (dense > 0 && is_sparse(pass.chunk.position(dense - 1), ratio, budget)) --dense;

  project(pass, w, state, dense < tokens);
  normalise_and_store(pass, w, state, kv_type);
  if (ratio > 0) update_block_keys(pass, w, state);

  if (dense > 0) {
    attend_heads(pass, w, state, kv_type, 0, dense, nullptr, nullptr);
    if (pass.chunk.observer != nullptr) report(pass, block, 0, dense, nullptr, 0, nullptr);
  }
  if (dense < tokens) prepare_index_queries(pass, w);
  AttentionScratch& s = pass.ws.attention;
  for (uint32_t first = dense; first < tokens; first += kSparseQueries) {
    const uint32_t count = std::min(kSparseQueries, tokens - first);
    select_visible(pass, w, state, first, count);
    attend_heads(pass, w, state, kv_type, first, count, s.visible, s.visible_count);
    if (pass.chunk.observer != nullptr) {
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
