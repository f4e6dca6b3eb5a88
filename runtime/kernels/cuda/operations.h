// The operations of a forward pass on the GPU, whole chunks of tokens at a time: docs/arithmetic.md bit for bit. Plain C++; the
// kernels are in *.cu. All pointers are device memory; work is queued on the stream and done when that is synchronised.
//
// T = tokens of the chunk, D = hidden, S = streams, H / KV = query and key-value heads. Arrays are row-major without gaps unless a
// stride (in elements) is named. In-place use is allowed where said.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::kernels::cuda {

using device::Stream;

// --- rows and elements (norms.cu, elementwise.cu) ---

// Row i of `rows`: x + i * x_stride -> out + i * n, normalised, times weight + (i % weight_rows) * n (null: no weight). out may be x
// where x_stride = n.
void rms_norm(Stream& s, const float* x, size_t x_stride, const float* weight, uint32_t weight_rows, float eps, uint32_t n, size_t rows,
              float* out);
// a := a + b
void add(Stream& s, float* a, const float* b, size_t count);
// out[i] = sigmoid(gate[i]) * x[i]; out may be gate or x.
void sigmoid_mul(Stream& s, const float* gate, const float* x, size_t count, float* out);

// --- hyper-connections (hyper.cu); share = 1 / S ---

// streams (T, S, D): every stream starts as x (T, D).
void start_streams(Stream& s, const float* x, uint32_t tokens, uint32_t streams, uint32_t dim, float* out);
// low := silu(low * share)
void hyper_low(Stream& s, float* low, size_t count, float share);
// x (T, D) = ((g_0 + g_1) + ...) * share with g_s = sigmoid(up_s) * normed_s; up and normed (T, S, D).
void hyper_mean(Stream& s, const float* up, const float* normed, uint32_t tokens, uint32_t streams, uint32_t dim, float share, float* x);
// inject := sigmoid(inject * share) * 2
void hyper_inject(Stream& s, float* inject, size_t count, float share);
// streams (T, S, D): R_s := fma(inject_s, y, R_s); inject (T, S), y (T, D).
void combine_streams(Stream& s, const float* y, const float* inject, uint32_t tokens, uint32_t streams, uint32_t dim, float* out);

// --- rotation (rope.cu) ---

// Row i of cos and sin (rows, pairs): kernels::rope_row of position first + i * step. inv_freq (pairs) on the device.
void rope_table(Stream& s, const float* inv_freq, uint32_t pairs, uint32_t first, uint32_t step, uint32_t rows, float* cos, float* sin);
// In place: head h of token t at x + (t * heads + h) * head_stride: its first `dim` values RMS-normalised with weight (dim), then the
// first 2 * pairs rotated by row t of cos and sin.
void norm_rope(Stream& s, float* x, size_t head_stride, uint32_t tokens, uint32_t heads, uint32_t dim, const float* weight, float eps,
               const float* cos, const float* sin, uint32_t pairs);

// --- attention (attention.cu) ---

// k, v (T, KV, dim) become rows first .. first + T of the cache: head h, position p at keys + (h * capacity + p) * kv_row_bytes.
void store_kv(Stream& s, const float* k, const float* v, uint32_t tokens, uint32_t kv_heads, uint32_t dim, KvType type, uint32_t first,
              uint32_t capacity, std::byte* keys, std::byte* values);

struct AttentionArgs {
  const float* q = nullptr;     // query head h of token t at q + (t * heads + h) * q_stride
  size_t q_stride = 0;
  const float* gate = nullptr;  // like q: out := sigmoid(gate) * out; null: no gate
  float* out = nullptr;         // (T, H, dim)
  uint32_t tokens = 0, heads = 0, kv_heads = 0, dim = 0;  // dim at most kAttentionDimMax
  KvType type = KvType::kF16;
  const std::byte* keys = nullptr;    // as store_kv writes them
  const std::byte* values = nullptr;
  uint32_t capacity = 0;
  uint32_t first = 0;                 // position of token 0: without `visible` token t sees positions 0 .. first + t
  const uint32_t* visible = nullptr;  // row t: ascending positions that token t sees
  size_t visible_stride = 0;
  const uint32_t* visible_count = nullptr;  // (T)
  uint32_t visible_most = 0;          // no count is larger
  float scale = 0;
  float* scratch = nullptr;           // for splitting the context; at least attention_scratch_bytes(heads, dim, context)
  size_t scratch_bytes = 0;
};
// Section 10. Few queries are split over the context in its fixed chunks, many go through it in order: the same bits.
void attention(Stream& s, const AttentionArgs& args);
// What one token needs to be split over a context of so many tokens.
size_t attention_scratch_bytes(uint32_t heads, uint32_t dim, uint32_t context);

// --- sparse attention's indexer (indexer.cu) ---

// raw (blocks, ratio, dim) -> keys (blocks, dim): mean of each block (sum ascending, times f32(1 / ratio)), RMS norm with weight, rotation
// by row b of cos and sin.
void index_keys(Stream& s, const float* raw, uint32_t blocks, uint32_t ratio, uint32_t dim, const float* weight, float eps,
                const float* cos, const float* sin, uint32_t pairs, float* keys);
