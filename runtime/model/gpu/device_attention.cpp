// Softmax attention on a GPU, dense or over what the indexer selects: attention.cpp and sparse_attention.cpp in whole chunks.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/engine.h"
#include "runtime/model/gpu/device_pass.h"
#include "runtime/model/sparse_attention.h"

namespace tierpack::model {

namespace {

// Projections of the chunk, into the attention scratch.
void project(const DevicePass& pass, const AttentionWeights& w, const AttentionState& state, bool sparse) {
  const ModelConfig& c = pass.config;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t tokens = pass.chunk.tokens;
  quantize_for(pass, pass.ws.x, 0, tokens, w.q, w.k, w.v, w.indexer.q, w.indexer.k);
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  const size_t key = size_t{c.kv_heads} * c.head_dim;
  std::array<gpu::DeviceProduct, 5> products = {product(w.q, x, s.q, w.q.rows), product(w.k, x, s.k, key), product(w.v, x, s.v, key)};
  size_t count = 3;
  if (w.compress_ratio > 0) {
    const size_t dim = c.indexer.head_dim;
    const size_t tail = tail_tokens(pass.chunk, w.compress_ratio) * dim;
    pass.stream.copy_on_device(s.index_raw, state.index_tail, tail * sizeof(float));
    products[count++] = product(w.indexer.k, x, s.index_raw + tail, dim);
    if (sparse) products[count++] = product(w.indexer.q, x, s.index_q, w.indexer.q.rows);
  }
  multiply(pass, std::span(products).first(count));
}

// RMSNorm and rotation of every head; keys and values into the cache.
void normalise_and_store(const DevicePass& pass, const AttentionWeights& w, const AttentionState& state, kernels::KvType kv_type) {
  const ModelConfig& c = pass.config;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t tokens = pass.chunk.tokens;
  const uint32_t pairs = c.rotary_dim / 2;
  const size_t query_stride = w.gated ? 2 * size_t{c.head_dim} : c.head_dim;
  gpu::norm_rope(pass.stream, s.q, query_stride, tokens, c.heads, c.head_dim, w.q_norm, c.norm_eps, pass.ws.cos, pass.ws.sin, pairs);
  gpu::norm_rope(pass.stream, s.k, c.head_dim, tokens, c.kv_heads, c.head_dim, w.k_norm, c.norm_eps, pass.ws.cos, pass.ws.sin, pairs);
  gpu::store_kv(pass.stream, s.k, s.v, tokens, c.kv_heads, c.head_dim, kv_type, pass.chunk.first, state.capacity, state.keys, state.values);
}

// Keys of the blocks that this chunk completes, and the new tail.
void update_block_keys(const DevicePass& pass, const AttentionWeights& w, const AttentionState& state) {
  const uint32_t dim = pass.config.indexer.head_dim;
  const uint32_t ratio = w.compress_ratio;
  const uint32_t pairs = pass.config.rotary_dim / 2;
  const uint32_t rows = tail_tokens(pass.chunk, ratio) + pass.chunk.tokens;
  const uint32_t first_block = pass.chunk.first / ratio;
  const float* const raw = pass.ws.attention.index_raw;
  if (const uint32_t blocks = rows / ratio; blocks > 0) {
    gpu::rope_table(pass.stream, pass.scratch.inv_freq, pairs, first_block * ratio, ratio, blocks, pass.scratch.block_cos, pass.scratch.block_sin);
    gpu::index_keys(pass.stream, raw, blocks, ratio, dim, w.indexer.k_norm, pass.config.norm_eps, pass.scratch.block_cos,
                    pass.scratch.block_sin, pairs, state.block_keys + size_t{first_block} * dim);
  }
  const uint32_t left = rows % ratio;
  pass.stream.copy_on_device(state.index_tail, raw + size_t{rows - left} * dim, size_t{left} * dim * sizeof(float));
}

// Attention and output gate of queries [first, first + count). `sparse`: over the visible lists of the scratch.
void attend_heads(const DevicePass& pass, const AttentionWeights& w, const AttentionState& state, kernels::KvType kv_type, uint32_t first,
                  uint32_t count, bool sparse) {
  const ModelConfig& c = pass.config;
  AttentionScratch& s = pass.ws.attention;
  gpu::AttentionArgs args;
  args.q_stride = w.gated ? 2 * size_t{c.head_dim} : c.head_dim;
  args.q = s.q + size_t{first} * c.heads * args.q_stride;
  args.gate = w.gated ? args.q + c.head_dim : nullptr;
  args.out = s.heads.row(first);
  args.tokens = count;
  args.heads = c.heads;
  args.kv_heads = c.kv_heads;
  args.dim = c.head_dim;
  args.type = kv_type;
  args.keys = state.keys;
  args.values = state.values;
  args.capacity = state.capacity;
  args.first = pass.chunk.position(first);
  if (sparse) {
    args.visible = s.visible;
    args.visible_stride = s.visible_stride;
    args.visible_count = s.visible_count;
    args.visible_most = static_cast<uint32_t>(s.visible_stride);
  }
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  args.scratch = pass.scratch.attention;
  args.scratch_bytes = pass.scratch.attention_bytes;
  gpu::attention(pass.stream, args);
}

// The blocks that queries [first, first + count) attend to, all of them sparse, into the visible lists.
void select_visible(const DevicePass& pass, const AttentionWeights& w, const AttentionState& state, uint32_t first, uint32_t count) {
  const ModelConfig& c = pass.config;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t ratio = w.compress_ratio;
  const uint32_t blocks = complete_blocks(pass.chunk.position(first + count - 1), ratio);
  gpu::index_scores(pass.stream, s.index_q + size_t{first} * c.indexer.heads * c.indexer.head_dim, count, c.indexer.heads, c.indexer.head_dim,
                    state.block_keys, blocks, s.scores);
  gpu::select_blocks(pass.stream, s.scores, blocks, count, pass.chunk.position(first), ratio, c.indexer.budget / ratio, s.visible,
                     s.visible_stride, s.visible_count);
}

// Tells the observer what queries [first, first + count) saw; waits for it.
void report(const DevicePass& pass, uint32_t block, uint32_t first, uint32_t count, bool sparse) {
  const AttentionScratch& s = pass.ws.attention;
  std::vector<uint32_t> visible;
  std::vector<uint32_t> counts(count);
  if (sparse) {
    visible.resize(size_t{count} * s.visible_stride);
    pass.stream.copy_to_host(std::as_writable_bytes(std::span(visible)), s.visible);
    pass.stream.copy_to_host(std::as_writable_bytes(std::span(counts)), s.visible_count);
    pass.stream.synchronize();
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t position = pass.chunk.position(first + i);
    if (sparse) {
      pass.chunk.observer->on_attend(block, position, std::span<const uint32_t>(visible).subspan(i * s.visible_stride, counts[i]));
      continue;
    }
    visible.resize(size_t{position} + 1);
    std::iota(visible.begin(), visible.end(), 0u);
    pass.chunk.observer->on_attend(block, position, visible);
  }
}

}  // namespace

void prepare_rotation(const DevicePass& pass) {
  gpu::rope_table(pass.stream, pass.scratch.inv_freq, pass.config.rotary_dim / 2, pass.chunk.first, 1, pass.chunk.tokens, pass.ws.cos,
                  pass.ws.sin);
}

void attend(const DevicePass& pass, const AttentionWeights& w, const AttentionState& state, kernels::KvType kv_type, uint32_t block) {
  const ModelConfig& c = pass.config;
  AttentionScratch& s = pass.ws.attention;
  const uint32_t tokens = pass.chunk.tokens;
  const bool observed = pass.chunk.observer != nullptr && pass.chunk.observer->wants_attention();
  const uint32_t dense = dense_tokens(pass.chunk, w.compress_ratio, c.indexer.budget);

  project(pass, w, state, dense < tokens);
  normalise_and_store(pass, w, state, kv_type);
  if (w.compress_ratio > 0) update_block_keys(pass, w, state);

  if (dense > 0) {
    attend_heads(pass, w, state, kv_type, 0, dense, false);
    if (observed) report(pass, block, 0, dense, false);
  }
  if (dense < tokens) {
    gpu::norm_rope(pass.stream, s.index_q, c.indexer.head_dim, tokens, c.indexer.heads, c.indexer.head_dim, w.indexer.q_norm, c.norm_eps,
                   pass.ws.cos, pass.ws.sin, c.rotary_dim / 2);
  }
  for (uint32_t first = dense; first < tokens; first += kDeviceSparseQueries) {
    const uint32_t count = std::min(kDeviceSparseQueries, tokens - first);
    select_visible(pass, w, state, first, count);
    attend_heads(pass, w, state, kv_type, first, count, true);
    if (observed) report(pass, block, first, count, true);
  }

  quantize_for(pass, s.heads, 0, tokens, w.output);
  const gpu::DeviceProduct output[] = {product(w.output, s.heads.view(0, tokens), pass.ws.y, c.hidden)};
  multiply(pass, output);
}

}  // namespace tierpack::model
