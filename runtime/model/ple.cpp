#include "runtime/model/ple.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tierpack::model {

namespace {

void token_rows(const ModelConfig::Ple& c, const Chunk& chunk, size_t t, std::span<uint64_t> rows) {
  ngram_rows(c, chunk.timeline.first(chunk.position(t) + size_t{1}), rows.first(c.heads()));
}

void request_token(const ModelConfig::Ple& c, const Chunk& chunk, experts::RowStore& store, const PleWeights& w, size_t t) {
  std::array<uint64_t, kMaxNgramHeads> rows{};
  token_rows(c, chunk, t, rows);
  store.request(*w.table, std::span(rows).first(c.heads()));
}

// Gated value of every stream of one token, and its normalised copy, the convolution's input.
void gate_token(const Pass& pass, const PleWeights& w, size_t t, float* conv_input) {
  const kernels::KernelTable& k = pass.compute.k;
  const float eps = pass.config.norm_eps;
  const uint32_t dim = pass.config.hidden;
  const uint32_t streams = pass.config.hc.streams;
  const size_t wide = size_t{streams} * dim;
  const PleScratch& s = pass.ws.ple;
  const auto root_dim = static_cast<float>(std::sqrt(static_cast<double>(dim)));
  for (uint32_t stream = 0; stream < streams; ++stream) {
    const size_t at = t * wide + size_t{stream} * dim;
    const size_t gamma = size_t{stream} * dim;
    k.rms_norm(s.key + at, w.norm_key + gamma, eps, dim, s.key + at);
    k.rms_norm(pass.ws.streams + at, w.norm_query + gamma, eps, dim, s.query + at);
    const float score = k.dot(s.key + at, s.query + at, dim) / root_dim;
    const float size = std::sqrt(std::max(std::fabs(score), 1e-6f));
    float gate = score > 0 ? size : score < 0 ? -size : 0.0f;
    k.sigmoid(&gate, 1, &gate);
    k.scale(s.value + t * dim, gate, dim, s.gated + at);
    k.rms_norm(s.gated + at, w.norm_conv + gamma, eps, dim, conv_input + gamma);
  }
}

}  // namespace

void ngram_rows(const ModelConfig::Ple& c, std::span<const uint32_t> timeline, std::span<uint64_t> rows) {
  uint64_t hash = timeline.back() * c.multipliers[0];
  bool cut = false;
  size_t head = 0;
  for (uint32_t n = 2; n <= c.ngram; ++n) {
    const size_t back = n - 1;
    cut = cut || timeline.size() <= back || timeline[timeline.size() - 1 - back] == c.eos;
    const uint64_t token = cut ? c.eos : timeline[timeline.size() - 1 - back];
    hash ^= token * c.multipliers[back];
    for (uint32_t i = 0; i < c.heads_per_ngram; ++i, ++head) rows[head] = hash % c.sizes[head] + c.offsets[head];
  }
}

void request_ngram_rows(const ModelConfig::Ple& c, const Chunk& chunk, experts::RowStore& rows, const PleWeights& w) {
  const size_t ahead = std::max<size_t>(1, rows.window() / c.heads());
  for (size_t t = 0; t < std::min<size_t>(ahead, chunk.tokens); ++t) request_token(c, chunk, rows, w, t);
}

void read_ngram_rows(const kernels::KernelTable& k, const ModelConfig::Ple& c, const Chunk& chunk, experts::RowStore& store,
                     const PleWeights& w, float* e) {
  std::array<uint64_t, kMaxNgramHeads> rows{};
  std::array<std::byte, kMaxNgramRowBytes> row{};
  const size_t ahead = std::max<size_t>(1, store.window() / c.heads());
  for (size_t t = 0; t < chunk.tokens; ++t) {
    // Rows of later tokens are on their way while one token's are decoded.
    if (t + ahead < chunk.tokens) request_token(c, chunk, store, w, t + ahead);
    token_rows(c, chunk, t, rows);
    for (uint32_t h = 0; h < c.heads(); ++h, e += c.head_dim) {
      store.read(*w.table, rows[h], std::span(row).first(w.table->row_bytes));
      k.decode_row(w.table->dtype, row.data(), c.head_dim, e);
    }
  }
}

void add_ngram_embedding(const Pass& pass, experts::RowStore& rows, const PleWeights& w, const PleState& state) {
  const kernels::KernelTable& k = pass.compute.k;
  const ModelConfig::Ple& c = pass.config.ple;
  const uint32_t tokens = pass.chunk.tokens;
  const uint32_t wide = pass.config.hc.streams * pass.config.hidden;
  PleScratch& s = pass.ws.ple;

  read_ngram_rows(k, c, pass.chunk, rows, w, s.embedding.x);
  quantize_for(pass.compute, s.embedding, tokens, w.key, w.value);
  const kernels::ActivationView e = s.embedding.view(0, tokens);
  const Product products[] = {{&w.key, e, s.key, wide}, {&w.value, e, s.value, pass.config.hidden}};
  run_products(pass.compute, products);

  const size_t history = size_t{c.conv - 1} * c.ngram;
  std::copy_n(state.conv, history * wide, s.conv_input);
  for_ranges(pass.compute, tokens, wide * kElementCost, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) gate_token(pass, w, t, s.conv_input + (history + t) * wide);
  });
  std::copy_n(s.conv_input + size_t{tokens} * wide, history * wide, state.conv);

  for_ranges(pass.compute, tokens, wide * kElementCost, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const float* taps[kMaxConvTaps];
      for (uint32_t i = 0; i < c.conv; ++i) taps[i] = s.conv_input + (t + size_t{i} * c.ngram) * wide;
      float* const conv = s.conv + t * wide;
      k.conv(taps, w.conv, c.conv, wide, conv);
      k.silu(conv, wide, conv);
      k.add(conv, s.gated + t * wide, wide, conv);
      k.add(pass.ws.streams + t * wide, conv, wide, pass.ws.streams + t * wide);
    }
  });
}

}  // namespace tierpack::model