// scores (queries, blocks): sum over heads, ascending from +0, of max(dot(q_h, key), 0); q (queries, heads, dim), keys (blocks, dim).
void index_scores(Stream& s, const float* q, uint32_t queries, uint32_t heads, uint32_t dim, const float* keys, uint32_t blocks,
                  float* scores);
// Query i at position first + i has seen (first + i + 1) / ratio whole blocks: the `keep` best of them by section 11 (scores row i of
// `stride`), as ascending positions (ratio of each), then the positions behind the last whole block up to its own. visible (queries,
// visible_stride), count (queries). keep is at most the blocks of the first query.
void select_blocks(Stream& s, const float* scores, size_t stride, uint32_t queries, uint32_t first, uint32_t ratio, uint32_t keep,
                   uint32_t* visible, size_t visible_stride, uint32_t* count);

// --- gated delta net (delta_net.cu) ---

// mixed (T, channels) = silu(conv): input (taps - 1 + T, channels), weight (channels, taps).
void conv_silu(Stream& s, const float* input, uint32_t tokens, uint32_t taps, uint32_t channels, const float* weight, float* mixed);
// In place: of every token (channels apart), heads of `dim` values from offset 0 on: l2_norm with factor q_factor for the first k_heads,
// 1 for the next k_heads.
void unit_heads(Stream& s, float* mixed, uint32_t tokens, size_t channels, uint32_t k_heads, uint32_t dim, float eps, float q_factor);
// In place, (T, v_heads): beta := sigmoid(beta); decay := exp(softplus(decay + dt_bias) * a).
void delta_gates(Stream& s, float* beta, float* decay, const float* dt_bias, const float* a, uint32_t tokens, uint32_t v_heads);
// Section 9 for tokens in order. state (v_heads, dim, dim); mixed as unit_heads leaves it: per token q (k_heads, dim), k (k_heads, dim),
// v (v_heads, dim); V head h reads K head h % k_heads. out (T, v_heads, dim). dim at most 256, a multiple of 4.
void delta_rule(Stream& s, float* state, const float* mixed, size_t channels, const float* decay, const float* beta, uint32_t tokens,
                uint32_t k_heads, uint32_t v_heads, uint32_t dim, float* out);
// In place: rows of dim: o := sigmoid(z) * (rms_norm(o) with weight).
void gated_norm(Stream& s, float* o, const float* z, const float* weight, float eps, uint32_t dim, size_t rows);

// --- n-gram embedding (ngram.cu) ---

// For every token and stream: key, value, query norms, gate, gated value and its norm, as section 13 and runtime/model/ple.cpp define.
// key (T, S, D) is read; streams (T, S, D); value (T, D); gated (T, S, D) and conv_input (T, S, D) are written.
void ngram_gate(Stream& s, const float* key, const float* streams, const float* value, const float* norm_key, const float* norm_query,
                const float* norm_conv, float eps, uint32_t tokens, uint32_t n_streams, uint32_t dim, float* gated, float* conv_input);
// streams := streams + (silu(conv) + gated), every token: tap i of token t is row t + i * dilation of input (wide values each).
void ngram_conv(Stream& s, const float* input, const float* weight, uint32_t taps, uint32_t dilation, uint32_t tokens, uint32_t wide,
                const float* gated, float* streams);

// --- experts (routing.cu) ---

// Per token: p = softmax(logits row), ids (T, K) of the K largest by section 11, weights (T, K) = p / (sum in that order). K at most 32,
// E at most 4096. logits (T, E) are overwritten by p.
void route(Stream& s, float* logits, uint32_t tokens, uint32_t experts, uint32_t used, uint32_t* ids, float* weights);
// hidden row i (columns): silu(gate_i) * up_i for ff values, then zeros; gate, up (rows, ff). With q not null also its quantised form.
void expert_hidden(Stream& s, const float* gate, const float* up, size_t rows, uint32_t ff, uint32_t columns, float* x, int8_t* q,
                   float* scale, int32_t* sum);
// y (T, D) = out_{row[0]} * w_0, then fma in order of selection, then fma(sigmoid(shared_weight), shared, y) unless shared is null.
// row, weights (T, K); out (rows, D); row null: pair i of token t is row t * K + i.
void combine_experts(Stream& s, const float* out, const uint32_t* row, const float* weights, uint32_t used, const float* shared,
                     const float* shared_weight, uint32_t tokens, uint32_t dim, float* y);

// --- sampling (sampling.cu) ---

// best[r] = index of the first of section 11's order in row r of (rows, n).
void argmax(Stream& s, const float* x, uint32_t rows, uint32_t n, uint32_t* best);
// The k first of section 11's order of one row of n, in that order; k at most 1024.
void top_k(Stream& s, const float* x, uint32_t n, uint32_t k, uint32_t* ids, float* values);

}  // namespace tierpack::kernels::cuda
